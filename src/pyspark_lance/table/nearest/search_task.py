"""Search tasks and reading of result rows, on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import join_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import group_by_fragment
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.nearest.exact_search import (
    NOTHING_FOUND,
    ExactSearch,
    Found,
    FoundRows,
    concat_found,
    exact_distances,
    nearest_of,
)
from pyspark_lance.table.nearest.ivf_search import SegmentTask, search_segment
from pyspark_lance.table.nearest.vectors import Metric, Queries, matrix_of
from pyspark_lance.table.rows.fragment_reader import FragmentReader, IncompatibleFilesError
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.scan_task import ScanTask, is_plain, layout_of
from pyspark_lance.table.version.reader_pool import READER_POOL, AcquiredReaders, JoinedReaders

# Rows that are taken from local files one by one.
_SMALL_ROW_COUNT: Final = 256
# Fragments of a table whose files are read as one, and their rows.
_MAX_JOINED: Final = 32
_MAX_JOINED_ROWS: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Rows to compare with queries.

    ``scan``: reads their vectors, row ids and addresses; ``k``: rows for each query.
    """

    splits_queries: ClassVar[bool] = False  # All queries are compared with the rows in one pass.

    scan: ScanTask
    column: Field
    metric: Metric
    k: int

    def __post_init__(self) -> None:
        """Reject a plain value."""
        check_enum(self.metric, Metric)


