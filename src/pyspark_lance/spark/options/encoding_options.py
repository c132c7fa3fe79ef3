"""Options such as ``<column>.compression = zstd``: the encoding of the values of a column.

The options become metadata of the column's leaf fields in the schema of the table, which every
writer reads, including pylance.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from pyspark_lance.codec.encoding_requests import (
    PACKED_KEYS,
    check_blob_request,
    encoding_request,
    metadata_texts,
)
from pyspark_lance.codec.leaf_column import leaf_columns
from pyspark_lance.errors import InvalidInputError

_PACKED = PACKED_KEYS[1]
# The writer checks them against the file version.
_NEWEST = "2.2"

ENCODING_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "compression": "lance-encoding:compression",
        "compression_level": "lance-encoding:compression-level",
        "structural_encoding": "lance-encoding:structural-encoding",
        "byte_stream_split": "lance-encoding:bss",
        "rle_threshold": "lance-encoding:rle-threshold",
        "minichunk_size": "lance-encoding:minichunk-size",
        "dict_divisor": "lance-encoding:dict-divisor",
        "dict_size_ratio": "lance-encoding:dict-size-ratio",
        "dict_max_size": "lance-encoding:dict-max-size",
        "dict_values_compression": "lance-encoding:dict-values-compression",
        "dict_values_compression_level": "lance-encoding:dict-values-compression-level",
        "packed": _PACKED,
    }
)


def split_options(requested: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options of columns into types, and metadata for encodings."""
    types = {kind: value for kind, value in requested.items() if kind not in ENCODING_KEYS}
    metadata = {
        ENCODING_KEYS[kind]: value.lower()
        for kind, value in requested.items()
        if kind in ENCODING_KEYS
    }
    return types, metadata


def with_encodings(field: pa.Field, metadata: Mapping[str, str]) -> pa.Field:
    """Add the metadata to each leaf of a field, and ``packed`` to the struct."""
    if not metadata:
        return field
    metadata = dict(metadata)
    packed = metadata.pop(_PACKED, None)
    if packed is not None:
        if not pa.types.is_struct(field.type) or packed not in ("true", "false"):
            raise InvalidInputError(
                f"{field.name}.packed = {packed!r} needs a struct column, and true or false"
            )
        field = field.with_metadata({**(field.metadata or {}), _PACKED: packed})
    marked = _mark(field, {key.encode(): value.encode() for key, value in metadata.items()})
    for leaf in leaf_columns(marked):
        check = check_blob_request if leaf.is_blob else encoding_request
        check(leaf.metadata, leaf.name, leaf.type, _NEWEST)
    return marked


def check_same_encodings(existing: pa.Field, metadata: Mapping[str, str]) -> None:
    """Check that the encodings are those of the table's column."""
    for leaf in leaf_columns(existing):
        for key, value in metadata.items():
            stored = metadata_texts(existing) if key == _PACKED else leaf.metadata
            if stored.get(key) != value:
                raise InvalidInputError(
                    f"column {leaf.name}: the table does not have {key} = {value}",
                    hint="the encoding of a column is fixed when the column is created",
                )


def _mark(field: pa.Field, metadata: Mapping[bytes, bytes]) -> pa.Field:
    data_type = field.type
    if pa.types.is_struct(data_type):
        return field.with_type(pa.struct([_mark(child, metadata) for child in data_type]))
    if pa.types.is_map(data_type):
        parts = (_mark(part, metadata) for part in (data_type.key_field, data_type.item_field))
        return field.with_type(pa.map_(*parts))
    if pa.types.is_list(data_type):
        return field.with_type(pa.list_(_mark(data_type.value_field, metadata)))
    if pa.types.is_large_list(data_type):
        return field.with_type(pa.large_list(_mark(data_type.value_field, metadata)))
    return field.with_metadata({**(field.metadata or {}), **metadata})
