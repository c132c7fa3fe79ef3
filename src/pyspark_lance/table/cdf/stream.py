"""A table as a stream: where it starts, where a batch ends, and the tasks that read it.

The first snapshot comes as inserts, then the changes of every commit.  ``latest_offset`` decides,
``plan_batch`` only carries out: the same two offsets give the same rows, whatever is newest by
then, as long as the versions between them are there.

Source: docs/format/table-format.md, sections 7, 12.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark_lance.errors import SchemaMismatchError, UnsupportedFeatureError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    read_consecutive_manifests,
    retry_if_removed,
)
from pyspark_lance.metafile.paths import VERSIONS
from pyspark_lance.store.object_store import missing
from pyspark_lance.table.cdf.change_feed import (
    ChangePlanner,
    ChangeRequest,
    VersionStep,
    check_change_feed,
)
from pyspark_lance.table.cdf.change_feed_task import ChangeFeedTask
from pyspark_lance.table.cdf.change_window import ChangeWindow, Deduplication
from pyspark_lance.table.cdf.column_source import ColumnHistory
from pyspark_lance.table.cdf.followed_table import (
    Budget,
    FollowedTable,
    cut_changes,
    rows_that_fit,
    snapshot_changes,
)
from pyspark_lance.table.cdf.net_changes import Change, Step
from pyspark_lance.table.cdf.stream_offset import (
    BEGINNING,
    BatchView,
    StreamLimits,
    StreamOffset,
    StreamSettings,
    Updates,
)
from pyspark_lance.table.version.snapshot import Snapshot, newest_at

logger = logging.getLogger(__name__)


def beginning(followed: FollowedTable) -> StreamOffset:
    """Return the start of the stream; ``BEGINNING`` if it does not exist yet."""
    locations = followed.versions()
    resolved = _resolve_beginning(followed, BEGINNING, locations, locations[-1].version)
    if resolved is None:
        return BEGINNING
    return resolved if isinstance(resolved, StreamOffset) else StreamOffset(resolved)


def latest_offset(
    followed: FollowedTable, start: StreamOffset, limits: StreamLimits, newest: int | None
) -> StreamOffset:
    """Return the end of the batch from ``start`` on, with data to recognize table and rows."""
    locations = followed.versions()
    end = _latest_offset(followed, start, limits, newest, locations)
    if end == start:
        return start  # by its text, too
    first = "" if start.identity is None else start.identity.first
    return followed.with_identity(followed.recognizable(end, start, locations), locations, first)


def _latest_offset(
    followed: FollowedTable,
    start: StreamOffset,
    limits: StreamLimits,
    newest: int | None,
    locations: Sequence[ManifestLocation],
) -> StreamOffset:
    last = min(locations[-1].version, newest or locations[-1].version)
    followed.check_not_replaced(locations, start)
    if start.is_in_snapshot:
        resolved = _resolve_beginning(followed, start, locations, last)
        if isinstance(resolved, StreamOffset):
            return resolved
        if resolved is None:
            return _end_of_snapshot(followed, start, last, limits)
        start = StreamOffset(resolved)
    followed.check_cursors(start)
    start = followed.unchanged(start, locations)
    if start == StreamOffset(last) or last < start.version:
        return start
    return _end_of_changes(followed, followed.usable(start, locations), locations, last, limits)


def _resolve_beginning(
    followed: FollowedTable, start: StreamOffset, locations: Sequence[ManifestLocation], last: int
) -> StreamOffset | int | None:
    """A first batch without rows, the version that all is done up to, or None: a snapshot."""
    if followed.settings.has_snapshot:
        return None
    if followed.settings.begins_after_newest:
        return StreamOffset(last)
    since = followed.settings.starting.timestamp_ns
    if since is not None:
        before = newest_at(followed.table.store(), since - 1, locations)
        if before == len(locations) - 1:
            return start  # nothing was committed since then
        if before is None:
            return _beginning_of_all(followed, locations[0].version)
        return StreamOffset(locations[before].version)
    done = followed.settings.done_before
    return start if done > last else done


def _beginning_of_all(followed: FollowedTable, oldest: int) -> StreamOffset:
    """Return the start of a stream from a time before the oldest version.

    The rows of that version are no changes since then: most may be older.
    """
    if oldest == 1:
        return StreamOffset(0)
    if followed.settings.fails_on_data_loss:
        raise VersionNotFoundError(
            f"the stream begins at a time before version {oldest}, the oldest one left: what "
            "was changed then is unknown",
            where=followed.table.uri,
            hint=f"begin with startingVersion {oldest + 1}, or with 0, which shows the rows of "
            f"version {oldest} as inserts; or set failOnDataLoss to false to begin after it",
        )
    logger.warning(
        "the stream of %s begins after version %d, the oldest one left", followed.table.uri, oldest
    )
    return StreamOffset(oldest)


def _end_of_snapshot(
    followed: FollowedTable, start: StreamOffset, last: int, limits: StreamLimits
) -> StreamOffset:
    version = last if start.target is None else start.target
    if limits.rows is None and limits.num_bytes is None:
        return StreamOffset(version)
    try:
        changes = snapshot_changes(followed.snapshot(version))
    except VersionNotFoundError as error:
        if start.target is not None:
            raise
        raise missing(followed.table.uri, VERSIONS) from error  # nothing of it was read yet
    budget = Budget(None, limits.rows, limits.num_bytes)
    end = rows_that_fit(changes, start.rows, budget)
    return StreamOffset(version) if end is None else StreamOffset(-1, end, version)


def _end_of_changes(
    followed: FollowedTable,
    start: StreamOffset,
    locations: Sequence[ManifestLocation],
    last: int,
    limits: StreamLimits,
) -> StreamOffset:
    budget = Budget(limits.versions, limits.rows, limits.num_bytes)
    end = start
    for versions in followed.steps(locations, start, StreamOffset(last)):
        step_end = StreamOffset(versions.after.version)
        try:
            followed.check_columns(versions.after)
            changes = (
                followed.changes(versions.step()) if _depends_on_changes(followed, limits) else []
            )
        except (SchemaMismatchError, UnsupportedFeatureError):
            if end == start:
                raise
            return end  # the next batch meets it
        if not budget.take_version():
            return end
        num_rows = rows_that_fit(changes, start.rows if end == start else 0, budget)
        if num_rows is not None and _may_split_step(followed, versions):
            return end if num_rows == 0 else StreamOffset(end.version, num_rows, step_end.version)
        if num_rows is not None and end != start:
            return end  # a step that is not cut has a batch of its own, if it is too large
        end = step_end
    return end


def _depends_on_changes(followed: FollowedTable, limits: StreamLimits) -> bool:
    """Return whether the extent of a batch depends on the changes."""
    has_budget = limits.rows is not None or limits.num_bytes is not None
    return has_budget or followed.settings.updates is not Updates.SHOWN


def _may_split_step(followed: FollowedTable, versions: VersionStep) -> bool:
    """Return whether a batch may end in the middle of a step."""
    is_net = followed.settings.mode is Deduplication.NET_CHANGES
    return not versions.have_other_columns and not is_net


def plan_batch(
    followed: FollowedTable,
    start: StreamOffset,
    end: StreamOffset,
    view: Callable[[Snapshot], BatchView],
) -> tuple[ChangeFeedTask, ...]:
    """The tasks that read the changes between two offsets; reads no data file."""
    locations = followed.versions()
    followed.check_not_replaced(locations, start, end)
    if start == end:
        return ()
    if start.is_in_snapshot:
        if followed.settings.has_snapshot:
            return _plan_snapshot(followed, start, end, view)
        if followed.settings.starting.version is None:
            return ()
        start = StreamOffset(followed.settings.done_before)
    same = followed.unchanged(start, locations)
    if same == followed.unchanged(end, locations):
        return ()
    start = same
    if not followed.settings.fails_on_data_loss and start.version:
        start = followed.usable(start, locations)
        if end.version < start.version:
            return ()
    return _plan_changes(followed, start, end, locations, view)


def _plan_snapshot(
    followed: FollowedTable,
    start: StreamOffset,
    end: StreamOffset,
    view: Callable[[Snapshot], BatchView],
) -> tuple[ChangeFeedTask, ...]:
    version = end.version if end.target is None else end.target
    snapshot = followed.snapshot(version)
    followed.check_columns(snapshot)
    last = None if end.target is None else end.rows
    changes = cut_changes(snapshot_changes(snapshot), start.rows, last)
    history = ColumnHistory()
    history.follow(None, snapshot)
    shown_at, later = _visible_at(followed, snapshot, followed.versions)
    for versions in later:
        history.follow(versions.before, versions.after)
    planner = _planner(followed, shown_at, view, history)
    planner.add(0, changes)
    return planner.tasks()


def _visible_at(
    followed: FollowedTable, last: Snapshot, versions: Callable[[], Sequence[ManifestLocation]]
) -> tuple[Snapshot, Iterable[VersionStep]]:
    """The version whose columns are shown, and the steps that lead to it from ``last``.

    Columns of the same names and types may be other ones, where some were dropped and added
    again since.
    """
    if (
        followed.shows(last)
        and _columns_unchanged_since(followed, last.version, versions) <= last.version
    ):
        return last, ()
    later = followed.steps(versions(), StreamOffset(last.version), StreamOffset(followed.version))
    return followed.snapshot(followed.version), later


def _columns_unchanged_since(
    followed: FollowedTable, first: int, versions: Callable[[], Sequence[ManifestLocation]]
) -> int:
    """Return the first version, not before ``first``, from which on all have the stream's columns.

    Called for ever later versions, so that the manifests are read once.
    """
    if first >= followed.version:
        return first
    known = followed.memo.get("stand_since")
    if known is None or (known[0] > first):
        among = [one for one in versions() if first <= one.version <= followed.version]
        since = first
        for file in read_consecutive_manifests(followed.table.store(), among):
            if not file.manifest.schema.to_arrow().equals(followed.columns):
                since = file.manifest.version + 1
        known = followed.memo["stand_since"] = (first, since)
    return known[1]


def _planner(
    followed: FollowedTable,
    shown_at: Snapshot,
    view: Callable[[Snapshot], BatchView],
    history: ColumnHistory,
) -> ChangePlanner:
    seen = view(shown_at)
    request = ChangeRequest(
        window=ChangeWindow(1, shown_at.version),
        mode=followed.settings.mode,
        columns=tuple(seen.columns),
        predicate=seen.predicate,
        batch_rows=seen.batch_rows,
        checks_text=seen.checks_text,
    )
    return ChangePlanner(seen.shown, request, history)


def _plan_changes(
    followed: FollowedTable,
    start: StreamOffset,
    end: StreamOffset,
    locations: Sequence[ManifestLocation],
    view: Callable[[Snapshot], BatchView],
) -> tuple[ChangeFeedTask, ...]:
    steps = followed.steps(locations, start, end)
    history = ColumnHistory()
    last = followed.snapshot(end.version if end.target is None else end.target)
    followed.check_columns(last)
    shown_at, later = _visible_at(followed, last, lambda: locations)
    planner = _planner(followed, shown_at, view, history)

    def changes_of(step: Step) -> Iterable[Change]:
        version = step.commit.version
        return cut_changes(
            followed.changes(step),
            first=start.rows if version == start.target else 0,
            last=end.rows if version == end.target else None,
        )

    planner.add_steps(
        _check_steps(followed, steps),
        changes_of,
        later=later,
        follows_columns=followed.settings.updates is Updates.SHOWN,
    )
    return planner.tasks()


def _check_steps(followed: FollowedTable, steps: Iterable[VersionStep]) -> Iterator[VersionStep]:
    for versions in steps:
        followed.check_columns(versions.after)
        yield versions


class TableStream(FollowedTable):
    """A table that is followed."""

    __slots__ = ()

    @classmethod
    def of(cls, snapshot: Snapshot, settings: StreamSettings) -> TableStream:
        """The stream that shows the columns of a version."""
        check_change_feed(snapshot)
        return cls(
            snapshot.table,
            snapshot.version,
            snapshot.schema.to_arrow(),
            settings,
            snapshot.identity,
        )

    def newest(self) -> int:
        """The newest version."""
        return self.versions()[-1].version

    def newest_offset(self, start: StreamOffset = BEGINNING) -> StreamOffset:
        """Return the end of a batch of everything, with data to recognize table and rows.

        ``start``: an offset that was returned before.
        """

        def look() -> StreamOffset:
            locations = self.versions()
            end = StreamOffset(locations[-1].version)
            return self.with_identity(self.recognizable(end, start, locations), locations)

        return retry_if_removed(self.table.store(), look)

    def beginning(self) -> StreamOffset:
        """Return the start of the stream in the current versions; ``BEGINNING`` if none exists.

        For callers that cannot request and log an offset after ``BEGINNING``: a stream of a
        snapshot begins at ``BEGINNING``, too.
        """
        return retry_if_removed(self.table.store(), lambda: beginning(self))

    def latest_offset(
        self, start: StreamOffset, limits: StreamLimits, newest: int | None = None
    ) -> StreamOffset:
        """Return the end of the batch from ``start`` on; ``start`` itself if there is nothing new.

        ``limits``: how much a batch holds; one row at least. ``newest``: versions after this one do
        not count.
        """
        return retry_if_removed(
            self.table.store(), lambda: latest_offset(self, start, limits, newest)
        )

    def plan_batch(
        self, start: StreamOffset, end: StreamOffset, view: Callable[[Snapshot], BatchView]
    ) -> tuple[ChangeFeedTask, ...]:
        """The tasks that read the changes between two offsets; reads no data file."""
        if start == end and start.identity == end.identity:
            return ()
        self.check_cursors(start, end)
        return retry_if_removed(self.table.store(), lambda: plan_batch(self, start, end, view))
