"""RowDatasetVersionSequence: the version that created or last updated each row of a fragment.

Aligned with the physical rows, deleted ones included.  No I/O.

Source: docs/format/table-format.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.physical_rows import (
    as_positions,
    check_deleted_offsets,
    check_row_count,
    check_rows,
)
from pyspark_lance.format.u64_segment import MAX_ROWS, segment_from_proto
from pyspark_lance.format.wire import (
    WORTHWHILE_BYTES,
    WORTHWHILE_RANGES,
    Ranges,
    decode_ranges,
    encode_ranges,
    parse_message,
)
from pyspark_lance.proto import row_ids_pb2


@dataclass(frozen=True, slots=True, eq=False)
class RowDatasetVersionSequence:
    """Versions as runs of equal values; runs are not empty, and adjacent runs differ.

    ``ends``: one past the last row of each run, ascending; ``versions``: the version of each run.
    """

    ends: NDArray[np.int64]
    versions: NDArray[np.uint64]

    def __post_init__(self) -> None:
        """Reject more rows than a fragment can have."""
        if len(self) > MAX_ROWS:
            raise CorruptFileError(
                f"{len(self)} row versions are more than a fragment can have rows"
            )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RowDatasetVersionSequence)
            and np.array_equal(self.ends, other.ends)
            and np.array_equal(self.versions, other.versions)
        )

    def __hash__(self) -> int:
        return hash((self.ends.tobytes(), self.versions.tobytes()))

    @classmethod
    def from_bytes(cls, data: bytes) -> RowDatasetVersionSequence:
        """Decode a serialized RowDatasetVersionSequence message, runs normalized."""
        ranges = decode_ranges(data, versions=True) if len(data) >= WORTHWHILE_BYTES else None
        if ranges is not None and ranges.versions is not None:
            # Of a span only the number of values matters (section 7.1).
            return _from_lengths((ranges.ends - ranges.starts).astype(np.int64), ranges.versions)
        message = parse_message(row_ids_pb2.RowDatasetVersionSequence, data)
        return _of_merged(
            _merge_runs([(len(segment_from_proto(run.span)), run.version) for run in message.runs])
        )

    def to_bytes(self) -> bytes:
        """The serialized message; spans are the rows' offsets."""
        starts = np.concatenate(([0], self.ends))[:-1]
        if len(self.ends) >= WORTHWHILE_RANGES:
            bounds = starts.astype(np.uint64), self.ends.astype(np.uint64)
            return encode_ranges(Ranges(*bounds, self.versions))
        message = row_ids_pb2.RowDatasetVersionSequence()
        runs = starts.tolist(), self.ends.tolist(), self.versions.tolist()
        for start, end, version in zip(*runs, strict=True):
            run = message.runs.add(version=version)
            run.span.range.start = start
            run.span.range.end = end
        return message.SerializeToString(deterministic=True)

    @classmethod
    def constant(cls, count: int, version: int) -> RowDatasetVersionSequence:
        """``count`` rows, all at ``version``."""
        return _of_merged([(count, version)] if count else [])

    @classmethod
    def from_array(cls, versions: ArrayLike) -> RowDatasetVersionSequence:
        """Create a sequence of one row per element of ``versions``."""
        values = np.asarray(versions, dtype=np.uint64)
        return _from_lengths(np.ones(len(values), dtype=np.int64), values)

    @classmethod
    def concat(cls, sequences: Iterable[RowDatasetVersionSequence]) -> RowDatasetVersionSequence:
        """Concatenate all rows, one sequence after the other."""
        every = list(sequences)
        lengths = [np.diff(sequence.ends, prepend=0) for sequence in every]
        versions = [sequence.versions for sequence in every]
        return _from_lengths(
            np.concatenate([np.empty(0, np.int64), *lengths]),
            np.concatenate([np.empty(0, np.uint64), *versions]),
        )

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def expect_length(self, physical_rows: int) -> RowDatasetVersionSequence:
        """Return this sequence if it has one version per physical row; raise otherwise.

        Must be called before expanding a sequence read from a file: a few damaged bytes can claim
        billions of rows.
        """
        check_row_count(len(self), physical_rows, "row versions")
        return self

    @property
    def min_version(self) -> int | None:
        """The smallest version of any row; None when there are no rows."""
        return int(self.versions.min()) if len(self.versions) else None

    @property
    def max_version(self) -> int | None:
        """The largest version of any row; None when there are no rows."""
        return int(self.versions.max()) if len(self.versions) else None

    @property
    def only_version(self) -> int | None:
        """The version of all rows; None if they differ or there are no rows."""
        return int(self.versions[0]) if len(self.versions) == 1 else None

    def to_array(self) -> NDArray[np.uint64]:
        """The versions, shape (len(self),)."""
        if len(self.ends) == 1:
            return np.full(len(self), self.versions[0], dtype=np.uint64)
        return np.repeat(self.versions, np.diff(self.ends, prepend=0))

    def slice(self, start: int, end: int) -> RowDatasetVersionSequence:
        """The versions of rows [start, end); the cost depends on its runs."""
        check_rows(start, end, len(self))
        if start == end:
            return self.constant(0, 0)
        if start == 0 and end == len(self):
            return self
        first = np.searchsorted(self.ends, start, side="right")
        behind = np.searchsorted(self.ends, end, side="left") + 1
        cut = np.minimum(self.ends[first:behind], end) - start
        return RowDatasetVersionSequence(cut, self.versions[first:behind])

    def take(self, offsets: ArrayLike) -> NDArray[np.uint64]:
        """The versions of the rows at ``offsets``, in any order, same shape."""
        positions = as_positions(offsets, len(self))
        if len(self.ends) == 1:
            return np.full(len(positions), self.versions[0], dtype=np.uint64)
        return self.versions[np.searchsorted(self.ends, positions, side="right")]

    def without(self, deleted: DeletionVector) -> RowDatasetVersionSequence:
        """The versions of live rows."""
        if deleted.is_empty:
            return self
        check_deleted_offsets(deleted, len(self))
        deleted_before = np.searchsorted(deleted.to_array(), self.ends, side="left")
        return _from_lengths(np.diff(self.ends - deleted_before, prepend=0), self.versions)

    def replace_at(self, offsets: ArrayLike, version: int) -> RowDatasetVersionSequence:
        """Return these versions with ``version`` for the rows at ``offsets`` (any order)."""
        rows = np.unique(as_positions(offsets, len(self)))
        if rows.size == 0:
            return self
        # Runs of consecutive offsets, then every position where the old or new value may change.
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1
        firsts = rows[np.concatenate(([0], breaks))]
        lasts = rows[np.concatenate((breaks - 1, [len(rows) - 1]))]
        ends, versions = self.ends, self.versions
        cuts = np.unique(np.concatenate((ends, firsts, lasts + 1)))
        cuts = cuts[cuts > 0]
        starts = np.concatenate(([0], cuts[:-1]))
        values = versions[np.searchsorted(ends, starts, side="right")]
        stretch = np.searchsorted(firsts, starts, side="right") - 1
        values[(stretch >= 0) & (starts <= lasts[stretch])] = version
        return _from_lengths(cuts - starts, values)


