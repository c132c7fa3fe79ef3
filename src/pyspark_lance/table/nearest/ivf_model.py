"""IvfModel: train the model of a vector index, encode vectors, and write segments.

The rows of a partition are near its centroid. IVF_FLAT stores vectors, IVF_PQ the nearest codeword
of each sub-vector, IVF_SQ numbers quantized to 256 levels. All segments of an index share one
model, so that they can be merged.

A segment has two files: ``index.idx`` with the centroids, and ``auxiliary.idx`` with the rows,
partition by partition. Codes of IVF_PQ are stored in column-major order within each partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.plain_values import plain_array
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.nearest.ivf_file import (
    INDEX_FILE,
    INDEX_NAMES,
    ROWS_FILE,
    IvfKind,
    partitions_message,
    read_partitions,
    read_tensor,
    tensor,
)
from pyspark_lance.table.nearest.vectors import Metric
from pyspark_lance.table.version.table_files import TableFiles

# Maximum products of rows and centres in memory.
_PRODUCTS: Final = 1 << 19
_MAX_ROUNDS: Final = 50
# Perturbation of the centres of a split group.
_APART: Final = 1 / 1024

_Floats = NDArray[np.floating[Any]]


class Centroids:
    """Search of the nearest centroid.

    ``centres``: shape (k, d); ``work``: float32 or float64; ``by_product``: whether the nearest has
    the largest dot product instead of the least distance.
    """

    def __init__(self, centres: _Floats, work: np.dtype[Any], *, by_product: bool = False) -> None:
        count, width = centres.shape
        self._by_product = by_product
        own = centres.astype(np.float64)
        # Distances are translation invariant, and rounding errors are smaller near zero.
        self._middle = np.zeros(width, work) if by_product else own.mean(axis=0).astype(work)
        own -= self._middle
        factors = np.empty((width + 1, count), np.float64)
        factors[:-1] = -own.T if by_product else -2 * own.T
        factors[-1] = 0 if by_product else np.einsum("ij,ij->i", own, own)
        self._factors = factors.astype(work)
        self._step = max(64, _PRODUCTS // count)
        self._rows = np.empty((self._step, width + 1), work)
        self._products = np.empty((self._step, count), work)

    def nearest(self, rows: _Floats) -> tuple[NDArray[np.intp], float]:
        """Return the nearest centre of each row, and the sum of distances or negated products.

        ``rows``: shape (n, d).
        """
        found, total = np.empty(len(rows), np.intp), 0.0
        for first in range(0, len(rows), self._step):
            part = rows[first : first + self._step]
            block, products = self._rows[: len(part)], self._products[: len(part)]
            np.subtract(part, self._middle, out=block[:, :-1], casting="same_kind")
            block[:, -1] = 1
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(block, self._factors, out=products)
            own = products.argmin(axis=1)
            found[first : first + len(part)] = own
            total += float(products[np.arange(len(part)), own].sum(dtype=np.float64))
            if not self._by_product:
                moved = block[:, :-1]
                total += float(np.einsum("ij,ij->i", moved, moved).sum(dtype=np.float64))
        return found, total


def k_means(
    sample: _Floats,
    count: int,
    rng: np.random.Generator,
    *,
    least_gain: float,
    by_product: bool = False,
) -> _Floats:
    """Compute the centres of clusters of vectors.

    ``sample``: shape (n, d) of float32 or float64; n at least 1. ``count``: number of centres; if
    there are fewer rows, centres repeat. ``rng``: chooses initial centres; ``least_gain``: minimum
    relative gain of an iteration to continue. ``by_product``: cluster by direction, with centres of
    length 1. The result has shape (count, d) and the type of the sample.
    """
    chosen = rng.permutation(len(sample))[:count]
    centres = sample[np.resize(chosen, count)]
    if by_product:
        centres = _directions(centres)
    if len(sample) <= count:
        return centres
    by_column = np.ascontiguousarray(sample.T)
    last: float | None = None
    for _ in range(_MAX_ROUNDS):
        group, loss = Centroids(centres, sample.dtype, by_product=by_product).nearest(sample)
        centres = _means(by_column, group, centres)
        if by_product:
            centres = _directions(centres)
        if last is not None and last - loss <= least_gain * abs(last):
            break
        last = loss
    return centres


def _means(by_column: _Floats, group: NDArray[np.intp], centres: _Floats) -> _Floats:
    """Return the means of groups; an empty group takes half of a large one."""
    count = len(centres)
    sizes = np.bincount(group, minlength=count)
    sums = np.stack([np.bincount(group, column, minlength=count) for column in by_column], axis=1)
    means = (sums / np.maximum(sizes, 1)[:, None]).astype(by_column.dtype)
    empty = np.flatnonzero(sizes == 0)
    large = np.argsort(-sizes, kind="stable")[: len(empty)]
    means[empty] = means[large] * (1 + _APART)
    means[large] *= 1 - _APART
    return means


def _directions(vectors: _Floats) -> _Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


CODEWORDS: Final = 256
_LEVELS: Final = 255
_ROWS_OF_BLOCK: Final = 4096
# Recall depends on the centroids; the many codebooks need only few iterations.
_GAIN_OF_CENTROIDS: Final = 1e-5
_GAIN_OF_CODEWORDS: Final = 1e-3


@dataclass(frozen=True, slots=True)
class IvfParameters:
    """The parameters of an index.

    ``num_sub_vectors``: PQ only: number of sub-vectors, a divisor of the width.
    """

    kind: IvfKind
    metric: Metric
    num_partitions: int
    num_sub_vectors: int | None = None

    def __post_init__(self) -> None:
        """Reject plain values."""
        check_enum(self.kind, IvfKind)
        check_enum(self.metric, Metric)


@dataclass(frozen=True, slots=True)
class IvfModel:
    """A trained model."""

    kind: IvfKind
    metric: Metric
    centroids: _Floats  # Shape (partitions, d), of the type of the column.
    # PQ only: shape (parts, codewords, d / parts), of the type of the column.
    codebook: _Floats | None = None
    bounds: tuple[float, float] | None = None  # SQ only: minimum and maximum.

    def __post_init__(self) -> None:
        """Reject plain values."""
        check_enum(self.kind, IvfKind)
        check_enum(self.metric, Metric)

    @property
    def num_partitions(self) -> int:
        """Number of partitions."""
        return len(self.centroids)

    @property
    def code_width(self) -> int:
        """Stored numbers of each row."""
        if self.codebook is None:
            return int(self.centroids.shape[1])
        parts, words, _ = self.codebook.shape
        return parts if words == CODEWORDS else parts // 2

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers."""
        return self.centroids.dtype if self.kind is IvfKind.FLAT else np.dtype(np.uint8)


