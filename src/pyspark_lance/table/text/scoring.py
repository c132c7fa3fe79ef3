"""Scores by BM25 as Lance computes them, in single precision, and sets of rows with scores.

A ``SearchQuery`` has words as tokens, and the statistics of its indices for scores. The driver
resolves it once, so that each task scores its rows independently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.index.inverted.segments import TextPartition
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.token_sets import FuzzyWord
from pyspark_lance.table.index.inverted.tokenizers import PLAIN, shared_tokenizer
from pyspark_lance.table.text.queries import (
    Boolean,
    Boost,
    Match,
    MultiMatch,
    Operator,
    Phrase,
    TextQuery,
)

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


def quantize(lengths: NDArray[np.uint32]) -> NDArray[np.uint32]:
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


def concat_rows(found: Sequence[ScoredRows]) -> ScoredRows:
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
    rows = concat_rows(found)
    row_ids, firsts, indices = np.unique(rows.row_id, return_index=True, return_inverse=True)
    scores = np.zeros(len(row_ids), np.float32)
    np.add.at(scores, indices, rows.score)
    total = ScoredRows(row_ids, rows.address[firsts], scores)
    if not every:
        return total
    return total.at(np.bincount(indices, minlength=len(row_ids)) == len(found))


def highest_of(found: Sequence[ScoredRows]) -> ScoredRows:
    """Rows of one of some sets, each with the highest of its scores."""
    rows = concat_rows(found)
    row_ids, firsts, indices = np.unique(rows.row_id, return_index=True, return_inverse=True)
    scores = np.full(len(row_ids), -np.inf, np.float32)
    np.maximum.at(scores, indices, rows.score)
    return ScoredRows(row_ids, rows.address[firsts], scores)


def plus(left: ScoredRows, right: ScoredRows, factor: float = 1.0) -> ScoredRows:
    """The rows of ``left``, with ``factor`` times the scores that ``right`` has for them."""
    order = np.argsort(right.row_id)
    known = right.row_id[order]
    indices = np.searchsorted(known, left.row_id)
    inside = indices < len(known)
    inside[inside] = known[indices[inside]] == left.row_id[inside]
    scores = left.score.copy()
    scores[inside] += np.float32(factor) * right.score[order[indices[inside]]]
    return ScoredRows(left.row_id, left.address, scores)


def without(left: ScoredRows, right: ScoredRows) -> ScoredRows:
    """The rows of ``left`` that are not in ``right``."""
    return left.at(~np.isin(left.row_id, right.row_id))


# Up to how many bytes words are for no edit, and for one, where the query does not say.
_EXACT_BYTES: Final = 2
_ONE_EDIT_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class Terms:
    """Tokens to look for; one that comes twice counts twice."""

    tokens: tuple[str, ...]
    groups: tuple[
        int, ...
    ]  # Which word of the query each stands for; those of one are alternatives.
    num_groups: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be found."""
        return not self.tokens


@dataclass(frozen=True, slots=True)
class Leaf:
    """A match or a phrase in one column."""

    column: str
    options: TokenizerOptions  # How rows outside of the index become tokens.
    indexed: Terms  # Looked for in the index.
    flat: Terms  # Looked for in rows outside of it; differs for fuzzy queries.
    needs_all: bool  # Whether rows have all words.
    # Of a phrase the position of each word; None for no phrase.
    positions: tuple[int, ...] | None
    slop: int
    boost: float
    statistics: Statistics  # Of the index, by ``indexed.tokens``.
    flat_statistics: Statistics  # Of the index, by ``flat.tokens``.


def resolve(
    query: Match | Phrase,
    column: str,
    options: TokenizerOptions,
    partitions: Sequence[TextPartition],
) -> Leaf:
    """A leaf of a query; reads which of the tokens the partitions have."""
    tokens = shared_tokenizer(options).tokenize_text(query.terms)
    # Tokens at one position, as all n-grams are, are alternatives, and count once.
    tokens = list(dict.fromkeys(tokens))
    indices = list(dict.fromkeys(index for _, index in tokens))
    groups = tuple(indices.index(index) for _, index in tokens)
    flat = Terms(tuple(token for token, _ in tokens), groups, len(indices))
    indexed, positions, slop, needs_all, boost = flat, None, 0, True, 1.0
    if isinstance(query, Phrase):
        positions, slop = tuple(indices), query.slop
    else:
        needs_all, boost = query.operator is Operator.AND, query.boost
        if query.fuzziness != 0:
            indexed = _expand_words(query, partitions)
    statistics = _statistics(indexed.tokens, partitions)
    of_flat = statistics if flat is indexed else _statistics(flat.tokens, partitions)
    return Leaf(
        column, options, indexed, flat, needs_all, positions, slop, boost, statistics, of_flat
    )