def _merge_runs(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return runs without empty ones, equal adjacent ones merged."""
    merged: list[tuple[int, int]] = []
    for length, version in runs:
        if not length:
            continue
        if merged and merged[-1][1] == version:
            merged[-1] = (merged[-1][0] + length, version)
        else:
            merged.append((length, version))
    return merged


def _of_merged(runs: Sequence[tuple[int, int]]) -> RowDatasetVersionSequence:
    ends = list(accumulate(length for length, _ in runs))
    if ends and ends[-1] > MAX_ROWS:
        raise CorruptFileError(f"{ends[-1]} row versions are more than a fragment can have rows")
    return RowDatasetVersionSequence(
        np.array(ends, dtype=np.int64), np.array([version for _, version in runs], dtype=np.uint64)
    )


def _from_lengths(
    lengths: NDArray[np.int64], versions: NDArray[np.uint64]
) -> RowDatasetVersionSequence:
    """Return ``_merge_runs`` of arrays."""
    filled = lengths > 0
    lengths, versions = lengths[filled], versions[filled]
    firsts = np.flatnonzero(np.concatenate(([True], versions[1:] != versions[:-1])))
    ends = np.cumsum(lengths)
    lasts = np.append(firsts[1:], len(ends)) - 1
    if not len(ends):
        firsts = lasts = firsts[:0]
    return RowDatasetVersionSequence(ends[lasts], versions[firsts])
