"""Resolve column names, including struct fields, and read their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import find_named, name_hint
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.scan.plan_scan import project
from pyspark_lance.table.scan.scan_task import ScanTask


def named_path(schema: LanceSchema, name: str) -> tuple[Field, ...]:
    """Return the fields on the path of a name; a struct field is ``struct.field``."""
    if any(field.name == name for field in schema.fields):
        return project(schema, [name]).fields
    first, *rest = name.split(".")
    path = list(project(schema, [first]).fields)
    for word in rest:
        below = find_named(path[-1].children, word) if path[-1].is_struct else None
        if below is None:
            raise InvalidInputError(
                f"the column {path[-1].name!r} has no field {word!r}",
                hint=name_hint(word, [child.name for child in path[-1].children]),
            )
        path.append(below)
    return tuple(path)


def path_to(fields: Sequence[Field], field_id: int) -> tuple[Field, ...] | None:
    """Return the fields on the path to a field id; None if there is no such field."""
    for own in fields:
        if own.id == field_id:
            return (own,)
        below = path_to(own.children, field_id) if own.is_struct else None
        if below is not None:
            return (own, *below)
    return None


def values_at(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """Return the values of a column, or of a struct field."""
    values = batch.column(path[0])
    for name in path[1:]:
        # A null struct has null fields.
        values = pc.struct_field(values, name)
    return values


def only_fragments(scans: Iterable[ScanTask], fragments: frozenset[int]) -> list[ScanTask]:
    """Restrict scans to some fragments."""
    kept = (
        (scan, tuple(part for part in scan.slices if part.fragment.id in fragments))
        for scan in scans
    )
    return [replace(scan, slices=slices) for scan, slices in kept if slices]
