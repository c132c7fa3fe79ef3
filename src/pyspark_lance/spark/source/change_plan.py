"""A read with ``readChangeFeed`` becomes a plan of changed rows."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.system_columns import ROW_ID
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.pushed_down import NOTHING_PUSHED, PushedDown
from pyspark_lance.spark.source.read_plan import condition_of, open_pinned, shown_columns
from pyspark_lance.spark.types.spark_types import SYSTEM_COLUMN_KEY, narrow, spark_schema
from pyspark_lance.table.feed.change_feed import (
    ChangeRequest,
    check_change_feed,
    feed_predicate_schema,
    plan_changes,
)
from pyspark_lance.table.feed.change_task import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangeTask,
)
from pyspark_lance.table.feed.change_window import ChangeWindow, resolve_window
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_ROWS, project
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_TYPES: dict[str, DataType] = {
    ROW_ID: LongType(),
    CHANGE_TYPE: StringType(),
    COMMIT_VERSION: LongType(),
    COMMIT_TIMESTAMP: TimestampType(),
}
# A table that the feed is saved as has row ids of its own, so it leaves these out.
_METADATA = {ROW_ID: {SYSTEM_COLUMN_KEY: ROW_ID}}
FEED_COLUMNS = StructType(
    [
        StructField(name, kind, name == COMMIT_TIMESTAMP, _METADATA.get(name))
        for name, kind in _TYPES.items()
    ]
)
"""What a change feed adds to the columns of the table."""


@dataclass(frozen=True, slots=True)
class PinnedFeed:
    """The change feed that a query reads, decided once.

    Attributes:
        table: The table or branch.
        window: The versions.
    """

    table: Table
    window: ChangeWindow

    @property
    def pinned(self) -> tuple[str, int]:
        """Root and version of the columns."""
        return self.table.uri, self.window.end


def pin_feed(options: ReadOptions, pinned: tuple[str, int] | None) -> PinnedFeed:
    """The window that the options ask for.

    Args:
        options: With ``changes``.
        pinned: Root and last version, if they are decided already.

    Raises:
        InvalidInputError: A window that cannot be.
        VersionNotFoundError: It needs a version that was removed.
        UnsupportedFeatureError: The table does not keep row ids.
    """
    changes = options.changes
    assert changes is not None
    table = (
        Table(pinned[0], options.table.storage)
        if pinned is not None
        else Snapshot.open(options.table, options.at).table
    )
    window = resolve_window(
        table,
        changes.starting,
        changes.ending,
        pinned_end=None if pinned is None else pinned[1],
    )
    feed = PinnedFeed(table, window)
    check_change_feed(open_pinned(options, feed.pinned))
    return feed


def newest_feed(options: ReadOptions) -> PinnedFeed:
    """No versions, and the columns of the newest one: what a stream shows.

    Raises:
        UnsupportedFeatureError: The table does not keep row ids.
    """
    snapshot = Snapshot.open(options.table)
    check_change_feed(snapshot)
    return PinnedFeed(snapshot.table, ChangeWindow(snapshot.version + 1, snapshot.version))


def feed_schema_of(options: ReadOptions, feed: PinnedFeed) -> StructType:
    """What Spark sees when the user gives no schema."""
    shown = shown_columns(options, open_pinned(options, feed.pinned))
    added = FEED_COLUMNS.fields
    if options.columns is not None:
        names = {name.lower() for name in options.columns}
        shown = project(shown, [name for name in options.columns if name.lower() not in _TYPES])
        added = [field for field in added if field.name in names]
    return StructType([*spark_schema(shown, ()).fields, *added])


def feed_request_of(
    options: ReadOptions,
    feed: PinnedFeed,
    schema: StructType,
    pushed: PushedDown = NOTHING_PUSHED,
) -> ChangeRequest:
    """What gives the columns of ``schema``, which Spark or the user narrowed.

    Raises:
        InvalidInputError: The schema or the filter names what the feed does not have.
    """
    changes = options.changes
    assert changes is not None
    snapshot = open_pinned(options, feed.pinned)
    columns = narrowed_to_feed(shown_columns(options, snapshot), schema)
    return ChangeRequest(
        window=feed.window,
        mode=changes.mode,
        columns=columns.fields,
        predicate=condition_of(options, pushed, feed_predicate_schema(snapshot)),
        batch_rows=options.batch_rows or DEFAULT_BATCH_ROWS,
    )


def feed_tasks(
    options: ReadOptions, feed: PinnedFeed, request: ChangeRequest
) -> tuple[ChangeTask, ...]:
    """The tasks that read the feed."""
    shown = shown_columns(options, open_pinned(options, feed.pinned))
    return plan_changes(feed.table, shown.fields, request)


def narrowed_to_feed(shown: LanceSchema, schema: StructType) -> LanceSchema:
    """The columns of the table among those of ``schema``."""
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
