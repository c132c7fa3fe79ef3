"""Resolve names of a DataFrame's columns without failing analyses in Spark.

A failed analysis costs tens of milliseconds, and a Connect server logs a long stack trace.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from pyspark_lance.predicate.name_parts import NameParts

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

    def named(self, parts: NameParts) -> StructField | None:
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
    alike = fields.get(name.lower(), [])
    return alike[0] if len(alike) == 1 else None


def _member(field: StructField, names: list[str]) -> StructField | None:
    """Return the nested field at a path; None unless all of its parents are structs."""
    for name in names:
        members = field.dataType.fields if isinstance(field.dataType, StructType) else []
        found = _only(_by_name(members), name)
        if found is None:
            return None
        field = found
    return field
