"""From which version of which table a column was read, in the metadata of the column.

Without the JVM companion a write knows nothing of what its rows are made of but the schema; so
columns say it, and an overwrite of a table by its own rows of an older version can be refused.
Only columns that reach the write as they were read still say it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

_ROOT_KEY, _VERSION_KEY = "lance.root", "lance.version"


def with_origin(schema: StructType, root: str, version: int) -> StructType:
    """The columns of a read of the newest version, which say so."""
    origin = {_ROOT_KEY: root, _VERSION_KEY: version}
    return StructType(
        [
            StructField(
                field.name, field.dataType, field.nullable, {**(field.metadata or {}), **origin}
            )
            for field in schema.fields
        ]
    )


def version_read(schema: StructType, sources: Mapping[str, int], root: str) -> int | None:
    """The oldest version of the table at ``root`` that rows come from; None if none is known."""
    versions = [version for source, version in sources.items() if source == root]
    for column in schema.fields:
        metadata = column.metadata or {}
        if metadata.get(_ROOT_KEY) == root and isinstance(metadata.get(_VERSION_KEY), int):
            versions.append(metadata[_VERSION_KEY])
    return min(versions, default=None)
