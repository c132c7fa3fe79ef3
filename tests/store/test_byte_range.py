import itertools

from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.store.object_store import ByteRange, cut_ranges, merge_ranges

CONTENT = bytes(itertools.islice(itertools.cycle(range(251)), 5000))


def byte_ranges():
    return st.builds(
        lambda a, b: ByteRange(min(a, b), max(a, b)), st.integers(0, 5000), st.integers(0, 5000)
    )


@given(wanted=st.lists(byte_ranges()), max_gap=st.integers(0, 500))
def test_merged_requests_cover_wanted_bytes_and_are_separate(wanted, max_gap):
    requests = merge_ranges(wanted, max_gap=max_gap)
    assert all(any(r.start <= w.start and w.end <= r.end for r in requests) for w in wanted)
    assert all(a.end + max_gap < b.start for a, b in itertools.pairwise(requests))


@given(wanted=st.lists(byte_ranges()), max_gap=st.integers(0, 500))
def test_requests_start_and_end_at_wanted_bytes(wanted, max_gap):
    for request in merge_ranges(wanted, max_gap=max_gap):
        assert request.start in {w.start for w in wanted}
        assert request.end in {w.end for w in wanted}


@given(
    wanted=st.lists(byte_ranges()),
    max_gap=st.integers(0, 500),
    max_bytes=st.none() | st.integers(1, 3000),
)
def test_cut_ranges_returns_each_wanted_range(wanted, max_gap, max_bytes):
    requests = merge_ranges(wanted, max_gap=max_gap, max_bytes=max_bytes)
    answers = [CONTENT[r.start : r.end] for r in requests]
    found = [bytes(piece) for piece in cut_ranges(wanted, requests, answers)]
    assert found == [CONTENT[w.start : w.end] for w in wanted]


def test_merged_ranges_have_limited_length():
    wanted = [ByteRange(i * 100, (i + 1) * 100) for i in range(10)]
    requests = merge_ranges(wanted, max_gap=0, max_bytes=300)
    assert requests == (
        ByteRange(0, 300),
        ByteRange(300, 600),
        ByteRange(600, 900),
        ByteRange(900, 1000),
    )


def test_long_range_is_not_split():
    assert merge_ranges([ByteRange(0, 1000)], max_gap=0, max_bytes=10) == (ByteRange(0, 1000),)


def test_ranges_are_ordered_by_start():
    assert sorted([ByteRange(5, 6), ByteRange(1, 9), ByteRange(1, 2)]) == [
        ByteRange(1, 2),
        ByteRange(1, 9),
        ByteRange(5, 6),
    ]
    assert ByteRange(3, 10).num_bytes == 7
