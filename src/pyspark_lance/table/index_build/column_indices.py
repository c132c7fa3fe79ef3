"""Creation and maintenance of column indices of every kind: commits of CreateIndex.

Each segment of an index covers some fragments, and is built by one task; a zone map is one segment,
whose zones are built by several tasks.  A build is planned from one version; rows appended
concurrently are not covered, and scanned as before.  Values changed in place, or rows moved, by
concurrent commits are a conflict: the work is planned again.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.operation import CreateIndex, Operation
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index.inverted.token_options import TEXT_DETAILS_TYPE
from pyspark_lance.table.index.minhash import MINHASH_DETAILS_TYPE
from pyspark_lance.table.index.segments import (
    BITMAP,
    BLOOMFILTER,
    BTREE,
    INVERTED,
    LABEL_LIST,
    MINHASH,
    NGRAM,
    IndexDetails,
    IndexFiles,
    new_index_entry,
)
from pyspark_lance.table.index_build.index_plan import (
    ROWS_PER_JOINED_SEGMENT,
    ROWS_PER_SEGMENT,
    BuiltPart,
    IndexPlan,
    IndexRequest,
    PlannedIndex,
    entries_of,
    plan_index,
    plan_index_refresh,
)
from pyspark_lance.table.index_build.segment_task import BuiltSegment, SegmentTask
from pyspark_lance.table.index_build.text_build import text_format_version
from pyspark_lance.table.index_build.zone_maps import assemble_zone_maps
from pyspark_lance.table.tasks import RunTasks, run_local
from pyspark_lance.table.unit_of_work import MetadataResult, UnitOfWork, change_metadata
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_DETAILS: Final = {
    BTREE: "/lance.table.BTreeIndexDetails",
    BITMAP: "/lance.table.BitmapIndexDetails",
    LABEL_LIST: "/lance.table.LabelListIndexDetails",
    BLOOMFILTER: "/lance.index.pb.BloomFilterIndexDetails",
    NGRAM: "/lance.table.NGramIndexDetails",
    INVERTED: TEXT_DETAILS_TYPE,
    MINHASH: MINHASH_DETAILS_TYPE,
}


@also_snake_case
@dataclass(frozen=True, slots=True)
class IndexResult:
    """Result of an operation on indices.

    Attributes:
        version: The new version; None if there was nothing to do.
        names: The indices that have new segments.
        numSegments: New segments of all of them.
        numRows: Live rows that these cover.
    """

    version: int | None = None
    names: tuple[str, ...] = ()
    numSegments: int = 0  # noqa: N815
    numRows: int = 0  # noqa: N815


def create_index(
    table: Table,
    request: IndexRequest,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_local,
) -> IndexResult:
    """Create an index of each column, in one version."""
    settings = settings or ChangeSettings()
    return _carry_out(table, lambda: plan_index(table, request, settings), settings, run)


def refresh_indices(
    table: Table,
    name: str | None = None,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_local,
    rows_per_segment: int = ROWS_PER_SEGMENT,
    joins_segments: bool = False,
    rows_per_joined: int = ROWS_PER_JOINED_SEGMENT,
) -> IndexResult:
    """Add segments over fragments that indices do not cover; remove those that cover none.

    ``name``: Of one index; None for all of ``INDEX_KINDS``. ``rows_per_segment``: Live rows that a
    segment is to cover. ``joins_segments``: Whether small segments are merged. ``rows_per_joined``:
    Live rows of a merged segment of a B-tree.
    """
    settings = settings or ChangeSettings()

    def plan() -> IndexPlan:
        return plan_index_refresh(
            table,
            name,
            settings,
            rows_per_segment,
            rows_per_joined=rows_per_joined if joins_segments else None,
        )

    return _carry_out(table, plan, settings, run)


# Makes few large segments of many small ones besides.
optimize_indices = partial(refresh_indices, joins_segments=True)


def drop_index(table: Table, name: str, settings: ChangeSettings | None = None) -> MetadataResult:
    """Remove all segments of an index of any kind; cleanup removes their files."""

    def plan(newest: Snapshot) -> Operation:
        return CreateIndex(removed_indices=entries_of(newest, name))

    return change_metadata(table, plan, settings or ChangeSettings())


def _carry_out(
    table: Table, plan: Callable[[], IndexPlan], settings: ChangeSettings, run: RunTasks
) -> IndexResult:
    def attempt(work: UnitOfWork) -> IndexResult:
        planned = plan()
        return commit_index(planned, list(run(planned.tasks)), work)

    return UnitOfWork(table, settings).run(attempt)


def commit_index(plan: IndexPlan, built: Sequence[BuiltPart], work: UnitOfWork) -> IndexResult:
    """Commit the version that has the segments."""
    if plan.change.is_done or not plan.wanted:
        return IndexResult()
    segments = [part for part in built if isinstance(part, BuiltSegment)]
    work.register_files(path for segment in segments for path in segment.paths)
    snapshot = plan.change.snapshot()
    owners = [planned for planned in plan.segmented for _ in planned.tasks]
    tasks = [task for task in plan.tasks if isinstance(task, SegmentTask)]
    new = tuple(
        _entry(snapshot, planned, task, segment)
        for planned, task, segment in zip(owners, tasks, segments, strict=True)
    )
    replaced = tuple(entry for planned in plan.segmented for entry in planned.replaced)
    rows = snapshot.manifest.fragments.rows_by_id()
    num_rows = sum(rows[number] for task in tasks for number in task.fragments)
    if plan.zone_maps is not None:
        zones = [part for part in built if not isinstance(part, BuiltSegment)]
        of_zones, _ = assemble_zone_maps(plan.zone_maps, zones, work)
        new, replaced = new + of_zones.new_indices, replaced + of_zones.removed_indices
        of_fragments = sum(rows[number] for number in plan.zone_maps.fragments)
        num_rows += of_fragments * len(plan.zone_maps.wanted)
    operation = CreateIndex(new, replaced)
    result = work.commit(
        work.propose(plan.change.base, operation, uuid=plan.change.transaction_uuid)
    )
    if result is None:
        return IndexResult()
    return IndexResult(result.version, plan.wanted, len(new), num_rows)


def _entry(
    snapshot: Snapshot, planned: PlannedIndex, task: SegmentTask, segment: BuiltSegment
) -> IndexMetadata:
    version = _layout_version(snapshot, planned.kind)
    value = b""
    if task.text is not None:
        version = text_format_version(task.text)
        value = task.text.to_details(version)
    elif planned.kind == MINHASH:
        value = task.minhash.to_details()
    return new_index_entry(
        planned.name,
        [planned.field.id],
        snapshot.version,
        (*task.fragments, *task.removed_fragments),
        IndexDetails(_DETAILS[planned.kind], version, value),
        IndexFiles(segment.uuid, segment.file_sizes),
    )


def _layout_version(snapshot: Snapshot, kind: str) -> int:
    if kind == LABEL_LIST:
        return 1
    # A B-tree of version 0 would name rows by their ids, and miss those that were updated.
    return int(kind == BTREE and snapshot.uses_stable_row_ids)
