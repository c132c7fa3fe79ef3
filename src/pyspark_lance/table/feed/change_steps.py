"""What happened to rows over several versions: every change, or the net change of each row."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.offset_set import OffsetSet
from pyspark_lance.format.row_address import fragment_ids, offsets, row_addresses
from pyspark_lance.format.system_columns import ROW_ID
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.feed.change_task import ChangeType, Commit
from pyspark_lance.table.feed.kept_rows import KeptRows, lineage_of, row_places
from pyspark_lance.table.feed.version_changes import (
    PlacedRows,
    VersionChanges,
    bounds_of,
    live_offsets,
    placed_rows,
)
from pyspark_lance.table.version.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Step:
    """From one version to the next that is there."""

    commit: Commit
    changes: VersionChanges

    def kept_long(self) -> Step:
        """The same without bytes of manifests."""
        before, after = (
            one and replace(one, file=one.file.let_go())
            for one in (self.changes.before, self.changes.after)
        )
        assert after is not None
        return Step(self.commit, replace(self.changes, before=before, after=after))


@dataclass(frozen=True, slots=True)
class PlacedChange:
    """Rows that were inserted or deleted.

    Attributes:
        kind: ``INSERT`` or ``DELETE``.
        commit: The step that did it.
        snapshot: The version to read the rows from.
        rows: Where they are in it.
    """

    kind: ChangeType
    commit: Commit
    snapshot: Snapshot
    rows: PlacedRows

    def __post_init__(self) -> None:
        """Refuses a plain value."""
        check_enum(self.kind, ChangeType)


@dataclass(frozen=True, slots=True)
class KeptChange:
    """Rows that may hold other values.

    Attributes:
        commit: The step that did it, the last of them.
        before: The version with the old values.
        after: The version with the new values.
        rows: Where they are in both.
    """

    commit: Commit
    before: Snapshot
    after: Snapshot
    rows: tuple[KeptRows, ...]


def every_change(steps: Iterable[Step]) -> Iterator[PlacedChange | KeptChange]:
    """All changes in the order in which they happened; of one step, deleted rows come first."""
    for step in steps:
        changes = step.changes
        if changes.before is not None:
            for rows in changes.deleted:
                yield PlacedChange(ChangeType.DELETE, step.commit, changes.before, rows)
            if changes.kept:
                yield KeptChange(step.commit, changes.before, changes.after, changes.kept)
        for rows in changes.inserted:
            yield PlacedChange(ChangeType.INSERT, step.commit, changes.after, rows)


def net_changes(steps: Sequence[Step]) -> Iterator[PlacedChange | KeptChange]:
    """One change for each row that is not the same after all steps.

    A row that comes and goes is left out. The old values are those before the row's first change,
    the new ones those after its last; the commit is that of its last change, by lineage: a version
    that only wrote the row's values anew has not changed it.

    Rows of fragments whose row ids nothing else touches pass through as they are; of the others,
    each takes some forty bytes here.
    """
    changes, step_of = [], []
    for number, step in enumerate(steps):
        parts = [part for change in every_change([step]) for part in _parts(change)]
        changes += parts
        step_of += [number] * len(parts)
    events = _Events(steps)
    for change, is_alone in zip(changes, _touched_once(changes, step_of).tolist(), strict=True):
        if is_alone:
            yield change
        elif isinstance(change, KeptChange):
            events.add_kept(change)
        else:
            events.add_placed(change)
    yield from events.net()


def _parts(change: PlacedChange | KeptChange) -> Sequence[PlacedChange | KeptChange]:
    """The same by fragment."""
    if isinstance(change, PlacedChange):
        return [change]
    return [replace(change, rows=(rows,)) for rows in change.rows]


_U64Array = NDArray[np.uint64]
_NO_NUMBERS = np.empty(0, dtype=np.uint64)
# An address that no row has: fragment ids have 32 bits, offsets are below the row count.
_NOWHERE = np.uint64(2**64 - 1)


def _touched_once(
    changes: Sequence[PlacedChange | KeptChange], step_of: Sequence[int]
) -> NDArray[np.bool_]:
    """Which changes are all that happens to their rows, as far as ranges of row ids can tell.

    In one step, no row is in two changes.
    """
    if not changes:
        return np.zeros(0, dtype=np.bool_)
    fragments = (
        one.rows.fragment if isinstance(one, PlacedChange) else one.rows[0].after for one in changes
    )
    bounds = np.array([bounds_of(fragment) for fragment in fragments], dtype=np.uint64)
    steps = np.array(step_of)
    order = np.lexsort((bounds[:, 0], steps))
    groups = np.empty(len(changes), dtype=np.int64)
    spans: list[_U64Array] = []
    for step in np.split(order, np.flatnonzero(np.diff(steps[order])) + 1):
        low, high = bounds[step].T
        reached = np.maximum.accumulate(high)
        starts = np.flatnonzero(np.concatenate(([True], low[1:] > reached[:-1])))
        groups[step] = len(spans) + np.cumsum(np.isin(np.arange(len(step)), starts)) - 1
        ends = np.concatenate((starts[1:], [len(step)])) - 1
        spans += list(np.stack((low[starts], reached[ends]), axis=1))
    return _alone(np.array(spans))[groups]


def _alone(spans: _U64Array) -> NDArray[np.bool_]:
    """Which of some ranges share no number with another; both bounds belong to a range."""
    order = np.argsort(spans[:, 0], kind="stable")
    low, high = spans[order].T
    reached = np.maximum.accumulate(high)
    is_new = np.concatenate(([True], low[1:] > reached[:-1]))
    found = np.empty(len(spans), dtype=np.bool_)
    # Alone is whom no range before reaches, and who reaches into none that follows.
    found[order] = is_new & np.concatenate((is_new[1:], [True]))
    return found


class _Events:
    """Changes row by row."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._number_of = {step.commit: number for number, step in enumerate(steps)}
        self._row_ids: list[NDArray[np.uint64]] = [_NO_NUMBERS]
        self._before: list[NDArray[np.uint64]] = [_NO_NUMBERS]
        self._after: list[NDArray[np.uint64]] = [_NO_NUMBERS]
        self._steps_of: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self._told: list[NDArray[np.bool_]] = [np.empty(0, dtype=np.bool_)]

    def add_kept(self, change: KeptChange) -> None:
        """Rows of both versions; not before the changes of earlier steps."""
        for rows in row_places(change.rows, change.before.files, change.after.files):
            self._add(change.commit, rows.row_ids, rows.before, rows.after, rows.stamped)

    def add_placed(self, change: PlacedChange) -> None:
        """Rows that come or go; not before the changes of earlier steps."""
        fragment = change.rows.fragment
        where = live_offsets(change.snapshot, change.rows).to_array()
        addresses = row_addresses(fragment.id, where)
        row_ids = lineage_of(change.snapshot.files, fragment).take(ROW_ID, where)
        nowhere = np.full(len(addresses), _NOWHERE)
        gone = change.kind is ChangeType.DELETE
        before, after = (addresses, nowhere) if gone else (nowhere, addresses)
        self._add(change.commit, row_ids, before, after, np.ones(len(row_ids), dtype=np.bool_))

    def _add(
        self,
        commit: Commit,
        row_ids: NDArray[np.uint64],
        before: NDArray[np.uint64],
        after: NDArray[np.uint64],
        told: NDArray[np.bool_],
    ) -> None:
        self._row_ids.append(row_ids)
        self._before.append(before)
        self._after.append(after)
        self._told.append(told)
        self._steps_of.append(np.full(len(row_ids), self._number_of[commit], dtype=np.int64))

    def net(self) -> Iterator[PlacedChange | KeptChange]:
        """From before the first event of each row to after its last."""
        row_ids = np.concatenate(self._row_ids)
        if not len(row_ids):
            return
        # Events were added step by step, so a stable order keeps those of one row in time.
        order = np.argsort(row_ids, kind="stable")
        row_ids = row_ids[order]
        starts = np.flatnonzero(np.concatenate(([True], row_ids[1:] != row_ids[:-1])))
        ends = np.concatenate((starts[1:], [len(order)])) - 1
        first, last = order[starts], order[ends]
        # The last event that lineage tells of; the last one, if it tells of none.
        places = np.where(np.concatenate(self._told)[order], np.arange(len(order)), -1)
        told = np.maximum.reduceat(places, starts)
        changed = order[np.where(told < 0, ends, told)]
        steps = np.concatenate(self._steps_of)
        before = np.concatenate(self._before)[first]
        after = np.concatenate(self._after)[last]
        # The steps of each row in one number; most rows share a few of these.
        count = len(self._steps)
        spans = (steps[first] * count + steps[last]) * count + steps[changed]
        for span in np.unique(spans).tolist():
            both, changing = divmod(span, count)
            begin, end = divmod(both, count)
            inside = spans == span
            yield from self._net_of(
                self._steps[begin],
                self._steps[end],
                self._steps[changing].commit,
                before[inside],
                after[inside],
            )

    def _net_of(
        self,
        begin: Step,
        end: Step,
        commit: Commit,
        before: NDArray[np.uint64],
        after: NDArray[np.uint64],
    ) -> Iterator[PlacedChange | KeptChange]:
        was_there, is_there = before != _NOWHERE, after != _NOWHERE
        old, new = begin.changes.before, end.changes.after
        deleted, inserted, kept = was_there & ~is_there, ~was_there & is_there, was_there & is_there
        if old is not None and deleted.any():
            for rows in _placed(old, before[deleted]):
                yield PlacedChange(ChangeType.DELETE, commit, old, rows)
        if old is not None and kept.any():
            yield KeptChange(commit, old, new, _kept(old, before[kept], new, after[kept]))
        if inserted.any():
            for rows in _placed(new, after[inserted]):
                yield PlacedChange(ChangeType.INSERT, commit, new, rows)


