"""Makes vector indices, and brings them up to date: one commit of CreateIndex.

What is built is planned from one version; rows that others append meanwhile are not covered, and
compared one by one.  Vectors that others change in place, or rows that they move, are a conflict:
the work is planned again.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment_reuse import covered_now
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.operation import CreateIndex
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.system_columns import ROW_ID
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.format.wire import encode_varint, length_delimited
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.table.change.row_change import ChangePlan, ChangeSettings, plan_change
from pyspark_lance.table.index.index_entry import IndexDetails, IndexFiles, entry_made_now
from pyspark_lance.table.index.reused_fragments import reuse_versions
from pyspark_lance.table.index.segments import VECTOR, kind_of
from pyspark_lance.table.index_build.indexed_columns import only_fragments
from pyspark_lance.table.nearest.ivf_build import (
    BuiltSegment,
    EncodeTask,
    JoinTask,
    TrainTask,
    encode,
    join,
    train,
)
from pyspark_lance.table.nearest.ivf_file import INDEX_NAMES, VECTOR_DETAILS, IvfKind
from pyspark_lance.table.nearest.ivf_model import IvfShape
from pyspark_lance.table.nearest.ivf_output import ModelPlace, read_model
from pyspark_lance.table.nearest.metric import Metric
from pyspark_lance.table.nearest.vectors import vector_column, width_of
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)

INDEX_VERSION: Final = 1
_MOST_PARTITIONS: Final = 4096
_ROWS_OF_PARTITION: Final = {IvfKind.FLAT: 4096, IvfKind.PQ: 8192, IvfKind.SQ: 8192}
_METRICS: Final = {Metric.L2: 0, Metric.COSINE: 1, Metric.DOT: 2}
_MOST_RATE: Final = 1 << 20

_T = TypeVar("_T")
_R = TypeVar("_R")


class RunTasks(Protocol):
    """Runs work on tasks, wherever; the results come in their order."""

    def __call__(self, work: Callable[[_T], _R], tasks: Sequence[_T], /) -> Iterable[_R]:
        """The results."""


@dataclass(frozen=True, slots=True)
class VectorIndexRequest:
    """A vector index to make.

    Attributes:
        column: The column of vectors; None for the only one.
        kind: What to store of a row.
        metric: What the index is for.
        num_partitions: How many groups of rows; None for a number that follows theirs.
        num_sub_vectors: IVF_PQ only: how many parts of a vector have codes; None for a 16th of its
            width, or an 8th.
        sample_rate: How many vectors to learn from for each centroid and each codeword.
        seed: For all choices; None for others each time.
        name: Of the index; None for that of the column and ``_idx``.
        replace: Whether to take the place of a vector index of that name.
    """

    column: str | None = None
    kind: IvfKind = IvfKind.PQ
    metric: Metric = Metric.L2
    num_partitions: int | None = None
    num_sub_vectors: int | None = None
    sample_rate: int = 256
    seed: int | None = None
    name: str | None = None
    replace: bool = False

    def __post_init__(self) -> None:
        """Refuses numbers that are none."""
        check_enum(self.kind, IvfKind)
        check_enum(self.metric, Metric)
        most = {"num_partitions": 1 << 16, "num_sub_vectors": 1 << 16, "sample_rate": _MOST_RATE}
        for name, limit in most.items():
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and 0 < value <= limit):
                raise InvalidInputError(f"{name} is a number from 1 to {limit}, not {value!r}")
        if self.seed is not None and not (_is_whole(self.seed) and self.seed >= 0):
            raise InvalidInputError(f"seed is a number, at least 0, not {self.seed!r}")
        if self.num_sub_vectors is not None and self.kind is not IvfKind.PQ:
            raise InvalidInputError("only ivf_pq has codes of sub-vectors")


@dataclass(frozen=True, slots=True)
class VectorIndexResult:
    """What became of a vector index.

    Attributes:
        version: The version that has its new segment; None when there was nothing to do.
        name: Of the index.
        num_partitions: Its groups of rows.
        num_rows: Rows of the new segment.
        num_fragments: Fragments that it covers.
    """

    version: int | None = None
    name: str = ""
    num_partitions: int = 0
    num_rows: int = 0
    num_fragments: int = 0


@dataclass(frozen=True, slots=True)
class _Segment:
    """A segment to build.

    Attributes:
        model: What is learned, or was.
    """

    name: str
    column: Field
    model: ModelPlace
    fragments: frozenset[int]
    replaced: tuple[IndexMetadata, ...] = ()


def run_here(work: Callable[[_T], _R], tasks: Sequence[_T], /) -> Iterable[_R]:
    """Runs tasks in this process, one after the other."""
    return map(work, tasks)


def parse_kind(name: str) -> IvfKind:
    """The kind of this name, in whatever case."""
    kinds = {shown: kind for kind, shown in INDEX_NAMES.items()}
    kind = kinds.get(str(name).strip().upper())
    if kind is None:
        raise InvalidInputError(
            f"{name!r} is no kind of vector index that can be made",
            hint=f"the kinds are {', '.join(map(str.lower, kinds))}",
        )
    return kind


def create_vector_index(
    table: Table,
    request: VectorIndexRequest,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_here,
) -> VectorIndexResult:
    """Makes a vector index of a column."""
    settings = settings or ChangeSettings()

    def attempt(work: UnitOfWork) -> VectorIndexResult:
        change = plan_change(table, settings)
        if change.is_done:
            return VectorIndexResult()
        snapshot = change.snapshot()
        column = vector_column(snapshot.schema, request.column)
        shape = shape_of(snapshot, column, request)
        name, replaced = _free_name(snapshot, column, request)
        every = frozenset(fragment.id for fragment in snapshot.manifest.fragments)
        with _passing_folder(table, work) as folder:
            model = ModelPlace(folder)
            scan = _whole_scan(snapshot, column)
            learn = TrainTask(scan, column, shape, request.sample_rate, request.seed, model)
            list(run(train, [learn]))
            segment = _Segment(name, column, model, every, replaced)
            (result,) = _built(change, [segment], work, run, folder)
            return result

    return UnitOfWork(table, settings).run(attempt)


def refresh_vector_indices(
    table: Table,
    names: Collection[str] | None = None,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_here,
) -> tuple[VectorIndexResult, ...]:
    """Adds to vector indices a segment of the fragments that they do not cover.

    What was learned for an index is taken as it is.  Indices to which nobody here can add rows,
    as those with a graph, stay as they are.

    ``names``: the indices; None for all.

    Returns:
        What became of each index that has a new segment; one version has them all.
    """
    settings = settings or ChangeSettings()

    def attempt(work: UnitOfWork) -> tuple[VectorIndexResult, ...]:
        change = plan_change(table, settings)
        segments = [] if change.is_done else _missing_segments(change.snapshot(), names)
        if not segments:
            return ()
        with _passing_folder(table, work) as folder:
            return _built(change, segments, work, run, folder)

    return UnitOfWork(table, settings).run(attempt)


def shape_of(snapshot: Snapshot, column: Field, request: VectorIndexRequest) -> IvfShape:
    """What the index of a column is to be like, where the request leaves it open."""
    width = width_of(column)
    partitions = request.num_partitions
    if partitions is None:
        rows = sum(fragment.num_rows for fragment in snapshot.manifest.fragments)
        partitions = rows // _ROWS_OF_PARTITION[request.kind]
        partitions = max(1, min(_MOST_PARTITIONS, partitions))
    if request.kind is not IvfKind.PQ:
        return IvfShape(request.kind, request.metric, partitions)
    parts = request.num_sub_vectors
    if parts is None:
        part = next(size for size in (16, 8, *range(7, 0, -1)) if width % size == 0)
        parts = width // part
    if width % parts:
        raise InvalidInputError(
            f"{parts} sub-vectors do not divide vectors of {width} numbers",
            hint="give numSubVectors that does, such as an 8th or a 16th of it",
        )
    return IvfShape(request.kind, request.metric, partitions, parts)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _free_name(
    snapshot: Snapshot, column: Field, request: VectorIndexRequest
) -> tuple[str, tuple[IndexMetadata, ...]]:
    """What the index is called, and the entries that it takes the place of."""
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


def _missing_segments(snapshot: Snapshot, names: Collection[str] | None) -> list[_Segment]:
    """The segments that vector indices lack."""
    by_name: dict[str, list[IndexMetadata]] = {}
    for entry in snapshot.indices:
        is_wanted = names is None or entry.name in names
        if is_wanted and kind_of(entry) == VECTOR and len(entry.fields) == 1:
            by_name.setdefault(entry.name, []).append(entry)
    for name in names or ():
        if name not in by_name:
            raise InvalidInputError(
                f"there is no vector index {name!r}",
                where=snapshot.uri,
                hint=f"vector indices: {', '.join(by_name) or 'none'}",
            )
    every = frozenset(fragment.id for fragment in snapshot.manifest.fragments)
    fields = {field.id: field for field in snapshot.schema.fields}
    moves = reuse_versions(snapshot)
    found = []
    for name, entries in by_name.items():
        column = fields.get(entries[0].fields[0])
        bitmaps = [entry.fragment_bitmap for entry in entries]
        covered = [covered_now(bitmap, moves) for bitmap in bitmaps if bitmap is not None]
        missing = every.difference(*covered)
        if column is None or not missing:
            continue
        place = ModelPlace(entries[-1].uuid, entries[-1].base_id)
        try:
            read_model(snapshot.files, place)
        except UnsupportedFeatureError as error:
            logger.info("the index %r of %s stays as it is: %s", name, snapshot.uri, error)
            continue
        found.append(_Segment(name, column, place, missing))
    return found


@contextlib.contextmanager
def _passing_folder(table: Table, work: UnitOfWork) -> Iterator[uuid.UUID]:
    """A folder for what tasks leave to each other, which goes when the work ends."""
    folder = uuid.uuid4()
    try:
        yield folder
    finally:
        with contextlib.suppress(FileNotFoundError):
            left = [info.path for info in table.store().list(index_path(folder, ""))]
            work.register_files(left)


def _built(
    change: ChangePlan,
    segments: Sequence[_Segment],
    work: UnitOfWork,
    run: RunTasks,
    folder: uuid.UUID,
) -> tuple[VectorIndexResult, ...]:
    """Encodes the rows of segments, writes their files and makes the version that has them."""
    snapshot = change.snapshot()
    tasks = [
        (number, EncodeTask(scan, one.column, one.model, folder))
        for number, one in enumerate(segments)
        for scan in _scans(snapshot, one)
    ]
    encoded = list(run(encode, [task for _, task in tasks]))
    joins = []
    for number, one in enumerate(segments):
        parts = [
            part
            for (owner, _), own in zip(tasks, encoded, strict=True)
            if owner == number
            for part in own
        ]
        joins.append(JoinTask(snapshot.files, one.model, tuple(parts), uuid.uuid4()))
        names = (index_path(joins[-1].segment, file) for file in ("index.idx", "auxiliary.idx"))
        work.register_files(names)
    built = list(run(join, joins))
    entries = [
        _entry(snapshot, one, done) for one, done in zip(segments, built, strict=True)
    ]  # fmt: skip
    replaced = tuple(entry for one in segments for entry in one.replaced)
    operation = CreateIndex(tuple(entries), replaced)
    result = work.commit(work.propose(change.base, operation, uuid=change.transaction_uuid))
    version = None if result is None else result.version
    return tuple(
        VectorIndexResult(
            version, one.name, done.shape.num_partitions, done.num_rows, len(one.fragments)
        )
        for one, done in zip(segments, built, strict=True)
    )


def _entry(snapshot: Snapshot, segment: _Segment, built: BuiltSegment) -> IndexMetadata:
    return entry_made_now(
        segment.name,
        [segment.column.id],
        snapshot.version,
        segment.fragments,
        IndexDetails(f"/{VECTOR_DETAILS}", INDEX_VERSION, _details(built.shape)),
        IndexFiles(built.uuid, built.file_sizes),
    )


def _details(shape: IvfShape) -> bytes:
    """What listings show without a look at the files."""
    details = encode_varint(1 << 3) + encode_varint(_METRICS[shape.metric])
    eight = encode_varint(1 << 3) + encode_varint(8)
    if shape.kind is IvfKind.FLAT:
        return details + length_delimited(8, b"")
    if shape.kind is IvfKind.SQ:
        return details + length_delimited(5, eight)
    parts = encode_varint(2 << 3) + encode_varint(shape.num_sub_vectors or 0)
    return details + length_delimited(4, eight + parts)


def _whole_scan(snapshot: Snapshot, column: Field) -> ScanTask:
    """Reads the vectors of all rows."""
    request = ScanRequest(
        schema=LanceSchema(fields=(column,)),
        fragments_per_task=max(1, len(snapshot.manifest.fragments)),
    )
    scans = plan_scan(snapshot, request)
    if not scans:
        raise InvalidInputError("the table has no rows to index", where=snapshot.uri)
    return replace(scans[0], slices=tuple(part for scan in scans for part in scan.slices))


def _scans(snapshot: Snapshot, segment: _Segment) -> list[ScanTask]:
    """Scans of the vectors and row ids of the fragments of a segment."""
    request = ScanRequest(
        schema=LanceSchema(fields=(segment.column,)), system_columns=(ROW_ID,)
    )  # fmt: skip
    return only_fragments(plan_scan(snapshot, request), segment.fragments)
