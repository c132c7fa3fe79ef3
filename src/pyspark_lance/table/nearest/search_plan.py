"""Plans a search: which rows each task compares, and how the rows that are found are read.

A task reads vectors and row ids only.  The other columns are read for the rows that were found,
which are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.nearest.ivf_file import IvfSegment
from pyspark_lance.table.nearest.ivf_plan import AnySegment, fragments_by_segment
from pyspark_lance.table.nearest.ivf_search import SegmentTask
from pyspark_lance.table.nearest.metric import Metric
from pyspark_lance.table.nearest.search_task import LateMaterialization, SearchTask, TopKMerge
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot

_FETCHED_BYTES: Final = 16 << 20
_MAX_FETCHED_ROWS: Final = 1 << 14
# Where manifests do not say how large files are.
_ASSUMED_ROW_BYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class NearestRequest:
    """What to find."""

    column: Field  # The column of vectors.
    metric: Metric  # What is near.
    k: int  # How many rows for each query.
    predicate: Predicate | None  # Which rows count; None for all.
    columns: LanceSchema  # Columns to return of the rows that are found.
    system_columns: tuple[str, ...]  # Lineage columns to return of them.
    # Of an index of the column for the metric; none to compare every row.
    segments: tuple[IvfSegment, ...] = ()
    # How many partitions of each segment to look at for each query; None for as many as it takes to
    # find ``k`` rows.
    nprobes: int | None = None
    # So many times ``k`` rows that the index tells are compared by their vectors; None to believe
    # it.
    refine_factor: int | None = None

    def __post_init__(self) -> None:
        """Refuses a number of rows that is none, and a plain value."""
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
    """A planned search."""

    column: Field
    tasks: tuple[SearchTask | SegmentTask, ...]  # Each looks at some of the rows; together at all.
    joining: TopKMerge
    fetch: LateMaterialization


def plan_nearest(snapshot: Snapshot, request: NearestRequest) -> NearestPlan:
    """The tasks of a search; reads no data file.

    With a condition, each task of a segment first looks which of its rows match: they alone are
    found, and partitions are added until there are enough.
    """
    by_segment = fragments_by_segment(snapshot, request.segments)
    covered = {fragment.id for _, fragments in by_segment for fragment in fragments}
    scans = _scans(snapshot, request, covered)
    is_covered = all(fragment.id in covered for fragment in snapshot.manifest.fragments)
    # Distances of an index and of vectors are not compared.
    is_refined = bool(by_segment) and (request.refine_factor is not None or not is_covered)
    coded = request.k * (request.refine_factor or 1)
    tasks = [
        SegmentTask(
            segment,
            snapshot.files,
            fragments,
            snapshot.uses_stable_row_ids,
            coded,
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
        TopKMerge(request.metric, request.k, coded, vectors),
        plan_fetch(snapshot, request.columns, request.system_columns),
    )


def matching_by_segment(
    snapshot: Snapshot,
    predicate: Predicate | None,
    by_segment: Sequence[tuple[AnySegment, tuple[Fragment, ...]]],
) -> Iterator[tuple[AnySegment, tuple[Fragment, ...], ScanTask | None]]:
    """The segments with the scans for their rows that match; without those that have none."""
    if predicate is None:
        yield from ((segment, fragments, None) for segment, fragments in by_segment)
        return
    request = ScanRequest(
        schema=LanceSchema(fields=()), system_columns=(ROW_ADDRESS,), predicate=predicate
    )
    scans = plan_scan(snapshot, request)
    for segment, fragments in by_segment if scans else ():
        own = {fragment.id for fragment in fragments}
        slices = tuple(one for scan in scans for one in scan.slices if one.fragment.id in own)
        if slices:
            yield segment, fragments, replace(scans[0], slices=slices)


def _scans(
    snapshot: Snapshot, request: NearestRequest, covered: set[int]
) -> tuple[SearchTask, ...]:
    """The tasks that compare rows of the fragments that no index answers for."""
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
    """How some columns of rows that are found are read."""
    every = ScanRequest(
        schema=columns,
        system_columns=tuple(name for name in SYSTEM_COLUMNS if name in system_columns),
        fragments_per_task=max(1, len(snapshot.manifest.fragments)),
    )
    fragments = snapshot.manifest.fragments
    rows = sum(fragment.physical_rows for fragment in fragments)
    stored = sum(file.size_bytes for fragment in fragments for file in fragment.files)
    row_bytes = stored / max(1, rows) or _ASSUMED_ROW_BYTES
    at_once = int(min(_MAX_FETCHED_ROWS, max(1, _FETCHED_BYTES // max(1, row_bytes))))
    planned = plan_scan(snapshot, every)
    if planned:
        return LateMaterialization(planned[0], at_once)
    return LateMaterialization(None, at_once)
