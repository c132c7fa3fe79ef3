"""Compression of strings and binaries before they are written to a page.

Text becomes FSST codes if a sample shows that this saves space, as in pylance; values of tens of
kilobytes are compressed one by one.

Source: docs/format/file-format.md, sections 6.3, 6.4 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.block_compression import block_compressor, general
from pyspark_lance.codec.compressive.encode_fsst import (
    LITERALS,
    STEP_BYTES,
    Matcher,
    cut_into_pieces,
    encode_strings,
    sample_of,
    tokens_of,
    train_symbols,
)
from pyspark_lance.codec.compressive.variable_width import variable
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

_MIN_TEXT_BYTES: Final = 1 << 15
_MIN_LONGEST: Final = 5
_HUGE_VALUE: Final = 1 << 15
# Compressing costs some microseconds per value.
_MIN_MEAN_OF_HUGE: Final = 1 << 12
_GAIN: Final = 0.9
# Symbols of another page are used again if they make at most so many codes more.
_STILL_GOOD: Final = 1.05
_SAMPLE_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class StoredStrings:
    """Values of variable width as they are stored."""

    # One more than values, of the width that the page says.
    offsets: NDArray[np.signedinteger[Any]]
    content: NDArray[np.uint8]  # The bytes they count into.
    encoding: pb.CompressiveEncoding  # What the bytes are.


def plain_strings(
    offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8]
) -> StoredStrings:
    """The values as they are."""
    return StoredStrings(offsets, content, variable(offsets.itemsize * 8))


class FsstColumn:
    """Encoder to FSST codes; reuses the symbol table from page to page while it fits."""

    def __init__(self) -> None:
        self._matcher: Matcher | None = None
        self._table = b""
        self._share = 0.0

    def shrink_text(self, strings: StoredStrings) -> StoredStrings:
        """The strings as codes, or as they are if that saves little."""
        offsets = strings.offsets
        total = int(offsets[-1]) - int(offsets[0])
        if total < _MIN_TEXT_BYTES or int(np.diff(offsets).max()) < _MIN_LONGEST:
            return strings
        return self._encode(strings, _GAIN)

    def encode(self, strings: StoredStrings) -> StoredStrings:
        """The strings as codes, however many these are."""
        return self._encode(strings, np.inf)

    def _encode(self, strings: StoredStrings, gain: float) -> StoredStrings:
        offsets, content = strings.offsets, strings.content
        sample_offsets, sample = sample_of(offsets, content)
        matcher = self._matcher
        if (
            matcher is None
            or _coded_share(sample_offsets, sample, matcher) > _STILL_GOOD * self._share
        ):
            symbols = train_symbols(sample_offsets, sample)
            matcher = Matcher(symbols)
            self._matcher, self._table = matcher, symbols.to_bytes()
            self._share = _coded_share(sample_offsets, sample, matcher)
        if self._share > gain:
            return strings
        codes = encode_strings(offsets, content, matcher)
        if int(codes.offsets[-1]) > np.iinfo(offsets.dtype).max:
            return strings
        encoding = pb.CompressiveEncoding(
            fsst=pb.Fsst(symbol_table=self._table, values=strings.encoding)
        )
        return StoredStrings(codes.offsets.astype(offsets.dtype), codes.content, encoding)


def _coded_share(offsets: NDArray[np.int64], sample: NDArray[np.uint8], matcher: Matcher) -> float:
    """Return the number of codes per byte."""
    pieces, _ = cut_into_pieces(offsets, STEP_BYTES)
    tokens = tokens_of(pieces, sample, matcher).content
    codes = len(tokens) + int(np.count_nonzero(tokens >= LITERALS))
    return codes / max(1, len(sample))


def smaller_huge_values(
    strings: StoredStrings, nulls: NDArray[np.bool_] | None
) -> StoredStrings | None:
    """Values of tens of kilobytes compressed one by one; None if they are not so large."""
    offsets = strings.offsets
    total, count = int(offsets[-1]) - int(offsets[0]), len(offsets) - 1
    if int(np.diff(offsets).max()) <= _HUGE_VALUE or total < _MIN_MEAN_OF_HUGE * count:
        return None
    some = strings.content[int(offsets[0]) : int(offsets[0]) + _SAMPLE_BYTES]
    if len(block_compressor("zstd", None)(some)) > _GAIN * len(some):
        return strings
    return compress_values(strings, nulls, "zstd", None)


def compress_values(
    strings: StoredStrings, nulls: NDArray[np.bool_] | None, scheme: str, level: int | None
) -> StoredStrings:
    """Compress every value by itself; nulls stay without any bytes.

    ``nulls``: true where a value does not matter; it is empty. ``scheme``: ``lz4`` or ``zstd``;
    ``level``: compression level, None for the default.
    """
    compress = block_compressor(scheme, level)
    absent = set() if nulls is None else set(np.flatnonzero(nulls).tolist())
    content = strings.content.data
    pieces = [
        b"" if start == end and index in absent else compress(content[start:end])
        for index, (start, end) in enumerate(pairwise(strings.offsets.tolist()))
    ]
    offsets = np.zeros(len(strings.offsets), np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    if int(offsets[-1]) > np.iinfo(strings.offsets.dtype).max:
        return strings
    return StoredStrings(
        offsets.astype(strings.offsets.dtype),
        np.frombuffer(b"".join(pieces), np.uint8),
        general(scheme, level, strings.encoding),
    )
