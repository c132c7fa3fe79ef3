"""Work that is committed at most once: (application, version) pairs; pure, no I/O.

A stream, or a job that may be run again, names itself (``txnAppId``) and numbers its batches
(``txnVersion``, rising).  The pair travels in the properties of the transaction.  Properties are
lost when old versions are cleaned up, so the highest version of each application is also kept in
the table's configuration, which Lance carries from version to version.  A pair whose version is
not above the recorded one was committed before.

A table that applies changes of another one also records which table that is, since the other one
may be dropped and created again, and its version numbers start again then.  A target that is
created again has no record, so that nothing is left out of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pyspark_lance.errors import CorruptFileError, InvalidInputError, TableReplacedError

APPLICATION_PROPERTY = "pyspark_lance.txn_app_id"
VERSION_PROPERTY = "pyspark_lance.txn_version"
SOURCE_PROPERTY = "pyspark_lance.txn_source"
CONFIG_PREFIX = "pyspark_lance.txn."
SOURCE_PREFIX = "pyspark_lance.source."
_CHANGES_OF = "changes of "


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Which table changes come from, as far as they show; 0 and '' are not known."""

    first: str = ""  # Stamp of its version 1.
    applied_us: int = 0  # Commit time of the newest version among the changes.
    before: int = 0  # The version after which the changes begin,
    before_us: int = 0  # and its commit time.

    @classmethod
    def parse(cls, text: str) -> SourceIdentity:
        """Read what ``to_text`` made."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise CorruptFileError(f"{text!r} does not identify a table") from error

    def to_text(self) -> str:
        """As a transaction property or an entry of the configuration."""
        return json.dumps({name: value for name, value in asdict(self).items() if value})

    def is_same(self, recorded: SourceIdentity, version: int) -> bool:
        """Whether nothing shows that these are two tables.

        Args:
            recorded: The table whose changes were applied before.
            version: The version up to which they were applied.
        """
        pairs = [(self.first, recorded.first)]
        if self.before == version:
            pairs.append((str(self.before_us or ""), str(recorded.applied_us or "")))
        return all(own == other or not own or not other for own, other in pairs)


@dataclass(frozen=True, slots=True)
class ApplicationVersion:
    """One batch of one application."""

    application: str
    version: int
    source: SourceIdentity | None = None  # The table whose changes it applies; None for none.

    def properties(self) -> dict[str, str]:
        """The transaction properties that name this batch."""
        named = {APPLICATION_PROPERTY: self.application, VERSION_PROPERTY: str(self.version)}
        return named if self.source is None else {**named, SOURCE_PROPERTY: self.source.to_text()}


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
    source = properties.get(SOURCE_PROPERTY)
    identity = None if source is None else SourceIdentity.parse(source)
    return ApplicationVersion(application, int(version), identity)


def is_committed(wanted: ApplicationVersion, config: Mapping[str, str]) -> bool:
    """Whether the table's configuration says that ``wanted`` was committed.

    Raises TableReplacedError: it applies changes of another table than the one before.
    """
    recorded = recorded_version(config, wanted.application)
    if recorded is None:
        return False
    source = _recorded_source(config, wanted.application)
    if wanted.source is None or source is None or wanted.source.is_same(source, recorded):
        return wanted.version <= recorded
    raise TableReplacedError(
        "the table whose changes are applied was replaced by another one since version "
        f"{recorded} of {wanted.application!r} was applied",
        hint="empty the table that follows, or begin with a new one, and apply the changes from "
        "version 1; or give the new table another name, by source or txnAppId",
    )


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
    own = SOURCE_PREFIX + committed.application
    changed = {**config, CONFIG_PREFIX + committed.application: str(committed.version)}
    before = _recorded_source(config, committed.application) or SourceIdentity()
    source = committed.source or SourceIdentity()
    # What was known of version 1 stays known; the time of an older version says nothing.
    kept = SourceIdentity(source.first or before.first, source.applied_us)
    changed.pop(own, None)
    return changed if kept == SourceIdentity() else {**changed, own: kept.to_text()}


def _recorded_source(config: Mapping[str, str], application: str) -> SourceIdentity | None:
    text = config.get(SOURCE_PREFIX + application)
    return None if text is None else SourceIdentity.parse(text)


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
            source = SOURCE_PREFIX + key.removeprefix(CONFIG_PREFIX)
            if source in newest:
                kept[source] = newest[source]
    return kept


def _recorded(config: Mapping[str, str], key: str) -> int | None:
    value = config.get(key, "") if key.startswith(CONFIG_PREFIX) else ""
    return int(value) if value.isascii() and value.isdigit() else None
