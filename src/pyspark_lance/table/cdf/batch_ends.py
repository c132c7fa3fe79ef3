"""Where a stream begins and its batches end: decided by what is there now, and then logged."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark_lance.errors import SchemaMismatchError, UnsupportedFeatureError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import ManifestLocation
from pyspark_lance.metafile.paths import VERSIONS
from pyspark_lance.store.object_store import missing
from pyspark_lance.table.cdf.change_feed import VersionStep
from pyspark_lance.table.cdf.change_mode import Deduplication
from pyspark_lance.table.cdf.followed_table import FollowedTable
from pyspark_lance.table.cdf.stream_offset import BEGINNING, StreamOffset
from pyspark_lance.table.cdf.stream_settings import StreamLimits, Updates
from pyspark_lance.table.cdf.stream_steps import Budget, rows_that_fit, snapshot_changes
from pyspark_lance.table.version.time_travel import newest_at

logger = logging.getLogger(__name__)


def beginning(followed: FollowedTable) -> StreamOffset:
    """Where the stream begins; ``BEGINNING`` if that is not there yet."""
    locations = followed.versions()
    resolved = _resolved_beginning(followed, BEGINNING, locations, locations[-1].version)
    if resolved is None:
        return BEGINNING
    return resolved if isinstance(resolved, StreamOffset) else StreamOffset(resolved)


def latest_offset(
    followed: FollowedTable, start: StreamOffset, limits: StreamLimits, newest: int | None
) -> StreamOffset:
    """Where the batch ends that begins at ``start``, with what recognizes table and rows."""
    locations = followed.versions()
    end = _latest_offset(followed, start, limits, newest, locations)
    if end == start:
        return start  # by its text, too
    first = "" if start.identity is None else start.identity.first
    return followed.identified(followed.recognizable(end, start, locations), locations, first)


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
        resolved = _resolved_beginning(followed, start, locations, last)
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


def _resolved_beginning(
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
    """Where a stream begins that a time before the oldest version is given for.

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
            changes = followed.changes(versions.step()) if _must_look(followed, limits) else []
        except (SchemaMismatchError, UnsupportedFeatureError):
            if end == start:
                raise
            return end  # the next batch meets it
        if not budget.take_version():
            return end
        place = rows_that_fit(changes, start.rows if end == start else 0, budget)
        if place is not None and _is_cut(followed, versions):
            return end if place == 0 else StreamOffset(end.version, place, step_end.version)
        if place is not None and end != start:
            return end  # a step that is not cut has a batch of its own, if it is too large
        end = step_end
    return end


def _must_look(followed: FollowedTable, limits: StreamLimits) -> bool:
    """Whether how far a batch goes depends on what changed."""
    has_budget = limits.rows is not None or limits.num_bytes is not None
    return has_budget or followed.settings.updates is not Updates.SHOWN


def _is_cut(followed: FollowedTable, versions: VersionStep) -> bool:
    """Whether a batch may end in the middle of a step."""
    is_net = followed.settings.mode is Deduplication.NET_CHANGES
    return not versions.have_other_columns and not is_net
