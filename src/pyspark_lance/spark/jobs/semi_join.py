"""Prune target rows of a merge that certainly have no match, by the keys of the source.

Spark cannot push a join into a Python source, so it would read and shuffle all rows of the target.
If the keys are plain columns, this first builds a small filter of the source's keys, so that the
scan only returns rows that may match.

Names of a DataFrame's columns are resolved here: an analysis that fails in Spark costs tens of
milliseconds, and a Connect server logs a long stack trace.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from pyspark_lance.codec.row_selection import filter_rows
from pyspark_lance.format.column_names import SYSTEM_COLUMNS, spellings
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import single_value
from pyspark_lance.predicate.name_parts import NameParts
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.tokens import on_one_table
from pyspark_lance.spark.expressions.column_expressions import (
    Expression,
    Kind,
    Node,
    conjuncts,
    equation,
)
from pyspark_lance.spark.expressions.expressions import (
    pushable_filter,
    quote_name,
    readable_columns,
)
from pyspark_lance.spark.jobs.stages import map_in_arrow
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.scan_rows import to_spark_batch
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.spark.types.spark_types import arrow_schema_of, narrow, spark_schema
from pyspark_lance.table.dml.key_filter import (
    KeyCollector,
    KeyFilter,
    hash_keys,
    is_hashable,
    keys_condition,
    same_hashes,
)
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_task import ScanTask

# A filter with more hits saves nothing.
_MAX_SHARE = 0.5


def collect_filter(parts: DataFrame, *, unite_first: bool) -> KeyFilter | None:
    """Merge the filters of all partitions; None if the result would not be selective.

    ``parts``: one filter per partition, in the binary column ``payload``; ``unite_first``: whether
    an executor merges them, if there are many.
    """
    if unite_first:
        parts = map_in_arrow(parts.repartition(1), _unite_filters, "payload binary")
    filters = (KeyFilter.of_bytes(bytes(row["payload"])) for row in parts.collect())
    together = reduce(KeyFilter.union, filters, KeyFilter.of([]))
    return together if together.share() <= _MAX_SHARE else None


def _unite_filters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    trim_worker_overhead()
    parts = (KeyFilter.of_bytes(one) for batch in batches for one in batch.column(0).to_pylist())
    first = next(parts, None)
    if first is not None:
        yield as_payload(reduce(KeyFilter.union, parts, first))


def as_payload(keys: KeyFilter) -> pa.RecordBatch:
    """Convert a filter to the row that ``collect_filter`` reads."""
    return pa.RecordBatch.from_pydict({"payload": single_value(keys.to_bytes(), pa.binary())})


# Matches all columns, also those with line breaks in their names.
_EVERY_NAME = "`(?s).*`"
# Fields by name in lower case.
_Fields = dict[str, list[StructField]]


class SourceNames:
    """The columns of a DataFrame, by name."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._fields = _by_name(frame.schema.fields)
        self._under: dict[str, _Fields] = {}

    def has_alias(self, alias: str) -> bool:
        """Return whether ``alias.*`` resolves, to an alias of columns or a struct."""
        own = _only(self._fields, alias)
        is_struct = own is not None and isinstance(own.dataType, StructType)
        return is_struct or bool(self._columns_under(alias))

    def find(self, parts: NameParts) -> StructField | None:
        """Return the column, or field of a struct, that a name resolves to; None if unknown.

        An alias takes precedence over a struct, as in Spark.
        """
        first, *others = parts
        if others and (column := _only(self._columns_under(first), others[0])) is not None:
            return _member(column, others[1:])
        column = _only(self._fields, first)
        return None if column is None else _member(column, others)

    def _columns_under(self, alias: str) -> _Fields:
        """Return the columns of an alias; a pattern without a match is no error in Spark."""
        key = alias.lower()
        if key not in self._under:
            pattern = self._frame.colRegex(f"{alias}.{_EVERY_NAME}")
            self._under[key] = _by_name(self._frame.select(pattern).schema.fields)
        return self._under[key]


def _by_name(fields: list[StructField]) -> _Fields:
    by_name: _Fields = {}
    for field in fields:
        by_name.setdefault(field.name.lower(), []).append(field)
    return by_name


def _only(fields: _Fields, name: str) -> StructField | None:
    """Return the field of this name; None if there is none or more than one."""
    matching = fields.get(name.lower(), [])
    return matching[0] if len(matching) == 1 else None


def _member(field: StructField, names: list[str]) -> StructField | None:
    """Return the nested field at a path; None unless all of its parents are structs."""
    for name in names:
        members = field.dataType.fields if isinstance(field.dataType, StructType) else []
        found = _only(_by_name(members), name)
        if found is None:
            return None
        field = found
    return field


# Below this, reading the whole target is cheaper than the two jobs that collect the keys.
MIN_TARGET_ROWS = 1_000_000
# Spark estimates the output of a function by its input; with this many rows it does not plan a
# broadcast before it knows the size.
_PRETENDED_ROWS = 4_000_000
# Keys and addresses of this many rows take about 10 MB, Spark's default broadcast threshold.
_MAX_BROADCAST_ROWS = 300_000
_KEY = "__lance_key_"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """One ``target column = source column`` of a merge condition.

    ``source``: the source column, with its qualifier.
    """

    target: str
    source: NameParts

    def source_column(self) -> Column:
        """Return the source column for Spark."""
        return sf.col(quote_name(*self.source))


