"""A source in Python with nothing to decode: all columns, as batches that Spark itself made."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

# Spark's processes do not look for modules beside the script.
register_pickle_by_value(sys.modules[__name__])

_SCHEMA = "schema.json"


class Canned(DataSource):
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
    """Keeps the batches that Spark gives to Python, those of a task in a file."""
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
