"""DmlPlan: the serializable description of a DML statement that executors need.

Deletes, updates and merges share one plan. Each changed row is identified by its address in the
pinned version; deleted rows are marked in deletion files, updated rows move to new fragments and
keep their row id, and inserted rows follow them.

An update may rewrite columns instead of rows, by estimated cost. The cost of rewriting rows grows
with the changed rows, in all columns; that of rewriting columns with all physical rows of the
affected fragments, in the changed columns. No I/O.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.conflict_check import REDO
from pyspark_lance.commit.invariants import check_writable
from pyspark_lance.commit.manifest_committer import table_was_replaced
from pyspark_lance.errors import (
    ConflictReason,
    InvalidInputError,
    MissingFileError,
    RetryableCommitError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.metafile.manifest_file import ManifestLocation
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.spilled_lineage import inline_lineage_bytes
from pyspark_lance.table.rows.write_fragments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    WriteFragmentsRequest,
    table_dictionaries,
)
from pyspark_lance.table.scan.column_widths import LeafWidths, row_bytes
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.unit_of_work import CommitSettings
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table


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


# Measured CPU time to locate one row of a file and decode its columns.
_SCATTERED_ROW_S = 5e-6
# An object store reads about 400 MB/s per task and writes 200 MB/s. A local disk is faster, but
# then both modes cost little.
_READ_BYTE_S = 2.5e-9
_WRITTEN_BYTE_S = 5e-9
# Cost of one more file. Rewriting rows creates a deletion file and a share of a data file;
# rewriting columns creates one data file, which every later scan of the fragment also opens.
_FILE_S = 5e-3
# The manifest stores the last-updated version of each run of rows. Scattered updates create many
# runs; each is written now and read by every later commit (measured: 3.5 µs and 2 µs), and takes
# ten bytes. When rows move, the remaining rows keep their single run.
_STRETCH_S = 1e-5
# Counting the changed rows is a separate job; below this cost it is not worthwhile.
WORTH_COUNTING_S = 2.0


class RewriteMode(enum.StrEnum):
    """Method to write updated values."""

    AUTO = "auto"
    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class RewriteCost:
    """Estimated seconds of one core."""

    rows_s: float
    columns_s: float


def rewrite_mode(text: str) -> RewriteMode:
    """Parse the mode of an option."""
    try:
        return RewriteMode(text.strip().lower())
    except ValueError:
        raise InvalidInputError(
            f"the argument rewrite cannot be {text!r}", hint=f"use one of {', '.join(RewriteMode)}"
        ) from None


@dataclass(frozen=True, slots=True)
class RewriteChoice:
    """The chosen mode and the reason, as shown to the user.

    ``mode``: ``ROWS`` or ``COLUMNS``; ``reason``: a request, an obstacle, or the cost of each mode.
    """

    mode: RewriteMode
    reason: str

    def __post_init__(self) -> None:
        """Reject a plain string in place of the enum member."""
        check_enum(self.mode, RewriteMode)

    def __str__(self) -> str:
        return f"{self.mode}, because {self.reason}"


_ROWS_ADDED_OR_REMOVED = RewriteChoice(RewriteMode.ROWS, "it may insert or delete rows, too")


def choose_rewrite(
    snapshot: Snapshot,
    names: Collection[str] | None,
    requested: RewriteMode,
    changed: Mapping[int, int] | Callable[[], Mapping[int, int]],
) -> RewriteChoice:
    """Choose whether a statement rewrites rows or columns; the only place that decides it.

    ``names``: top-level columns that are assigned; None if rows are added or removed.
    ``requested``: anything but ``AUTO`` is used, if possible. ``changed``: fragment id -> changed
    rows, or a job that counts them, which runs only if worthwhile.
    """
    choice = _predetermined_choice(snapshot, names, requested)
    if choice is not None or names is None:
        return choice or _ROWS_ADDED_OR_REMOVED
    everything = snapshot.manifest.fragments.rows_by_id()
    # Rewriting a column removes the fragment from the coverage of its indices. When rows move, the
    # indices still cover the remaining rows.
    if _is_indexed(snapshot, names, everything if callable(changed) else changed):
        return _rows(f"an index covers {_list_names(names)}, and stays usable when rows move")
    if callable(changed):
        if rewrite_cost(snapshot, names, everything).rows_s < WORTH_COUNTING_S:
            return _rows("the table is so small that counting the changes would cost more")
        changed = changed()
    cost = rewrite_cost(snapshot, names, changed, _measure_assigned(snapshot, names, changed))
    reason = (
        f"moving {sum(changed.values()):,} of {sum(everything.values()):,} rows takes about "
        f"{cost.rows_s:.2g} s of CPU time, rewriting {_list_names(names)} for "
        f"{len(changed):,} of {len(everything):,} fragments about {cost.columns_s:.2g} s"
    )
    if cost.columns_s < cost.rows_s:
        return RewriteChoice(RewriteMode.COLUMNS, reason)
    return _rows(reason)


def _predetermined_choice(
    snapshot: Snapshot, names: Collection[str] | None, requested: RewriteMode
) -> RewriteChoice | None:
    """Return the choice where it does not depend on costs, else None."""
    if requested is RewriteMode.ROWS:
        return RewriteChoice(requested, "rows were asked for")
    if names is None:
        if requested is RewriteMode.COLUMNS:
            raise adds_or_removes_rows()
        return _ROWS_ADDED_OR_REMOVED
    if not names:
        return _rows("no column gets another value")
    obstacle = _obstacle(snapshot, names)
    if requested is RewriteMode.COLUMNS:
        if obstacle:
            raise UnsupportedFeatureError(obstacle, where=snapshot.uri, hint="rewrite rows")
        return RewriteChoice(requested, "columns were asked for")
    if obstacle:
        return _rows(obstacle)
    return None


def adds_or_removes_rows() -> InvalidInputError:
    """Return the error for a merge with rewrite=columns that does more than update."""
    return InvalidInputError(
        "a merge that inserts or deletes rows does not rewrite columns", hint='use rewrite="auto"'
    )


def _rows(reason: str) -> RewriteChoice:
    return RewriteChoice(RewriteMode.ROWS, reason)


def _list_names(names: Collection[str]) -> str:
    return f"column {next(iter(names))!r}" if len(names) == 1 else f"{len(names)} columns"


def rewrite_cost(
    snapshot: Snapshot,
    names: Collection[str],
    changed: Mapping[int, int],
    assigned_bytes: float | None = None,
) -> RewriteCost:
    """Estimate the cost of each mode by the sizes in the manifest.

    Assumes that the changed rows are spread over their fragment.

    ``changed``: fragment id -> number of changed rows; ``assigned_bytes``: bytes of a row in the
    assigned columns, if measured.
    """
    rows_s = columns_s = 0.0
    stable = snapshot.uses_stable_row_ids
    widths = LeafWidths.of(snapshot.schema.fields)
    chosen = LeafWidths.of(field for field in snapshot.schema.fields if field.name in names)
    for fragment in counted_fragments(snapshot):
        count = changed.get(fragment.id, 0)
        if not count:
            continue
        whole = row_bytes(fragment, widths.bytes, widths)
        part = row_bytes(fragment, chosen.bytes, widths)
        if assigned_bytes is not None:
            part = min(whole, assigned_bytes)
        # A fully deleted fragment needs no deletion file.
        rows_s += (_FILE_S if count < fragment.num_rows else 0.0) + _FILE_S / 2
        everything_s = fragment.physical_rows * whole * _READ_BYTE_S
        rows_s += min(count * _SCATTERED_ROW_S, everything_s) + count * whole * _WRITTEN_BYTE_S
        stretches = 2 * min(count, max(0, fragment.num_rows - count)) if stable else 0
        columns_s += 2 * _FILE_S + stretches * _STRETCH_S
        columns_s += fragment.physical_rows * part * (_READ_BYTE_S + _WRITTEN_BYTE_S)
    return RewriteCost(rows_s, columns_s)


def _measure_assigned(
    snapshot: Snapshot, names: Collection[str], changed: Mapping[int, int]
) -> float | None:
    """Measure the bytes of a row in the assigned columns, in the fragment with most changed rows.

    Opens its files only where the manifest is not enough: if some of the columns of variable width
    are assigned and some are not, such as a label beside an embedding. Else returns None.
    """
    assigned = [field for field in snapshot.schema.fields if field.name in names]
    variable = LeafWidths.of(assigned).variable
    if not variable or variable == LeafWidths.of(snapshot.schema.fields).variable:
        return None
    fragments = snapshot.manifest.fragments
    index = fragments.index_of(max(changed, key=changed.__getitem__)) if changed else None
    if index is None:
        return None
    try:
        reader = FragmentReader(snapshot.files, fragments[index], stable_row_ids=False)
        return float(reader.average_row_bytes(assigned))
    except MissingFileError:
        return None  # The statement reports it once it reads the fragment.


def _obstacle(snapshot: Snapshot, names: Collection[str]) -> str:
    """Return why the columns cannot be rewritten; '' if they can."""
    files = (file for fragment in snapshot.manifest.fragments for file in fragment.files)
    if any(file.file_version == "0.1" for file in files):
        return "the table has files of version 0.1, whose columns cannot be rewritten"
    for column in snapshot.schema.fields:
        if column.name in names and any(part.is_blob or part.is_packed for part in column.walk()):
            return f"the column {column.name!r} is stored as a whole and cannot be rewritten"
    return ""


def _is_indexed(snapshot: Snapshot, names: Collection[str], changed: Mapping[int, int]) -> bool:
    """Return whether an index covers one of the columns in an affected fragment."""
    ids = {
        part.id for field in snapshot.schema.fields if field.name in names for part in field.walk()
    }
    return any(
        ids & set(index.fields)
        and (
            index.fragment_bitmap is None
            or any(fragment_id in index.fragment_bitmap for fragment_id in changed)
        )
        for index in snapshot.indices
    )
