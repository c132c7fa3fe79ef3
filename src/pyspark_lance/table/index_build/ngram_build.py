"""NgramPostings: the trigrams of strings and the rows that have each, in bounded memory.

Characters are written in lower case and in ASCII first, where they have such a form; a trigram is
three ASCII letters or digits in a row.  Null rows are listed under token 0, which is no trigram.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.index.ngram import NGRAM_FILE, NgramIndex
from pyspark_lance.table.index_build.merged_segments import CurrentRows, StoredSegment
from pyspark_lance.table.index_build.segment_files import SegmentOutput, schema_of
from pyspark_lance.table.sort import MAX_SORT_BYTES, SortedRuns, merge_streams
from pyspark_lance.table.version.table_files import TableFiles

TOKENS: Final = "tokens"
POSTINGS: Final = "posting_list"
NULL_TOKEN: Final = 0
"""Under which null rows stand."""
_BASE: Final = 37
_BREAK: Final = -1  # In place of a character that is no ASCII letter or digit.
# Without an ASCII form by Unicode, and with one in Lance.
_FORMS: Final = {
    "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ħ": "h",
    "ŧ": "t", "ŋ": "n", "ı": "i", "ĸ": "k", "ǣ": "ae", "ǽ": "ae", "ᶞ": "d", "ℏ": "h",
    "\U0001d6a4": "i", "ᵑ": "n", "ǿ": "o", "ꟹ": "oe",
}  # fmt: skip
_MAX_PENDING: Final = 4 << 20
"""Pairs of a token and a row that wait to be sorted."""
_BYTES_PER_ROW: Final = 2  # Of a bitmap, at most, about.
_BYTES_PER_BITMAP: Final = 128
_BATCH_BYTES: Final = 4 << 20
_SCHEMA: Final = schema_of([(TOKENS, pa.uint32(), True), (POSTINGS, pa.binary(), False)])


def trigrams(texts: pa.Array) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The distinct tokens of each string, and the index of the string; nulls have token 0."""
    digits, lengths = _digits_of(texts)
    ends = np.cumsum(lengths)
    if len(digits) < 3:
        tokens, rows = np.empty(0, np.uint32), np.empty(0, np.int64)
    else:
        begins = np.ones(len(digits), np.bool_)
        begins[ends[lengths > 0] - 1] = False
        begins[ends[lengths > 1] - 2] = False
        is_known = digits >= 0
        begins[:-2] &= is_known[:-2] & is_known[1:-1] & is_known[2:]
        first = np.flatnonzero(begins[:-2])
        wide = digits.astype(np.int64)
        numbers = (wide[first] * _BASE + wide[first + 1]) * _BASE + wide[first + 2]
        rows = np.repeat(np.arange(len(lengths)), lengths)[first]
        pairs = np.unique(numbers << 32 | rows)
        tokens, rows = (pairs >> 32).astype(np.uint32), pairs & 0xFFFFFFFF
    if texts.null_count:
        nulls = np.flatnonzero(plain_numbers(texts.is_null()))
        tokens = np.concatenate([np.full(len(nulls), NULL_TOKEN, np.uint32), tokens])
        rows = np.concatenate([nulls, rows])
    return tokens, rows


def _digits_of(texts: pa.Array) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """The number of each character in its ASCII form, or a break, and how many a string has."""
    content = texts.fill_null("").cast(pa.large_string())
    _, offsets, data = content.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(content) + 1, content.offset * 8)
    first, last = int(bounds[0]), int(bounds[-1])
    raw = np.frombuffer(data, np.uint8)[first:last] if data is not None else np.empty(0, np.uint8)
    if not len(raw) or raw.max() < 0x80:
        return _ASCII[raw], np.diff(bounds)
    characters = np.frombuffer(raw.tobytes().decode().encode("utf-32-le"), np.uint32)
    distinct, codes = np.unique(characters, return_inverse=True)
    forms = [_form(chr(code)) for code in distinct.tolist()]
    widths = np.array([len(form) for form in forms])
    flat = np.array([digit for form in forms for digit in form], np.int16)
    own = widths[codes]
    starts = (np.cumsum(widths) - widths)[codes] - (np.cumsum(own) - own)
    digits = flat[np.repeat(starts, own) + np.arange(int(own.sum()))]
    ends = np.append(0, np.cumsum(own))[np.cumsum(plain_numbers(pc.utf8_length(content)))]
    return digits, np.diff(ends, prepend=0)


def _form(character: str) -> list[int]:
    return [_digit(part) for lower in character.lower() for part in _ascii_form(lower)]


def _ascii_form(character: str) -> str:
    if character.isascii():
        return character
    plain = "".join(filter(str.isascii, unicodedata.normalize("NFKD", character)))
    return plain or _FORMS.get(character, character)


def _digit(character: str) -> int:
    if not (character.isascii() and character.isalnum()):
        return _BREAK
    if character.isdigit():
        return ord(character) - ord("0") + 1
    # Capitals, which ASCII forms may have, wrap around in a byte.
    return (ord(character) - ord("a") + 11) & 0xFF


