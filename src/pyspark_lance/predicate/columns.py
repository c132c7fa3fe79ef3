"""Resolution of column names in a condition against a schema."""

from __future__ import annotations

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import LONG_NAME, SYSTEM_COLUMNS, name_hint, named
from pyspark_lance.predicate.tree import Column
from pyspark_lance.predicate.types import spark_type_of


def resolve_column(path: tuple[str, ...], schema: pa.Schema) -> Column:
    """Return the column or struct field that ``path`` names."""
    lineage = [name for name in SYSTEM_COLUMNS if name not in schema.names]
    fields = [*schema, *(pa.field(name, pa.uint64()) for name in lineage)]
    field = _find_field(path[0], fields, "column")
    if field.name in SYSTEM_COLUMNS and pa.types.is_uint64(field.type):
        data_type = pa.int64()
    else:
        data_type = field.type
    names = [field.name]
    for name in path[1:]:
        if not pa.types.is_struct(data_type):
            raise InvalidInputError(
                f"{'.'.join(names)!r} is not a struct, so it has no field {_shown(name)}",
                hint="write a column name that contains a dot in `backquotes`",
            )
        field = _find_field(name, list(data_type), f"field of {'.'.join(names)}")
        data_type = field.type
        names.append(field.name)
    return Column(tuple(names), spark_type_of(data_type))


def _find_field(name: str, fields: list[pa.Field], what: str) -> pa.Field:
    field = named(fields, name)
    if field is not None:
        return field
    hint = name_hint(name, [field.name for field in fields])
    raise InvalidInputError(f"there is no {what} {_shown(name)}", hint=hint)


def _shown(name: str) -> str:
    """Return the name in quotes, truncated if very long."""
    return repr(name) if len(name) <= LONG_NAME else f"{name[:LONG_NAME]!r}…"
