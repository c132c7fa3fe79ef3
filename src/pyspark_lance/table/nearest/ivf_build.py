"""Build a segment of a vector index in three stages of tasks, connected by files.

One task trains a model on a sample. Then each task encodes some of the rows, or copies those of an
existing segment, and writes them ordered by partition. Finally, one task merges these files,
partition by partition. Memory is bounded by a sample, a partition or a block of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.nearest.ivf_file import INDEX_FILE, ROWS_FILE, IvfKind, open_ivf
from pyspark_lance.table.nearest.ivf_model import (
    CODEWORDS,
    Encoder,
    IvfModel,
    IvfParameters,
    ModelLocation,
    can_be_indexed,
    read_model,
    rows_batch,
    rows_schema,
    train_model,
    write_index_file,
    write_rows_file,
)
from pyspark_lance.table.nearest.live_rows import SegmentRows
from pyspark_lance.table.nearest.vectors import Metric, dtype_of, matrix_of, width_of
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.table_files import TableFiles

_PART_VERSION: Final = "2.1"
_MAX_SAMPLE_BYTES: Final = 192 << 20
_FEWEST_OF_PARTITION: Final = 16
# Maximum runs of rows in a sample, since each run is a separate read.
_RUNS: Final = 1 << 14
# Maximum buffered encoded rows before they are written, and during the merge.
_HELD_BYTES: Final = 48 << 20

_Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class TrainTask:
    """A training task; picklable."""

    title: ClassVar = "train the vector index"

    scan: ScanTask
    column: Field
    shape: IvfParameters
    sample_rate: int  # Maximum vectors for each centroid and each codeword.
    seed: int | None  # Random seed; None for nondeterministic results.
    model: ModelLocation

    def run(self) -> int:
        """Train and store the model; return the number of training vectors."""
        rng = np.random.default_rng(self.seed)
        sample = _sample(self, rng)
        model = train_model(sample, self.shape, self.sample_rate, rng)
        store = self.scan.files.table.store()
        write_index_file(store, self.model.uuid, model)
        none = np.zeros(model.num_partitions, np.int64)
        write_rows_file(store, self.model.uuid, model, none, ())
        return len(sample)


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """A task that encodes rows; picklable.

    ``scan``: reads their vectors and row ids.
    """

    title: ClassVar = "encode vectors"

    scan: ScanTask
    column: Field
    model: ModelLocation
    folder: UUID

    def run(self) -> tuple[EncodedPart, ...]:
        """Encode rows and write them ordered by partition."""
        files = self.scan.files
        model = read_model(files, self.model)
        encoder, parts = Encoder(model), _PartWriter(files.table.store(), self.folder, model)
        step = max(1, _HELD_BYTES // parts.row_bytes)
        for batch in self.scan.run():
            names = batch.schema.names
            column = batch.column(names.index(self.column.name))
            vectors, kept = _indexable_vectors(column, model.metric)
            row_ids = plain_numbers(batch.column(names.index(ROW_ID)))[kept]
            for first in range(0, len(vectors), step):
                partitions, codes = encoder.encode(vectors[first : first + step])
                parts.add(partitions, row_ids[first : first + step], codes)
        return parts.finish()


@dataclass(frozen=True, slots=True)
class TakeTask:
    """A task that copies rows of an existing segment; picklable."""

    title: ClassVar = "copy vectors of existing segments"

    files: TableFiles
    entry: IndexMetadata
    width: int
    # Fragments whose live rows are copied, with their row ids if these are stable.
    fragments: tuple[Fragment, ...]
    stable_row_ids: bool
    folder: UUID | None = None

    def run(self) -> tuple[EncodedPart, ...]:
        """Copy the live rows of a segment to files as those of ``EncodeTask``."""
        assert self.folder is not None
        segment = open_ivf(self.files, self.entry, self.width)
        model = read_model(self.files, ModelLocation(self.entry.uuid, self.entry.base_id))
        rows = SegmentRows(
            self.files, segment, self.fragments, stable_row_ids=self.stable_row_ids, is_cached=False
        )
        parts = _PartWriter(self.files.table.store(), self.folder, model)
        filled = np.flatnonzero(segment.lengths).tolist()
        for number, partition in zip(filled, rows.partitions(filled), strict=True):
            own = rows.live_rows(partition)
            if len(own.row_ids):
                partitions = np.full(len(own.row_ids), number, np.int32)
                parts.add(partitions, own.row_ids, own.stored)
        return parts.finish()


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """A file of encoded rows, ordered by partition.

    ``lengths``: rows of each partition.
    """

    path: str
    lengths: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JoinTask:
    """A task that merges encoded rows to a segment; picklable."""

    title: ClassVar = "write index segments"

    files: TableFiles
    model: ModelLocation
    parts: tuple[EncodedPart, ...]
    segment: UUID

    def run(self) -> BuiltSegment:
        """Merge encoded rows to the files of a segment."""
        model = read_model(self.files, self.model)
        store = self.files.table.store()
        lengths = np.zeros((len(self.parts), model.num_partitions), np.int64)
        for number, part in enumerate(self.parts):
            lengths[number] = part.lengths
        readers = [DataFileReader.open(store, part.path) for part in self.parts]
        batches = _by_partition(model, readers, lengths)
        every = lengths.sum(axis=0)
        sizes = {
            INDEX_FILE: write_index_file(store, self.segment, model),
            ROWS_FILE: write_rows_file(store, self.segment, model, every, batches),
        }
        parts = None if model.codebook is None else len(model.codebook)
        shape = IvfParameters(model.kind, model.metric, model.num_partitions, parts)
        return BuiltSegment(self.segment, shape, int(every.sum()), sizes)


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A written segment.

    ``file_sizes``: bytes of its files, by name.
    """

    uuid: UUID
    shape: IvfParameters
    num_rows: int
    file_sizes: dict[str, int] = field(default_factory=dict)


