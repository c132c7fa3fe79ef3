"""VariablePackedStruct: all fields of a row side by side, some of them of any length.

Source: docs/format/file-format.md, section 6.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.compressive.encoding_record import (
    Encoding,
    EncodingRecord,
    ValueDecoder,
    flat_bits,
)
from pyspark_lance.codec.compressive.fixed_size_list import decode_list_rows, list_layers, row_bytes
from pyspark_lance.codec.gather import gather, read_words
from pyspark_lance.codec.memory import as_bytes
from pyspark_lance.codec.values import FixedWidthValues, StructValues, Values, VariableWidthValues
from pyspark_lance.proto import encodings_v2_1_pb2

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
        content: NDArray[np.uint8], places: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[Values, NDArray[np.int64]]:
        starts = places + length_bytes
        require(bool((starts <= ends).all()), "a packed row is cut short")
        lengths = read_words(content, places, length_bytes)
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
        content: NDArray[np.uint8], places: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[Values, NDArray[np.int64]]:
        require(bool((places + size <= ends).all()), "a packed row is cut short")
        grid = content[places[:, None] + np.arange(size)]
        if layers:
            return decode_list_rows(grid, layers, item_bits), places + size
        width = 8 if item_bits == 1 else item_bits
        return FixedWidthValues(len(grid), width, as_bytes(grid.reshape(-1))), places + size

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


def _parts(message: Any) -> tuple[Encoding, ...]:
    return tuple(field.value for field in message.fields)


def _value_decoder(message: Any, nested: Callable[[Encoding], ValueDecoder]) -> ValueDecoder:
    decoders = tuple(_field_decoder(field, nested) for field in message.fields)
    return lambda stored, valid: _split_rows(stored, valid, decoders)


VARIABLE_PACKED_STRUCT = EncodingRecord(
    kind="variable_packed_struct",
    writer="compressive/encode_packed_struct.py",
    parts=_parts,
    value_decoder=_value_decoder,
)
"""The encoding of structs with strings that are read as a whole."""
