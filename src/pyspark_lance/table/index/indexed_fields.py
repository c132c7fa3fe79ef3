"""Resolve indexed fields, and convert stored values to the type of predicates."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_type import to_plain
from pyspark_lance.format.logical_view import is_json_text
from pyspark_lance.predicate.prune import ColumnPath
from pyspark_lance.predicate.types import spark_type_of


def is_of_type(stored: pa.DataType, field: Field) -> bool:
    """Return whether bounds of a stored type apply to a field."""
    own = field.to_arrow().type
    return bool(stored == own) and not pa.types.is_dictionary(own)


def as_seen(ends: pa.Array, field: Field) -> pa.Array:
    """Convert bounds to the type of predicates."""
    seen = spark_type_of(ends.type)
    if seen != ends.type and getattr(ends.type, "unit", "") == "ns":
        # Truncating both bounds to microseconds keeps all microsecond values in between.
        return ends.cast(seen, safe=False)
    return to_plain(ends, seen, field.name)


def field_at(fields: Sequence[Field], path: ColumnPath) -> tuple[Field | None, bool]:
    """Return the flat field at a path, and whether it is below a nullable struct."""
    field, is_inside_struct = indexed_field_at(fields, path)
    return (None if field is not None and field.children else field), is_inside_struct


def indexed_field_at(fields: Sequence[Field], path: ColumnPath) -> tuple[Field | None, bool]:
    """Like ``field_at``, also for lists."""
    is_inside_struct = False
    for depth, name in enumerate(path):
        field = next((field for field in fields if field.name == name), None)
        if field is None or is_json_text(field) or field.logical_type == "json":
            return None, False
        if depth == len(path) - 1:
            return (None if field.is_struct else field), is_inside_struct
        if not field.is_struct:
            return None, False
        fields, is_inside_struct = field.children, True
    return None, False


def path_of(fields: Sequence[Field], field_id: int) -> tuple[str, ...]:
    """Return the path of a field; ``field <id>`` for an unknown id."""
    return _path_of(fields, field_id) or (f"field {field_id}",)


def _path_of(fields: Sequence[Field], field_id: int) -> tuple[str, ...]:
    for field in fields:
        if field.id == field_id:
            return (field.name,)
        inside = _path_of(field.children, field_id)
        if inside:
            return (field.name, *inside)
    return ()
