"""LanceSchema: the tree of fields of a table, its protobuf form and its Arrow form.

Source: docs/format/table-format.md, section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.column_names import name_hint
from pyspark_lance.format.field import BLOB_V2, LANCE_JSON, Field, key_positions, to_storage
from pyspark_lance.format.logical_type import (
    EXTENSION_NAME_KEY,
    informative_encoding,
    logical_type_of,
)
from pyspark_lance.proto import schema_pb2

TOP_LEVEL: Final = -1
"""Parent id of top-level fields."""

RESERVED_NAMES: Final = frozenset(
    ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")
)
"""Reserved names, which every table has as lineage columns."""

_MANAGED_BLOBS_KEY: Final = "lance.blob.managed"
# Id of the fields that describe a blob v2 column in the schema of a data file; not columns.
_PSEUDO_ID: Final = -1
_MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True)
class LanceSchema:
    """The columns of a table.

    ``fields``: top-level fields; ``metadata``: schema-level key/value pairs.
    """

    fields: tuple[Field, ...] = ()
    metadata: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    @property
    def manages_blobs(self) -> bool:
        """Return whether large blobs are objects of the table, which rows share when they move."""
        return self.metadata.get(_MANAGED_BLOBS_KEY) == b"true"

    @classmethod
    def from_protos(
        cls, messages: Iterable[schema_pb2.Field], metadata: Mapping[str, bytes] | None = None
    ) -> LanceSchema:
        """Build the tree from a depth-first list of fields.

        Pseudo fields of blob v2 columns (id -1) are omitted.
        """
        children: dict[int, list[schema_pb2.Field]] = {TOP_LEVEL: []}
        depth = {TOP_LEVEL: 0}
        for message in messages:
            if message.id == _PSEUDO_ID:
                continue
            if message.id in depth:
                raise CorruptFileError(f"two fields of the schema have the id {message.id}")
            if message.parent_id not in depth:
                raise CorruptFileError(
                    f"field {message.name!r} has the parent {message.parent_id}, "
                    "which is not an earlier field"
                )
            depth[message.id] = depth[message.parent_id] + 1
            if depth[message.id] > _MAX_DEPTH:
                raise CorruptFileError(f"the schema is nested deeper than {_MAX_DEPTH} levels")
            children[message.id] = []
            children[message.parent_id].append(message)

        def build(message: schema_pb2.Field) -> Field:
            below = tuple(build(child) for child in children[message.id])
            return Field.from_proto(message, below)

        top = tuple(build(message) for message in children[TOP_LEVEL])
        return cls(top, dict(metadata or {}))

    def to_protos(self) -> list[schema_pb2.Field]:
        """The fields depth first; the parent id of top-level fields is -1 and written."""
        messages: list[schema_pb2.Field] = []

        def add(field: Field, parent_id: int) -> None:
            messages.append(field.to_proto(parent_id))
            for child in field.children:
                add(child, field.id)

        for field in self.fields:
            add(field, TOP_LEVEL)
        return messages

    @classmethod
    def from_arrow(cls, schema: pa.Schema, first_id: int = 0) -> LanceSchema:
        """The schema for Arrow data, with new ids from ``first_id`` on, parents first."""
        for name in schema.names:
            if "." in name:
                raise dotted_name_error(name)
            if name in RESERVED_NAMES:
                raise InvalidInputError(
                    f"the column name {name!r} is reserved for row lineage",
                    hint="rename or drop the column",
                )
        _check_unique(schema.names, "")
        builder = _FieldBuilder(first_id)
        fields = tuple(builder.build(field, field.name) for field in schema)
        metadata = {
            key.decode("utf-8", "replace"): value for key, value in (schema.metadata or {}).items()
        }
        return cls(fields, metadata)

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema, of storage types."""
        fields = []
        for field in self.fields:
            try:
                fields.append(field.to_arrow())
            except LanceError as error:
                raise type(error)(f"column {field.name!r}: {error.what}", error.where) from error
        return pa.schema(fields, metadata=dict(self.metadata) or None)

    def walk(self) -> Iterator[Field]:
        """Yield every field, parents first."""
        for field in self.fields:
            yield from field.walk()

    def field_by_id(self, field_id: int) -> Field:
        """The field with this id, at any depth."""
        for field in self.walk():
            if field.id == field_id:
                return field
        raise InvalidInputError(f"the schema has no field with id {field_id}")

    def field(self, name: str) -> Field:
        """The top-level field with this name."""
        for field in self.fields:
            if field.name == name:
                return field
        raise InvalidInputError(f"there is no column {name!r}", hint=name_hint(name, self.names))

    def select(self, names: Sequence[str]) -> LanceSchema:
        """The top-level fields with these names, in the requested order."""
        return LanceSchema(tuple(self.field(name) for name in names), self.metadata)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the top-level fields."""
        return tuple(field.name for field in self.fields)

    @property
    def max_field_id(self) -> int:
        """The highest id in the schema; -1 if it is empty."""
        return max((field.id for field in self.walk()), default=-1)


class _FieldBuilder:
    """Builder of fields from Arrow fields; assigns their ids."""

    def __init__(self, first_id: int) -> None:
        self._next_id = first_id

    def build(self, arrow_field: pa.Field, path: str, depth: int = 1) -> Field:
        """Return the field for ``arrow_field``; ``path`` is for errors."""
        data_type, metadata = to_storage(arrow_field)
        extension = metadata.get(EXTENSION_NAME_KEY, b"").decode("utf-8", "replace")
        try:
            if depth > _MAX_DEPTH:
                raise UnsupportedFeatureError(f"types nest deeper than {_MAX_DEPTH} levels")
            logical = "json" if extension == LANCE_JSON else logical_type_of(_shape(data_type))
            if extension == BLOB_V2 and logical != "struct":
                raise UnsupportedFeatureError(f"a {BLOB_V2} value is a struct, not {data_type}")
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(
                f"column {path!r}: {error.what}", hint="cast or drop the column"
            ) from error
        field_id = self._next_id
        self._next_id += 1
        members = _child_fields(data_type) if logical != "json" else []
        _check_unique([member.name for member in members], path)
        is_primary, primary_position, clustering_position = key_positions(metadata)
        return Field(
            id=field_id,
            name=arrow_field.name,
            logical_type=logical,
            nullable=arrow_field.nullable,
            children=tuple(
                self.build(member, f"{path}.{member.name}", depth + 1) for member in members
            ),
            metadata=metadata,
            extension_name=extension,
            encoding=informative_encoding(logical),
            dictionary=(0, 0) if logical.startswith("dict:") else None,
            unenforced_primary_key=is_primary,
            unenforced_primary_key_position=primary_position,
            unenforced_clustering_key_position=clustering_position,
        )


def _shape(data_type: pa.DataType) -> pa.DataType:
    """Return ``data_type`` with the item of a list replaced by its storage type.

    The logical type of a list depends on whether the item is a struct, which an extension type
    hides.
    """
    types = pa.types
    if types.is_list(data_type) or types.is_large_list(data_type):
        make = pa.large_list if types.is_large_list(data_type) else pa.list_
        return make(to_storage(data_type.value_field)[0])
    if types.is_fixed_size_list(data_type):
        item = data_type.value_field
        storage, metadata = to_storage(item)
        return pa.list_(pa.field(item.name, _shape(storage), True, metadata), data_type.list_size)
    return data_type


def _child_fields(data_type: pa.DataType) -> list[pa.Field]:
    """Return the children that are separate fields."""
    types = pa.types
    if types.is_struct(data_type):
        return [data_type.field(index) for index in range(data_type.num_fields)]
    if types.is_list(data_type) or types.is_large_list(data_type):
        return [data_type.value_field]
    if types.is_map(data_type):
        entries = pa.struct([data_type.key_field, data_type.item_field])
        return [pa.field("entries", entries, nullable=False)]
    if types.is_fixed_size_list(data_type) and types.is_struct(
        to_storage(data_type.value_field)[0]
    ):
        return [data_type.value_field]
    return []


def dotted_name_error(name: str) -> InvalidInputError:
    """Return the error for a column name with a dot, which denotes a struct field elsewhere."""
    return InvalidInputError(
        f"the column name {name!r} contains a dot",
        hint="rename the column, or make it a member of a struct",
    )


def _check_unique(names: Sequence[str], path: str) -> None:
    """Reject duplicate names in one struct or schema."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            inside = f" in {path!r}" if path else ""
            raise InvalidInputError(
                f"the column name {name!r} occurs twice{inside}", hint="rename one of them"
            )
        seen.add(name)


def primary_key(schema: LanceSchema) -> tuple[str, ...]:
    """Return the paths of the primary key columns in key order; empty without a key.

    Columns without a position come last, as in Lance.
    """
    found = [
        (field.unenforced_primary_key_position or 1 << 32, path)
        for top in schema.fields
        for path, field in _below(top, top.name)
        if field.unenforced_primary_key
    ]
    return tuple(path for _, path in sorted(found, key=lambda one: one[0]))


def _below(field: Field, path: str) -> Iterator[tuple[str, Field]]:
    yield path, field
    for child in field.children:
        yield from _below(child, f"{path}.{child.name}")
