"""The reader of tasks of a batch read; it needs no options, manifests or plans.

When a limit or a join needs no more rows of a task, the JVM plugin (``CancelOnLimit``) creates a
file named after the task in Spark's local folder. A worker that then ends its task regularly is
reused; Spark would kill one that still sends rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_lance.codec.array_assembly import is_small_dictionary
from pyspark_lance.format.column_names import ColumnNames
from pyspark_lance.format.logical_type import to_plain
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.messages import ScanPartition
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.spark.types.spark_types import arrow_schema_of
from pyspark_lance.table.scan.scan_task import HasEnough, ScanTask, first_rows, never
from pyspark_lance.table.scan.top_rows import TopRows, run_top

# The Java class CancelOnLimit makes it.
_SIGN = "lance-enough-"


def has_enough() -> HasEnough:
    """Return a function that checks the current task; a call takes microseconds."""
    task, folders = TaskContext.get(), os.environ.get("SPARK_LOCAL_DIRS")
    if task is None or not folders:
        return never
    sign = os.path.join(folders.split(",")[0], f"{_SIGN}{task.taskAttemptId()}")
    return lambda: os.path.exists(sign)


class ScanRows(DataSourceReader):
    """Reader of the rows of planned tasks."""

    def __init__(self, schema: StructType, limit: int | None, top: TopRows | None) -> None:
        self._schema = schema
        self._limit = limit
        self._top = top

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition, in the Arrow types that Spark requires."""
        # A plan without partitions still runs one task, on a placeholder.
        if isinstance(partition, ScanPartition):
            yield from self._rows(partition.task)

    def _rows(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        ends = has_enough()
        rows = run_top(task, self._top, ends) if self._top else task.run(has_enough=ends)
        kept = task.keep_dictionaries
        yield from spark_batches(rows, self._schema, self._limit, keep_dictionaries=kept)


def spark_batches(
    batches: Iterator[pa.RecordBatch],
    schema: StructType,
    limit: int | None,
    *,
    keep_dictionaries: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Convert the batches of a partition to the types that Spark requires.

    ``limit``: the maximum number of rows; None for all.
    """
    # Spark's worker runs a full garbage collection after each task, 25 ms for all loaded modules;
    # it skips frozen objects.
    trim_worker_overhead()
    target = arrow_schema_of(schema)
    is_enough = has_enough()
    for batch in first_rows(limit, batches):
        yield to_spark_batch(batch, target, keep_dictionaries=keep_dictionaries)
        if is_enough():
            return


def to_spark_batch(
    batch: pa.RecordBatch, target: pa.Schema, *, keep_dictionaries: bool = False
) -> pa.RecordBatch:
    """Return the columns of ``batch``, matched by name, in the types of ``target``."""
    positions = ColumnNames({name: index for index, name in enumerate(batch.schema.names)})
    if not len(target):
        # A batch without columns has no length, but a struct without fields does.
        rows = pa.StructArray.from_buffers(pa.struct([]), batch.num_rows, [None])
        return pa.RecordBatch.from_struct_array(rows)
    columns, fields = [], []
    for field in target:
        position = positions.get(field.name)
        assert position is not None
        column = batch.column(position)
        wanted = field.type
        if keep_dictionaries and pa.types.is_string(wanted) and _is_taken(column):
            wanted = pa.dictionary(column.type.index_type, wanted)
        column = to_plain(column, wanted, field.name)
        columns.append(column)
        fields.append(field.with_type(column.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _is_taken(column: pa.Array) -> bool:
    """Return whether the plugin reads ``column`` as it is: strings with 8 to 32 bit indices."""
    return (
        is_small_dictionary(column)
        and column.type.index_type.bit_width <= 32
        and not column.dictionary.null_count
    )
