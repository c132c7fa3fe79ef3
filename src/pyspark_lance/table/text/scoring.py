"""Scores by BM25 as Lance computes them, in single precision, and sets of rows with scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_K1: Final = np.float32(1.2)
_B: Final = np.float32(0.75)
_ONE: Final = np.float32(1)
_HALF: Final = np.float32(0.5)
_QUANTIZED_BITS: Final = 4

_Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of all counted documents that scores depend on."""

    documents: int
    tokens: int
    containing: tuple[int, ...]  # Documents with each term of the query.

    def __add__(self, other: Statistics) -> Statistics:
        """Add the statistics of other documents."""
        containing = zip(self.containing, other.containing, strict=True)
        return Statistics(
            self.documents + other.documents,
            self.tokens + other.tokens,
            tuple(one + more for one, more in containing),
        )

    def weights(self) -> _Floats:
        """Return the inverse document frequency of each term."""
        containing = np.array(self.containing, np.float32)
        rest = np.float32(self.documents) - containing
        return np.log((rest + _HALF) / (containing + _HALF) + _ONE)

    @property
    def average(self) -> np.float32:
        """The average length of documents."""
        return np.float32(self.tokens) / np.float32(max(1, self.documents))

    def norms(self, lengths: NDArray[Any]) -> _Floats:
        """Return the length normalization of documents of these lengths."""
        relative = lengths.astype(np.float32) / self.average
        return _K1 * (_ONE - _B + _B * relative)


def term_scores(weight: np.float32, frequencies: NDArray[Any], norms: _Floats) -> _Floats:
    """Return the contribution of a term to the scores of documents."""
    counts = frequencies.astype(np.float32)
    return weight * ((_K1 + _ONE) * counts / (counts + norms))


def quantized(lengths: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Lengths cut to their leading four bits, as scores by blocks of 256 use them."""
    bits = np.frexp(lengths.astype(np.float64))[1]
    shifts = np.maximum(bits - _QUANTIZED_BITS, 0).astype(np.uint32)
    return lengths >> shifts << shifts


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Rows with scores, as arrays of one length; no row twice."""

    row_id: NDArray[np.uint64]
    address: NDArray[np.uint64]
    score: _Floats

    def __len__(self) -> int:
        return len(self.row_id)

    def at(self, chosen: NDArray[np.integer] | NDArray[np.bool_] | slice) -> ScoredRows:
        """Select some of the rows."""
        return ScoredRows(self.row_id[chosen], self.address[chosen], self.score[chosen])

    def times(self, boost: float) -> ScoredRows:
        """The rows with scores that are multiplied."""
        return ScoredRows(self.row_id, self.address, self.score * np.float32(boost))


NO_ROWS: Final = ScoredRows(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.float32))


def joined_rows(found: Sequence[ScoredRows]) -> ScoredRows:
    """Concatenate disjoint rows."""
    if len(found) == 1:
        return found[0]
    if not found:
        return NO_ROWS
    return ScoredRows(
        np.concatenate([one.row_id for one in found]),
        np.concatenate([one.address for one in found]),
        np.concatenate([one.score for one in found]),
    )


def best_rows(found: ScoredRows, k: int | None) -> ScoredRows:
    """The ``k`` rows of highest score, by score and row id; None for all.

    Of rows with equal scores those with the lowest row ids are taken, so that it does not matter in
    which parts a table was searched.
    """
    if k is not None and len(found) > k:
        least = np.partition(found.score, len(found) - k)[len(found) - k]
        found = found.at(found.score >= least)
    return found.at(np.lexsort((found.row_id, -found.score))[:k])


def sum_of(found: Sequence[ScoredRows], *, every: bool) -> ScoredRows:
    """Rows of one (``every``: of each) of some sets, with the sums of their scores."""
    rows = joined_rows(found)
    row_ids, firsts, places = np.unique(rows.row_id, return_index=True, return_inverse=True)
    scores = np.zeros(len(row_ids), np.float32)
    np.add.at(scores, places, rows.score)
    total = ScoredRows(row_ids, rows.address[firsts], scores)
    if not every:
        return total
    return total.at(np.bincount(places, minlength=len(row_ids)) == len(found))


def highest_of(found: Sequence[ScoredRows]) -> ScoredRows:
    """Rows of one of some sets, each with the highest of its scores."""
    rows = joined_rows(found)
    row_ids, firsts, places = np.unique(rows.row_id, return_index=True, return_inverse=True)
    scores = np.full(len(row_ids), -np.inf, np.float32)
    np.maximum.at(scores, places, rows.score)
    return ScoredRows(row_ids, rows.address[firsts], scores)


def plus(left: ScoredRows, right: ScoredRows, factor: float = 1.0) -> ScoredRows:
    """The rows of ``left``, with ``factor`` times the scores that ``right`` has for them."""
    order = np.argsort(right.row_id)
    known = right.row_id[order]
    places = np.searchsorted(known, left.row_id)
    inside = places < len(known)
    inside[inside] = known[places[inside]] == left.row_id[inside]
    scores = left.score.copy()
    scores[inside] += np.float32(factor) * right.score[order[places[inside]]]
    return ScoredRows(left.row_id, left.address, scores)


def without(left: ScoredRows, right: ScoredRows) -> ScoredRows:
    """The rows of ``left`` that are not in ``right``."""
    return left.at(~np.isin(left.row_id, right.row_id))
