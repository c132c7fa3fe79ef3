"""Batch reads and writes as the JVM plugin plans and commits them.

Tasks get pickles of the same readers and writers as in Spark's own plan of a Python data source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pyspark_lance.plain_values import single_value
from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.clean_errors import clean_errors
from pyspark_lance.spark.sql.plugin_responses import ReadResponse, Response, WriteResponse

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader

    from pyspark_lance.spark.source.change_feed_reader import PinnedFeed
    from pyspark_lance.spark.sql.plugin_requests import CommitRequest, ReadRequest, WriteRequest

_SERIALIZER: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
_MESSAGE = StructType([StructField("message", BinaryType())])
MESSAGES = StructType(
    [
        StructField("acknowledge", StringType()),
        StructField("memory", StringType()),
        StructField("length", LongType()),
        StructField("bytes", BinaryType()),
    ]
)
"""The rows that transfer batches to the plugin; see ``shared_batches``."""


class ReadTask:
    """The function that a task of Spark calls with its partition to read it.

    ``reader``: Yields batches in the types that Spark demands.
    """

    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader
        # Spark's worker recognises a data source, which has its own profiler, by this module.
        self.__module__ = "pyspark.sql.worker.plan_data_source_read"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the partition that is the only value of ``batches``."""
        (partition,) = [value for batch in batches for value in batch.column(0).to_pylist()]
        return self._reader.read(_loads(partition))


class WriteTask:
    """The function that a task of Spark calls with its rows to write them.

    ``writer``: Takes batches.
    """

    def __init__(self, writer: DataSourceArrowWriter) -> None:
        self._writer = writer
        self.__module__ = "pyspark.sql.worker.write_into_data_source"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write ``batches`` and yield the message to the commit."""
        message = _dumps(self._writer.write(batches))
        yield pa.RecordBatch.from_arrays([single_value(message, pa.binary())], _MESSAGE.names)


class _PlannedSource(LanceDataSource):
    """The data source with the parameters of the plugin."""

    def __init__(self, request: ReadRequest | WriteRequest) -> None:
        self._request = request
        super().__init__(dict(request.options))
        self.options: Any = request.options
        self._pinned = request.pinned

    @clean_errors
    def plan_reader(self, request: ReadRequest) -> DataSourceReader:
        """Plan a read of rows, or of batches for the plugin."""
        if request.batches is None:
            return self._rows_reader(request)
        from pyspark_lance.spark.source.shared_batches import SharedBatchReader  # noqa: PLC0415

        return SharedBatchReader(self._rows_reader(request), request.batches)

    def _rows_reader(self, request: ReadRequest) -> DataSourceReader:
        if request.state is not None:
            from pyspark_lance.spark.sql.procedures import LanceTaskReader  # noqa: PLC0415

            return LanceTaskReader(request.state)
        return self._reader(
            request.schema(),
            request.pushed,
            keep_dictionaries=request.batches is not None,
            in_parts=request.of_sql,
        )

    @clean_errors
    def plan_writer(self, request: WriteRequest) -> DataSourceArrowWriter:
        """Plan an append or overwrite, or the delta write of an UPDATE, MERGE or DELETE."""
        write, replaces = self._write_options(request.overwrite, request.write_parameters())
        if request.change is None:
            from pyspark_lance.spark.source.batch_writer import LanceBatchWriter  # noqa: PLC0415

            return LanceBatchWriter(write, request.schema(), overwrite=replaces)
        from pyspark_lance.spark.source.change_writer import LanceChangeWriter  # noqa: PLC0415

        return LanceChangeWriter(
            write,
            self._pin(),
            request.schema(),
            request.change,
            base=request.base,
            pushed=request.pushed,
            retried=request.retries,
            by_columns=request.by_columns,
        )

    def _read_options(self) -> ReadOptions:
        return ReadOptions.parse(self.options, self._request.read_parameters())

    def _pin_feed(self) -> PinnedFeed:
        if self._feed is None:
            from pyspark_lance.spark.source.change_feed_reader import pin_feed  # noqa: PLC0415

            self._feed = pin_feed(self._read_options(), self._request.pinned)
        return self._feed


def plan_read(request: ReadRequest) -> ReadResponse:
    """Return the function and the partitions of the tasks of a read."""
    reader = _PlannedSource(request).plan_reader(request)
    # Spark runs one task for a read without partitions.
    partitions = reader.partitions() or [InputPartition(None)]
    rows = request.schema() if request.batches is None else MESSAGES
    return ReadResponse(
        function=_dumps((ReadTask(reader), rows)), partitions=list(map(_dumps, partitions))
    )


def plan_write(request: WriteRequest) -> WriteResponse:
    """Return the function of the tasks of a write, and the writer that commits their output."""
    writer: Any = _PlannedSource(request).plan_writer(request)
    return WriteResponse(function=_dumps((WriteTask(writer), _MESSAGE)), writer=_dumps(writer))


def commit(request: CommitRequest) -> Response:
    """Commit a version of the files of all tasks."""
    writer, messages = _unpickle_write(request)
    writer.commit(messages)
    return Response()


def abort(request: CommitRequest) -> Response:
    """Remove the files of tasks."""
    writer, messages = _unpickle_write(request)
    writer.abort(messages)
    return Response()


def _unpickle_write(request: CommitRequest) -> tuple[DataSourceArrowWriter, list[Any]]:
    messages = [None if one is None else _loads(one) for one in request.messages]
    return _loads(request.writer), messages


def _dumps(value: object) -> bytes:
    """Pickle as Spark does, which supports user-defined types."""
    pickled: bytes = _SERIALIZER.dumps(value)
    return pickled


def _loads(pickled: bytes) -> Any:
    return _SERIALIZER.loads(pickled)
