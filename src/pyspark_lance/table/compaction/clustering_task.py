"""Clustering tasks: sample rows, sort runs, merge runs.

Rows keep values, row ids and both versions, but not addresses. Each task has about ``sort_bytes``
of rows in memory, twice while sorting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.system_columns import CREATED_AT, LAST_UPDATED_AT, ROW_ADDRESS, ROW_ID
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.compaction.compaction_task import (
    SMALL_FOR_COMPACTION,
    Lineage,
    with_lineage,
)
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.rows.spilled_lineage import spill_lineage
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest, write_fragments
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_ROWS
from pyspark_lance.table.scan.scan_task import ScanTask, run
from pyspark_lance.table.sort.row_order import RowOrder
from pyspark_lance.table.sort.sorted_runs import (
    Boundaries,
    Run,
    RunReader,
    SortedRows,
    lineage_names,
    with_lineage_columns,
    write_run,
)
from pyspark_lance.table.version.table_files import TableFiles
from pyspark_lance.table.work.written_files import remove_files

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
    """Takes every n-th row of some splits."""

    sorting: BinSorting
    slices: tuple[ScanSplit, ...]
    step: int


@dataclass(frozen=True, slots=True)
class SortTask:
    """Sorts the live rows of some splits, ascending by address."""

    sorting: BinSorting
    slices: tuple[ScanSplit, ...]
    sort_bytes: int
    # Boundaries of ranges; None if these are all rows, whose order is then final.
    bounds: Boundaries | None


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges and writes adjacent ranges of runs."""

    sorting: BinSorting
    runs: tuple[Run, ...]
    ranges: tuple[int, int]  # [first, end).
    skipped: int  # Rows of the first range that the previous task writes.
    num_rows: int


ClusteringTask: TypeAlias = SampleTask | SortTask | MergeTask


def take_sample(task: SampleTask) -> Sample:
    """Return the sample; the number of bytes is an estimate for rows of variable width."""
    order = task.sorting.order
    scan = _scan(task, order.fields, (ROW_ADDRESS,))
    values, addresses, num_rows = [], [np.empty(0, np.uint64)], 0
    for batch in run(scan):
        own = plain_array(np.arange(-num_rows % task.step, batch.num_rows, task.step))
        values.append([column.take(own) for column in order.values(batch)])
        addresses.append(plain_numbers(batch.column(ROW_ADDRESS).take(own)))
        num_rows += batch.num_rows
    whole = _scan(task, task.sorting.request.schema.fields, ())
    whole = replace(whole, batch_rows=_MEASURED_ROWS, batch_bytes=_MEASURED_BYTES)
    first = next(run(whole), None)
    row_bytes = first.nbytes / first.num_rows if first is not None else 0.0
    columns = tuple(pa.concat_arrays(parts) for parts in zip(*values, strict=True))
    return Sample(columns, np.concatenate(addresses), row_bytes * num_rows)


def sort_rows(task: SortTask) -> tuple[Run, ...] | tuple[Fragment, ...]:
    """Sort rows and write runs, several ones if rows are wider than estimated.

    Return the runs, or the new fragments with id 0 if these are all rows.
    """
    order, request = task.sorting.order, task.sorting.request
    kept = (ROW_ADDRESS, *lineage_names(stable_row_ids=task.sorting.stable_row_ids))
    batches = run(_scan(task, request.schema.fields, kept))
    if task.bounds is None:
        return _write(task.sorting, SortedRows(order, list(batches)).batches())
    portions = _portions(batches, 2 * task.sort_bytes)
    return tuple(
        write_run(request, kept[1:], SortedRows(order, buffered), task.bounds)
        for buffered in portions
    )


def merge_runs(task: MergeTask) -> tuple[Fragment, ...]:
    """Merge runs and write the final fragments with id 0."""
    sorting = task.sorting
    kept = lineage_names(stable_row_ids=sorting.stable_row_ids)
    fields = with_lineage_columns(sorting.request.schema, kept).fields
    reader = RunReader(sorting.files, fields, sorting.order, task.runs)
    return _write(sorting, reader.rows(*task.ranges, task.skipped, task.num_rows))


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
