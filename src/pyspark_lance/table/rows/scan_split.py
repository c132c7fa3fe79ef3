"""ScanSplit: the rows of a fragment that a scan task reads; Slices: many splits as columns."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ID
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.fragment import SEQUENCE_FIELDS, Fragment, fragments_from_protos
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.wire import (
    WORTHWHILE_RANGES,
    Ranges,
    decode_each,
    encode_each,
    parse_message,
)
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.rows.lineage import SEQUENCE_OF

# Names of data files that differ only in their 16 random bytes: 3 as bits, 13 as digits.
_NAME_BYTES: Final = 16
_NAME_BITS: Final = 24
_NAME_END: Final = b".lance"
_NAME_DIGITS: Final = 26
_NAME_LENGTH: Final = _NAME_BITS + _NAME_DIGITS + len(_NAME_END)
_IS_HEX: Final = np.isin(np.arange(256), list(b"0123456789abcdef"))
_FAST: Final = 1
_SMALL_BYTES: Final = 2048
# Protobuf fields of the sequence of a lineage column: inline, and in any form.
_FIELDS_OF: Final = {name: SEQUENCE_FIELDS[sequence] for name, sequence in SEQUENCE_OF.items()}


@dataclass(frozen=True, slots=True)
class ScanSplit:
    """Rows [start, end) of one fragment, by physical offset."""

    fragment: Fragment  # With the sequences that the scan reads.
    start: int  # First row.
    end: int  # One past the last row.
    offsets: OffsetSet | None = None  # The only rows that can match; None for all.

    @property
    def read_share(self) -> float:
        """Fraction of the fragment's rows that this split reads."""
        rows = self.end - self.start if self.offsets is None else len(self.offsets)
        return rows / max(1, self.fragment.physical_rows)


