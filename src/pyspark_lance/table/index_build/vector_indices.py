"""Build vector indices, and refresh the indices of all columns, one commit of CreateIndex.

A build is planned from one version; rows appended concurrently are not covered, and
compared one by one.  Vectors changed in place, or rows moved, by concurrent commits are a conflict:
the work is planned again.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from pyspark_lance.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata, current_coverage, reuse_index_of
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.dml.row_change import ChangeSettings, plan_change
from pyspark_lance.table.index.segments import VECTOR, kind_of, reuse_versions
from pyspark_lance.table.index_build.column_indices import (
    IndexResult,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.vector_build import (
    SegmentRequest,
    VectorBuild,
    VectorIndexRequest,
    VectorIndexResult,
    ivf_parameters,
    temporary_folder,
)
from pyspark_lance.table.nearest.ivf_build import TakeTask, TrainTask
from pyspark_lance.table.nearest.ivf_file import IvfSegment, open_ivf
from pyspark_lance.table.nearest.ivf_model import ModelLocation, read_model
from pyspark_lance.table.nearest.ivf_search import fragments_by_segment
from pyspark_lance.table.nearest.vectors import vector_column, width_of
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.tasks import RunTasks, run_local
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)

ROWS_OF_SEGMENT: Final = 4 << 20
"""Segments of less than half as many live rows are joined."""


def create_vector_index(
    table: Table,
    request: VectorIndexRequest,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_local,
) -> VectorIndexResult:
    """Create a vector index of a column."""
    settings = settings or ChangeSettings()
    plan = partial(plan_vector_index, table, request, settings)
    return next(iter(_carry_out(table, plan, settings, run)), VectorIndexResult())


def refresh_vector_indices(
    table: Table,
    names: Collection[str] | None = None,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_local,
    joins_segments: bool = False,
    rows_of_segment: int = ROWS_OF_SEGMENT,
) -> tuple[VectorIndexResult, ...]:
    """Add to vector indices a segment of the fragments that they do not cover.

    The trained model of an index is reused.  Indices to which this package cannot add rows, as
    those with a graph, stay as they are.

    ``names``: the indices; None for all. ``joins_segments``: whether small segments are merged,
    with their encoded rows; ``rows_of_segment``: segments of less than half as many live rows are
    small. Returns the result for each index that has a new segment; one version has them all.
    """
    settings = settings or ChangeSettings()
    most = rows_of_segment if joins_segments else None
    plan = partial(plan_vector_refresh, table, names, settings, most)
    return _carry_out(table, plan, settings, run)


def is_vector_index(entry: IndexMetadata) -> bool:
    """Return whether an index is one of these, by any writer."""
    return kind_of(entry) == VECTOR and len(entry.fields) == 1


def _carry_out(
    table: Table, plan: Callable[[], VectorBuild | None], settings: ChangeSettings, run: RunTasks
) -> tuple[VectorIndexResult, ...]:
    def attempt(work: UnitOfWork) -> tuple[VectorIndexResult, ...]:
        build = plan()
        if build is None:
            return ()
        with temporary_folder(table, build.folder, work):
            while not build.is_last:
                build = build.after(list(run(build.tasks)))
            work.register_files(build.paths)
            return build.commit(list(run(build.tasks)), work)

    return UnitOfWork(table, settings).run(attempt)


# Plans ---------------------------------------------------------------------------------------


def plan_vector_index(
    table: Table, request: VectorIndexRequest, settings: ChangeSettings
) -> VectorBuild | None:
    """The first stage of a new index; None if it was committed before."""
    change = plan_change(table, settings)
    if change.is_done:
        return None
    snapshot = change.snapshot()
    column = vector_column(snapshot.schema, request.column)
    shape = ivf_parameters(snapshot, column, request)
    name, replaced = _free_name(snapshot, column, request)
    every = frozenset(snapshot.manifest.fragments.ids.tolist())
    folder = uuid.uuid4()
    model = ModelLocation(folder)
    scan = _whole_scan(snapshot, column)
    learn = TrainTask(scan, column, shape, request.sample_rate, request.seed, model)
    segment = SegmentRequest(name, column, model, every, replaced=replaced)
    return VectorBuild(change, (segment,), folder, (learn,))


def plan_vector_refresh(
    table: Table,
    names: Collection[str] | None,
    settings: ChangeSettings,
    joined_rows: int | None = None,
) -> VectorBuild | None:
    """The first stage of segments that indices lack; None if they lack none.

    ``joined_rows``: segments of less than half as many live rows are joined; None to join none.
    """
    change = plan_change(table, settings)
    if change.is_done:
        return None
    segments = _wanted_segments(change.snapshot(), names, joined_rows)
    if not segments:
        return None
    return VectorBuild(change, tuple(segments), uuid.uuid4()).encoding()


def _free_name(
    snapshot: Snapshot, column: Field, request: VectorIndexRequest
) -> tuple[str, tuple[IndexMetadata, ...]]:
    """Return the name of the index, and the entries that it replaces."""
    name = request.name or f"{column.name}_idx"
    own = tuple(entry for entry in snapshot.indices if entry.name == name)
    if not own:
        return name, ()
    is_alike = all(kind_of(one) == VECTOR and one.fields == (column.id,) for one in own)
    if is_alike and request.replace:
        return name, own
    raise InvalidInputError(
        f"there is an index {name!r}" if is_alike else f"there is another index {name!r}",
        where=snapshot.uri,
        hint="say replace=True, or another name" if is_alike else "choose another name",
    )


def _wanted_segments(
    snapshot: Snapshot, names: Collection[str] | None, joined_rows: int | None
) -> list[SegmentRequest]:
    """The segments that vector indices lack."""
    by_name: dict[str, list[IndexMetadata]] = {}
    for entry in snapshot.indices:
        if (names is None or entry.name in names) and is_vector_index(entry):
            by_name.setdefault(entry.name, []).append(entry)
    for name in names or ():
        if name not in by_name:
            raise InvalidInputError(
                f"there is no vector index {name!r}",
                where=snapshot.uri,
                hint=f"vector indices: {', '.join(by_name) or 'none'}",
            )
    found = (_wanted_segment(snapshot, entries, joined_rows) for entries in by_name.values())
    return [segment for segment in found if segment is not None]


def _wanted_segment(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], joined_rows: int | None
) -> SegmentRequest | None:
    """Return the segment that an index lacks; None if it lacks none or cannot be extended."""
    fields = {field.id: field for field in snapshot.schema.fields}
    column = fields.get(entries[0].fields[0])
    if column is None:
        return None
    every = frozenset(snapshot.manifest.fragments.ids.tolist())
    moves = reuse_versions(snapshot)
    bitmaps = [entry.fragment_bitmap for entry in entries]
    missing = every.difference(*(current_coverage(x, moves) for x in bitmaps if x is not None))
    takes: tuple[TakeTask, ...] = ()
    if joined_rows is not None and reuse_index_of(snapshot.indices) is None:
        takes = _small_segments(snapshot, entries, column, joined_rows)
    if not missing and len(takes) < 2:
        return None
    place = ModelLocation(entries[-1].uuid, entries[-1].base_id)
    try:
        read_model(snapshot.files, place)
    except UnsupportedFeatureError as error:
        logger.info("the index %r of %s stays as it is: %s", entries[0].name, snapshot.uri, error)
        return None
    taken = frozenset(fragment.id for task in takes for fragment in task.fragments)
    replaced = tuple(task.entry for task in takes)
    return SegmentRequest(entries[0].name, column, place, missing, taken, takes, replaced)


def _small_segments(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], column: Field, joined_rows: int
) -> tuple[TakeTask, ...]:
    """The mergeable segments of an index: small, and with the model of the last one."""
    width = width_of(column)
    try:
        known = [open_ivf(snapshot.files, entry, width) for entry in entries]
    except (LanceError, FileNotFoundError):
        return ()
    found = []
    for segment, fragments in fragments_by_segment(snapshot, tuple(known)):
        covered = segment.entry.fragment_bitmap or ()
        is_small = 2 * sum(fragment.num_rows for fragment in fragments) < joined_rows
        # A segment whose fragments are partly served by another one is not taken over.
        owns_all = {fragment.id for fragment in fragments} >= set(covered) & {
            fragment.id for fragment in snapshot.manifest.fragments
        }
        if is_small and owns_all and _is_alike(segment, known[-1]):
            stable = snapshot.uses_stable_row_ids
            found.append(TakeTask(snapshot.files, segment.entry, width, fragments, stable))
    return tuple(found)


def _is_alike(one: IvfSegment, other: IvfSegment) -> bool:
    """Return whether both have the same trained model."""
    if (one.kind, one.metric, one.bounds) != (other.kind, other.metric, other.bounds):
        return False
    if not np.array_equal(one.centroids, other.centroids):
        return False
    if one.codebook is None or other.codebook is None:
        return one.codebook is other.codebook
    return np.array_equal(one.codebook, other.codebook)


def _whole_scan(snapshot: Snapshot, column: Field) -> ScanTask:
    """Plan a scan of the vectors of all rows."""
    request = ScanRequest(
        schema=LanceSchema(fields=(column,)),
        fragments_per_task=max(1, len(snapshot.manifest.fragments)),
    )
    scans = plan_scan(snapshot, request)
    if not scans:
        raise InvalidInputError("the table has no rows to index", where=snapshot.uri)
    return replace(scans[0], slices=tuple(part for scan in scans for part in scan.slices))


def refresh_all_indices(
    table: Table,
    name: str | None = None,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_local,
    joins_segments: bool = False,
) -> IndexResult:
    """Add segments over fragments that indices do not cover.

    ``name``: Of one index; None for all. ``joins_segments``: Whether small segments are merged to
    few large ones.
    """
    settings = settings or ChangeSettings()
    result = IndexResult()
    vectors = vector_indices_named(table, name)
    if name is None or not vectors:
        of_columns = optimize_indices if joins_segments else refresh_indices
        result = of_columns(table, name, settings, run=run)
    if not vectors:
        return result
    made = refresh_vector_indices(table, vectors, settings, run=run, joins_segments=joins_segments)
    return with_vectors(result, made)


def vector_indices_named(table: Table, name: str | None) -> list[str]:
    """The vector indices of this name, or all of them."""
    entries = Snapshot.open(table).indices
    names = {entry.name for entry in entries if is_vector_index(entry)}
    return sorted(one for one in names if name in (None, one))


def with_vectors(result: IndexResult, made: Sequence[VectorIndexResult]) -> IndexResult:
    """Combine the results of indices of columns and of vectors."""
    if not made:
        return result
    return IndexResult(
        made[0].version,
        (*result.names, *(one.name for one in made)),
        result.numSegments + len(made),
        result.numRows + sum(one.numRows for one in made),
    )
