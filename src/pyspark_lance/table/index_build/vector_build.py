"""Build vector indices, and refresh the indices of all columns, in one commit of CreateIndex.

Training is a stage of one task, only for a new index. The next stage encodes rows, and copies those
of existing segments; in the last, one task for each segment writes its files.

A build is planned from one version; rows appended concurrently are not covered, and are compared
one by one. Vectors changed in place, or rows moved, by concurrent commits are a conflict: the build
is planned again.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

import numpy as np

from pyspark_lance.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata, current_coverage, reuse_index_of
from pyspark_lance.format.operation import CreateIndex
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.format.wire import encode_varint, length_delimited
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.dml.row_change import ChangeSettings, DmlPlan, plan_change
from pyspark_lance.table.index.segments import (
    VECTOR,
    IndexDetails,
    IndexFiles,
    kind_of,
    new_index_entry,
    reuse_versions,
)
from pyspark_lance.table.index_build.column_indices import (
    IndexResult,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.nearest.ivf_build import (
    BuiltSegment,
    EncodeTask,
    JoinTask,
    TakeTask,
    TrainTask,
)
from pyspark_lance.table.nearest.ivf_file import (
    INDEX_FILE,
    INDEX_NAMES,
    ROWS_FILE,
    VECTOR_DETAILS,
    IvfKind,
    IvfSegment,
    open_ivf,
)
from pyspark_lance.table.nearest.ivf_model import IvfParameters, ModelLocation, read_model
from pyspark_lance.table.nearest.ivf_search import fragments_by_segment
from pyspark_lance.table.nearest.vectors import Metric, vector_column, width_of
from pyspark_lance.table.scan.column_paths import only_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.tasks import MaintenanceTask, RunTasks, run_local
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_MAX_PARTITIONS: Final = 4096
_ROWS_OF_PARTITION: Final = {IvfKind.FLAT: 4096, IvfKind.PQ: 8192, IvfKind.SQ: 8192}
_MAX_RATE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class VectorIndexRequest:
    """A vector index to build."""

    column: str | None = None  # The column of vectors; None for the only one.
    kind: IvfKind = IvfKind.PQ  # What to store of a row.
    metric: Metric = Metric.L2  # What the index is for.
    # How many groups of rows; None for a number that follows theirs.
    num_partitions: int | None = None
    # IVF_PQ only: how many parts of a vector have codes; None for a 16th of its width, or an 8th.
    num_sub_vectors: int | None = None
    sample_rate: int = 256  # How many vectors to learn from for each centroid and each codeword.
    seed: int | None = None  # For all choices; None for others each time.
    name: str | None = None  # Of the index; None for that of the column and ``_idx``.
    replace: bool = False  # Whether to take the place of a vector index of that name.

    def __post_init__(self) -> None:
        """Reject values that are no numbers or out of range."""
        check_enum(self.kind, IvfKind)
        check_enum(self.metric, Metric)
        most = {"num_partitions": 1 << 16, "num_sub_vectors": 1 << 16, "sample_rate": _MAX_RATE}
        for name, limit in most.items():
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and 0 < value <= limit):
                raise InvalidInputError(f"{name} must be a number from 1 to {limit}, not {value!r}")
        if self.seed is not None and not (_is_whole(self.seed) and self.seed >= 0):
            raise InvalidInputError(f"seed must be a number, at least 0, not {self.seed!r}")
        if self.num_sub_vectors is not None and self.kind is not IvfKind.PQ:
            raise InvalidInputError("the number of sub-vectors is for ivf_pq only")


@also_snake_case
@dataclass(frozen=True, slots=True)
class VectorIndexResult:
    """Result of an operation on a vector index.

    Attributes:
        version: The version that has its new segment; None if there was nothing to do.
        names: The index, in a tuple as in ``IndexResult``.
        numPartitions: Its groups of rows.
        numRows: Rows of the new segment.
        numFragments: Fragments that it covers.
    """

    version: int | None = None
    names: tuple[str, ...] = ()
    numPartitions: int = 0  # noqa: N815
    numRows: int = 0  # noqa: N815
    numFragments: int = 0  # noqa: N815


def parse_kind(name: str) -> IvfKind:
    """The kind of this name, in whatever case."""
    kinds = {shown: kind for kind, shown in INDEX_NAMES.items()}
    kind = kinds.get(str(name).strip().upper())
    if kind is None:
        raise InvalidInputError(
            f"{name!r} is not a kind of vector index that can be built",
            hint=f"the kinds are {', '.join(map(str.lower, kinds))}",
        )
    return kind


def ivf_parameters(snapshot: Snapshot, column: Field, request: VectorIndexRequest) -> IvfParameters:
    """Return the parameters of the index of a column; choose those that the request omits."""
    width = width_of(column)
    partitions = request.num_partitions
    if partitions is None:
        rows = snapshot.manifest.fragments.num_rows
        partitions = rows // _ROWS_OF_PARTITION[request.kind]
        partitions = max(1, min(_MAX_PARTITIONS, partitions))
    if request.kind is not IvfKind.PQ:
        return IvfParameters(request.kind, request.metric, partitions)
    parts = request.num_sub_vectors
    if parts is None:
        part = next(size for size in (16, 8, *range(7, 0, -1)) if width % size == 0)
        parts = width // part
    if width % parts:
        raise InvalidInputError(
            f"{parts} sub-vectors do not divide vectors of {width} numbers",
            hint="give numSubVectors that does, such as an 8th or a 16th of it",
        )
    return IvfParameters(request.kind, request.metric, partitions, parts)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


INDEX_VERSION: Final = 1
_METRICS: Final = {Metric.L2: 0, Metric.COSINE: 1, Metric.DOT: 2}


@dataclass(frozen=True, slots=True)
class SegmentRequest:
    """A segment to build."""

    name: str
    column: Field
    model: ModelLocation  # What is learned, or was.
    encoded: frozenset[int]
    taken: frozenset[int] = frozenset()
    # These segments, and which of the fragments each has; without a folder.
    takes: tuple[TakeTask, ...] = ()
    replaced: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class VectorBuild:
    """Segments on their way; picklable."""

    change: DmlPlan
    segments: tuple[SegmentRequest, ...]
    folder: UUID  # What tasks leave to each other, and nothing else.
    tasks: tuple[MaintenanceTask[Any], ...] = ()
    owners: tuple[int, ...] = ()  # Of tasks that encode or take: the number of the segment of each.

    @property
    def is_last(self) -> bool:
        """Whether the next stage writes the files of the segments."""
        return all(isinstance(task, JoinTask) for task in self.tasks)

    def encoding(self) -> VectorBuild:
        """The stage that encodes rows, and copies encoded ones."""
        snapshot = self.change.snapshot()
        tasks: list[MaintenanceTask[Any]] = []
        owners = []
        for number, one in enumerate(self.segments):
            own: list[MaintenanceTask[Any]] = [
                EncodeTask(scan, one.column, one.model, self.folder)
                for scan in _scans(snapshot, one)
            ]
            own += [replace(task, folder=self.folder) for task in one.takes]
            tasks += own
            owners += [number] * len(own)
        build = replace(self, tasks=tuple(tasks), owners=tuple(owners))
        # Without a live row there is nothing to encode, and still a segment.
        return build if tasks else build.after([])

    def after(self, done: Sequence[Any]) -> VectorBuild:
        """The next stage, given the results of the tasks of this one."""
        if self.tasks and isinstance(self.tasks[0], TrainTask):
            return self.encoding()
        files = self.change.snapshot().files
        joins = []
        for number, one in enumerate(self.segments):
            results = zip(self.owners, done, strict=True)
            parts = tuple(part for owner, own in results if owner == number for part in own)
            joins.append(JoinTask(files, one.model, parts, uuid4()))
        return replace(self, tasks=tuple(joins), owners=())

    @property
    def paths(self) -> list[str]:
        """The files that the tasks of the last stage write."""
        return [
            index_path(task.segment, file)
            for task in self.tasks
            if isinstance(task, JoinTask)
            for file in (INDEX_FILE, ROWS_FILE)
        ]

    def commit(
        self, built: Sequence[BuiltSegment], work: UnitOfWork
    ) -> tuple[VectorIndexResult, ...]:
        """Commit the version that has the segments."""
        work.register_files(self.paths)
        snapshot = self.change.snapshot()
        pairs = list(zip(self.segments, built, strict=True))
        entries = tuple(_entry(snapshot, one, done) for one, done in pairs)
        replaced = tuple(entry for one in self.segments for entry in one.replaced)
        operation = CreateIndex(entries, replaced)
        result = work.commit(
            work.propose(self.change.base, operation, uuid=self.change.transaction_uuid)
        )
        version = None if result is None else result.version
        return tuple(
            VectorIndexResult(
                version,
                (one.name,),
                done.shape.num_partitions,
                done.num_rows,
                len(one.encoded | one.taken),
            )
            for one, done in pairs
        )


@contextlib.contextmanager
def temporary_folder(table: Table, folder: UUID, work: UnitOfWork) -> Iterator[None]:
    """Register the files that tasks pass to each other for removal when the work ends."""
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the version may be made; a cleanup finds them
            left = [info.path for info in table.store().list(index_path(folder, ""))]
            work.register_files(left)


def _entry(snapshot: Snapshot, segment: SegmentRequest, built: BuiltSegment) -> IndexMetadata:
    return new_index_entry(
        segment.name,
        [segment.column.id],
        snapshot.version,
        segment.encoded | segment.taken,
        IndexDetails(f"/{VECTOR_DETAILS}", INDEX_VERSION, _details(built.shape)),
        IndexFiles(built.uuid, built.file_sizes),
    )


def _details(shape: IvfParameters) -> bytes:
    """Encode the details that listings show without opening the files."""
    details = encode_varint(1 << 3) + encode_varint(_METRICS[shape.metric])
    eight = encode_varint(1 << 3) + encode_varint(8)
    if shape.kind is IvfKind.FLAT:
        return details + length_delimited(8, b"")
    if shape.kind is IvfKind.SQ:
        return details + length_delimited(5, eight)
    parts = encode_varint(2 << 3) + encode_varint(shape.num_sub_vectors or 0)
    return details + length_delimited(4, eight + parts)


def _scans(snapshot: Snapshot, segment: SegmentRequest) -> list[ScanTask]:
    """Scans of the vectors and row ids of the fragments of a segment."""
    request = ScanRequest(
        schema=LanceSchema(fields=(segment.column,)), system_columns=(ROW_ID,)
    )  # fmt: skip
    return only_fragments(plan_scan(snapshot, request), segment.encoded)


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
    index = ModelLocation(entries[-1].uuid, entries[-1].base_id)
    try:
        read_model(snapshot.files, index)
    except UnsupportedFeatureError as error:
        logger.info("the index %r of %s stays as it is: %s", entries[0].name, snapshot.uri, error)
        return None
    taken = frozenset(fragment.id for task in takes for fragment in task.fragments)
    replaced = tuple(task.entry for task in takes)
    return SegmentRequest(entries[0].name, column, index, missing, taken, takes, replaced)


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
        (*result.names, *(name for one in made for name in one.names)),
        result.numSegments + len(made),
        result.numRows + sum(one.numRows for one in made),
    )
