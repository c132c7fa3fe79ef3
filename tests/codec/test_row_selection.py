"""Selecting rows from slices gives the rows that Python's own indexing gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.codec.row_selection import filter_rows, take_rows, take_values


def nested() -> pa.Array:
    inner = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(60, dtype="f4")), 2)
    return pa.FixedSizeListArray.from_arrays(inner, 3)


def vectors(values: pa.Array) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(values, 1)


SLICED = pa.FixedSizeListArray.from_arrays(nested().values.slice(4, 20), 2)
OFFSETS = pa.array(range(11), pa.int32())

ARRAYS = {
    "list of lists": nested(),
    "slice in a list of lists": SLICED,
    "slice in a struct": pa.StructArray.from_arrays([SLICED, pa.array(range(10))], ["a", "b"]),
    "slice in a list": pa.ListArray.from_arrays(OFFSETS, SLICED),
    "slice in a map": pa.MapArray.from_arrays(OFFSETS, pa.array(range(10)), SLICED),
    "slice in a list of structs": vectors(pa.StructArray.from_arrays([SLICED], ["a"])),
    "in a struct": pa.StructArray.from_arrays([nested(), pa.array(range(10))], ["a", "b"]),
    "plain": pa.array([[i] for i in range(10)], pa.list_(pa.int64(), 1)),
    "text": pa.array([str(i) for i in range(10)]),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_sliced_rows_are_selected(array):
    piece = array.slice(3, 5)
    values = piece.to_pylist()
    batch = pa.record_batch([piece], ["x"])
    mask = np.array([True, False, True, True, False])
    assert filter_rows(batch, mask)["x"].to_pylist() == [values[0], values[2], values[3]]
    order = np.array([4, 0, 2])
    assert take_rows(batch, order)["x"].to_pylist() == [values[4], values[0], values[2]]
    assert take_values(piece, pa.array(order)).to_pylist() == [values[4], values[0], values[2]]
