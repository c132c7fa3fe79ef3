"""PackedStruct and VariablePackedStruct: all fields of a row side by side, in one column.

Fields of fixed width make records of fixed width. With strings, binaries or vectors among them (2.2
only), every row is a value of variable width.

Source: docs/format/file-format.md, sections 6.3 and 6.4 (9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import ValueChunks
from pyspark_lance.codec.compressive.encoding_record import (
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    ValueDecoder,
    flat_bits,
)
from pyspark_lance.codec.compressive.fixed_size_list import (
    decode_list_rows,
    list_layers,
    list_rows,
    row_bytes,
    split_lists,
)
from pyspark_lance.codec.compressive.fixed_width import flat, flat_chunks
from pyspark_lance.codec.compressive.string_compression import (
    FsstColumn,
    StoredStrings,
    plain_strings,
)
from pyspark_lance.codec.decode_memory import as_bytes
from pyspark_lance.codec.gather import gather, read_words
from pyspark_lance.codec.row_selection import without_offset
from pyspark_lance.codec.values import (
    FixedWidthValues,
    StructValues,
    Values,
    VariableWidthValues,
    bits_per_value,
    fixed_width_values,
    is_variable_width,
    variable_width_values,
)
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.plain_values import plain_array, plain_scalar
from pyspark_lance.proto import encodings_v2_1_pb2
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


def split_records(records: Values, bits_per_field: Sequence[int]) -> StructValues:
    """The columns of row-major records of fixed width."""
    require(isinstance(records, FixedWidthValues), "packed records are not of fixed width")
    assert isinstance(records, FixedWidthValues)
    whole_bytes = all(bits % 8 == 0 and bits > 0 for bits in bits_per_field)
    fills = sum(bits_per_field) == records.bits_per_value
    require(whole_bytes and fills, "the fields of a packed struct do not fill its records")
    width = records.bits_per_value // 8
    count = records.num_values
    grid = records.buffer[: count * width].reshape(count, width)
    fields: list[Values] = []
    position = 0
    for bits in bits_per_field:
        column: NDArray[np.uint8] = grid[:, position : position + bits // 8]
        fields.append(FixedWidthValues(count, bits, np.ascontiguousarray(column).reshape(-1)))
        position += bits // 8
    return StructValues(count, tuple(fields))


def _parts(message: Any) -> tuple[Encoding, ...]:
    return (message.values,)


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    widths = tuple(int(bits) for bits in message.bits_per_value)
    inner = nested(message.values)
    return lambda chunks: split_records(inner(chunks), widths)


PACKED_STRUCT = EncodingRecord(
    kind="packed_struct",
    writer="compressive/packed_struct.py",
    parts=_parts,
    chunk_decoder=_chunk_decoder,
)
"""The encoding of structs of fixed width that are read as a whole."""


# Takes the row's bytes, where the field begins in each row and where each row ends; returns the
# field's values and where the next field begins.
_FieldDecoder: TypeAlias = Callable[
    [NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]], tuple[Values, NDArray[np.int64]]
]


def _field_decoder(
    field: encodings_v2_1_pb2.VariablePackedStruct.FieldEncoding,
    nested: Callable[[Encoding], ValueDecoder],
) -> _FieldDecoder:
    """A function that decodes one field of all rows."""
    layout = field.WhichOneof("layout")
    require(layout is not None, "a field of a packed struct does not say how wide it is")
    if layout == "bits_per_value":
        return _fixed_field_decoder(field.value, int(field.bits_per_value))
    length_bytes, rest = divmod(int(field.bits_per_length), 8)
    require(length_bytes in (4, 8) and rest == 0, f"lengths of {field.bits_per_length} bits")
    decode = nested(field.value)

    def decode_variable(
        content: NDArray[np.uint8], positions: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[Values, NDArray[np.int64]]:
        starts = positions + length_bytes
        require(bool((starts <= ends).all()), "a packed row is cut short")
        lengths = read_words(content, positions, length_bytes)
        require(not len(lengths) or int(lengths.max()) <= len(content), "a packed row is too long")
        sizes = lengths.astype(np.int64)
        require(bool((starts + sizes <= ends).all()), "a packed row is cut short")
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        data = gather(content, starts, sizes)
        stored = VariableWidthValues(len(starts), offsets, pa.py_buffer(data))
        return decode(stored, np.ones(len(starts), bool)), starts + sizes

    return decode_variable


def _fixed_field_decoder(encoding: Encoding, bits_per_value: int) -> _FieldDecoder:
    layers, items = list_layers(encoding)
    item_bits = flat_bits(items, "fields of a packed struct")
    size = sum(row_bytes(layers, item_bits))
    require(size * 8 == bits_per_value, f"a packed field of {size * 8} bits, not {bits_per_value}")

    def decode_fixed(
        content: NDArray[np.uint8], positions: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[Values, NDArray[np.int64]]:
        require(bool((positions + size <= ends).all()), "a packed row is cut short")
        grid = content[positions[:, None] + np.arange(size)]
        if layers:
            return decode_list_rows(grid, layers, item_bits), positions + size
        width = 8 if item_bits == 1 else item_bits
        return FixedWidthValues(len(grid), width, as_bytes(grid.reshape(-1))), positions + size

    return decode_fixed


def _split_rows(
    stored: VariableWidthValues, valid: NDArray[np.bool_], decoders: tuple[_FieldDecoder, ...]
) -> Values:
    """The columns of packed rows; rows that are null have no bytes at all."""
    content = np.frombuffer(stored.data, np.uint8) if stored.data.size else np.zeros(0, np.uint8)
    offsets = stored.offsets.astype(np.int64)
    starts, ends = offsets[:-1][valid], offsets[1:][valid]
    children = []
    for decode in decoders:
        child, starts = decode(content, starts, ends)
        children.append(child)
    require(bool((starts == ends).all()), "a packed row is longer than its fields")
    present = None if valid.all() else valid
    return StructValues(len(valid), tuple(children), present)


def _variable_parts(message: Any) -> tuple[Encoding, ...]:
    return tuple(field.value for field in message.fields)


def _value_decoder(message: Any, nested: Callable[[Encoding], ValueDecoder]) -> ValueDecoder:
    decoders = tuple(_field_decoder(field, nested) for field in message.fields)
    return lambda stored, valid: _split_rows(stored, valid, decoders)


VARIABLE_PACKED_STRUCT = EncodingRecord(
    kind="variable_packed_struct",
    writer="compressive/packed_struct.py",
    parts=_variable_parts,
    value_decoder=_value_decoder,
)
"""The encoding of structs with strings that are read as a whole."""


def packed_children(
    values: pa.Array, nulls: NDArray[np.bool_] | None, column: str, *, item_nulls: bool = False
) -> list[pa.Array]:
    """The fields of a struct array.

    ``nulls``: true where a struct does not matter; ``item_nulls``: whether items of fixed-size
    lists may be null.
    """
    children = []
    for index, field in enumerate(values.type):
        child = values.field(index)
        if isinstance(child, pa.ExtensionArray):
            child = child.storage
        kept = child if nulls is None else without_offset(child).filter(plain_array(~nulls))
        if _has_nulls(kept, items=not item_nulls):
            raise UnsupportedFeatureError(
                f"column {column}: the field {field.name} of a packed struct is null in some rows",
                hint="replace the nulls, or store the struct without packing it",
            )
        children.append(child)
    return children


def _has_nulls(array: pa.Array, *, items: bool) -> bool:
    is_list = items and pa.types.is_fixed_size_list(array.type)
    return array.null_count > 0 or (is_list and _has_nulls(array.flatten(), items=True))


def is_fixed_record(data_type: pa.DataType) -> bool:
    """Return whether all fields are plain values of fixed width."""
    return not any(
        is_variable_width(child.type) or pa.types.is_nested(child.type) for child in data_type
    )


def record_rows(children: list[pa.Array], nulls: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    """The fields of every row side by side, shape (rows, bytes)."""
    return np.concatenate([_field_bytes(child, nulls) for child in children], axis=1)


def record_chunks(children: list[pa.Array], nulls: NDArray[np.bool_] | None) -> ValueChunks:
    """Mini-block chunks of records of fixed width."""
    rows = record_rows(children, nulls)
    bits = rows.shape[1] * 8
    chunks = flat_chunks(rows, bits)
    widths = [bits_per_value(child.type) for child in children]
    encoding = pb.CompressiveEncoding(
        packed_struct=pb.PackedStruct(bits_per_value=widths, values=flat(bits))
    )
    return ValueChunks(encoding, chunks.log2_values, chunks.num_values, chunks.buffers)


def pack_rows(children: list[pa.Array], nulls: NDArray[np.bool_] | None) -> StoredStrings:
    """Pack every row into one value of variable width: fixed fields, lengths, remaining bytes."""
    description = pb.VariablePackedStruct()
    pieces: list[pa.Array] = []
    for child in children:
        field = description.fields.add()
        if is_variable_width(child.type):
            strings = plain_strings(*variable_width_values(child, nulls))
            if pa.types.is_unicode(child.type):
                strings = FsstColumn().shrink_text(strings)
            width = strings.offsets.itemsize
            field.value.CopyFrom(strings.encoding)
            field.bits_per_length = width * 8
            lengths = np.diff(strings.offsets).view(np.uint8).reshape(-1, width)
            pieces += [_fixed_binaries(lengths), _binaries(strings.offsets, strings.content)]
            continue
        content = _field_bytes(child, nulls)
        field.value.CopyFrom(_fixed_encoding(child, nulls))
        field.bits_per_value = content.shape[1] * 8
        pieces.append(_fixed_binaries(content))
    rows = pc.binary_join_element_wise(*pieces, plain_scalar(b"", pa.large_binary()))
    if nulls is not None:
        rows = pc.if_else(plain_array(nulls), plain_scalar(b"", pa.large_binary()), rows)
    offsets, content = variable_width_values(rows, None)
    encoding = pb.CompressiveEncoding(variable_packed_struct=description)
    return StoredStrings((offsets - offsets[0]).astype("<i4"), content[offsets[0] :], encoding)


def _fixed_encoding(child: pa.Array, nulls: NDArray[np.bool_] | None) -> pb.CompressiveEncoding:
    if pa.types.is_fixed_size_list(child.type):
        return split_lists(child, nulls).encoding
    return flat(bits_per_value(child.type))


def _field_bytes(child: pa.Array, nulls: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    """The bytes of a field of fixed width, shape (rows, bytes); zeros where it does not matter."""
    if pa.types.is_fixed_size_list(child.type):
        rows = list_rows(split_lists(child, nulls))
        return rows if nulls is None else np.where(nulls[:, None], np.uint8(0), rows)
    values: NDArray[Any] = fixed_width_values(child, nulls)
    width = bits_per_value(child.type) // 8
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(child), width)


def _fixed_binaries(rows: NDArray[np.uint8]) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    return _binaries(offsets, np.ascontiguousarray(rows).reshape(-1))


def _binaries(offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