_ASCII: Final = np.array([_digit(chr(code).lower()) for code in range(0x80)], np.int16)


class NgramPostings(SortedRuns):
    """Collector of rows by token; spills to temporary files."""

    def __init__(self, most_bytes: int = MAX_SORT_BYTES) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self._pending: list[tuple[NDArray[np.uint32], NDArray[np.uint64]]] = []
        self._num_pending = 0
        self._held: dict[int, BitMap64] = {}
        self._num_rows = 0  # Of all bitmaps.

    def add(self, texts: pa.Array, ids: NDArray[np.uint64]) -> None:
        """Add strings, and the ids or addresses of their rows."""
        tokens, rows = trigrams(texts)
        self._pending.append((tokens, ids[rows]))
        self._num_pending += len(tokens)
        if self._num_pending >= _MAX_PENDING:
            self._collect()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all tokens, ascending, with their rows; a token may occur twice."""
        self._collect()
        streams = self.streams()
        return merge_postings([*streams, _as_batches(self._sort_postings())])

    def _collect(self) -> None:
        if not self._num_pending:
            return
        tokens = np.concatenate([own for own, _ in self._pending])
        ids = np.concatenate([own for _, own in self._pending])
        self._pending, self._num_pending = [], 0
        order = np.argsort(tokens, kind="stable")
        tokens, ids = tokens[order], ids[order]
        starts = np.flatnonzero(np.diff(tokens, prepend=np.uint32(0xFFFFFFFF)))
        stops = np.append(starts[1:], len(tokens)).tolist()
        for token, start, stop in zip(tokens[starts].tolist(), starts.tolist(), stops, strict=True):
            rows = self._held.get(token)
            if rows is None:
                self._held[token] = BitMap64(ids[start:stop])
            else:
                rows.update(ids[start:stop])
        self._num_rows += len(ids)
        held = self._num_rows * _BYTES_PER_ROW + len(self._held) * _BYTES_PER_BITMAP
        if held > self._most_bytes:
            self._spill()

    def _spill(self) -> None:
        self.write_run(_SCHEMA, _as_batches(self._sort_postings()))
        self._held, self._num_rows = {}, 0

    def _sort_postings(self) -> Iterator[tuple[int, BitMap64]]:
        return iter(sorted(self._held.items()))


def merge_postings(streams: Iterable[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The rows of each token of several streams, which have their tokens ascending."""
    return _as_batches(_join_batches(merge_streams(list(streams), _sort_indices)))


def stored_postings(
    files: TableFiles, segment: StoredSegment, index: NgramIndex, *, stable_row_ids: bool
) -> Iterator[pa.RecordBatch]:
    """The tokens of a segment, with live rows only."""
    current = CurrentRows(files, segment, stable_row_ids)
    size = sum(segment.entry.file_sizes.values()) // max(1, len(index.tokens))
    step = max(1, _BATCH_BYTES // max(64, size))

    def pairs() -> Iterator[tuple[int, BitMap64]]:
        for first in range(0, len(index.tokens), step):
            indices = np.arange(first, min(first + step, len(index.tokens)))
            for number, rows in zip(indices, index.rows_at(indices), strict=True):
                _, names = current.of(np.array(rows, np.uint64))
                yield int(index.tokens[number]), BitMap64(names)

    return _as_batches(pairs())


def write_postings(
    store: ObjectStore, uuid: UUID, batches: Iterable[pa.RecordBatch]
) -> dict[str, int]:
    """Write the file of a segment; return its length in bytes, by its name."""
    with SegmentOutput(store, uuid, NGRAM_FILE, _SCHEMA) as output:
        for batch in batches:
            output.write(batch)
    return {NGRAM_FILE: output.size_bytes}


def _join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, BitMap64]]:
    last: int | None = None
    rows_of_last = BitMap64()
    for batch in batches:
        stored = batch.column(POSTINGS).to_pylist()
        for token, content in zip(batch.column(TOKENS).to_pylist(), stored, strict=True):
            rows = BitMap64.deserialize(content)
            if token == last:
                rows_of_last |= rows
                continue
            if last is not None:
                yield last, rows_of_last
            last, rows_of_last = token, rows
    if last is not None:
        yield last, rows_of_last


def _as_batches(pairs: Iterable[tuple[int, BitMap64]]) -> Iterator[pa.RecordBatch]:
    tokens: list[int] = []
    stored: list[bytes] = []
    num_bytes = 0
    for token, rows in pairs:
        if not rows:
            continue
        tokens.append(token)
        stored.append(rows.serialize())
        num_bytes += len(stored[-1]) + _BYTES_PER_BITMAP
        if num_bytes > _BATCH_BYTES:
            yield _batch(tokens, stored)
            tokens, stored, num_bytes = [], [], 0
    if tokens:
        yield _batch(tokens, stored)


def _batch(tokens: list[int], stored: list[bytes]) -> pa.RecordBatch:
    arrays = [plain_array(np.array(tokens, np.uint32)), pa.array(stored, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _sort_indices(rows: pa.RecordBatch) -> NDArray[np.int64]:
    return np.argsort(plain_numbers(rows.column(TOKENS)), kind="stable")
