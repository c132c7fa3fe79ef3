"""Rows that came in pieces are joined, and none is lost where they do not fit into one array."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyspark_lance.codec.array_assembly import (
    concat_arrays,
    fewest_batches,
    join_batches,
    join_columns,
    select_fields,
)
from pyspark_lance.codec.decode_memory import BatchTooLargeError


def indexed(values, index_type=None):
    indices = pa.array(range(len(values)), index_type or pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))


def long_text(num_bytes):
    """One string; its pages are never touched, so they take no memory."""
    ends = np.array([0, num_bytes], np.int32)
    data = pa.py_buffer(np.zeros(num_bytes, np.uint8))
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), data])


def batch_of(array):
    return pa.record_batch([array, pa.array(range(len(array)))], ["value", "number"])


def values_of(batches):
    return [value for batch in batches for value in batch.column(0).to_pylist()]


@pytest.mark.parametrize("nest", ["flat", "list", "struct"])
def test_dictionaries_are_joined(nest):
    arrays = [indexed(["a", "b"]), indexed(["c", "a"])]
    if nest == "list":
        arrays = [pa.ListArray.from_arrays([0, 2], array) for array in arrays]
    elif nest == "struct":
        arrays = [pa.StructArray.from_arrays([array], ["member"]) for array in arrays]
    joined = join_batches([batch_of(array) for array in arrays])
    assert joined.column(0).to_pylist() == [
        value for array in arrays for value in array.to_pylist()
    ]
    assert joined.column(0).type == arrays[0].type


def test_dictionaries_too_large_for_index_type_stay_separate():
    arrays = [indexed([f"{name}{i}" for i in range(100)]) for name in "ab"]
    batches = [batch_of(array) for array in arrays]
    assert values_of(fewest_batches(batches)) == arrays[0].to_pylist() + arrays[1].to_pylist()
    for join in (lambda: join_batches(batches), lambda: concat_arrays(arrays)):
        with pytest.raises(BatchTooLargeError):
            join()


def test_joined_dictionary_keeps_null_item():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    assert values_of([join_batches([batch_of(array), batch_of(array)])]) == ["a", None] * 2


def lists_of(array):
    return pa.ListArray.from_arrays([0, 1], array)


def test_lists_beyond_two_gib_of_text_stay_separate():
    arrays = [lists_of(long_text(1100 << 20)) for _ in range(2)]
    batches = [batch_of(array) for array in arrays]
    assert fewest_batches(batches) == batches
    for join in (lambda: join_batches(batches), lambda: concat_arrays(arrays)):
        with pytest.raises(BatchTooLargeError):
            join()


@pytest.mark.slow  # pyarrow copies the two gigabytes
def test_joined_batches_keep_all_rows_beyond_two_gib():
    joined = fewest_batches([batch_of(long_text(size)) for size in (1100 << 20, 1100 << 20, 10)])
    assert len(joined) > 1
    assert sum(batch.num_rows for batch in joined) == 3
    assert all(len(column) == batch.num_rows for batch in joined for column in batch.columns)


def test_batches_without_rows_or_columns_are_joined():
    empty = batch_of(pa.array([], pa.string()))
    assert fewest_batches([empty, empty]) == []
    assert join_batches([empty, empty]).equals(empty)
    bare = batch_of(pa.array(["x"])).select([])
    assert join_batches([bare, bare]).num_rows == 2
    nothing = pa.record_batch([pa.nulls(2)], ["value"])
    assert join_batches([nothing, nothing]).num_rows == 4


# It must live longer than the arrays in it.
COUNTED = pa.proxy_memory_pool(pa.default_memory_pool())


@pytest.fixture
def counted_memory():
    before = pa.default_memory_pool()
    pa.set_memory_pool(COUNTED)
    yield COUNTED
    pa.set_memory_pool(before)


def test_columns_are_joined_one_after_another(counted_memory):
    numbers = pa.array(np.arange(1 << 16))
    names = [str(column) for column in range(16)]
    batches = [pa.record_batch([pc.add(numbers, i) for i in range(16)], names) for _ in range(4)]
    held = counted_memory.bytes_allocated()
    (joined,) = join_columns(batches)
    assert held > 16 << 20
    assert counted_memory.max_memory() < 1.2 * held
    assert batches == []
    assert joined.column("3").equals(pa.concat_arrays([pc.add(numbers, 3)] * 4))


@pytest.mark.slow
def test_joined_columns_are_cut_beyond_two_gib():
    batches = [batch_of(long_text(1 << 30)) for _ in range(3)]
    joined = join_columns(batches)
    assert [batch.num_rows for batch in joined] == [1, 1, 1]


def test_joined_columns_omit_empty_batches():
    empty, filled = batch_of(pa.array(["a"])).slice(0, 0), batch_of(pa.array(["b"]))
    assert join_columns([]) == []
    assert join_columns([empty]) == []
    assert join_columns([empty, filled]) == [filled]


def test_members_of_sliced_struct_keep_its_nulls():
    rows = [None if n % 3 == 0 else {"a": n, "b": 10 * n} for n in range(20)]
    array = pa.array(rows).slice(7)
    cut = select_fields(array, pa.struct([array.type.field(1)]), [1])
    assert cut.to_pylist() == [row and {"b": row["b"]} for row in rows[7:]]
