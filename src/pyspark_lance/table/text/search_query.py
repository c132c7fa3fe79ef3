"""SearchQuery: a query whose words are tokens, with the statistics of its indices for scores.

The driver resolves it once, so that each task scores its rows independently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.index.inverted.segments import TextPartition
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.token_sets import FuzzyWord, token_numbers
from pyspark_lance.table.index.inverted.tokenizers import PLAIN, Tokenizer
from pyspark_lance.table.text.queries import (
    Boolean,
    Boost,
    Match,
    MultiMatch,
    Operator,
    Phrase,
    TextQuery,
)
from pyspark_lance.table.text.scoring import (
    ScoredRows,
    Statistics,
    highest_of,
    plus,
    sum_of,
    without,
)

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
    tokens = Tokenizer(options).tokenize_text(query.terms)
    # Tokens at one position, as all n-grams are, are alternatives, and count once.
    tokens = list(dict.fromkeys(tokens))
    places = list(dict.fromkeys(place for _, place in tokens))
    groups = tuple(places.index(place) for _, place in tokens)
    flat = Terms(tuple(token for token, _ in tokens), groups, len(places))
    indexed, positions, slop, needs_all, boost = flat, None, 0, True, 1.0
    if isinstance(query, Phrase):
        positions, slop = tuple(places), query.slop
    else:
        needs_all, boost = query.operator is Operator.AND, query.boost
        if query.fuzziness != 0:
            indexed = _expanded(query, partitions)
    statistics = _statistics(indexed.tokens, partitions)
    of_flat = statistics if flat is indexed else _statistics(flat.tokens, partitions)
    return Leaf(
        column, options, indexed, flat, needs_all, positions, slop, boost, statistics, of_flat
    )


def _expanded(query: Match, partitions: Sequence[TextPartition]) -> Terms:
    """The tokens of the index that are near to each word, in the order of words and bytes.

    As in Lance the words of the query pass no filter, and the limit is for all of them together.
    """
    words = [word for word, _ in Tokenizer(PLAIN).tokenize_text(query.terms)]
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
        numbers = token_numbers(partition.tokens, tokens)
        known = np.flatnonzero(numbers >= 0)
        if len(known):
            distinct, places = np.unique(numbers[known], return_inverse=True)
            containing[known] += partition.document_counts(distinct)[places]
    return Statistics(
        sum(partition.facts.num_documents for partition in partitions),
        sum(partition.facts.total_tokens for partition in partitions),
        tuple(containing.tolist()),
    )


def evaluate(query: TextQuery, leaves: Mapping[int, ScoredRows]) -> ScoredRows:
    """The rows of a query, given those of its leaves by their places in it."""
    found, used = _evaluate(query, leaves, 0)
    assert used == len(leaves)
    return found


def _evaluate(
    query: TextQuery, leaves: Mapping[int, ScoredRows], first: int
) -> tuple[ScoredRows, int]:
    """The rows of a part of a query, and the place of the first leaf behind it."""
    if isinstance(query, Match | Phrase):
        return leaves[first], first + 1
    if isinstance(query, MultiMatch):
        last = first + len(query.queries)
        return highest_of([leaves[place] for place in range(first, last)]), last
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
            hint="build the index again with with_position=true",
        )
