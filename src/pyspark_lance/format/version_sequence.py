"""RowDatasetVersionSequence: the version at which each row of a fragment was made or last changed.

Aligned with the physical rows, deleted ones included.  No I/O.

Source: docs/format/table-format.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.physical_rows import (
    as_positions,
    check_deleted_offsets,
    check_row_count,
    check_rows,
)
from pyspark_lance.format.range_messages import (
    WORTHWHILE_BYTES,
    WORTHWHILE_RANGES,
    Ranges,
    decode_ranges,
    encode_ranges,
)
from pyspark_lance.format.u64_segment import MAX_ROWS, segment_from_proto
from pyspark_lance.format.wire import parse_message
from pyspark_lance.proto import row_ids_pb2

_U64_END = 1 << 64


@dataclass(frozen=True, slots=True)
class RowDatasetVersionSequence:
    """Versions as runs of equal values.

    Attributes:
        runs: ``(length, version)`` pairs; lengths positive, neighbours of different version.

    Raises:
        InvalidInputError: The runs are not normalized or do not fit 64 bits.
        CorruptFileError: More values than a fragment can have rows.
    """

    runs: tuple[tuple[int, int], ...]
    _length: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        total, previous = 0, -1
        for length, version in self.runs:
            if length <= 0 or version == previous or not 0 <= version < _U64_END:
                raise InvalidInputError(f"run of {length} rows at version {version} is not normal")
            total += length
            previous = version
        if total > MAX_ROWS:
            raise CorruptFileError(f"{total} row versions are more than a fragment can have rows")
        object.__setattr__(self, "_length", total)

    @classmethod
    def from_bytes(cls, data: bytes) -> RowDatasetVersionSequence:
        """Decodes a serialized RowDatasetVersionSequence message, runs normalized.

        Raises:
            CorruptFileError: ``data`` is not such a message, or a span breaks a rule.
        """
        ranges = decode_ranges(data, versions=True) if len(data) >= WORTHWHILE_BYTES else None
        if ranges is not None and ranges.versions is not None:
            # Of a span only the number of values counts (section 7.1).
            return _from_lengths((ranges.ends - ranges.starts).astype(np.int64), ranges.versions)
        message = parse_message(row_ids_pb2.RowDatasetVersionSequence, data)
        return cls(
            _normalized([(len(segment_from_proto(run.span)), run.version) for run in message.runs])
        )

    def to_bytes(self) -> bytes:
        """The serialized message; spans are the rows' offsets."""
        if len(self.runs) >= WORTHWHILE_RANGES:
            offsets, versions = self._ends_and_versions()
            ends = offsets.astype(np.uint64)
            return encode_ranges(
                Ranges(np.concatenate(([np.uint64(0)], ends[:-1])), ends, versions)
            )
        message = row_ids_pb2.RowDatasetVersionSequence()
        start = 0
        for length, version in self.runs:
            run = message.runs.add(version=version)
            run.span.range.start = start
            run.span.range.end = start = start + length
        return message.SerializeToString(deterministic=True)

    @classmethod
    def constant(cls, count: int, version: int) -> RowDatasetVersionSequence:
        """``count`` rows, all at ``version``."""
        return cls(((count, version),) if count else ())

    @classmethod
    def from_array(cls, versions: ArrayLike) -> RowDatasetVersionSequence:
        """One row per element of ``versions``."""
        values = np.asarray(versions, dtype=np.uint64)
        return _from_lengths(np.ones(len(values), dtype=np.int64), values)

    @classmethod
    def concat(cls, sequences: Iterable[RowDatasetVersionSequence]) -> RowDatasetVersionSequence:
        """All rows, one sequence after the other."""
        return cls(_normalized([run for sequence in sequences for run in sequence.runs]))

    def __len__(self) -> int:
        return self._length

    def expect_length(self, physical_rows: int) -> RowDatasetVersionSequence:
        """This sequence, if it has one version per physical row.

        Call this before anything that expands a sequence read from a file: a few damaged bytes
        can claim billions of rows.

        Raises:
            CorruptFileError: Another length.
        """
        check_row_count(self._length, physical_rows, "row versions")
        return self

    @property
    def min_version(self) -> int | None:
        """The smallest version of any row; None when there are no rows."""
        return min([version for _, version in self.runs], default=None)

    @property
    def max_version(self) -> int | None:
        """The largest version of any row; None when there are no rows."""
        return max([version for _, version in self.runs], default=None)

    def to_array(self) -> NDArray[np.uint64]:
        """The versions, shape (len(self),)."""
        if len(self.runs) == 1:
            return np.full(self._length, self.runs[0][1], dtype=np.uint64)
        ends, versions = self._ends_and_versions()
        return np.repeat(versions, np.diff(ends, prepend=0))

    def slice(self, start: int, end: int) -> RowDatasetVersionSequence:
        """The versions of rows [start, end).

        Raises:
            InvalidInputError: The rows are not inside the sequence.
        """
        check_rows(start, end, self._length)
        if start == 0 and end == self._length:
            return self
        if len(self.runs) == 1:
            return self.constant(end - start, self.runs[0][1])
        ends, versions = self._ends_and_versions()
        cut = np.clip(ends, start, end)
        return _from_lengths(np.diff(cut, prepend=start), versions)

    def take(self, offsets: ArrayLike) -> NDArray[np.uint64]:
        """The versions of the rows at ``offsets``, in any order, same shape.

        Raises:
            InvalidInputError: An offset is not inside the sequence.
        """
        positions = as_positions(offsets, self._length)
        if len(self.runs) == 1:
            return np.full(len(positions), self.runs[0][1], dtype=np.uint64)
        ends, versions = self._ends_and_versions()
        return versions[np.searchsorted(ends, positions, side="right")]

    def without(self, deleted: DeletionVector) -> RowDatasetVersionSequence:
        """The versions of live rows.

        Raises:
            CorruptFileError: A deleted offset is not inside the sequence.
        """
        if deleted.is_empty:
            return self
        check_deleted_offsets(deleted, self._length)
        if len(self.runs) == 1:
            return self.constant(self._length - len(deleted), self.runs[0][1])
        ends, versions = self._ends_and_versions()
        deleted_before = np.searchsorted(deleted.to_array(), ends, side="left")
        return _from_lengths(np.diff(ends - deleted_before, prepend=0), versions)

    def replaced_at(self, offsets: ArrayLike, version: int) -> RowDatasetVersionSequence:
        """These versions, but ``version`` for the rows at ``offsets`` (any order).

        Raises:
            InvalidInputError: An offset is not inside the sequence.
        """
        rows = np.unique(as_positions(offsets, self._length))
        if rows.size == 0:
            return self
        # Stretches of consecutive offsets, then every place where old or new value may change.
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1
        firsts = rows[np.concatenate(([0], breaks))]
        lasts = rows[np.concatenate((breaks - 1, [len(rows) - 1]))]
        ends, versions = self._ends_and_versions()
        cuts = np.unique(np.concatenate((ends, firsts, lasts + 1)))
        cuts = cuts[cuts > 0]
        starts = np.concatenate(([0], cuts[:-1]))
        values = versions[np.searchsorted(ends, starts, side="right")]
        stretch = np.searchsorted(firsts, starts, side="right") - 1
        values[(stretch >= 0) & (starts <= lasts[stretch])] = version
        return _from_lengths(cuts - starts, values)

    def _ends_and_versions(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        lengths = np.array([length for length, _ in self.runs], dtype=np.int64)
        versions = np.array([version for _, version in self.runs], dtype=np.uint64)
        return np.cumsum(lengths), versions


def _normalized(runs: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Without empty runs, and with equal neighbours merged."""
    if len(runs) == 1 and runs[0][0]:
        return (runs[0],)
    merged: list[tuple[int, int]] = []
    for length, version in runs:
        if not length:
            continue
        if merged and merged[-1][1] == version:
            merged[-1] = (merged[-1][0] + length, version)
        else:
            merged.append((length, version))
    return tuple(merged)


def _from_lengths(
    lengths: NDArray[np.int64], versions: NDArray[np.uint64]
) -> RowDatasetVersionSequence:
    """Like ``_normalized``, over arrays."""
    lengths, versions = lengths[lengths > 0], versions[lengths > 0]
    if not len(lengths):
        return RowDatasetVersionSequence(())
    firsts = np.flatnonzero(np.concatenate(([True], versions[1:] != versions[:-1])))
    totals = np.add.reduceat(lengths, firsts)
    return RowDatasetVersionSequence(
        tuple(zip(totals.tolist(), versions[firsts].tolist(), strict=True))
    )