def can_be_indexed(vectors: _Floats, metric: Metric) -> NDArray[np.bool_]:
    """Return which vectors can be indexed, as in Lance: finite, and nonzero for cosine.

    ``vectors``: shape (n, d).
    """
    sound = np.asarray(np.isfinite(vectors).all(axis=1))
    if metric is Metric.COSINE:
        sound &= vectors.any(axis=1)
    return sound


def train_model(
    sample: _Floats, shape: IvfParameters, sample_rate: int, rng: np.random.Generator
) -> IvfModel:
    """Train a model on vectors that can be indexed.

    ``sample``: shape (n, d), of the type of the column; n at least 1. ``shape``: parameters of the
    index; partitions are limited to the number of vectors. ``sample_rate``: maximum vectors for
    each centroid and each codeword.
    """
    if not len(sample):
        raise InvalidInputError(
            "the column has no vector that can be indexed",
            hint="vectors that are NULL, or have NaN or infinite numbers, are not indexed",
        )
    rows = _work(sample, shape.metric)
    count = min(shape.num_partitions, len(rows))
    some = _sample_rows(rows, sample_rate * count, rng)
    by_product = shape.metric is Metric.DOT
    centroids = k_means(some, count, rng, least_gain=_GAIN_OF_CENTROIDS, by_product=by_product)
    centroids = centroids.astype(sample.dtype)
    if shape.kind is IvfKind.PQ:
        assert shape.num_sub_vectors is not None
        some = _sample_rows(rows, sample_rate * CODEWORDS, rng)
        parts = _residuals(some, centroids, shape.metric)
        books = [
            k_means(np.ascontiguousarray(part), CODEWORDS, rng, least_gain=_GAIN_OF_CODEWORDS)
            for part in np.split(parts, shape.num_sub_vectors, axis=1)
        ]
        codebook = np.stack(books).astype(sample.dtype)
        return IvfModel(shape.kind, shape.metric, centroids, codebook=codebook)
    if shape.kind is IvfKind.SQ:
        low, high = float(rows.min()), float(rows.max())
        high = high if high > low else low + max(1.0, abs(low))
        return IvfModel(shape.kind, shape.metric, centroids, bounds=(low, high))
    return IvfModel(shape.kind, shape.metric, centroids)


