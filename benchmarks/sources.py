"""Sources and sinks in Python that do nothing: what Spark itself takes."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

# Spark's processes do not look for modules beside the script.
register_pickle_by_value(sys.modules[__name__])

_SCHEMA = "schema.json"


class Canned(DataSource):
    """All columns, as batches that Spark itself made."""

    @classmethod
    def name(cls) -> str:
        return "canned"

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(Path(self.options["path"], _SCHEMA).read_text()))

    def reader(self, schema: StructType) -> DataSourceReader:
        return CannedReader(self.options["path"])


class CannedReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(file)) for file in Path(self._folder).glob("*.arrow")]

    def read(self, partition: InputPartition) -> Iterator[object]:
        import pyarrow as pa

        with pa.memory_map(partition.value) as file:
            batches = pa.ipc.open_file(file)
            for number in range(batches.num_record_batches):
                yield batches.get_batch(number)


def save_canned(rows: DataFrame, folder: str) -> None:
    """Keep the batches that Spark gives to Python, those of a task in a file."""
    Path(folder).mkdir()
    schema = rows.schema
    Path(folder, _SCHEMA).write_text(schema.json())

    def keep(batches: Iterator[object]) -> Iterator[object]:
        import uuid

        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        # As Spark wants them back: the name of the time zone is another one.
        wanted = to_arrow_schema(schema, timezone="UTC")
        with pa.ipc.new_file(f"{folder}/{uuid.uuid4()}.arrow", wanted) as writer:
            for batch in batches:
                columns = [
                    column.cast(field.type)
                    for column, field in zip(batch.columns, wanted, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=wanted))
        yield pa.RecordBatch.from_pylist([], schema=wanted)

    rows.mapInArrow(keep, schema).count()


class Nothing(DataSource):
    """A hundred numbers, and a sink that keeps none."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "price double"

    def reader(self, schema: StructType) -> DataSourceReader:
        return NothingReader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return NothingWriter()


class NothingReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[object]:
        import pyarrow as pa

        # Arrow imports pandas for an array of a list, which is not the price of Spark's pipe.
        numbers = pa.py_buffer(bytes(8 * 50))
        column = pa.Array.from_buffers(pa.float64(), 50, [None, numbers])
        yield pa.RecordBatch.from_arrays([column], ["price"])


class NothingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[object]) -> WriterCommitMessage:
        deque(iterator, maxlen=0)
        return WriterCommitMessage()


class Idle(DataSource):
    """Ten rows in each batch, and a sink that drops all: what Python takes in any case."""

    @classmethod
    def name(cls) -> str:
        return "idle"

    def schema(self) -> str:
        return "id bigint, n bigint"

    def streamReader(self, schema):  # noqa: N802
        return IdleReader()

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return IdleWriter()


class IdleReader(DataSourceStreamReader):
    def __init__(self) -> None:
        self.batch = 0

    def initialOffset(self):  # noqa: N802
        return {"batch": 0}

    def latestOffset(self):  # noqa: N802
        self.batch += 1
        return {"batch": self.batch}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        import pyarrow as pa

        ten = pa.array(range(10))
        yield pa.RecordBatch.from_arrays([ten, ten], names=["id", "n"])

    def commit(self, end) -> None:
        pass


class IdleWriter(DataSourceStreamArrowWriter):
    def write(self, iterator):
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages, batchId) -> None:  # noqa: N803
        pass
