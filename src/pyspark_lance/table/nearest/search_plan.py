"""Plan and run a nearest-neighbor search: tasks, and late materialization of results.

Tasks read only vectors and row ids. The other columns are read only for result rows.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import join_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import group_by_fragment
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.recently_used import RecentlyUsed
from pyspark_lance.table.nearest.exact_search import (
    NOTHING_FOUND,
    ExactSearch,
    Found,
    FoundRows,
    concat_found,
    exact_distances,
    nearest_of,
)
from pyspark_lance.table.nearest.ivf_file import IvfKind, IvfSegment
from pyspark_lance.table.nearest.ivf_search import (
    AnySegment,
    SegmentTask,
    fragments_by_segment,
    search_segment,
)
from pyspark_lance.table.nearest.live_rows import MatchingScan
from pyspark_lance.table.nearest.vectors import Metric, Queries, matrix_of
from pyspark_lance.table.rows.fragment_reader import FragmentReader, IncompatibleFilesError
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.column_widths import column_width
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import ScanTask, is_plain, layout_of
from pyspark_lance.table.version.reader_pool import READER_POOL, AcquiredReaders, JoinedReaders
from pyspark_lance.table.version.snapshot import Snapshot

_FETCHED_BYTES: Final = 16 << 20
_MAX_FETCHED_ROWS: Final = 1 << 14
# Default if manifests have no file sizes.
_ASSUMED_ROW_BYTES: Final = 16 << 10
# Predicates of which a snapshot keeps the scans, and their largest size.
_MAX_PREDICATES: Final = 32
_MAX_FETCHES: Final = 32
_MAX_PREDICATE_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class NearestRequest:
    """The parameters of a search."""

    column: Field  # The vector column.
    metric: Metric  # The distance metric.
    k: int  # Rows for each query.
    predicate: Predicate | None  # Filter of rows; None for all.
    columns: LanceSchema  # Columns of result rows.
    system_columns: tuple[str, ...]  # Lineage columns of result rows.
    # Segments of an index of the column for the metric; empty for an exact search.
    segments: tuple[IvfSegment, ...] = ()
    # Partitions of each segment to probe for each query; None for as many as needed to find ``k``
    # rows.
    nprobes: int | None = None
    # Refine factor: this multiple of ``k`` candidates is compared by exact distances; None to use
    # approximate distances.
    refine_factor: int | None = None

    def __post_init__(self) -> None:
        """Reject invalid numbers and plain strings."""
        check_enum(self.metric, Metric)
        if not _is_count(self.k):
            raise InvalidInputError(
                f"k, the number of rows to find, must be at least 1, not {self.k!r}"
            )
        for name in ("nprobes", "refine_factor"):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise InvalidInputError(f"{name} must be a number, at least 1, not {value!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


@dataclass(frozen=True, slots=True)
class NearestPlan:
    """The plan of a search."""

    column: Field
    tasks: tuple[SearchTask | SegmentTask, ...]  # Each searches some rows; together all.
    merge: TopKMerge
    fetch: LateMaterialization


def plan_nearest(snapshot: Snapshot, request: NearestRequest) -> NearestPlan:
    """Plan the tasks of a search, without reading data files.

    With a predicate, each segment task first scans for matching rows, and probes partitions until
    it has enough of them.
    """
    by_segment = fragments_by_segment(snapshot, request.segments)
    covered = {fragment.id for _, fragments in by_segment for fragment in fragments}
    is_covered = len(covered) == len(snapshot.manifest.fragments)
    scans = () if is_covered else _scans(snapshot, request, covered)
    # Approximate and exact distances are not comparable.
    is_refined = bool(by_segment) and (request.refine_factor is not None or not is_covered)
    candidates = request.k * (request.refine_factor or 1)
    tasks = [
        SegmentTask(
            segment,
            snapshot.files,
            fragments,
            snapshot.uses_stable_row_ids,
            candidates,
            request.nprobes,
            request.k,
            matching,
        )
        for segment, fragments, matching in matching_by_segment(
            snapshot, request.predicate, by_segment
        )
    ]
    vectors = (
        plan_fetch(snapshot, LanceSchema(fields=(request.column,)), ()) if is_refined else None
    )
    return NearestPlan(
        request.column,
        (*tasks, *scans),
        TopKMerge(request.metric, request.k, candidates, vectors),
        plan_fetch(snapshot, request.columns, request.system_columns),
    )


# A search is small up to so many bytes that are searched, and fragments that are opened: each takes
# one or two requests to the store, one after another, while tasks would run in parallel.
_SMALL_SEARCH_BYTES: Final = 16 << 20
_SMALL_SEARCH_FRAGMENTS: Final = 16
# Assumed of a row of a condition, or of a text.
CONDITION_BYTES: Final = 64
# Partitions that are searched if a search does not say how many.
_ASSUMED_PROBES: Final = 32
# Of a vector, the part that quantized codes take, at most.
_CODE_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class SearchSize:
    """Estimate of the work of a search."""

    num_bytes: int  # Of vectors, texts, postings and conditions that are looked at.
    num_fragments: int  # Of which data files are opened.

    def __add__(self, other: SearchSize) -> SearchSize:
        """Add another search of the same statement."""
        return SearchSize(
            self.num_bytes + other.num_bytes, self.num_fragments + other.num_fragments
        )

    @property
    def is_small(self) -> bool:
        """Whether one process searches it about as fast as Spark starts a task."""
        return (
            self.num_bytes <= _SMALL_SEARCH_BYTES and self.num_fragments <= _SMALL_SEARCH_FRAGMENTS
        )


def count_fetched_fragments(fetch: LateMaterialization, rows: int | None) -> int:
    """Return of how many fragments result rows are read, at most; ``rows``: None for all."""
    if fetch.reads_nothing or fetch.every is None:
        return 0
    every = len(fetch.every.slices)
    return every if rows is None else min(rows, every)


def estimate_matching(matching: MatchingScan | None) -> SearchSize:
    """Estimate the work of finding the rows that a condition is true of."""
    if matching is None:
        return SearchSize(0, 0)
    return SearchSize(CONDITION_BYTES * matching.scan.num_rows, len(matching.scan.slices))


def estimate_nearest(plan: NearestPlan, num_queries: int) -> SearchSize:
    """Estimate the work of a search by vectors."""
    width, size = int(column_width(plan.column)), SearchSize(0, 0)
    rows = num_queries * plan.merge.k
    for task in plan.tasks:
        if isinstance(task, SearchTask):
            size += SearchSize(num_queries * task.scan.num_rows * width, len(task.scan.slices))
            continue
        lengths, is_flat = task.segment.lengths, task.segment.kind is IvfKind.FLAT
        probed = min(len(lengths), task.nprobes or _ASSUMED_PROBES)
        of_query = int(np.sort(lengths)[-probed:].sum()) * (
            width if is_flat else width // _CODE_SHARE
        )
        size += SearchSize(num_queries * of_query, 0) + estimate_matching(task.matching)
    if plan.merge.vectors is not None:
        rows += num_queries * plan.merge.candidates
    return size + SearchSize(0, count_fetched_fragments(plan.fetch, rows))


def matching_by_segment(
    snapshot: Snapshot,
    predicate: Predicate | None,
    by_segment: Sequence[tuple[AnySegment, tuple[Fragment, ...]]],
) -> Iterator[tuple[AnySegment, tuple[Fragment, ...], MatchingScan | None]]:
    """The segments with the scans for their rows that match; without those that have none."""
    if predicate is None:
        yield from ((segment, fragments, None) for segment, fragments in by_segment)
        return
    token, scans = _plan_matching(snapshot, predicate)
    for segment, fragments in by_segment if scans else ():
        own = {fragment.id for fragment in fragments}
        slices = tuple(one for scan in scans for one in scan.slices if one.fragment.id in own)
        if slices:
            scan = replace(scans[0], slices=slices)
            yield segment, fragments, MatchingScan(scan, token)


def _plan_matching(snapshot: Snapshot, predicate: Predicate) -> tuple[str, tuple[ScanTask, ...]]:
    """Plan a scan for the rows that match, with a token for these rows; '' for none."""
    known = snapshot.memo.setdefault("matching rows", RecentlyUsed(_MAX_PREDICATES, lambda _: 1))
    assert isinstance(known, RecentlyUsed)
    key = pickle.dumps(predicate)
    found: tuple[str, tuple[ScanTask, ...]] | None = known.get(key)
    if found is None:
        request = ScanRequest(
            schema=LanceSchema(fields=()), system_columns=(ROW_ADDRESS,), predicate=predicate
        )
        if len(key) > _MAX_PREDICATE_BYTES:  # Its rows are not kept, either.
            return "", plan_scan(snapshot, request)
        found = uuid.uuid4().hex, plan_scan(snapshot, request)
        known.put(key, found)
    return found


def _scans(
    snapshot: Snapshot, request: NearestRequest, covered: set[int]
) -> tuple[SearchTask, ...]:
    """Return the exact-search tasks of fragments without index coverage."""
    scan = ScanRequest(
        schema=LanceSchema(fields=(request.column,)),
        system_columns=(ROW_ID, ROW_ADDRESS),
        predicate=request.predicate,
    )
    found = []
    for task in plan_scan(snapshot, scan):
        left = tuple(one for one in task.slices if one.fragment.id not in covered)
        if left:
            own = replace(task, slices=left)
            found.append(SearchTask(own, request.column, request.metric, request.k))
    return tuple(found)


def plan_fetch(
    snapshot: Snapshot, columns: LanceSchema, system_columns: Sequence[str]
) -> LateMaterialization:
    """Plan how to read some columns of the resulting rows."""
    known = snapshot.memo.setdefault("fetches", RecentlyUsed(_MAX_FETCHES, lambda _: 1))
    assert isinstance(known, RecentlyUsed)
    # Equal fields of a snapshot are the same; the plan keeps them, so that ids stay theirs.
    key = tuple(map(id, columns.fields)), tuple(system_columns)
    found: LateMaterialization | None = known.get(key)
    if found is None:
        found = _plan_fetch(snapshot, columns, system_columns)
        known.put(key, found)
    return found


def _plan_fetch(
    snapshot: Snapshot, columns: LanceSchema, system_columns: Sequence[str]
) -> LateMaterialization:
    every = ScanRequest(
        schema=columns,
        system_columns=tuple(name for name in SYSTEM_COLUMNS if name in system_columns),
        fragments_per_task=max(1, len(snapshot.manifest.fragments)),
    )
    row_bytes = _row_bytes(snapshot)
    at_once = int(min(_MAX_FETCHED_ROWS, max(1, _FETCHED_BYTES // max(1, row_bytes))))
    planned = plan_scan(snapshot, every)
    if not planned:
        return LateMaterialization(None, at_once)
    return LateMaterialization(planned[0], at_once, can_join_files(planned[0]))


def _row_bytes(snapshot: Snapshot) -> float:
    """Estimate the bytes of a row in data files."""
    key = "bytes of a row"
    if key not in snapshot.memo:
        fragments = snapshot.manifest.fragments
        rows = sum(fragment.physical_rows for fragment in fragments)
        stored = sum(file.size_bytes for fragment in fragments for file in fragment.files)
        snapshot.memo[key] = stored / max(1, rows) or _ASSUMED_ROW_BYTES
    return snapshot.memo[key]  # type: ignore[return-value]


# Rows that are taken from local files one by one.
_SMALL_ROW_COUNT: Final = 256
# Fragments whose files are read as one, those of a table of which some are, and their rows.
_MAX_JOINED: Final = 64
_MAX_JOINED_OF_TABLE: Final = 128
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
    wanted, indices = np.unique(addresses, return_inverse=True)
    fragments = {one.fragment.id: one.fragment for one in task.slices}
    by_fragment = [
        (fragments[number], offsets) for number, offsets in group_by_fragment(wanted).items()
    ]
    with READER_POOL.acquire() as readers:
        is_local = isinstance(task.files.table.store(), LocalStore)
        if is_local and len(wanted) <= _SMALL_ROW_COUNT:
            batches = []
            for several, own in _joined_groups(fetch, by_fragment):
                together = _take_together(task, several, own, readers) if len(own) > 1 else None
                batches += _take_rows(task, own, readers) if together is None else [together]
            rows = join_batches(batches)
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
    return take_rows(rows, indices)


def can_join_files(task: ScanTask) -> bool:
    """Return whether a few rows of all fragments can be taken by one reader."""
    if len(task.slices) > _MAX_JOINED_OF_TABLE or not all(map(is_plain, task.fields)):
        return False
    fragments = [one.fragment for one in task.slices]
    first = layout_of(fragments[0])
    return (
        sum(one.physical_rows for one in fragments) <= _MAX_JOINED_ROWS
        and first is not None
        and all(layout_of(one) == first for one in fragments)
    )


_RowsOfFragment: TypeAlias = tuple[Fragment, NDArray[np.uint32]]


def _joined_groups(
    fetch: LateMaterialization, rows: Sequence[_RowsOfFragment]
) -> Iterator[tuple[Sequence[Fragment], Sequence[_RowsOfFragment]]]:
    """Yield fragments whose files may be read as one, and the rows that are wanted of them.

    ``rows``: ascending. All rows are of one group if no files are read as one.
    """
    assert fetch.every is not None
    every = sorted((one.fragment for one in fetch.every.slices), key=lambda one: one.id)
    if not fetch.joins_files:
        yield (), rows
        return
    size = -(-len(every) // -(-len(every) // _MAX_JOINED))
    for first in range(0, len(every), size):
        group = every[first : first + size]
        own = [one for one in rows if group[0].id <= one[0].id <= group[-1].id]
        if own:
            yield group, own


def _take_together(
    task: ScanTask,
    several: Sequence[Fragment],
    rows: Sequence[_RowsOfFragment],
    readers: AcquiredReaders,
) -> pa.RecordBatch | None:
    """Return a few rows of some fragments by one reader of all; None if there is none.

    To decode rows of many files together costs little more than to decode those of one.
    ``several``: fragments, ascending by their ids; none if their files are not read as one.
    """
    if not several:
        return None
    starts = list(accumulate((one.physical_rows for one in several), initial=0))
    indices = {fragment.id: index for index, fragment in enumerate(several)}
    numbers = [indices[fragment.id] for fragment, _ in rows]
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
