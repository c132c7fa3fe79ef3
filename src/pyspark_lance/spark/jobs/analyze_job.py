"""Compute and store column statistics, in passes over all rows.

``LanceTable`` and the plugin evaluate the same expressions in their sessions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as kinds

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import by_name, name_hint
from pyspark_lance.format.operation import Operation, UpdateConfig, UpdateMap
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.table.scan.scan_statistics import outdated, statistics_entries
from pyspark_lance.table.unit_of_work import CommitSettings, MetadataResult, change_metadata
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_NUMBERS = (kinds.NumericType, kinds.BooleanType)
_TIMES = (kinds.DateType, kinds.TimestampType, kinds.TimestampNTZType)
_TEXTS = (kinds.StringType, kinds.BinaryType)

# Spark generates code for about fifty aggregate columns per distinct count. Two hundred counts at
# once take twice as long as in parts; a thousand exhaust the driver's memory.
_MAX_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class AnalysisPass:
    """One pass over all rows.

    ``columns``: the columns that it reads; ``expression``: a SQL expression that returns JSON.
    """

    columns: tuple[str, ...]
    expression: str


def plan_analysis(schema: kinds.StructType, columns: Sequence[str] | None) -> list[AnalysisPass]:
    """Plan the passes that analyze columns of a table, at least one.

    ``columns``: names; None for all columns with ordered types. Raises InvalidInputError: there is
    no such column, or its type has no order.
    """
    fields = _analyzed_fields(schema, columns)
    parts = [fields[at : at + _MAX_COLUMNS] for at in range(0, len(fields), _MAX_COLUMNS)]
    return [
        AnalysisPass(tuple(field.name for field in part), _aggregates(part))
        for part in parts or [[]]
    ]


def _aggregates(fields: Sequence[kinds.StructField]) -> str:
    columns_found = [
        f"{_text(field.name)}, named_struct({', '.join(_of_column(field))})" for field in fields
    ]
    parts = ["'rows', count(1)"]
    if columns_found:
        parts.append(f"'columns', named_struct({', '.join(columns_found)})")
    # A column of nulls has no bounds, and JSON leaves them out.
    return f"to_json(named_struct({', '.join(parts)}))"


def _analyzed_fields(
    schema: kinds.StructType, columns: Sequence[str] | None
) -> list[kinds.StructField]:
    known = (*_NUMBERS, *_TIMES, *_TEXTS)
    if columns is None:
        return [field for field in schema.fields if isinstance(field.dataType, known)]
    fields = by_name(schema.fields)
    chosen = []
    for name in columns:
        field = fields.get(name)
        if field is None:
            hint = name_hint(name, schema.names)
            raise InvalidInputError(f"there is no column {name!r}", hint=hint)
        if not isinstance(field.dataType, known):
            kind = field.dataType.simpleString()
            raise InvalidInputError(
                f"column {name!r} is {kind}, which has no statistics",
                hint="name columns of numbers, strings, dates or timestamps, or none for all",
            )
        chosen.append(field)
    return list({field.name: field for field in chosen}.values())


def _of_column(field: kinds.StructField) -> list[str]:
    name, kind = quote_name(field.name), field.dataType
    parts = [
        f"'num_nulls', count_if({name} IS NULL)", f"'num_distinct', approx_count_distinct({name})"
    ]  # fmt: skip
    if isinstance(kind, _TEXTS):
        size = f"octet_length({name})"
        return [
            *parts,
            f"'average_bytes', cast(ceil(avg({size})) AS bigint)",
            f"'most_bytes', max({size})",
        ]
    for end, function in (("minimum", "min"), ("maximum", "max")):
        value = f"{function}({name})"
        if isinstance(kind, kinds.DateType):
            value = f"unix_date({value})"
        elif isinstance(kind, kinds.TimestampType):
            value = f"unix_micros({value})"
        parts.append(f"'{end}', cast({value} AS string)")
    return parts


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def analyze_table(
    spark: SparkSession, table: Table, columns: Sequence[str] | None, settings: CommitSettings
) -> MetadataResult:
    """Compute and store the statistics of columns of the newest version; None for all."""
    snapshot = Snapshot.open(table)
    read = {**storage_options_of(table), "version": str(snapshot.version)}
    if table.branch is not None:
        read["branch"] = table.branch

    def rows(**options: str) -> DataFrame:
        return spark.read.format("lance").options(**read, **options).load(table.root)

    found = []
    for one in plan_analysis(rows().schema, columns):
        part = rows(columns=",".join(map(quote_name, one.columns))) if one.columns else rows()
        found.append(part.selectExpr(one.expression).collect()[0][0])
    return store_statistics(table, snapshot, found, settings)


def store_statistics(
    table: Table, snapshot: Snapshot, found: Sequence[str], settings: CommitSettings
) -> MetadataResult:
    """Store the statistics of the rows of ``snapshot``, in one version.

    ``found``: the JSON results of the passes.
    """
    results = [json.loads(text) for text in found]
    of_columns = {
        name: _as_constants(values)
        for one in results
        for name, values in one.get("columns", {}).items()
    }
    entries = statistics_entries(snapshot, of_columns, results[0]["rows"])

    def plan(newest: Snapshot) -> Operation | None:
        removed = [(key, None) for key in outdated(newest) if key not in entries]
        changes = (*entries.items(), *removed)
        return UpdateConfig(config_updates=UpdateMap(changes)) if changes else None

    return change_metadata(table, plan, settings)


def _as_constants(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert bounds to constants of conditions, without NaN."""
    words = dict(values)
    ends = [words.pop(end) for end in ("minimum", "maximum") if end in words]
    if len(ends) == 2:
        known = [_as_constant(end) for end in ends]
        if None not in known:
            words |= zip(("minimum", "maximum"), known, strict=True)
    return words


def _as_constant(text: str) -> str | bool | None:
    if text in ("true", "false"):
        return text == "true"
    if ":" in text:  # a timestamp without a time zone
        return str(np.datetime64(text, "us").astype(np.int64))
    return text if math.isfinite(float(text)) else None
