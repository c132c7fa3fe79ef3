"""UPDATE, DELETE and the distributed part of all DML: write changed rows, given as a DataFrame.

Spark evaluates the condition and the new values once, in one job, which runs the stages of
``table/dml/run_changes.py``. The driver receives one description per file; for a plain merge also
the filter of the keys and a few rows of the target, both of a bounded size. This only uses the
DataFrame API, so it also works on Spark Connect.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, find_named, name_hint, spellings
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_numbers, single_value
from pyspark_lance.predicate.name_parts import name_parts
from pyspark_lance.spark.expressions.column_expressions import Expression, sql_text
from pyspark_lance.spark.expressions.expressions import (
    as_column,
    convert_to_stored,
    name_or_column,
    named_columns,
    pushable_filter,
    quote_name,
    readable_columns,
    reads_of,
    refuse_trailing_aliases,
    with_values,
)
from pyspark_lance.spark.jobs.semi_join import collect_filter
from pyspark_lance.spark.jobs.stages import (
    map_in_arrow,
    map_rows,
    numbered_stage,
    over_tasks,
    stage,
)
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.spark.types.spark_types import spark_field
from pyspark_lance.table.dml.change_stages import PAYLOAD
from pyspark_lance.table.dml.commit_changes import (
    PreparedCommit,
    delete_everything,
    prepare_commit,
    with_rewrite_choice,
)
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.dml.moved_rows import CHANGED_ADDRESS, CHANGED_ROW_ID, CLAUSE, Clause
from pyspark_lance.table.dml.plain_merge import FILTER, KIND, SOURCE
from pyspark_lance.table.dml.rewrite_columns import (
    RewriteColumnsRequest,
    RewrittenColumns,
    commit_rewrite,
    paths_of,
    plan_rewrite,
    rewrite_columns,
)
from pyspark_lance.table.dml.row_change import DmlPlan, RewriteMode, RowAction, choose_rewrite
from pyspark_lance.table.dml.run_changes import Stage, run_changes
from pyspark_lance.table.unit_of_work import remove_files

_PAYLOAD = "payload binary"


class RepeatedRowError(Exception):
    """A row would get two new values; raised only within this package."""

    def __init__(self, address: int) -> None:
        super().__init__(f"the row at address {address} would get two new values")
        self.address = address


def run_rewrite_job(
    plan: DmlPlan, names: Sequence[str], changes: DataFrame
) -> tuple[RewriteColumnsRequest, list[RewrittenColumns]]:
    """Write the new files of touched fragments on the executors; commits nothing.

    ``changes``: ``_rowaddr`` of each row that changes, once, and all of ``names``; in any order.
    Raises RepeatedRowError: a row comes twice; the new files are removed.
    """
    request = plan_rewrite(plan.snapshot(), names)
    together = changes.repartition(sf.shiftright(sf.col(ROW_ADDRESS), 32))
    ordered = together.sortWithinPartitions(ROW_ADDRESS)
    messages = map_rows(ordered, partial(_write, request), _PAYLOAD).collect()
    done = [result for message in messages for result in pickle.loads(message["payload"])]
    rewritten = [result for result in done if isinstance(result, RewrittenColumns)]
    if len(rewritten) < len(done):
        remove_files(request.files.store_of(None), paths_of(rewritten))
        raise RepeatedRowError(next(result for result in done if isinstance(result, int)))
    return request, rewritten


@clean_iterator
def _write(
    request: RewriteColumnsRequest, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the new files of fragments in a task, or return the address of a repeated row."""
    trim_worker_overhead()
    done: list[RewrittenColumns | int]
    try:
        done = list(rewrite_columns(request, _once_each(batches)))
    except RepeatedRowError as error:
        done = [error.address]
    yield pa.RecordBatch.from_pydict({"payload": single_value(pickle.dumps(done), pa.binary())})