class Encoder:
    """Encoder of vectors by a model."""

    def __init__(self, model: IvfModel) -> None:
        self._model = model
        self._by_product = model.metric is Metric.DOT
        work = _work_dtype(model.centroids.dtype)
        self._centroids = Centroids(model.centroids, work, by_product=self._by_product)
        books = () if model.codebook is None else model.codebook
        self._books = [Centroids(book, work) for book in books]

    def encode(self, vectors: _Floats) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """Return the partition and the code of each vector.

        ``vectors``: shape (n, d), which can be indexed. The results have shape (n,), and shape (n,
        code_width) in row-major order.
        """
        model = self._model
        partitions = np.empty(len(vectors), np.int32)
        codes = np.empty((len(vectors), model.code_width), model.code_dtype)
        for first in range(0, len(vectors), _ROWS_OF_BLOCK):
            part = slice(first, first + _ROWS_OF_BLOCK)
            rows = _work(vectors[part], model.metric)
            own, _ = self._centroids.nearest(rows)
            partitions[part] = own
            if model.kind is IvfKind.FLAT:
                codes[part] = rows
            elif model.kind is IvfKind.SQ:
                codes[part] = self._levels(rows)
            else:
                codes[part] = self._words(rows, own)
        return partitions, codes

    def _levels(self, rows: _Floats) -> NDArray[np.float64]:
        assert self._model.bounds is not None
        low, high = self._model.bounds
        return np.clip((rows.astype(np.float64) - low) * (_LEVELS / (high - low)), 0, _LEVELS)

    def _words(self, rows: _Floats, partitions: NDArray[np.intp]) -> NDArray[np.uint8]:
        if not self._by_product:
            rows = rows - self._model.centroids[partitions]
        width = rows.shape[1] // len(self._books)
        words = np.empty((len(rows), len(self._books)), np.uint8)
        for number, book in enumerate(self._books):
            words[:, number], _ = book.nearest(rows[:, number * width : (number + 1) * width])
        if self._model.code_width == len(self._books):
            return words
        # Two codes of 4 bits in a byte, the lower half first.
        return np.bitwise_or(words[:, ::2], words[:, 1::2] << np.uint8(4))


def _work_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _work(vectors: _Floats, metric: Metric) -> _Floats:
    """Normalize vectors for comparisons with centroids."""
    rows = vectors.astype(_work_dtype(vectors.dtype), copy=False)
    if metric is not Metric.COSINE:
        return rows
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return (rows / lengths[:, None]).astype(rows.dtype)


def _sample_rows(rows: _Floats, count: int, rng: np.random.Generator) -> _Floats:
    """Return a random sample of rows, or all if there are fewer."""
    if len(rows) <= count:
        return rows
    return rows[np.sort(rng.permutation(len(rows))[:count])]


def _residuals(rows: _Floats, centroids: _Floats, metric: Metric) -> _Floats:
    """Return the residuals that codes represent."""
    if metric is Metric.DOT:
        return rows
    own, _ = Centroids(centroids, rows.dtype).nearest(rows)
    return rows - centroids[own]


ROW_ID: Final = "_rowid"
# The oldest file version that both pylance and this package support for these files.
_FILE_VERSION: Final = "2.1"
# Numbers of global buffers; the first is the schema of the file.
_FIRST, _SECOND = 1, 2
_CODE_BITS: Final = {16: 4, CODEWORDS: 8}


def rows_schema(model: IvfModel, *, metadata: dict[str, str] | None = None) -> LanceSchema:
    """Return the schema of ``auxiliary.idx``."""
    item = pa.from_numpy_dtype(model.code_dtype)
    columns = pa.schema(
        [
            pa.field("row", pa.uint64()),
            pa.field(
                str(model.kind),
                pa.list_(item, model.code_width),
                nullable=model.kind is not IvfKind.FLAT,
            ),
        ]
    )
    encoded = {name: value.encode() for name, value in (metadata or {}).items()}
    schema = LanceSchema.from_arrow(columns)
    # Table schemas reject this column name.
    row_id = replace(schema.fields[0], name=ROW_ID)
    return LanceSchema(fields=(row_id, *schema.fields[1:]), metadata=encoded)


def rows_batch(model: IvfModel, row_ids: NDArray[np.uint64], codes: NDArray[Any]) -> pa.RecordBatch:
    """Return a batch of rows for ``auxiliary.idx``.

    ``row_ids``: shape (n,); ``codes``: shape (n, code_width), in the order of the file.
    """
    lists = pa.FixedSizeListArray.from_arrays(plain_array(codes.reshape(-1)), model.code_width)
    return pa.RecordBatch.from_arrays(
        [plain_array(row_ids), lists], names=[ROW_ID, str(model.kind)]
    )


