"""DmlPlan: the serializable description of a DML statement that executors need.

Deletes, updates and merges share one plan. Each changed row is identified by its address in the
pinned version; deleted rows are marked in deletion files, updated rows move to new fragments and
keep their row id, and inserted rows follow them.
"""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.conflict_check import REDO
from pyspark_lance.commit.invariants import check_writable
from pyspark_lance.commit.manifest_committer import table_was_replaced
from pyspark_lance.errors import ConflictReason, RetryableCommitError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.manifest_file import ManifestLocation
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.dml.choose_rewrite import RewriteChoice
from pyspark_lance.table.rows.spilled_lineage import inline_lineage_bytes
from pyspark_lance.table.rows.write_fragments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    WriteFragmentsRequest,
    table_dictionaries,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec
from pyspark_lance.table.work.commit_settings import CommitSettings


class RowAction(enum.IntEnum):
    """The action applied to a row."""

    KEEP = 0
    """Keep the row; it is only counted, to detect target rows with several matches."""
    DELETE = 1
    UPDATE = 2
    INSERT = 3


@dataclass(frozen=True, slots=True)
class ChangeSettings(CommitSettings):
    """Settings of a DML statement; None means the default."""

    max_rows_per_file: int | None = None  # Maximum rows of a data file.
    max_bytes_per_file: int | None = None  # Maximum bytes of a data file.


@dataclass(frozen=True, slots=True)
class DmlPlan:
    """One attempt to change rows of one version of a table; picklable."""

    table: Table  # The table or branch.
    read_version: int  # The version whose rows are changed.
    schema: LanceSchema  # The table's schema.
    file_version: str  # Version of the data files.
    stable_row_ids: bool  # Whether rows keep their id when they move.
    settings: ChangeSettings  # As given.
    transaction_uuid: str  # Identifies the commit when its outcome is unknown.
    # Path of the manifest of the version, so that executors need not list again.
    location: ManifestLocation
    base: BaseVersion  # Distinguishes the version from that of a recreated table.
    # Columns whose values in new rows the transaction records, for a small merge on them.
    row_keys: tuple[str, ...] = ()
    # Longer sequences of row ids and versions are stored in hidden columns; None for none.
    inline_lineage_bytes: int | None = None
    # Whether the (application, version) pair of the settings was committed before.
    is_done: bool = False

    def snapshot(self) -> Snapshot:
        """Return the version whose rows are changed; read once in each process."""
        try:
            snapshot = Snapshot.load(self.table, self.table.store(), self.location)
        except FileNotFoundError as error:
            what = f"version {self.read_version}, the base of this statement, was cleaned up"
            raise RetryableCommitError(
                what, self.table.uri, REDO, ConflictReason.FILES_REMOVED
            ) from error
        if BaseVersion.of(snapshot.manifest) != self.base:
            raise table_was_replaced(snapshot.store.uri)
        return snapshot

    def write_request(self) -> WriteFragmentsRequest:
        """Return the request to write updated and inserted rows."""
        is_legacy = self.file_version == "0.1"
        return WriteFragmentsRequest(
            table=self.table,
            schema=self.schema,
            file_version=self.file_version,
            max_rows_per_file=self.settings.max_rows_per_file or DEFAULT_MAX_ROWS_PER_FILE,
            max_bytes_per_file=self.settings.max_bytes_per_file or DEFAULT_MAX_BYTES_PER_FILE,
            dictionaries=table_dictionaries(self.snapshot()) if is_legacy else {},
            inline_lineage_bytes=None if is_legacy else self.inline_lineage_bytes,
        )


@also_snake_case
@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The result of a delete, update or merge.

    Attributes:
        version: The committed version; None if nothing changed.
        numInsertedRows: Inserted rows.
        numUpdatedRows: Updated rows, including those with equal values.
        numDeletedRows: Deleted rows.
        rewrite: Whether an update or merge rewrote rows or columns, and why; None if there was
            no choice.
    """

    version: int | None = None
    numInsertedRows: int = 0  # noqa: N815
    numUpdatedRows: int = 0  # noqa: N815
    numDeletedRows: int = 0  # noqa: N815
    rewrite: RewriteChoice | None = field(default=None, compare=False, repr=False)


def plan_change(
    table: Table, settings: ChangeSettings | None = None, *, at: VersionSpec = LATEST
) -> DmlPlan:
    """Plan a statement on the newest version; write nothing.

    ``at``: the version of the row addresses, if these are already known.
    """
    return plan_change_of(Snapshot.open(table, at), settings)


def plan_change_of(snapshot: Snapshot, settings: ChangeSettings | None = None) -> DmlPlan:
    """Plan a statement on an open snapshot, without looking up the newest version."""
    snapshot.table.store().check_writable()
    check_writable(snapshot.manifest, snapshot.indices)
    settings = settings or ChangeSettings()
    return DmlPlan(
        table=snapshot.table,
        read_version=snapshot.version,
        schema=snapshot.schema,
        file_version=snapshot.manifest.file_version,
        stable_row_ids=snapshot.uses_stable_row_ids,
        settings=settings,
        transaction_uuid=str(uuid.uuid4()),
        location=snapshot.file.location,
        base=BaseVersion.of(snapshot.manifest),
        inline_lineage_bytes=inline_lineage_bytes(snapshot.manifest.config),
        is_done=settings.is_committed_in(snapshot),
    )
