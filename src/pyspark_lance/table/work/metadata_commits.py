"""Metadata commits: restore a version, set table properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.commit.manifest_committer import missing_files, table_was_replaced
from pyspark_lance.errors import InvalidInputError, MissingFileError
from pyspark_lance.format.operation import Operation, Restore, UpdateConfig, UpdateMap
from pyspark_lance.table.version.snapshot import LATEST, OWN_PREFIX, Snapshot, VersionSpec
from pyspark_lance.table.version.table import MAIN, Table
from pyspark_lance.table.work.commit_settings import CommitSettings
from pyspark_lance.table.work.unit_of_work import commit_on_newest

CONFIG_PREFIX = "lance."
"""Prefix of properties that Lance itself uses; they are stored in the configuration."""


@dataclass(frozen=True, slots=True)
class MetadataResult:
    """The result of a metadata commit.

    Attributes:
        version: The committed version; None if nothing changed.
    """

    version: int | None = None


def restore(
    table: Table, at: VersionSpec, settings: CommitSettings | None = None
) -> MetadataResult:
    """Commit an old version as the newest; its files must still exist.

    Later versions stay in the history. Restoring the newest version is a no-op.
    """
    if at == LATEST:
        raise InvalidInputError("restore takes a version, a tag or a timestamp")
    old = Snapshot.open(table, at)
    is_again = False

    def plan(newest: Snapshot) -> Operation | None:
        nonlocal is_again
        if newest.manifest.branch != old.manifest.branch:
            raise InvalidInputError(
                f"version {old.version} belongs to the branch {old.manifest.branch or MAIN!r}",
                where=newest.uri,
                hint="restore it there",
            )
        there = Snapshot.open(old.table, VersionSpec(version=old.version))
        if BaseVersion.of(there.manifest) != BaseVersion.of(old.manifest):
            raise table_was_replaced(newest.store.uri)
        if is_again:
            _check_files(there, newest)
        is_again = True
        return None if newest.version == old.version else Restore(old.version)

    return change_metadata(table, plan, settings)


def _check_files(old: Snapshot, newest: Snapshot) -> None:
    """Reject a version with missing files, without a retry."""
    files = files_of(old.manifest.fragments, own=True)
    files -= files_of(newest.manifest.fragments, own=True)
    if missing := missing_files(newest.store, files):
        raise MissingFileError(
            f"a file of version {old.version} is missing",
            where=f"{newest.store.uri}/{missing[0]}",
            hint="it may have been cleaned up; restore another version, or the file",
        )


def set_properties(
    table: Table, changes: Mapping[str, str | None], settings: CommitSettings | None = None
) -> MetadataResult:
    """Set properties of a table; None removes one.

    Keys with the prefix ``lance.`` are stored in the configuration, where Lance reads them, all
    others in the table metadata.
    """
    for key, value in changes.items():
        if not key or key.startswith(OWN_PREFIX):
            raise InvalidInputError(f"{key!r} is not the name of a property")
        if value is not None and not isinstance(value, str):
            raise InvalidInputError(f"the property {key!r} is {value!r}, not a string")

    def plan(newest: Snapshot) -> Operation | None:
        manifest = newest.manifest
        ours = {key: value for key, value in changes.items() if key.startswith(CONFIG_PREFIX)}
        # A key that is already in the configuration stays there.
        ours |= {key: value for key, value in changes.items() if key in manifest.config}
        others = {key: value for key, value in changes.items() if key not in ours}
        to_config = _effective_changes(manifest.config, ours)
        to_metadata = _effective_changes(manifest.table_metadata, others)
        if to_config is None and to_metadata is None:
            return None
        return UpdateConfig(config_updates=to_config, table_metadata_updates=to_metadata)

    return change_metadata(table, plan, settings)


def _effective_changes(
    now: Mapping[str, str], changes: Mapping[str, str | None]
) -> UpdateMap | None:
    """Return the effective changes; None without any."""
    entries = tuple((key, value) for key, value in changes.items() if now.get(key) != value)
    return UpdateMap(entries) if entries else None


def change_metadata(
    table: Table,
    plan: Callable[[Snapshot], Operation | None],
    settings: CommitSettings | None = None,
) -> MetadataResult:
    """Commit the operation that ``plan`` returns for the newest version, if any."""
    result = commit_on_newest(table, plan, settings or CommitSettings())
    return MetadataResult(None if result is None else result.version)
