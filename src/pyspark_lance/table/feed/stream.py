"""A table as a stream: how far the next batch goes, and the tasks that read it.

The first snapshot comes as inserts, then the changes of every commit.  ``latest_offset`` decides,
``plan_batch`` only carries out: the same two offsets give the same rows, whatever is newest by
then, as long as the versions between them are there.

Source: docs/format/table-format.md, sections 7, 12.4.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_lance.errors import (
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.format.field import Field
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    list_versions,
    look_again,
    read_neighbours,
)
from pyspark_lance.metafile.paths import VERSIONS
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.store.object_store import missing
from pyspark_lance.table.feed.change_feed import (
    ChangePlanner,
    ChangeRequest,
    VersionStep,
    check_change_feed,
    read_steps,
)
from pyspark_lance.table.feed.change_mode import Deduplication
from pyspark_lance.table.feed.change_steps import Change, Step
from pyspark_lance.table.feed.change_task import ChangeTask
from pyspark_lance.table.feed.change_window import OPEN, Bound, ChangeWindow
from pyspark_lance.table.feed.column_history import ColumnHistory
from pyspark_lance.table.feed.stream_offset import BEGINNING, StreamOffset
from pyspark_lance.table.feed.stream_steps import (
    Budget,
    cut_changes,
    ordered_changes,
    rows_that_fit,
    snapshot_changes,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec, newest_at

logger = logging.getLogger(__name__)


class Updates(enum.Enum):
    """What a stream does with commits that do not only add rows."""

    SHOWN = "all changes are shown"
    REFUSED = "an error"
    SKIPPED = "skipChangeCommits"
    DELETES_IGNORED = "ignoreDeletes"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Most of a batch; None is no limit."""

    versions: int | None = None
    rows: int | None = None
    num_bytes: int | None = None

    @property
    def are_none(self) -> bool:
        """Whether a batch takes all there is."""
        return self == StreamLimits()


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Where a stream begins, and what it shows.

    Attributes:
        starting: Where it begins; open is the snapshot of the newest version.
        begins_after_newest: It begins after what is newest with the first batch.
        updates: What becomes of commits that do not only add rows.
        mode: What to leave out of changes.
        fails_on_data_loss: Whether versions that were removed before they were read are an error.
    """

    starting: Bound = OPEN
    begins_after_newest: bool = False
    updates: Updates = Updates.REFUSED
    mode: Deduplication = Deduplication.DROP_CARRYOVERS
    fails_on_data_loss: bool = True

    def __post_init__(self) -> None:
        """Refuses a plain value."""
        check_enum(self.mode, Deduplication)

    @property
    def has_snapshot(self) -> bool:
        """Whether the stream begins with the rows of a snapshot, as inserts."""
        return self.starting.is_open and not self.begins_after_newest

    @property
    def done_before(self) -> int:
        """The version after which the stream begins that starts at a given one; 0 is none."""
        if self.starting.version is None:
            raise ValueError("the stream does not begin at a given version")
        return max(0, self.starting.version + self.starting.is_exclusive - 1)


@dataclass(frozen=True, slots=True)
class BatchView:
    """What is shown of a batch.

    Attributes:
        shown: All columns of the table, as shown.
        columns: Those that are wanted, possibly cut down.
        predicate: Rows of the feed to return; None for all.
        checks_text: Whether strings that are not UTF-8 are an error.
    """

    shown: Sequence[Field]
    columns: Sequence[Field]
    predicate: Predicate | None
    batch_rows: int
    checks_text: bool = False


@dataclass(frozen=True, slots=True)
class TableStream:
    """A table that is followed.

    Attributes:
        settings: Where it begins, and what it shows.
    """

    table: Table
    version: int
    columns: pa.Schema
    settings: StreamSettings
    memo: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, snapshot: Snapshot, settings: StreamSettings) -> TableStream:
        """The stream that shows the columns of a version."""
        check_change_feed(snapshot)
        return cls(snapshot.table, snapshot.version, snapshot.schema.to_arrow(), settings)

    def newest(self) -> int:
        """The newest version."""
        return self._versions()[-1].version

    def beginning(self) -> StreamOffset:
        """Where the stream begins by what is there now; ``BEGINNING`` if that is not there yet.

        For those that cannot ask for an offset after ``BEGINNING`` and log it: a stream of a
        snapshot begins at ``BEGINNING``, too.
        """
        return look_again(self.table.store(), self._beginning)

    def _beginning(self) -> StreamOffset:
        locations = self._versions()
        resolved = self._resolved_beginning(BEGINNING, locations, locations[-1].version)
        if resolved is None:
            return BEGINNING
        return resolved if isinstance(resolved, StreamOffset) else StreamOffset(resolved)

    def latest_offset(
        self, start: StreamOffset, limits: StreamLimits, newest: int | None = None
    ) -> StreamOffset:
        """Where the batch ends that begins at ``start``; ``start`` itself if there is nothing new.

        ``limits``: how much a batch holds; one row at least. ``newest``: versions after this one do
        not count.
        """
        return look_again(self.table.store(), lambda: self._latest_offset(start, limits, newest))

    def _latest_offset(
        self, start: StreamOffset, limits: StreamLimits, newest: int | None
    ) -> StreamOffset:
        locations = self._versions()
        last = min(locations[-1].version, newest or locations[-1].version)
        self._check_not_replaced(locations, start)
        if start.is_in_snapshot:
            resolved = self._resolved_beginning(start, locations, last)
            if isinstance(resolved, StreamOffset):
                return resolved
            if resolved is None:
                return self._end_of_snapshot(start, last, limits)
            start = StreamOffset(resolved)
        self._check_cursors(start)
        if start == StreamOffset(last) or last < start.version:
            return start
        return self._end_of_changes(self._usable(start, locations), locations, last, limits)

    def _versions(self) -> list[ManifestLocation]:
        locations = list(list_versions(self.table.store()))
        if not locations:
            raise VersionNotFoundError(
                "the table that a stream reads is not there any more", where=self.table.uri
            )
        return locations

    def _check_not_replaced(
        self, locations: Sequence[ManifestLocation], *offsets: StreamOffset
    ) -> None:
        """Refuses places after the newest version: no version of one table is newest twice."""
        for offset in offsets:
            reached = offset.version if offset.target is None else offset.target
            if reached > locations[-1].version:
                raise InvalidInputError(
                    f"the stream has read version {reached}, but the newest is "
                    f"{locations[-1].version}: the table was replaced by another one",
                    where=self.table.uri,
                    hint="begin with a new checkpoint",
                )

    def _resolved_beginning(
        self, start: StreamOffset, locations: Sequence[ManifestLocation], last: int
    ) -> StreamOffset | int | None:
        """A first batch without rows, the version that all is done up to, or None: a snapshot."""
        if self.settings.has_snapshot:
            return None
        if self.settings.begins_after_newest:
            return StreamOffset(last)
        since = self.settings.starting.timestamp_ns
        if since is not None:
            before = newest_at(self.table.store(), since - 1, locations)
            if before == len(locations) - 1:
                return start  # nothing was committed since then
            if before is None:
                return self._beginning_of_all(locations[0].version)
            return StreamOffset(locations[before].version)
        done = self.settings.done_before
        return start if done > last else done

    def _beginning_of_all(self, oldest: int) -> StreamOffset:
        """Where a stream begins that a time before the oldest version is given for.

        The rows of that version are no changes since then: most may be older.
        """
        if oldest == 1:
            return StreamOffset(0)
        if self.settings.fails_on_data_loss:
            raise VersionNotFoundError(
                f"the stream begins at a time before version {oldest}, the oldest one left: what "
                "was changed then cannot be told any more",
                where=self.table.uri,
                hint=f"begin with startingVersion {oldest + 1}, or with 0, which shows the rows of "
                f"version {oldest} as inserts; or set failOnDataLoss to false to begin after it",
            )
        logger.warning(
            "the stream of %s begins after version %d, the oldest one left", self.table.uri, oldest
        )
        return StreamOffset(oldest)

    def _end_of_snapshot(
        self, start: StreamOffset, last: int, limits: StreamLimits
    ) -> StreamOffset:
        version = last if start.target is None else start.target
        if limits.rows is None and limits.num_bytes is None:
            return StreamOffset(version)
        try:
            changes = snapshot_changes(self._snapshot(version))
        except VersionNotFoundError as error:
            if start.target is not None:
                raise
            raise missing(self.table.uri, VERSIONS) from error  # nothing of it was read yet
        budget = Budget(None, limits.rows, limits.num_bytes)
        end = rows_that_fit(changes, start.rows, budget)
        return StreamOffset(version) if end is None else StreamOffset(-1, end, version)

    def _snapshot(self, version: int) -> Snapshot:
        return Snapshot.open(self.table, VersionSpec(version=version))

    def _usable(self, start: StreamOffset, locations: Sequence[ManifestLocation]) -> StreamOffset:
        """Where to go on; further than ``start`` if versions were removed."""
        there = {location.version for location in locations}
        reached = start.version if start.target is None else start.target
        lost = sorted({start.version, reached} - {0} - there)
        if not lost:
            return start
        # Not one before the start, which a tag may have kept: its changes are read already.
        oldest = min(version for version in there if version >= reached)
        if self.settings.fails_on_data_loss:
            raise VersionNotFoundError(
                f"the stream needs version {lost[0]}, which was removed before it was read",
                where=self.table.uri,
                hint=f"begin with a new checkpoint, or set failOnDataLoss to false to go on with "
                f"what came after version {oldest}, the oldest one left",
            )
        logger.warning(
            "the stream of %s lost the changes of versions %d to %d, which were removed",
            self.table.uri, start.version + 1, oldest,
        )  # fmt: skip
        return StreamOffset(oldest)

    def _end_of_changes(
        self,
        start: StreamOffset,
        locations: Sequence[ManifestLocation],
        last: int,
        limits: StreamLimits,
    ) -> StreamOffset:
        budget = Budget(limits.versions, limits.rows, limits.num_bytes)
        end = start
        for versions in self._steps(locations, start, StreamOffset(last)):
            step_end = StreamOffset(versions.after.version)
            try:
                self._check_columns(versions.after)
                changes = self._changes(versions.step()) if self._must_look(limits) else []
            except (SchemaMismatchError, UnsupportedFeatureError):
                if end == start:
                    raise
                return end  # the next batch meets it
            if not budget.take_version():
                return end
            place = rows_that_fit(changes, start.rows if end == start else 0, budget)
            if place is not None and self._is_cut(versions):
                return end if place == 0 else StreamOffset(end.version, place, step_end.version)
            if place is not None and end != start:
                return end  # a step that is not cut has a batch of its own, if it is too large
            end = step_end
        return end

    def _must_look(self, limits: StreamLimits) -> bool:
        """Whether how far a batch goes depends on what changed."""
        has_budget = limits.rows is not None or limits.num_bytes is not None
        return has_budget or self.settings.updates is not Updates.SHOWN

    def _is_cut(self, versions: VersionStep) -> bool:
        """Whether a batch may end in the middle of a step."""
        is_net = self.settings.mode is Deduplication.NET_CHANGES
        return not versions.have_other_columns and not is_net

    def _check_cursors(self, *offsets: StreamOffset) -> None:
        """Refuses the middle of a version in a stream of net changes, which does not cut any."""
        is_net = self.settings.mode is Deduplication.NET_CHANGES
        for offset in offsets:
            if is_net and offset.target is not None and not offset.is_in_snapshot:
                raise InvalidInputError(
                    f"the checkpoint is in the middle of version {offset.target}, which net "
                    "changes take as a whole",
                    where=self.table.uri,
                    hint="run the query with the deduplicationMode that it had until it is through "
                    "with that version, or begin with a new checkpoint",
                )

    def _check_columns(self, snapshot: Snapshot) -> None:
        """Refuses columns that the stream does not show."""
        if snapshot.version > self.version and not self._shows(snapshot):
            raise SchemaMismatchError(
                f"version {snapshot.version} has other columns than the stream shows, which are "
                f"those of version {self.version}",
                where=self.table.uri,
                hint="start the query again from its checkpoint: it then shows the new columns",
            )

    def _shows(self, snapshot: Snapshot) -> bool:
        return bool(snapshot.schema.to_arrow().equals(self.columns))

    def _steps(
        self, locations: Sequence[ManifestLocation], start: StreamOffset, end: StreamOffset
    ) -> Iterator[VersionStep]:
        """The steps that a batch is part of."""
        final = end.version if end.target is None else end.target

        def is_needed(version: int) -> bool:
            if version in (start.version, start.target, end.version, end.target):
                return True
            is_inside = any(
                offset.target is not None and offset.version < version < offset.target
                for offset in (start, end)
            )
            return start.version < version <= final and not is_inside

        chosen = [
            location
            for location in locations
            if is_needed(location.version) and location.version <= final
        ]
        there = {location.version for location in chosen}
        for needed in {start.version, final} - {0}:
            if needed not in there:
                raise VersionNotFoundError(
                    f"the batch from version {start.version} to {final} needs version {needed}, "
                    "which was removed",
                    where=self.table.uri,
                    hint="begin with a new checkpoint",
                )
        return read_steps(self.table, chosen, from_nothing=start.version == 0)

    def _changes(self, step: Step) -> list[Change]:
        """The changes of a step that the stream shows."""
        changes, updates = step.changes, self.settings.updates
        if updates is Updates.SHOWN or not (changes.deleted or changes.kept):
            return ordered_changes(step)
        only_deletes = not changes.kept and not changes.inserted
        if updates is Updates.SKIPPED or (updates is Updates.DELETES_IGNORED and only_deletes):
            return []
        what = "deletes rows" if only_deletes else "changes rows that were there"
        raise UnsupportedFeatureError(
            f"version {step.commit.version} {what}; this stream shows rows that are added",
            where=self.table.uri,
            hint="readChangeFeed = true shows all changes, skipChangeCommits = true passes over "
            "such commits, ignoreDeletes = true over those that only delete",
        )

    def plan_batch(
        self,
        start: StreamOffset,
        end: StreamOffset,
        view: Callable[[Snapshot], BatchView],
    ) -> tuple[ChangeTask, ...]:
        """The tasks that read what is between two offsets; reads no data file."""
        if start == end:
            return ()
        self._check_cursors(start, end)
        return look_again(self.table.store(), lambda: self._plan_batch(start, end, view))

    def _plan_batch(
        self, start: StreamOffset, end: StreamOffset, view: Callable[[Snapshot], BatchView]
    ) -> tuple[ChangeTask, ...]:
        locations = self._versions()
        self._check_not_replaced(locations, start, end)
        if start.is_in_snapshot:
            if self.settings.has_snapshot:
                return self._plan_snapshot(start, end, view)
            if self.settings.starting.version is None:
                return ()
            start = StreamOffset(self.settings.done_before)
        if not self.settings.fails_on_data_loss and start.version:
            start = self._usable(start, locations)
            if end.version < start.version:
                return ()
        return self._plan_changes(start, end, locations, view)

    def _plan_snapshot(
        self, start: StreamOffset, end: StreamOffset, view: Callable[[Snapshot], BatchView]
    ) -> tuple[ChangeTask, ...]:
        version = end.version if end.target is None else end.target
        snapshot = self._snapshot(version)
        self._check_columns(snapshot)
        last = None if end.target is None else end.rows
        changes = cut_changes(snapshot_changes(snapshot), start.rows, last)
        history = ColumnHistory()
        history.follow(None, snapshot)
        shown_at, later = self._shown_at(snapshot, self._versions)
        for versions in later:
            history.follow(versions.before, versions.after)
        planner = self._planner(shown_at, view, history)
        planner.add(0, changes)
        return planner.tasks()

    def _shown_at(
        self, last: Snapshot, versions: Callable[[], Sequence[ManifestLocation]]
    ) -> tuple[Snapshot, Iterable[VersionStep]]:
        """The version whose columns are shown, and the steps that lead to it from ``last``.

        Columns of the same names and types may be other ones, where some were dropped and added
        again since.
        """
        if self._shows(last) and self._stand_since(last.version, versions) <= last.version:
            return last, ()
        later = self._steps(versions(), StreamOffset(last.version), StreamOffset(self.version))
        return self._snapshot(self.version), later

    def _stand_since(self, first: int, versions: Callable[[], Sequence[ManifestLocation]]) -> int:
        """From which version on, ``first`` or a later one, all look like what the stream shows.

        Asked for ever later versions, so that the manifests are read once.
        """
        if first >= self.version:
            return first
        known = self.memo.get("stand_since")
        if known is None or (known[0] > first):
            among = [one for one in versions() if first <= one.version <= self.version]
            since = first
            for file in read_neighbours(self.table.store(), among):
                if not file.manifest.schema.to_arrow().equals(self.columns):
                    since = file.manifest.version + 1
            known = self.memo["stand_since"] = (first, since)
        return known[1]

    def _planner(
        self, shown_at: Snapshot, view: Callable[[Snapshot], BatchView], history: ColumnHistory
    ) -> ChangePlanner:
        seen = view(shown_at)
        request = ChangeRequest(
            window=ChangeWindow(1, shown_at.version),
            mode=self.settings.mode,
            columns=tuple(seen.columns),
            predicate=seen.predicate,
            batch_rows=seen.batch_rows,
            checks_text=seen.checks_text,
        )
        return ChangePlanner(seen.shown, request, history)

    def _plan_changes(
        self,
        start: StreamOffset,
        end: StreamOffset,
        locations: Sequence[ManifestLocation],
        view: Callable[[Snapshot], BatchView],
    ) -> tuple[ChangeTask, ...]:
        steps = self._steps(locations, start, end)
        history = ColumnHistory()
        last = self._snapshot(end.version if end.target is None else end.target)
        self._check_columns(last)
        shown_at, later = self._shown_at(last, lambda: locations)
        planner = self._planner(shown_at, view, history)

        def changes_of(step: Step) -> Iterable[Change]:
            version = step.commit.version
            return cut_changes(
                self._changes(step),
                first=start.rows if version == start.target else 0,
                last=end.rows if version == end.target else None,
            )

        planner.add_steps(
            self._checked(steps),
            changes_of,
            later=later,
            follows_columns=self.settings.updates is Updates.SHOWN,
        )
        return planner.tasks()

    def _checked(self, steps: Iterable[VersionStep]) -> Iterator[VersionStep]:
        for versions in steps:
            self._check_columns(versions.after)
            yield versions