class HasAddresses(Protocol):
    """Rows that were found."""

    @property
    def address(self) -> NDArray[np.uint64]:
        """Addresses of the rows."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LateMaterialization:
    """Reader of rows by their addresses."""

    # A scan of the columns to read of the whole table; None for an empty table.
    every: ScanTask | None
    rows_at_once: int
    joins_files: bool = False  # Whether files of all fragments may be read as one.

    @property
    def reads_nothing(self) -> bool:
        """Whether no column is requested."""
        return self.every is None or not (self.every.fields or self.every.system_columns)


@dataclass(frozen=True, slots=True)
class TopKMerge:
    """The merge of the results of all tasks."""

    metric: Metric
    k: int  # How many rows for each query.
    candidates: int  # Index candidates to refine.
    # Reads the vectors of candidates; None to use approximate distances.
    vectors: LateMaterialization | None

    def __post_init__(self) -> None:
        """Reject a plain value."""
        check_enum(self.metric, Metric)


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """The search for the nearest rows of some queries among the rows of some tasks."""

    tasks: tuple[SearchTask | SegmentTask, ...]
    queries: Queries

    def run(self) -> Found:
        """Find them.

        Memory depends on the block size and the number of queries, not on the number of rows.
        """
        scans = [task for task in self.tasks if isinstance(task, SearchTask)]
        segments = [task for task in self.tasks if isinstance(task, SegmentTask)]
        candidates = concat_found([search_segment(task, self.queries) for task in segments])
        return Found(_search_rows(scans, self.queries) if scans else NOTHING_FOUND, candidates)


def _search_rows(tasks: list[SearchTask], queries: Queries) -> FoundRows:
    first = tasks[0]
    found = ExactSearch(queries.vectors, first.metric, first.k)
    for task in tasks:
        for batch in task.scan.run():
            names = batch.schema.names
            vectors, has_vector = matrix_of(batch.column(names.index(task.column.name)))
            row_ids = plain_numbers(batch.column(names.index(ROW_ID)))
            addresses = plain_numbers(batch.column(names.index(ROW_ADDRESS)))
            if has_vector is not None:
                vectors, row_ids = vectors[has_vector], row_ids[has_vector]
                addresses = addresses[has_vector]
            found.add(vectors, row_ids, addresses)
    return found.result().of_queries(queries.numbers)


def merge_matches(merge: TopKMerge, parts: Sequence[Found], queries: Queries) -> FoundRows:
    """Merge the results of all tasks, in the order of ``nearest_of``."""
    candidates = nearest_of([part.candidates for part in parts], merge.candidates)
    exact = [part.exact for part in parts]
    if merge.vectors is None:
        return nearest_of([*exact, candidates], merge.k)
    for part, rows in read_found(merge.vectors, candidates):
        if rows is not None:
            exact.append(_with_exact_distances(candidates.at(part), rows, queries, merge.metric))
    return nearest_of(exact, merge.k)


def _with_exact_distances(
    found: FoundRows, rows: pa.RecordBatch, queries: Queries, metric: Metric
) -> FoundRows:
    """Return the same rows with exact distances, without rows that have none."""
    vectors, has_vector = matrix_of(rows.column(0))
    requested = queries.vectors[np.searchsorted(queries.numbers, found.query)].astype(np.float64)
    distances = exact_distances(requested, vectors, metric)
    kept = ~np.isnan(distances)
    if has_vector is not None:
        kept &= has_vector
    return replace(found, distance=distances).at(kept)


def read_found(
    fetch: LateMaterialization, found: HasAddresses
) -> Iterator[tuple[slice, pa.RecordBatch | None]]:
    """Read the columns of result rows, part by part.

    Yields a slice of the pairs, and a batch with a row for each of them; None if no column is read.
    """
    for first in range(0, len(found), fetch.rows_at_once):
        part = slice(first, first + fetch.rows_at_once)
        yield part, None if fetch.reads_nothing else _rows_at(fetch, found.address[part])


def _rows_at(fetch: LateMaterialization, addresses: NDArray[np.uint64]) -> pa.RecordBatch:
    """Return the rows at these addresses, in that order."""
    assert fetch.every is not None
    task = fetch.every
    wanted, places = np.unique(addresses, return_inverse=True)
    fragments = {one.fragment.id: one.fragment for one in task.slices}
    by_fragment = [
        (fragments[number], offsets) for number, offsets in group_by_fragment(wanted).items()
    ]
    with READER_POOL.acquire() as readers:
        is_local = isinstance(task.files.table.store(), LocalStore)
        if is_local and len(wanted) <= _SMALL_ROW_COUNT:
            rows = None
            if fetch.joins_files and len(by_fragment) > 1:
                rows = _take_together(task, sorted(fragments.items()), by_fragment, readers)
            if rows is None:
                rows = join_batches(_take_rows(task, by_fragment, readers))
        else:
            splits = (
                ScanSplit(fragment, 0, fragment.physical_rows, OffsetSet.of(offsets))
                for fragment, offsets in by_fragment
            )
            scan = replace(task, slices=tuple(splits))
            # The rows are known to be live, so deletion vectors are skipped.
            rows = join_batches(list(scan.run(lambda fragment: None, readers=readers)))
    if rows.num_rows != len(wanted):
        raise CorruptFileError(
            f"{len(wanted)} rows were requested by address, but {rows.num_rows} were read",
            where=task.files.table.uri,
        )
    return take_rows(rows, places)


def can_join_files(task: ScanTask) -> bool:
    """Return whether a few rows of all fragments can be taken by one reader."""
    if len(task.slices) > _MAX_JOINED or not all(map(is_plain, task.fields)):
        return False
    fragments = [one.fragment for one in task.slices]
    first = layout_of(fragments[0])
    return (
        sum(one.physical_rows for one in fragments) <= _MAX_JOINED_ROWS
        and first is not None
        and all(layout_of(one) == first for one in fragments)
    )


def _take_together(
    task: ScanTask,
    fragments: Sequence[tuple[int, Fragment]],
    rows: Sequence[tuple[Fragment, NDArray[np.uint32]]],
    readers: AcquiredReaders,
) -> pa.RecordBatch | None:
    """Return a few rows of some fragments by one reader of all; None if there is none.

    To decode rows of many files together costs little more than to decode those of one.
    ``fragments``: with their ids, ascending.
    """
    several = [one for _, one in fragments]
    starts = list(accumulate((one.physical_rows for one in several), initial=0))
    places = {number: place for place, (number, _) in enumerate(fragments)}
    numbers = [places[fragment.id] for fragment, _ in rows]
    reader = FragmentReader(
        task.files.opened(),
        several[0],
        stable_row_ids=task.stable_row_ids,
        following=several[1:],
        checks_text=task.checks_text,
        readers=JoinedReaders(readers, tuple(numbers)),
    )
    offsets = [
        own + np.uint32(starts[number]) for number, (_, own) in zip(numbers, rows, strict=True)
    ]
    try:
        return reader.take(task.fields, task.system_columns, np.concatenate(offsets))
    except IncompatibleFilesError:
        return None


def _take_rows(
    task: ScanTask, rows: Sequence[tuple[Fragment, NDArray[np.uint32]]], readers: AcquiredReaders
) -> list[pa.RecordBatch]:
    """Return a few rows of each fragment, without the setup of a scan of many."""
    files = task.files.opened()
    found = []
    for fragment, offsets in rows:
        reader = FragmentReader(
            files,
            fragment,
            stable_row_ids=task.stable_row_ids,
            checks_text=task.checks_text,
            readers=readers,
        )
        reader.confirm_rows(fragment)
        found.append(reader.take(task.fields, task.system_columns, offsets))
    return found
