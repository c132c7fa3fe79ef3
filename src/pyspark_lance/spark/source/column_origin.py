"""The table and version that a column was read from, in the metadata of the column.

Without the JVM plugin a write has only the schema of its rows. The metadata lets it refuse to
overwrite a table with rows of one of its older versions. Only columns that a query passes through
unchanged keep it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.table.version.snapshot import Snapshot, open_pinned
from pyspark_lance.table.version.table_identity import PinnedVersion, TableIdentity

_ROOT_KEY, _VERSION_KEY, _STAMP_KEY = "lance.root", "lance.version", "lance.stamp"


def with_origin(schema: StructType, pinned: PinnedVersion) -> StructType:
    """Add the origin to the columns of a read of the newest version."""
    origin = {_ROOT_KEY: pinned.uri, _VERSION_KEY: pinned.version, _STAMP_KEY: pinned.stamp}
    return StructType(
        [
            StructField(
                field.name, field.dataType, field.nullable, {**(field.metadata or {}), **origin}
            )
            for field in schema.fields
        ]
    )


def version_read(
    schema: StructType, sources: Mapping[str, tuple[int, str]], target: Snapshot
) -> int | None:
    """Return the oldest version of ``target`` that rows were read from; None if none is known.

    Raises TableReplacedError: the rows were read from a table that was replaced since.

    ``sources``: by root, the oldest version that the query reads, and its stamp.
    """
    found = [PinnedVersion(root, *source) for root, source in sources.items()]
    for column in schema.fields:
        root, version, stamp = map(
            (column.metadata or {}).get, (_ROOT_KEY, _VERSION_KEY, _STAMP_KEY)
        )
        if isinstance(version, int):
            found.append(PinnedVersion(str(root), version, str(stamp or "")))
    own = [one for one in found if one.uri == target.uri]
    for one in own:
        if one.version == target.version:
            TableIdentity(one.version, one.stamp).check(target.manifest, target.uri)
        else:  # the overwrite is refused with this origin
            with contextlib.suppress(VersionNotFoundError):
                open_pinned(target.table, one)
    return min((one.version for one in own), default=None)
