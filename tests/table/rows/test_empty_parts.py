"""Arrays of no values that came without offsets get them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.rows.conform import array_with_offsets, conform_batch, with_offsets

_NOTHING = pa.py_buffer(b"")
_ENTRIES = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]


def text():
    """Strings as Java sends them: none, and no offsets."""
    return pa.Array.from_buffers(pa.string(), 0, [None, _NOTHING, _NOTHING])


def list_of(child):
    """Lists of ``child``: none, and no offsets."""
    return pa.Array.from_buffers(pa.list_(child.type), 0, [None, _NOTHING], children=[child])


def map_of_text():
    """Maps: none, and no offsets."""
    entries = pa.StructArray.from_arrays([text(), text()], fields=_ENTRIES)
    kind = pa.map_(pa.string(), pa.string())
    return pa.Array.from_buffers(kind, 0, [None, _NOTHING], children=[entries])


def struct_of(child):
    """Structs with one field."""
    return pa.StructArray.from_arrays([child], ["part"])


def nulls_of_lists(child):
    """Three lists that are null, of no values at all."""
    buffers = [pa.py_buffer(b"\0"), pa.py_buffer(bytes(16))]
    return pa.Array.from_buffers(pa.list_(child.type), 3, buffers, 3, children=[child])


@pytest.mark.parametrize(
    "child",
    [list_of(text()), struct_of(list_of(text())), map_of_text(), struct_of(map_of_text()),
     list_of(list_of(text())), struct_of(struct_of(list_of(struct_of(text()))))],
)  # fmt: skip
def test_empty_nested_arrays_get_offsets(child):
    given = nulls_of_lists(child)
    whole = array_with_offsets(given)
    whole.validate(full=True)
    assert whole.type == given.type
    assert whole.to_pylist() == [None] * 3
    assert whole.nbytes == 13

    def check(array):
        for buffer in array.buffers()[1:2]:
            assert len(array) or pa.types.is_struct(array.type) or buffer.size >= 4
        if pa.types.is_list(array.type):
            check(array.values)

    check(whole)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), given], names=["id", "deep"])
    assert with_offsets(batch).column("deep").nbytes == 13
    if "map" not in str(child.type):
        fields = LanceSchema.from_arrow(batch.schema).fields
        assert conform_batch(batch, fields).column("deep").nbytes == 13


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[{"a": 1, "b": ["x", None]}], None, []]),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
        pa.array([{"a": []}, None], pa.struct([("a", pa.list_(pa.list_(pa.int8())))])),
        pa.array([{"a": [[1]]}, None, {"a": None}]).slice(1),
        pa.array([], pa.list_(pa.int8())),
        pa.array([1.5]),
    ],
)
def test_arrays_with_offsets_are_unchanged(array):
    assert array_with_offsets(array) is array
    batch = pa.RecordBatch.from_arrays([array], names=["one"])
    assert with_offsets(batch) is batch
