"""Work that is committed at most once: (application, version) pairs; pure, no I/O.

A stream, or a job that may be run again, names itself (``txnAppId``) and numbers its batches
(``txnVersion``, rising).  The pair travels in the properties of the transaction.  Properties are
lost when old versions are cleaned up, so the highest version of each application is also kept in
the table's configuration, which Lance carries from version to version.  A pair whose version is
not above the recorded one was committed before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_lance.errors import InvalidInputError

APPLICATION_PROPERTY = "pyspark_lance.txn_app_id"
VERSION_PROPERTY = "pyspark_lance.txn_version"
CONFIG_PREFIX = "pyspark_lance.txn."
_CHANGES_OF = "changes of "


@dataclass(frozen=True, slots=True)
class ApplicationVersion:
    """One batch of one application."""

    application: str
    version: int

    def properties(self) -> dict[str, str]:
        """The transaction properties that name this batch."""
        return {APPLICATION_PROPERTY: self.application, VERSION_PROPERTY: str(self.version)}


def applied_changes(source: str) -> str:
    """The application that applies the changes of a table, numbered by the versions of that table.

    Unlike other work, it goes back with the rows when a version is restored: the changes since
    then are to be applied again.
    """
    return _CHANGES_OF + source


def recorded_version(config: Mapping[str, str], application: str) -> int | None:
    """The highest version that an application committed; None if there is none."""
    return _recorded(config, CONFIG_PREFIX + application)


def application_version(properties: Mapping[str, str]) -> ApplicationVersion | None:
    """The batch that a transaction commits, if it says so."""
    application, version = properties.get(APPLICATION_PROPERTY), properties.get(VERSION_PROPERTY)
    if application is None and version is None:
        return None
    if not application or version is None:
        raise InvalidInputError("txnAppId and txnVersion are given together or not at all")
    if not version.isascii() or not version.isdigit():
        raise InvalidInputError(f"txnVersion {version!r} is not a number from 0 on")
    return ApplicationVersion(application, int(version))


def is_committed(wanted: ApplicationVersion, config: Mapping[str, str]) -> bool:
    """Whether the table's configuration says that ``wanted`` was committed."""
    recorded = recorded_version(config, wanted.application)
    return recorded is not None and wanted.version <= recorded


def is_same_work(wanted: ApplicationVersion, properties: Mapping[str, str]) -> bool:
    """Whether another transaction committed ``wanted``, or a later batch of the application."""
    if properties.get(APPLICATION_PROPERTY) != wanted.application:
        return False
    version = properties.get(VERSION_PROPERTY, "")
    return version.isascii() and version.isdigit() and wanted.version <= int(version)


def config_with_application_version(
    config: Mapping[str, str], committed: ApplicationVersion | None
) -> Mapping[str, str]:
    """The configuration that remembers ``committed``."""
    if committed is None or is_committed(committed, config):
        return config
    return {**config, CONFIG_PREFIX + committed.application: str(committed.version)}


def kept_application_versions(
    config: Mapping[str, str], newest: Mapping[str, str]
) -> Mapping[str, str]:
    """``config`` of an older version, with the batches that were committed since."""
    kept = dict(config)
    for key in newest:
        if key.startswith(CONFIG_PREFIX + _CHANGES_OF):
            continue
        recorded, older = _recorded(newest, key), _recorded(config, key)
        if recorded is not None and (older is None or older < recorded):
            kept[key] = newest[key]
    return kept


def _recorded(config: Mapping[str, str], key: str) -> int | None:
    value = config.get(key, "") if key.startswith(CONFIG_PREFIX) else ""
    return int(value) if value.isascii() and value.isdigit() else None
