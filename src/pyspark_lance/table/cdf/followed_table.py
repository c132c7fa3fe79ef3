"""Retained versions of a streamed table, and the changes of each in a fixed order."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyspark_lance.errors import (
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.metafile.manifest_file import ManifestLocation, list_versions
from pyspark_lance.table.cdf.change_feed import VersionStep, read_steps
from pyspark_lance.table.cdf.change_window import Deduplication
from pyspark_lance.table.cdf.changed_rows import ChangeType, Commit
from pyspark_lance.table.cdf.net_changes import (
    Change,
    InsertOrDelete,
    PossibleUpdate,
    Step,
    changes_of_step,
)
from pyspark_lance.table.cdf.stream_offset import StreamOffset, StreamSettings, Updates
from pyspark_lance.table.cdf.unchanged_rows import has_rows_of, live_rows
from pyspark_lance.table.cdf.version_changes import FragmentRows, live_offsets
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_identity import TableIdentity


@dataclass(slots=True)
class Budget:
    """Remaining capacity of a batch; None is unlimited."""

    versions: int | None = None
    rows: int | None = None  # Rows that changed, before and after counted once.
    num_bytes: int | None = None  # Their bytes, by the average of their files.
    # Whether the batch is empty so far, so that it takes at least one row.
    is_untouched: bool = True

    def take(self, rows: int, row_bytes: float) -> int:
        """Take as many of ``rows`` rows as fit, and return their number."""
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
        """Take one more step if it fits, and return whether it did."""
        if self.versions is None:
            return True
        if self.versions == 0:
            return False
        self.versions -= 1
        return True


def snapshot_changes(snapshot: Snapshot) -> list[Change]:
    """Return all rows of a version as inserts, by fragment."""
    timestamp_us = snapshot.manifest.timestamp_ns // 1000
    commit = Commit(snapshot.version, snapshot.version - 1, timestamp_us)
    return [
        InsertOrDelete(ChangeType.INSERT, commit, snapshot, FragmentRows(fragment))
        for fragment in counted_fragments(snapshot)
    ]


def order_changes(step: Step) -> list[Change]:
    """The changes of one step, always in the same order."""
    return [
        replace(change, rows=tuple(sorted(change.rows, key=lambda rows: rows.after.id)))
        if isinstance(change, PossibleUpdate)
        else change
        for change in changes_of_step(step)
    ]


def rows_that_fit(changes: Sequence[Change], first: int, budget: Budget) -> int | None:
    """Return the end of a batch from row ``first`` on; None if it holds all that is left."""
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
    if isinstance(change, InsertOrDelete):
        return change.rows.num_rows
    return sum(map(len, change.rows))


def _part(change: Change, first: int, last: int) -> Change:
    if isinstance(change, InsertOrDelete):
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
    if isinstance(change, InsertOrDelete):
        return _bytes_of([change.rows.fragment])
    return 2 * _bytes_of([rows.after for rows in change.rows])


def _bytes_of(fragments: Sequence[Fragment]) -> float:
    stored = sum(file.size_bytes for fragment in fragments for file in fragment.files)
    return stored / max(1, sum(fragment.physical_rows for fragment in fragments))


logger = logging.getLogger(__name__)

_RESTART = "begin with a new checkpoint, and with a new target if the rows of both must not mix"


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table that a stream follows: the versions that are left, and which of them it can show.

    ``version``: the version whose columns the stream shows; ``columns``: these columns;
    ``identity``: of the table, by that version.
    """

    table: Table
    version: int
    columns: pa.Schema
    settings: StreamSettings
    identity: TableIdentity
    memo: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    # The stamp of version 1, once it was read.
    firsts: list[str] = field(default_factory=list, repr=False, compare=False)

    def versions(self) -> list[ManifestLocation]:
        """The versions that are left, ascending; at least one."""
        locations = list(list_versions(self.table.store()))
        if not locations:
            raise VersionNotFoundError(
                "the table that a stream reads is not there any more", where=self.table.uri
            )
        return locations

    def check_not_replaced(
        self, locations: Sequence[ManifestLocation], *offsets: StreamOffset
    ) -> None:
        """Reject a table that replaced the one of the offsets."""
        newest = locations[-1].version
        for offset in offsets:
            own = offset.identity or TableIdentity(offset.reached, "")
            own.check_newest(newest, self.table.uri, _RESTART)
            self._check_stamps(locations, offset.identity or self.identity)

    def _check_stamps(self, locations: Sequence[ManifestLocation], identity: TableIdentity) -> None:
        """Compare the recorded version, or version 1 without it, with the existing one."""
        location = _location_of(locations, identity.version)
        if location is None and identity.first:
            location = _location_of(locations, 1)
        if location is not None:
            identity.check(self._load(location).manifest, self.table.uri, _RESTART)

    def with_identity(
        self, offset: StreamOffset, locations: Sequence[ManifestLocation], first: str = ""
    ) -> StreamOffset:
        """The offset with the identity of the table, for its checkpoint.

        ``first``: the stamp of version 1 if it is known already.
        """
        location = _location_of(locations, offset.reached)
        if location is None:
            return offset  # nothing was read yet
        first = first or self._first(locations)
        return replace(offset, identity=TableIdentity.of(self._load(location).manifest, first))

    def _first(self, locations: Sequence[ManifestLocation]) -> str:
        if not self.firsts and locations[0].version == 1:
            self.firsts.append(self._load(locations[0]).identity.stamp)
        return self.firsts[0] if self.firsts else ""

    def _load(self, location: ManifestLocation) -> Snapshot:
        return Snapshot.load(self.table, self.table.store(), location)

    def snapshot(self, version: int) -> Snapshot:
        """A version."""
        return Snapshot.open(self.table, VersionSpec(version=version))

    def recognizable(
        self, end: StreamOffset, start: StreamOffset, locations: Sequence[ManifestLocation]
    ) -> StreamOffset:
        """The end of a batch, with data to recognize its rows in later versions."""
        there = {location.version: location for location in locations}
        if end.target is not None or end.version not in there:
            return end
        start = self.unchanged(start, locations)
        known = {} if start.live is None else {start.version: start.live}
        return replace(end, live=live_rows(self.table, end.version, there, known))

    def unchanged(
        self, offset: StreamOffset, locations: Sequence[ManifestLocation]
    ) -> StreamOffset:
        """The offset, moved to the oldest version left if that is proven to have the same rows."""
        if offset.target is not None or offset.version <= 0:
            return offset
        there = {location.version: location for location in locations}
        later = min((version for version in there if version >= offset.version), default=None)
        if later is None or later == offset.version:
            return offset
        if not has_rows_of(self.table, offset.version, offset.live, there[later]):
            return offset
        return StreamOffset(later, live=offset.live)

    def usable(self, start: StreamOffset, locations: Sequence[ManifestLocation]) -> StreamOffset:
        """Return the offset to continue from; later than ``start`` if versions were removed."""
        there = {location.version for location in locations}
        reached = start.reached
        lost = sorted({start.version, reached} - {0} - there)
        if not lost:
            return start
        # Not one before the start, which a tag may have kept: its changes are read already.
        oldest = min(version for version in there if version >= reached)
        if self.settings.fails_on_data_loss:
            raise VersionNotFoundError(
                f"the stream needs version {lost[0]}, which was removed before it was read",
                where=self.table.uri,
                hint=f"begin with startingVersion {oldest + 1}, or 0, and a new checkpoint; or set "
                f"failOnDataLoss to false to go on with what came after version {oldest}, the "
                "oldest one left",
            )
        logger.warning(
            "the stream of %s lost the changes of versions %d to %d, which were removed",
            self.table.uri, start.version + 1, oldest,
        )  # fmt: skip
        return StreamOffset(oldest)

    def check_cursors(self, *offsets: StreamOffset) -> None:
        """Reject an offset within a version in a stream of net changes, which splits none."""
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

    def check_columns(self, snapshot: Snapshot) -> None:
        """Reject columns other than those of the stream."""
        if snapshot.version > self.version and not self.shows(snapshot):
            raise SchemaMismatchError(
                f"version {snapshot.version} has other columns than the stream shows, which are "
                f"those of version {self.version}",
                where=self.table.uri,
                hint="start the query again from its checkpoint: it then shows the new columns",
            )

    def shows(self, snapshot: Snapshot) -> bool:
        """Return whether a version has the columns of the stream."""
        return bool(snapshot.schema.to_arrow().equals(self.columns))

    def steps(
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

    def changes(self, step: Step) -> list[Change]:
        """The changes of a step that the stream shows."""
        changes, updates = step.changes, self.settings.updates
        if updates is Updates.SHOWN or not (changes.deleted or changes.kept):
            return order_changes(step)
        only_deletes = not changes.kept and not changes.inserted
        if updates is Updates.SKIPPED or (updates is Updates.DELETES_IGNORED and only_deletes):
            return []
        what = "deletes rows" if only_deletes else "changes rows"
        raise UnsupportedFeatureError(
            f"version {step.commit.version} {what}; without readChangeFeed a stream shows only "
            "rows that are added",
            where=self.table.uri,
            hint="readChangeFeed = true shows all changes, skipChangeCommits = true skips such "
            "commits, ignoreDeletes = true skips those that only delete",
        )


def _location_of(locations: Sequence[ManifestLocation], version: int) -> ManifestLocation | None:
    """The location of a version among some, ascending; None if it is not there."""
    index = bisect_left(locations, version, key=lambda location: location.version)
    found = locations[index] if index < len(locations) else None
    return found if found is not None and found.version == version else None
