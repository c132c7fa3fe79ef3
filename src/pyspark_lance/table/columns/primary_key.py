"""The unenforced primary key, stored in the table's fields.

Writes do not check it; concurrent merges on it do not insert the same key twice.

Source: docs/format/table-format.md, section 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.field import PRIMARY_KEY, PRIMARY_KEY_POSITION, Field
from pyspark_lance.format.operation import Operation, UpdateConfig, UpdateMap
from pyspark_lance.format.schema import LanceSchema, primary_key
from pyspark_lance.table.columns.change_columns import ColumnResult, commit_change
from pyspark_lance.table.columns.schema_change import find_field
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.commit_settings import CommitSettings


def set_primary_key(
    table: Table, columns: Sequence[str], settings: CommitSettings | None = None
) -> ColumnResult:
    """Set the primary key; commit nothing if it is unchanged.

    Raises InvalidInputError: the table has another key, or a column is missing, nested, nullable or
    repeated.
    """

    def operation(snapshot: Snapshot) -> Operation | None:
        schema, where = snapshot.schema, snapshot.uri
        known = primary_key(schema)
        if not columns:
            raise InvalidInputError("a primary key has at least one column", where)
        fields = [_check_column(schema, name, where) for name in columns]
        names = tuple(field.name for field in fields)
        if names == known:
            return None
        if known:
            raise InvalidInputError(
                f"the table has the primary key ({', '.join(known)}), which cannot be changed",
                where,
                "write the rows to a new table to give them another key",
            )
        if len(set(names)) < len(names):
            raise InvalidInputError("a column is named twice in the primary key", where)
        return UpdateConfig(
            field_metadata_updates={
                field.id: UpdateMap(((PRIMARY_KEY, "true"), (PRIMARY_KEY_POSITION, str(position))))
                for position, field in enumerate(fields, 1)
            }
        )

    return commit_change(table, operation, settings)


def _check_column(schema: LanceSchema, name: str, where: str) -> Field:
    """Return the column ``name`` if it can be part of a key."""
    path = find_field(schema, name)
    field = path[-1]
    if len(path) > 1 or field.children:
        raise InvalidInputError(
            f"{name!r} cannot be part of a primary key", where, "name columns that have no parts"
        )
    if field.nullable:
        raise InvalidInputError(
            f"column {name!r} of the primary key may be null",
            where,
            f"changeColumn({name!r}, nullable=False) of LanceTable first; SQL cannot do that",
        )
    return field
