"""PackedStruct: fixed-width children, row after row without padding.

Source: docs/format/file-format.md, section 5.1.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.compressive.packed_struct import record_rows
from pyspark_lance.codec.decode_memory import allocate
from pyspark_lance.codec.v2_0.flat import BufferCollector, BufferSlice, PageBuffers, bit_width_of
from pyspark_lance.proto import encodings_v2_0_pb2 as pb


class PackedStructDecoder:
    """Decoder of packed records to the children of a struct; nothing in it can be null."""

    def __init__(
        self,
        message: pb.PackedStruct,
        data_type: pa.DataType,
        num_values: int,
        buffers: PageBuffers,
    ) -> None:
        require(
            bool(pa.types.is_struct(data_type)) and len(message.inner) == data_type.num_fields,
            f"a packed struct of {len(message.inner)} children is stored for {data_type}",
        )
        self.data_type, self.num_values, self.has_bits = data_type, num_values, False
        self._widths = [
            _child_bytes(inner, child.type)
            for inner, child in zip(message.inner, data_type, strict=True)
        ]
        self._row_bytes = sum(self._widths)
        self._index, self._buffers = message.buffer.buffer_index, buffers
        needed = num_values * self._row_bytes
        found = buffers.size(self._index)
        require(found >= needed, f"{needed} bytes of packed records are expected, found {found}")

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return one slice of records."""
        return [BufferSlice(self._index, start * self._row_bytes, end * self._row_bytes)]

    def decode(self, start: int, end: int) -> pa.Array:
        """Copy each child out of the records."""
        count = end - start
        stored = self._buffers.read(self.slices(start, end)[0])
        records = np.frombuffer(stored, np.uint8).reshape(count, self._row_bytes)
        children, position = [], 0
        for width, child in zip(self._widths, self.data_type, strict=True):
            column = allocate(count * width)
            column.reshape(count, width)[...] = records[:, position : position + width]
            children.append(_fixed_width_array(child.type, count, pa.py_buffer(column)))
            position += width
        return pa.Array.from_buffers(self.data_type, count, [None], children=children)


def _child_bytes(encoding: pb.ArrayEncoding, data_type: pa.DataType) -> int:
    """Bytes of a child in a record; the stored width and that of the type must agree."""
    bits = _stored_bits(encoding)
    if bits % 8:
        reject_unsupported(f"packed structs with children of {bits} bits are not implemented")
    require(
        0 < bits == bit_width_of(data_type),
        f"packed values of {bits} bits are stored for the type {data_type}",
    )
    return bits // 8


def _stored_bits(encoding: pb.ArrayEncoding) -> int:
    kind = encoding.WhichOneof("array_encoding")
    if kind == "nullable" and encoding.nullable.HasField("no_nulls"):
        return _stored_bits(encoding.nullable.no_nulls.values)
    if kind == "fixed_size_list":
        items = encoding.fixed_size_list
        return items.dimension * _stored_bits(items.items)
    if kind == "flat":
        return int(encoding.flat.bits_per_value)
    return reject_unsupported(f"the encoding {kind} inside of a packed struct is not implemented")


def _fixed_width_array(data_type: pa.DataType, count: int, data: pa.Buffer) -> pa.Array:
    if pa.types.is_fixed_size_list(data_type):
        items = _fixed_width_array(data_type.value_type, count * data_type.list_size, data)
        return pa.Array.from_buffers(data_type, count, [None], children=[items])
    return pa.Array.from_buffers(data_type, count, [None, data])


def encode_packed_struct(
    array: pa.Array, blank: NDArray[np.bool_] | None, collector: BufferCollector
) -> pb.ArrayEncoding:
    """PackedStruct of a struct array.

    ``array``: structs of fixed-width fields, nothing in it null; may be a slice. ``blank``: true
    for rows that are written as zeros.
    """
    children = [array.field(index) for index in range(array.type.num_fields)]
    buffer = pb.Buffer(buffer_index=collector.add(record_rows(children, blank)))
    inner = [_child_encoding(child.type) for child in array.type]
    return pb.ArrayEncoding(packed_struct=pb.PackedStruct(inner=inner, buffer=buffer))


def _child_encoding(data_type: pa.DataType) -> pb.ArrayEncoding:
    if pa.types.is_fixed_size_list(data_type):
        items = _child_encoding(data_type.value_type)
        encoding = pb.ArrayEncoding(
            fixed_size_list=pb.FixedSizeList(dimension=data_type.list_size, items=items)
        )
    else:
        flat = pb.Flat(bits_per_value=bit_width_of(data_type), buffer=pb.Buffer())
        encoding = pb.ArrayEncoding(flat=flat)
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=encoding)))
