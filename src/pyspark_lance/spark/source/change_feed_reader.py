"""Batch reads of a change feed: plans on the driver, reads on the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from pyspark_lance.commit.application_versions import FeedWindow, SourceIdentity
from pyspark_lance.commit.base_version import microseconds
from pyspark_lance.errors import InvalidInputError, VersionNotFoundError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.spark.options.parse_options import ChangeOptions, ReadOptions
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.source.messages import ChangePartition
from pyspark_lance.spark.source.read_plan import (
    NOTHING_PUSHED,
    PushedDown,
    condition_of,
    open_analyzed,
    visible_columns,
)
from pyspark_lance.spark.source.scan_rows import spark_batches
from pyspark_lance.spark.types.spark_types import (
    SYSTEM_COLUMN_KEY,
    narrow,
    spark_schema,
    to_spark_type,
)
from pyspark_lance.table.cdf.change_feed import (
    ChangeCounts,
    ChangeRequest,
    check_change_feed,
    count_changes,
    feed_predicate_schema,
    plan_changes,
)
from pyspark_lance.table.cdf.change_feed_task import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangeFeedTask,
)
from pyspark_lance.table.cdf.change_window import ChangeWindow, Layout, resolve_window
from pyspark_lance.table.cdf.envelope import AFTER, BEFORE, Envelope, envelope_schema
from pyspark_lance.table.cdf.unchanged_rows import last_changed_version
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_ROWS, project
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_identity import PinnedVersion

_TYPES: dict[str, DataType] = {
    ROW_ID: LongType(),
    CHANGE_TYPE: StringType(),
    COMMIT_VERSION: LongType(),
    COMMIT_TIMESTAMP: TimestampType(),
}
# A table that the feed is saved to has its own row ids, so a write drops this column.
_METADATA = {ROW_ID: {SYSTEM_COLUMN_KEY: ROW_ID}}
FEED_COLUMNS = StructType(
    [
        StructField(name, kind, name == COMMIT_TIMESTAMP, _METADATA.get(name))
        for name, kind in _TYPES.items()
    ]
)
"""The columns that a change feed adds to those of the table."""
SOURCE_KEY = "lance.source"
"""Metadata key of ``_commit_version``: the source table, as ``SourceIdentity.to_text``."""
WINDOW_KEY = "lance.window"
"""Metadata key of ``_commit_version``: the end of the feed, as ``FeedWindow.to_text``."""


@dataclass(frozen=True, slots=True)
class PinnedFeed:
    """The versions of a change feed that a query reads."""

    table: Table
    window: ChangeWindow
    stamp: str = ""  # Of the last version.
    # Whether ``window`` has all changes since the requested start; False for a stream.
    is_complete: bool = True

    @property
    def pinned(self) -> PinnedVersion:
        """The version that the columns are taken from."""
        return PinnedVersion(self.table.uri, self.window.end, self.stamp)


def count_feed_changes(options: ReadOptions) -> tuple[ChangeCounts, ...]:
    """Count the changed rows of each version of a change feed, without opening data files.

    Raises:
        VersionNotFoundError: There is no such version, or it was cleaned up.
    """
    window: ChangeWindow | None = None
    while True:
        feed = pin_feed(options, None)
        try:
            return count_changes(feed.table, feed.window)
        except VersionNotFoundError:
            if feed.window == window:
                raise
            window = feed.window  # there is a newer version now


def pin_feed(options: ReadOptions, pinned: PinnedVersion | None) -> PinnedFeed:
    """Resolve the range of versions in the options.

    ``options``: with ``changes``; ``pinned``: the last version, if it is already known.
    """
    changes = changes_of(options)
    if pinned is None:
        table, end = Snapshot.open(options.table, options.at).table, None
    else:
        table, end = open_analyzed(options, pinned).table, pinned.version
    window = resolve_window(table, changes.starting, changes.ending, pinned_end=end)
    last = open_analyzed(options, PinnedFeed(table, window).pinned)
    check_change_feed(last)
    return PinnedFeed(table, window, last.identity.stamp)


def newest_feed(options: ReadOptions) -> PinnedFeed:
    """Return a feed without versions that has the columns of the newest one, for a stream."""
    snapshot = Snapshot.open(options.table)
    check_change_feed(snapshot)
    window = ChangeWindow(snapshot.version + 1, snapshot.version)
    return PinnedFeed(snapshot.table, window, snapshot.identity.stamp, is_complete=False)


def describe_feed(options: ReadOptions, pin: Callable[[], PinnedFeed]) -> PinnedFeed:
    """Return the feed of ``pin``, or one without versions for a read that can only be a stream.

    A stream may begin with a snapshot, and after a restart it needs no version that it has already
    read. A batch read whose versions were cleaned up fails when it is planned.
    """
    changes = changes_of(options)
    if not changes.starting.is_open:
        try:
            return pin()
        except VersionNotFoundError:
            if not changes.ending.is_open:
                raise
    return newest_feed(options)


def feed_schema_of(options: ReadOptions, feed: PinnedFeed) -> StructType:
    """Return the schema of the feed in Spark if the user gives none."""
    shown = visible_columns(options, open_analyzed(options, feed.pinned))
    added = FEED_COLUMNS.fields
    if options.columns is not None:
        names = {name.lower() for name in options.columns}
        shown = project(shown, [name for name in options.columns if name.lower() not in _TYPES])
        added = [field for field in added if field.name in names]
    if changes_of(options).layout is Layout.DEBEZIUM:
        return _envelope_of_schema(shown)
    added = [_with_source(options, feed, field) for field in added]
    return StructType([*spark_schema(shown, ()).fields, *added])


def _with_source(options: ReadOptions, feed: PinnedFeed, field: StructField) -> StructField:
    """Add the identity of the table to the metadata of ``_commit_version``, for ``applyChanges``.

    This reads manifests that the plan of a batch reads as well: that of the version before the
    first one, and those of the last versions, as long as they change no rows.  Version 1 is read if
    the feed starts there, if it starts later than requested, and for a stream.
    """
    if field.name != COMMIT_VERSION:
        return field
    before, stamp = feed.window.start - 1, feed.stamp
    if before != feed.window.end:
        stamp = _stamp(feed, before) if before else ""
    # A cleanup may have moved the start.
    requested = (changes_of(options).starting.first_version or feed.window.start) - 1
    first = _stamp(feed, 1) if not feed.is_complete or not before or before != requested else ""
    source = SourceIdentity(first=first, before=before, before_us=microseconds(stamp))
    metadata = {SOURCE_KEY: source.to_text()}
    if feed.is_complete:
        end = feed.window.end
        changed = last_changed_version(feed.table, before, end)
        # The versions between the requested start and that of the window changed no rows.
        changed = requested if changed == before else changed
        metadata[WINDOW_KEY] = FeedWindow(changed, end, microseconds(feed.stamp)).to_text()
    return StructField(field.name, field.dataType, False, metadata)


def _stamp(feed: PinnedFeed, version: int) -> str:
    try:
        return Snapshot.open(feed.table, VersionSpec(version=version)).identity.stamp
    except VersionNotFoundError:
        return ""


def feed_request_of(
    options: ReadOptions, feed: PinnedFeed, schema: StructType, pushed: PushedDown = NOTHING_PUSHED
) -> ChangeRequest:
    """Return the request for the columns of ``schema``, which Spark or the user projected."""
    snapshot = open_analyzed(options, feed.pinned)
    columns, predicate = view_of_feed(options, snapshot, schema, pushed)
    return ChangeRequest(
        window=feed.window,
        mode=changes_of(options).mode,
        columns=columns.fields,
        predicate=predicate,
        batch_rows=options.batch_rows or DEFAULT_BATCH_ROWS,
        checks_text=options.checks_text,
    )


def feed_tasks(
    options: ReadOptions, feed: PinnedFeed, request: ChangeRequest
) -> tuple[ChangeFeedTask, ...]:
    """Plan the tasks that read the feed."""
    shown = visible_columns(options, open_analyzed(options, feed.pinned))
    return plan_changes(feed.table, shown.fields, request)


def view_of_feed(
    options: ReadOptions,
    snapshot: Snapshot,
    schema: StructType,
    pushed: PushedDown = NOTHING_PUSHED,
) -> tuple[LanceSchema, Predicate | None]:
    """Return the columns of the table that tasks read for ``schema``, and the row condition."""
    shown = visible_columns(options, snapshot)
    envelope = envelope_of(options, snapshot, schema, pushed)
    if envelope is not None:
        names = {*(envelope.before or ()), *(envelope.after or ())}
        return project(shown, [field.name for field in shown.fields if field.name in names]), None
    predicate = condition_of(options, pushed, feed_predicate_schema(snapshot))
    return select_feed_columns(shown, schema), predicate


def feed_envelope_of(
    options: ReadOptions, feed: PinnedFeed, schema: StructType, pushed: PushedDown = NOTHING_PUSHED
) -> Envelope | None:
    """Return the envelope of the feed; None for plain rows."""
    return envelope_of(options, open_analyzed(options, feed.pinned), schema, pushed)


def envelope_of(
    options: ReadOptions,
    snapshot: Snapshot,
    schema: StructType,
    pushed: PushedDown = NOTHING_PUSHED,
) -> Envelope | None:
    """Return the envelope of changed rows; None for plain rows."""
    if changes_of(options).layout is not Layout.DEBEZIUM:
        return None
    shown = [field.name for field in visible_columns(options, snapshot).fields]
    before, after = _sides(schema)
    for name in (*(before or ()), *(after or ())):
        if name not in shown:
            raise InvalidInputError(f"the table has no column {name}", where=snapshot.uri)
    own = [field for field in feed_predicate_schema(snapshot) if field.name not in _TYPES]
    predicate = condition_of(options, pushed, envelope_schema(own))
    if predicate is not None:  # it may name any column
        before = after = tuple(shown)
    return Envelope(snapshot.uri, before, after, predicate)


def changes_of(options: ReadOptions) -> ChangeOptions:
    """Return the options of the change feed, which must be set."""
    assert options.changes is not None
    return options.changes


def _envelope_of_schema(shown: LanceSchema) -> StructType:
    """Return the Spark schema of changes in the layout of Debezium."""
    row = StructType([StructField(f.name, f.dataType) for f in spark_schema(shown, ()).fields])
    others = [field for field in envelope_schema(()) if field.name not in (BEFORE, AFTER)]
    return StructType(
        [
            StructField(BEFORE, row),
            StructField(AFTER, row),
            *(
                StructField(field.name, to_spark_type(field.type), field.nullable)
                for field in others
            ),
        ]
    )


def _sides(schema: StructType) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the requested columns of the row before a change, and of the row after it."""
    wanted = {}
    for field in schema.fields:
        if isinstance(field.dataType, StructType):
            wanted[field.name.lower()] = tuple(field.dataType.names)
    return wanted.get(BEFORE), wanted.get(AFTER)