# Learning --------------------------------------------------------------------------------------


def _sample(task: TrainTask, rng: np.random.Generator) -> _Floats:
    """Return a random sample of vectors, or all if there are fewer."""
    shape, width = task.shape, width_of(task.column)
    groups = max(shape.num_partitions, CODEWORDS if shape.kind is IvfKind.PQ else 1)
    row_bytes = width * max(4, dtype_of(task.column).itemsize)
    fewest = _FEWEST_OF_PARTITION * shape.num_partitions
    wanted = min(task.sample_rate * groups, max(fewest, _MAX_SAMPLE_BYTES // row_bytes))
    total = sum(part.end - part.start for part in task.scan.slices)
    requested = wanted
    while True:
        slices = _sample_splits(task.scan.slices, requested, rng)
        batches = replace(task.scan, slices=slices).run() if slices else iter(())
        found = [_indexable_vectors(batch.column(0), shape.metric)[0] for batch in batches]
        sample = np.concatenate([np.empty((0, width), dtype_of(task.column)), *found])
        # Rows may be deleted or null.
        if requested >= total or len(sample) >= wanted // 2:
            break
        requested *= 4
    if len(sample) > wanted:
        sample = sample[np.sort(rng.permutation(len(sample))[:wanted])]
    return sample


def _indexable_vectors(column: pa.Array, metric: Metric) -> tuple[_Floats, NDArray[np.bool_]]:
    """Return the vectors that can be indexed, and a mask of their rows."""
    vectors, has_vector = matrix_of(column)
    kept = can_be_indexed(vectors, metric)
    if has_vector is not None:
        kept &= has_vector
    return (vectors if kept.all() else vectors[kept]), kept


def _sample_splits(
    slices: Sequence[ScanSplit], count: int, rng: np.random.Generator
) -> Sequence[ScanSplit]:
    """Return splits of about ``count`` random rows, in runs, or of all if there are fewer."""
    ends = np.cumsum([part.end - part.start for part in slices])
    total = int(ends[-1]) if len(slices) else 0
    if total <= count:
        return slices
    length = -(-count // _RUNS)
    runs = rng.choice(-(-total // length), -(-count // length), replace=False, shuffle=False)
    indices = (np.sort(runs)[:, None] * length + np.arange(length)).ravel()
    indices = indices[indices < total]
    by_slice = np.split(indices, np.searchsorted(indices, ends[:-1]))
    found = []
    for part, end, own in zip(slices, ends.tolist(), by_slice, strict=True):
        offsets = (own - end + part.end).astype(np.uint32)
        if len(own):
            found.append(replace(part, offsets=OffsetSet.of(offsets)))
    return found


# Encoding --------------------------------------------------------------------------------------


def _row_bytes(model: IvfModel) -> int:
    """Return the bytes of an encoded row, with its id and its partition."""
    return 12 + model.code_width * model.code_dtype.itemsize


class _PartWriter:
    """Writer of encoded rows to files of limited size, each ordered by partition."""

    def __init__(self, store: ObjectStore, folder: UUID, model: IvfModel) -> None:
        self._store, self._folder, self._model = store, folder, model
        self.row_bytes = _row_bytes(model)
        self._blocks: list[tuple[NDArray[Any], NDArray[np.uint64], NDArray[Any]]] = []
        self._num_rows = 0
        self._parts: list[EncodedPart] = []

    def add(
        self, partitions: NDArray[np.int32], row_ids: NDArray[np.uint64], codes: NDArray[Any]
    ) -> None:
        """Add rows; write a file once there are enough."""
        self._blocks.append((partitions, row_ids, codes))
        self._num_rows += len(row_ids)
        if self._num_rows * self.row_bytes >= _HELD_BYTES:
            self._write()

    def finish(self) -> tuple[EncodedPart, ...]:
        """Write the remaining rows, and return all files."""
        if self._num_rows:
            self._write()
        return tuple(self._parts)

    def _write(self) -> None:
        partitions, row_ids, codes = (
            np.concatenate(column) for column in zip(*self._blocks, strict=True)
        )
        order = np.argsort(partitions, kind="stable")
        path = index_path(self._folder, f"{uuid4()}.lance")
        writer = DataFileWriter(self._store, path, rows_schema(self._model), version=_PART_VERSION)
        try:
            writer.write(rows_batch(self._model, row_ids[order], codes[order]))
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        lengths = np.bincount(partitions, minlength=self._model.num_partitions)
        self._parts.append(EncodedPart(path, lengths))
        self._blocks, self._num_rows = [], 0


# Merging --------------------------------------------------------------------------------------


def _by_partition(
    model: IvfModel, readers: list[DataFileReader], lengths: NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all parts, partition by partition.

    ``lengths``: rows of each partition in each part, shape (parts, partitions).
    """
    ends = np.cumsum(lengths, axis=1)
    row_bytes = _row_bytes(model)
    totals = lengths.sum(axis=0)
    windows = (np.cumsum(totals) - totals) * row_bytes // _HELD_BYTES
    firsts = np.flatnonzero(np.diff(windows, prepend=-1))
    for first, last in zip(firsts, [*firsts[1:], len(totals)], strict=True):
        partitions, row_ids, codes = [], [], []
        for number, reader in enumerate(readers):
            stop = int(ends[number, last - 1])
            start = stop - int(lengths[number, first:last].sum())
            if start == stop:
                continue
            batch = reader.read(reader.schema.fields, reader.embedded_columns(), start, stop)
            partitions.append(np.repeat(np.arange(first, last), lengths[number, first:last]))
            row_ids.append(plain_numbers(batch.column(0)))
            items = batch.column(1).flatten()
            codes.append(plain_numbers(items).reshape(-1, model.code_width))
        if partitions:
            order = np.argsort(np.concatenate(partitions), kind="stable")
            every = np.concatenate(codes)[order]
            if model.kind is IvfKind.PQ:
                every = _transpose_codes(every, totals[first:last])
            yield rows_batch(model, np.concatenate(row_ids)[order], every)


def _transpose_codes(codes: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Transpose codes within each partition to column-major order."""
    turned = np.empty_like(codes)
    stop = 0
    for length in lengths.tolist():
        start, stop = stop, stop + length
        turned[start:stop] = codes[start:stop].T.reshape(length, codes.shape[1])
    return turned
