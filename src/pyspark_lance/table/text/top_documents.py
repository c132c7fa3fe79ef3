"""The best documents of a partition for a query, found without decoding all of its postings.

The impacts of a block limit the scores in it. Blocks are searched in the order of these limits,
until no further block can have one of the best documents. A document is searched with the first
of its words, in the order of how much they can add to a score, so no document is found twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.table.index.inverted.posting_lists import DecodedPostings, PostingList, Postings
from pyspark_lance.table.index.inverted.segments import TextPartition
from pyspark_lance.table.nearest.live_rows import LiveRows
from pyspark_lance.table.text.scoring import (
    NO_ROWS,
    ScoredRows,
    Statistics,
    best_rows,
    concat_rows,
    quantize,
    term_scores,
)

_Numbers = NDArray[np.int64]
_Floats = NDArray[np.float32]
_QUANTIZED_BLOCKS: Final = 256
# Sums of the same scores in another order differ by less.
_SLACK: Final = np.float32(1 - 1e-5)
# Blocks without one of the words that documents need have a limit below its negative.
_MAX_FLOAT: Final = float(np.finfo(np.float32).max)
_FIRST_BLOCKS: Final = 4
_MAX_BLOCKS: Final = 1 << 12
_GROWTH: Final = 4
# Documents that are scored before all others, for each row that is wanted.
_PROBED_BY_ROW: Final = 4

KeepPhrase = Callable[[_Numbers], NDArray[np.bool_]]
"""Return which of some documents, ascending, have the words one behind the other."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredTerm:
    """A token to search."""

    postings: Postings
    weight: np.float32  # How much it counts, as often as the query has it.
    limits: _Floats  # Of the scores of the token in each block.
    highest: float

    @property
    def is_fast(self) -> bool:
        """Whether frequencies are found in an array of all documents."""
        return isinstance(self.postings, DecodedPostings) and self.postings.by_document is not None

    def limits_of(self, documents: _Numbers) -> _Floats:
        """Return the limits of the scores of the token in some documents, by their blocks."""
        blocks = self.postings.blocks_of(documents)
        return np.where(blocks < 0, 0, self.limits[blocks])


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Documents that may be among the best."""

    documents: _Numbers  # Ascending.
    norms: _Floats
    known: _Floats  # The sum of the scores of the tokens whose frequencies are known.
    frequencies: dict[int, NDArray[np.integer]]  # Of these tokens, by their numbers.
    assumed: dict[int, _Floats]  # Limits of the scores of other tokens, by their numbers.

    def __len__(self) -> int:
        return len(self.documents)

    def limits(self) -> _Floats:
        """Return the limits of their scores."""
        # Sums of what is left only: a difference would lose the digits of small scores.
        return sum(self.assumed.values(), self.known)

    def assume(self, term: ScoredTerm) -> _Candidates:
        """Add the limits of a token."""
        limits = term.limits_of(self.documents)
        return replace(self, assumed={**self.assumed, term.postings.number: limits})

    def look_up(self, term: ScoredTerm) -> _Candidates:
        """Find out how often they have a token."""
        number = term.postings.number
        often = term.postings.frequencies_in(self.documents)
        return replace(
            self,
            known=self.known + term_scores(term.weight, often, self.norms),
            frequencies={**self.frequencies, number: often},
            assumed={key: limits for key, limits in self.assumed.items() if key != number},
        )

    def at(self, chosen: NDArray[np.bool_]) -> _Candidates:
        """Select some of them."""
        places = np.flatnonzero(chosen)
        if len(places) == len(self):
            return self
        return _Candidates(
            self.documents[places],
            self.norms[places],
            self.known[places],
            {number: often[places] for number, often in self.frequencies.items()},
            {number: limits[places] for number, limits in self.assumed.items()},
        )


def scored_term(
    partition: TextPartition, postings: PostingList, weight: np.float32, statistics: Statistics
) -> ScoredTerm | None:
    """Return a token with the limits of its scores, None if these are not known."""
    impacts = postings.impacts
    if impacts is None:
        return None

    def limits_of_one() -> _Floats:
        norms = statistics.norms(impacts.lengths)
        scores = term_scores(np.float32(1), impacts.frequencies, norms)
        limits: _Floats = np.maximum.reduceat(scores, impacts.starts)
        return limits

    limits = partition.limits(postings, statistics.average, limits_of_one) * weight
    return ScoredTerm(partition.searchable(postings), weight, limits, float(limits.max(initial=0)))


class TopDocuments:
    """Search of the best ``k`` live rows of a partition.

    ``terms``: the distinct tokens; ``weights``: the number and the weight of each token of the
    query; ``needs_all``: whether documents have all of them.
    """

    def __init__(
        self,
        partition: TextPartition,
        terms: Sequence[ScoredTerm],
        weights: Sequence[tuple[int, np.float32]],
        statistics: Statistics,
        live: LiveRows,
        k: int,
        *,
        needs_all: bool,
        keep_phrase: KeepPhrase | None = None,
    ) -> None:
        self._partition, self._statistics, self._live, self._k = partition, statistics, live, k
        self._needs_all, self._keep_phrase = needs_all, keep_phrase
        self._weights = weights
        rank = (lambda one: one.postings.length) if needs_all else (lambda one: -one.highest)
        self._terms = sorted(terms, key=rank)
        self._found = NO_ROWS
        self._least = -np.inf

    def result(self) -> ScoredRows:
        """Return the best rows."""
        terms = self._terms
        for number, term in enumerate(terms[:1] if self._needs_all else terms):
            if sum(one.highest for one in terms[number:]) < self._least:
                break
            self._search(term, terms[:number], terms[number + 1 :])
        return self._found

    def _search(
        self, term: ScoredTerm, before: Sequence[ScoredTerm], after: Sequence[ScoredTerm]
    ) -> None:
        """Search the documents with ``term`` that have none of the tokens ``before``."""
        firsts = term.postings.firsts
        ends = np.append(firsts[1:], self._partition.facts.num_documents)
        limits = term.limits.copy()
        absent = np.float32(-np.inf if self._needs_all else 0)
        for other in after:
            limits += _limits_between(other, firsts, ends, absent)
        order = np.argsort(-limits, kind="stable")
        ranked = -limits[order]
        start, size = 0, _FIRST_BLOCKS
        while True:
            least = np.float32(min(-self._least, _MAX_FLOAT))
            most = int(np.searchsorted(ranked, least, "right"))
            end = min(start + size, most)
            if end <= start:
                return
            self._search_blocks(np.sort(order[start:end]), term, before, after)
            start, size = end, min(_GROWTH * size, _MAX_BLOCKS)

    def _search_blocks(
        self,
        blocks: _Numbers,
        term: ScoredTerm,
        before: Sequence[ScoredTerm],
        after: Sequence[ScoredTerm],
    ) -> None:
        documents, frequencies = term.postings.decode(blocks)
        for other in after if self._needs_all else ():
            if other.is_fast:
                places = np.flatnonzero(other.postings.frequencies_in(documents))
                documents, frequencies = documents[places], frequencies[places]
        norms = self._norms(documents)
        scores = term_scores(term.weight, frequencies, norms)
        some = _Candidates(documents, norms, scores, {term.postings.number: frequencies}, {})
        some = some.at(scores + np.float32(sum(one.highest for one in after)) >= self._least)
        if self._live.has_condition:
            _, is_live = self._live.addresses_of(self._partition.documents(some.documents).row_ids)
            some = some.at(is_live)
        frequent = [one for one in after if one.is_fast]
        rare = [one for one in after if not one.is_fast]
        most = sum(one.highest for one in after)
        for other in frequent:
            most -= other.highest
            some = self._look_up(some, other, most)
        for other in rare:
            some = some.assume(other)
        limits = some.limits()
        probed = _PROBED_BY_ROW * self._k
        if np.isinf(self._least) and len(some) > 2 * probed and self._keep_phrase is None:
            least = np.partition(limits, len(some) - probed)[len(some) - probed]
            is_probed = limits >= least
            self._score(some.at(is_probed), before, rare)
            some, limits = some.at(~is_probed), limits[~is_probed]
        self._score(some.at(limits >= self._least), before, rare)

    def _look_up(self, some: _Candidates, term: ScoredTerm, most: float) -> _Candidates:
        """Find out how often documents have a token; keep those that may be among the best.

        ``most``: that tokens may add whose limits are not assumed.
        """
        if not len(some):
            return some
        some = some.look_up(term)
        kept = some.limits() + np.float32(most) >= self._least
        return some.at(
            kept & (some.frequencies[term.postings.number] > 0) if self._needs_all else kept
        )

    def _score(
        self, some: _Candidates, before: Sequence[ScoredTerm], after: Sequence[ScoredTerm]
    ) -> None:
        """Add the best documents, of which the frequencies of the tokens ``after`` are unknown."""
        for other in after:
            some = self._look_up(some, other, 0)
        for other in before:
            if not len(some):
                return
            some = some.at(other.postings.frequencies_in(some.documents) == 0)
        if len(some) and self._keep_phrase is not None:
            some = some.at(self._keep_phrase(some.documents))
        if len(some):
            self._add(some)

    def _add(self, some: _Candidates) -> None:
        scores = np.zeros(len(some), np.float32)
        for number, weight in self._weights:
            if number in some.frequencies:
                scores += term_scores(weight, some.frequencies[number], some.norms)
        row_ids = self._partition.documents(some.documents).row_ids
        addresses, is_live = self._live.addresses_of(row_ids)
        found = ScoredRows(row_ids[is_live], addresses[is_live], scores[is_live])
        self._found = best_rows(concat_rows([self._found, found]), self._k)
        if len(self._found) == self._k:
            self._least = float(self._found.score[-1] * _SLACK)

    def _norms(self, documents: _Numbers) -> _Floats:
        return document_norms(
            self._partition, self._statistics, self._partition.document_lengths(documents)
        )


def document_norms(
    partition: TextPartition, statistics: Statistics, lengths: NDArray[np.uint32]
) -> _Floats:
    """Return the length normalization of documents of some lengths."""
    if partition.facts.postings.block_size == _QUANTIZED_BLOCKS:
        lengths = quantize(lengths)
    return statistics.norms(lengths)


def _limits_between(
    term: ScoredTerm, firsts: _Numbers, ends: _Numbers, absent: np.float32
) -> _Floats:
    """Return the highest limit of a token in each of some ranges of documents.

    ``absent``: that of ranges without a block.
    """
    own = term.postings.firsts
    first = np.maximum(np.searchsorted(own, firsts, "right") - 1, 0)
    last = np.searchsorted(own, ends)
    places = np.stack([first, np.maximum(last, first + 1)], axis=1).ravel()
    limits = np.append(term.limits, absent)
    highest = np.maximum.reduceat(limits, places)[::2]
    return np.where(last == 0, absent, highest)
