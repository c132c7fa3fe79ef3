"""A source in Python that gives a hundred numbers and keeps none: what Spark itself takes."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

# Spark's processes do not look for modules beside the script.
register_pickle_by_value(sys.modules[__name__])


class Nothing(DataSource):
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
