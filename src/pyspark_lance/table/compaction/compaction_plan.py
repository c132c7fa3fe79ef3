"""Compaction: bins of fragments to rewrite together, and the task that rewrites one.

A fragment with many deleted rows is rewritten alone, a small one together with adjacent fragments.
Fragments covered by different indices never share a bin, so that an index covers either all rows of
a new fragment or none.

A task rewrites the live rows of one bin into new fragments. Rows keep their values, order, row ids
and both versions. They are streamed to the writer, so memory is bounded by one batch and the open
pages, independent of the size of the bin.

Source: docs/format/table-format.md, sections 6.4, 7.3 and 10.5.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.clustering import ClusterBy
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata, addresses_of_live_rows
from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import DEFAULT_VERSION, FragmentLineage
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.rows.spilled_lineage import spill_lineage
from pyspark_lance.table.rows.write_fragments import (
    DEFAULT_MAX_ITEMS_PER_FILE,
    WriteFragmentsRequest,
    write_fragments,
)
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_ROWS
from pyspark_lance.table.scan.scan_task import CoalesceLimits, ScanTask
from pyspark_lance.table.unit_of_work import remove_files
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table_files import TableFiles

CONFIG_PREFIX: Final = "lance.compaction."
CONFIGURABLE: Final[Mapping[str, type[int | float]]] = {
    "target_rows_per_fragment": int,
    "max_bytes_per_file": int,
    "materialize_deletions": bool,
    "materialize_deletions_threshold": float,
    "max_source_fragments": int,
    "max_source_rows": int,
    "defer_index_remap": bool,
    "sort_bytes": int,
}
"""Fields of ``CompactionOptions`` that a caller or the table configuration may set."""

Bin = tuple[Fragment, ...]
"""Fragments that are rewritten together, in their order."""


def _in_words(name: str) -> str:
    """Return an option name for messages, independent of camelCase or snake_case."""
    return f"the limit {name.replace('_', ' ')!r}"


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """Settings of a compaction by its caller; see ``CompactionOptions`` for the fields.

    None: as the table is configured, or the default.
    """

    target_rows_per_fragment: int | None = None
    materialize_deletions: bool | None = None
    materialize_deletions_threshold: float | None = None
    max_bytes_per_file: int | None = None
    max_items_per_file: int | None = None
    max_source_rows: int | None = None
    max_source_fragments: int | None = None
    cluster_by: tuple[str, ...] | None = None
    split_files_by: tuple[str, ...] | None = None
    order: str | None = None
    sort_bytes: int | None = None
    excluded_fragment_ids: frozenset[int] | None = None
    defer_index_remap: bool | None = None


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Options of a compaction, named as in Lance's configuration keys."""

    # Smaller fragments are merged; new ones have at least this many rows, if possible, and less
    # than twice as many.
    target_rows_per_fragment: int = 1 << 20
    materialize_deletions: bool = True  # Whether deleted rows are a reason to rewrite a fragment.
    materialize_deletions_threshold: float = 0.1  # Minimum fraction of deleted rows.
    # A new file is closed once it exceeds this size; None for no limit.
    max_bytes_per_file: int | None = None
    # A new file is closed before a list column has more items than this, at any depth. The manifest
    # has no item counts, so bins are planned without this limit and split while being rewritten.
    max_items_per_file: int = DEFAULT_MAX_ITEMS_PER_FILE
    # Bins are taken in order until they have more live rows; None for all.
    max_source_rows: int | None = None
    # Bins are taken in order until they have more fragments; None for all.
    max_source_fragments: int | None = None
    # Columns to sort rows by, across the fragments of a bin; empty to keep the order.
    cluster_by: tuple[str, ...] = ()
    # Prefix of these columns whose values get separate files; None to keep the current ones, if the
    # table is clustered by the same columns.
    split_files_by: tuple[str, ...] | None = None
    order: str = "linear"  # Or a space-filling curve: ``zorder``, ``hilbert``.
    sort_bytes: int = 128 << 20  # Bytes of rows that a task sorts in memory.
    excluded_fragment_ids: frozenset[int] = frozenset()  # Fragments to skip.
    # Keep indices unchanged and record moved rows in a fragment reuse index; only for tables
    # without stable row ids.
    defer_index_remap: bool = False

    def __post_init__(self) -> None:
        """Reject limits that are not positive."""
        for name in (
            "target_rows_per_fragment",
            "max_bytes_per_file",
            "max_items_per_file",
            "max_source_rows",
            "max_source_fragments",
            "sort_bytes",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{_in_words(name)} must be positive, not {value}")
        if not 0 <= self.materialize_deletions_threshold <= 1:
            raise InvalidInputError(
                f"{_in_words('materialize_deletions_threshold')} is a share of rows, from 0 to 1, "
                f"not {self.materialize_deletions_threshold}",
                hint="0.1 rewrites what has more than a tenth of its rows deleted, 1 nothing",
            )

    @classmethod
    def of(cls, config: Mapping[str, str], request: CompactionRequest) -> CompactionOptions:
        """Resolve a request, the table configuration and defaults.

        ``config``: of the table; keys ``lance.compaction.<name>`` and the clustering columns.
        """
        configured: dict[str, Any] = {}
        for name, kind in CONFIGURABLE.items():
            text = config.get(CONFIG_PREFIX + name)
            if text is not None:
                try:
                    configured[name] = _PARSERS[kind](text)
                except ValueError as error:
                    raise InvalidInputError(
                        f"the property {CONFIG_PREFIX}{name} = {text!r} is {error}"
                    ) from error
        requested = {one.name: getattr(request, one.name) for one in fields(request)}
        requested = {name: value for name, value in requested.items() if value is not None}
        by = ClusterBy.of(config)
        if by is not None and "cluster_by" not in requested:
            # Splitting files requires a linear sort order.
            order = "linear" if requested.get("split_files_by") else by.order
            configured |= {"cluster_by": by.columns, "order": order}
        return replace(cls(), **{**configured, **requested})

    def is_limit_exceeded(self, rows: int, fragments: int) -> bool:
        """Return whether one compaction takes fewer rows or fragments than these."""
        return (self.max_source_rows is not None and rows > self.max_source_rows) or (
            self.max_source_fragments is not None and fragments > self.max_source_fragments
        )


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def _parse_int(text: str) -> int:
    # Lance reads no signs, blanks or underscores, which ``int`` would.
    if not (text.isascii() and text.isdigit()):
        raise ValueError("not a whole number")
    return int(text)


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number") from None


_PARSERS: Final[Mapping[type[int | float], Callable[[str], int | float]]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
}


def plan_bins(
    fragments: Iterable[Fragment], indices: Sequence[IndexMetadata], options: CompactionOptions
) -> tuple[Bin, ...]:
    """Return the bins, in the order of their fragments; none if there is nothing to compact."""
    coverage = IndexCoverage(indices)
    runs: list[tuple[list[Fragment], list[Candidate]]] = []
    previous: frozenset[int] | None = None
    for fragment in sorted(fragments, key=lambda fragment: fragment.id):
        kind = candidate(fragment, options)
        if kind is Candidate.NO:
            previous = None
            continue
        covering = coverage.of(fragment.id)
        if covering != previous:
            runs.append(([], []))
        previous = covering
        runs[-1][0].append(fragment)
        runs[-1][1].append(kind)
    bins: list[Bin] = []
    for group, kinds in runs:
        if kinds != [Candidate.WITH_NEIGHBOURS]:
            bins += _split(group, options.target_rows_per_fragment)
    return _limit_bins(bins, options)


def rows_per_fragment(fragments: Bin, options: CompactionOptions) -> int:
    """Return the rows of each new fragment of a bin: evenly distributed, as in Lance."""
    rows = sum(fragment.num_rows for fragment in fragments)
    return -(-rows // max(1, rows // options.target_rows_per_fragment))


class Candidate(enum.Enum):
    """Treatment of a fragment by a compaction."""

    NO = "stays as it is"
    ALONE = "is rewritten, whatever its neighbours are"
    WITH_NEIGHBOURS = "is rewritten if a neighbour is"


def candidate(fragment: Fragment, options: CompactionOptions) -> Candidate:
    """Return how a compaction treats a fragment."""
    if fragment.id in options.excluded_fragment_ids or not fragment.physical_rows:
        return Candidate.NO
    threshold = options.materialize_deletions_threshold
    if options.materialize_deletions and (
        fragment.num_deleted_rows / fragment.physical_rows > threshold
    ):
        return Candidate.ALONE
    if fragment.physical_rows < options.target_rows_per_fragment:
        return Candidate.WITH_NEIGHBOURS
    return Candidate.NO


class IndexCoverage:
    """Index entries that cover a fragment, by their position."""

    def __init__(self, indices: Sequence[IndexMetadata]) -> None:
        self._indices = [index for index in indices if index.fields]

    def of(self, fragment_id: int) -> frozenset[int]:
        """Return the entries that cover a fragment, or may."""
        return frozenset(
            position
            for position, index in enumerate(self._indices)
            # An entry without a bitmap may cover anything.
            if index.fragment_bitmap is None or fragment_id in index.fragment_bitmap
        )


def _split(run: Sequence[Fragment], target_rows: int) -> list[Bin]:
    """Split a run where both sides fill a fragment."""
    bins: list[Bin] = []
    left = sum(fragment.num_rows for fragment in run)
    group: list[Fragment] = []
    rows = 0
    for fragment in run:
        group.append(fragment)
        rows += fragment.num_rows
        left -= fragment.num_rows
        if rows >= target_rows and left >= target_rows:
            bins.append(tuple(group))
            group, rows = [], 0
    bins.append(tuple(group))
    return bins


def _limit_bins(bins: Sequence[Bin], options: CompactionOptions) -> tuple[Bin, ...]:
    """Return the first bins within the limits, at least one, to ensure progress."""
    taken: list[Bin] = []
    rows = fragments = 0
    for group in bins:
        rows += sum(fragment.num_rows for fragment in group)
        fragments += len(group)
        if taken and options.is_limit_exceeded(rows, fragments):
            break
        taken.append(group)
    return tuple(taken)


SMALL_FOR_COMPACTION: Final = CoalesceLimits(rows=DEFAULT_BATCH_ROWS, file_bytes=1 << 20)
"""Large requests: the whole file is needed, and latency does not matter."""


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """One bin and all that is needed to rewrite it; picklable.

    ``stable_row_ids``: whether rows keep their ids; ``records_addresses``: whether the addresses of
    moved rows are recorded for a fragment reuse index.
    """

    title: ClassVar = "rewrite fragments"

    files: TableFiles
    fragments: tuple[Fragment, ...]
    request: WriteFragmentsRequest
    stable_row_ids: bool
    records_addresses: bool = False

    @property
    def num_rows(self) -> int:
        """Live rows of the bin."""
        return sum(fragment.num_rows for fragment in self.fragments)

    def run(self) -> RewriteGroup:
        """Write the new files of one bin, without a commit.

        On failure, the files written by this call are removed. Return the old fragments, and the
        new ones with id 0 and the lineage of their rows.
        """
        # Deletion vectors are shared by the rows and their lineage.
        deleted = _Deleted(self)
        new = write_fragments(self.request, _live_rows(self, deleted))
        try:
            num_written = sum(fragment.physical_rows for fragment in new)
            if num_written != self.num_rows:
                raise CorruptFileError(
                    f"fragments of {self.num_rows} live rows gave {num_written} rows",
                    f"{self.files.table.uri}, fragment {self.fragments[0].id} and those after it",
                )
            if self.stable_row_ids:
                new = spill_lineage(self.request, with_lineage(new, _lineage_of(self, deleted)))
        except BaseException:
            remove_files(self.request.table.store(), files_of(new))
            raise
        addresses = None
        if self.records_addresses:
            vectors = [deleted(fragment) for fragment in self.fragments]
            addresses = addresses_of_live_rows(self.fragments, vectors)
        return RewriteGroup(self.fragments, new, addresses)


class _Deleted:
    """A lazy cache of the deletion vectors of a bin."""

    def __init__(self, task: CompactionTask) -> None:
        self._task = task
        self._known: dict[int, DeletionVector | None] = {}

    def __call__(self, fragment: Fragment) -> DeletionVector | None:
        if fragment.id not in self._known:
            self._known[fragment.id] = load_deletion_vector(
                self._task.files, fragment, stable_row_ids=self._task.stable_row_ids
            )
        return self._known[fragment.id]


def _live_rows(task: CompactionTask, deleted: _Deleted) -> Iterator[pa.RecordBatch]:
    scan = ScanTask(
        files=task.files,
        fields=task.request.schema.fields,
        filter_fields=(),
        system_columns=(),
        predicate=None,
        stable_row_ids=task.stable_row_ids,
        batch_rows=DEFAULT_BATCH_ROWS,
        batch_bytes=DEFAULT_BATCH_BYTES,
        slices=tuple(ScanSplit(fragment, 0, fragment.physical_rows) for fragment in task.fragments),
        small=SMALL_FOR_COMPACTION,
        checks_text=True,
    )
    return scan.run(deleted)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Ids and versions of rows, in their order."""

    row_ids: RowIdSequence
    created_at: RowDatasetVersionSequence
    last_updated_at: RowDatasetVersionSequence

    def write_to(self, fragment: Fragment, start: int) -> Fragment:
        """Return the fragment with the lineage of the rows from ``start`` on."""
        end = start + fragment.physical_rows
        return replace(
            fragment,
            row_ids=self.row_ids.slice(start, end).to_bytes(),
            created_at=self.created_at.slice(start, end).to_bytes(),
            last_updated_at=self.last_updated_at.slice(start, end).to_bytes(),
        )


def with_lineage(fragments: Sequence[Fragment], lineage: Lineage) -> tuple[Fragment, ...]:
    """Return the fragments with the lineage of all of their rows."""
    done, start = [], 0
    for fragment in fragments:
        done.append(lineage.write_to(fragment, start))
        start += fragment.physical_rows
    return tuple(done)


def _lineage_of(task: CompactionTask, deleted: _Deleted) -> Lineage:
    parts = [_live_lineage(task, fragment, deleted(fragment)) for fragment in task.fragments]
    return Lineage(
        RowIdSequence.concat(part.row_ids for part in parts),
        RowDatasetVersionSequence.concat(part.created_at for part in parts),
        RowDatasetVersionSequence.concat(part.last_updated_at for part in parts),
    )


def _live_lineage(
    task: CompactionTask, fragment: Fragment, deleted: DeletionVector | None
) -> Lineage:
    """Return the lineage of one fragment, with explicit default versions."""
    lineage = FragmentReader(task.files, fragment, stable_row_ids=True).lineage
    assert isinstance(lineage, FragmentLineage)
    row_ids = lineage.row_ids()
    created = lineage.versions(CREATED_AT)
    if created is None:
        created = RowDatasetVersionSequence.constant(fragment.physical_rows, DEFAULT_VERSION)
    updated = lineage.versions(LAST_UPDATED_AT)
    if updated is None:
        updated = created
    if deleted is None:
        return Lineage(row_ids, created, updated)
    return Lineage(row_ids.without(deleted), created.without(deleted), updated.without(deleted))
