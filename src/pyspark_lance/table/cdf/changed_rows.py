"""Rows that the tasks of a change feed read, and how they are packed into tasks; pure.

Rows that different versions changed are scattered over the same files. So rows that are looked up
in one file are read in one pass for all changes, unless they are too many for the memory.

Changes are packed into tasks of about equal cost. Those that look up rows in the same files share a
task, so that these are read once. Many small versions are divided by version instead: each wrote
files of its own, which every task would otherwise open.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.cdf.common_rows import RetainedRows, join_rows
from pyspark_lance.table.rows.scan_split import ScanSplit, Slices
from pyspark_lance.table.scan.plan_scan import (
    OPEN_COST_BYTES,
    pack_by_cost,
    slice_costs,
    split_slice,
)


class ChangeType(enum.StrEnum):
    """Kind of change of a row."""

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
        """Whether versions between the two may be removed."""
        return self.version - self.since > 1


@dataclass(frozen=True, slots=True)
class Side:
    """Key of the ``VersionFiles`` of a task.

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
        """Reject a plain value."""
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


RowChanges: TypeAlias = WholeFragmentChanges | UpdateChanges

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
        """Return part ``number`` of ``count``."""
        first, last = (len(self) * end // count for end in (number, number + 1))
        rows = self.rows
        if isinstance(rows, RetainedRows):
            return replace(self, rows=rows.part(first, last))
        assert rows.offsets is not None
        return replace(self, rows=replace(rows, offsets=rows.offsets.part(first, last)))


def in_passes(changes: Sequence[RowChanges], max_rows: int) -> Iterator[Sequence[RowChanges]]:
    """The changes, in parts that look up about ``max_rows`` rows at most, each in their order.

    Parts are cut by file or by version, whichever reads less.
    """
    if _num_rows(changes) <= max_rows:
        yield changes
        return
    by_file = list(_passes_by_file(changes, max_rows))
    by_version: list[Sequence[RowChanges]] = []
    for run in _runs_of_versions(changes, max_rows):
        is_large = _num_rows(run) > max_rows
        by_version += _passes_by_file(run, max_rows) if is_large else [run]
    yield from min((by_file, by_version), key=lambda passes: sum(map(_bytes_to_read, passes)))


def _num_rows(changes: Iterable[RowChanges]) -> int:
    """Return the number of rows that are looked up."""
    return sum(len(piece) for change in changes for piece in _pieces(0, change))


def _runs_of_versions(changes: Sequence[RowChanges], max_rows: int) -> Iterator[list[RowChanges]]:
    """Consecutive changes that look up ``max_rows`` rows at most, or one change with more."""
    run: list[RowChanges] = []
    num_rows = 0
    for change in changes:
        count = _num_rows([change])
        if run and num_rows + count > max_rows:
            yield run
            run, num_rows = [], 0
        run.append(change)
        num_rows += count
    yield run


def _passes_by_file(changes: Sequence[RowChanges], max_rows: int) -> Iterator[Sequence[RowChanges]]:
    """Cut changes into parts, each with the rows of some files.

    The rows of one file are in one part, or in neighbouring ones if they are too many; then each
    part has about the same share of each change, whose rows are mostly in the order of the file.
    """
    pieces = [piece for number, change in enumerate(changes) for piece in _pieces(number, change)]
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


def _pieces(number: int, change: RowChanges) -> Iterator[_Piece]:
    if isinstance(change, UpdateChanges):
        yield from (_Piece(number, rows) for rows in change.rows)
    elif change.looked_up:
        yield from (_Piece(number, one) for one in change.slices)


def _changes_of(
    changes: Sequence[RowChanges], pieces: Sequence[_Piece], *, is_first: bool, is_last: bool
) -> list[RowChanges]:
    """The changes in one part; those that are scanned are in the first or the last one."""
    rows_of: dict[int, list[RetainedRows | ScanSplit]] = {}
    for piece in pieces:
        if len(piece):
            rows_of.setdefault(piece.change, []).append(piece.rows)
    found: list[RowChanges] = []
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


# More work that tasks may have in all, if they end earlier together.
_MAX_OVERHEAD = 1.25
# A row that is looked up costs more than one among its neighbours.
_SCATTERED = 4.0
# To look few rows up in a file takes as long as to decode so many bytes, and each part of a cluster
# does it again.
_LOOKUP_BYTES = 2 << 20


def sides_of(change: RowChanges) -> tuple[Side, ...]:
    """The sides that a change reads."""
    return (
        (change.side,)
        if isinstance(change, WholeFragmentChanges)
        else (change.before, change.after)
    )


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A change, or rows of one, and its position in time."""

    number: int
    change: RowChanges


def pack_changes(changes: Sequence[RowChanges], parallelism: int) -> list[list[RowChanges]]:
    """The changes of each task, in their order.

    ``changes``: in the order in which they happened; those that are not updates have one slice.
    ``parallelism``: tasks that can run at once.
    """
    if not changes:
        return []
    by_file, by_version = (pack(changes, parallelism) for pack in (_pack_by_file, _pack_by_version))
    file_costs, version_costs = (
        np.array([_bytes_to_read(task) for task in tasks]) for tasks in (by_file, by_version)
    )

    def duration(costs: NDArray[np.float64]) -> float:
        return float(max(costs.max(), costs.sum() / parallelism))

    is_little_more = version_costs.sum() < _MAX_OVERHEAD * file_costs.sum()
    is_faster = duration(version_costs) < duration(file_costs)
    return by_version if is_little_more and is_faster else by_file


def _pack_by_file(changes: Sequence[RowChanges], parallelism: int) -> list[list[RowChanges]]:
    clusters = _clusters(changes)
    costs = np.array([_cost(cluster) for cluster in clusters], np.float64)
    packed = pack_by_cost(costs, clusters, _cut_cluster, parallelism)
    return [list(_merge_neighbors(chain.from_iterable(group))) for group in packed]


def _pack_by_version(changes: Sequence[RowChanges], parallelism: int) -> list[list[RowChanges]]:
    """Consecutive changes of about equal cost; each task reads the files that it needs."""
    costs = np.array([_bytes_to_read([change]) for change in changes])
    # Files that many changes read count once.
    costs *= _bytes_to_read(changes) / costs.sum()
    runs = pack_by_cost(costs, changes, lambda change, _: (change,), parallelism)
    return [
        [
            _with_joined_rows(change)
            for change in _merge_neighbors(chain.from_iterable(_clusters(run)))
        ]
        for run in runs
    ]


def _with_joined_rows(change: RowChanges) -> RowChanges:
    """The change without the cuts by file of its old rows."""
    if isinstance(change, WholeFragmentChanges):
        return change
    by_new = groupby(change.rows, key=lambda rows: (rows.after.id, rows.in_place))
    return replace(change, rows=tuple(join_rows(list(parts)) for _, parts in by_new))


def _clusters(changes: Sequence[RowChanges]) -> list[list[_Numbered]]:
    """Group changes that look rows up in the same files; all others are single."""
    used = Counter(chain.from_iterable(_groups_of(change) for change in changes))
    shared = {group for group, count in used.items() if count > 1}
    clusters: list[list[_Numbered]] = []
    cluster_of: dict[int, list[_Numbered]] = {}
    for number, change in enumerate(changes):
        for group, part in _parts(change, shared):
            if group is None:
                clusters.append([_Numbered(number, part)])
                continue
            if group not in cluster_of:
                clusters.append(cluster_of.setdefault(group, []))
            cluster_of[group].append(_Numbered(number, part))
    return clusters


def _groups_of(change: RowChanges) -> set[int]:
    """The groups of files that a change looks rows up in, or could."""
    if isinstance(change, UpdateChanges):
        return set(map(group_of_rows, change.rows))
    if change.change_type is ChangeType.INSERT:
        return set()  # a file that is new in its version
    return {file_group(one.fragment) for one in change.slices if one.offsets is not None}


def _parts(change: RowChanges, shared: set[int]) -> Iterator[tuple[int | None, RowChanges]]:
    """The rows in each of the shared groups, and those in none."""
    if isinstance(change, WholeFragmentChanges):
        groups = _groups_of(change) & shared
        yield (groups.pop(), replace(change, looked_up=True)) if groups else (None, change)
        return
    rows_of: dict[int | None, list[RetainedRows]] = {}
    for rows in change.rows:
        group = group_of_rows(rows)
        rows_of.setdefault(group if group in shared else None, []).append(rows)
    for shared_group, kept in rows_of.items():
        yield shared_group, replace(change, rows=tuple(kept))


def _cost(cluster: Sequence[_Numbered]) -> float:
    """Estimate the bytes to read."""
    return _bytes_to_read([numbered.change for numbered in cluster])


def _bytes_to_read(changes: Sequence[RowChanges]) -> float:
    """Estimate the bytes to read and the cost of opening files, in one pass."""
    scanned = [
        one
        for change in changes
        if isinstance(change, WholeFragmentChanges) and not change.looked_up
        for one in change.slices
    ]
    num_files, num_bytes = _read_by(changes)
    num_bytes += OPEN_COST_BYTES * num_files
    return num_bytes + float(slice_costs(Slices.of(scanned), 1.0).sum()) if scanned else num_bytes


def _read_by(changes: Iterable[RowChanges]) -> tuple[int, float]:
    """Return the number of fragments to look rows up in, and estimate the bytes to read."""
    sources, num_rows = {}, 0
    for change in changes:
        if isinstance(change, WholeFragmentChanges):
            if not change.looked_up:
                continue
            sources.update({(one.fragment.id, True): one.fragment for one in change.slices})
            num_rows += sum(len(one.offsets or ()) for one in change.slices)
            continue
        for rows in change.rows:
            sources.update({(fragment.id, True): fragment for fragment in rows.before})
            sources[rows.after.id, False] = rows.after
            num_rows += 2 * len(rows)
    stored = sum(file.size_bytes for fragment in sources.values() for file in fragment.files)
    physical = sum(fragment.physical_rows for fragment in sources.values())
    return len(sources), stored * min(1.0, _SCATTERED * num_rows / max(1, physical))


def _cut_cluster(cluster: Sequence[_Numbered], count: int) -> Sequence[list[_Numbered]]:
    """``cluster`` in ``count`` parts, or fewer; each has about the same share of each change."""
    if len(cluster) > 1:
        num_files, num_bytes = _read_by(numbered.change for numbered in cluster)
        count = min(count, max(1, int(num_bytes / (_LOOKUP_BYTES * num_files))))
    parts: list[list[_Numbered]] = [[] for _ in range(count)]
    for numbered in cluster:
        for part, piece in zip(parts, _cut(numbered.change, count), strict=False):
            part.append(_Numbered(numbered.number, piece))
    return [part for part in parts if part]


def _cut(change: RowChanges, count: int) -> Sequence[RowChanges]:
    """``change`` in ``count`` pieces, or fewer."""
    if isinstance(change, WholeFragmentChanges):
        (scan_split,) = change.slices
        return [replace(change, slices=(piece,)) for piece in split_slice(scan_split, count)]
    step = -(-sum(map(len, change.rows)) // count)
    pieces: list[list[RetainedRows]] = [[]]
    room = step
    for rows in change.rows:
        first = 0
        while first < len(rows):
            if not room:
                pieces.append([])
                room = step
            taken = min(room, len(rows) - first)
            pieces[-1].append(rows.part(first, first + taken))
            first, room = first + taken, room - taken
    return [replace(change, rows=tuple(piece)) for piece in pieces]


def _merge_neighbors(parts: Iterable[_Numbered]) -> Iterator[RowChanges]:
    """The changes in their order; neighbours that can be one are, so that they share a batch."""
    in_order = sorted(parts, key=lambda part: part.number)
    for _, group in groupby(in_order, key=_merge_key):
        changes = [part.change for part in group]
        first = changes[0]
        if isinstance(first, UpdateChanges):
            rows = (one.rows for one in changes if isinstance(one, UpdateChanges))
            yield replace(first, rows=tuple(chain.from_iterable(rows)))
        else:
            slices = (one.slices for one in changes if isinstance(one, WholeFragmentChanges))
            yield replace(first, slices=tuple(chain.from_iterable(slices)))


def _merge_key(part: _Numbered) -> int | tuple[ChangeType, Commit, Side, bool]:
    """Return the properties that changes must share to be merged."""
    change = part.change
    if isinstance(change, UpdateChanges):
        return part.number
    return change.change_type, change.commit, change.side, change.looked_up
