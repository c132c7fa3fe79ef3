"""Idempotent commits: (application, version) pairs that are committed at most once; pure, no I/O.

A stream, or a job that may be run again, names itself (``txnAppId``) and numbers its batches
(``txnVersion``, ascending).  The pair is stored in the properties of the transaction.  Properties
are lost when old versions are cleaned up, so the highest version of each application is also kept
in the table's configuration, which Lance copies from version to version.  A pair whose version is
at most the recorded one was committed before.

A table that applies the changes of a source table also records the identity of the source, because
the source may be dropped and created again with version numbers from 1.  A target that is created
again has no record, so it receives all changes.
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
    """Identity of the source table of changes, as far as known; 0 and '' are unknown."""

    first: str = ""  # Stamp of version 1.
    applied_us: int = 0  # Commit time of the newest version among the changes.
    before: int = 0  # The version after which the changes begin
    before_us: int = 0  # and its commit time.

    @classmethod
    def parse(cls, text: str) -> SourceIdentity:
        """Parse the text that ``to_text`` returned."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise CorruptFileError(f"{text!r} does not identify a table") from error

    def to_text(self) -> str:
        """Return the text for a transaction property or a configuration entry."""
        return json.dumps({name: value for name, value in asdict(self).items() if value})

    def is_same(self, recorded: SourceIdentity, version: int) -> bool:
        """Return False if the identities show that these are two tables.

        Args:
            recorded: The table whose changes were applied before.
            version: The version up to which they were applied.
        """
        pairs = [(self.first, recorded.first)]
        if self.before == version:
            pairs.append((str(self.before_us or ""), str(recorded.applied_us or "")))
        return all(own == other or not own or not other for own, other in pairs)


@dataclass(frozen=True, slots=True)
class FeedWindow:
    """The end of a change feed, and where its rows end."""

    changed: int  # The last version that may have changed rows; all later ones changed none.
    end: int
    end_us: int  # Commit time of ``end``.

    @classmethod
    def parse(cls, text: str) -> FeedWindow:
        """Parse the text that ``to_text`` returned."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise CorruptFileError(f"{text!r} does not describe a change feed") from error

    def to_text(self) -> str:
        """Return the text for the metadata of a column."""
        return json.dumps(asdict(self))

    def reached(self, applied: int) -> int:
        """Return the version that a table has reached that applied the changes up to ``applied``.

        Versions without changed rows at the end are reached as well. Otherwise the table would ask
        for changes since a version that a cleanup of the source may remove. If some changes were
        filtered out, ``applied`` may be before ``changed``, and the rest is unknown.
        """
        return max(applied, self.end) if applied >= self.changed else applied


@dataclass(frozen=True, slots=True)
class ApplicationVersion:
    """One batch of an application."""

    application: str
    version: int
    source: SourceIdentity | None = None  # Source of applied changes, if any.

    def properties(self) -> dict[str, str]:
        """Return the transaction properties that identify this batch."""
        named = {APPLICATION_PROPERTY: self.application, VERSION_PROPERTY: str(self.version)}
        return named if self.source is None else {**named, SOURCE_PROPERTY: self.source.to_text()}


def application_of_source(source: str) -> str:
    """Return the application id for applying the changes of a table, numbered by its versions.

    Unlike that of other applications, its version is restored together with the rows: later changes
    have to be applied again.
    """
    return _CHANGES_OF + source


def recorded_version(config: Mapping[str, str], application: str) -> int | None:
    """Return the highest version that an application committed, or None."""
    return _recorded_number(config, CONFIG_PREFIX + application)


def application_version(properties: Mapping[str, str]) -> ApplicationVersion | None:
    """Return the batch that a transaction commits, if its properties name one."""
    application, version = properties.get(APPLICATION_PROPERTY), properties.get(VERSION_PROPERTY)
    if application is None and version is None:
        return None
    if not application or version is None:
        raise InvalidInputError("txnAppId and txnVersion must be set together")
    if not version.isascii() or not version.isdigit():
        raise InvalidInputError(f"txnVersion {version!r} is not a non-negative integer")
    source = properties.get(SOURCE_PROPERTY)
    identity = None if source is None else SourceIdentity.parse(source)
    return ApplicationVersion(application, int(version), identity)


def is_committed(wanted: ApplicationVersion, config: Mapping[str, str]) -> bool:
    """Return whether the table's configuration records that ``wanted`` was committed.

    Raises:
        TableReplacedError: It applies changes of another table than the one before.
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
        hint="empty the target table, or create a new one, and apply the changes from version 1; "
        "or identify the new source by another source or txnAppId",
    )


def is_same_work(wanted: ApplicationVersion, properties: Mapping[str, str]) -> bool:
    """Return whether another transaction committed ``wanted`` or a later batch."""
    if properties.get(APPLICATION_PROPERTY) != wanted.application:
        return False
    version = properties.get(VERSION_PROPERTY, "")
    return version.isascii() and version.isdigit() and wanted.version <= int(version)


def config_with_application_version(
    config: Mapping[str, str], committed: ApplicationVersion | None
) -> Mapping[str, str]:
    """Return the configuration that records ``committed``."""
    if committed is None or is_committed(committed, config):
        return config
    own = SOURCE_PREFIX + committed.application
    changed = {**config, CONFIG_PREFIX + committed.application: str(committed.version)}
    before = _recorded_source(config, committed.application) or SourceIdentity()
    source = committed.source or SourceIdentity()
    # A known stamp of version 1 is kept; the time of an older version says nothing.
    kept = SourceIdentity(source.first or before.first, source.applied_us)
    changed.pop(own, None)
    return changed if kept == SourceIdentity() else {**changed, own: kept.to_text()}


def _recorded_source(config: Mapping[str, str], application: str) -> SourceIdentity | None:
    text = config.get(SOURCE_PREFIX + application)
    return None if text is None else SourceIdentity.parse(text)


def keep_application_versions(
    config: Mapping[str, str], newest: Mapping[str, str]
) -> Mapping[str, str]:
    """Return ``config`` of an older version with the batches that were committed since."""
    kept = dict(config)
    for key in newest:
        if key.startswith(CONFIG_PREFIX + _CHANGES_OF):
            continue
        recorded, older = _recorded_number(newest, key), _recorded_number(config, key)
        if recorded is not None and (older is None or older < recorded):
            kept[key] = newest[key]
            source = SOURCE_PREFIX + key.removeprefix(CONFIG_PREFIX)
            if source in newest:
                kept[source] = newest[source]
    return kept


def _recorded_number(config: Mapping[str, str], key: str) -> int | None:
    value = config.get(key, "") if key.startswith(CONFIG_PREFIX) else ""
    return int(value) if value.isascii() and value.isdigit() else None