class Slices(Sequence[ScanSplit]):
    """Immutable splits as columns of shape (n,), since a plan may have a million."""

    def __init__(
        self,
        fragments: Fragments,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        offsets: Mapping[int, OffsetSet] | None = None,
        lineage: frozenset[str] = frozenset(_FIELDS_OF),
    ) -> None:
        self.fragments = fragments  # The fragment of each split.
        self.starts, self.ends = starts, ends  # As in ``ScanSplit``.
        self.offsets = offsets or {}  # By index; without an entry, all rows can match.
        # The lineage columns whose sequences the fragments have; sequences are most of a plan.
        self.lineage = lineage

    @classmethod
    def of(cls, slices: Iterable[ScanSplit]) -> Slices:
        """Convert splits to columns."""
        if isinstance(slices, Slices):
            return slices
        slices = tuple(slices)
        return cls(
            Fragments.of([one.fragment for one in slices]),
            np.array([one.start for one in slices], np.int64),
            np.array([one.end for one in slices], np.int64),
            {n: one.offsets for n, one in enumerate(slices) if one.offsets is not None},
        )

    @classmethod
    def whole(cls, fragments: Fragments) -> Slices:
        """Return splits of all rows of fragments."""
        rows = fragments.columns.physical_rows
        return cls(fragments, np.zeros(len(rows), np.int64), rows)

    @cached_property
    def num_rows(self) -> NDArray[np.int64]:
        """Return the number of rows of each split, including deleted ones."""
        rows = self.ends - self.starts
        for index, offsets in self.offsets.items():
            rows[index] = len(offsets)
        return rows

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> ScanSplit: ...

    @overload
    def __getitem__(self, index: slice) -> Slices: ...

    def __getitem__(self, index: int | slice) -> ScanSplit | Slices:
        if isinstance(index, slice):
            return self.take(index)
        index = range(len(self))[index]
        return self._slice(index, self.fragments[index])

    def __iter__(self) -> Iterator[ScanSplit]:
        return map(self._slice, range(len(self)), self.fragments)

    def _slice(self, index: int, fragment: Fragment) -> ScanSplit:
        if len(self.lineage) < len(_FIELDS_OF):
            # Hot path: dataclasses.replace is six times slower.
            fragment = Fragment(
                fragment.id,
                fragment.files,
                fragment.physical_rows,
                fragment.deletion_file,
                fragment.row_ids if ROW_ID in self.lineage else None,
                fragment.created_at if CREATED_AT in self.lineage else None,
                fragment.last_updated_at if LAST_UPDATED_AT in self.lineage else None,
            )
        start, end = int(self.starts[index]), int(self.ends[index])
        return ScanSplit(fragment, start, end, self.offsets.get(index))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slices | tuple | list):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Slices.of({list(self)!r})"

    def take(self, indices: NDArray[np.int64] | slice) -> Slices:
        """Return the splits at ``indices``, in that order."""
        offsets = {}
        if self.offsets:
            chosen = np.arange(len(self))[indices].tolist()
            numbered = ((n, self.offsets.get(index)) for n, index in enumerate(chosen))
            offsets = {n: rows for n, rows in numbered if rows is not None}
        fragments = self.fragments.take(indices)
        return Slices(fragments, self.starts[indices], self.ends[indices], offsets, self.lineage)

    def with_offsets(self, offsets: Mapping[int, OffsetSet]) -> Slices:
        """Restrict splits, by index, to some rows; drop splits without any."""
        narrowed = {**self.offsets, **offsets}
        slices = Slices(self.fragments, self.starts, self.ends, narrowed, self.lineage)
        return slices.take(np.flatnonzero(slices.num_rows > 0))

    def select_lineage(self, lineage: Iterable[str]) -> Slices:
        """Keep only the sequences of these lineage columns."""
        kept = self.lineage & frozenset(lineage)
        return Slices(self.fragments, self.starts, self.ends, self.offsets, kept)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle compressed messages, without derivable fields."""
        ranges = self._pack_ranges()
        cleared = [
            oneof
            for name, (_, oneof) in _FIELDS_OF.items()
            if name not in self.lineage or name in ranges
        ]
        names: list[bytes] = []
        packed: list[bytes] = []
        for messages in self.fragments.messages():
            files: list[table_pb2.DataFile] = []
            for message in messages.fragments:
                for one in cleared:
                    message.ClearField(one)
                files += message.files
            names.append(_take_names(files))
            packed.append(messages.SerializeToString())
        is_whole = (
            not self.starts.any() and (self.ends == self.fragments.columns.physical_rows).all()
        )
        return _unpickle_slices, (
            _compress(b"".join(packed)),
            _compress(b"".join(names)),
            None if is_whole else (self.starts.tolist(), self.ends.tolist()),
            dict(self.offsets),
            self.lineage,
            ranges,
        )

    def _pack_ranges(self) -> dict[str, bytes]:
        """Return the packed ranges of lineage columns with one range in each fragment."""
        packed = {}
        for name in sorted(self.lineage) if len(self) >= WORTHWHILE_RANGES else ():
            found = [one for some in self.fragments.sources(SEQUENCE_OF[name]) for one in some]
            # Many equal sequences compress well inside the messages.
            differ = len(set(found)) > len(found) // 4
            ranges = decode_each(found, versions=name != ROW_ID) if differ else None
            if ranges is not None and encode_each(ranges) == found:
                packed[name] = _pack_numbers(ranges)
        return packed


def _take_names(files: list[table_pb2.DataFile]) -> bytes:
    """Return the random bytes of the names of new files, and clear these names."""
    named = [(file, path) for file in files if len(path := file.path) == _NAME_LENGTH]
    text = "".join([path for _, path in named]).encode("ascii", "replace")
    chars = np.frombuffer(text, np.uint8).reshape(-1, _NAME_LENGTH)
    bits, digits, end = np.split(chars, (_NAME_BITS, _NAME_BITS + _NAME_DIGITS), axis=1)
    is_new = (
        ((bits == ord("0")) | (bits == ord("1"))).all(axis=1)
        & _IS_HEX[digits].all(axis=1)
        & (end == np.frombuffer(_NAME_END, np.uint8)).all(axis=1)
    )
    for (file, _), is_cleared in zip(named, is_new.tolist(), strict=True):
        if is_cleared:
            file.path = ""
    first = np.packbits(bits[is_new] == ord("1"), axis=1)
    rest = np.frombuffer(bytes.fromhex(digits[is_new].tobytes().decode()), np.uint8)
    return np.hstack((first, rest.reshape(-1, _NAME_DIGITS // 2))).tobytes()


def _put_names(message: table_pb2.Manifest, names: bytes) -> None:
    """Undo ``_take_names``."""
    parts = np.frombuffer(names, np.uint8).reshape(-1, _NAME_BYTES)
    bits = np.unpackbits(parts[:, : _NAME_BITS // 8], axis=1) + np.uint8(ord("0"))
    digits = np.frombuffer(parts[:, _NAME_BITS // 8 :].tobytes().hex().encode(), np.uint8)
    end = np.broadcast_to(np.frombuffer(_NAME_END, np.uint8), (len(parts), len(_NAME_END)))
    text = np.hstack((bits, digits.reshape(-1, _NAME_DIGITS), end)).tobytes().decode()
    at = 0
    for one in message.fragments:
        for file in one.files:
            if not file.path:
                file.path = text[at : at + _NAME_LENGTH]
                at += _NAME_LENGTH


def _compress(data: bytes) -> bytes:
    """Compress large data; the first byte is the flag of compression."""
    return b"\1" + zlib.compress(data, _FAST) if len(data) > _SMALL_BYTES else b"\0" + data


def _decompress(data: bytes) -> bytes:
    return zlib.decompress(data[1:]) if data[0] else data[1:]


def _pack_numbers(ranges: Ranges) -> bytes:
    """Encode numbers as deltas, split by byte, most of which are zero."""
    parts = [ranges.starts, ranges.ends - ranges.starts]
    if ranges.versions is not None:
        parts.append(ranges.versions)
    numbers = np.concatenate(parts).astype("<u8")
    steps = np.diff(numbers, prepend=np.uint64(0))
    return _compress(np.ascontiguousarray(steps.view(np.uint8).reshape(-1, 8).T).tobytes())


def _unpack_ranges(data: bytes, *, versions: bool) -> Ranges:
    """Decode the result of ``_pack_numbers``."""
    by_byte = np.frombuffer(_decompress(data), np.uint8).reshape(8, -1)
    numbers = np.cumsum(np.ascontiguousarray(by_byte.T).view("<u8").ravel(), dtype=np.uint64)
    starts, lengths, *rest = np.split(numbers, 3 if versions else 2)
    return Ranges(starts, starts + lengths, *rest)


def _unpickle_slices(
    messages: bytes,
    names: bytes,
    bounds: tuple[list[int], list[int]] | None,
    offsets: Mapping[int, OffsetSet],
    lineage: frozenset[str],
    ranges: Mapping[str, bytes],
) -> Slices:
    """Unpickle ``Slices``."""
    message = parse_message(table_pb2.Manifest, _decompress(messages))
    _put_names(message, _decompress(names))
    for name, packed in ranges.items():
        inline, _ = _FIELDS_OF[name]
        sequences = encode_each(_unpack_ranges(packed, versions=name != ROW_ID))
        for one, sequence in zip(message.fragments, sequences, strict=True):
            setattr(one, inline, sequence)
    fragments = Fragments.of(fragments_from_protos(message.fragments))
    if bounds is None:
        ends = np.array([one.physical_rows for one in fragments], np.int64)
        starts = np.zeros_like(ends)
    else:
        starts, ends = (np.array(one, np.int64) for one in bounds)
    return Slices(fragments, starts, ends, offsets, lineage)
