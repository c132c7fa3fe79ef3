"""Compute schemas with added, dropped, renamed or widened columns; no I/O.

A column is identified by its field id: renaming keeps the id, another type gets a new id.

Source: docs/format/table-format.md, sections 3.3, 3.4, 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from pyspark_lance.errors import (
    CommitConflictError,
    ConflictReason,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.column_names import (
    differ_by_case_error,
    find_named,
    match_names,
    name_hint,
    sources_of,
)
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.schema import RESERVED_NAMES, LanceSchema, dotted_name_error
from pyspark_lance.predicate.name_parts import name_parts
from pyspark_lance.predicate.types import type_name
from pyspark_lance.table.rows.conform import fits
from pyspark_lance.table.rows.convert_parts import table_schema


def next_field_id(manifest: Manifest) -> int:
    """Return the first field id that neither the schema nor a data file of this version uses."""
    highest = max(manifest.schema.max_field_id, manifest.max_allocated_field_id or -1)
    # Most tables have few distinct field lists.
    lists = {file.fields for fragment in manifest.fragments for file in fragment.files}
    return max([highest, *(max(fields, default=-1) for fields in lists)]) + 1


# Finding -----------------------------------------------------------------------------------


def split_path(text: str) -> tuple[str, ...]:
    """Split ``a.b`` into names; a quoted name may contain dots and doubled backquotes."""
    names = name_parts(text)
    if text.count("`") % 2 or not all(names):
        raise InvalidInputError(
            f"{text!r} is not a column name", hint="put a name with other signs into `backquotes`"
        )
    return names


def find_field(schema: LanceSchema, path: str) -> tuple[Field, ...]:
    """Return the fields from the top-level column down to ``path``.

    A column whose name equals the whole ``path`` has priority. List items are named ``element`` (or
    by their own name), those of a map ``key`` and ``value``.
    """
    whole = find_named(schema.fields, path)
    if whole is not None:
        return (whole,)
    fields: list[Field] = []
    candidates = schema.fields
    for name in split_path(path):
        match = find_named(candidates, name)
        if match is None and fields and fields[-1].is_list and name.lower() == "element":
            match = fields[-1].children[0]
        if match is None:
            where = f" in {'.'.join(field.name for field in fields)!r}" if fields else ""
            raise InvalidInputError(
                f"there is no column {name!r}{where}",
                hint=name_hint(name, [candidate.name for candidate in candidates]),
            )
        fields.append(match)
        candidates = match.children
        if match.is_map:
            candidates = match.children[0].children
    return tuple(fields)


# Editing -----------------------------------------------------------------------------------


def with_field(
    schema: LanceSchema, field_id: int, change: Callable[[Field], Field | None]
) -> LanceSchema:
    """Return the schema with one field changed or, for None, removed, at any depth."""

    def edited(field: Field) -> Field | None:
        if field.id == field_id:
            return change(field)
        children = tuple(child for child in map(edited, field.children) if child is not None)
        return field if children == field.children else replace(field, children=children)

    fields = tuple(field for field in map(edited, schema.fields) if field is not None)
    return replace(schema, fields=fields)


def without_fields(schema: LanceSchema, paths: Iterable[str]) -> LanceSchema:
    """Return the schema without the named columns or struct fields."""
    for path in paths:
        *parents, field = find_field(schema, path)
        if any(parent.is_list or parent.is_map for parent in parents[-1:]):
            raise InvalidInputError(f"{path!r} is all that the column consists of; drop the column")
        if parents and len(parents[-1].children) == 1:
            raise InvalidInputError(
                f"{path!r} is the only field of its struct", hint="drop the struct"
            )
        for parent in parents:
            if parent.is_packed or parent.is_blob:
                raise InvalidInputError(
                    f"{path!r} cannot be dropped: {parent.name!r} is stored as a whole"
                )
        for part in field.walk():
            if part.unenforced_primary_key or part.unenforced_clustering_key_position:
                raise InvalidInputError(
                    f"{path!r} is part of the table's key, which cannot be changed once set"
                )
        schema = with_field(schema, field.id, lambda _: None)
    if not schema.fields:
        raise InvalidInputError("a table needs at least one column")
    return schema


def with_renamed(
    schema: LanceSchema, path: str, new_name: str, *, case_sensitive: bool
) -> LanceSchema:
    """Return the schema with the last name of ``path`` replaced."""
    *parents, field = find_field(schema, path)
    if any(parent.is_list or parent.is_map for parent in parents[-1:]):
        raise InvalidInputError(f"{path!r} is an item of a list or map, which cannot be renamed")
    siblings = parents[-1].children if parents else schema.fields
    others = [sibling.name for sibling in siblings if sibling.id != field.id]
    check_new_name(new_name, top=not parents)
    check_new_columns([new_name], others, case_sensitive=case_sensitive)
    return with_field(schema, field.id, lambda old: replace(old, name=new_name))


def check_new_name(name: str, *, top: bool) -> None:
    """Reject a name that is reserved or ambiguous in SQL."""
    if not name:
        raise InvalidInputError("a column has an empty name", hint="give it a name")
    if top and "." in name:
        raise dotted_name_error(name)
    if name.lower() in RESERVED_NAMES:
        raise InvalidInputError(f"the column name {name!r} is reserved for row lineage")


def check_new_columns(new: Sequence[str], known: Sequence[str], *, case_sensitive: bool) -> None:
    """Reject existing names; unless case sensitive, also names that differ only by case."""
    taken = list(known)
    for name in new:
        twin = next((other for other in taken if other.lower() == name.lower()), None)
        if name in taken:
            raise InvalidInputError(f"there is a column {name!r} already")
        if twin is not None and not case_sensitive:
            raise differ_by_case_error(twin, name)
        taken.append(name)


def with_columns(
    schema: LanceSchema, columns: pa.Schema, first_id: int, *, case_sensitive: bool
) -> LanceSchema:
    """Return the schema with new columns at the end; their ids start at ``first_id``."""
    for name in columns.names:
        check_new_name(name, top=True)
    known = [field.name for field in schema.fields]
    check_new_columns(columns.names, known, case_sensitive=case_sensitive)
    added = LanceSchema.from_arrow(columns.remove_metadata(), first_id)
    return replace(schema, fields=(*schema.fields, *added.fields))


def with_member(
    schema: LanceSchema,
    parent: str,
    member: pa.Field,
    first_id: int,
    *,
    file_version: str,
    case_sensitive: bool,
) -> LanceSchema:
    """Return the schema with a new field, null in every row, in the struct ``parent``."""
    parents = find_field(schema, parent)
    known = [child.name for child in parents[-1].children]
    check_new_columns([member.name], known, case_sensitive=case_sensitive)
    for field in reversed(parents):
        member = pa.field(field.name, pa.struct([member]))
    return merge_schemas(
        schema,
        pa.schema([member]),
        first_id,
        file_version=file_version,
        exact=True,
        case_sensitive=case_sensitive,
    )


# Merging -----------------------------------------------------------------------------------


def merge_schemas(
    table: LanceSchema,
    data: pa.Schema,
    first_id: int,
    *,
    file_version: str,
    exact: bool = False,
    case_sensitive: bool = True,
) -> LanceSchema:
    """Return the table's schema with additional columns and struct fields of ``data``.

    ``exact``: match names case-sensitively; ``case_sensitive``: new names may differ from existing
    ones only by case.

    New fields are nullable and appended; old rows read them as null. Types never change, as that
    would require rewriting files.
    """
    merger = _SchemaMerger(first_id, file_version, exact=exact, case_sensitive=case_sensitive)
    return merger.merge(table, data)


class _SchemaMerger:
    def __init__(
        self, first_id: int, file_version: str, *, exact: bool, case_sensitive: bool
    ) -> None:
        self._next_id = first_id
        self._file_version = file_version
        self._exact = exact
        self._case_sensitive = case_sensitive

    def merge(self, table: LanceSchema, data: pa.Schema) -> LanceSchema:
        fields = self._children(table.fields, list(data), "")
        return table if fields == table.fields else replace(table, fields=fields)

    def _children(
        self, known: tuple[Field, ...], given: list[pa.Field], path: str
    ) -> tuple[Field, ...]:
        own = {child.name: child for child in known}
        names = [arrow.name for arrow in given]
        pairs = {name: name for name in own} if self._exact else match_names(names, own)
        others = [name for name in names if name not in pairs]
        check_new_columns(others, list(own), case_sensitive=self._case_sensitive)
        changed: dict[str, Field] = {}
        new: list[Field] = []
        for arrow in given:
            name = pairs.get(arrow.name)
            if name is None:
                new.append(self._new(arrow, top=not path))
            else:
                changed[name] = self._merge(own[name], arrow.type, f"{path}{name}")
        return (*(changed.get(child.name, child) for child in known), *new)

    def _new(self, arrow: pa.Field, *, top: bool) -> Field:
        if top:
            check_new_name(arrow.name, top=True)
        made = pa.schema([arrow.with_name("new").with_nullable(True)])
        schema = table_schema(made, self._file_version, self._next_id)
        self._next_id = schema.max_field_id + 1
        return replace(schema.fields[0], name=arrow.name)

    def _merge(self, field: Field, given: pa.DataType, path: str) -> Field:
        if field.is_struct and pa.types.is_struct(given):
            if field.is_packed or field.is_blob:
                return self._compatible(field, given, path)
            members = [given.field(index) for index in range(given.num_fields)]
            children = self._children(field.children, members, f"{path}.")
            return field if children == field.children else replace(field, children=children)
        return self._compatible(field, given, path)

    def _compatible(self, field: Field, given: pa.DataType, path: str) -> Field:
        own = field.to_arrow().type
        if not fits(given, field):
            raise SchemaMismatchError(
                f"the column {path!r} is {type_name(given)}, which does not fit the table's "
                f"{type_name(own)}",
                hint="cast the column to the table's type, or widen the table's with changeColumn",
            )
        return field


def check_null_columns(before: LanceSchema, after: LanceSchema, file_version: str) -> None:
    """Reject new columns that cannot be null in existing rows."""
    if file_version != "2.0":
        return
    known = {field.id for field in before.walk()}

    def check(fields: Iterable[Field]) -> None:
        for field in fields:
            if field.is_struct and field.id not in known:
                raise UnsupportedFeatureError(
                    f"the column {field.name!r} would be null in rows that exist, and files of "
                    "version 2.0 hold no null structs",
                    hint="overwrite the table with fileFormatVersion 2.1, or add the column with "
                    "a value for every row",
                )
            if field.is_struct:
                check(field.children)

    check(after.fields)


# Data and table ----------------------------------------------------------------------------


def match_columns(table: LanceSchema, data: pa.Schema) -> LanceSchema:
    """Return the table's fields that ``data`` has, in the table's order."""
    known = [field.name for field in table.fields]
    names = sources_of(known, data.names)
    used = set(names.values())
    for name in data.names:
        if name not in used:
            raise SchemaMismatchError(
                f"the data have a column {name!r}, which the table does not have",
                hint=f"the table's columns are {', '.join(known)}; an append with the option "
                "mergeSchema = true adds new ones",
            )
    chosen = []
    for field in table.fields:
        if field.name not in names:
            if not field.nullable:
                raise SchemaMismatchError(
                    f"the data lack the column {field.name!r}, which must not be null"
                )
            continue
        source = data.field(names[field.name]).type
        target = field.to_arrow().type
        if not fits(source, field):
            raise SchemaMismatchError(
                f"the column {field.name!r} is {type_name(source)}, which does not fit the table's "
                f"{type_name(target)}",
                hint="cast the column to the table's type",
            )
        chosen.append(field)
    return LanceSchema(fields=tuple(chosen), metadata=table.metadata)


# Numbers in files --------------------------------------------------------------------------


def same_columns(written: LanceSchema, now: LanceSchema) -> Mapping[int, int]:
    """Map the id of each written field to the current id of the same column."""
    mapping: dict[int, int] = {}

    def pair(ours: Field, theirs: Field, path: str) -> None:
        if (ours.logical_type, len(ours.children)) != (theirs.logical_type, len(theirs.children)):
            raise _changed_error(path)
        mapping[ours.id] = theirs.id
        for mine, other in zip(ours.children, theirs.children, strict=True):
            if mine.name != other.name and not (ours.is_list or ours.is_map):
                raise _changed_error(path)
            pair(mine, other, path)

    by_name = {field.name: field for field in now.fields}
    for ours in written.fields:
        theirs = by_name.get(ours.name)
        if theirs is None or (ours.nullable and not theirs.nullable):
            raise _changed_error(ours.name)
        pair(ours, theirs, ours.name)
    return mapping


def _changed_error(column: str) -> CommitConflictError:
    return CommitConflictError(
        f"another commit changed the column {column!r} while data were written for it",
        hint="run the write again",
        conflict=ConflictReason.METADATA_CHANGED,
    )


def renumber_fields(fragment: Fragment, mapping: Mapping[int, int]) -> Fragment:
    """Return the fragment with other field ids; readers use the manifest's ids, not the file's."""
    if all(old == new for old, new in mapping.items()):
        return fragment
    files = tuple(file_with_field_ids(file, mapping) for file in fragment.files)
    return replace(fragment, files=files)


def file_with_field_ids(file: DataFile, mapping: Mapping[int, int]) -> DataFile:
    """Return the data file with other field ids."""
    return replace(file, fields=tuple(mapping.get(field, field) for field in file.fields))
