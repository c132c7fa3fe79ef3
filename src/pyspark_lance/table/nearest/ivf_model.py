"""IvfModel: the trained model of a vector index, and its encoder.

The rows of a partition are near its centroid. IVF_FLAT stores vectors, IVF_PQ the nearest codeword
of each sub-vector, IVF_SQ numbers quantized to 256 levels. All segments of an index share one
model, so that they can be merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.nearest.ivf_file import IvfKind
from pyspark_lance.table.nearest.k_means import Centres, k_means
from pyspark_lance.table.nearest.metric import Metric

CODEWORDS: Final = 256
_LEVELS: Final = 255
_ROWS_OF_BLOCK: Final = 4096
# Recall depends on the centroids; the many codebooks need only few iterations.
_GAIN_OF_CENTROIDS: Final = 1e-5
_GAIN_OF_CODEWORDS: Final = 1e-3

_Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class IvfShape:
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
    sample: _Floats, shape: IvfShape, sample_rate: int, rng: np.random.Generator
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
    """Encodes vectors by a model."""

    def __init__(self, model: IvfModel) -> None:
        self._model = model
        self._by_product = model.metric is Metric.DOT
        work = _work_dtype(model.centroids.dtype)
        self._centroids = Centres(model.centroids, work, by_product=self._by_product)
        books = () if model.codebook is None else model.codebook
        self._books = [Centres(book, work) for book in books]

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
    own, _ = Centres(centroids, rows.dtype).nearest(rows)
    return rows - centroids[own]
