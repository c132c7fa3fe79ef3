"""Streams from a table: plans on the driver, reads on the executors.

There are two classes, as Spark 4.1 calls ``latestOffset`` without a read limit and later releases
call it with one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_lance.errors import InvalidInputError, LanceError, VersionNotFoundError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.options.stream_options import StreamOptions
from pyspark_lance.spark.source.change_feed_reader import FEED_COLUMNS, envelope_of, view_of_feed
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.source.messages import ChangePartition
from pyspark_lance.spark.source.read_plan import NOTHING_PUSHED, condition_of, visible_columns
from pyspark_lance.spark.source.scan_rows import spark_batches
from pyspark_lance.spark.types.spark_types import narrow
from pyspark_lance.table.cdf.change_feed import feed_predicate_schema
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import BEGINNING, BatchView, StreamLimits, StreamOffset
from pyspark_lance.table.refs import register_consumer
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_ROWS
from pyspark_lance.table.version.snapshot import Snapshot

logger = logging.getLogger(__name__)

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # Spark 4.0 and 4.1
    HAS_LIMITS = False


class _TableReader(DataSourceStreamReader):
    """Stream reader of a table."""

    def __init__(
        self, options: ReadOptions, stream: StreamOptions, snapshot: Snapshot, schema: StructType
    ) -> None:
        self._options = options
        self._limits = stream.limits
        self._schema = schema
        self._stream = TableStream.of(snapshot, stream.settings)
        self._consumer = stream.consumer
        self._kept: int | None = None
        self._envelope = None if options.changes is None else envelope_of(options, snapshot, schema)
        if self._envelope is None:
            _check_feed_columns(options, schema)
        self._view(snapshot)  # raise errors of the schema when the query starts

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return a constant: the first batch resolves it, and logs the result."""
        return BEGINNING.to_json()

    @clean_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition for each task of a batch."""
        offsets = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if self._consumer is not None and self._kept is None:
            self._keep_first(*offsets)
        envelope = self._envelope
        if (
            envelope is not None
            and offsets[0].is_in_snapshot
            and self._stream.settings.has_snapshot
        ):
            envelope = replace(envelope, is_snapshot=True)
        tasks = self._stream.plan_batch(*offsets, self._view)
        return [ChangePartition(task, envelope) for task in tasks]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition, in the Arrow types that Spark requires."""
        if isinstance(partition, ChangePartition):
            yield from spark_batches(partition.changes(), self._schema, None)

    def commit(self, end: dict[str, Any]) -> None:
        """Release the versions before ``end``; the checkpoint stores the progress."""
        try:
            self._keep_after(StreamOffset.from_json(end))
        except (LanceError, OSError) as error:
            logger.warning(
                "a consumer could not be moved forward, so cleanups keep more versions: %s", error
            )

    def _newest_offset(self) -> dict[str, Any]:
        """Return the offset behind the newest version."""
        return StreamOffset(self._stream.newest()).to_json()

    def _keep_first(self, start: StreamOffset, end: StreamOffset) -> None:
        """Protect the versions that the first batch of the query needs from cleanups."""
        settings = self._stream.settings
        if not start.is_in_snapshot:
            self._keep_after(start)
        elif settings.starting.version is not None:
            with contextlib.suppress(VersionNotFoundError):  # the feed may not need that version
                self._keep_after(StreamOffset(max(1, settings.done_before)))
        if self._kept is None:
            self._keep_after(end)

    def _keep_after(self, offset: StreamOffset) -> None:
        """Move the consumer to ``offset``, so that cleanups keep later versions."""
        version = offset.target if offset.is_in_snapshot else offset.version
        if self._consumer is not None and version and version != self._kept:
            register_consumer(self._stream.table, self._consumer, version, identity=offset.identity)
            self._kept = version

    def _view(self, snapshot: Snapshot) -> BatchView:
        shown = visible_columns(self._options, snapshot)
        if self._options.changes is not None:
            columns, predicate = view_of_feed(self._options, snapshot, self._schema)
        else:
            predicate = condition_of(self._options, NOTHING_PUSHED, feed_predicate_schema(snapshot))
            columns, lineage = narrow(shown, self._schema)
            unknown = [name for name in lineage if name != ROW_ID]
            if unknown:
                raise InvalidInputError(
                    f"a stream has no column {unknown[0]}",
                    hint=f"it has {ROW_ID}, and with readChangeFeed the version of each change",
                )
        return BatchView(
            shown.fields,
            columns.fields,
            predicate,
            self._options.batch_rows or DEFAULT_BATCH_ROWS,
            self._options.checks_text,
        )


