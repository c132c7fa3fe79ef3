"""Makes B-trees, bitmap and label list indices, and keeps them in order: commits of CreateIndex.

Each segment of an index covers some fragments, and is made by one task.  What is built is planned
from one version; what others append meanwhile is not covered, and read as before.  Values that
others change in place, or rows that they move, are a conflict: the work is planned again.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.operation import CreateIndex, Operation
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.table.change.row_change import ChangePlan, ChangeSettings, plan_change
from pyspark_lance.table.index.index_entry import IndexDetails, IndexFiles, entry_made_now
from pyspark_lance.table.index.lookups import covered_fragments
from pyspark_lance.table.index.segments import BITMAP, BTREE, LABEL_LIST, kind_of
from pyspark_lance.table.index_build.indexed_columns import named_path, path_to
from pyspark_lance.table.index_build.left_behind import names_moved_rows
from pyspark_lance.table.index_build.segment_task import (
    KINDS,
    BuiltSegment,
    SegmentTask,
    build_segment,
    check_can_be_indexed,
)
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, project
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.metadata_commits import MetadataResult, change_metadata
from pyspark_lance.table.work.unit_of_work import UnitOfWork

ROWS_PER_SEGMENT: Final = 4 << 20
"""Live rows of a segment: queries ask each of them, and each is made by one task."""

_DETAILS: Final = {
    BTREE: "/lance.table.BTreeIndexDetails",
    BITMAP: "/lance.table.BitmapIndexDetails",
    LABEL_LIST: "/lance.table.LabelListIndexDetails",
}

BuildSegments = Callable[[Sequence[SegmentTask]], Iterable[BuiltSegment]]
"""Runs tasks, wherever; the results come in their order."""


@dataclass(frozen=True, slots=True)
class IndexResult:
    """What became of indices.

    Attributes:
        version: The version it made; None when there was nothing to do.
        names: The indices that have new segments.
        num_segments: New segments of all of them.
        num_rows: Live rows that these cover.
    """

    version: int | None = None
    names: tuple[str, ...] = ()
    num_segments: int = 0
    num_rows: int = 0


@dataclass(frozen=True, slots=True)
class _Planned:
    """Segments of one index to make.

    Attributes:
        kind: ``btree``, ``bitmap`` or ``label_list``.
        tasks: One for each segment.
    """

    name: str
    kind: str
    field: Field
    replaced: tuple[IndexMetadata, ...]
    tasks: tuple[SegmentTask, ...]


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What is to be built; picklable."""

    change: ChangePlan
    wanted: tuple[_Planned, ...]

    @property
    def tasks(self) -> tuple[SegmentTask, ...]:
        """What the executors do."""
        return tuple(task for planned in self.wanted for task in planned.tasks)


def build_here(tasks: Sequence[SegmentTask]) -> Iterable[BuiltSegment]:
    """Runs tasks in this process, one after the other."""
    return map(build_segment, tasks)


