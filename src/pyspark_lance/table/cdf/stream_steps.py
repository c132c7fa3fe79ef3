"""The changes of a step in one order, so that a cursor can count them and cut them anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.table.cdf.change_steps import (
    Change,
    KeptChange,
    PlacedChange,
    Step,
    changes_of_step,
)
from pyspark_lance.table.cdf.changed_rows import ChangeType, Commit
from pyspark_lance.table.cdf.version_changes import FragmentRows, live_offsets
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.version.snapshot import Snapshot


@dataclass(slots=True)
class Budget:
    """What a batch may still hold; None is no limit."""

    versions: int | None = None
    rows: int | None = None  # Rows that changed, before and after counted once.
    num_bytes: int | None = None  # Their bytes, by the average of their files.
    # Whether the batch is empty so far, so that it takes at least one row.
    is_untouched: bool = True

    def take(self, rows: int, row_bytes: float) -> int:
        """How many of ``rows`` rows fit; they are taken."""
        fit = rows if self.rows is None else min(rows, self.rows)
        if self.num_bytes is not None:
            fit = min(fit, int(self.num_bytes / max(row_bytes, 1.0)))
        if self.is_untouched:
            fit = max(fit, min(rows, 1))
        if fit:
            self.is_untouched = False
        if self.rows is not None:
            self.rows = max(0, self.rows - fit)
        if self.num_bytes is not None:
            self.num_bytes = max(0, self.num_bytes - int(fit * row_bytes))
        return fit

    def take_version(self) -> bool:
        """Whether one more step fits; it is taken."""
        if self.versions is None:
            return True
        if self.versions == 0:
            return False
        self.versions -= 1
        return True


def snapshot_changes(snapshot: Snapshot) -> list[Change]:
    """All rows of a version as inserts, by fragment."""
    timestamp_us = snapshot.manifest.timestamp_ns // 1000
    commit = Commit(snapshot.version, snapshot.version - 1, timestamp_us)
    return [
        PlacedChange(ChangeType.INSERT, commit, snapshot, FragmentRows(fragment))
        for fragment in counted_fragments(snapshot)
    ]


def ordered_changes(step: Step) -> list[Change]:
    """The changes of one step, always in the same order."""
    return [
        replace(change, rows=tuple(sorted(change.rows, key=lambda rows: rows.after.id)))
        if isinstance(change, KeptChange)
        else change
        for change in changes_of_step(step)
    ]


def rows_that_fit(changes: Sequence[Change], first: int, budget: Budget) -> int | None:
    """Where a batch ends that goes on at row ``first``; None if it holds all that is left."""
    done = 0
    for change in changes:
        count = num_rows(change)
        if done + count > first:
            left = done + count - max(first, done)
            fit = budget.take(left, _row_bytes(change))
            if fit < left:
                return done + count - left + fit
        done += count
    return None


def cut_changes(changes: Iterable[Change], first: int, last: int | None) -> Iterator[Change]:
    """Rows ``first`` to before ``last`` of changes, counted in their order; None is the end."""
    done = 0
    for change in changes:
        count = num_rows(change)
        start, end = max(first - done, 0), count if last is None else min(count, last - done)
        done += count
        if start < end:
            yield change if (start, end) == (0, count) else _part(change, start, end)


def num_rows(change: Change) -> int:
    """Rows of a change; those that were updated count once, and some turn out to be the same."""
    if isinstance(change, PlacedChange):
        return change.rows.num_rows
    return sum(map(len, change.rows))


def _part(change: Change, first: int, last: int) -> Change:
    if isinstance(change, PlacedChange):
        offsets = live_offsets(change.snapshot, change.rows).part(first, last)
        return replace(change, rows=replace(change.rows, offsets=offsets))
    pieces, done = [], 0
    for rows in change.rows:
        start, end = max(first - done, 0), min(len(rows), last - done)
        done += len(rows)
        if start < end:
            pieces.append(rows.part(start, end))
    return replace(change, rows=tuple(pieces))


def _row_bytes(change: Change) -> float:
    if isinstance(change, PlacedChange):
        return _bytes_of([change.rows.fragment])
    return 2 * _bytes_of([rows.after for rows in change.rows])


def _bytes_of(fragments: Sequence[Fragment]) -> float:
    stored = sum(file.size_bytes for fragment in fragments for file in fragment.files)
    return stored / max(1, sum(fragment.physical_rows for fragment in fragments))
