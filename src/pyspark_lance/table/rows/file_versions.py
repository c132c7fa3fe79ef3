"""Choose the file version of a write, and load the dictionaries of tables of version 0.1."""

from __future__ import annotations

import logging

import pyarrow as pa

from pyspark_lance.datafile.version_support import check_legacy_writable, version_need
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.version.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Supported by every Lance reader since 2025; newer versions only for types that need them.
DEFAULT_FILE_VERSION = "2.1"


def new_file_version(schema: LanceSchema, asked: str | None) -> str:
    """Return the file version of a new table.

    ``asked``: the version asked for; None for the default, or newer if a column needs it.
    """
    need = version_need(schema)
    needed, reason = need.version, f"{need.column}: {need.reason}"
    if asked is None:
        if needed > DEFAULT_FILE_VERSION:
            logger.info("the new table gets file version %s: %s", needed, reason)
            return needed
        return DEFAULT_FILE_VERSION
    if asked == "0.1":
        check_legacy_writable(schema)
        return asked
    if asked < needed:
        raise UnsupportedFeatureError(
            f"file version {asked} cannot hold the data: {reason}",
            hint=f"set fileFormatVersion to {needed}",
        )
    return asked


def existing_file_version(
    existing: Snapshot, columns: LanceSchema, asked: str | None, *, replaces_all: bool
) -> str:
    """Return the file version of a write to an existing table.

    ``asked``: the version asked for; None for the table's own. ``replaces_all``: whether the write
    replaces all rows.
    """
    own = existing.manifest.file_version
    if asked is not None and asked != own and not replaces_all:
        raise InvalidInputError(
            f"fileFormatVersion is {asked}, but the table's files are {own}",
            where=existing.uri,
            hint="leave the option out; an append uses the table's own version",
        )
    version = asked or own
    if version == "0.1":
        dictionaries = {} if replaces_all else table_dictionaries(existing)
        check_legacy_writable(columns, dictionaries.keys())
        return version
    need = version_need(columns)
    if version < need.version:
        raise UnsupportedFeatureError(
            f"the table's files are version {version}, which cannot hold the column "
            f"{need.column!r}: {need.reason}",
            where=existing.uri,
            hint=f"overwrite the table with fileFormatVersion {need.version}",
        )
    return version


def table_dictionaries(existing: Snapshot) -> dict[int, pa.Array]:
    """Return the dictionary items of a 0.1 table, by field id."""
    # Imported lazily: other tables have no dictionaries.
    from pyspark_lance.datafile.v0_1.dictionaries import known_dictionaries  # noqa: PLC0415

    return known_dictionaries(existing.schema, existing.manifest.dictionary_values)