def _check_feed_columns(options: ReadOptions, schema: StructType) -> None:
    """Check that a stream of changes has a column of the feed; a catalog table has none."""
    own = {name.lower() for name in schema.names} & {field.name for field in FEED_COLUMNS}
    if options.changes is not None and options.columns is None and not own:
        raise InvalidInputError(
            "a stream of changes would have none of the columns that describe the change, since "
            "Spark takes the columns of a table that is read by name from the catalog",
            hint='follow changes by path, with load("…"), or with the plugin by '
            'spark.readStream.changes("…")',
        )


class UnlimitedStreamReader(_TableReader):
    """The reader for Spark 4.1: each batch reads up to the newest version.

    Spark 4.1 does not pass the start of a batch to ``latestOffset``, so the start of the first
    batch is resolved when its partitions are planned.
    """

    _end = BEGINNING

    @clean_errors
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return the newest version, or the initial offset if the stream starts later."""
        waits = not self._stream.settings.has_snapshot and self._stream.beginning() == BEGINNING
        if waits:
            return BEGINNING.to_json()
        self._end = self._stream.newest_offset(self._end)
        return self._end.to_json()

    @clean_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition per task; a starting timestamp is resolved now."""
        since = self._stream.settings.starting.timestamp_ns
        if since is not None and StreamOffset.from_json(start) == BEGINNING and start != end:
            start = self._stream.beginning().to_json()
        return super().partitions(start, end)


if HAS_LIMITS:

    class LanceStreamReader(_TableReader, SupportsTriggerAvailableNow):
        """The reader for Spark 4.2 and later."""

        _newest: int | None = None

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """Return that the source limits batches itself, by its options."""
            return ReadAllAvailable() if self._limits.are_none else ReadMaxRows(1)

        @clean_errors
        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            """Return the end of the next batch."""
            limits = StreamLimits() if isinstance(limit, ReadAllAvailable) else self._limits
            offset = StreamOffset.from_json(start)
            return self._stream.latest_offset(offset, limits, self._newest).to_json()

        @clean_errors
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Record the newest version as the end of the query."""
            self._newest = self._stream.newest()

        @clean_errors
        def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
            """Return the newest version, for the progress of the query."""
            return self._newest_offset()


class RefusedStream(DataSourceStreamReader):
    """A reader that raises an error on first use.

    Spark does not show the message of an error that is raised while it creates the reader.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    @clean_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self._error

    @clean_errors
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Raise the error: a stream with a checkpoint skips ``initialOffset``."""
        raise self._error

    @clean_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error: a replayed batch needs no offset."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error; there is no partition to read."""
        raise self._error


def stream_reader(
    options: ReadOptions, stream: StreamOptions, snapshot: Snapshot, schema: StructType
) -> DataSourceStreamReader:
    """Create the reader for this release of Spark."""
    if HAS_LIMITS:
        return LanceStreamReader(options, stream, snapshot, schema)
    if not stream.limits.are_none:
        raise InvalidInputError(
            "this release of Spark cannot limit the batches of a stream",
            hint="leave out the options max…PerTrigger, or use Spark 4.2 or later",
        )
    return UnlimitedStreamReader(options, stream, snapshot, schema)
