"""Packs changes into tasks of about equal cost; pure.

Changes that look rows up in the same files share a task, so that these are read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np

from pyspark_lance.table.cdf.changed_rows import (
    ChangeType,
    Commit,
    Side,
    UpdateChanges,
    WholeFragmentChanges,
    file_group,
    group_of_rows,
)
from pyspark_lance.table.cdf.common_rows import RetainedRows
from pyspark_lance.table.rows.scan_split import Slices
from pyspark_lance.table.scan.pack_tasks import (
    OPEN_COST_BYTES,
    pack_by_cost,
    slice_costs,
    split_slice,
)

# A row that is looked up costs more than one among its neighbours.
_SCATTERED = 4.0
# To look few rows up in a file takes as long as to decode so many bytes, and each part of a cluster
# does it again.
_LOOKUP_BYTES = 2 << 20


def sides_of(change: WholeFragmentChanges | UpdateChanges) -> tuple[Side, ...]:
    """The sides that a change reads."""
    return (
        (change.side,)
        if isinstance(change, WholeFragmentChanges)
        else (change.before, change.after)
    )


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A change, or rows of one, and its place in the order of time."""

    number: int
    change: WholeFragmentChanges | UpdateChanges


def pack_changes(
    changes: Sequence[WholeFragmentChanges | UpdateChanges], parallelism: int
) -> list[list[WholeFragmentChanges | UpdateChanges]]:
    """The changes of each task, in their order.

    ``changes``: in the order in which they happened; those that are not updates have one slice.
    ``parallelism``: tasks that can run at once.
    """
    clusters = _clusters(changes)
    costs = np.array([_cost(cluster) for cluster in clusters], np.float64)
    packed = pack_by_cost(costs, clusters, _cut_cluster, parallelism)
    return [list(_merged(chain.from_iterable(group))) for group in packed]


def _clusters(changes: Sequence[WholeFragmentChanges | UpdateChanges]) -> list[list[_Numbered]]:
    """Changes that look rows up in the same files, by the first of them; each other one alone."""
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


def _groups_of(change: WholeFragmentChanges | UpdateChanges) -> set[int]:
    """The groups of files that a change looks rows up in, or could."""
    if isinstance(change, UpdateChanges):
        return set(map(group_of_rows, change.rows))
    if change.change_type is ChangeType.INSERT:
        return set()  # a file that is new in its version
    return {file_group(one.fragment) for one in change.slices if one.offsets is not None}


def _parts(
    change: WholeFragmentChanges | UpdateChanges, shared: set[int]
) -> Iterator[tuple[int | None, WholeFragmentChanges | UpdateChanges]]:
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
    """About how many bytes are read."""
    first = cluster[0].change
    if isinstance(first, WholeFragmentChanges) and not first.looked_up:
        return float(slice_costs(Slices.of(first.slices), 1.0)[0])
    num_files, num_bytes = _read_by(cluster)
    return num_bytes + OPEN_COST_BYTES * num_files


def _read_by(cluster: Sequence[_Numbered]) -> tuple[int, float]:
    """How many fragments rows are looked up in, and about how many bytes of them are read."""
    sources, num_rows = {}, 0
    for numbered in cluster:
        change = numbered.change
        if isinstance(change, WholeFragmentChanges):
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
        num_files, num_bytes = _read_by(cluster)
        count = min(count, max(1, int(num_bytes / (_LOOKUP_BYTES * num_files))))
    parts: list[list[_Numbered]] = [[] for _ in range(count)]
    for numbered in cluster:
        for part, piece in zip(parts, _cut(numbered.change, count), strict=False):
            part.append(_Numbered(numbered.number, piece))
    return [part for part in parts if part]


def _cut(
    change: WholeFragmentChanges | UpdateChanges, count: int
) -> Sequence[WholeFragmentChanges | UpdateChanges]:
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


def _merged(parts: Iterable[_Numbered]) -> Iterator[WholeFragmentChanges | UpdateChanges]:
    """The changes in their order; neighbours that can be one are, so that they share a batch."""
    in_order = sorted(parts, key=lambda part: part.number)
    for _, group in groupby(in_order, key=_what_and_when):
        changes = [part.change for part in group]
        first = changes[0]
        if isinstance(first, UpdateChanges):
            rows = (one.rows for one in changes if isinstance(one, UpdateChanges))
            yield replace(first, rows=tuple(chain.from_iterable(rows)))
        else:
            slices = (one.slices for one in changes if isinstance(one, WholeFragmentChanges))
            yield replace(first, slices=tuple(chain.from_iterable(slices)))


def _what_and_when(part: _Numbered) -> int | tuple[ChangeType, Commit, Side, bool]:
    """What changes that can be one have in common."""
    change = part.change
    if isinstance(change, UpdateChanges):
        return part.number
    return change.change_type, change.commit, change.side, change.looked_up
