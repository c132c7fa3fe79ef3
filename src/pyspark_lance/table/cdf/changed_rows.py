"""The rows that a task of a change feed reads, and how they are divided to be read.

Versions need rows of the same files: those that one of them changed are scattered over the file, as
are those of the next one.  So rows that are looked up in one file are read in one pass for all
changes, unless they are too many for the memory.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.cdf.common_rows import RetainedRows
from pyspark_lance.table.rows.scan_split import ScanSplit


class ChangeType(enum.StrEnum):
    """What happened to a row."""

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Commit:
    """The step from one version that is known to the next."""

    version: int  # The version after the step.
    # The version before it; 0 for none. Between the two there may have been versions that are not
    # there any more.
    since: int
    timestamp_us: int  # When ``version`` was committed, UTC microseconds since 1970.

    @property
    def has_lost_versions(self) -> bool:
        """Whether versions between the two may be gone."""
        return self.version - self.since > 1


@dataclass(frozen=True, slots=True)
class Side:
    """Names the ``VersionFiles`` of a task.

    ``compared``: whether all columns are read, to see if they differ, or only those returned.
    """

    version: int
    compared: bool


@dataclass(frozen=True, slots=True)
class WholeFragmentChanges:
    """Rows that were inserted or deleted.

    ``change_type``: ``INSERT`` or ``DELETE``.
    """

    change_type: ChangeType
    commit: Commit
    side: Side
    slices: tuple[ScanSplit, ...]
    # Whether the rows, of which each slice names its own, are looked up together with those that
    # other changes need of the same files; they are scanned otherwise.
    looked_up: bool = False

    def __post_init__(self) -> None:
        """Refuses a plain value."""
        check_enum(self.change_type, ChangeType)


@dataclass(frozen=True, slots=True)
class UpdateChanges:
    """Rows that both versions have."""

    commit: Commit  # The step that changed them.
    before: Side
    after: Side
    # Where they are. Those that lineage calls updated are, whatever their values; the others are
    # some only if their values differ.
    rows: tuple[RetainedRows, ...]


# Fragments with fewer bytes are read in one pass with others whose ids are near.
_SMALL_BYTES = 4 << 20
_IDS_OF_SMALL = 64


def file_group(fragment: Fragment) -> int:
    """The least id of the fragments that are read in one pass with this one."""
    is_small = sum(file.size_bytes for file in fragment.files) < _SMALL_BYTES
    return fragment.id - fragment.id % _IDS_OF_SMALL if is_small else fragment.id


def group_of_rows(rows: RetainedRows | ScanSplit) -> int:
    """The group of the files in which rows are looked up; of updated ones, the old rows."""
    if isinstance(rows, ScanSplit):
        return file_group(rows.fragment)
    return min(map(file_group, rows.before))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one change that are looked up in one file, or in a few."""

    change: int  # Its number.
    rows: RetainedRows | ScanSplit

    @property
    def group(self) -> int:
        return group_of_rows(self.rows)

    def __len__(self) -> int:
        rows = self.rows
        return len(rows) if isinstance(rows, RetainedRows) else len(rows.offsets or ())

    def part(self, number: int, count: int) -> _Piece:
        """One of so many parts."""
        first, last = (len(self) * end // count for end in (number, number + 1))
        rows = self.rows
        if isinstance(rows, RetainedRows):
            return replace(self, rows=rows.part(first, last))
        assert rows.offsets is not None
        return replace(self, rows=replace(rows, offsets=rows.offsets.part(first, last)))


def in_passes(
    changes: Sequence[WholeFragmentChanges | UpdateChanges], max_rows: int
) -> Iterator[Sequence[WholeFragmentChanges | UpdateChanges]]:
    """The changes, in parts that look up about ``max_rows`` rows at most, each in their order.

    The rows of one file are in one part, or in neighbouring ones if they are too many; then each
    part has about the same share of each change, whose rows mostly lie in the order of the file.
    """
    pieces = [piece for number, change in enumerate(changes) for piece in _pieces(number, change)]
    if sum(map(len, pieces)) <= max_rows:
        yield changes
        return
    parts: list[list[_Piece]] = [[]]
    num_rows = 0
    for _, group in groupby(sorted(pieces, key=lambda one: one.group), key=lambda one: one.group):
        together = list(group)
        count = sum(map(len, together))
        if num_rows + count > max_rows and parts[-1]:
            parts.append([])
            num_rows = 0
        cuts = -(-count // max_rows)
        for cut in range(cuts):
            if cut:
                parts.append([])
            pieces_of_cut = (piece.part(cut, cuts) for piece in together)
            parts[-1] += [piece for piece in pieces_of_cut if len(piece)]
        num_rows = count if cuts > 1 else num_rows + count
    for number, part in enumerate(parts):
        yield _changes_of(changes, part, is_first=not number, is_last=number == len(parts) - 1)


def _pieces(number: int, change: WholeFragmentChanges | UpdateChanges) -> Iterator[_Piece]:
    if isinstance(change, UpdateChanges):
        yield from (_Piece(number, rows) for rows in change.rows)
    elif change.looked_up:
        yield from (_Piece(number, one) for one in change.slices)


def _changes_of(
    changes: Sequence[WholeFragmentChanges | UpdateChanges],
    pieces: Sequence[_Piece],
    *,
    is_first: bool,
    is_last: bool,
) -> list[WholeFragmentChanges | UpdateChanges]:
    """The changes in one part; those that are scanned are in the first or the last one."""
    rows_of: dict[int, list[RetainedRows | ScanSplit]] = {}
    for piece in pieces:
        if len(piece):
            rows_of.setdefault(piece.change, []).append(piece.rows)
    found: list[WholeFragmentChanges | UpdateChanges] = []
    for number, change in enumerate(changes):
        rows = rows_of.get(number, [])
        if isinstance(change, UpdateChanges):
            if rows:
                kept = tuple(one for one in rows if isinstance(one, RetainedRows))
                found.append(replace(change, rows=kept))
        elif change.looked_up:
            if rows:
                slices = tuple(one for one in rows if isinstance(one, ScanSplit))
                found.append(replace(change, slices=slices))
        elif is_first if change.change_type is ChangeType.DELETE else is_last:
            found.append(change)
    return found
