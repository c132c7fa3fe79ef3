"""ScanTask: read splits of fragments on an executor.

A task is self-contained; executors never read the manifest.

Small adjacent fragments are coalesced into one read, to amortize the cost per column and file; the
manifest alone decides that. All other sources of batches are read sequentially, while the first
batches of the next ones are prefetched: opening a file takes several round trips to the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import fewest_batches
from pyspark_lance.codec.row_selection import filter_rows, take_rows
from pyspark_lance.datafile.file_metadata import TAIL_BYTES
from pyspark_lance.datafile.read_plan import GROUP_BYTES
from pyspark_lance.format.column_names import ROW_ADDRESS, SYSTEM_COLUMNS
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.logical_view import is_blob_descriptor, is_json_text
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.generator_pool import GeneratorPool
from pyspark_lance.predicate.conditions import Predicate, columns_of, matching
from pyspark_lance.predicate.tree import IsNull, Not, all_of, can_raise, conjuncts
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.rows.fragment_reader import FragmentReader, IncompatibleFilesError
from pyspark_lance.table.rows.scan_split import ScanSplit, Slices
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.reader_pool import AcquiredReaders
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_files import TableFiles

_MAX_FRAGMENTS: Final = 128
_MAX_COALESCED_BYTES: Final = _MAX_FRAGMENTS * TAIL_BYTES
_OLD_VERSIONS: Final = ("0.1", "2.0")


@dataclass(frozen=True, slots=True)
class CoalesceLimits:
    """Limits for fragments that are coalesced with adjacent ones; their files are read whole.

    ``rows``: exclusive maximum per fragment; ``file_bytes``: maximum per file.
    """

    rows: int = 4096
    file_bytes: int = TAIL_BYTES


SMALL: Final = CoalesceLimits()
"""Reading the metadata of such a file reads the whole file."""


def coalesce_fragments(
    slices: Sequence[ScanSplit],
    fields: Sequence[Field],
    batch_rows: int,
    small: CoalesceLimits = SMALL,
) -> Iterator[tuple[ScanSplit, ...]]:
    """Yield the splits in order, with complete small fragments of one layout grouped."""
    can_join = all(map(is_plain, fields))
    most_rows = max(small.rows, batch_rows)
    group: list[ScanSplit] = []
    group_layout: object = None
    rows = num_bytes = 0
    for scan_split in slices:
        layout = _layout(scan_split, small) if can_join else None
        size = sum(file.size_bytes for file in scan_split.fragment.files)
        rows += scan_split.end - scan_split.start
        num_bytes += size
        is_full = (
            len(group) == _MAX_FRAGMENTS or rows > most_rows or num_bytes > _MAX_COALESCED_BYTES
        )
        if group and (is_full or layout is None or layout != group_layout):
            yield tuple(group)
            group, rows, num_bytes = [], scan_split.end - scan_split.start, size
        group.append(scan_split)
        group_layout = layout
    if group:
        yield tuple(group)


def _layout(scan_split: ScanSplit, small: CoalesceLimits) -> object:
    """Return an equal key for fragments that can be coalesced; None for one that cannot."""
    fragment = scan_split.fragment
    is_whole = (
        scan_split.offsets is None
        and scan_split.start == 0
        and scan_split.end == fragment.physical_rows
    )
    if not is_whole or not 0 < scan_split.end < small.rows or not fragment.files:
        return None
    if not all(0 < file.size_bytes <= small.file_bytes for file in fragment.files):
        return None
    return layout_of(fragment)


def layout_of(fragment: Fragment) -> object:
    """Return an equal key for fragments whose files can be read as one; None if that cannot be."""
    if any(file.file_version in _OLD_VERSIONS for file in fragment.files):
        return None
    return [
        (file.fields, file.column_indices, file.major_version, file.minor_version)
        for file in fragment.files
    ]


def is_plain(field: Field) -> bool:
    """Return whether values can be decoded independently of their fragment."""
    return not any(
        is_json_text(part) or is_blob_descriptor(part) or part.is_blob or part.is_packed
        for part in field.walk()
    )


_MAX_SOURCES: Final = 16
# The size of a usual task, which is requested at once.
_MAX_BYTES: Final = 144 << 20

_B = TypeVar("_B")


@dataclass(frozen=True, slots=True)
class Source(Generic[_B]):
    """A source of batches.

    ``num_bytes``: estimated memory once the first batch is decoded.
    """

    num_bytes: int
    batches: Callable[[], Iterator[_B]]


def read_ahead(sources: Iterable[Source[_B]]) -> Iterator[_B]:
    """Yield all batches of all sources, in order.

    A source continues only after the previous ones are exhausted, so memory is bounded by the
    started sources, which are few or small.
    """
    remaining = iter(sources)
    started: deque[tuple[int, Future[_StartedSource[_B]]]] = deque()
    with GeneratorPool(_MAX_SOURCES, thread_name_prefix="lance-ahead") as threads:
        postponed: Source[_B] | None = None
        while True:
            while len(started) < _MAX_SOURCES:
                source = postponed or next(remaining, None)
                postponed = source
                num_buffered = sum(num_bytes for num_bytes, _ in started)
                # At least one source is prefetched.
                if source is None or (
                    len(started) > 1 and num_buffered + source.num_bytes > _MAX_BYTES
                ):
                    break
                started.append((source.num_bytes, threads.submit(_begin, source)))
                postponed = None
            if not started:
                return
            yield from started[0][1].result().batches()
            started.popleft()


@dataclass(frozen=True, slots=True)
class _StartedSource(Generic[_B]):
    """The prefetched batches of a source."""

    first: tuple[_B, ...]
    rest: Iterator[_B]

    def batches(self) -> Iterator[_B]:
        yield from self.first
        yield from self.rest


def _begin(source: Source[_B]) -> _StartedSource[_B]:
    batches = source.batches()
    for batch in batches:
        return _StartedSource((batch,), batches)
    return _StartedSource((), batches)


# Below this fraction of selected rows, single rows are fetched instead of windows.
_SPARSE = 1 / 16
# From this fraction of matching rows on, all columns are read together with those of the predicate;
# below ``_SPARSE`` no longer.
_MOSTLY = 1 / 8
# The same two for fixed-width columns: decoding a whole batch is as fast as locating some of its
# rows.
_NARROW_SPARSE, _NARROW_MOSTLY = 1 / 32768, 1 / 8192
# Consecutive rows are read as a window if runs have at least this average length.
_LONG_RUN = 1024
# Runs of this many unselected rows are skipped.
_SKIP_ROWS = 8192
# Maximum rows of a mask: a tiny file may have four billion equal rows.
_MASK_ROWS = 1 << 22
# Smaller batches are concatenated: each costs about 0.1 ms to transfer to the JVM.
_SMALL_BATCH_ROWS = 4096
MAX_LIMIT: Final = _SMALL_BATCH_ROWS
"""Rows up to which a limit changes how a task reads."""

LoadDeleted: TypeAlias = Callable[[Fragment], DeletionVector | None]
"""Load the deleted rows of a fragment, if any."""
HasEnough: TypeAlias = Callable[[], bool]
"""Return True once the consumer needs no more rows."""


def never() -> bool:
    """Never stop the scan early."""
    return False


@dataclass(frozen=True, slots=True)
class ScanTask:
    """The splits, columns and predicate of one task."""

    files: TableFiles
    fields: tuple[Field, ...]  # Columns to return, possibly pruned to some sub-fields.
    filter_fields: tuple[Field, ...]  # Further columns that only ``predicate`` needs.
    system_columns: tuple[str, ...]
    predicate: Predicate | None  # Rows to return; None for all.
    stable_row_ids: bool  # Whether the table has stable row ids.
    batch_rows: int
    batch_bytes: int  # Target bytes of a batch.
    slices: Sequence[ScanSplit]  # In order; stored as ``Slices``.
    small: CoalesceLimits = SMALL  # Which fragments are coalesced.
    # Whether batches may have dictionaries of strings instead of strings.
    keep_dictionaries: bool = False
    checks_text: bool = False  # Whether strings that are not UTF-8 are an error.
    # How many of the matching rows to return, at most ``MAX_LIMIT``; None for all.
    limit: int | None = None

    def __post_init__(self) -> None:
        """Convert the splits to ``Slices``."""
        object.__setattr__(self, "slices", Slices.of(self.slices))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the splits packed: a plan may have a million of them."""
        return _unpack_task, (
            (self.files.table, self.files.base_paths),
            self.fields,
            self.filter_fields,
            self.system_columns,
            self.predicate,
            (self.stable_row_ids, self.batch_rows, self.batch_bytes),
            (self.small, self.keep_dictionaries, self.checks_text, self.limit),
            self.slices,
        )

    @property
    def num_rows(self) -> int:
        """Physical rows of all splits."""
        slices = Slices.of(self.slices)
        return int((slices.ends - slices.starts).sum())

    def run(
        self,
        load_deleted: LoadDeleted | None = None,
        has_enough: HasEnough = never,
        readers: AcquiredReaders | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows: the fields as stored, then lineage columns as uint64.

        Batches have one schema, unless dictionaries are kept. ``load_deleted``: loads deleted rows
        for callers that also need them; None reads their files. ``has_enough``: called before each
        batch is read, even if no rows match; True ends the scan. ``readers``: lends readers of data
        files, which are opened otherwise.
        """
        access = _Access(load_deleted, has_enough, readers)
        buffered: list[pa.RecordBatch] = []
        buffered_rows = 0
        for batch in first_rows(self.limit, _slices_of(self, access)):
            # Wide rows make large batches with few rows.
            is_large = batch.num_rows >= _SMALL_BATCH_ROWS or batch.nbytes >= self.batch_bytes // 2
            if is_large:
                if buffered:
                    yield from fewest_batches(buffered)
                    buffered, buffered_rows = [], 0
                yield batch
                continue
            is_too_much = buffered_rows + batch.num_rows > max(_SMALL_BATCH_ROWS, self.batch_rows)
            if buffered and (is_too_much or batch.schema != buffered[0].schema):
                yield from fewest_batches(buffered)
                buffered, buffered_rows = [], 0
            buffered.append(batch)
            buffered_rows += batch.num_rows
            if buffered_rows >= _SMALL_BATCH_ROWS:
                yield from fewest_batches(buffered)
                buffered, buffered_rows = [], 0
        if buffered:
            yield from fewest_batches(buffered)


def first_rows(limit: int | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the first ``limit`` rows of batches; all if it is None."""
    if limit is None:
        yield from batches
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= min(limit, batch.num_rows)
        if limit == 0:
            return


@dataclass(frozen=True, slots=True)
class _Access:
    """Resources that the caller of ``ScanTask.run`` provides."""

    load_deleted: LoadDeleted | None
    has_enough: HasEnough
    readers: AcquiredReaders | None


def _slices_of(task: ScanTask, access: _Access) -> Iterator[pa.RecordBatch]:
    fields = (*task.fields, *task.filter_fields)
    columns = _ScanColumns(task)
    runs = coalesce_fragments(task.slices, fields, task.batch_rows, task.small)
    if isinstance(task.files.table.store(), LocalStore):
        for run_of_slices in runs:
            yield from _run_of_slices(task, columns, run_of_slices, access)
        return
    wanted = frozenset(part.id for field in fields for part in field.walk())
    yield from read_ahead(
        Source(
            _bytes_to_begin(run_of_slices, wanted),
            partial(_run_of_slices, task, columns, run_of_slices, access),
        )
        for run_of_slices in runs
    )


def _bytes_to_begin(slices: Sequence[ScanSplit], wanted: frozenset[int]) -> int:
    """Estimate the bytes fetched before the first batch, assuming columns of equal width."""
    num_bytes = 0.0
    for scan_split in slices:
        for file in scan_split.fragment.files:
            share = len(wanted.intersection(file.fields)) / max(1, len(file.fields))
            num_bytes += file.size_bytes * share * scan_split.read_share
    # A group is decoded while the next one is being fetched.
    return min(int(num_bytes), 2 * GROUP_BYTES)


def _run_of_slices(
    task: ScanTask, columns: _ScanColumns, slices: tuple[ScanSplit, ...], access: _Access
) -> Iterator[pa.RecordBatch]:
    if access.has_enough():
        return
    try:
        yield from _SplitScan(task, columns, slices, access).batches()
    except IncompatibleFilesError:  # raised on open, before the first batch
        for scan_split in slices:
            yield from _SplitScan(task, columns, (scan_split,), access).batches()


class _ScanColumns:
    """The columns that a task reads: those of its predicate, and those of its result.

    Pairs of columns are (data fields, names of lineage columns).
    """

    def __init__(self, task: ScanTask) -> None:
        self.by_lineage, self.by_data = _split(task.predicate)
        lineage = frozenset() if self.by_lineage is None else columns_of(self.by_lineage)
        used = frozenset() if self.by_data is None else columns_of(self.by_data)
        # A constant reads no column, but a batch without columns has no row count.
        self.lineage_names = tuple(n for n in SYSTEM_COLUMNS if n in lineage) or (ROW_ADDRESS,)
        self.result = task.fields, task.system_columns
        self.filter = self._filter_columns(task, used)
        self.all = self._all_columns(task, used)
        # Names of the result in the order of a batch.
        self.result_names = [
            *(field.name for field in task.fields),
            *(name for name in SYSTEM_COLUMNS if name in task.system_columns),
        ]
        fields, names = self.filter
        self.is_filter_sufficient = all(field in fields for field in task.fields) and all(
            name in names for name in task.system_columns
        )
        self.is_lazy = any(map(is_lazy, (*task.fields, *task.filter_fields)))
        self.is_narrow = all(map(_is_narrow, task.fields))
        returned = {field.name for field in task.fields}
        # A column whose result and predicate use different parts is not read twice at once.
        is_apart = any(field.name in returned for field in task.filter_fields)
        self.can_read_eagerly = not (
            self.is_lazy or is_apart or self.is_filter_sufficient or task.limit is not None
        )

    @staticmethod
    def _filter_columns(
        task: ScanTask, used: frozenset[str]
    ) -> tuple[tuple[Field, ...], tuple[str, ...]]:
        fields = {field.name: field for field in task.filter_fields}
        for field in task.fields:
            fields.setdefault(field.name, field)
        data = tuple(field for name, field in fields.items() if name in used)
        names = tuple(name for name in SYSTEM_COLUMNS if name in used)
        # A constant reads no column, but a batch without columns has no row count.
        return data, names if data or names else (ROW_ADDRESS,)

    @staticmethod
    def _all_columns(
        task: ScanTask, used: frozenset[str]
    ) -> tuple[tuple[Field, ...], tuple[str, ...]]:
        more = (field for field in task.filter_fields if field.name in used)
        lineage = used.union(task.system_columns)
        return (*task.fields, *more), tuple(name for name in SYSTEM_COLUMNS if name in lineage)


class _Materialization:
    """The adaptive choice between eager and late materialization.

    Reading all columns at once is cheaper than reading some of them later, once enough rows match.
    """

    def __init__(self, columns: _ScanColumns) -> None:
        self._columns = columns
        self._matched = self._seen = self._most_seen = 0  # Row counts.
        # Whether all columns are read before the predicate is evaluated; IS NOT NULL is rarely
        # selective.
        self.is_eager = (
            columns.by_data is not None
            and columns.can_read_eagerly
            and all(map(_is_not_null_test, conjuncts(columns.by_data)))
        )

    def record(self, matched: int, tested: int) -> None:
        """Record the selectivity of a batch, and choose for the next ones.

        Switching has a cost, so small batches at the end of a page do not cause a switch.
        """
        self._matched += matched
        self._seen += tested
        self._most_seen = max(self._most_seen, tested)
        if self._seen < self._most_seen // 4:
            return
        share = self._matched / self._seen
        self._matched = self._seen = 0
        is_narrow = self._columns.is_narrow
        least, enough = (_NARROW_SPARSE, _NARROW_MOSTLY) if is_narrow else (_SPARSE, _MOSTLY)
        if self.is_eager:
            self.is_eager = share >= least
        else:
            self.is_eager = share >= enough and self._columns.can_read_eagerly


class _CandidateRows:
    """The rows of splits that are live and may match, found without reading data pages."""

    def __init__(
        self,
        reader: FragmentReader,
        slices: tuple[ScanSplit, ...],
        load_deleted: LoadDeleted,
        columns: _ScanColumns,
    ) -> None:
        self._reader, self._slices, self._columns = reader, slices, columns
        self._load_deleted = load_deleted

    def mask(self, start: int, end: int) -> NDArray[np.bool_] | None:
        """Return the candidates of [start, end); None for all."""
        keep = self._live_rows(start, end)
        for narrow in (self._matching_lineage, self._matching_pages):
            if keep is not None and not keep.any():
                return keep
            rows = narrow(start, end)
            if rows is not None:
                keep = rows if keep is None else rows & keep
        return None if keep is not None and keep.all() else keep

    def among(self, offsets: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the candidates among ``offsets`` of a single split."""
        vector = self._load_deleted(self._slices[0].fragment)
        if vector is not None:
            offsets = offsets[~vector.contains_each(offsets)]
        by_lineage = self._columns.by_lineage
        if by_lineage is not None and len(offsets):
            batch = self._reader.take((), self._columns.lineage_names, offsets)
            offsets = offsets[matching(by_lineage, batch)]
        return offsets

    def _live_rows(self, start: int, end: int) -> NDArray[np.bool_] | None:
        vectors = [self._load_deleted(scan_split.fragment) for scan_split in self._slices]
        if len(vectors) == 1:
            return None if vectors[0] is None else vectors[0].keep_mask(start, end)
        if all(vector is None for vector in vectors):
            return None
        masks = [
            np.ones(scan_split.end, np.bool_)
            if vector is None
            else vector.keep_mask(0, scan_split.end)
            for scan_split, vector in zip(self._slices, vectors, strict=True)
        ]
        return np.concatenate(masks)

    def _matching_lineage(self, start: int, end: int) -> NDArray[np.bool_] | None:
        if self._columns.by_lineage is None:
            return None
        batch = self._reader.window((), self._columns.lineage_names, start, end)
        return matching(self._columns.by_lineage, batch)

    def _matching_pages(self, start: int, end: int) -> NDArray[np.bool_] | None:
        """Return the rows of pages that are not pruned."""
        if self._columns.by_data is None:
            return None
        fields, _ = self._columns.filter
        return self._reader.rows_that_may_match(self._columns.by_data, fields, start, end)


class _SplitScan:
    """The scan of one split, or of coalesced small fragments."""

    def __init__(
        self, task: ScanTask, columns: _ScanColumns, slices: tuple[ScanSplit, ...], access: _Access
    ) -> None:
        self._task, self._columns = task, columns
        self._has_enough = access.has_enough
        self._slices = slices
        fragment, *following = (scan_split.fragment for scan_split in slices)
        files = task.files.opened() if following else task.files
        self._reader = FragmentReader(
            files,
            fragment,
            stable_row_ids=task.stable_row_ids,
            following=following,
            ahead_bytes=task.small.file_bytes,
            checks_text=task.checks_text,
            readers=access.readers,
        )
        self._materialization = _Materialization(columns)
        load_deleted = access.load_deleted or partial(
            load_deletion_vector, files, stable_row_ids=task.stable_row_ids
        )
        self._candidates = _CandidateRows(self._reader, slices, load_deleted, columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield non-empty batches of matching rows."""
        for scan_split in self._slices:
            self._reader.confirm_rows(scan_split.fragment)
        start, end = self._slices[0].start, sum(scan_split.end for scan_split in self._slices)
        offsets = self._slices[0].offsets
        if offsets is not None:
            for part in offsets.stretches(_MASK_ROWS):
                yield from self._at(self._candidates.among(part.to_array()))
            return
        # Coalesced fragments share a mask.
        step = _MASK_ROWS if len(self._slices) == 1 else max(1, end - start)
        for first in range(start, end, step):
            last = min(first + step, end)
            yield from self._between(first, last, self._candidates.mask(first, last))

    def _between(
        self, start: int, end: int, keep: NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of the matching rows of [start, end) where ``keep`` is set."""
        if keep is None:
            yield from self._dense(start, end, None)
            return
        num_kept = np.count_nonzero(keep)
        if num_kept and (self._columns.is_lazy or num_kept < _SPARSE * len(keep)):
            yield from self._sparse((np.flatnonzero(keep) + start).astype(np.uint32))
        elif num_kept:
            yield from self._dense(start, end, keep)

    def _at(self, offsets: NDArray[np.uint32]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the matching rows at ``offsets``."""
        if not len(offsets):
            return
        if self._columns.is_lazy or not _is_dense(offsets):
            yield from self._sparse(offsets)
            return
        start, end = int(offsets[0]), int(offsets[-1]) + 1
        keep = np.zeros(end - start, dtype=np.bool_)
        keep[offsets - np.uint32(start)] = True
        yield from self._dense(start, end, None if keep.all() else keep)

    def _dense(
        self, start: int, end: int, keep: NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of [start, end) where ``keep`` is set, reading windows of rows."""
        if self._task.limit is not None and self._columns.by_data is None:
            offsets = np.arange(start, end) if keep is None else np.flatnonzero(keep) + start
            yield from self._sparse(offsets[: self._task.limit].astype(np.uint32))
            return
        for first, last in _selected_spans(keep, start, end):
            if self._columns.by_data is not None:
                yield from self._dense_tested((first, last), start, keep)
                continue
            for at, batch in self._stream(self._columns.result, (first, last)):
                if self._has_enough():
                    return
                kept = _part_of(keep, at - start, batch.num_rows)
                if kept is None:
                    yield batch
                elif kept.any():
                    yield filter_rows(batch, kept)

    def _dense_tested(
        self, rows: tuple[int, int], start: int, keep: NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield matching rows of ``rows`` where ``keep`` is set; ``keep`` begins at ``start``."""
        at, end = rows
        while at < end:
            is_eager = self._materialization.is_eager
            columns = self._columns.all if is_eager else self._columns.filter
            for first, batch in self._stream(columns, (at, end)):
                if self._has_enough():
                    return
                at = first + batch.num_rows
                yield from self._filter_rows(
                    first, batch, _part_of(keep, first - start, batch.num_rows)
                )
                if self._materialization.is_eager != is_eager:
                    break

    def _stream(
        self, columns: tuple[Sequence[Field], Sequence[str]], rows: tuple[int, int]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        task = self._task
        return self._reader.stream(
            *columns,
            rows,
            batch_rows=task.batch_rows,
            batch_bytes=task.batch_bytes,
            keep_dictionaries=task.keep_dictionaries,
        )

    def _filter_rows(
        self, first: int, tested: pa.RecordBatch, keep: NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        """Filter the rows of ``tested``, which begin at ``first`` and have the predicate columns.

        Missing columns are read only for batches with a match.
        """
        columns = self._columns
        assert columns.by_data is not None
        length = tested.num_rows
        offsets = np.arange(first, first + length, dtype=np.uint32)
        if keep is not None:
            # Deleted rows may have invalid values, on which a cast must not fail.
            tested, offsets = filter_rows(tested, keep), offsets[keep]
        matches = matching(columns.by_data, tested)
        is_complete = self._materialization.is_eager or columns.is_filter_sufficient
        self._materialization.record(int(np.count_nonzero(matches)), length)
        if not matches.any():
            return
        everything = bool(matches.all())
        if is_complete:
            rows = tested.select(columns.result_names)
            yield rows if everything else filter_rows(rows, matches)
            return
        offsets = offsets if everything else offsets[matches]
        offsets = offsets[: self._task.limit]
        if columns.is_lazy or len(offsets) < _SPARSE * length:
            yield from self._take(columns.result, offsets)
            return
        window = int(offsets[0]), int(offsets[-1]) + 1
        for start, batch in self._stream(columns.result, window):
            end = start + batch.num_rows
            inside = offsets[offsets.searchsorted(start) : offsets.searchsorted(end)]
            if len(inside) == batch.num_rows:
                yield batch
            elif len(inside):
                yield take_rows(batch, inside - np.uint32(start))

    def _sparse(self, offsets: NDArray[np.uint32]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows at ``offsets`` in batches, fetching single rows."""
        columns, step = self._columns, self._task.batch_rows
        for first in range(0, len(offsets), step):
            if self._has_enough():
                return
            some = offsets[first : first + step]
            if columns.by_data is not None:
                tested = self._take(columns.filter, some)
                matches = [matching(columns.by_data, batch) for batch in tested]
                some = some[np.concatenate(matches)]
            yield from self._take(columns.result, some[: self._task.limit])

    def _take(
        self, columns: tuple[Sequence[Field], Sequence[str]], offsets: NDArray[np.uint32]
    ) -> Iterator[pa.RecordBatch]:
        return self._reader.take_batches(*columns, offsets, self._task.batch_bytes)


def _is_not_null_test(term: Predicate) -> bool:
    """Return whether the term is ``IS NOT NULL``."""
    return isinstance(term, Not) and isinstance(term.term, IsNull)


def _part_of(keep: NDArray[np.bool_] | None, first: int, num_rows: int) -> NDArray[np.bool_] | None:
    """Return a part of a mask; None if it keeps all rows."""
    part = None if keep is None else keep[first : first + num_rows]
    return None if part is None or part.all() else part


def _is_dense(offsets: NDArray[np.uint32]) -> bool:
    """Return whether to read windows instead of single rows; ``offsets``: ascending, not empty."""
    span = int(offsets[-1]) - int(offsets[0]) + 1
    runs = 1 + int(np.count_nonzero(np.diff(offsets) != 1))
    return len(offsets) >= _SPARSE * span or len(offsets) >= _LONG_RUN * runs


def _is_narrow(field: Field) -> bool:
    """Return whether values have a fixed width of at most 16 bytes."""
    kind = field.to_arrow().type
    return bool(field.is_leaf and (pa.types.is_primitive(kind) or pa.types.is_decimal128(kind)))


def _selected_spans(keep: NDArray[np.bool_] | None, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of [start, end) without long runs of unselected rows."""
    if keep is None:
        return [(start, end)]
    blocks = -(-len(keep) // _SKIP_ROWS)
    padded = np.zeros(blocks * _SKIP_ROWS, dtype=np.bool_)
    padded[: len(keep)] = keep
    wanted = np.concatenate([[False], padded.reshape(blocks, _SKIP_ROWS).any(axis=1), [False]])
    bounds = np.flatnonzero(wanted[1:] != wanted[:-1]) * _SKIP_ROWS
    return [
        (start + first, min(start + last, end))
        for first, last in zip(bounds[::2].tolist(), bounds[1::2].tolist(), strict=True)
    ]


def is_lazy(field: Field) -> bool:
    """Return whether values are fetched or decoded one by one.

    Unselected rows are then skipped:
    decoding is costly, and the blob of a deleted row may be missing.
    """
    return is_json_text(field) or (
        not is_blob_descriptor(field) and (field.is_blob or any(map(is_lazy, field.children)))
    )


def _split(predicate: Predicate | None) -> tuple[Predicate | None, Predicate | None]:
    """Split the predicate into (lineage part, remainder); both must be true.

    A term that can fail (a cast) stays behind the terms that guard it.
    """
    if predicate is None:
        return None, None
    terms = conjuncts(predicate)
    lineage = frozenset(SYSTEM_COLUMNS)
    first = tuple(t for t in terms if columns_of(t) <= lineage and not can_raise(t))
    rest = tuple(t for t in terms if not (columns_of(t) <= lineage and not can_raise(t)))
    return all_of(first), all_of(rest)


def _unpack_task(
    files: tuple[Table, tuple[BasePath, ...]],
    fields: tuple[Field, ...],
    filter_fields: tuple[Field, ...],
    system_columns: tuple[str, ...],
    predicate: Predicate | None,
    limits: tuple[bool, int, int],
    options: tuple[CoalesceLimits, bool, bool, int | None],
    slices: Slices,
) -> ScanTask:
    small, keep_dictionaries, checks_text, limit = options
    return ScanTask(
        TableFiles(*files),
        fields,
        filter_fields,
        system_columns,
        predicate,
        *limits,
        slices,
        small,
        keep_dictionaries,
        checks_text,
        limit,
    )
