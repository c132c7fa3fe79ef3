import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.u64_segment import EncodedU64Array, RangeSegment, RangeWithHolesSegment


@st.composite
def live_tables(draw):
    """Fragments with interleaved ids of every shape; dead rows repeat ids that live elsewhere."""
    base = draw(st.sampled_from([0, 2**33, 2**64 - 2000]))
    universe = draw(st.sampled_from([50, 400, 1500]))
    num_fragments = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    # Long stretches make ranges, with few strangers holes, with many bitmaps, and so on.
    block = draw(st.sampled_from([1, 3, 40, 200]))
    owner = np.repeat(rng.integers(-1, num_fragments, universe // block + 1), block)[:universe]
    noise = rng.random(universe) < draw(st.sampled_from([0.0, 0.02, 0.4]))
    owner[noise] = rng.integers(-1, num_fragments, int(noise.sum()))
    fragments, expected = [], {}
    for number in range(num_fragments):
        fragment_id = number * 3 if number < 5 else 2**32 - 1
        live = np.flatnonzero(owner == number)
        dead = rng.choice(universe, draw(st.sampled_from([0, 2, universe // 2])), replace=False)
        dead = dead[owner[dead] != number]
        ids = np.union1d(live, dead)
        if draw(st.booleans()):
            ids = rng.permutation(ids)
        values = ids.astype(np.uint64) + np.uint64(base)
        cuts = np.sort(rng.integers(0, len(values) + 1, draw(st.integers(0, 3))))
        pieces = [RowIdSequence.from_array(piece) for piece in np.split(values, cuts)]
        deleted = np.flatnonzero(np.isin(ids, dead))
        vector = DeletionVector.of(deleted) if len(deleted) or draw(st.booleans()) else None
        fragments.append((fragment_id, RowIdSequence.concat(pieces), vector))
        for offset in np.flatnonzero(~np.isin(ids, dead)).tolist():
            expected[int(values[offset])] = fragment_id << 32 | offset
    return fragments, expected, base, universe


@given(table=live_tables(), data=st.data())
def test_lookup_equals_dict_of_live_rows(table, data):
    fragments, expected, base, universe = table
    index = RowIdIndex.build(fragments)
    index.check_unique()
    wanted = [0, 2**64 - 1, *range(max(0, base - 5), min(2**64, base + universe + 5))]
    if data.draw(st.booleans()):
        wanted = data.draw(st.permutations(wanted))[:20] * 2
    addresses, found = index.addresses_of(np.array(wanted, dtype=np.uint64))
    assert addresses.dtype == np.uint64
    assert found.tolist() == [row_id in expected for row_id in wanted]
    for row_id, address, hit in zip(wanted, addresses.tolist(), found.tolist(), strict=True):
        assert not hit or address == expected[row_id]


def test_empty_index_finds_nothing():
    for fragments in ([], [(0, RowIdSequence(()), None)]):
        index = RowIdIndex.build(fragments)
        index.check_unique()
        assert index.addresses_of([0, 2**64 - 1])[1].tolist() == [False, False]
        assert index.addresses_of([])[0].tolist() == []


RANGE = RowIdSequence.consecutive(0, 10)
HOLED = RowIdSequence(
    (RangeWithHolesSegment(5, 8, EncodedU64Array.choose(np.array([6], dtype=np.uint64))),)
)
BITMAP = RowIdSequence.from_array([5, 7, 9])
ARRAY = RowIdSequence.from_array([9, 7, 5])


@pytest.mark.parametrize("one", [RANGE, HOLED, BITMAP, ARRAY])
@pytest.mark.parametrize("two", [RANGE, HOLED, BITMAP, ARRAY])
def test_duplicate_live_row_ids_are_corrupt(one, two):
    def build(deleted):
        return RowIdIndex.build([(1, one, None), (2, two, deleted)])

    with pytest.raises(CorruptFileError, match=r"live rows: fragment 1 .*fragment 2"):
        build(None).addresses_of([4, 7])
    with pytest.raises(CorruptFileError, match="belongs to two live rows"):
        build(None).check_unique()
    index = build(DeletionVector.of(range(len(two))))
    index.check_unique()
    assert index.addresses_of([7])[0].tolist() == [1 << 32 | one.to_array().tolist().index(7)]


def test_duplicate_row_id_in_ranges_is_found():
    first, second = DeletionVector.of(range(500)), DeletionVector.of(range(501, 1000))
    sequence = RowIdSequence.consecutive(0, 1000)
    index = RowIdIndex.build([(0, sequence, first), (1, sequence, second)])
    assert index.addresses_of([499])[0].tolist() == [1 << 32 | 499]
    with pytest.raises(CorruptFileError, match="row id 500 belongs"):
        index.check_unique()


def test_deleted_offset_beyond_fragment_is_corrupt():
    with pytest.raises(CorruptFileError, match="deleted offset 10"):
        RowIdIndex.build([(0, RANGE, DeletionVector.of([10]))])


def test_large_ranges_are_not_expanded():
    rows, count = 2**32, 20_000
    fragments = [
        (number, RowIdSequence((RangeSegment(number * rows, (number + 1) * rows),)), None)
        for number in range(count)
    ]
    index = RowIdIndex.build(fragments)
    wanted = np.arange(10_000, dtype=np.uint64) * np.uint64(8_589_934_601)
    addresses, found = index.addresses_of(wanted)
    assert found.all()
    # Equal sizes make the address of a row equal to its id.
    assert (addresses == wanted).all()
