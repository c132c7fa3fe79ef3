"""ALTER TABLE of SQL: the changes of columns that Spark parsed, as ``LanceTable`` makes them.

All in the one process that the JVM companion asks; each change is one version.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.spark.expressions import quoted
from pyspark_lance.spark.types.write_schema import stored_schema
from pyspark_lance.table.columns.change_columns import (
    add_null_columns,
    change_nullability,
    drop_columns,
    rename_column,
    set_metadata,
    widen_column,
)
from pyspark_lance.table.columns.local_columns import copied, has_nulls
from pyspark_lance.table.columns.schema_change import find_field
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.commit_settings import CommitSettings

_COMMENT = "comment"


def alter_table(table: Table, text: str, settings: CommitSettings) -> None:
    """Makes the changes in ``text``, a list of objects named after Spark's ``TableChange``.

    Columns that are added together become one version, and so do columns that are dropped.

    Raises:
        UnsupportedFeatureError: A change that Lance tables do not have.
        InvalidInputError: A change that does not fit the table.
    """
    changes: list[dict[str, Any]] = json.loads(text)
    columns = _Columns(table, settings)
    for one in changes:
        if one["kind"] not in _CHANGES:
            raise UnsupportedFeatureError(
                f"ALTER TABLE with {one['kind']} is not supported",
                hint=f"supported: {', '.join(_CHANGES)}",
            )
    for kind, change in _CHANGES.items():
        chosen = [one for one in changes if one["kind"] == kind]
        if chosen:
            change(columns, chosen)


class _Columns:
    def __init__(self, table: Table, settings: CommitSettings) -> None:
        self._table = table
        self._settings = settings

    def add(self, changes: list[dict[str, Any]]) -> None:
        for one in changes:
            if len(one["column"]) > 1 or one["placed"]:
                raise UnsupportedFeatureError(
                    "new columns come last, and are no fields of structs",
                    where=quoted(*one["column"]),
                    hint="leave out FIRST and AFTER; a write with mergeSchema adds fields",
                )
        schema = pa.schema([_arrow_field(one) for one in changes])
        add_null_columns(self._table, schema, self._settings)
        self.comment([one for one in changes if one.get(_COMMENT)])

    def drop(self, changes: list[dict[str, Any]]) -> None:
        there = [one for one in changes if not one["ifExists"] or self._has(one["column"])]
        if there:
            names = [quoted(*one["column"]) for one in there]
            drop_columns(self._table, names, self._settings)

    def _has(self, column: list[str]) -> bool:
        try:
            find_field(Snapshot.open(self._table).schema, quoted(*column))
        except InvalidInputError:
            return False
        return True

    def rename(self, changes: list[dict[str, Any]]) -> None:
        for one in changes:
            rename_column(self._table, quoted(*one["column"]), one["name"], self._settings)

    def retype(self, changes: list[dict[str, Any]]) -> None:
        for one in changes:
            name, kind = quoted(*one["column"]), _arrow_field(one).type
            run = copied(one["column"][-1])
            widen_column(self._table, name, kind, run, self._settings)

    def allow_null(self, changes: list[dict[str, Any]]) -> None:
        for one in changes:
            change_nullability(
                self._table,
                quoted(*one["column"]),
                nullable=one["nullable"],
                has_nulls=has_nulls,
                settings=self._settings,
            )

    def comment(self, changes: list[dict[str, Any]]) -> None:
        notes = {quoted(*one["column"]): {_COMMENT: one[_COMMENT] or None} for one in changes}
        if notes:
            set_metadata(self._table, columns=notes, settings=self._settings)


_CHANGES = {
    "RenameColumn": _Columns.rename,
    "UpdateColumnType": _Columns.retype,
    "UpdateColumnNullability": _Columns.allow_null,
    "UpdateColumnComment": _Columns.comment,
    "DeleteColumn": _Columns.drop,
    "AddColumn": _Columns.add,
}


def _arrow_field(change: dict[str, Any]) -> pa.Field:
    """The column of a change, in the type in which its values are stored."""
    nullable = change.get("nullable", True)
    field = {"name": change["column"][-1], "nullable": nullable, "metadata": {}}
    given = StructType.fromJson(
        {"type": "struct", "fields": [{**field, "type": json.loads(change["type"])}]}
    )
    stored = stored_schema(given, {}, existing=None, overwrite=False).field(0)
    return stored.with_nullable(nullable)