def write_index_file(store: ObjectStore, uuid: UUID, model: IvfModel) -> int:
    """Write ``index.idx``; return its length in bytes."""
    count = model.num_partitions
    about = {"type": INDEX_NAMES[model.kind], "distance_type": str(model.metric)}
    metadata = {
        "lance:index": json.dumps(about),
        "lance:ivf": str(_FIRST),
        "lance:flat": json.dumps([""] * count),
    }
    marker = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])
    encoded = {name: value.encode() for name, value in metadata.items()}
    schema = replace(LanceSchema.from_arrow(marker), metadata=encoded)
    none = np.zeros(count, np.int64)
    buffers = [partitions_message(none, model.centroids)]
    return _write(store, index_path(uuid, INDEX_FILE), schema, buffers, ())


def write_rows_file(
    store: ObjectStore,
    uuid: UUID,
    model: IvfModel,
    lengths: NDArray[np.int64],
    batches: Iterable[pa.RecordBatch],
) -> int:
    """Write ``auxiliary.idx``; return its length in bytes.

    ``lengths``: rows of each partition.
    """
    buffers = [partitions_message(lengths)]
    if model.codebook is not None:
        buffers.append(tensor(model.codebook.reshape(model.codebook.shape[1], -1)))
    metadata = {
        "distance_type": str(model.metric),
        "lance:ivf": str(_FIRST),
        "storage_metadata": json.dumps([json.dumps(_storage(model))]),
    }
    schema = rows_schema(model, metadata=metadata)
    return _write(store, index_path(uuid, ROWS_FILE), schema, buffers, batches)


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """The location of a segment with the model; it may have no rows."""

    uuid: UUID
    base_id: int | None = None  # Base path of the segment; None for the table itself.


def read_model(files: TableFiles, location: ModelLocation) -> IvfModel:
    """Read the model of a segment exactly."""
    store, path = files.locate_index(location.base_id, index_path(location.uuid, INDEX_FILE))
    index = DataFileReader.open(store, path)
    rows = DataFileReader.open(store, f"{path.removesuffix(INDEX_FILE)}{ROWS_FILE}")
    try:
        return _model(index, rows)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise CorruptFileError(
            f"the metadata of a vector index cannot be read: {error!r}", f"{store.uri}/{path}"
        ) from error


def _model(index: DataFileReader, rows: DataFileReader) -> IvfModel:
    of_index, of_rows = index.schema.metadata, rows.schema.metadata
    about = json.loads(of_index["lance:index"])
    kinds = {name: kind for kind, name in INDEX_NAMES.items()}
    kind = kinds.get(about["type"])
    if kind is None or about["distance_type"] not in list(Metric):
        raise UnsupportedFeatureError(f"rows cannot be added to a vector index {about}")
    _, _, centroids = read_partitions(bytes(index.global_buffer(int(of_index["lance:ivf"]))))
    if centroids is None:
        raise ValueError("no centroids")
    storage = json.loads(json.loads(of_rows["storage_metadata"])[0])
    metric = Metric(of_rows["distance_type"].decode())
    if kind is IvfKind.SQ:
        bounds = float(storage["bounds"]["start"]), float(storage["bounds"]["end"])
        return IvfModel(kind, metric, centroids, bounds=bounds)
    if kind is IvfKind.PQ:
        if storage["nbits"] not in _CODE_BITS.values():
            raise UnsupportedFeatureError(
                "vector indices with codes of other than 8 bits cannot be extended"
            )
        book = read_tensor(bytes(rows.global_buffer(int(storage["codebook_position"]))))
        parts, words = int(storage["num_sub_vectors"]), 1 << int(storage["nbits"])
        return IvfModel(kind, metric, centroids, codebook=book.reshape(parts, words, -1))
    return IvfModel(kind, metric, centroids)


def _storage(model: IvfModel) -> dict[str, object]:
    width = int(model.centroids.shape[1])
    if model.codebook is not None:
        return {
            "codebook_position": _SECOND,
            "nbits": _CODE_BITS[model.codebook.shape[1]],
            "num_sub_vectors": len(model.codebook),
            "dimension": width,
            "codebook_tensor": [],
            "transposed": True,
        }
    if model.bounds is not None:
        start, end = model.bounds
        return {"dim": width, "num_bits": 8, "bounds": {"start": start, "end": end}}
    return {"dim": width}


def _write(
    store: ObjectStore,
    path: str,
    schema: LanceSchema,
    buffers: Iterable[bytes],
    batches: Iterable[pa.RecordBatch],
) -> int:
    writer = DataFileWriter(store, path, schema, version=_FILE_VERSION)
    try:
        for buffer in buffers:
            writer.write_global_buffer(buffer)
        for batch in batches:
            writer.write(batch)
        return writer.finish().size_bytes
    except BaseException:
        writer.abort()
        raise
