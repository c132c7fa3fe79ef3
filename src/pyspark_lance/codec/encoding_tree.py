"""Protobuf descriptions of encodings, turned into decoders.

A description is looked at once per page; the functions made here are then called for every group
of chunks.

Source: docs/format/file-format.md, sections 4, 6.4 and 6.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require, unsupported
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive.bit_packing import (
    decode_inline_block,
    decode_inline_chunks,
    decode_out_of_line_block,
)
from pyspark_lance.codec.compressive.block_compression import (
    SCHEME_NAMES,
    decompress,
    decompress_first_buffers,
)
from pyspark_lance.codec.compressive.byte_stream_split import decode_byte_stream_split_chunks
from pyspark_lance.codec.compressive.fixed_size_list import (
    ListLayer,
    decode_list_chunks,
    items_per_row,
    nest,
)
from pyspark_lance.codec.compressive.fixed_width import decode_flat_block, decode_flat_chunks
from pyspark_lance.codec.compressive.fsst import SymbolTable, decode_fsst
from pyspark_lance.codec.compressive.packed_struct import split_records
from pyspark_lance.codec.compressive.run_length import (
    decode_run_length_block,
    decode_run_length_blocks,
    decode_run_length_chunks,
)
from pyspark_lance.codec.compressive.variable_width import (
    decode_variable_block,
    decode_variable_chunks,
)
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.levels import LEVEL_BITS, LevelArray, decode_packed_level_chunks
from pyspark_lance.codec.values import (
    EncodedStrings,
    FixedWidthValues,
    Values,
    VariableWidthValues,
)
from pyspark_lance.proto import encodings_v2_1_pb2

Encoding: TypeAlias = encodings_v2_1_pb2.CompressiveEncoding
ChunkDecoder: TypeAlias = Callable[[ChunkBuffers], Values]
LevelDecoder: TypeAlias = Callable[
    [NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], LevelArray
]


def encoding_kind(encoding: Encoding) -> str:
    """The name of the encoding in the description; '' for none."""
    return encoding.WhichOneof("compression") or ""


def describe(encoding: Encoding) -> str:
    """The encoding in one line, for messages and statistics: ``fsst(variable)``."""
    kind = encoding_kind(encoding)
    if not kind:
        return "none"
    part = getattr(encoding, kind)
    if kind == "general":
        return f"{SCHEME_NAMES.get(part.compression.scheme, '?')}({describe(part.values)})"
    if kind in ("flat", "variable", "constant", "range", "delta", "inline_bitpacking"):
        return kind
    if kind == "variable_packed_struct":
        return f"{kind}({', '.join(describe(field.value) for field in part.fields)})"
    if kind == "dictionary":
        return f"dictionary({describe(part.indices)}, {describe(part.items)})"
    return f"{kind}({describe(part.values)})"


def flat_bits(encoding: Encoding, what: str) -> int:
    """``bits_per_value`` of an encoding that must be Flat.

    Raises:
        CorruptFileError: It is another one.
    """
    require(encoding_kind(encoding) == "flat", f"{what} are {describe(encoding)}, not flat")
    return _plain_flat_bits(encoding)


def _plain_flat_bits(encoding: Encoding) -> int:
    if encoding.flat.data.scheme:
        unsupported("flat buffers with compression of their own")
    return int(encoding.flat.bits_per_value)


def variable_bits(encoding: Encoding) -> int:
    """The offset width of an encoding that must be Variable.

    Raises:
        CorruptFileError: It is another one.
    """
    require(encoding_kind(encoding) == "variable", f"strings are {describe(encoding)}")
    if encoding.variable.values.scheme:
        unsupported("string buffers with compression of their own")
    return flat_bits(encoding.variable.offsets, "string offsets")


def list_layers(encoding: Encoding) -> tuple[tuple[ListLayer, ...], Encoding]:
    """The lists around an encoding, outermost first, and the encoding of the items."""
    layers = []
    while encoding_kind(encoding) == "fixed_size_list":
        part = encoding.fixed_size_list
        layers.append(ListLayer(int(part.items_per_value), part.has_validity))
        require(len(layers) <= 64, "fixed-size lists nested too deeply")
        encoding = part.values
    return tuple(layers), encoding


def chunk_decoder(encoding: Encoding) -> ChunkDecoder:  # one case per encoding
    """A function that decodes the value buffers of mini-block chunks.

    Raises:
        UnsupportedFeatureError: No writer uses the encoding in chunks.
        CorruptFileError: The description is not complete.
    """
    kind = encoding_kind(encoding)
    if kind == "flat":
        bits = _plain_flat_bits(encoding)
        return lambda chunks: decode_flat_chunks(chunks, bits)
    if kind == "inline_bitpacking":
        bits = int(encoding.inline_bitpacking.uncompressed_bits_per_value)
        return lambda chunks: decode_inline_chunks(chunks, bits)
    if kind == "rle":
        bits = flat_bits(encoding.rle.values, "run values")
        length_bits = flat_bits(encoding.rle.run_lengths, "run lengths")
        return lambda chunks: decode_run_length_chunks(chunks, bits, length_bits)
    if kind == "byte_stream_split":
        bits = flat_bits(encoding.byte_stream_split.values, "byte planes")
        return lambda chunks: decode_byte_stream_split_chunks(chunks, bits)
    if kind == "general":
        scheme = encoding.general.compression.scheme
        inner = chunk_decoder(encoding.general.values)
        return lambda chunks: inner(decompress_first_buffers(chunks, scheme))
    if kind == "variable":
        bits = variable_bits(encoding)
        return lambda chunks: decode_variable_chunks(chunks, bits)
    if kind == "fsst":
        return _fsst_chunk_decoder(encoding)
    if kind == "fixed_size_list":
        layers, items = list_layers(encoding)
        bits = flat_bits(items, "list items")
        return lambda chunks: decode_list_chunks(chunks, layers, bits)
    if kind == "packed_struct":
        widths = tuple(int(bits) for bits in encoding.packed_struct.bits_per_value)
        inner = chunk_decoder(encoding.packed_struct.values)
        return lambda chunks: split_records(inner(chunks), widths)
    return _refuse(encoding, "mini-block values")


def _fsst_chunk_decoder(encoding: Encoding) -> ChunkDecoder:
    table = SymbolTable.from_bytes(encoding.fsst.symbol_table)
    inner = chunk_decoder(encoding.fsst.values)

    def decode(chunks: ChunkBuffers) -> Values:
        codes = inner(chunks)
        require(isinstance(codes, VariableWidthValues), "FSST over values of fixed width")
        assert isinstance(codes, VariableWidthValues)
        return EncodedStrings(codes, lambda stored: decode_fsst(stored, table))

    return decode


def decode_block(encoding: Encoding, block: NDArray[np.uint8], num_values: int) -> Values:
    """Values outside of chunks: dictionary items, levels of constant pages.

    Raises:
        CorruptFileError: The block does not hold ``num_values`` values.
        UnsupportedFeatureError: No writer uses the encoding for blocks.
    """
    kind = encoding_kind(encoding)
    if kind == "flat":
        return decode_flat_block(block, _plain_flat_bits(encoding), num_values)
    if kind == "inline_bitpacking":
        bits = int(encoding.inline_bitpacking.uncompressed_bits_per_value)
        return decode_inline_block(block, bits, num_values)
    if kind == "out_of_line_bitpacking":
        part = encoding.out_of_line_bitpacking
        packed = flat_bits(part.values, "packed values")
        return decode_out_of_line_block(
            block, int(part.uncompressed_bits_per_value), packed, num_values
        )
    if kind == "rle":
        bits = flat_bits(encoding.rle.values, "run values")
        length_bits = flat_bits(encoding.rle.run_lengths, "run lengths")
        return decode_run_length_block(block, bits, length_bits, num_values)
    if kind == "general":
        plain = decompress(encoding.general.compression.scheme, block)
        return decode_block(encoding.general.values, plain, num_values)
    if kind == "variable":
        return decode_variable_block(block, num_values)
    if kind == "fsst":
        codes = decode_variable_block(block, num_values)
        return decode_fsst(codes, SymbolTable.from_bytes(encoding.fsst.symbol_table))
    if kind == "fixed_size_list":
        layers, items = list_layers(encoding)
        require(not any(layer.has_validity for layer in layers), "null items in a dictionary")
        inner = decode_block(items, block, num_values * items_per_row(layers))
        return nest(layers, [None] * len(layers), num_values, inner)
    return _refuse(encoding, "a block")


def level_decoder(encoding: Encoding) -> LevelDecoder:
    """A function that decodes the level blocks of mini-block chunks.

    Its arguments are the bytes of the chunks and, per chunk, the position, the size and the number
    of the levels.

    Raises:
        CorruptFileError: The levels do not have 16 bits.
        UnsupportedFeatureError: No writer uses the encoding for levels.
    """
    kind = encoding_kind(encoding)
    if kind == "flat":
        _require_level_bits(_plain_flat_bits(encoding))
        return _decode_flat_levels
    if kind == "inline_bitpacking":
        _require_level_bits(int(encoding.inline_bitpacking.uncompressed_bits_per_value))
        return _decode_inline_levels
    if kind == "out_of_line_bitpacking":
        part = encoding.out_of_line_bitpacking
        _require_level_bits(int(part.uncompressed_bits_per_value))
        packed = flat_bits(part.values, "packed levels")
        return lambda data, starts, sizes, counts: decode_packed_level_chunks(
            data, starts, sizes, counts, packed
        )
    if kind == "rle":
        bits = flat_bits(encoding.rle.values, "run values")
        length_bits = flat_bits(encoding.rle.run_lengths, "run lengths")
        _require_level_bits(bits)
        return lambda data, starts, sizes, counts: decode_run_length_blocks(
            data, starts, sizes, counts, value_bits=bits, length_bits=length_bits
        ).buffer.view("<u2")
    return _refuse(encoding, "levels")


def decode_level_block(encoding: Encoding, block: NDArray[np.uint8], num_levels: int) -> LevelArray:
    """The levels of a constant page.

    Raises:
        CorruptFileError: The block does not hold ``num_levels`` levels.
        UnsupportedFeatureError: No writer uses the encoding for levels.
    """
    levels = decode_block(encoding, block, num_levels)
    require(isinstance(levels, FixedWidthValues), f"levels are {describe(encoding)}")
    assert isinstance(levels, FixedWidthValues)
    _require_level_bits(levels.bits_per_value)
    return levels.buffer.view("<u2")


def _decode_flat_levels(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> LevelArray:
    require(bool((sizes >= counts * 2).all()), "a chunk is too small for its levels")
    return gather(data, starts, counts * 2).view("<u2")


def _decode_inline_levels(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> LevelArray:
    levels = decode_inline_chunks(ChunkBuffers(data, counts, (starts,), (sizes,)), LEVEL_BITS)
    return levels.buffer.view("<u2")


def _require_level_bits(bits: int) -> None:
    require(bits == LEVEL_BITS, f"levels of {bits} bits, expected {LEVEL_BITS}")


def _refuse(encoding: Encoding, what: str) -> NoReturn:
    kind = encoding_kind(encoding)
    require(bool(kind), f"the encoding of {what} is missing or of an unknown kind")
    unsupported(f"encoding {describe(encoding)} for {what}")
