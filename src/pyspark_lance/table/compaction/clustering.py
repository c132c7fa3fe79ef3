"""Clustering as stages of tasks: sample rows, sort runs, merge runs to fragments.

Rows keep values, row ids and both versions, but not addresses. Each task has about ``sort_bytes``
of rows in memory, twice while sorting. Bins are clustered independently and concurrently; a bin
that fits into the memory of a task is sorted and written by one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.clustering import Clustering
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ADDRESS, ROW_ID
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.compaction.compaction_plan import (
    SMALL_FOR_COMPACTION,
    Bin,
    Candidate,
    CompactionOptions,
    IndexCoverage,
    Lineage,
    candidate,
    with_lineage,
)
from pyspark_lance.table.compaction.remap_indices import current_indices
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.rows.spilled_lineage import spill_lineage
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest, write_fragments
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_ROWS
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.sort import (
    Boundaries,
    Curve,
    RowOrder,
    Run,
    RunReader,
    SortedRows,
    lineage_names,
    with_lineage_columns,
    write_run,
)
from pyspark_lance.table.unit_of_work import remove_files
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

# Number of rows per task to measure the row width.
_MEASURED_ROWS: Final = 1024
_MEASURED_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a task."""

    values: tuple[pa.Array, ...]  # For each order column.
    addresses: NDArray[np.uint64]
    num_bytes: float  # Estimated memory of all live rows of the task.


@dataclass(frozen=True, slots=True)
class BinSorting:
    """Parameters of all tasks of a bin."""

    files: TableFiles
    stable_row_ids: bool
    order: RowOrder
    request: WriteFragmentsRequest  # How the new fragments are written.


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Task that reads every n-th row of some splits."""

    title: ClassVar = "sample the order of rows"

    sorting: BinSorting
    slices: tuple[ScanSplit, ...]
    step: int

    def run(self) -> Sample:
        """Return the sample; the number of bytes is an estimate for rows of variable width."""
        order = self.sorting.order
        scan = _scan(self, order.fields, (ROW_ADDRESS,))
        values, addresses, num_rows = [], [np.empty(0, np.uint64)], 0
        for batch in scan.run():
            own = plain_array(np.arange(-num_rows % self.step, batch.num_rows, self.step))
            values.append([column.take(own) for column in order.values(batch)])
            addresses.append(plain_numbers(batch.column(ROW_ADDRESS).take(own)))
            num_rows += batch.num_rows
        whole = _scan(self, self.sorting.request.schema.fields, ())
        whole = replace(whole, batch_rows=_MEASURED_ROWS, batch_bytes=_MEASURED_BYTES)
        first = next(whole.run(), None)
        row_bytes = first.nbytes / first.num_rows if first is not None else 0.0
        columns = tuple(pa.concat_arrays(parts) for parts in zip(*values, strict=True))
        return Sample(columns, np.concatenate(addresses), row_bytes * num_rows)


@dataclass(frozen=True, slots=True)
class SortTask:
    """Task that sorts the live rows of some splits, ascending by address."""

    title: ClassVar = "sort rows"

    sorting: BinSorting
    slices: tuple[ScanSplit, ...]
    sort_bytes: int
    # Boundaries of ranges; None if these are all rows, whose order is then final.
    bounds: Boundaries | None

    def run(self) -> tuple[Run, ...] | tuple[Fragment, ...]:
        """Sort rows and write runs, several ones if rows are wider than estimated.

        Return the runs, or the new fragments with id 0 if these are all rows.
        """
        order, request = self.sorting.order, self.sorting.request
        kept = (ROW_ADDRESS, *lineage_names(stable_row_ids=self.sorting.stable_row_ids))
        batches = _scan(self, request.schema.fields, kept).run()
        if self.bounds is None:
            return _write(self.sorting, SortedRows(order, list(batches)).batches())
        portions = _portions(batches, 2 * self.sort_bytes)
        return tuple(
            write_run(request, kept[1:], SortedRows(order, buffered), self.bounds)
            for buffered in portions
        )


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Task that merges and writes adjacent ranges of runs."""

    title: ClassVar = "merge sorted rows"

    sorting: BinSorting
    runs: tuple[Run, ...]
    ranges: tuple[int, int]  # [first, end).
    skipped: int  # Rows of the first range that the previous task writes.
    num_rows: int

    def run(self) -> tuple[Fragment, ...]:
        """Merge runs and write the final fragments with id 0."""
        sorting = self.sorting
        kept = lineage_names(stable_row_ids=sorting.stable_row_ids)
        fields = with_lineage_columns(sorting.request.schema, kept).fields
        reader = RunReader(sorting.files, fields, sorting.order, self.runs)
        return _write(sorting, reader.rows(*self.ranges, self.skipped, self.num_rows))