# Acts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """Indices to make.

    Attributes:
        columns: Names; a field of a struct is ``struct.field``.  Each gets an index of its own.
        kind: ``btree``, ``bitmap`` or ``label_list``.
        name: Of the index of one column; None for ``column_idx``.
        replace: Whether one that is there already is made anew.
        rows_per_segment: Live rows that a segment is to cover.
    """

    columns: tuple[str, ...]
    kind: str = BTREE
    name: str | None = None
    replace: bool = False
    rows_per_segment: int = ROWS_PER_SEGMENT


def create_index(
    table: Table,
    request: IndexRequest,
    settings: ChangeSettings | None = None,
    *,
    build: BuildSegments = build_here,
) -> IndexResult:
    """Makes an index of each column, in one version."""
    settings = settings or ChangeSettings()
    return _carry_out(table, lambda: plan_index(table, request, settings), settings, build)


def refresh_indices(
    table: Table,
    name: str | None = None,
    settings: ChangeSettings | None = None,
    *,
    build: BuildSegments = build_here,
    rows_per_segment: int = ROWS_PER_SEGMENT,
    joins_segments: bool = False,
) -> IndexResult:
    """Adds segments over the fragments that indices do not cover; forgets those that cover none.

    ``name``: of one index; None for all B-trees, bitmap and label list indices. ``joins_segments``:
    whether small segments are made anew together.
    """
    settings = settings or ChangeSettings()

    def plan() -> IndexPlan:
        return plan_index_refresh(
            table, name, settings, rows_per_segment, joins_segments=joins_segments
        )

    return _carry_out(table, plan, settings, build)


# Makes few large segments of many small ones besides.
optimize_indices = partial(refresh_indices, joins_segments=True)


def drop_index(table: Table, name: str, settings: ChangeSettings | None = None) -> MetadataResult:
    """Removes all segments of an index of any kind; cleanup removes their files."""

    def plan(newest: Snapshot) -> Operation:
        return CreateIndex(removed_indices=_entries_of(newest, name))

    return change_metadata(table, plan, settings or ChangeSettings())


def _carry_out(
    table: Table, plan: Callable[[], IndexPlan], settings: ChangeSettings, build: BuildSegments
) -> IndexResult:
    def attempt(work: UnitOfWork) -> IndexResult:
        planned = plan()
        return commit_index(planned, list(build(planned.tasks)), work)

    return UnitOfWork(table, settings).run(attempt)


# Plans ---------------------------------------------------------------------------------------


def plan_index(table: Table, request: IndexRequest, settings: ChangeSettings) -> IndexPlan:
    """What ``create_index`` builds; writes nothing."""
    if request.kind not in KINDS:
        raise InvalidInputError(
            f"{request.kind!r} is no kind of index", hint=f"there are {', '.join(KINDS)}"
        )
    if not request.columns:
        raise InvalidInputError("an index of no column", hint="name one column or more")
    if request.name is not None and len(request.columns) > 1:
        raise InvalidInputError(
            f"one name, {request.name!r}, for indices of {len(request.columns)} columns",
            hint="each column gets an index of its own: leave the name out",
        )
    change = plan_change(table, settings)
    snapshot = change.snapshot()
    wanted = [_planned(snapshot, column, request) for column in request.columns]
    if len({planned.field.id for planned in wanted}) < len(wanted):
        raise InvalidInputError(f"a column is named twice in {', '.join(request.columns)}")
    return IndexPlan(change, tuple(wanted))


def plan_index_refresh(
    table: Table,
    name: str | None,
    settings: ChangeSettings,
    rows_per_segment: int = ROWS_PER_SEGMENT,
    *,
    joins_segments: bool = False,
) -> IndexPlan:
    """What ``refresh_indices`` and ``optimize_indices`` build; writes nothing."""
    change = plan_change(table, settings)
    snapshot = change.snapshot()
    chosen = snapshot.indices if name is None else _entries_of(snapshot, name)
    by_name: dict[str, list[IndexMetadata]] = {}
    for entry in chosen:
        if kind_of(entry) in KINDS and len(entry.fields) == 1:
            by_name.setdefault(entry.name, []).append(entry)
        elif name is not None:
            raise InvalidInputError(
                f"the index {name!r} is none of the kinds {', '.join(KINDS)}", where=snapshot.uri
            )
    refreshed = (
        _refreshed(snapshot, entries, rows_per_segment, joins_segments)
        for entries in by_name.values()
    )
    return IndexPlan(change, tuple(planned for planned in refreshed if planned is not None))


def commit_index(plan: IndexPlan, built: Sequence[BuiltSegment], work: UnitOfWork) -> IndexResult:
    """Makes the version that has the segments."""
    if plan.change.is_done or not plan.wanted:
        return IndexResult()
    work.register_files(path for segment in built for path in segment.paths)
    snapshot = plan.change.snapshot()
    owners = [planned for planned in plan.wanted for _ in planned.tasks]
    new = tuple(
        _entry(snapshot, planned, task, segment)
        for planned, task, segment in zip(owners, plan.tasks, built, strict=True)
    )
    replaced = tuple(entry for planned in plan.wanted for entry in planned.replaced)
    operation = CreateIndex(new, replaced)
    result = work.commit(
        work.propose(plan.change.base, operation, uuid=plan.change.transaction_uuid)
    )
    if result is None:
        return IndexResult()
    names = tuple(planned.name for planned in plan.wanted)
    return IndexResult(
        result.version, names, len(built), sum(segment.num_rows for segment in built)
    )


def _planned(snapshot: Snapshot, column: str, request: IndexRequest) -> _Planned:
    path = named_path(snapshot.schema, column)
    check_can_be_indexed(request.kind, path[-1], column)
    own = [e for e in snapshot.indices if _is_over(e, request.kind, path[-1])]
    taken = {entry.name for entry in snapshot.indices}
    spelled = ".".join(part.name for part in path)
    free = (f"{spelled}_idx", f"{spelled}_{request.kind}_idx")
    if request.name is not None:
        name = request.name
        if not name or name.startswith("__"):
            raise InvalidInputError(f"{name!r} is no name for an index")
    else:
        name = own[0].name if own else next((n for n in free if n not in taken), free[1])
    replaced = tuple(entry for entry in snapshot.indices if entry.name == name)
    if replaced and not request.replace:
        raise InvalidInputError(
            f"there is an index {name!r}",
            where=snapshot.uri,
            hint="refreshIndices brings it up to date, replace=True makes it anew",
        )
    every = frozenset(fragment.id for fragment in snapshot.manifest.fragments)
    tasks = _tasks(snapshot, request.kind, path, every, request.rows_per_segment)
    return _Planned(name, request.kind, path[-1], replaced, tasks)


def _is_over(entry: IndexMetadata, kind: str, field: Field) -> bool:
    return kind_of(entry) == kind and entry.fields == (field.id,)


def _entries_of(snapshot: Snapshot, name: str) -> tuple[IndexMetadata, ...]:
    found = tuple(e for e in snapshot.indices if e.name == name and e.fields)
    if not found:
        known = sorted({entry.name for entry in snapshot.indices if entry.fields})
        raise InvalidInputError(
            f"there is no index {name!r}",
            where=snapshot.uri,
            hint=f"there are {', '.join(known)}" if known else "there is none",
        )
    return found


def _refreshed(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], rows_per_segment: int, joins: bool
) -> _Planned | None:
    """Segments that an index lacks; None if it lacks none."""
    path = path_to(snapshot.schema.fields, entries[0].fields[0])
    if path is None:
        return None
    kind = kind_of(entries[0])
    rows = {fragment.id: fragment.num_rows for fragment in snapshot.manifest.fragments}
    covered = {e.uuid: frozenset(covered_fragments(snapshot, e)) & rows.keys() for e in entries}
    dead = [entry for entry in entries if not covered[entry.uuid]]
    alive = [entry for entry in entries if covered[entry.uuid]]
    missing = frozenset(rows).difference(*(covered[entry.uuid] for entry in alive))
    joined: list[IndexMetadata] = []
    if joins:
        joined = [e for e in alive if 2 * sum(rows[n] for n in covered[e.uuid]) < rows_per_segment]
        if len(joined) == 1 and not missing:
            joined = []
    if kind != BTREE and snapshot.uses_stable_row_ids:
        moved = [e for e in alive if names_moved_rows(snapshot, e, covered[e.uuid])]
        joined += [entry for entry in moved if entry not in joined]
    if not missing and not joined and (len(dead) == 0 or not alive):
        return None
    anew = missing.union(*(covered[entry.uuid] for entry in joined))
    tasks = _tasks(snapshot, kind, path, anew, rows_per_segment) if anew else ()
    return _Planned(entries[0].name, kind, path[-1], (*dead, *joined), tasks)


def _tasks(
    snapshot: Snapshot,
    kind: str,
    path: tuple[Field, ...],
    wanted: frozenset[int],
    rows_per_segment: int,
) -> tuple[SegmentTask, ...]:
    """One for each segment: whole fragments that follow each other, about as many rows in each."""
    stable = snapshot.uses_stable_row_ids and kind != BTREE
    top = project(snapshot.schema, [path[0].name])
    request = ScanRequest(
        schema=top,
        system_columns=(ROW_ID if stable else ROW_ADDRESS,),
        fragments_per_task=1,
    )
    scans = plan_scan(snapshot, request)
    slices = {part.fragment.id: part for scan in scans for part in scan.slices}
    nothing = ScanTask(
        files=snapshot.files,
        fields=top.fields,
        filter_fields=(),
        system_columns=request.system_columns,
        predicate=None,
        stable_row_ids=snapshot.uses_stable_row_ids,
        batch_rows=request.batch_rows,
        batch_bytes=request.batch_bytes,
        slices=(),
    )
    own = [f for f in snapshot.manifest.fragments if f.id in wanted]
    names = tuple(field.name for field in path)
    tasks = []
    for group in _groups([fragment.num_rows for fragment in own], rows_per_segment):
        ids = tuple(own[number].id for number in group)
        # A fragment without live rows is not scanned.
        parts = tuple(slices[number] for number in ids if number in slices)
        scan = replace(nothing, slices=parts)
        tasks.append(SegmentTask(kind, names, path[-1], scan, tuple(sorted(ids))))
    return tuple(tasks)


def _groups(num_rows: Sequence[int], rows_per_group: int) -> list[range]:
    """Cuts a sequence of counts where about as many rows are in each part."""
    if not num_rows:
        return [range(0)]
    total = sum(num_rows)
    count = max(1, -(-total // rows_per_group))
    groups: list[range] = []
    start = seen = 0
    for number, rows in enumerate(num_rows):
        seen += rows
        is_last = number == len(num_rows) - 1
        if is_last or seen * count >= total * (len(groups) + 1):
            groups.append(range(start, number + 1))
            start = number + 1
    return groups


def _entry(
    snapshot: Snapshot, planned: _Planned, task: SegmentTask, segment: BuiltSegment
) -> IndexMetadata:
    return entry_made_now(
        planned.name,
        [planned.field.id],
        snapshot.version,
        task.fragments,
        IndexDetails(_DETAILS[planned.kind], _layout_version(snapshot, planned.kind)),
        IndexFiles(segment.uuid, segment.file_sizes),
    )


def _layout_version(snapshot: Snapshot, kind: str) -> int:
    if kind == LABEL_LIST:
        return 1
    # A B-tree of version 0 would name rows by their ids, and miss those that were updated.
    return int(kind == BTREE and snapshot.uses_stable_row_ids)