def _expand_words(query: Match, partitions: Sequence[TextPartition]) -> Terms:
    """The tokens of the index that are near to each word, in the order of words and bytes.

    As in Lance the words of the query pass no filter, and the limit is for all of them together.
    """
    words = [word for word, _ in shared_tokenizer(PLAIN).tokenize_text(query.terms)]
    tokens: list[str] = []
    groups: list[int] = []
    for group, word in enumerate(words):
        edits = _edits_of(word) if query.fuzziness is None else query.fuzziness
        fuzzy = FuzzyWord(word, edits, word[: query.prefix_length])
        left = query.max_expansions - len(tokens)
        found: set[str] = set()
        for partition in partitions:
            for _, token in zip(range(left), partition.tokens.similar(fuzzy), strict=False):
                found.add(token)
        chosen = sorted(found, key=str.encode)[:left]
        tokens += chosen
        groups += [group] * len(chosen)
    return Terms(tuple(tokens), tuple(groups), len(words))


def _edits_of(word: str) -> int:
    size = len(word.encode())
    return 0 if size <= _EXACT_BYTES else 1 if size <= _ONE_EDIT_BYTES else 2


def _statistics(tokens: Sequence[str], partitions: Sequence[TextPartition]) -> Statistics:
    """Sum up all documents of the index: as in Lance, including deleted rows."""
    containing = np.zeros(len(tokens), np.int64)
    for partition in partitions:
        numbers = partition.token_numbers(tokens)
        known = np.flatnonzero(numbers >= 0)
        if len(known):
            distinct, indices = np.unique(numbers[known], return_inverse=True)
            containing[known] += partition.document_counts(distinct)[indices]
    return Statistics(
        sum(partition.facts.num_documents for partition in partitions),
        sum(partition.facts.total_tokens for partition in partitions),
        tuple(containing.tolist()),
    )


def evaluate(query: TextQuery, leaves: Mapping[int, ScoredRows]) -> ScoredRows:
    """The rows of a query, given those of its leaves by their index in it."""
    found, used = _evaluate(query, leaves, 0)
    assert used == len(leaves)
    return found


def _evaluate(
    query: TextQuery, leaves: Mapping[int, ScoredRows], first: int
) -> tuple[ScoredRows, int]:
    """The rows of a part of a query, and the index of the first leaf after it."""
    if isinstance(query, Match | Phrase):
        return leaves[first], first + 1
    if isinstance(query, MultiMatch):
        last = first + len(query.queries)
        return highest_of([leaves[index] for index in range(first, last)]), last
    if isinstance(query, Boost):
        positive, second = _evaluate(query.positive, leaves, first)
        negative, last = _evaluate(query.negative, leaves, second)
        return plus(positive, negative, -query.negative_boost), last
    return _boolean(query, leaves, first)


def _boolean(
    query: Boolean, leaves: Mapping[int, ScoredRows], first: int
) -> tuple[ScoredRows, int]:
    def several(parts: Sequence[TextQuery], first: int) -> tuple[list[ScoredRows], int]:
        found = []
        for part in parts:
            rows, first = _evaluate(part, leaves, first)
            found.append(rows)
        return found, first

    must, first = several(query.must, first)
    should, first = several(query.should, first)
    must_not, first = several(query.must_not, first)
    rows = sum_of(must, every=True) if must else sum_of(should, every=False)
    if must:
        for one in should:
            rows = plus(rows, one)
    for one in must_not:
        rows = without(rows, one)
    return rows, first


def check_phrase(leaf: Phrase, *, has_positions: bool) -> None:
    """Reject a phrase in an index that has no positions.

    Raises:
        InvalidInputError: It has none.
    """
    if not has_positions:
        raise InvalidInputError(
            f"the full-text index of {leaf.column!r} has no positions, which phrases need",
            hint="build the index again withPosition (in SQL with_position) = true",
        )
