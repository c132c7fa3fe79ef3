"""A change of rows, decided before the first row is seen: what executors need to take part in it.

Deletes, updates and merges are one thing in three sizes.  Each row that changes is named by its
address in the version that the plan pins; rows that go are marked in deletion files, rows that
change move into new fragments and keep their row id, rows that are inserted follow them.
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
from pyspark_lance.table.rows.file_versions import table_dictionaries
from pyspark_lance.table.rows.spilled_lineage import inline_lineage_bytes
from pyspark_lance.table.rows.write_fragments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    WriteFragmentsRequest,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec
from pyspark_lance.table.work.commit_settings import CommitSettings


class RowAction(enum.IntEnum):
    """What happens to a row."""

    KEEP = 0
    """Nothing; it is only counted, to find target rows with more than one match."""
    DELETE = 1
    UPDATE = 2
    INSERT = 3


@dataclass(frozen=True, slots=True)
class ChangeSettings(CommitSettings):
    """How to change rows; None means the default."""

    max_rows_per_file: int | None = None  # A data file ends at this many rows.
    max_bytes_per_file: int | None = None  # A data file ends at this size.


@dataclass(frozen=True, slots=True)
class DmlPlan:
    """One attempt to change rows of one version of a table; picklable."""

    table: Table  # The table or branch.
    read_version: int  # The version whose rows are changed.
    schema: LanceSchema  # The table's schema.
    file_version: str  # Version of the data files.
    stable_row_ids: bool  # Whether rows keep their id when they move.
    settings: ChangeSettings  # As given.
    transaction_uuid: str  # Names the commit, also when its answer is lost.
    # Where the manifest of the version is, so that nobody looks for it again.
    location: ManifestLocation
    base: BaseVersion  # Tells the version from one of the same number in a table made anew.
    # Longer sequences of row ids and versions go to hidden columns; None for none.
    inline_lineage_bytes: int | None = None
    # The (application, version) pair of the settings was committed before, so there is nothing left
    # to do.
    is_done: bool = False

    def snapshot(self) -> Snapshot:
        """The version whose rows are changed; read once in each process."""
        try:
            snapshot = Snapshot.load(self.table, self.table.store(), self.location)
        except FileNotFoundError as error:
            what = f"version {self.read_version}, which the work was planned on, was cleaned up"
            raise RetryableCommitError(
                what, self.table.uri, REDO, ConflictReason.FILES_REMOVED
            ) from error
        if BaseVersion.of(snapshot.manifest) != self.base:
            raise table_was_replaced(snapshot.store.uri)
        return snapshot

    def write_request(self) -> WriteFragmentsRequest:
        """How to write rows that move or are inserted."""
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
    """What a delete, update or merge did.

    Attributes:
        version: The version it made; None when there was nothing to do.
        numInsertedRows: Rows that are new.
        numUpdatedRows: Rows with other values, or with the same ones written again.
        numDeletedRows: Rows that are gone.
        rewrite: Whether an update or merge rewrote rows or columns, and why; None where there was
            nothing to choose.
    """

    version: int | None = None
    numInsertedRows: int = 0  # noqa: N815
    numUpdatedRows: int = 0  # noqa: N815
    numDeletedRows: int = 0  # noqa: N815
    rewrite: RewriteChoice | None = field(default=None, compare=False, repr=False)


def plan_change(
    table: Table, settings: ChangeSettings | None = None, *, at: VersionSpec = LATEST
) -> DmlPlan:
    """A plan on the newest version; writes nothing.

    ``at``: the version that the rows are found in, for rows that somebody else has found.
    """
    return plan_change_of(Snapshot.open(table, at), settings)


def plan_change_of(snapshot: Snapshot, settings: ChangeSettings | None = None) -> DmlPlan:
    """As ``plan_change``, for whoever has opened the table: a second look may find another one."""
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
        is_done=settings.is_done_in(snapshot),
    )