def _once_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check that no address is repeated in batches that are sorted by address."""
    last = -1
    for batch in batches:
        addresses = plain_numbers(batch.column(ROW_ADDRESS))
        again = np.flatnonzero(np.diff(addresses, prepend=last) == 0)
        if len(again):
            raise RepeatedRowError(int(addresses[again[0]]))
        if len(addresses):
            last = int(addresses[-1])
        yield batch


def update_once(
    spark: SparkSession,
    plan: DmlPlan,
    condition: Expression | None,
    assignments: Mapping[str, Expression],
    *,
    alias: str,
    rewrite: RewriteMode,
) -> PreparedCommit:
    """Run one attempt, except its commit, by rows or columns; without a condition on all rows."""
    if not assignments:
        raise InvalidInputError("an update needs at least one column to set")
    snapshot = plan.snapshot()
    targets = AssignedTargets(plan.schema)
    names = tuple(dict.fromkeys(targets.of(key)[0] for key in assignments))
    matching = partial(_matching, spark, plan, condition, assignments, alias)
    if condition is None:
        changed: Any = snapshot.manifest.fragments.rows_by_id()
    else:
        changed = lambda: _count(matching(ROW_ADDRESS))  # noqa: E731 - a job, run if it can pay
    choice = choose_rewrite(snapshot, names, rewrite, changed)
    by_columns = choice.mode is RewriteMode.COLUMNS
    rows = matching(ROW_ADDRESS) if by_columns else matching(ROW_ID, ROW_ADDRESS)
    values = convert_to_stored(rows, assigned_columns(assignments, plan.schema, alias), plan.schema)
    reads = reads_of(plan, condition)
    if by_columns:
        written = run_rewrite_job(
            plan, tuple(values), with_values(rows, {ROW_ADDRESS: ROW_ADDRESS, **values})
        )
        return with_rewrite_choice(partial(commit_rewrite, plan, *written, reads=reads), choice)
    changed_row = {CLAUSE: "0", CHANGED_ROW_ID: ROW_ID, CHANGED_ADDRESS: ROW_ADDRESS}
    changes = with_values(rows, {**changed_row, **values})
    clause = Clause(RowAction.UPDATE, tuple(values))
    done = run_changes(SparkStages(spark), plan, (clause,), changes)
    return with_rewrite_choice(
        prepare_commit(replace(done, assigned=frozenset(values), reads=reads)), choice
    )


def _matching(
    spark: SparkSession,
    plan: DmlPlan,
    condition: Expression | None,
    assignments: Mapping[str, Expression],
    alias: str,
    *system: str,
) -> DataFrame:
    """Scan the changed rows: the columns that the values depend on, and some system columns."""
    texts = [*assignments.values(), *map(quote_name, struct_columns(assignments, plan.schema))]
    conditions = [] if condition is None else [condition]
    named = named_columns([*texts, *conditions], readable_columns(plan.schema))
    columns = [*(name for name in named if name not in system), *system]
    rows = pinned_scan(spark, plan, columns, pushable_filter(condition, plan.schema)).alias(alias)
    refuse_trailing_aliases(rows, [condition, *assignments.values()])
    return rows if condition is None else rows.where(as_column(condition))


def _count(rows: DataFrame) -> dict[int, int]:
    """Count rows by fragment id."""
    fragment = sf.shiftright(sf.col(ROW_ADDRESS), 32).alias("fragment")
    counts = rows.groupBy(fragment).agg(sf.count("*").alias("changed")).collect()
    return {row["fragment"]: row["changed"] for row in counts}


def struct_columns(assignments: Mapping[str, Expression], schema: LanceSchema) -> list[str]:
    """Return the columns of which only fields are assigned; their other fields are needed, too."""
    targets = AssignedTargets(schema)
    return [column for column, *members in map(targets.of, assignments) if members]


def assigned_columns(
    assignments: Mapping[str, Expression], schema: LanceSchema, alias: str | None
) -> dict[str, Expression]:
    """Return values of whole columns; an assigned field of a struct becomes a value of the struct.

    Without an ``alias`` of the table the row is new, and the other fields are null.
    """
    targets = AssignedTargets(schema)
    values: dict[str, Expression] = {}
    partly: set[str] = set()
    for key, expression in assignments.items():
        name, *members = targets.of(key)
        if name in values and not (members and name in partly):
            raise InvalidInputError(f"the column {name!r} is set twice")
        if not members:
            values[name] = name_or_column(expression)
            continue
        partly.add(name)
        field = next(field for field in schema.fields if field.name == name)
        kind = spark_field(logical_field(field, binary_blobs=True)).dataType
        own = sf.lit(None).cast(kind) if alias is None else sf.col(quote_name(alias, name))
        whole = as_column(values.get(name, own))
        values[name] = with_member(whole, kind, members, as_column(expression), key)
    return values


def with_member(
    whole: Column, kind: DataType, path: Sequence[str], value: Column, key: str
) -> Column:
    """Replace the field at ``path`` of a struct; a null struct becomes one that is not null."""
    first, *rest = path
    known = kind.fields if isinstance(kind, StructType) else []
    chosen = find_named(known, first)
    if chosen is None:
        raise InvalidInputError(
            f"there is no field {first!r} to set: {key!r}",
            hint=f"the fields are {', '.join(member.name for member in known) or 'none'}",
        )
    members = []
    for member in known:
        part = whole.getField(member.name)
        if member is chosen:
            part = with_member(part, member.dataType, rest, value, key) if rest else value
        members.append(part.alias(member.name))
    return sf.struct(*members)


class AssignedTargets:
    """Resolve the keys of ``set`` in a table."""

    def __init__(self, schema: LanceSchema) -> None:
        self._columns = spellings(field.name for field in schema.fields)

    def of(self, key: str) -> tuple[str, ...]:
        """Return the column of a key, and the path to a field in it.

        Raises InvalidInputError: there is no such column.
        """
        columns = self._columns
        if (column := columns.find_name(key)) is not None:
            return (column,)
        first, *members = name_parts(key)
        if (column := columns.find_name(first)) is not None:
            return (column, *members)
        # After the table's alias.
        if members and (column := columns.find_name(members[0])) is not None:
            return (column, *members[1:])
        raise InvalidInputError(
            f"there is no column {key!r} to set", hint=name_hint(key, list(columns))
        )


def delete_once(
    spark: SparkSession, plan: DmlPlan, condition: Expression | None, alias: str
) -> PreparedCommit:
    """Run one attempt, except its commit; None deletes all rows."""
    if condition is None:
        return prepare_commit(delete_everything(plan, "true"))
    named = named_columns([condition], readable_columns(plan.schema))
    columns = [*(name for name in named if name != ROW_ADDRESS), ROW_ADDRESS]
    rows = pinned_scan(spark, plan, columns, pushable_filter(condition, plan.schema)).alias(alias)
    refuse_trailing_aliases(rows, [condition])
    changes = rows.where(as_column(condition)).select(
        sf.lit(0).alias(CLAUSE), sf.col(ROW_ADDRESS).alias(CHANGED_ADDRESS)
    )
    done = run_changes(SparkStages(spark), plan, (Clause(RowAction.DELETE),), changes)
    text = sql_text(condition) or str(condition)
    reads = reads_of(plan, condition)
    return prepare_commit(replace(done, only_deletes=True, reads=reads, description=text))


_MAX_BUCKETS = 512
# At most this many filters, of up to 2 MB each, are sent to the driver; executors merge more.
_SMALL_FILTER_COUNT = 8


def pinned_scan(
    spark: SparkSession, plan: DmlPlan, columns: Sequence[str], condition: str | None = None
) -> DataFrame:
    """Scan columns, which may be lineage columns, of the version that the plan pins.

    ``columns``: at least one; ``condition``: prunes rows; others may still be returned.
    """
    options = storage_options_of(plan.table)
    options["version"] = str(plan.read_version)
    options["columns"] = ",".join(quote_name(name) for name in columns)
    if condition is not None:
        options["filter"] = condition
    return spark.read.format("lance").options(**options).load(plan.table.uri)


class SparkStages:
    """Runner of stages as Spark tasks; rows are a DataFrame."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(
        self,
        rows: DataFrame,
        work: Stage,
        schema: pa.Schema,
        *,
        numbered: bool = False,
        packed: bool = True,
    ) -> DataFrame:
        """See ``StageRunner.run``."""
        task = numbered_stage(work) if numbered else stage(work)
        # The names of the columns would take a request on Spark Connect.
        mapped = map_in_arrow if packed else map_rows
        return mapped(rows, task, _ddl(schema))

    def run_over(self, tasks: Sequence[Any], work: Stage, schema: pa.Schema) -> DataFrame:
        """See ``StageRunner.run_over``."""
        return over_tasks(self._spark, tasks, work, _ddl(schema))

    def repartition(
        self, rows: DataFrame, column: str, *, order: str | None = None, tasks: int | None = None
    ) -> DataFrame:
        """See ``StageRunner.repartition``."""
        spread = rows.repartition(column) if tasks is None else rows.repartition(tasks, column)
        return spread if order is None else spread.sortWithinPartitions(order)

    def rebalance(self, rows: DataFrame, column: str) -> DataFrame:
        """See ``StageRunner.rebalance``."""
        if self._spark.conf.get("spark.sql.adaptive.enabled") != "true":
            # There Spark warns of the hint, and leaves the rows where they are.
            return self.repartition(rows, column, order=column)
        return rows.hint("rebalance", sf.col(column)).sortWithinPartitions(column)

    def union(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """See ``StageRunner.union``."""
        return rows.union(others)

    def source_and_keys(self, staged: DataFrame) -> tuple[DataFrame, KeyFilter | None]:
        """See ``StageRunner.source_and_keys``."""
        # The job that collects the filter fills the checkpoint.
        staged = staged.localCheckpoint(eager=False)
        parts = staged.where(sf.col(KIND) == FILTER).select(PAYLOAD)
        keys = collect_filter(parts, unite_first=_num_partitions(staged) > _SMALL_FILTER_COUNT)
        return staged.where(sf.col(KIND) == SOURCE), keys

    def collect(self, rows: DataFrame, *columns: str) -> Iterable[tuple[Any, ...]]:
        """See ``StageRunner.collect``."""
        return rows.select(*columns).collect()

    def num_buckets(self) -> int:
        """Return the number of shuffle partitions."""
        requested = self._spark.conf.get("spark.sql.shuffle.partitions") or "200"
        return max(1, min(_MAX_BUCKETS, int(requested)))


def _ddl(schema: pa.Schema) -> str:
    """Return the columns of a stage as DDL."""
    types = {pa.int64(): "bigint", pa.int32(): "int", pa.binary(): "binary"}
    return ", ".join(f"{field.name} {types[field.type]}" for field in schema)


def _num_partitions(frame: DataFrame) -> float:
    """Return the number of partitions; infinite if unknown, on Connect or without RDD access."""
    try:
        return frame.rdd.getNumPartitions()
    except Exception:  # noqa: BLE001 - each kind of session raises another error
        return math.inf
