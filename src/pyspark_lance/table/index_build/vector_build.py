"""VectorBuild: requests of vector indices, and their segments, stage by stage of tasks.

Learning is a stage of one task, which only a new index has; encoding rows, and taking over those
that segments have, is the next; in the last, one task for each segment writes its files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID, uuid4

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.operation import CreateIndex
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.format.wire import encode_varint, length_delimited
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.index.segments import IndexDetails, IndexFiles, new_index_entry
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
)
from pyspark_lance.table.nearest.ivf_model import IvfParameters, ModelLocation
from pyspark_lance.table.nearest.vectors import Metric, width_of
from pyspark_lance.table.scan.column_paths import only_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.tasks import MaintenanceTask
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.unit_of_work import UnitOfWork

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
        name: Of the index.
        numPartitions: Its groups of rows.
        numRows: Rows of the new segment.
        numFragments: Fragments that it covers.
    """

    version: int | None = None
    name: str = ""
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
                one.name,
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
