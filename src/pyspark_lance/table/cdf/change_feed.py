"""The change feed: which rows were inserted, updated and deleted by some versions.

Nothing has to be enabled, and nothing is recorded: each version is compared with the one before it
by manifests and row lineage, and only rows that changed are read.  Plans need no data file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pyspark_lance.errors import (
    InvalidInputError,
    MissingFileError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.format.column_names import SYSTEM_COLUMNS
from pyspark_lance.format.deletion_vector import NO_OFFSETS
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.metafile.manifest_file import ManifestLocation, list_versions
from pyspark_lance.predicate.conditions import Predicate, columns_of
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.cdf.change_feed_task import CHANGE_FIELDS, ChangeFeedTask, VersionFiles
from pyspark_lance.table.cdf.change_window import ChangeWindow, Deduplication
from pyspark_lance.table.cdf.changed_rows import (
    Commit,
    RowChanges,
    Side,
    UpdateChanges,
    WholeFragmentChanges,
    pack_changes,
    sides_of,
)
from pyspark_lance.table.cdf.column_source import ColumnHistory, may_restore_columns
from pyspark_lance.table.cdf.common_rows import RetainedRows
from pyspark_lance.table.cdf.net_changes import (
    Change,
    InsertOrDelete,
    PossibleUpdate,
    Step,
    changes_of_step,
    net_changes,
)
from pyspark_lance.table.cdf.version_changes import holds_any, version_changes
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.plan_scan import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_ROWS,
    predicate_schema,
)
from pyspark_lance.table.version.snapshot import Snapshot, read_adjacent_snapshots
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_files import TableFiles

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Selection of the changes to read."""

    window: ChangeWindow
    mode: Deduplication
    # Columns of the table at the end of the window, as shown, possibly cut down.
    columns: tuple[Field, ...]
    predicate: Predicate | None = None  # Rows of the feed to return; None for all.
    batch_rows: int = DEFAULT_BATCH_ROWS
    batch_bytes: int = DEFAULT_BATCH_BYTES  # Bytes that a batch aims at.
    parallelism: int = os.cpu_count() or 1  # Tasks that can run at once.
    checks_text: bool = False  # Whether strings that are not UTF-8 are an error.

    def __post_init__(self) -> None:
        """Reject a plain value."""
        check_enum(self.mode, Deduplication)


