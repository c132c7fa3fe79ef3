"""Protobuf descriptions of encodings, turned into decoders by the records of the encodings.

A description is parsed once per page; the functions created here are then called for every group
of chunks.

Source: docs/format/file-format.md, sections 4, 6.4 and 6.5.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.compressive.bit_packed import INLINE_BIT_PACKING, OUT_OF_LINE_BIT_PACKING
from pyspark_lance.codec.compressive.block_compression import GENERAL
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    LevelDecoder,
    ValueDecoder,
    encoding_kind,
    require_level_bits,
)
from pyspark_lance.codec.compressive.fixed_size_list import FIXED_SIZE_LIST
from pyspark_lance.codec.compressive.fixed_width import BYTE_STREAM_SPLIT, FLAT
from pyspark_lance.codec.compressive.fsst import FSST
from pyspark_lance.codec.compressive.packed_struct import PACKED_STRUCT, VARIABLE_PACKED_STRUCT
from pyspark_lance.codec.compressive.run_length import RUN_LENGTH
from pyspark_lance.codec.compressive.variable_width import VARIABLE
from pyspark_lance.codec.levels import LevelArray
from pyspark_lance.codec.values import FixedWidthValues

RECORDS: Final[tuple[EncodingRecord, ...]] = (
    FLAT,
    VARIABLE,
    INLINE_BIT_PACKING,
    OUT_OF_LINE_BIT_PACKING,
    RUN_LENGTH,
    BYTE_STREAM_SPLIT,
    FSST,
    GENERAL,
    FIXED_SIZE_LIST,
    PACKED_STRUCT,
    VARIABLE_PACKED_STRUCT,
)
_BY_KIND = {record.kind: record for record in RECORDS}


def describe(encoding: Encoding) -> str:
    """The encoding in one line, for messages and statistics: ``fsst(variable)``."""
    kind = encoding_kind(encoding)
    record = _BY_KIND.get(kind)
    if record is None:
        return kind or "none"
    message = getattr(encoding, kind)
    name = record.name(message) if record.name else kind
    parts = ", ".join(map(describe, record.parts(message))) if record.parts else ""
    return f"{name}({parts})" if parts else name


def chunk_decoder(encoding: Encoding) -> ChunkDecoder:
    """A function that decodes the value buffers of mini-block chunks."""
    record, message = _look_up(encoding)
    if record is None or record.chunk_decoder is None:
        return _refuse(encoding, "mini-block values")
    return record.chunk_decoder(message, chunk_decoder)


def block_decoder(encoding: Encoding) -> BlockDecoder:
    """A function that decodes values outside of chunks: dictionary items, levels of constants."""
    record, message = _look_up(encoding)
    if record is None or record.block_decoder is None:
        return _refuse(encoding, "a block")
    return record.block_decoder(message, block_decoder)


def level_decoder(encoding: Encoding) -> LevelDecoder:
    """A function that decodes the level blocks of mini-block chunks."""
    record, message = _look_up(encoding)
    if record is None or record.level_decoder is None:
        return _refuse(encoding, "levels")
    return record.level_decoder(message)


def value_decoder(encoding: Encoding) -> ValueDecoder:
    """A function that decodes values of full-zip pages that are compressed one by one."""
    record, message = _look_up(encoding)
    if record is None or record.value_decoder is None:
        return _refuse(encoding, "full-zip values")
    return record.value_decoder(message, value_decoder)


def decode_level_block(encoding: Encoding, block: NDArray[np.uint8], num_levels: int) -> LevelArray:
    """The levels of a constant page."""
    levels = block_decoder(encoding)(block, num_levels)
    require(isinstance(levels, FixedWidthValues), f"levels are {describe(encoding)}")
    assert isinstance(levels, FixedWidthValues)
    require_level_bits(levels.bits_per_value)
    return levels.buffer.view("<u2")


def _look_up(encoding: Encoding) -> tuple[EncodingRecord | None, Any]:
    kind = encoding_kind(encoding)
    return _BY_KIND.get(kind), getattr(encoding, kind) if kind else None


def _refuse(encoding: Encoding, what: str) -> NoReturn:
    kind = encoding_kind(encoding)
    require(bool(kind), f"the encoding of {what} is missing or of an unknown kind")
    reject_unsupported(f"encoding {describe(encoding)} for {what}")
