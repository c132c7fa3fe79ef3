"""Transaction: an operation with its base version, and operations as protobuf messages.

Source: docs/format/table-format.md, section 8.1; protos/transaction.proto.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.fragment import DataFile, Fragment, fragments_from_protos
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.operation import (
    Append,
    Clone,
    CreateIndex,
    DataReplacement,
    DataReplacementGroup,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    UnknownOperation,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
)
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.wire import drop_unknown_fields, parse_message, wire_fields
from pyspark_lance.proto import table_pb2, transaction_pb2

_Txn = transaction_pb2.Transaction


def operation_from_proto(message: _Txn) -> Operation | None:
    """Return the operation that is set in ``message``; None if it has no known one."""
    kind = message.WhichOneof("operation")
    return None if kind is None else _READERS[kind](getattr(message, kind))


def write_operation(operation: Operation, message: _Txn) -> None:
    """Set ``operation`` in ``message``."""
    if isinstance(operation, UnknownOperation):
        raise InvalidInputError(
            f"a transaction with the unknown operation {operation.field_number} cannot be written"
        )
    name, write = _WRITERS[type(operation)]
    target = getattr(message, name)
    target.SetInParent()
    write(operation, target)


def _fragments(messages: Iterable[table_pb2.DataFragment]) -> tuple[Fragment, ...]:
    return fragments_from_protos(messages)


def _indices(messages: Iterable[table_pb2.IndexMetadata]) -> tuple[IndexMetadata, ...]:
    return tuple(IndexMetadata.from_bytes(message.SerializeToString()) for message in messages)


def _bases(messages: Iterable[table_pb2.BasePath]) -> tuple[BasePath, ...]:
    return tuple(BasePath.from_proto(message) for message in messages)


def _read_append(message: _Txn.Append) -> Append:
    return Append(_fragments(message.fragments))


def _read_delete(message: _Txn.Delete) -> Delete:
    return Delete(
        _fragments(message.updated_fragments),
        tuple(message.deleted_fragment_ids),
        message.predicate,
    )


def _read_overwrite(message: _Txn.Overwrite) -> Overwrite:
    return Overwrite(
        fragments=_fragments(message.fragments),
        schema=LanceSchema.from_protos(message.schema, dict(message.schema_metadata)),
        config_upsert_values=dict(message.config_upsert_values),
        initial_bases=_bases(message.initial_bases),
    )


def _read_create_index(message: _Txn.CreateIndex) -> CreateIndex:
    return CreateIndex(_indices(message.new_indices), _indices(message.removed_indices))


def _read_rewrite(message: _Txn.Rewrite) -> Rewrite:
    groups = [
        RewriteGroup(_fragments(group.old_fragments), _fragments(group.new_fragments))
        for group in message.groups
    ]
    if message.old_fragments or message.new_fragments:
        groups.append(
            RewriteGroup(_fragments(message.old_fragments), _fragments(message.new_fragments))
        )
    return Rewrite(
        groups=tuple(groups),
        rewritten_indices=tuple(index.SerializeToString() for index in message.rewritten_indices),
    )


def _read_merge(message: _Txn.Merge) -> Merge:
    return Merge(
        fragments=_fragments(message.fragments),
        schema=LanceSchema.from_protos(message.schema, dict(message.schema_metadata)),
        preserves_nullability=message.preserves_nullability,
    )


def _read_restore(message: _Txn.Restore) -> Restore:
    return Restore(message.version)


def _read_reserve_fragments(message: _Txn.ReserveFragments) -> ReserveFragments:
    return ReserveFragments(message.num_fragments)


def _read_update(message: _Txn.Update) -> Update:
    inserted = message.inserted_rows
    return Update(
        removed_fragment_ids=tuple(message.removed_fragment_ids),
        updated_fragments=_fragments(message.updated_fragments),
        new_fragments=_fragments(message.new_fragments),
        fields_modified=tuple(message.fields_modified),
        merged_generations=tuple(message.merged_generations),
        fields_for_preserving_frag_bitmap=tuple(message.fields_for_preserving_frag_bitmap),
        update_mode=message.update_mode,
        inserted_rows=inserted.SerializeToString() if message.HasField("inserted_rows") else None,
        updated_fragment_offsets={
            fragment_id: tuple(offsets.values)
            for fragment_id, offsets in message.updated_fragment_offsets.items()
        },
        updated_fragment_offset_bitmaps=dict(message.updated_fragment_offset_bitmaps),
    )


def _read_project(message: _Txn.Project) -> Project:
    return Project(LanceSchema.from_protos(message.schema), message.preserves_nullability)


def _read_update_config(message: _Txn.UpdateConfig) -> UpdateConfig:
    def optional(name: str) -> UpdateMap | None:
        return _read_update_map(getattr(message, name)) if message.HasField(name) else None

    return UpdateConfig(
        config_updates=optional("config_updates"),
        table_metadata_updates=optional("table_metadata_updates"),
        schema_metadata_updates=optional("schema_metadata_updates"),
        field_metadata_updates={
            field_id: _read_update_map(updates)
            for field_id, updates in message.field_metadata_updates.items()
        },
        upsert_values=dict(message.upsert_values),
        delete_keys=tuple(message.delete_keys),
        schema_metadata=dict(message.schema_metadata),
        field_metadata={
            field_id: dict(entry.metadata) for field_id, entry in message.field_metadata.items()
        },
    )


def _read_update_map(message: _Txn.UpdateMap) -> UpdateMap:
    return UpdateMap(
        tuple(
            (entry.key, entry.value if entry.HasField("value") else None)
            for entry in message.entries
        ),
        message.replace,
    )


def _read_data_replacement(message: _Txn.DataReplacement) -> DataReplacement:
    groups = []
    for group in message.replacements:
        if not group.HasField("new_file"):
            raise CorruptFileError(
                f"the data replacement of fragment {group.fragment_id} names no file"
            )
        groups.append(DataReplacementGroup(group.fragment_id, DataFile.from_proto(group.new_file)))
    return DataReplacement(tuple(groups))


def _read_update_mem_wal_state(message: _Txn.UpdateMemWalState) -> UpdateMemWalState:
    return UpdateMemWalState(tuple(message.merged_generations))


def _read_clone(message: _Txn.Clone) -> Clone:
    return Clone(
        is_shallow=message.is_shallow,
        ref_version=message.ref_version,
        ref_path=message.ref_path,
        ref_name=message.ref_name if message.HasField("ref_name") else None,
        branch_name=message.branch_name if message.HasField("branch_name") else None,
    )


def _read_update_bases(message: _Txn.UpdateBases) -> UpdateBases:
    return UpdateBases(_bases(message.new_bases))


_READERS: Final[Mapping[str, Callable[[Any], Operation]]] = {
    "append": _read_append,
    "delete": _read_delete,
    "overwrite": _read_overwrite,
    "create_index": _read_create_index,
    "rewrite": _read_rewrite,
    "merge": _read_merge,
    "restore": _read_restore,
    "reserve_fragments": _read_reserve_fragments,
    "update": _read_update,
    "project": _read_project,
    "update_config": _read_update_config,
    "data_replacement": _read_data_replacement,
    "update_mem_wal_state": _read_update_mem_wal_state,
    "clone": _read_clone,
    "update_bases": _read_update_bases,
}


def _add_fragments(fragments: Iterable[Fragment], target: Any) -> None:
    for fragment in fragments:
        fragment.write_to(target.add())


def _add_indices(indices: Iterable[IndexMetadata], target: Any) -> None:
    for index in indices:
        target.append(parse_message(table_pb2.IndexMetadata, index.raw))


def _add_bases(bases: Iterable[BasePath], target: Any) -> None:
    target.extend(base.to_proto() for base in bases)


def _write_append(operation: Append, message: _Txn.Append) -> None:
    _add_fragments(operation.fragments, message.fragments)


def _write_delete(operation: Delete, message: _Txn.Delete) -> None:
    _add_fragments(operation.updated_fragments, message.updated_fragments)
    message.deleted_fragment_ids.extend(operation.deleted_fragment_ids)
    message.predicate = operation.predicate


def _write_overwrite(operation: Overwrite, message: _Txn.Overwrite) -> None:
    _add_fragments(operation.fragments, message.fragments)
    message.schema.extend(operation.schema.to_protos())
    message.schema_metadata.update(operation.schema.metadata)
    message.config_upsert_values.update(operation.config_upsert_values)
    _add_bases(operation.initial_bases, message.initial_bases)


def _write_create_index(operation: CreateIndex, message: _Txn.CreateIndex) -> None:
    _add_indices(operation.new_indices, message.new_indices)
    _add_indices(operation.removed_indices, message.removed_indices)


def _write_rewrite(operation: Rewrite, message: _Txn.Rewrite) -> None:
    for group in operation.groups:
        target = message.groups.add()
        _add_fragments(group.old_fragments, target.old_fragments)
        _add_fragments(group.new_fragments, target.new_fragments)
    for raw in operation.rewritten_indices:
        message.rewritten_indices.append(parse_message(_Txn.Rewrite.RewrittenIndex, raw))


def _write_merge(operation: Merge, message: _Txn.Merge) -> None:
    _add_fragments(operation.fragments, message.fragments)
    message.schema.extend(operation.schema.to_protos())
    message.schema_metadata.update(operation.schema.metadata)
    message.preserves_nullability = operation.preserves_nullability


def _write_restore(operation: Restore, message: _Txn.Restore) -> None:
    message.version = operation.version


def _write_reserve_fragments(operation: ReserveFragments, message: _Txn.ReserveFragments) -> None:
    message.num_fragments = operation.num_fragments


def _write_update(operation: Update, message: _Txn.Update) -> None:
    message.removed_fragment_ids.extend(operation.removed_fragment_ids)
    _add_fragments(operation.updated_fragments, message.updated_fragments)
    _add_fragments(operation.new_fragments, message.new_fragments)
    message.fields_modified.extend(operation.fields_modified)
    message.merged_generations.extend(operation.merged_generations)
    message.fields_for_preserving_frag_bitmap.extend(operation.fields_for_preserving_frag_bitmap)
    message.update_mode = operation.update_mode
    if operation.inserted_rows is not None:
        message.inserted_rows.CopyFrom(parse_message(_Txn.KeyFilter, operation.inserted_rows))
    for fragment_id, offsets in operation.updated_fragment_offsets.items():
        target = message.updated_fragment_offsets[fragment_id]
        target.values.extend(offsets)
    message.updated_fragment_offset_bitmaps.update(operation.updated_fragment_offset_bitmaps)


def _write_project(operation: Project, message: _Txn.Project) -> None:
    message.schema.extend(operation.schema.to_protos())
    message.preserves_nullability = operation.preserves_nullability


def _write_update_config(operation: UpdateConfig, message: _Txn.UpdateConfig) -> None:
    for updates, target in (
        (operation.config_updates, message.config_updates),
        (operation.table_metadata_updates, message.table_metadata_updates),
        (operation.schema_metadata_updates, message.schema_metadata_updates),
    ):
        if updates is not None:
            _write_update_map(updates, target)
    for field_id, updates in operation.field_metadata_updates.items():
        _write_update_map(updates, message.field_metadata_updates[field_id])
    message.upsert_values.update(operation.upsert_values)
    message.delete_keys.extend(operation.delete_keys)
    message.schema_metadata.update(operation.schema_metadata)
    for field_id, metadata in operation.field_metadata.items():
        message.field_metadata[field_id].metadata.update(metadata)


def _write_update_map(updates: UpdateMap, message: _Txn.UpdateMap) -> None:
    message.SetInParent()
    for key, value in updates.entries:
        message.entries.add(key=key, value=value)
    message.replace = updates.replace


def _write_data_replacement(operation: DataReplacement, message: _Txn.DataReplacement) -> None:
    for group in operation.replacements:
        message.replacements.add(fragment_id=group.fragment_id, new_file=group.new_file.to_proto())


def _write_update_mem_wal_state(
    operation: UpdateMemWalState, message: _Txn.UpdateMemWalState
) -> None:
    message.merged_generations.extend(operation.merged_generations)


def _write_clone(operation: Clone, message: _Txn.Clone) -> None:
    message.is_shallow = operation.is_shallow
    message.ref_version = operation.ref_version
    message.ref_path = operation.ref_path
    if operation.ref_name is not None:
        message.ref_name = operation.ref_name
    if operation.branch_name is not None:
        message.branch_name = operation.branch_name


def _write_update_bases(operation: UpdateBases, message: _Txn.UpdateBases) -> None:
    _add_bases(operation.new_bases, message.new_bases)


_WRITERS: Final[Mapping[type, tuple[str, Callable[[Any, Any], None]]]] = {
    Append: ("append", _write_append),
    Delete: ("delete", _write_delete),
    Overwrite: ("overwrite", _write_overwrite),
    CreateIndex: ("create_index", _write_create_index),
    Rewrite: ("rewrite", _write_rewrite),
    Merge: ("merge", _write_merge),
    Restore: ("restore", _write_restore),
    ReserveFragments: ("reserve_fragments", _write_reserve_fragments),
    Update: ("update", _write_update),
    Project: ("project", _write_project),
    UpdateConfig: ("update_config", _write_update_config),
    DataReplacement: ("data_replacement", _write_data_replacement),
    UpdateMemWalState: ("update_mem_wal_state", _write_update_mem_wal_state),
    Clone: ("clone", _write_clone),
    UpdateBases: ("update_bases", _write_update_bases),
}


_FIRST_OPERATION: Final = 100


MESSAGE_PROPERTY = "__lance_commit_message"
"""Transaction property: the user's comment, under the same key as in pylance."""
APPLICATION_PROPERTY = "pyspark_lance.spark_application_id"
"""Transaction property: id of the Spark application."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The changes of one commit."""

    read_version: int  # Version the work is based on; 0 for creating a table.
    uuid: str  # Hyphenated, lower case.
    operation: Operation  # The changes.
    tag: str = ""  # Copied into the manifest; unused in practice.
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)  # Free key/value pairs.
    # Whether the message has unknown fields, at any depth, which would be lost by writing it again.
    has_unknown_fields: bool = False

    @classmethod
    def from_bytes(cls, data: Any, where: str = "") -> Transaction:
        """Decode a serialized Transaction message.

        An unknown operation becomes an ``UnknownOperation``.

        ``data``: bytes-like; ``where``: file and byte range, for errors.
        """
        data = bytes(data)
        message = parse_message(transaction_pb2.Transaction, data, where)
        try:
            operation = operation_from_proto(message) or _unknown_operation(data)
        except (CorruptFileError, UnsupportedFeatureError) as error:
            raise type(error)(error.what, error.where or where, error.hint) from error
        return cls(
            read_version=message.read_version,
            uuid=message.uuid,
            operation=operation,
            tag=message.tag,
            properties=dict(message.transaction_properties),
            # Last: it modifies the message.
            has_unknown_fields=drop_unknown_fields(message),
        )

    def to_bytes(self) -> bytes:
        """The serialized message."""
        message = transaction_pb2.Transaction(
            read_version=self.read_version,
            uuid=self.uuid,
            tag=self.tag,
            transaction_properties=self.properties,
        )
        write_operation(self.operation, message)
        return message.SerializeToString(deterministic=True)


def _unknown_operation(data: bytes) -> UnknownOperation:
    """Return the unknown operation with the number of its field."""
    numbers = [field.number for field in wire_fields(data) if field.number >= _FIRST_OPERATION]
    return UnknownOperation(numbers[0] if numbers else 0, data)
