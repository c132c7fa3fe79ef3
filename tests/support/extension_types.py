"""The extension types of Arrow that columns of storage types stand for, as pylance shows them."""

from __future__ import annotations

import pyarrow as pa


def with_extension_types(schema: pa.Schema) -> pa.Schema:
    """``schema`` as pylance shows it: with the extension types that its storage types stand for."""
    fields = []
    for field in schema:
        metadata = dict(field.metadata or {})
        if metadata.get(b"ARROW:extension:name") == b"lance.json":
            metadata[b"ARROW:extension:name"] = b"arrow.json"
            field = pa.field(field.name, pa.string(), field.nullable, metadata)
        fields.append(field)
    return pa.ipc.read_schema(pa.schema(fields, metadata=schema.metadata).serialize())
