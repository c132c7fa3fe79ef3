"""The steps of a read or a write that run Python on the driver, in the process that is there.

Spark has another process for each: one plans reads, one plans writes, one commits. Each is started
when it is first needed, which takes a second, and each reads the table anew. The JVM companion asks
for these steps as it asks its questions, so the process that described the table does them all.

Bytes go as base64, and what is large goes the way of Spark's own processes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_lance.plain_values import single_value
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.source.replies import reply

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        WriterCommitMessage,
    )

_OWN = {keys.CALL, keys.STEP_COLUMNS, keys.STEP_BYTES, keys.STEP_OVERWRITES}
_SERIALIZER: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
_MESSAGE = StructType([StructField("message", BinaryType())])
Facts = dict[str, Any]


def answer(options: Mapping[str, str], made_by: type[DataSource]) -> StructType:
    """Does the step that the companion asks for in ``options``.

    ``made_by``: Makes the source of these options.
    """
    step = options[keys.CALL]
    if step in _PLANS:
        kind: Any = type(options)
        own = {name: value for name, value in options.items() if name.lower() not in _OWN}
        return reply(_PLANS[step](made_by(kind(own)), options))
    return reply(_ENDS[step](options))


class ReadTask:
    """What a task of Spark calls with its partition to read that.

    ``reader``: Yields batches in the types that Spark demands.
    """

    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader
        # By the module Spark's worker knows work of a data source, which has a profiler of its own.
        self.__module__ = "pyspark.sql.worker.plan_data_source_read"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the partition that is the only value of ``batches``."""
        (partition,) = [value for batch in batches for value in batch.column(0).to_pylist()]
        return self._reader.read(_loads(partition))


class WriteTask:
    """What a task of Spark calls with its rows to write them.

    ``writer``: Takes batches.
    """

    def __init__(self, writer: DataSourceArrowWriter) -> None:
        self._writer = writer
        self.__module__ = "pyspark.sql.worker.write_into_data_source"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Writes ``batches`` and yields the message to the commit."""
        message = _dumps(self._writer.write(batches))
        yield pa.RecordBatch.from_arrays([single_value(message, pa.binary())], _MESSAGE.names)


def plan_read(source: DataSource, options: Mapping[str, str]) -> Facts:
    """What tasks of a read are sent; nothing if that is much."""
    columns = StructType.fromJson(json.loads(options[keys.STEP_COLUMNS]))
    reader = source.reader(columns)
    # Spark runs one task for a read without partitions.
    partitions = list(map(_dumps, reader.partitions() or [InputPartition(None)]))
    if sum(map(len, partitions)) > int(options[keys.STEP_BYTES]):
        return {}
    return {
        "function": _text(_dumps((ReadTask(reader), columns))),
        "partitions": list(map(_text, partitions)),
    }


def plan_write(source: DataSource, options: Mapping[str, str]) -> Facts:
    """What tasks of a write are sent, and what the commit needs."""
    rows = StructType.fromJson(json.loads(options[keys.STEP_COLUMNS]))
    writer: Any = source.writer(rows, options[keys.STEP_OVERWRITES] == "true")
    return {
        "function": _text(_dumps((WriteTask(writer), _MESSAGE))),
        "writer": _text(_dumps(writer)),
    }


def commit(options: Mapping[str, str]) -> Facts:
    """Makes a version of what all tasks wrote."""
    writer, messages = _written(options)
    writer.commit(messages)
    return {}


def abort(options: Mapping[str, str]) -> Facts:
    """Removes what tasks wrote; some tell nothing of it."""
    writer, messages = _written(options)
    writer.abort(messages)
    return {}


def _written(
    options: Mapping[str, str],
) -> tuple[DataSourceArrowWriter, list[WriterCommitMessage | None]]:
    texts = json.loads(options[keys.STEP_MESSAGES])
    messages = [None if text is None else _loads(base64.b64decode(text)) for text in texts]
    return _loads(base64.b64decode(options[keys.STEP_WRITER])), messages


def _dumps(value: object) -> bytes:
    """As Spark pickles, types that users define among what it may meet."""
    pickled: bytes = _SERIALIZER.dumps(value)
    return pickled


def _loads(pickled: bytes) -> Any:
    return _SERIALIZER.loads(pickled)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


_PLANS: dict[str, Callable[[DataSource, Mapping[str, str]], Facts]] = {
    "step.plan_read": plan_read,
    "step.plan_write": plan_write,
}
_ENDS: dict[str, Callable[[Mapping[str, str]], Facts]] = {
    "step.commit": commit,
    "step.abort": abort,
}
