"""UpdateConfig: update the key/value maps of a table and compare keys; pure, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.field import Field, key_positions
from pyspark_lance.format.operation import UpdateConfig, UpdateMap
from pyspark_lance.format.schema import LanceSchema


def apply_update_config(
    operation: UpdateConfig,
    config: Mapping[str, str],
    table_metadata: Mapping[str, str],
    schema: LanceSchema,
) -> tuple[Mapping[str, str], Mapping[str, str], LanceSchema]:
    """Return the configuration, the table metadata and the schema after the update."""
    operation = in_new_form(operation)
    by_field = operation.field_metadata_updates
    unknown = by_field.keys() - {field.id for field in schema.walk()}
    if unknown:
        raise InvalidInputError(
            f"metadata for field {min(unknown)}, which the schema does not have"
        )
    if operation.schema_metadata_updates is not None:
        updated = _applied_to_bytes(operation.schema_metadata_updates, schema.metadata)
        schema = replace(schema, metadata=updated)
    if by_field:
        fields = tuple(_with_metadata(field, by_field) for field in schema.fields)
        schema = replace(schema, fields=fields)
    if operation.config_updates is not None:
        config = operation.config_updates.apply_to(config)
    if operation.table_metadata_updates is not None:
        table_metadata = operation.table_metadata_updates.apply_to(table_metadata)
    return config, table_metadata, schema


def in_new_form(operation: UpdateConfig) -> UpdateConfig:
    """Return the same update without the older forms, which list the whole new metadata."""
    config = operation.config_updates
    if operation.upsert_values or operation.delete_keys:
        given = config or UpdateMap()
        deletes = tuple((key, None) for key in operation.delete_keys)
        entries = (*given.entries, *deletes, *operation.upsert_values.items())
        config = UpdateMap(entries, given.replace)
    schema = operation.schema_metadata_updates
    if operation.schema_metadata and schema is None:
        schema = UpdateMap(tuple(operation.schema_metadata.items()), replace=True)
    older = {
        field_id: UpdateMap(tuple(metadata.items()), replace=True)
        for field_id, metadata in operation.field_metadata.items()
    }
    return UpdateConfig(
        config_updates=config,
        table_metadata_updates=operation.table_metadata_updates,
        schema_metadata_updates=schema,
        field_metadata_updates={**older, **operation.field_metadata_updates},
    )


def is_set(updates: UpdateMap | None) -> bool:
    """Return whether the update changes anything."""
    return updates is not None and (bool(updates.entries) or updates.replace)


def upserted_keys(updates: UpdateMap | None) -> set[str]:
    """Return the keys that get a value."""
    return {key for key, value in updates.entries if value is not None} if updates else set()


def _deleted(updates: UpdateMap | None) -> set[str]:
    return {key for key, value in updates.entries if value is None} if updates else set()


def same_keys(ours: UpdateMap | None, theirs: UpdateMap | None) -> bool:
    """Return whether both change a common key."""
    if ours is None or theirs is None or not is_set(ours) or not is_set(theirs):
        return False
    if ours.replace or theirs.replace:
        return True  # Stricter than Lance: replacing a map touches every key.
    return not {key for key, _ in ours.entries}.isdisjoint(key for key, _ in theirs.entries)


def same_config_keys(ours: UpdateMap | None, theirs: UpdateMap | None) -> bool:
    """As ``same_keys``, but both may delete the same key of the configuration."""
    replaced = any(updates is not None and updates.replace for updates in (ours, theirs))
    mine, other = upserted_keys(ours), upserted_keys(theirs)
    either = mine & (other | _deleted(theirs)) or _deleted(ours) & other
    return same_keys(ours, theirs) and (replaced or bool(either))


def _applied_to_bytes(updates: UpdateMap, values: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return updated ``values``; unchanged values keep their bytes, even if not valid UTF-8."""
    touched = dict(updates.entries)
    kept = {} if updates.replace else {k: v for k, v in values.items() if k not in touched}
    return kept | {k: v.encode() for k, v in touched.items() if v is not None}


def _with_metadata(field: Field, by_field: Mapping[int, UpdateMap]) -> Field:
    """Return the field tree with the metadata of the listed fields updated."""
    children = tuple(_with_metadata(child, by_field) for child in field.children)
    updates = by_field.get(field.id)
    if updates is None:
        return field if children == field.children else replace(field, children=children)
    metadata = _applied_to_bytes(updates, field.metadata)
    is_key, position, clustering = key_positions(metadata)
    was_key = field.unenforced_primary_key or field.unenforced_clustering_key_position
    keys_before = key_positions(field.metadata)
    # Other writers may rely on a declared key and would not notice a change.
    if was_key and keys_before != (is_key, position, clustering):
        raise InvalidInputError(f"the key of column {field.name!r} cannot be changed once set")
    return replace(
        field,
        children=children,
        metadata=metadata,
        unenforced_primary_key=is_key,
        unenforced_primary_key_position=position,
        unenforced_clustering_key_position=clustering,
    )