def select_feed_columns(shown: LanceSchema, schema: StructType) -> LanceSchema:
    """Return those columns of ``schema`` that are columns of the table."""
    own = []
    for field in schema.fields:
        kind = _TYPES.get(field.name.lower())
        if kind is None:
            own.append(field)
        elif field.dataType != kind:
            raise InvalidInputError(
                f"the column {field.name} of a change feed is {kind.simpleString()}"
            )
    columns, lineage = narrow(shown, StructType(own))
    if lineage:
        raise InvalidInputError(
            f"a change feed has no column {lineage[0]}",
            hint=f"its own columns are {', '.join(_TYPES)}",
        )
    return columns


class LanceChangeReader(DataSourceReader):
    """Reader of the rows that a range of versions changed.

    As ``LanceBatchReader``, it does not override ``pushFilters``.
    """

    def __init__(
        self,
        options: ReadOptions,
        feed: PinnedFeed,
        schema: StructType,
        pushed: PushedDown = NOTHING_PUSHED,
    ) -> None:
        self._options = options
        self._feed = feed
        self._schema = schema
        self._limit = pushed.limit
        # Errors of planning are raised during analysis rather than in the first task.
        self._request = feed_request_of(options, feed, schema, pushed)
        self._envelope = feed_envelope_of(options, feed, schema, pushed)

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task."""
        tasks = feed_tasks(self._options, self._feed, self._request)
        return [ChangePartition(task, self._envelope) for task in tasks]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition, in the Arrow types that Spark requires."""
        # A plan without partitions still runs one task, on a placeholder.
        if isinstance(partition, ChangePartition):
            yield from spark_batches(partition.changes(), self._schema, self._limit)