def _placed(snapshot: Snapshot, addresses: NDArray[np.uint64]) -> list[PlacedRows]:
    fragments = fragments_at(snapshot.manifest.fragments, addresses)
    return placed_rows(addresses, {fragment.id: fragment for fragment in fragments})


def _kept(
    old: Snapshot, before: NDArray[np.uint64], new: Snapshot, after: NDArray[np.uint64]
) -> tuple[KeptRows, ...]:
    """Rows by where they were and are."""
    order = np.argsort(after, kind="stable")
    before, after = before[order], after[order]
    owners = fragment_ids(after)
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    found = []
    for inside in map(slice, starts, [*starts[1:], len(owners)]):
        (fragment,) = fragments_at(new.manifest.fragments, after[inside][:1])
        sources = fragments_at(old.manifest.fragments, before[inside])
        rows = OffsetSet.of(offsets(after[inside]))
        in_place = bool((before[inside] == after[inside]).all())
        found.append(KeptRows(sources, fragment, rows, rows, in_place))
    return tuple(found)


def fragments_at(
    fragments: Sequence[Fragment], addresses: NDArray[np.uint64]
) -> tuple[Fragment, ...]:
    """Those of ``fragments``, by ascending id, that hold rows at these addresses."""
    wanted = np.unique(fragment_ids(addresses)).tolist()
    found = (fragments[bisect_left(fragments, one, key=attrgetter("id"))] for one in wanted)
    return tuple(found)
