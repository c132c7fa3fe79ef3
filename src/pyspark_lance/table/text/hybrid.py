"""Hybrid search: rows found by words and by a vector, ranked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.nearest.exact_search import FoundRows
from pyspark_lance.table.nearest.ivf_search import metric_and_segments
from pyspark_lance.table.nearest.search_plan import (
    NearestPlan,
    NearestRequest,
    SearchSize,
    VectorSearch,
    estimate_nearest,
    plan_nearest,
)
from pyspark_lance.table.nearest.search_plan import merge_matches as merge_nearest
from pyspark_lance.table.nearest.vectors import Queries, parse_queries, vector_column
from pyspark_lance.table.text.scoring import ScoredRows, best_rows, concat_rows
from pyspark_lance.table.text.search_plan import (
    SearchRequest,
    TextPlan,
    check_k,
    estimate_text_search,
    merge_matches,
    plan_search,
)
from pyspark_lance.table.version.snapshot import Snapshot

RECIPROCAL_RANKS: Final = "rrf"
# As in the paper that named it, and in Lance: first ranks count a little more than second ones.
_RANK_OFFSET: Final = 60
_HINT: Final = 'choose \'rrf\', or weights as in {"text": 0.3, "vector": 0.7}'


@dataclass(frozen=True, slots=True)
class Fusion:
    """Fusion of two rankings; without weights by reciprocal ranks."""

    weights: tuple[float, float] | None = None  # Of words, of the vector.

    @classmethod
    def parse(cls, given: object) -> Fusion:
        """Parse ``rrf``, or weights by the names ``text`` and ``vector``.

        Raises:
            InvalidInputError: It is neither.
        """
        if isinstance(given, str) and given.lower() == RECIPROCAL_RANKS:
            return cls()
        if isinstance(given, Mapping) and set(given) == {"text", "vector"}:
            text, vector = given["text"], given["vector"]
            if all(_is_weight(one) for one in (text, vector)) and text + vector > 0:
                return cls((float(text), float(vector)))
        raise InvalidInputError(f"rankings cannot be fused by {given!r}", hint=_HINT)


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < np.inf


@dataclass(frozen=True, slots=True)
class HybridRows:
    """Rows with a common score, the best first."""

    rows: ScoredRows
    text_score: NDArray[np.float32]  # NaN where the words were not found.
    distance: NDArray[np.float32]  # NaN where the vector is too far away.

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class HybridOptions:
    """Parameters of a search by words and a vector, besides the words."""

    vector: object  # One vector.
    k: int  # Rows to find.
    fusion: Fusion
    vector_column: str | None = None  # None for the only one.
    metric: str | None = None  # None for that of the index, or ``l2``.
    candidates: int = 100  # Rows of each search that are ranked together, at least ``k``.

    def __post_init__(self) -> None:
        """Refuse a number of rows that is none."""
        check_k(self.k)


@dataclass(frozen=True, slots=True)
class HybridPlan:
    """The plans of both searches."""

    text: TextPlan
    vector: NearestPlan
    queries: Queries  # One vector.
    fusion: Fusion
    k: int


def plan_hybrid(snapshot: Snapshot, words: SearchRequest, options: HybridOptions) -> HybridPlan:
    """Plan both searches; the filter and the columns are those of ``words``, but not its ``k``.

    Raises:
        InvalidInputError: There is not one vector.
    """
    column = vector_column(snapshot.schema, options.vector_column)
    metric, segments = metric_and_segments(snapshot, column, options.metric)
    queries, is_one = parse_queries(options.vector, column, metric)
    if not is_one:
        raise InvalidInputError("hybridSearch takes one vector", hint="call it for each")
    k = max(options.k, options.candidates)
    nearest = NearestRequest(
        column, metric, k, words.predicate, words.columns, words.system_columns, segments
    )
    return HybridPlan(
        plan_search(snapshot, replace(words, k=k)),
        plan_nearest(snapshot, nearest),
        queries,
        options.fusion,
        options.k,
    )


def estimate_hybrid_search(plan: HybridPlan) -> SearchSize:
    """Estimate the work of both searches."""
    return estimate_text_search(plan.text) + estimate_nearest(plan.vector, 1)


def search_both(plan: HybridPlan) -> HybridRows:
    """Run both searches; return the best rows of both."""
    words = merge_matches(plan.text.merge, [task.run() for task in plan.text.tasks])
    near = [VectorSearch(plan.vector.tasks, plan.queries).run()] if plan.vector.tasks else []
    vector = merge_nearest(plan.vector.merge, near, plan.queries)
    return fuse(words, vector, plan.fusion, plan.k)


def fuse(text: ScoredRows, vector: FoundRows, fusion: Fusion, k: int) -> HybridRows:
    """The ``k`` best rows of both; each comes in its order."""
    near = ScoredRows(vector.row_id, vector.address, vector.distance)
    if fusion.weights is None:
        parts = [_by_rank(text), _by_rank(near)]
    else:
        of_text, of_vector = fusion.weights
        parts = [
            _scale_scores(text, text.score, of_text),
            _scale_scores(near, -near.score, of_vector),
        ]
    every = concat_rows(parts)
    row_ids, firsts, indices = np.unique(every.row_id, return_index=True, return_inverse=True)
    scores = np.zeros(len(row_ids))
    np.add.at(scores, indices, every.score)
    best = best_rows(ScoredRows(row_ids, every.address[firsts], scores.astype(np.float32)), k)
    return HybridRows(best, _scores_in(text, best), _scores_in(near, best))


def _by_rank(found: ScoredRows) -> ScoredRows:
    ranks = np.arange(1, len(found) + 1)
    scores = (1 / (_RANK_OFFSET + ranks)).astype(np.float32)
    return ScoredRows(found.row_id, found.address, scores)


def _scale_scores(found: ScoredRows, scores: NDArray[np.float32], weight: float) -> ScoredRows:
    """Scores from 0 to 1, times a weight; 1 for all where they are equal."""
    if not len(found):
        return found
    least, span = scores.min(), np.ptp(scores)
    relative = (scores - least) / span if span > 0 else np.ones_like(scores)
    return ScoredRows(found.row_id, found.address, (weight * relative).astype(np.float32))


def _scores_in(found: ScoredRows, wanted: ScoredRows) -> NDArray[np.float32]:
    """The scores that rows have in a set, NaN for those that are not in it."""
    out = np.full(len(wanted), np.nan, np.float32)
    _, own, there = np.intersect1d(wanted.row_id, found.row_id, return_indices=True)
    out[own] = found.score[there]
    return out
