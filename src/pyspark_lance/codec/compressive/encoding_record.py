"""Record of one encoding: its message, its decoders and where its writer is.

Each encoding has a record in the file that decodes it; ``codec/encoding_tree.py`` lists them. An
encoding is rejected by name wherever its record does not list it, since no writer uses it there.

Source: docs/format/file-format.md, sections 4, 6.3, 6.4 and 6.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.levels import LEVEL_BITS, LevelArray
from pyspark_lance.codec.values import Values, VariableWidthValues
from pyspark_lance.proto import encodings_v2_1_pb2

Encoding: TypeAlias = encodings_v2_1_pb2.CompressiveEncoding
ChunkDecoder: TypeAlias = Callable[[ChunkBuffers], Values]
BlockDecoder: TypeAlias = Callable[[NDArray[np.uint8], int], Values]
"""Takes the bytes of a block and how many values are in it."""
LevelDecoder: TypeAlias = Callable[
    [NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], LevelArray
]
"""Takes the bytes of the chunks and, per chunk, the position, the size and the number of levels."""
ValueDecoder: TypeAlias = Callable[[VariableWidthValues, NDArray[np.bool_]], Values]
"""Takes the stored bytes of every slot and which slots are valid (the others have no bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingRecord:
    """One encoding. Its functions look at the message once per page.

    What they return is called for every group of chunks. Where an encoding holds others, the
    second argument creates the decoder of these.
    """

    kind: str  # The field of ``CompressiveEncoding`` that holds its message.
    writer: str  # The file below ``codec`` that writes it.
    name: Callable[[Any], str] | None = None  # What descriptions call it, if not by its kind.
    # The encodings inside that a description shows.
    parts: Callable[[Any], tuple[Encoding, ...]] | None = None
    # For the value buffers of mini-block chunks.
    chunk_decoder: Callable[[Any, Callable[[Encoding], ChunkDecoder]], ChunkDecoder] | None = None
    # For values outside of chunks: dictionary items, levels of constant pages.
    block_decoder: Callable[[Any, Callable[[Encoding], BlockDecoder]], BlockDecoder] | None = None
    # For the level blocks of mini-block chunks.
    level_decoder: Callable[[Any], LevelDecoder] | None = None
    # For values of full-zip pages that are compressed one by one.
    value_decoder: Callable[[Any, Callable[[Encoding], ValueDecoder]], ValueDecoder] | None = None


def encoding_kind(encoding: Encoding) -> str:
    """The name of the encoding in the description; '' for none."""
    return encoding.WhichOneof("compression") or ""


def flat_bits(encoding: Encoding, what: str) -> int:
    """``bits_per_value`` of an encoding that must be Flat."""
    kind = encoding_kind(encoding)
    require(kind == "flat", f"{what} are {kind or 'not described'}, not flat")
    return plain_flat_bits(encoding.flat)


def plain_flat_bits(flat: encodings_v2_1_pb2.Flat) -> int:
    """``bits_per_value`` of Flat buffers, which are never compressed by themselves."""
    if flat.data.scheme:
        reject_unsupported("flat buffers with compression of their own")
    return int(flat.bits_per_value)


def require_level_bits(bits: int) -> None:
    """Raise unless levels are as wide as all writers write them."""
    require(bits == LEVEL_BITS, f"levels of {bits} bits, expected {LEVEL_BITS}")