@also_snake_case
@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Numbers of rows that one version changed.

    Attributes:
        version: The version.
        numInsertedRows: Rows of this version that the previous version does not have.
        numUpdatedRows: Rows that are updated by their lineage, or that got a column back by a
            restore, whatever their values.
        numDeletedRows: Rows that only the previous version has.
    """

    version: int
    numInsertedRows: int  # noqa: N815
    numUpdatedRows: int  # noqa: N815
    numDeletedRows: int  # noqa: N815


def check_change_feed(snapshot: Snapshot) -> None:
    """Reject tables whose rows cannot be followed."""
    _check_row_ids(snapshot)
    added = {field.name for field in CHANGE_FIELDS}
    for field in snapshot.schema.fields:
        if field.name.lower() in added:
            raise InvalidInputError(
                f"the table has a column {field.name!r}, which a change feed adds itself",
                where=snapshot.uri,
                hint="rename the column",
            )


def _check_row_ids(snapshot: Snapshot) -> None:
    """Reject rows without stable row ids; a version without rows passes."""
    if not snapshot.uses_stable_row_ids and snapshot.manifest.fragments:
        raise UnsupportedFeatureError(
            "a change feed needs stable row ids, which the rows of version "
            f"{snapshot.version} do not have",
            where=snapshot.uri,
            hint="LanceTable.enableStableRowIds() gives them some; the feed begins there",
        )


def feed_predicate_schema(snapshot: Snapshot) -> pa.Schema:
    """Return all columns that a condition on a change feed may use."""
    own = [field for field in predicate_schema(snapshot.schema) if field.name not in SYSTEM_COLUMNS]
    return pa.schema([*own, *CHANGE_FIELDS])


def plan_changes(
    table: Table, shown: Sequence[Field], request: ChangeRequest
) -> tuple[ChangeFeedTask, ...]:
    """The tasks that together read a change feed; reads no data file."""
    return _without_removed_versions(table, lambda: _plan(table, shown, request))


def _plan(
    table: Table, shown: Sequence[Field], request: ChangeRequest
) -> tuple[ChangeFeedTask, ...]:
    planner = ChangePlanner(shown, request, ColumnHistory())
    planner.add_steps(_steps_of(table, request.window))
    return planner.tasks()


def count_changes(table: Table, window: ChangeWindow) -> tuple[ChangeCounts, ...]:
    """Counts for each version of ``window`` that changed rows; opens no data file."""
    return _without_removed_versions(table, lambda: _count(table, window))


def _count(table: Table, window: ChangeWindow) -> tuple[ChangeCounts, ...]:
    all_counts, history = [], ColumnHistory()
    for versions in _steps_of(table, window):
        history.follow(versions.before, versions.after)
        changes, added = versions.step().changes, versions.added_columns(history)
        if added:
            changes = versions.step(history, versions.after.version).changes
        counts = ChangeCounts(
            version=versions.commit.version,
            numInsertedRows=sum(rows.num_rows for rows in changes.inserted),
            numUpdatedRows=sum(
                len(rows) if holds_any(rows.after, added) else len(rows.updated)
                for rows in changes.kept
            ),
            numDeletedRows=sum(rows.num_rows for rows in changes.deleted),
        )
        if counts != ChangeCounts(counts.version, 0, 0, 0):
            all_counts.append(counts)
    return tuple(all_counts)


def _without_removed_versions(table: Table, plan: Callable[[], _R]) -> _R:
    """Plan again if a version between the bounds was removed while it was read."""
    missing = ""
    while True:
        try:
            return plan()
        except VersionNotFoundError:
            raise
        except (MissingFileError, FileNotFoundError) as error:
            where = error.where if isinstance(error, MissingFileError) else str(error)
            if where == missing:
                if isinstance(error, MissingFileError):
                    raise
                what = "a version is listed, but its manifest is not there"
                raise MissingFileError(what, f"{table.uri}: {error}") from error
            missing = where


@dataclass(frozen=True, slots=True)
class VersionStep:
    """Two neighbours among the versions that are there."""

    commit: Commit
    before: Snapshot | None
    after: Snapshot

    @property
    def have_other_columns(self) -> bool:
        """Whether the newer version may lack columns of the older one."""
        return self.before is not None and (
            self.before.schema.fields != self.after.schema.fields
            or may_restore_columns(self.before, self.after)
        )

    def added_columns(self, history: ColumnHistory) -> frozenset[int]:
        """The fields that the older one does not have."""
        if self.before is None:
            return frozenset()
        return history.added_field_ids(self.before.version, self.after.version)

    def step(self, history: ColumnHistory | None = None, end: int = 0) -> Step:
        """Return the changes; if columns differ, as the columns of version ``end`` show them."""
        shown = None
        if history is not None and self.before is not None:
            of_both = (self.before.version, self.after.version)
            before, after = (history.visible_ids(version, end) for version in of_both)
            shown = before, after
        return Step(self.commit, version_changes(self.before, self.after, shown))


def _steps_of(table: Table, window: ChangeWindow) -> Iterator[VersionStep]:
    """The steps of the window, one for each version that is there."""
    if window.is_empty:
        return
    first = max(1, window.start - 1)
    locations = [
        location
        for location in list_versions(table.store())
        if first <= location.version <= window.end
    ]
    there = {location.version for location in locations}
    for needed in {window.end} | ({first} if window.start > 1 else set()):
        if needed not in there:
            raise VersionNotFoundError(
                f"version {needed} was removed while its changes were planned", where=table.uri
            )
    yield from read_steps(table, locations, from_nothing=window.start <= 1)


def read_steps(
    table: Table, locations: Sequence[ManifestLocation], *, from_nothing: bool
) -> Iterator[VersionStep]:
    """The steps between versions that are there.

    ``locations``: their manifests, ascending; ``from_nothing``: the first of them is a step, too,
    from a table without rows.
    """
    store = table.store()
    snapshots = read_adjacent_snapshots(table, store, locations)
    before = None if from_nothing else next(snapshots)
    if before is not None:
        _check_row_ids(before)
    for after in snapshots:
        _check_row_ids(after)
        commit = Commit(
            version=after.version,
            since=0 if before is None else before.version,
            timestamp_us=after.manifest.timestamp_ns // 1000,
        )
        yield VersionStep(commit, before, after)
        before = after


class ChangePlanner:
    """Planner that groups changes into tasks of about equal cost."""

    def __init__(
        self, shown: Sequence[Field], request: ChangeRequest, history: ColumnHistory
    ) -> None:
        self._request = request
        named = columns_of(request.predicate) if request.predicate is not None else frozenset()
        wanted = {field.id: field for field in request.columns}
        self._returned = tuple(
            field if field.name in named else wanted[field.id]
            for field in shown
            if field.name in named or field.id in wanted
        )
        # Whether a row has changed is seen by all of its columns.
        self._compared = tuple(shown)
        self._units: list[RowChanges] = []
        self._step_of: list[int] = []
        self._history = history
        self._files: dict[int, TableFiles] = {}

    def add_steps(
        self,
        steps: Iterable[VersionStep],
        changes_of: Callable[[Step], Iterable[Change]] = changes_of_step,
        *,
        later: Iterable[VersionStep] = (),
        follows_columns: bool = True,
    ) -> None:
        """Add the changes of some steps.

        Steps that change columns wait until the columns at the end are known.

        ``steps``: the steps, ascending; ``changes_of``: the changes of a step that are read, for
        all modes but net changes; ``later``: the steps after them, up to the version whose columns
        are shown; ``follows_columns``: whether new values by a change of columns are changes of
        their rows.
        """
        kept: dict[int, Step] = {}
        is_net = self._request.mode is Deduplication.NET_CHANGES

        def take(number: int, step: Step) -> None:
            if is_net:
                kept[number] = step.without_manifests()
            else:
                self.add(number, changes_of(step))

        waiting: list[tuple[int, VersionStep]] = []
        for number, versions in enumerate(steps):
            self._history.follow(versions.before, versions.after)
            if versions.have_other_columns and follows_columns:
                waiting.append((number, versions))
            else:
                take(number, versions.step())
        for versions in later:
            self._history.follow(versions.before, versions.after)
        for number, versions in waiting:
            take(number, versions.step(self._history, self._request.window.end))
        if is_net:
            self.add(0, net_changes([kept[number] for number in sorted(kept)]))

    def add(self, step: int, changes: Iterable[Change]) -> None:
        """Add the changes of a step; steps may be added in any order."""
        for change in changes:
            if isinstance(change, InsertOrDelete):
                self._add_placed(change)
            else:
                self._add_kept(change)
        self._step_of += [step] * (len(self._units) - len(self._step_of))

    def _add_placed(self, change: InsertOrDelete) -> None:
        """Inserted or deleted rows."""
        rows = change.rows
        if not rows.num_rows:
            return
        scan_split = ScanSplit(rows.fragment, 0, rows.fragment.physical_rows, rows.offsets)
        side = self._side(change.snapshot, compared=False)
        self._units.append(
            WholeFragmentChanges(change.change_type, change.commit, side, (scan_split,))
        )

    def _add_kept(self, change: PossibleUpdate) -> None:
        """Rows that may have been updated."""
        rows = sorted(change.rows, key=lambda kept: kept.after.id)
        if self._request.mode is not Deduplication.NONE:
            rows = [replace(kept, updated=NO_OFFSETS) for kept in rows]
        compared = any(len(kept.updated) < len(kept) for kept in rows)
        update = UpdateChanges(
            commit=change.commit,
            before=self._side(change.before, compared=compared),
            after=self._side(change.after, compared=compared),
            rows=tuple(_only_needed(kept, change.commit) for kept in rows),
        )
        self._units.append(update)

    def _side(self, snapshot: Snapshot, *, compared: bool) -> Side:
        self._files[snapshot.version] = snapshot.files
        return Side(snapshot.version, compared)

    def _version_files(self, sides: Iterable[Side]) -> dict[Side, VersionFiles]:
        """How each side is read; sides that are read alike share one value."""
        found: dict[Side, VersionFiles] = {}
        last: dict[bool, Side] = {}
        for side in sorted(sides, key=lambda side: side.version):
            before, files = last.get(side.compared), self._files[side.version]
            if (
                before is not None
                and self._history.have_same_columns(before.version, side.version)
                and found[before].files == files
            ):
                found[side] = found[before]
                continue
            fields = self._compared if side.compared else self._returned
            sources = self._history.sources(fields, self._request.window.end, side.version)
            found[side] = VersionFiles(files, sources, self._request.checks_text)
            last[side.compared] = side
        return found

    def tasks(self) -> tuple[ChangeFeedTask, ...]:
        """Split and pack all changes into tasks."""
        in_order = np.argsort(np.array(self._step_of, dtype=np.int64), kind="stable").tolist()
        groups = pack_changes([self._units[index] for index in in_order], self._request.parallelism)
        sides = self._version_files({side for change in self._units for side in sides_of(change)})
        request = self._request
        return tuple(
            ChangeFeedTask(
                {side: sides[side] for change in group for side in sides_of(change)},
                request.columns,
                request.predicate,
                request.batch_rows,
                request.batch_bytes,
                tuple(group),
            )
            for group in groups
        )


def _only_needed(rows: RetainedRows, commit: Commit) -> RetainedRows:
    """The same without the sequences that reading them does not need: they are most of a plan."""

    def without(fragment: Fragment, *, row_ids: bool, updated: bool) -> Fragment:
        return replace(
            fragment,
            row_ids=fragment.row_ids if row_ids else None,
            created_at=None,
            last_updated_at=fragment.last_updated_at if updated else None,
        )

    looked_up = not rows.in_place
    return replace(
        rows,
        before=tuple(
            without(fragment, row_ids=looked_up, updated=False) for fragment in rows.before
        ),
        after=without(rows.after, row_ids=True, updated=commit.has_lost_versions),
    )
