import pickle
import tracemalloc

import numpy as np
import pytest
from format.row_id_strategies import damaged, sequences, u64_arrays
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.u64_segment import RangeSegment
from pyspark_lance.proto import row_ids_pb2


@given(sequence=sequences())
def test_row_id_sequence_round_trips(sequence):
    again = RowIdSequence.from_bytes(sequence.to_bytes())
    assert again == sequence == pickle.loads(pickle.dumps(sequence))
    assert again.to_bytes() == sequence.to_bytes()
    values = again.to_array()
    assert values.dtype == np.uint64
    assert len(values) == len(again)
    assert again.expect_length(len(values)) is again
    assert again.bounds() == ((int(values.min()), int(values.max())) if len(values) else None)


@given(sequence=sequences(), data=st.data())
def test_slice_take_and_without_equal_array_model(sequence, data):
    values, count = sequence.to_array(), len(sequence)
    start = data.draw(st.integers(0, count))
    end = data.draw(st.integers(start, count))
    assert sequence.slice(start, end).to_array().tolist() == values[start:end].tolist()
    chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=30)) if count else []
    offsets = np.array(chosen, dtype=np.uint32)
    assert sequence.take(offsets).tolist() == values[offsets].tolist()
    live = sequence.without(DeletionVector.of(offsets))
    assert live.to_array().tolist() == np.delete(values, offsets).tolist()
    pieces = [sequence.slice(0, start), sequence.slice(start, end), sequence.slice(end, count)]
    assert RowIdSequence.concat(pieces).to_array().tolist() == values.tolist()


@given(sequence=sequences(), data=st.data())
def test_live_runs_equal_array_model(sequence, data):
    ids = sequence.to_array()
    gone = data.draw(st.sets(st.integers(0, max(0, len(ids) - 1)), max_size=len(ids)))
    deleted = DeletionVector.of(sorted(gone)) if gone else None
    starts, lasts = sequence.live_runs(deleted)
    live = [int(one) for one in np.delete(ids, sorted(gone))]
    runs = zip(starts.tolist(), lasts.tolist(), strict=True)
    assert [one for start, last in runs for one in range(start, last + 1)] == live
    assert (starts <= lasts).all()


def test_mostly_deleted_rows_become_few_runs():
    vector = DeletionVector.of(np.delete(np.arange(3 << 20), [0, 7, (1 << 20) + 1]))
    firsts, ends = vector.runs()
    assert len(firsts) < 8
    assert int((ends - firsts).sum()) == len(vector)
    ids = RowIdSequence.consecutive(100, 3 << 20)
    starts, lasts = ids.live_runs(vector)
    assert starts.tolist() == [100, 107, 100 + (1 << 20) + 1]
    assert lasts.tolist() == starts.tolist()


@given(parts=st.lists(u64_arrays(), max_size=5))
def test_concat_equals_numpy(parts):
    joined = RowIdSequence.concat([RowIdSequence.from_array(part) for part in parts])
    assert joined.to_array().tolist() == [value for part in parts for value in part.tolist()]


def test_only_touching_ranges_merge():
    def of(*values):
        return RowIdSequence.from_array(values)

    joined = RowIdSequence.concat([of(1, 2), of(3, 4), of(6, 7), of(5), of(9, 8), of(9)])
    assert [segment.to_array().tolist() for segment in joined.segments] == [
        [1, 2, 3, 4],
        [6, 7],
        [5],
        [9, 8],
        [9],
    ]


@pytest.mark.parametrize(
    ("encoded", "values"),
    [
        ("", []),
        ("0a040a021002", [0, 1]),
        ("0a060a0408031005", [3, 4]),
        ("0a091a07080110091a01e1", [1, 6, 7, 8]),
        ("0a0e2a0c0a0a08021206010000000500", [3, 2, 7]),
    ],
)
def test_row_id_bytes_equal_reference_writer(encoded, values):
    sequence = RowIdSequence.from_bytes(bytes.fromhex(encoded))
    assert sequence.to_array().tolist() == values
    assert RowIdSequence.from_array(values).to_bytes().hex() == encoded


@given(sequence=sequences(), data=st.data())
def test_damaged_row_ids_are_corrupt_or_valid(sequence, data):
    broken = data.draw(damaged(sequence.to_bytes()))
    try:
        found = RowIdSequence.from_bytes(broken)
    except CorruptFileError:
        return
    if len(found) < 100_000:
        assert len(found.to_array()) == len(found)
    else:
        with pytest.raises(CorruptFileError):
            found.expect_length(len(sequence))


def test_damaged_bounds_allocate_nothing():
    huge = row_ids_pb2.U64Segment.Range(start=0, end=2**60)
    large = row_ids_pb2.U64Segment.Range(start=0, end=2**32)
    tracemalloc.start()
    try:
        for content, repeats in ((huge, 1), (large, 2)):
            message = row_ids_pb2.RowIdSequence()
            for _ in range(repeats):
                message.segments.add(range=content)
            with pytest.raises(CorruptFileError):
                RowIdSequence.from_bytes(message.SerializeToString())
        message = row_ids_pb2.RowIdSequence(segments=[row_ids_pb2.U64Segment(range=large)])
        with pytest.raises(CorruptFileError, match="4294967296 row ids for 10 physical rows"):
            RowIdSequence.from_bytes(message.SerializeToString()).expect_length(10)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_scattered_ids_are_decoded_in_little_memory():
    ids = np.random.default_rng(1).permutation(1 << 18).astype(np.uint64)
    data = RowIdSequence.from_array(ids).to_bytes()
    tracemalloc.start()
    try:
        found = RowIdSequence.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(data)
    finally:
        tracemalloc.stop()
    assert (found.to_array() == ids).all()


def test_invalid_messages_are_corrupt():
    with pytest.raises(CorruptFileError, match="not a RowIdSequence message"):
        RowIdSequence.from_bytes(b"\xff\xff\xff")
    with pytest.raises(CorruptFileError, match="no known shape"):
        RowIdSequence.from_bytes(bytes.fromhex("0a00"))


def test_rows_outside_row_id_sequence_are_refused():
    sequence = RowIdSequence.consecutive(10, 5)
    with pytest.raises(InvalidInputError):
        sequence.slice(2, 6)
    for offset in (5, -1):
        with pytest.raises(InvalidInputError):
            sequence.take([offset])
    with pytest.raises(CorruptFileError, match="deleted offset 5"):
        sequence.without(DeletionVector.of([5]))


def test_segments_without_deletions_are_unchanged():
    sequence = RowIdSequence((RangeSegment(0, 10), RangeSegment(20, 30), RangeSegment(40, 50)))
    live = sequence.without(DeletionVector.of([0, *range(20, 30)]))
    assert live.segments == (RangeSegment(1, 10), RangeSegment(20, 30))
