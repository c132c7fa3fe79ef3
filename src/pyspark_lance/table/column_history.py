"""Which columns of two versions are the same column, and how to read one from the other.

A column keeps its field id through renames.  It gets another one when its type changes, and an
overwrite or the restoring of a version may give the ids of one column to another.  So columns are
followed from version to version; what a version does not have reads as null.

Source: table format, sections 3.5, 8.4, 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.format.field import Field
from pyspark_lance.format.operation import Overwrite, Restore
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.shown_form import shown_field
from pyspark_lance.metafile.manifest_file import list_versions, read_manifest
from pyspark_lance.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where the values of a column come from.

    Attributes:
        shown: The column as it is wanted.
        read: What is read for it; None if there is nothing.
    """

    shown: Field
    read: Field | None

    def column(self, found: pa.Array | None, num_rows: int) -> pa.Array:
        """The column, from what was read for ``read``."""
        kind = self.shown.to_arrow().type
        return pa.nulls(num_rows, kind) if found is None else _as_type(found, kind)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of one version.

    Attributes:
        schema: As stored.
        column_of: Field id -> number of the column.
        numbering: Versions of the same numbering mean the same by a field id.
    """

    schema: LanceSchema
    column_of: dict[int, int]
    numbering: int


class ColumnHistory:
    """Follows columns through the versions of a change feed."""

    def __init__(self) -> None:
        self._versions: dict[int, _Columns] = {}
        self._next_column = 0
        self._numberings = 0

    def follow(self, before: Snapshot | None, after: Snapshot) -> None:
        """Goes on to the next version that is there; None if there is none before it."""
        if not self._versions:
            first_one = before or after
            numbering = self._new_numbering()
            self._versions[first_one.version] = self._following(first_one.schema, {}, numbering)
        if before is None:
            return
        old = self._versions[before.version]
        if after.schema.fields == old.schema.fields:
            self._versions[after.version] = old
            return
        operation = None
        if after.version == before.version + 1:
            transaction = after.file.transaction()
            operation = None if transaction is None else transaction.operation
        ids_go_on = operation is not None and not isinstance(operation, Overwrite)
        if isinstance(operation, Restore):
            if operation.version in self._versions:
                self._versions[after.version] = self._versions[operation.version]
                return
            # It comes from before all versions that are known; the first of them is the nearest.
            first = min(self._versions)
            old = self._versions[first]
            ids_go_on = _numbering_goes_on(before, operation.version, first)
        same = (_same_by_id if ids_go_on else _same_by_name)(old.schema, after.schema)
        known = {new: old.column_of[one] for new, one in same.items()}
        numbering = old.numbering if ids_go_on else self._new_numbering()
        self._versions[after.version] = self._following(after.schema, known, numbering)

    def sources(self, wanted: Sequence[Field], end: int, version: int) -> tuple[ColumnSource, ...]:
        """Where ``version`` has the ``wanted`` columns of the version ``end``, as shown."""
        last, columns = self._versions[end], self._versions[version]
        field_of = {column: field_id for field_id, column in columns.column_of.items()}
        by_id = {field.id: field for field in columns.schema.fields}
        found = []
        for field in wanted:
            field_id = field_of.get(last.column_of[field.id])
            if field_id is None:
                read = None
            elif field_id == field.id and columns.numbering == last.numbering:
                # Its sub-fields are found by their ids, too.
                read = field
            else:
                read = shown_field(by_id[field_id])
            found.append(ColumnSource(field, read))
        return tuple(found)

    def _following(self, schema: LanceSchema, known: dict[int, int], numbering: int) -> _Columns:
        column_of = {}
        for field in schema.fields:
            if field.id not in known:
                self._next_column += 1
            column_of[field.id] = known.get(field.id, self._next_column)
        return _Columns(schema, column_of, numbering)

    def _new_numbering(self) -> int:
        self._numberings += 1
        return self._numberings


def _numbering_goes_on(snapshot: Snapshot, first: int, last: int) -> bool:
    """Whether field ids mean the same in two versions; False if that is not known.

    Asked when a version is restored from before the change feed begins, with other columns.
    """
    between = [
        location for location in list_versions(snapshot.store) if first < location.version <= last
    ]
    if first >= last or len(between) != last - first:
        return False
    for location in between:
        transaction = read_manifest(snapshot.store, location).transaction()
        if transaction is None or isinstance(transaction.operation, Overwrite):
            return False
        if isinstance(transaction.operation, Restore) and transaction.operation.version < first:
            return False
    return True


def _same_by_id(old: LanceSchema, new: LanceSchema) -> dict[int, int]:
    """New field id -> old one, where the numbering goes on."""
    old_ids, new_ids = ({field.id for field in schema.fields} for schema in (old, new))
    gone = {field.name: field.id for field in old.fields if field.id not in new_ids}
    # A column whose type changed is a new one in the place of the old one.
    return {
        field.id: field.id if field.id in old_ids else gone[field.name]
        for field in new.fields
        if field.id in old_ids or field.name in gone
    }


def _same_by_name(old: LanceSchema, new: LanceSchema) -> dict[int, int]:
    """New field id -> old one, where ids mean nothing."""
    named = {field.name: field.id for field in old.fields}
    return {field.id: named[field.name] for field in new.fields if field.name in named}


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in the type that the column has now; null where it does not hold them."""
    if values.type.equals(kind):
        return values
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        names = [member.name for member in values.type]
        members = [
            _as_type(values.field(names.index(member.name)), member.type)
            if member.name in names
            else pa.nulls(len(values), member.type)
            for member in kind
        ]
        mask = pc.is_null(values) if values.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(len(values), kind)
