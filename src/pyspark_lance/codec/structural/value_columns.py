"""Values of full-zip pages that are compressed one by one, and packed structs of such values.

Source: docs/format/file-format.md, section 6.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require, unsupported
from pyspark_lance.codec.compressive.block_compression import decompress_each
from pyspark_lance.codec.compressive.fixed_size_list import decode_list_rows, row_bytes
from pyspark_lance.codec.compressive.fsst import SymbolTable, decode_fsst
from pyspark_lance.codec.encoding_tree import (
    Encoding,
    describe,
    encoding_kind,
    flat_bits,
    list_layers,
    variable_bits,
)
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.memory import as_bytes
from pyspark_lance.codec.structural.zip_walk import read_words
from pyspark_lance.codec.values import FixedWidthValues, StructValues, Values, VariableWidthValues
from pyspark_lance.proto import encodings_v2_1_pb2

ValueDecoder: TypeAlias = Callable[[VariableWidthValues, NDArray[np.bool_]], Values]
"""Takes the stored bytes of every slot and which slots are valid (the others have no bytes)."""


def value_decoder(encoding: Encoding) -> ValueDecoder:
    """A function that decodes values of variable width.

    Raises:
        CorruptFileError: The description is not complete.
        UnsupportedFeatureError: No writer uses the encoding here.
    """
    kind = encoding_kind(encoding)
    if kind == "variable":
        variable_bits(encoding)
        return lambda stored, valid: stored
    if kind == "fsst":
        table = SymbolTable.from_bytes(encoding.fsst.symbol_table)
        variable_bits(encoding.fsst.values)
        return lambda stored, valid: decode_fsst(stored, table)
    if kind == "general":
        scheme = encoding.general.compression.scheme
        inner = value_decoder(encoding.general.values)
        return lambda stored, valid: inner(_decompress_each(stored, valid, scheme), valid)
    if kind == "variable_packed_struct":
        fields = tuple(encoding.variable_packed_struct.fields)
        decoders = tuple(_field_decoder(field) for field in fields)
        return lambda stored, valid: _split_rows(stored, valid, decoders)
    require(bool(kind), "the encoding of full-zip values is missing or of an unknown kind")
    return unsupported(f"encoding {describe(encoding)} for full-zip values")


def _decompress_each(
    stored: VariableWidthValues, valid: NDArray[np.bool_], scheme: int
) -> VariableWidthValues:
    """Every valid value is a compressed buffer of its own."""
    content = np.frombuffer(stored.data, np.uint8) if stored.data.size else np.zeros(0, np.uint8)
    stored_offsets = stored.offsets.astype(np.int64)
    starts, ends = stored_offsets[:-1][valid], stored_offsets[1:][valid]
    plain, lengths = decompress_each(scheme, content, starts, ends - starts)
    sizes = np.zeros(stored.num_values, np.int64)
    sizes[valid] = lengths
    offsets = np.zeros(stored.num_values + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return VariableWidthValues(stored.num_values, offsets, pa.py_buffer(plain))


# Takes the row's bytes, where the field begins in each row and where each row ends; returns the
# field's values and where the next field begins.
_FieldDecoder: TypeAlias = Callable[
    [NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]], tuple[Values, NDArray[np.int64]]
]


def _field_decoder(
    field: encodings_v2_1_pb2.VariablePackedStruct.FieldEncoding,
) -> _FieldDecoder:
    """A function that decodes one field of all rows."""
    layout = field.WhichOneof("layout")
    require(layout is not None, "a field of a packed struct does not say how wide it is")
    if layout == "bits_per_value":
        return _fixed_field_decoder(field.value, int(field.bits_per_value))
    length_bytes, rest = divmod(int(field.bits_per_length), 8)
    require(length_bytes in (4, 8) and rest == 0, f"lengths of {field.bits_per_length} bits")
    decode = value_decoder(field.value)

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