ClusteringTask: TypeAlias = SampleTask | SortTask | MergeTask


def _scan(
    task: SampleTask | SortTask, fields: tuple[Field, ...], system: tuple[str, ...]
) -> ScanTask:
    return ScanTask(
        files=task.sorting.files,
        fields=fields,
        filter_fields=(),
        system_columns=system,
        predicate=None,
        stable_row_ids=task.sorting.stable_row_ids,
        batch_rows=DEFAULT_BATCH_ROWS,
        batch_bytes=DEFAULT_BATCH_BYTES,
        slices=task.slices,
        small=SMALL_FOR_COMPACTION,
        checks_text=isinstance(task, SortTask),
    )


def _portions(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[list[pa.RecordBatch]]:
    """Group batches by about ``most`` bytes."""
    buffered: list[pa.RecordBatch] = []
    num_bytes = 0
    for batch in batches:
        buffered.append(batch)
        num_bytes += batch.nbytes
        if num_bytes >= most:
            yield buffered
            buffered, num_bytes = [], 0
    if buffered:
        yield buffered


def _write(sorting: BinSorting, batches: Iterator[pa.RecordBatch]) -> tuple[Fragment, ...]:
    if not sorting.stable_row_ids:
        return write_fragments(sorting.request, sorting.order.by_file(batches))
    lineage: list[list[NDArray[np.uint64]]] = []
    kept = (ROW_ID, CREATED_AT, LAST_UPDATED_AT)

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lineage.append([plain_numbers(batch.column(name)) for name in kept])
            yield batch.drop_columns(kept)

    new = write_fragments(sorting.request, sorting.order.by_file(rows()))
    if not new:
        return ()
    row_ids, created, updated = (np.concatenate(parts) for parts in zip(*lineage, strict=True))
    sequences = Lineage(
        RowIdSequence.from_array(row_ids),
        RowDatasetVersionSequence.from_array(created),
        RowDatasetVersionSequence.from_array(updated),
    )
    try:
        return spill_lineage(sorting.request, with_lineage(new, sequences))
    except BaseException:
        remove_files(sorting.request.table.store(), files_of(new))
        raise


def slices_of(fragments: Sequence[Fragment], most_rows: int) -> list[tuple[ScanSplit, ...]]:
    """Return the rows of fragments in groups of at most ``most_rows`` physical rows."""
    groups: list[list[ScanSplit]] = [[]]
    left = most_rows
    for fragment in fragments:
        start = 0
        while start < fragment.physical_rows:
            if not left:
                groups.append([])
                left = most_rows
            end = min(start + left, fragment.physical_rows)
            groups[-1].append(ScanSplit(fragment, start, end))
            left -= end - start
            start = end
    return [tuple(group) for group in groups if group]


_SAMPLED_ROWS_PER_TASK: Final = 4 << 20
_MIN_SAMPLE: Final = 1 << 14
_MAX_SAMPLE: Final = 1 << 20
_SAMPLE_PER_RANGE: Final = 16
# Rows of a range, as a fraction of the rows that fit into the memory of a task.
_RANGES_PER_RUN: Final = 4
# Maximum merged runs: with more, the pieces are too small, so the bin is sorted in parts.
_MAX_RUNS: Final = 512
# Maximum files: planning more is slower than their keys save.
_MAX_FILES: Final = 10_000


# The plan ----------------------------------------------------------------------------------


def choose_order(snapshot: Snapshot, chosen: CompactionOptions) -> tuple[RowOrder, tuple[Bin, ...]]:
    """Return the target order and the fragments that are not in it."""
    order = RowOrder.of(snapshot.schema, chosen.cluster_by, Curve.parse(chosen.order))
    known = Clustering.of(snapshot.manifest.config)
    if chosen.split_files_by:
        order = order.with_file_split(chosen.split_files_by)
    elif chosen.split_files_by is None and known and known.satisfies(clustering_of(order)):
        order = replace(order, num_split=known.num_split)
    indices = current_indices(snapshot)
    return order, plan_clustered_bins(snapshot.manifest.fragments, indices, chosen, order, known)


def plan_clustered_bins(
    fragments: Iterable[Fragment],
    indices: Sequence[IndexMetadata],
    options: CompactionOptions,
    order: RowOrder,
    known: Clustering | None,
) -> tuple[Bin, ...]:
    """Return the bins of fragments to sort; none if all are sorted.

    Sorted fragments stay unchanged, except for small ones and those with many deleted rows, which
    are sorted again together with new rows. ``known``: the recorded clustering.
    """
    coverage = IndexCoverage(indices)
    bins: dict[frozenset[int], list[Fragment]] = {}
    beside: dict[frozenset[int], list[Fragment]] = {}
    for fragment in sorted(fragments, key=lambda fragment: fragment.id):
        if fragment.id in options.excluded_fragment_ids or not fragment.physical_rows:
            continue
        covering = coverage.of(fragment.id)
        if not _is_sorted(fragment, order, known):
            bins.setdefault(covering, []).append(fragment)
            continue
        kind = candidate(fragment, options)
        if kind is Candidate.ALONE:
            bins.setdefault(covering, []).append(fragment)
        elif kind is Candidate.WITH_NEIGHBOURS and not _is_full(fragment, options):
            beside.setdefault(covering, []).append(fragment)
    whole = [
        sorted([*group, *beside.get(covering, ())], key=lambda fragment: fragment.id)
        for covering, group in bins.items()
    ]
    parts = [part for group in whole for part in _parts(group, options.sort_bytes)]
    return _limit_bins(sorted(parts, key=lambda group: group[0].id), options)


def clustering_of(order: RowOrder) -> Clustering:
    """Return the clustering to record for sorted fragments."""
    return Clustering(order.field_ids, order.curve.value, num_split=order.num_split)


def _is_sorted(fragment: Fragment, order: RowOrder, known: Clustering | None) -> bool:
    if known is None or fragment.id not in known.fragment_ids or not fragment.files:
        return False
    is_same = known.satisfies(clustering_of(order))
    # Columns with other values since then are in another file.
    return is_same and set(order.field_ids).issubset(fragment.files[0].fields)


def _is_full(fragment: Fragment, options: CompactionOptions) -> bool:
    """Return whether the file reached the size limit."""
    most = options.max_bytes_per_file
    return most is not None and 2 * sum(file.size_bytes for file in fragment.files) >= most


def _parts(group: Sequence[Fragment], sort_bytes: int) -> list[Bin]:
    """Split fragments into bins that fit into one sort."""
    parts: list[list[Fragment]] = [[]]
    num_bytes = 0
    for fragment in group:
        own = sum(file.size_bytes for file in fragment.files)
        if parts[-1] and num_bytes + own > _MAX_RUNS // 4 * sort_bytes:
            parts.append([])
            num_bytes = 0
        parts[-1].append(fragment)
        num_bytes += own
    return [tuple(part) for part in parts]


def _limit_bins(bins: Sequence[Bin], options: CompactionOptions) -> tuple[Bin, ...]:
    """Return the first bins within the limits, at least one, to ensure progress."""
    rows = fragments = 0
    limited: list[Bin] = []
    for group in bins:
        kept: list[Fragment] = []
        for fragment in group:
            rows += fragment.num_rows
            fragments += 1
            if (limited or kept) and options.is_limit_exceeded(rows, fragments):
                return (*limited, tuple(kept)) if kept else tuple(limited)
            kept.append(fragment)
        limited.append(tuple(kept))
    return tuple(limited)


# The stages --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SortedBin:
    """The state of one bin."""

    fragments: Bin
    sorting: BinSorting
    bounds: Boundaries | None = None  # None if one task sorts all rows.

    @property
    def num_rows(self) -> int:
        """Live rows of the bin."""
        return sum(fragment.num_rows for fragment in self.fragments)


@dataclass(frozen=True, slots=True)
class ClusteringStage:
    """The next tasks of all bins; picklable."""

    sort_bytes: int
    bins: tuple[SortedBin, ...]
    tasks: tuple[ClusteringTask, ...] = ()
    owners: tuple[int, ...] = ()  # The bin index of each task.
    # Finished new fragments of each bin, kept until all bins are finished.
    done: tuple[tuple[Fragment, ...], ...] = ()
    passing: tuple[Fragment, ...] = ()  # Temporary files passed between tasks.

    @classmethod
    def first(
        cls,
        snapshot: Snapshot,
        bins: Sequence[Bin],
        requests: Sequence[WriteFragmentsRequest],
        order: RowOrder,
        sort_bytes: int,
    ) -> ClusteringStage:
        """Return the sampling stage.

        ``requests``: how the new fragments of each bin are written.
        """
        sortings = (
            BinSorting(snapshot.files, snapshot.uses_stable_row_ids, order, request)
            for request in requests
        )
        stage = cls(sort_bytes, tuple(map(SortedBin, bins, sortings)))
        return stage._with([stage._sampling(one) for one in stage.bins])

    @property
    def is_last(self) -> bool:
        """Whether the new fragments of all bins exist after these tasks."""
        return not any(
            isinstance(task, SampleTask) or (isinstance(task, SortTask) and task.bounds is not None)
            for task in self.tasks
        )

    def after(self, results: Sequence[Any]) -> ClusteringStage:
        """Return the next stage, given the task results of this one, in order."""
        by_bin = self._by_bin(results)
        if any(isinstance(task, SampleTask) for task in self.tasks):
            bins = tuple(
                self._with_boundaries(one, own) for one, own in zip(self.bins, by_bin, strict=True)
            )
            num_bytes = [sum(sample.num_bytes for sample in own) for own in by_bin]
            stage = replace(self, bins=bins)
            return stage._with([stage._sorting(*own) for own in zip(bins, num_bytes, strict=True)])
        runs = [[run for part in own for run in part] for own in by_bin]
        merging: list[list[ClusteringTask]] = []
        done = []
        for one, own in zip(self.bins, runs, strict=True):
            is_done = one.bounds is None
            merging.append([] if is_done else list(self._merging(one, own)))
            done.append(tuple(own) if is_done else ())
        passing = tuple(run.fragment for own in runs for run in own if isinstance(run, Run))
        return replace(self._with(merging), done=tuple(done), passing=passing)

    def groups(self, results: Sequence[Any]) -> list[RewriteGroup]:
        """Return the old and new fragments, given the results of the last tasks."""
        done = self.done or ((),) * len(self.bins)
        groups = []
        for one, before, own in zip(self.bins, done, self._by_bin(results), strict=True):
            new = (*before, *(fragment for part in own for fragment in part))
            num_written = sum(fragment.physical_rows for fragment in new)
            if num_written != one.num_rows:
                raise CorruptFileError(
                    f"fragments of {one.num_rows} live rows gave {num_written} rows",
                    f"{one.sorting.files.table.uri}, fragment {one.fragments[0].id} and others",
                )
            groups.append(RewriteGroup(one.fragments, new))
        return groups

    def _with(self, tasks: Sequence[Sequence[ClusteringTask]]) -> ClusteringStage:
        """Return this stage with tasks of each bin."""
        return replace(
            self,
            tasks=tuple(task for own in tasks for task in own),
            owners=tuple(number for number, own in enumerate(tasks) for _ in own),
        )

    def _by_bin(self, results: Sequence[Any]) -> list[list[Any]]:
        grouped: list[list[Any]] = [[] for _ in self.bins]
        for owner, result in zip(self.owners, results, strict=True):
            grouped[owner].append(result)
        return grouped

    def _sampling(self, one: SortedBin) -> list[ClusteringTask]:
        step = one.num_rows // min(_MAX_SAMPLE, max(_MIN_SAMPLE, one.num_rows // 16))
        return [
            SampleTask(one.sorting, slices, max(1, step))
            for slices in slices_of(one.fragments, _SAMPLED_ROWS_PER_TASK)
        ]

    def _with_boundaries(self, one: SortedBin, samples: Sequence[Sample]) -> SortedBin:
        """Return the bin with boundaries from a sample."""
        found = [sample for sample in samples if len(sample.addresses)]
        if not found:
            return one
        values = [pa.concat_arrays(parts) for parts in zip(*(s.values for s in found), strict=True)]
        _check_few_files(one.sorting.order, values)
        sorting = replace(one.sorting, order=one.sorting.order.learn_cells(values))
        num_bytes = sum(sample.num_bytes for sample in found)
        if num_bytes <= self.sort_bytes:
            return replace(one, sorting=sorting)
        addresses = np.concatenate([sample.addresses for sample in found])
        wanted = int(_RANGES_PER_RUN * num_bytes // self.sort_bytes) + 1
        num_ranges = max(1, min(wanted, len(addresses) // _SAMPLE_PER_RANGE))
        bounds = Boundaries.of_sample(sorting.order, values, addresses, num_ranges)
        return replace(one, sorting=sorting, bounds=bounds)

    def _sorting(self, one: SortedBin, num_bytes: float) -> list[ClusteringTask]:
        rows = sum(fragment.physical_rows for fragment in one.fragments)
        if one.bounds is not None:
            rows = max(1, int(one.num_rows * self.sort_bytes / num_bytes))
        return [
            SortTask(one.sorting, slices, self.sort_bytes, one.bounds)
            for slices in slices_of(one.fragments, rows)
        ]

    def _merging(self, one: SortedBin, runs: Sequence[Run]) -> Iterable[MergeTask]:
        """Return a task for each new fragment."""
        starts: NDArray[np.int64] = np.sum([run.cuts for run in runs], axis=0)
        total, step = int(starts[-1]), one.sorting.request.max_rows_per_file
        for first in range(0, total, step):
            last = min(first + step, total)
            low = int(starts.searchsorted(first, side="right")) - 1
            high = int(starts.searchsorted(last, side="left"))
            yield MergeTask(
                one.sorting,
                tuple(
                    Run(run.fragment, run.cuts[low : high + 1])
                    for run in runs
                    if run.cuts[low] < run.cuts[high]
                ),
                (0, high - low),
                first - int(starts[low]),
                last - first,
            )


def _check_few_files(order: RowOrder, sample: Sequence[pa.Array]) -> None:
    """Reject splitting files by columns with too many values."""
    if not order.num_split:
        return
    split = pa.table(list(sample[: order.num_split]), list(map(str, range(order.num_split))))
    num_files = split.group_by(split.column_names).aggregate([]).num_rows
    if num_files > _MAX_FILES:
        names = [".".join(column.names) for column in order.columns[: order.num_split]]
        raise InvalidInputError(
            f"files that are split by {', '.join(names)} would be more than {num_files}",
            hint=f"split by columns that have at most {_MAX_FILES} values, or only sort",
        )
