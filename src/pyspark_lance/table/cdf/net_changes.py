"""net_changes: one change for each row over several versions.

Rows of fragments whose row ids no other fragment contains pass through. The changes of the
remaining ones are combined row by row, in bands of row ids: a band has all changes of its rows, and
so few rows that memory is bounded. It keeps as sets which rows of which fragment changed, and how.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.deletion_vector import WINDOW_ROWS, OffsetSetBuilder
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import (
    OFFSET_BITS,
    fragment_ids,
    group_by_fragment,
    row_addresses,
)
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.cdf.changed_rows import ChangeType, Commit
from pyspark_lance.table.cdf.common_rows import RetainedRowAddresses, RetainedRows
from pyspark_lance.table.cdf.version_changes import (
    FragmentRows,
    VersionChanges,
    bounds_of,
    live_offsets,
)
from pyspark_lance.table.version.snapshot import Snapshot

_U64Array = NDArray[np.uint64]
_BoolArray = NDArray[np.bool_]

# An address that no row has: fragment ids have 32 bits, offsets are below the row count.
_NOWHERE = np.uint64(2**64 - 1)
# Changes of a band; each takes some hundred bytes while the band is looked at.
_BAND_ROWS = 1 << 17
# How often the row ids of a change may be read again for the sake of narrow bands.
_MAX_READS = 8
# Encoded row ids that are kept decoded; others are decoded again for each band.
_KEPT_BYTES = 1 << 23
_MIN_DECODED_BYTES = 1 << 12


def net_changes(steps: Sequence[Step]) -> Iterator[InsertOrDelete | PossibleUpdate]:
    """Yield one change for each row that differs after all steps.

    A row that is inserted and deleted again is left out. The old values are those before the row's
    first change, the new ones those after its last; the commit is that of its last change, by
    lineage: a version that only rewrote the row's values has not changed it.
    """
    changes, step_of = [], []
    for number, step in enumerate(steps):
        parts = [part for change in changes_of_step(step) for part in _parts(change)]
        changes += parts
        step_of += [number] * len(parts)
    parts_of_others = []
    alone = _are_only_changes(changes, step_of).tolist()
    for change, step_number, is_alone in zip(changes, step_of, alone, strict=True):
        if is_alone:
            yield change
        else:
            parts_of_others.append(_Part(step_number, change))
    net = _Net(steps)
    for band in _bands(parts_of_others):
        net.add(band)
    yield from net.changes()


def _parts(change: InsertOrDelete | PossibleUpdate) -> Sequence[InsertOrDelete | PossibleUpdate]:
    """The same by fragment."""
    if isinstance(change, InsertOrDelete):
        return [change]
    return [replace(change, rows=(rows,)) for rows in change.rows]


# Changes that pass through -----------------------------------------------------------------


def _are_only_changes(
    changes: Sequence[InsertOrDelete | PossibleUpdate], step_of: Sequence[int]
) -> _BoolArray:
    """Return which changes are the only ones of their rows, judged by ranges of row ids.

    In one step, no row is in two changes.
    """
    if not changes:
        return np.zeros(0, dtype=np.bool_)
    fragments = (
        change.rows.fragment if isinstance(change, InsertOrDelete) else change.rows[0].after
        for change in changes
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


def _alone(spans: _U64Array) -> _BoolArray:
    """Return which inclusive ranges overlap no other."""
    order = np.argsort(spans[:, 0], kind="stable")
    low, high = spans[order].T
    reached = np.maximum.accumulate(high)
    is_new = np.concatenate(([True], low[1:] > reached[:-1]))
    is_alone = np.empty(len(spans), dtype=np.bool_)
    # A range is alone if no range before reaches it, and it reaches none that follows.
    is_alone[order] = is_new & np.concatenate((is_new[1:], [True]))
    return is_alone


# Changes row by row ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Band:
    """Changes of single rows, those of each row in order of time; arrays of one length."""

    row_ids: _U64Array  # uint64.
    steps: NDArray[np.int32]  # Number of the step, int32.
    # Addresses in the version before the step; ``_NOWHERE`` for rows that it made.
    before: _U64Array
    after: _U64Array  # Addresses in the version after it; ``_NOWHERE`` for rows that it removed.
    is_recorded: _BoolArray  # Whether lineage records the change.

    @classmethod
    def concat(cls, parts: Sequence[_Band]) -> _Band:
        """Concatenate all ``parts``; there is at least one."""
        return cls(
            np.concatenate([part.row_ids for part in parts]),
            np.concatenate([part.steps for part in parts]),
            np.concatenate([part.before for part in parts]),
            np.concatenate([part.after for part in parts]),
            np.concatenate([part.is_recorded for part in parts]),
        )


class _Part:
    """A change of rows of one fragment, read window by window."""

    def __init__(self, step: int, change: InsertOrDelete | PossibleUpdate) -> None:
        self._step, self._change = step, change
        if isinstance(change, InsertOrDelete):
            self._rows = live_offsets(change.snapshot, change.rows)
            fragments: tuple[Fragment, ...] = (change.rows.fragment,)
        else:
            (kept,) = change.rows
            self._rows = kept.rows
            fragments = (kept.after,) if kept.in_place else (kept.after, *kept.before)
        self.num_rows = len(self._rows)
        self.num_windows = -(-self.num_rows // WINDOW_ROWS)
        self.decoded_bytes = sum(map(_decoded_bytes, fragments))
        self._retained: RetainedRowAddresses | None = None

    def drop_buffers(self) -> None:
        """Drop the decoded row ids."""
        self._retained = None

    def row_ids(self, window: int) -> tuple[NDArray[np.uint32], _U64Array]:
        """Offsets and row ids of one window."""
        change = self._change
        first = window * WINDOW_ROWS
        offsets = self._rows.part(first, first + WINDOW_ROWS).to_array()
        if self._retained is None:
            if isinstance(change, InsertOrDelete):
                files = change.snapshot.files
                self._retained = RetainedRowAddresses((), files, files)
            else:
                self._retained = RetainedRowAddresses(
                    change.rows, change.before.files, change.after.files
                )
        fragment = (
            change.rows.fragment if isinstance(change, InsertOrDelete) else change.rows[0].after
        )
        return offsets, self._retained.row_ids(fragment, offsets)

    def band(self, window: int, low: int, high: int) -> _Band:
        """The rows of one window whose ids are from ``low`` to ``high``, both included."""
        offsets, row_ids = self.row_ids(window)
        inside = (row_ids >= np.uint64(low)) & (row_ids <= np.uint64(high))
        if not inside.all():
            offsets, row_ids = offsets[inside], row_ids[inside]
        steps = np.full(len(row_ids), self._step, dtype=np.int32)
        change = self._change
        if isinstance(change, InsertOrDelete):
            there = row_addresses(change.rows.fragment.id, offsets)
            nowhere = np.full(len(offsets), _NOWHERE)
            removed = change.change_type is ChangeType.DELETE
            before, after = (there, nowhere) if removed else (nowhere, there)
            return _Band(row_ids, steps, before, after, np.ones(len(row_ids), dtype=np.bool_))
        assert self._retained is not None
        pairs = self._retained.of(change.rows[0], offsets, row_ids)
        return _Band(row_ids, steps, pairs.before, pairs.after, pairs.updated)


def _decoded_bytes(fragment: Fragment) -> int:
    """Estimate the bytes of the row ids of a fragment while they are decoded."""
    row_ids = fragment.row_ids
    stored = len(row_ids) if isinstance(row_ids, bytes) else 8 * fragment.physical_rows
    return _MIN_DECODED_BYTES + stored


def _bands(parts: Sequence[_Part]) -> Iterator[_Band]:
    """Group all changes into bands of row ids that share no row.

    ``parts``: in order of time.
    """
    decoded = _Decoded()
    windows = [(part, window) for part in parts for window in range(part.num_windows)]
    if not windows:
        return
    if sum(part.num_rows for part in parts) <= 2 * _BAND_ROWS:
        edges, low = [2**64 - 1], np.zeros(len(windows), dtype=np.uint64)
        high = low
    else:
        low, high = np.empty((2, len(windows)), dtype=np.uint64)
        rows = np.empty(len(windows), dtype=np.int64)
        for number, (part, window) in enumerate(windows):
            _, row_ids = part.row_ids(window)
            low[number], high[number], rows[number] = row_ids.min(), row_ids.max(), len(row_ids)
            decoded.keep(part)
        edges = _edges(low, high, rows)
    begin = 0
    for end in edges:
        bands = []
        for number in np.flatnonzero((high >= np.uint64(begin)) & (low <= np.uint64(end))).tolist():
            part, window = windows[number]
            bands.append(part.band(window, begin, end))
            decoded.keep(part)
        if bands:
            yield _Band.concat(bands)
        begin = end + 1


def _edges(low: _U64Array, high: _U64Array, rows: NDArray[np.int64]) -> list[int]:
    """The last row id of each band, so that all have about as many of the windows' rows.

    Interleaved row ids are in windows that each band reads; then there are fewer bands.

    ``low``: least row id of each window; ``high``: greatest row id of each window; ``rows``: rows
    of each window.
    """
    count = -(-int(rows.sum()) // _BAND_ROWS)
    # Rows below a row id, if those of each window are spread evenly.
    points = np.unique(np.concatenate((low, high + np.uint64(1))))
    below = np.zeros(len(points))
    density = rows / (high - low + np.uint64(1)).astype(np.float64)
    np.add.at(below, np.searchsorted(points, low), density)
    np.add.at(below, np.searchsorted(points, high + np.uint64(1)), -density)
    gaps = np.diff(points).astype(np.float64)
    reached = np.concatenate(([0.0], np.cumsum(np.cumsum(below)[:-1] * gaps)))
    while True:
        wanted = np.linspace(0, reached[-1], count + 1)[1:-1]
        index = np.clip(np.searchsorted(reached, wanted) - 1, 0, len(gaps) - 1)
        grown = np.maximum(reached[index + 1] - reached[index], 1e-9)
        inside = (np.clip((wanted - reached[index]) / grown, 0, 1) * gaps[index]).astype(np.uint64)
        edges = np.unique(points[index] + inside)
        reads = np.searchsorted(edges, high) - np.searchsorted(edges, low) + 1
        if count == 1 or (reads * rows).sum() <= _MAX_READS * rows.sum():
            return [*edges.tolist(), 2**64 - 1]
        count = -(-count // 2)


class _Decoded:
    """LRU cache of decoded row ids."""

    def __init__(self) -> None:
        self._parts: dict[_Part, None] = {}
        self._held = 0

    def keep(self, part: _Part) -> None:
        """Mark a part as most recently used."""
        if part in self._parts:
            del self._parts[part]
        else:
            self._held += part.decoded_bytes
        self._parts[part] = None
        while self._held > _KEPT_BYTES and len(self._parts) > 1:
            oldest = next(iter(self._parts))
            self._held -= oldest.decoded_bytes
            oldest.drop_buffers()
            del self._parts[oldest]


# What comes out of them --------------------------------------------------------------------


@dataclass(slots=True)
class _Rows:
    """Rows of one fragment with equal changes; grows.

    ``in_place``: whether all are where they were.
    """

    offsets: OffsetSetBuilder = field(default_factory=OffsetSetBuilder)
    sources: set[int] = field(default_factory=set)
    in_place: bool = True


class _Net:
    """Sets of rows by their net change from before their first step to after their last."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        # First, last and chosen step -> fragment -> rows.
        self._deleted: dict[tuple[int, int, int], dict[int, _Rows]] = {}
        self._inserted: dict[tuple[int, int, int], dict[int, _Rows]] = {}
        self._kept: dict[tuple[int, int, int], dict[int, _Rows]] = {}

    def add(self, band: _Band) -> None:
        """Rows with all their changes."""
        # Changes come in the order of time, so a stable order keeps those of one row in it.
        order = np.argsort(band.row_ids, kind="stable")
        row_ids = band.row_ids[order]
        starts = np.flatnonzero(np.concatenate(([True], row_ids[1:] != row_ids[:-1])))
        if not len(row_ids):
            return
        ends = np.concatenate((starts[1:], [len(order)])) - 1
        first, last = order[starts], order[ends]
        # The last change that lineage records; the last one, if it records none.
        indices = np.where(band.is_recorded[order], np.arange(len(order)), -1)
        recorded = np.maximum.reduceat(indices, starts)
        chosen = order[np.where(recorded < 0, ends, recorded)]
        before, after = band.before[first], band.after[last]
        # The steps of each row in one number; most rows share a few of these.
        count = len(self._steps)
        steps = band.steps.astype(np.int64)
        spans = (steps[first] * count + steps[last]) * count + steps[chosen]
        for span in np.unique(spans).tolist():
            inside = spans == span
            named = span // count**2, span // count % count, span % count
            self._add(named, before[inside], after[inside])

    def _add(self, span: tuple[int, int, int], before: _U64Array, after: _U64Array) -> None:
        was_there, is_there = before != _NOWHERE, after != _NOWHERE
        _grow(self._deleted.setdefault(span, {}), before[was_there & ~is_there])
        _grow(self._inserted.setdefault(span, {}), after[~was_there & is_there])
        kept = was_there & is_there
        before, after = before[kept], after[kept]
        rows = self._kept.setdefault(span, {})
        _grow(rows, after)
        for owner in np.unique(fragment_ids(after[before != after])).tolist():
            rows[owner].in_place = False
        upper = np.uint64(0xFFFF_FFFF << OFFSET_BITS)
        for pair in np.unique(after & upper | before >> np.uint64(OFFSET_BITS)).tolist():
            rows[pair >> OFFSET_BITS].sources.add(pair & 0xFFFF_FFFF)

    def changes(self) -> Iterator[InsertOrDelete | PossibleUpdate]:
        """Yield all net changes, grouped by kind."""
        for span in sorted(self._kept):
            begin, end, chosen = (self._steps[number] for number in span)
            old, new = begin.changes.before, end.changes.after
            commit: Commit = chosen.commit
            if old is not None:
                fragments = old.manifest.fragments
                for rows in _fragment_rows(self._deleted[span], fragments):
                    yield InsertOrDelete(ChangeType.DELETE, commit, old, rows)
                if kept := _retained_rows(self._kept[span], fragments, new.manifest.fragments):
                    yield PossibleUpdate(commit, old, new, kept)
            for rows in _fragment_rows(self._inserted[span], new.manifest.fragments):
                yield InsertOrDelete(ChangeType.INSERT, commit, new, rows)


