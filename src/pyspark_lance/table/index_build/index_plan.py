"""Plans of column indices: which segments are built, and which fragments each of them covers.

Each segment of an index covers some fragments, and is built by one task; a zone map is one segment,
whose zones are built by several tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata, reuse_index_of
from pyspark_lance.format.row_address import OFFSET_BITS, numbers_of, parse_tree_map, union_of
from pyspark_lance.table.dml.row_change import ChangeSettings, DmlPlan, plan_change
from pyspark_lance.table.index.bitmap import BITMAP_FILE, LABEL_NULLS_KEY, read_row_sets
from pyspark_lance.table.index.index_file import IndexFile, row_id_index
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer
from pyspark_lance.table.index.lookups import covered_fragments, segment_state
from pyspark_lance.table.index.minhash import MinHashOptions
from pyspark_lance.table.index.segments import (
    BITMAP,
    BLOOMFILTER,
    BTREE,
    INVERTED,
    KEPT_KINDS,
    LABEL_LIST,
    MINHASH,
    NGRAM,
    ZONEMAP,
    Segment,
    kind_of,
    segment_of,
)
from pyspark_lance.table.index.zone_map_file import is_zone_map
from pyspark_lance.table.index_build.merged_segments import StoredSegment
from pyspark_lance.table.index_build.segment_task import (
    KINDS,
    BuiltSegment,
    SegmentTask,
    check_can_be_indexed,
)
from pyspark_lance.table.index_build.text_build import (
    has_equal_tokens,
    minhash_to_refresh,
    options_to_refresh,
    references_uncovered_rows,
)
from pyspark_lance.table.index_build.zone_maps import (
    ROWS_PER_ZONE,
    BuiltZones,
    ZoneMapPlan,
    ZoneMapTask,
    check_rows_per_zone,
    plan_refresh_of,
    plan_wanted,
    request_zone_map,
)
from pyspark_lance.table.scan.column_paths import named_path, path_to
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, project
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS_PER_SEGMENT: Final = 4 << 20
"""Live rows of a segment: queries ask each of them, and each is made by one task."""

ROWS_PER_JOINED_SEGMENT: Final = 64 << 20
"""Live rows of a segment that is merged from several: no column is read for it."""

# Of kinds whose segments name rows by their ids, where they have stable ones.
_BY_ROW_IDS: Final = (BITMAP, LABEL_LIST, NGRAM, INVERTED, MINHASH)
# Of these, Lance takes rows without another look at their values.
_EXACT_BY_ROW_IDS: Final = (BITMAP, LABEL_LIST)
# Of kinds whose segments are merged.
_MERGED: Final = (BTREE, BITMAP, NGRAM, INVERTED)

_SETS_AT_ONCE: Final = 10_000
_SET_BYTES_AT_ONCE: Final = 64 << 20
_ROWS_AT_ONCE: Final = 1 << 20

INDEX_KINDS: Final = (*KINDS, ZONEMAP)
"""What can be made."""

IndexTask: TypeAlias = SegmentTask | ZoneMapTask
BuiltPart: TypeAlias = BuiltSegment | tuple[BuiltZones, ...]


@dataclass(frozen=True, slots=True)
class PlannedIndex:
    """Segments of one index to build."""

    name: str
    kind: str  # One of ``KINDS``.
    field: Field
    replaced: tuple[IndexMetadata, ...]
    tasks: tuple[SegmentTask, ...]  # One for each segment.


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Indices to build; picklable."""

    change: DmlPlan
    segmented: tuple[PlannedIndex, ...] = ()
    zone_maps: ZoneMapPlan | None = None  # Those whose zones tasks find; None for none.

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names of the indices."""
        zoned = () if self.zone_maps is None else self.zone_maps.wanted
        return (*(one.name for one in self.segmented), *(one.name for one in zoned))

    @property
    def tasks(self) -> tuple[IndexTask, ...]:
        """Tasks of the executors; those of segments first."""
        zones = () if self.zone_maps is None else self.zone_maps.tasks
        return (*(task for planned in self.segmented for task in planned.tasks), *zones)


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """Indices to build."""

    # Names; a field of a struct is ``struct.field``.  Each gets an index of its own.
    columns: tuple[str, ...]
    kind: str = BTREE  # One of ``INDEX_KINDS``.
    name: str | None = None  # Of the index of one column; None for ``column_idx``.
    replace: bool = False  # Whether an existing index is rebuilt.
    # Live rows that a segment is to cover; a zone map has one segment.
    rows_per_segment: int = ROWS_PER_SEGMENT
    # Live rows of a zone, of kinds that have zones; None for 8192.
    rows_per_zone: int | None = None
    # How an inverted index makes tokens; None for Lance's defaults.
    text: TokenizerOptions | None = None


def check_kind(kind: str, kinds: Sequence[str]) -> None:
    """Reject a kind of index that is none of ``kinds``.

    Raises:
        UnsupportedFeatureError: A kind that only Lance builds.
        InvalidInputError: No kind of index.
    """
    if kind in KEPT_KINDS:
        raise UnsupportedFeatureError(
            f"indices of the kind {kind} cannot be built here",
            hint=f"use one of {', '.join(kinds)}; one that Lance built stays valid, but unused",
        )
    if kind not in kinds:
        hint = f"use one of {', '.join(kinds)}"
        if kind.startswith("ivf") and not any(one.startswith("ivf") for one in kinds):
            hint = "vector indices are made by createVectorIndex, in SQL by create_vector_index"
        raise InvalidInputError(f"{kind!r} is not a kind of index", hint=hint)


def plan_index(table: Table, request: IndexRequest, settings: ChangeSettings) -> IndexPlan:
    """Plan ``create_index``; write nothing."""
    check_kind(request.kind, INDEX_KINDS)
    if request.text is not None and request.kind != INVERTED:
        raise InvalidInputError(f"a {request.kind} index has no tokens of texts")
    if request.rows_per_zone is not None:
        if request.kind not in (ZONEMAP, BLOOMFILTER):
            raise InvalidInputError(
                f"rowsPerZone is for zonemap and bloomfilter indices, not for {request.kind}"
            )
        check_rows_per_zone(request.rows_per_zone)
    if not request.columns:
        raise InvalidInputError("an index of no column", hint="name one column or more")
    if request.name is not None and len(request.columns) > 1:
        raise InvalidInputError(
            f"one name, {request.name!r}, for indices of {len(request.columns)} columns",
            hint="each column gets an index of its own: leave the name out",
        )
    change = plan_change(table, settings)
    snapshot = change.snapshot()
    paths = {column: named_path(snapshot.schema, column) for column in request.columns}
    if len({path[-1].id for path in paths.values()}) < len(request.columns):
        raise InvalidInputError(f"a column is named twice in {', '.join(request.columns)}")
    if request.kind == ZONEMAP:
        zoned = [
            request_zone_map(
                snapshot, column, request.rows_per_zone, _name_index(snapshot, path, request)
            )
            for column, path in paths.items()
        ]
        return IndexPlan(change, zone_maps=plan_wanted(change, zoned))
    planned = (_plan_index(snapshot, column, path, request) for column, path in paths.items())
    return IndexPlan(change, tuple(planned))


def plan_index_refresh(
    table: Table,
    name: str | None,
    settings: ChangeSettings,
    rows_per_segment: int = ROWS_PER_SEGMENT,
    *,
    rows_per_joined: int | None = None,
) -> IndexPlan:
    """Plan ``refresh_indices`` and ``optimize_indices``; write nothing.

    ``rows_per_joined``: of a merged segment; None to leave existing segments as they are.
    """
    change = plan_change(table, settings)
    snapshot = change.snapshot()
    chosen = snapshot.indices if name is None else entries_of(snapshot, name)
    by_name: dict[str, list[IndexMetadata]] = {}
    for entry in chosen:
        if kind_of(entry) in KINDS and len(entry.fields) == 1:
            by_name.setdefault(entry.name, []).append(entry)
        elif name is not None and not is_zone_map(entry):
            raise InvalidInputError(
                f"the index {name!r} is not one of the kinds {', '.join(INDEX_KINDS)}",
                where=snapshot.uri,
            )
    refreshed = (
        _plan_refresh(
            snapshot, entries, rows_per_segment, rows_per_joined, is_named=name is not None
        )
        for entries in by_name.values()
    )
    zone_maps = plan_refresh_of(change, chosen)
    return IndexPlan(
        change,
        tuple(planned for planned in refreshed if planned is not None),
        zone_maps if zone_maps.wanted else None,
    )


def _plan_index(
    snapshot: Snapshot, column: str, path: tuple[Field, ...], request: IndexRequest
) -> PlannedIndex:
    check_can_be_indexed(request.kind, path[-1], column)
    name, replaced = _name_index(snapshot, path, request)
    every = frozenset(snapshot.manifest.fragments.ids.tolist())
    zones = ROWS_PER_ZONE if request.rows_per_zone is None else request.rows_per_zone
    tasks = _tasks(snapshot, request.kind, path, every, request.rows_per_segment, zones)
    if request.kind == INVERTED:
        text = request.text or TokenizerOptions()
        Tokenizer(text)  # Refuses what no task could do.
        tasks = tuple(replace(task, text=text) for task in tasks)
    return PlannedIndex(name, request.kind, path[-1], replaced, tasks)


def _name_index(
    snapshot: Snapshot, path: tuple[Field, ...], request: IndexRequest
) -> tuple[str, tuple[IndexMetadata, ...]]:
    """Return the name of an index, and the entries that it replaces."""
    own = [e for e in snapshot.indices if _is_over(e, request.kind, path[-1])]
    taken = {entry.name for entry in snapshot.indices}
    spelled = ".".join(part.name for part in path)
    free = (f"{spelled}_idx", f"{spelled}_{request.kind}_idx")
    if request.name is not None:
        name = request.name
        if not name or name.startswith("__"):
            raise InvalidInputError(f"{name!r} is not a valid name of an index")
    else:
        name = own[0].name if own else next((n for n in free if n not in taken), free[1])
    replaced = tuple(entry for entry in snapshot.indices if entry.name == name)
    if replaced and not request.replace:
        raise InvalidInputError(
            f"there is an index {name!r}",
            where=snapshot.uri,
            hint="refreshIndices brings it up to date, replace=True rebuilds it",
        )
    return name, replaced


def _is_over(entry: IndexMetadata, kind: str, field: Field) -> bool:
    return kind_of(entry) == kind and entry.fields == (field.id,)


def entries_of(snapshot: Snapshot, name: str) -> tuple[IndexMetadata, ...]:
    """The segments of an index of any kind."""
    found = tuple(e for e in snapshot.indices if e.name == name and e.fields)
    if not found:
        known = sorted({entry.name for entry in snapshot.indices if entry.fields})
        raise InvalidInputError(
            f"there is no index {name!r}",
            where=snapshot.uri,
            hint=f"its indices are {', '.join(known)}" if known else "the table has no index",
        )
    return found


@dataclass(frozen=True, slots=True)
class _Coverage:
    """The segments of one index, and the fragments of the version that each of them covers."""

    snapshot: Snapshot
    kind: str
    entries: Sequence[IndexMetadata]
    fragments: Mapping[UUID, frozenset[int]]
    rows: Mapping[int, int]  # Live rows by fragment.

    @classmethod
    def of(cls, snapshot: Snapshot, entries: Sequence[IndexMetadata]) -> _Coverage:
        """Return the coverage of the segments ``entries``."""
        own = frozenset(snapshot.manifest.fragments.ids.tolist())
        fragments = {e.uuid: own.intersection(covered_fragments(snapshot, e)) for e in entries}
        rows = snapshot.manifest.fragments.rows_by_id()
        return cls(snapshot, kind_of(entries[0]), entries, fragments, rows)

    @property
    def dead(self) -> list[IndexMetadata]:
        """The segments that cover no fragment."""
        return [entry for entry in self.entries if not self.fragments[entry.uuid]]

    @property
    def alive(self) -> list[IndexMetadata]:
        """The other segments."""
        return [entry for entry in self.entries if self.fragments[entry.uuid]]

    @property
    def missing(self) -> frozenset[int]:
        """The fragments that no segment covers."""
        return frozenset(self.rows).difference(*self.fragments.values())

    def num_rows(self, entry: IndexMetadata) -> int:
        """Return the live rows that a segment covers."""
        return sum(self.rows[number] for number in self.fragments[entry.uuid])

    def small(self, rows_per_segment: int, rows_per_joined: int) -> list[IndexMetadata]:
        """Return segments that are less than half full; none if only one has to be rewritten."""
        most = self.rows_per_merged(rows_per_segment, rows_per_joined)
        found = [entry for entry in self.alive if 2 * self.num_rows(entry) < most]
        return found if len(found) > 1 or self.missing else []

    def rows_per_merged(self, rows_per_segment: int, rows_per_joined: int) -> int:
        """Return how many rows a merged segment may have.

        To merge texts, a few bytes of each document are in memory.
        """
        by_address = not (self.kind in _BY_ROW_IDS and self.snapshot.uses_stable_row_ids)
        is_large = self.kind in _MERGED and self.kind != INVERTED and by_address
        return rows_per_joined if is_large else rows_per_segment

    def with_moved_rows(self) -> list[IndexMetadata]:
        """Return segments that would give wrong rows together with one over the missing rows."""
        if self.kind in _EXACT_BY_ROW_IDS and self.snapshot.uses_stable_row_ids:
            has_moved = references_moved_rows
        elif self.kind in (INVERTED, MINHASH):
            has_moved = references_uncovered_rows
        else:
            return []
        return [e for e in self.alive if has_moved(self.snapshot, e, self.fragments[e.uuid])]


def _plan_refresh(
    snapshot: Snapshot,
    entries: Sequence[IndexMetadata],
    rows_per_segment: int,
    rows_per_joined: int | None,
    *,
    is_named: bool,
) -> PlannedIndex | None:
    """Segments that an index lacks; None if it lacks none."""
    path = path_to(snapshot.schema.fields, entries[0].fields[0])
    coverage = _Coverage.of(snapshot, entries)
    text = None
    if coverage.kind == INVERTED:
        text = options_to_refresh(snapshot, entries, is_named=is_named)
    if path is None or (coverage.kind == INVERTED and text is None):
        return None
    minhash = MinHashOptions()
    if coverage.kind == MINHASH:
        known = minhash_to_refresh(snapshot, entries, is_named=is_named)
        if known is None:
            return None
        minhash = known
    replaced = coverage.with_moved_rows()
    if rows_per_joined is not None:
        small = coverage.small(rows_per_segment, rows_per_joined)
        replaced = [*small, *(entry for entry in replaced if entry not in small)]
    merged = [entry for entry in replaced if _can_be_merged(snapshot, entry, text)]
    scanned = coverage.missing.union(
        *(coverage.fragments[entry.uuid] for entry in replaced if entry not in merged)
    )
    if len(merged) == 1 and sum(coverage.rows[number] for number in scanned) > rows_per_segment:
        # Several new segments: the small one would only be copied.
        replaced = [entry for entry in replaced if entry not in merged]
        merged = []
    if not scanned and not replaced and not (coverage.dead and coverage.alive):
        return None
    tasks: tuple[SegmentTask, ...] = ()
    if scanned or merged:
        tasks = _tasks(snapshot, coverage.kind, path, scanned, rows_per_segment)
    if merged:
        most = coverage.rows_per_merged(rows_per_segment, rows_per_joined or 1)
        tasks = _with_stored(tasks, _stored_groups(coverage, merged, most))
    tasks = tuple(replace(task, text=text, minhash=minhash) for task in tasks)
    every = (*coverage.dead, *replaced)
    return PlannedIndex(entries[0].name, coverage.kind, path[-1], every, tasks)


def _stored_groups(
    coverage: _Coverage, merged: Sequence[IndexMetadata], rows_per_group: int
) -> list[list[StoredSegment]]:
    """Return segments in groups, each of which becomes one."""
    own = {fragment.id: fragment for fragment in coverage.snapshot.manifest.fragments}
    stable = coverage.snapshot.uses_stable_row_ids
    segments = []
    for entry in merged:
        fragments = tuple(own[number] for number in sorted(coverage.fragments[entry.uuid]))
        segment = segment_of(entry, stable_row_ids=stable)
        names_row_ids = isinstance(segment, Segment) and segment.names_row_ids
        segments.append(StoredSegment(entry, fragments, names_row_ids))
    groups = _groups([coverage.num_rows(entry) for entry in merged], rows_per_group)
    return [[segments[number] for number in group] for group in groups]


def _can_be_merged(snapshot: Snapshot, entry: IndexMetadata, text: TokenizerOptions | None) -> bool:
    """Return whether the rows of a segment can be read from its files, where they are in order.

    ``text``: tokenizer settings of the merged segment, if it indexes texts.
    """
    segment = segment_of(entry, stable_row_ids=snapshot.uses_stable_row_ids)
    return (
        isinstance(segment, Segment)
        and segment.kind in _MERGED
        and reuse_index_of(snapshot.indices) is None
        and segment_state(snapshot, entry).is_used
        and (text is None or has_equal_tokens(snapshot, entry, text))
    )


def _with_stored(
    scanned: tuple[SegmentTask, ...], groups: Sequence[Sequence[StoredSegment]]
) -> tuple[SegmentTask, ...]:
    """Tasks that merge groups of segments; a single one that scans does so along with the last."""
    nothing = replace(scanned[0], scan=replace(scanned[0].scan, slices=()), fragments=())
    tasks = [_merging(nothing, group) for group in groups]
    if len(scanned) == 1:
        return (*tasks[:-1], _merging(scanned[0], groups[-1]))
    return (*tasks, *scanned)


def _merging(task: SegmentTask, group: Sequence[StoredSegment]) -> SegmentTask:
    merged = (fragment.id for segment in group for fragment in segment.fragments)
    return replace(task, joined=tuple(group), fragments=tuple(sorted({*task.fragments, *merged})))


def _tasks(
    snapshot: Snapshot,
    kind: str,
    path: tuple[Field, ...],
    wanted: frozenset[int],
    rows_per_segment: int,
    rows_per_zone: int = ROWS_PER_ZONE,
) -> tuple[SegmentTask, ...]:
    """Plan one task per segment: consecutive whole fragments, about as many rows in each."""
    nothing = empty_task(snapshot, kind, path)
    scans = plan_scan(snapshot, _request(snapshot, kind, path))
    slices = {part.fragment.id: part for scan in scans for part in scan.slices}
    own = [f for f in snapshot.manifest.fragments if f.id in wanted]
    tasks = []
    for group in _groups([fragment.num_rows for fragment in own], rows_per_segment):
        ids = tuple(own[number].id for number in group)
        # A fragment without live rows is not scanned.
        parts = tuple(slices[number] for number in ids if number in slices)
        scan = replace(nothing.scan, slices=parts)
        covered = tuple(sorted(ids))
        tasks.append(replace(nothing, scan=scan, fragments=covered, rows_per_zone=rows_per_zone))
    return tuple(tasks)


def _request(snapshot: Snapshot, kind: str, path: tuple[Field, ...]) -> ScanRequest:
    stable = snapshot.uses_stable_row_ids and kind in _BY_ROW_IDS
    return ScanRequest(
        schema=project(snapshot.schema, [path[0].name]),
        system_columns=(ROW_ID if stable else ROW_ADDRESS,),
        fragments_per_task=1,
    )


def empty_task(snapshot: Snapshot, kind: str, path: tuple[Field, ...]) -> SegmentTask:
    """Return the task of a segment without fragments."""
    request = _request(snapshot, kind, path)
    assert request.schema is not None
    scan = ScanTask(
        files=snapshot.files,
        fields=request.schema.fields,
        filter_fields=(),
        system_columns=request.system_columns,
        predicate=None,
        stable_row_ids=snapshot.uses_stable_row_ids,
        batch_rows=request.batch_rows,
        batch_bytes=request.batch_bytes,
        slices=(),
    )
    return SegmentTask(kind, tuple(field.name for field in path), path[-1], scan, ())


def _groups(num_rows: Sequence[int], rows_per_group: int) -> list[range]:
    """Split a sequence of positive counts into parts of about as many rows."""
    if not num_rows:
        return [range(0)]
    total = sum(num_rows)
    count = max(1, -(-total // rows_per_group))
    groups: list[range] = []
    start = seen = 0
    for number, rows in enumerate(num_rows):
        seen += rows
        if seen * count >= total * (len(groups) + 1):
            groups.append(range(start, number + 1))
            start = number + 1
    return groups


def references_moved_rows(
    snapshot: Snapshot, entry: IndexMetadata, fragments: Collection[int]
) -> bool:
    """Return whether a bitmap or label list index refers to rows that moved out of its fragments.

    An update keeps the id of a row, and moves the row to another fragment.  Lance applies all
    segments to a row that any of them covers: as soon as another segment covers the new fragment,
    the old value counts as well.  So such a segment is rebuilt before that.

    True also if that is unknown: its files are damaged, or the rows of one value take 64 MiB.
    """
    ids = row_id_index(snapshot)
    try:
        file = IndexFile.open(snapshot.files, entry, BITMAP_FILE)
        for named in _named_rows(file, snapshot.manifest.next_row_id):
            addresses, is_found = ids.addresses_of(named)
            now = np.unique(addresses[is_found] >> np.uint64(OFFSET_BITS))
            if not set(now.tolist()) <= set(fragments):
                return True
    except (LanceError, FileNotFoundError):
        return True
    return False


def _named_rows(file: IndexFile, next_row_id: int) -> Iterator[NDArray[np.uint64]]:
    """Yield the ids below ``next_row_id`` of rows that a segment names, some at a time."""
    for first in range(0, file.reader.num_rows, _SETS_AT_ONCE):
        end = min(first + _SETS_AT_ONCE, file.reader.num_rows)
        yield from _numbers(union_of(_row_sets(file, np.arange(first, end))), next_row_id)
    number = file.reader.schema.metadata.get(LABEL_NULLS_KEY)
    if number is not None:
        of_null = parse_tree_map(bytes(file.reader.global_buffer(int(number))), file.where)
        nulls = {high: rows for high, rows in of_null.items() if rows is not None}
        yield from _numbers(nulls, next_row_id)


def _row_sets(file: IndexFile, indices: NDArray[np.int64]) -> list[dict[int, BitMap]]:
    """Read row sets; if they are large, unite those of each half."""
    sets = read_row_sets(file, indices, max_bytes=_SET_BYTES_AT_ONCE)
    if sets is not None:
        return sets
    if len(indices) == 1:
        raise UnsupportedFeatureError("a row set of an index is too large to read", file.where)
    halves = np.array_split(indices, 2)
    return [union_of(_row_sets(file, half)) for half in halves]


def _numbers(rows: Mapping[int, BitMap], end: int) -> Iterator[NDArray[np.uint64]]:
    """Yield the rows below ``end`` as numbers: a set of some bytes may hold billions."""
    for high, bitmap in rows.items():
        count = bitmap.range_cardinality(0, min(max(end - (high << OFFSET_BITS), 0), 1 << 32))
        for first in range(0, count, _ROWS_AT_ONCE):
            yield numbers_of({high: bitmap[first : min(first + _ROWS_AT_ONCE, count)]})
