"""K-means clustering, and search of the nearest centre."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Maximum products of rows and centres in memory.
_PRODUCTS: Final = 1 << 19
_MAX_ROUNDS: Final = 50
# Perturbation of the centres of a split group.
_APART: Final = 1 / 1024

_Floats = NDArray[np.floating[Any]]


class Centres:
    """Searches the nearest centre.

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
        group, loss = Centres(centres, sample.dtype, by_product=by_product).nearest(sample)
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
