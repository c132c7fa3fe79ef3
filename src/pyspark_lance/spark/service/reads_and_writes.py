"""Batch reads and writes as the JVM plugin plans and commits them.

Tasks get pickles of the same readers and writers as in Spark's own plan of a Python data source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_lance.plain_values import single_value
from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.spark.service.frames import Message

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, WriterCommitMessage

_SERIALIZER: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
_MESSAGE = StructType([StructField("message", BinaryType())])


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


def plan_read(request: Message) -> Message:
    """Return the function and the partitions of the tasks of a read."""
    columns = _columns(request)
    reader = _source(request).reader(columns)
    # Spark runs one task for a read without partitions.
    partitions = reader.partitions() or [InputPartition(None)]
    return {
        "function": _dumps((ReadTask(reader), columns)),
        "partitions": list(map(_dumps, partitions)),
    }


def plan_write(request: Message) -> Message:
    """Return the function of the tasks of a write, and the writer that commits their output."""
    writer: Any = _source(request).writer(_columns(request), request["overwrite"])
    return {"function": _dumps((WriteTask(writer), _MESSAGE)), "writer": _dumps(writer)}


def commit(request: Message) -> Message:
    """Commit a version of what all tasks wrote."""
    writer, messages = _written(request)
    writer.commit(messages)
    return {}


def abort(request: Message) -> Message:
    """Remove what tasks wrote; the message of a task that failed is None."""
    writer, messages = _written(request)
    writer.abort(messages)
    return {}


def _source(request: Message) -> LanceDataSource:
    options: Any = CaseInsensitiveDict(request["options"])
    return LanceDataSource(options)


def _columns(request: Message) -> StructType:
    return StructType.fromJson(json.loads(request["columns"]))


def _written(request: Message) -> tuple[DataSourceArrowWriter, list[WriterCommitMessage | None]]:
    messages = [None if one is None else _loads(one) for one in request["messages"]]
    return _loads(request["writer"]), messages


def _dumps(value: object) -> bytes:
    """Pickle as Spark does, which supports user-defined types."""
    pickled: bytes = _SERIALIZER.dumps(value)
    return pickled


def _loads(pickled: bytes) -> Any:
    return _SERIALIZER.loads(pickled)
