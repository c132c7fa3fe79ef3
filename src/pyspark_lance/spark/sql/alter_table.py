"""ALTER TABLE of SQL: apply the changes that Spark parsed, as ``LanceTable`` does.

This runs in the service of the JVM plugin; each change is one version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.logical_type import DEFAULT_KEY, SPARK_TYPE_KEY, declared_text
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.spark.options.option_table import check_properties
from pyspark_lance.spark.types.write_schema import stored_schema
from pyspark_lance.table.columns.change_columns import (
    NewMember,
    add_columns,
    add_null_columns,
    change_nullability,
    check_nullable,
    constants,
    copy_column,
    drop_columns,
    has_nulls,
    plan_widening,
    rename_column,
    set_metadata,
    set_primary_key,
    widen_column,
)
from pyspark_lance.table.columns.cluster_by import set_cluster_by
from pyspark_lance.table.columns.schema_change import find_field
from pyspark_lance.table.unit_of_work import CommitSettings, set_properties
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_COMMENT = "comment"
# The property that SET LOCATION sets.
_LOCATION = "location"


def alter_table(
    table: Table, changes: Sequence[Mapping[str, Any]], settings: CommitSettings
) -> None:
    """Apply changes, whose kinds are named after Spark's ``TableChange``.

    Columns and fields of structs that are added together become one version, as do columns that
    are dropped together.
    """
    columns = _Columns(table, settings)
    for change in changes:
        if change["kind"] not in _CHANGES:
            raise UnsupportedFeatureError(
                f"ALTER TABLE … {_in_sql(change['kind'])} is not supported",
                where=table.uri,
                hint=f"supported: {', '.join(map(_in_sql, _CHANGES))}",
            )
    columns.refuse_replacing(changes)
    for kind, apply in _CHANGES.items():
        chosen = [change for change in changes if change["kind"] == kind]
        if chosen:
            apply(columns, chosen)


class _Columns:
    def __init__(self, table: Table, settings: CommitSettings) -> None:
        self._table = table
        self._settings = settings

    def add_key(self, changes: Sequence[Mapping[str, Any]]) -> None:
        for change in changes:
            set_primary_key(self._table, change["columns"], self._settings)

    def cluster_by(self, changes: Sequence[Mapping[str, Any]]) -> None:
        for change in changes:
            set_cluster_by(self._table, change["columns"], settings=self._settings)

    def refuse_replacing(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Raise an error for REPLACE COLUMNS, which drops all columns and adds new ones."""
        if {change["kind"] for change in changes} != {"DeleteColumn", "AddColumn"}:
            return  # no other statement both drops and adds
        raise UnsupportedFeatureError(
            "REPLACE COLUMNS would drop the values of all columns, and is not supported",
            where=self._table.uri,
            hint="use ALTER TABLE … ADD COLUMNS, DROP COLUMNS or RENAME COLUMN; "
            "CREATE OR REPLACE TABLE creates the table again",
        )

    def _check_in_struct(self, column: list[str]) -> None:
        """Check that a new field is in a struct that is not within a list or a map."""
        parents = find_field(Snapshot.open(self._table).schema, quote_name(*column[:-1]))
        other = next((field for field in parents if not field.is_struct), None)
        if other is not None:
            kind = "a list" if other.is_list else "a map" if other.is_map else other.logical_type
            raise UnsupportedFeatureError(
                f"the column {other.name!r} is {kind}, and fields can only be added to structs "
                "that are not within a list or a map",
                where=f"{self._table.uri} {quote_name(*column)}",
                hint="add a column of the wanted type, fill it with an UPDATE, then DROP the old "
                "one and RENAME the new one",
            )

    def add(self, changes: Sequence[Mapping[str, Any]]) -> None:
        for change in changes:
            if change["placed"]:
                raise UnsupportedFeatureError(
                    "new columns come last",
                    where=quote_name(*change["column"]),
                    hint="leave out FIRST and AFTER",
                )
        nested = [change for change in changes if len(change["column"]) > 1]
        members = [self._member(change) for change in nested]
        columns = [change for change in changes if change not in nested]
        fields = [_arrow_field(change) for change in columns]
        values = [
            _constant(change.get("value"), field)
            for change, field in zip(columns, fields, strict=True)
        ]
        schema, is_filled = pa.schema(fields), [value.is_valid for value in values]
        # Null columns get stored values beside a default: one version adds all, in their order.
        if any(is_filled):
            check_nullable(
                field for field, is_set in zip(fields, is_filled, strict=True) if not is_set
            )
            add_columns(self._table, schema, constants(values), self._settings, members=members)
        else:
            add_null_columns(self._table, schema, self._settings, members=members)

    def _member(self, change: Mapping[str, Any]) -> NewMember:
        """Return the struct of a new field, and the field; check that rows can lack it."""
        self._check_in_struct(change["column"])
        field = _arrow_field(change)
        if change.get("sql") is not None:
            raise UnsupportedFeatureError(
                f"the field {field.name!r} of a struct cannot be added with a default",
                where=f"{self._table.uri} {quote_name(*change['column'])}",
                hint="add it without one, and fill it with an UPDATE",
            )
        check_nullable([field])
        return quote_name(*change["column"][:-1]), field

    def drop(self, changes: Sequence[Mapping[str, Any]]) -> None:
        there = [
            change for change in changes if not change["ifExists"] or self._has(change["column"])
        ]
        if there:
            names = [quote_name(*change["column"]) for change in there]
            drop_columns(self._table, names, self._settings)

    def _has(self, column: list[str]) -> bool:
        try:
            find_field(Snapshot.open(self._table).schema, quote_name(*column))
        except InvalidInputError:
            return False
        return True

    def rename(self, changes: Sequence[Mapping[str, Any]]) -> None:
        for change in changes:
            rename_column(
                self._table, quote_name(*change["column"]), change["name"], self._settings
            )

    def retype(self, changes: Sequence[Mapping[str, Any]]) -> None:
        fields = [_arrow_field(change) for change in changes]
        snapshot = Snapshot.open(self._table)
        for change, field in zip(changes, fields, strict=True):  # before a column is written
            plan_widening(snapshot, quote_name(*change["column"]), field.type)
        for change, field in zip(changes, fields, strict=True):
            name = quote_name(*change["column"])
            run = copy_column(change["column"][-1])
            widen_column(self._table, name, field.type, run, self._settings)
            declared = (field.metadata or {}).get(SPARK_TYPE_KEY.encode())
            if declared is not None or self._declared_type(change["column"]) is not None:
                kept = {SPARK_TYPE_KEY: None if declared is None else declared.decode()}
                set_metadata(self._table, columns={name: kept}, settings=self._settings)

    def _declared_type(self, column: list[str]) -> str | None:
        field = find_field(Snapshot.open(self._table).schema, quote_name(*column))[-1]
        return declared_text(field.metadata, SPARK_TYPE_KEY)

    def set_default(self, changes: Sequence[Mapping[str, Any]]) -> None:
        texts = {
            quote_name(*change["column"]): {DEFAULT_KEY: change["sql"] or None}
            for change in changes
        }
        set_metadata(self._table, columns=texts, settings=self._settings)

    def set_property(self, changes: Sequence[Mapping[str, Any]]) -> None:
        entries = {change["name"]: change["value"] for change in changes}
        if _LOCATION in entries:
            raise UnsupportedFeatureError(
                "the location of a table cannot be changed",
                where=self._table.uri,
                hint="name the other location by CREATE TABLE … USING lance LOCATION '…'",
            )
        check_properties(entries, Snapshot.open(self._table).schema.names, self._table.uri)
        set_properties(self._table, entries, self._settings)

    def allow_null(self, changes: Sequence[Mapping[str, Any]]) -> None:
        for change in changes:
            change_nullability(
                self._table,
                quote_name(*change["column"]),
                nullable=change["nullable"],
                has_nulls=has_nulls,
                settings=self._settings,
            )

    def comment(self, changes: Sequence[Mapping[str, Any]]) -> None:
        notes = {
            quote_name(*change["column"]): {_COMMENT: change[_COMMENT] or None}
            for change in changes
        }
        if notes:
            set_metadata(self._table, columns=notes, settings=self._settings)


