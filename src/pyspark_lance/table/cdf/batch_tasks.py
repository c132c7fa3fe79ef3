"""The tasks of a batch: what is between two offsets, whatever is newest by then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark_lance.metafile.manifest_file import ManifestLocation, read_consecutive_manifests
from pyspark_lance.table.cdf.change_feed import ChangePlanner, ChangeRequest, VersionStep
from pyspark_lance.table.cdf.change_feed_task import ChangeFeedTask
from pyspark_lance.table.cdf.change_steps import Change, Step
from pyspark_lance.table.cdf.change_window import ChangeWindow
from pyspark_lance.table.cdf.column_history import ColumnHistory
from pyspark_lance.table.cdf.followed_table import FollowedTable
from pyspark_lance.table.cdf.stream_offset import StreamOffset
from pyspark_lance.table.cdf.stream_settings import BatchView, Updates
from pyspark_lance.table.cdf.stream_steps import cut_changes, snapshot_changes
from pyspark_lance.table.version.snapshot import Snapshot


def plan_batch(
    followed: FollowedTable,
    start: StreamOffset,
    end: StreamOffset,
    view: Callable[[Snapshot], BatchView],
) -> tuple[ChangeFeedTask, ...]:
    """The tasks that read what is between two offsets; reads no data file."""
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
    shown_at, later = _shown_at(followed, snapshot, followed.versions)
    for versions in later:
        history.follow(versions.before, versions.after)
    planner = _planner(followed, shown_at, view, history)
    planner.add(0, changes)
    return planner.tasks()


def _shown_at(
    followed: FollowedTable, last: Snapshot, versions: Callable[[], Sequence[ManifestLocation]]
) -> tuple[Snapshot, Iterable[VersionStep]]:
    """The version whose columns are shown, and the steps that lead to it from ``last``.

    Columns of the same names and types may be other ones, where some were dropped and added
    again since.
    """
    if followed.shows(last) and _stand_since(followed, last.version, versions) <= last.version:
        return last, ()
    later = followed.steps(versions(), StreamOffset(last.version), StreamOffset(followed.version))
    return followed.snapshot(followed.version), later


def _stand_since(
    followed: FollowedTable, first: int, versions: Callable[[], Sequence[ManifestLocation]]
) -> int:
    """From which version on, ``first`` or a later one, all look like what the stream shows.

    Asked for ever later versions, so that the manifests are read once.
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
    shown_at, later = _shown_at(followed, last, lambda: locations)
    planner = _planner(followed, shown_at, view, history)

    def changes_of(step: Step) -> Iterable[Change]:
        version = step.commit.version
        return cut_changes(
            followed.changes(step),
            first=start.rows if version == start.target else 0,
            last=end.rows if version == end.target else None,
        )

    planner.add_steps(
        _checked(followed, steps),
        changes_of,
        later=later,
        follows_columns=followed.settings.updates is Updates.SHOWN,
    )
    return planner.tasks()


def _checked(followed: FollowedTable, steps: Iterable[VersionStep]) -> Iterator[VersionStep]:
    for versions in steps:
        followed.check_columns(versions.after)
        yield versions