def _grow(rows: dict[int, _Rows], addresses: _U64Array) -> None:
    for owner, inside in group_by_fragment(addresses).items():
        if owner not in rows:
            rows[owner] = _Rows()
        rows[owner].offsets.add(inside)


def _fragment_rows(rows: dict[int, _Rows], fragments: Sequence[Fragment]) -> list[FragmentRows]:
    return [
        FragmentRows(_with_id(fragments, owner), rows[owner].offsets.done())
        for owner in sorted(rows)
    ]


def _retained_rows(
    rows: dict[int, _Rows], old: Sequence[Fragment], new: Sequence[Fragment]
) -> tuple[RetainedRows, ...]:
    kept = []
    for owner in sorted(rows):
        part = rows[owner]
        offsets = part.offsets.done()
        sources = tuple(_with_id(old, source) for source in sorted(part.sources))
        kept.append(RetainedRows(sources, _with_id(new, owner), offsets, offsets, part.in_place))
    return tuple(kept)


def _with_id(fragments: Sequence[Fragment], fragment_id: int) -> Fragment:
    """Find a fragment by id, in fragments ascending by id."""
    return fragments[bisect_left(fragments, fragment_id, key=attrgetter("id"))]


@dataclass(frozen=True, slots=True)
class Step:
    """Changes from one version to the next existing one."""

    commit: Commit
    changes: VersionChanges

    def without_manifests(self) -> Step:
        """The same without bytes of manifests."""
        before, after = (
            snapshot and replace(snapshot, file=snapshot.file.drop_buffers())
            for snapshot in (self.changes.before, self.changes.after)
        )
        assert after is not None
        return Step(self.commit, replace(self.changes, before=before, after=after))


@dataclass(frozen=True, slots=True)
class InsertOrDelete:
    """Rows that were inserted or deleted.

    ``change_type``: ``INSERT`` or ``DELETE``.
    """

    change_type: ChangeType
    commit: Commit
    snapshot: Snapshot
    rows: FragmentRows

    def __post_init__(self) -> None:
        """Reject a plain value."""
        check_enum(self.change_type, ChangeType)


@dataclass(frozen=True, slots=True)
class PossibleUpdate:
    """Rows that may hold other values.

    ``commit``: the step that did it, the last of them.
    """

    commit: Commit
    before: Snapshot
    after: Snapshot
    rows: tuple[RetainedRows, ...]


Change = InsertOrDelete | PossibleUpdate


def changes_of_step(step: Step) -> Iterator[Change]:
    """The changes of a step in the order in which they happened; deleted rows come first."""
    changes = step.changes
    if changes.before is not None:
        for rows in changes.deleted:
            yield InsertOrDelete(ChangeType.DELETE, step.commit, changes.before, rows)
        if changes.kept:
            yield PossibleUpdate(step.commit, changes.before, changes.after, changes.kept)
    for rows in changes.inserted:
        yield InsertOrDelete(ChangeType.INSERT, step.commit, changes.after, rows)