def equal_sides(conjunct: Node, alias: str, names: Sequence[str]) -> KeyPair | None:
    """Return the columns of a conjunct that is an equality of a target and a source column."""
    sides = equation(conjunct)
    if sides is None:
        return None
    columns = spellings(names)
    for target, source in (sides, sides[::-1]):
        column = columns.find_name(target[-1])
        is_source = len(source) == 1 or source[0].lower() != alias.lower()
        if len(target) == 2 and target[0].lower() == alias.lower() and column and is_source:
            return KeyPair(column, source)
    return None


def usable_pairs(plan: DmlPlan, source: DataFrame, pairs: Sequence[KeyPair]) -> tuple[KeyPair, ...]:
    """Return the pairs whose two sides have comparable hashes."""
    types = {field.name: field.to_arrow().type for field in plan.schema.fields}
    names = SourceNames(source)
    usable = []
    for pair in pairs:
        column = names.find(pair.source)
        if column is None:
            continue
        data_type = arrow_schema_of(StructType([column])).field(0).type
        plain = column.dataType.simpleString()  # strings with a collation compare differently
        if (
            is_hashable(data_type)
            and same_hashes(data_type, types[pair.target])
            and "collate" not in plain
        ):
            usable.append(pair)
    return tuple(usable)


def source_keys(source: DataFrame, pairs: Sequence[KeyPair]) -> KeyFilter | None:
    """Build the filter of the source's keys; None if it would not be selective."""
    keys = source.select(*(p.source_column().alias(f"{_KEY}{i}") for i, p in enumerate(pairs)))
    return collect_filter(map_in_arrow(keys, _hash_keys, "payload binary"), unite_first=True)


def _hash_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    trim_worker_overhead()
    collected = KeyCollector()
    for batch in batches:
        if batch.num_rows:
            collected.add(batch.columns)
    keys = collected.result()
    if keys is not None:
        yield as_payload(keys)


def scan_of_keys(
    spark: SparkSession,
    plan: DmlPlan,
    columns: Sequence[str],
    pairs: Sequence[KeyPair],
    keys: KeyFilter,
    condition: str | None = None,
) -> DataFrame:
    """Scan columns of the target rows whose keys may be in ``keys``.

    ``columns``: columns of the table, including the keys, and lineage columns, in any order.
    ``condition``: an additional filter.
    """
    snapshot = plan.snapshot()
    names = [name for name in columns if name not in SYSTEM_COLUMNS]
    system = tuple(name for name in SYSTEM_COLUMNS if name in columns)
    shown = spark_schema(project(snapshot.schema, names), system)
    schema, _ = narrow(snapshot.schema, shown)
    every = predicate_schema(snapshot.schema)
    predicate = None if condition is None else parse_predicate(condition, every)
    targets = tuple(pair.target for pair in pairs)
    request = ScanRequest(
        schema=schema,
        system_columns=system,
        predicate=predicate,
        narrowed_by=keys_condition(snapshot, targets, keys),
    )
    tasks = plan_scan(snapshot, request)
    packed = tuple(map(pickle.dumps, tasks))
    read = partial(_matching, packed, targets, keys.without_values(), shown)
    count = max(1, len(tasks))
    each = max(1, _PRETENDED_ROWS // count)
    numbers = spark.range(0, count * each, 1, count).where(sf.col("id") % each == 0)
    ids = numbers.select((sf.col("id") / each).cast("bigint").alias("id"))
    rows = map_in_arrow(ids, read, shown).select(*(sf.col(quote_name(name)) for name in columns))
    # Evaluated now, as the number of rows decides whether the source is shuffled.
    rows = rows.localCheckpoint()
    return sf.broadcast(rows) if rows.count() <= _MAX_BROADCAST_ROWS else rows


@clean_iterator
def _matching(
    tasks: tuple[bytes, ...],
    names: tuple[str, ...],
    keys: KeyFilter,
    shown: StructType,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    trim_worker_overhead()
    target = arrow_schema_of(shown)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            if number >= len(tasks):
                continue
            task: ScanTask = pickle.loads(tasks[number])
            for rows in task.run():
                match = keys.may_contain(hash_keys([rows.column(name) for name in names]))
                if match.any():
                    yield to_spark_batch(filter_rows(rows, match), target)


@dataclass(frozen=True, slots=True)
class MergeCondition:
    """The known conjuncts of a condition."""

    pairs: tuple[KeyPair, ...]  # Columns that must be equal.
    # The conjuncts on the target alone, as a filter of our scan, if any.
    target_filter: str | None
    is_whole: bool


def parse_merge_condition(condition: Expression, alias: str, schema: LanceSchema) -> MergeCondition:
    """Parse the condition of a merge."""
    names = [field.name for field in schema.fields]
    pairs, filters, others = [], [], 0
    for conjunct in conjuncts(condition):
        pair = equal_sides(conjunct, alias, names)
        if pair is not None:
            pairs.append(pair)
            continue
        text = None
        if conjunct.kind is Kind.TEXT:
            alone = on_one_table(conjunct.words[0], alias, readable_columns(schema))
            text = None if alone is None else pushable_filter(alone, schema)
        if text is None:
            others += 1
        else:
            filters.append(text)
    wanted = " AND ".join(f"({text})" for text in filters) or None
    return MergeCondition(tuple(pairs), wanted, not others)