_CHANGES = {
    "RenameColumn": _Columns.rename,
    "UpdateColumnType": _Columns.retype,
    "UpdateColumnNullability": _Columns.allow_null,
    "UpdateColumnComment": _Columns.comment,
    "DeleteColumn": _Columns.drop,
    "AddColumn": _Columns.add,
    "UpdateColumnDefaultValue": _Columns.set_default,
    "SetProperty": _Columns.set_property,
    "RemoveProperty": _Columns.set_property,
    "AddConstraint": _Columns.add_key,
    "ClusterBy": _Columns.cluster_by,
}
# The SQL of each ``TableChange`` of Spark.
_WORDS = {
    "RenameColumn": "RENAME COLUMN",
    "AddConstraint": "ADD CONSTRAINT … PRIMARY KEY",
    "UpdateColumnType": "ALTER COLUMN … TYPE",
    "UpdateColumnNullability": "ALTER COLUMN … DROP NOT NULL",
    "UpdateColumnComment": "ALTER COLUMN … COMMENT",
    "UpdateColumnPosition": "ALTER COLUMN … FIRST or AFTER",
    "DeleteColumn": "DROP COLUMN",
    "AddColumn": "ADD COLUMN",
    "UpdateColumnDefaultValue": "ALTER COLUMN … SET or DROP DEFAULT",
    "SetProperty": "SET TBLPROPERTIES",
    "RemoveProperty": "UNSET TBLPROPERTIES",
    "ClusterBy": "CLUSTER BY",
    "DropConstraint": "DROP CONSTRAINT",
}


def _in_sql(kind: str) -> str:
    return _WORDS.get(kind, kind)


def _arrow_field(change: Mapping[str, Any]) -> pa.Field:
    """Return the column of a change, in the type in which its values are stored."""
    notes = {"comment": change.get(_COMMENT), "CURRENT_DEFAULT": change.get("sql")}
    field = {
        "name": change["column"][-1],
        "nullable": change.get("nullable", True),
        "metadata": {name: value for name, value in notes.items() if value},
        "type": json.loads(change["type"]),
    }
    given = StructType.fromJson({"type": "struct", "fields": [field]})
    return stored_schema(given, {}, existing=None, overwrite=False, declared=True).field(0)


def _constant(value: Any, field: pa.Field) -> pa.Scalar:
    """Convert a default from Spark's value: days, microseconds, decimals as text."""
    kind = field.type
    if value is None:
        return pa.scalar(None, kind)
    types = pa.types
    if not (types.is_primitive(kind) or types.is_string(kind) or types.is_decimal(kind)):
        raise UnsupportedFeatureError(
            f"the column {field.name!r} cannot be added with a default of type {kind}",
            hint="add it without one, fill it with an UPDATE, then ALTER COLUMN … SET DEFAULT",
        )
    held = pa.scalar(value)
    if types.is_date32(kind):
        held = held.cast(pa.int32())
    return held.cast(kind)
