"""Full-text search on executors: of a segment of an index, and of rows without one.

Texts of rows that no index covers are read and tokenized. Their scores depend on how many of all
such rows have a word, so tasks count words, and scores are computed last.

The best documents of a partition are found without decoding all of its postings. The impacts of a
block limit the scores in it. Blocks are searched in the order of these limits, until no further
block can have one of the best documents. A document is searched with the first of its words, in the
order of how much they can add to a score, so no document is found twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.table.index.inverted.posting_lists import (
    DecodedPostings,
    DensePostings,
    PostingList,
    Postings,
    is_very_frequent,
)
from pyspark_lance.table.index.inverted.segments import TextPartition, TextSegment
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer, Tokens
from pyspark_lance.table.nearest.live_rows import LiveRows, MatchingScan
from pyspark_lance.table.scan.column_paths import values_at
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.text.scoring import (
    NO_ROWS,
    Leaf,
    ScoredRows,
    Statistics,
    Terms,
    best_rows,
    concat_rows,
    quantize,
    term_scores,
)
from pyspark_lance.table.version.table_files import TableFiles

_Numbers = NDArray[np.int64]
Pairs = tuple[_Numbers, _Numbers]
"""Documents and positions in them, ascending as pairs."""
# Postings that are scored faster all at once than block by block.
_SMALL_POSTING_COUNT: Final = 1 << 13
# Rows to look up for each row that is wanted, as some are deleted; so many times more at each try.
_CANDIDATES_BY_ROW: Final = 8
_POSITION_BITS: Final = 32
_POSITION: Final = (1 << _POSITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class TextSegmentTask:
    """A segment of a full-text index to search."""

    segment: TextSegment
    files: TableFiles
    # Those that it answers for, with their row ids if these are stable.
    fragments: tuple[Fragment, ...]
    stable_row_ids: bool  # Whether the table has stable row ids.
    leaves: tuple[tuple[int, Leaf], ...]  # Of the column, with their indices in the query.
    k: int | None  # How many rows of each leaf are enough; None for all.
    # A scan of the fragments for the addresses of rows that count; None for all rows.
    matching: MatchingScan | None = None

    @property
    def num_rows(self) -> int:
        """Rows to look at, at most."""
        return sum(facts.num_documents for facts in self.segment.partitions)

    def run(self) -> TextMatches:
        """Find the rows of each leaf, with scores."""
        live = LiveRows(
            self.files, self.fragments, stable_row_ids=self.stable_row_ids, matching=self.matching
        )
        found: dict[int, list[ScoredRows]] = {index: [] for index, _ in self.leaves}
        for partition in self.segment.open_partitions(self.files):
            for index, leaf in self.leaves:
                rows = _LeafSearch(partition, leaf).found(live, self.k)
                found[index].append(rows if self.k is None else best_rows(rows, self.k))
        return TextMatches({index: concat_rows(parts) for index, parts in found.items()}, {})


class _LeafSearch:
    """A leaf of a query in one partition."""

    def __init__(self, partition: TextPartition, leaf: Leaf) -> None:
        self._partition, self._leaf = partition, leaf

    def found(self, live: LiveRows, k: int | None) -> ScoredRows:
        """The rows with their scores; at least the best ``k``, None for all."""
        terms = self._leaf.indexed
        if terms.is_empty:
            return NO_ROWS
        numbers = self._partition.token_numbers(terms.tokens)
        if self._leaf.needs_all and len(_groups_of(terms, numbers >= 0)) < terms.num_groups:
            return NO_ROWS
        distinct = np.unique(numbers[numbers >= 0])
        if not len(distinct):
            return NO_ROWS
        # By a negative boost the lowest scores are the best.
        most = k if self._leaf.boost > 0 else None
        top = None if most is None else self._top_documents(numbers, distinct, live, most)
        rows = self._all_rows(numbers, distinct, live, most) if top is None else top.result()
        return rows if self._leaf.boost == 1 else rows.times(self._leaf.boost)

    def _top_documents(
        self, numbers: _Numbers, distinct: _Numbers, live: LiveRows, k: int
    ) -> TopDocuments | None:
        """A search of the best documents alone; None if all have to be scored."""
        leaf, partition = self._leaf, self._partition
        # Intersections are faster over whole lists, unless the positions of each document follow.
        is_intersection = leaf.needs_all and leaf.positions is None and len(distinct) > 1
        has_alternatives = leaf.needs_all and leaf.indexed.num_groups < len(numbers)
        counts = partition.document_counts(distinct)
        if is_intersection or has_alternatives or counts.sum() <= _SMALL_POSTING_COUNT:
            return None
        weights = leaf.statistics.weights()
        terms = []
        for postings in partition.posting_lists(distinct):
            weight = weights[numbers == postings.number].sum(dtype=np.float32)
            term = scored_term(partition, postings, weight, leaf.statistics)
            if term is None or weight <= 0:
                return None
            terms.append(term)
        lists = {one.postings.number: one.postings for one in terms}

        def keep_phrase(documents: _Numbers) -> NDArray[np.bool_]:
            own = [lists[number] for number in numbers.tolist()]
            return np.isin(documents, self._with_phrase(own, documents), assume_unique=True)

        return TopDocuments(
            partition,
            terms,
            list(zip(numbers.tolist(), weights, strict=True)),
            leaf.statistics,
            live,
            k,
            needs_all=leaf.needs_all,
            keep_phrase=None if leaf.positions is None else keep_phrase,
        )

    def _all_rows(
        self, numbers: _Numbers, distinct: _Numbers, live: LiveRows, k: int | None
    ) -> ScoredRows:
        postings = {one.number: one for one in self._partition.postings(distinct)}
        by_term = [postings.get(number) for number in numbers.tolist()]
        candidates = self._candidates(by_term)
        if self._leaf.positions is not None:
            candidates = self._with_phrase(by_term, candidates)
        if not len(candidates):
            return NO_ROWS
        scores = self._scores(by_term, candidates, self._partition.document_lengths(candidates))

        def row_ids_of(chosen: _Numbers) -> NDArray[np.uint64]:
            return self._partition.row_ids(candidates[chosen])

        return _live_rows(live, row_ids_of, scores, k)

    def _candidates(self, by_term: Sequence[DecodedPostings | None]) -> _Numbers:
        """The documents with one of the words, or with all; ascending."""
        groups: dict[int, list[DecodedPostings]] = {}
        for group, posting in zip(self._leaf.indexed.groups, by_term, strict=True):
            if posting is not None:
                groups.setdefault(group, []).append(posting)
        size = self._partition.facts.num_documents
        if not self._leaf.needs_all:
            return _union([one for postings in groups.values() for one in postings], size)
        first, *others = sorted(groups.values(), key=_num_postings)
        if is_very_frequent(_num_postings(first), size):
            mask = _documents_in(first, size)
            for alternatives in others:
                mask &= _documents_in(alternatives, size)
            return np.flatnonzero(mask)
        found = _union(first, size)
        for alternatives in others:
            has_word = alternatives[0].frequencies_in(found) > 0
            for posting in alternatives[1:]:
                has_word |= posting.frequencies_in(found) > 0
            found = found[has_word]
        return found

    def _scores(
        self,
        by_term: Sequence[DecodedPostings | None],
        documents: _Numbers,
        lengths: NDArray[np.uint32],
    ) -> NDArray[np.float32]:
        statistics = self._leaf.statistics
        norms = document_norms(self._partition, statistics, lengths)
        scores = np.zeros(len(documents), np.float32)
        for weight, posting in zip(statistics.weights(), by_term, strict=True):
            if posting is not None:
                # A word that a document does not have adds 0.
                scores += term_scores(weight, posting.frequencies_in(documents), norms)
        return scores

    def _with_phrase(self, by_term: Sequence[Postings | None], candidates: _Numbers) -> _Numbers:
        """The candidates that have the consecutive words."""
        leaf = self._leaf
        assert leaf.positions is not None
        if not len(candidates):
            return candidates
        known: dict[int, Pairs] = {}
        words: list[list[Pairs]] = [[] for _ in leaf.positions]
        for group, posting in zip(leaf.indexed.groups, by_term, strict=True):
            if posting is None:
                continue
            if posting.number not in known:
                known[posting.number] = self._partition.positions(posting, candidates)
            words[group].append(known[posting.number])
        return documents_with_phrase(words, leaf.positions, leaf.slop)


def _live_rows(
    live: LiveRows,
    row_ids_of: Callable[[_Numbers], NDArray[np.uint64]],
    scores: NDArray[np.float32],
    k: int | None,
) -> ScoredRows:
    """Return the live rows with their scores; at least the best ``k``, None for all.

    Rows are looked up the best first, until enough of them are live. ``row_ids_of``: by the indices
    of scores.
    """
    most = len(scores) if k is None else min(len(scores), _CANDIDATES_BY_ROW * k)
    while True:
        chosen = np.arange(len(scores))
        if most < len(scores):
            least = np.partition(scores, len(scores) - most)[len(scores) - most]
            chosen = np.flatnonzero(scores >= least)
        row_ids = row_ids_of(chosen)
        addresses, is_live = live.addresses_of(row_ids)
        if most == len(scores) or np.count_nonzero(is_live) >= (k or 0):
            return ScoredRows(row_ids[is_live], addresses[is_live], scores[chosen[is_live]])
        most = min(len(scores), most * _CANDIDATES_BY_ROW)


def documents_with_phrase(
    words: Sequence[Sequence[Pairs]], positions: Sequence[int], slop: int
) -> _Numbers:
    """The documents that have consecutive words; ascending.

    ``words``: of the tokens of each word the documents and the positions there; ``positions``: of
    the words in the phrase; ``slop``: how many more may be between two.
    """
    before = _order_positions(words[0])
    for word in range(1, len(words)):
        gap = positions[word] - positions[word - 1]
        keys = _order_positions(words[word])
        found_at = keys & _POSITION
        if slop == 0:
            # A key of the word before, in the same document if the position is not negative.
            wanted = keys - gap
            found = np.minimum(np.searchsorted(before, wanted), len(before) - 1)
            is_behind = before[found] == wanted if len(before) else np.zeros(len(keys), np.bool_)
            before = keys[is_behind & (found_at >= gap)]
            continue
        own = keys & ~_POSITION
        # Where the word before may be: between these two, and in the same document.
        first = np.searchsorted(before, own | np.maximum(found_at - gap - slop, 0))
        last = np.searchsorted(before, own | np.maximum(found_at - gap, 0), "right")
        before = keys[(last > first) & (found_at >= gap)]
    return np.unique(before >> _POSITION_BITS)


def _order_positions(tokens: Sequence[Pairs]) -> _Numbers:
    """Combine documents and positions into single numbers, ascending."""
    keys = [documents << _POSITION_BITS | positions for documents, positions in tokens]
    return keys[0] if len(keys) == 1 else np.unique(np.concatenate(keys))


def _groups_of(terms: Terms, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.unique(np.array(terms.groups, np.int64)[chosen])


def _num_postings(postings: Sequence[DecodedPostings]) -> int:
    return sum(posting.length for posting in postings)


def _union(postings: Sequence[DecodedPostings], size: int) -> _Numbers:
    """The documents of some tokens, ascending."""
    distinct = list({posting.number: posting for posting in postings}.values())
    if len(distinct) == 1:
        return distinct[0].all_documents()
    return np.flatnonzero(_documents_in(distinct, size))


def _documents_in(postings: Sequence[DecodedPostings], size: int) -> NDArray[np.bool_]:
    """Return which documents have one of some tokens; ``size``: of the partition."""
    mask = postings[0].documents_in(size)
    for posting in postings[1:]:
        mask |= posting.documents_in(size)
    return mask


# So many rows are held before those that cannot be among the best are dropped.
_MAX_WAITING: Final = 1 << 18
# From more leaves on, the tokens of a batch are sorted.
_FEW_LEAVES: Final = 8


@dataclass(frozen=True, slots=True)
class TextMatches:
    """Results of some tasks, by the index of leaves in the query."""

    covered: dict[int, ScoredRows]
    counted: dict[int, CountedRows]

    def of_leaves(self, first: int, count: int) -> TextMatches:
        """Select the results of some leaves, whose indices then begin with 0."""
        indices = range(first, first + count)
        return TextMatches(
            {index - first: self.covered[index] for index in indices if index in self.covered},
            {index - first: self.counted[index] for index in indices if index in self.counted},
        )


@dataclass(frozen=True, slots=True)
class TextScanTask:
    """Some rows of a column that no index covers."""

    scan: ScanTask  # Reads their texts, row ids and addresses.
    column: tuple[str, ...]  # The column, and the struct fields that lead to its texts.
    leaves: tuple[tuple[int, Leaf], ...]  # Of the column, with their indices in the query.
    k: int | None  # How many rows of each leaf are enough; None for all.

    @property
    def num_rows(self) -> int:
        """Rows to read."""
        return self.scan.num_rows

    def run(self) -> TextMatches:
        """Find the rows of each leaf, without scores."""
        tokenizers = {leaf.options: Tokenizer(leaf.options) for _, leaf in self.leaves}
        most = _MAX_WAITING // max(1, len(self.leaves))
        waiting: dict[int, list[CountedRows]] = {
            index: [_nothing(_distinct(leaf))] for index, leaf in self.leaves
        }
        for batch in self.scan.run():
            names = batch.schema.names
            texts = values_at(batch, self.column)
            row_ids = plain_numbers(batch.column(names.index(ROW_ID)))
            addresses = plain_numbers(batch.column(names.index(ROW_ADDRESS)))
            found = {
                options: _BatchTokens(one.tokenize(texts), batch.num_rows, len(self.leaves))
                for options, one in tokenizers.items()
            }
            rows = ScoredRows(row_ids, addresses, np.zeros(len(row_ids), np.float32))
            for index, leaf in self.leaves:
                waiting[index].append(_count_rows(leaf, found[leaf.options], rows))
                if self.k is not None and sum(len(one.rows) for one in waiting[index]) > most:
                    waiting[index] = [_not_dominated(concat_counts(waiting[index]), self.k)]
        joined = {index: concat_counts(parts) for index, parts in waiting.items()}
        if self.k is not None:
            joined = {index: _not_dominated(one, self.k) for index, one in joined.items()}
        return TextMatches({}, joined)


@dataclass(frozen=True, slots=True)
class CountedRows:
    """Rows that a leaf finds, without scores, and the inputs of these."""

    rows: ScoredRows  # Scores are 0.
    counts: NDArray[np.int32]  # How often each row has each distinct term, shape (n, terms).
    lengths: NDArray[np.int32]  # Tokens of each row.
    statistics: Statistics  # Of all rows that were read, by the distinct terms.

    def at(self, chosen: NDArray[np.integer] | NDArray[np.bool_]) -> CountedRows:
        """Select some of the rows, with the statistics of all."""
        return CountedRows(
            self.rows.at(chosen), self.counts[chosen], self.lengths[chosen], self.statistics
        )


def _distinct(leaf: Leaf) -> list[str]:
    return list(dict.fromkeys(leaf.flat.tokens))


def _nothing(terms: Sequence[str]) -> CountedRows:
    return CountedRows(
        NO_ROWS,
        np.empty((0, len(terms)), np.int32),
        np.empty(0, np.int32),
        Statistics(0, 0, (0,) * len(terms)),
    )


class _BatchTokens:
    """The tokens of a batch, by which several leaves count."""

    def __init__(self, tokens: Tokens, size: int, num_leaves: int) -> None:
        """Sort the tokens, if there are many leaves."""
        self.tokens, self.size = tokens, size
        self.lengths = np.bincount(tokens.rows, minlength=size).astype(np.int32)
        self._codes = {term: code for code, term in enumerate(tokens.terms)}
        self._order = self._firsts = None
        if num_leaves > _FEW_LEAVES:
            self._order = np.argsort(tokens.codes, kind="stable")
            ends = np.arange(len(tokens.terms) + 1)
            self._firsts = np.searchsorted(tokens.codes[self._order], ends)

    def positions_of(self, term: str) -> NDArray[np.int64]:
        """Return the positions of a term among the tokens, ascending."""
        code = self._codes.get(term)
        if code is None:
            return np.empty(0, np.int64)
        if self._order is None or self._firsts is None:
            return np.flatnonzero(self.tokens.codes == code)
        return self._order[self._firsts[code] : self._firsts[code + 1]]


def _count_rows(leaf: Leaf, batch: _BatchTokens, rows: ScoredRows) -> CountedRows:
    """The rows of a batch that a leaf finds."""
    terms, size, tokens = _distinct(leaf), len(rows), batch.tokens
    indices = [batch.positions_of(term) for term in terms]
    cells = [tokens.rows[own] * len(terms) + number for number, own in enumerate(indices)]
    every = np.concatenate([np.empty(0, np.int64), *cells])
    counts = np.bincount(every, minlength=size * len(terms)).reshape(size, -1).astype(np.int32)
    statistics = Statistics(
        int(np.count_nonzero(batch.lengths)),
        int(batch.lengths.sum()),
        tuple(np.count_nonzero(counts, axis=0).tolist()) if terms else (),
    )
    if not terms:
        return CountedRows(NO_ROWS, counts[:0], batch.lengths[:0], statistics)
    chosen = _has_words(leaf, terms, counts > 0)
    if leaf.positions is not None:
        words: list[list[Pairs]] = [[] for _ in leaf.positions]
        for group, token in zip(leaf.flat.groups, leaf.flat.tokens, strict=True):
            own = indices[terms.index(token)]
            words[group].append((tokens.rows[own], tokens.positions[own]))
        with_phrase = documents_with_phrase(words, leaf.positions, leaf.slop)
        chosen &= np.isin(np.arange(size), with_phrase)
    return CountedRows(rows, counts, batch.lengths, statistics).at(chosen)


def _has_words(leaf: Leaf, terms: Sequence[str], hit: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows have one of the words, or all of them.

    ``hit``: whether each row has each term, shape (n, terms).
    """
    if not leaf.needs_all:
        return np.asarray(hit.any(axis=1))
    chosen = np.ones(len(hit), np.bool_)
    for group in range(leaf.flat.num_groups):
        own = zip(leaf.flat.groups, leaf.flat.tokens, strict=True)
        columns = [terms.index(token) for number, token in own if number == group]
        chosen &= hit[:, columns].any(axis=1)
    return chosen


def concat_counts(found: Sequence[CountedRows]) -> CountedRows:
    """Concatenate all rows, and add the statistics."""
    if len(found) == 1:
        return found[0]
    statistics = found[0].statistics
    for one in found[1:]:
        statistics = statistics + one.statistics
    return CountedRows(
        concat_rows([one.rows for one in found]),
        np.concatenate([one.counts for one in found]),
        np.concatenate([one.lengths for one in found]),
        statistics,
    )


def _not_dominated(found: CountedRows, k: int) -> CountedRows:
    """Rows that may be among the best ``k``, whatever the statistics of other tasks are.

    Of rows that have each term equally often the shorter is the better one.
    """
    if len(found.rows) <= k:
        return found
    _, groups = np.unique(found.counts, axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    order = np.lexsort((found.rows.row_id, found.lengths, groups))
    ordered = groups[order]
    ranks = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return found.at(order[ranks < k])


def score_rows(leaf: Leaf, found: CountedRows) -> ScoredRows:
    """The rows with scores by the statistics of the index and of all rows outside of it."""
    terms = {term: number for number, term in enumerate(_distinct(leaf))}
    columns = [terms[token] for token in leaf.flat.tokens]
    counted = found.statistics
    outside = Statistics(
        counted.documents, counted.tokens, tuple(counted.containing[column] for column in columns)
    )
    statistics = leaf.flat_statistics + outside
    norms = statistics.norms(found.lengths)
    scores = np.zeros(len(found.rows), np.float32)
    for weight, column in zip(statistics.weights(), columns, strict=True):
        # A term that a row does not have adds 0.
        scores += term_scores(weight, found.counts[:, column], norms)
    rows = ScoredRows(found.rows.row_id, found.rows.address, scores)
    return rows if leaf.boost == 1 else rows.times(leaf.boost)


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
        return isinstance(self.postings, DensePostings)

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
        indices = np.flatnonzero(chosen)
        if len(indices) == len(self):
            return self
        return _Candidates(
            self.documents[indices],
            self.norms[indices],
            self.known[indices],
            {number: often[indices] for number, often in self.frequencies.items()},
            {number: limits[indices] for number, limits in self.assumed.items()},
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
                indices = np.flatnonzero(other.postings.frequencies_in(documents))
                documents, frequencies = documents[indices], frequencies[indices]
        norms = self._norms(documents)
        scores = term_scores(term.weight, frequencies, norms)
        some = _Candidates(documents, norms, scores, {term.postings.number: frequencies}, {})
        some = some.at(scores + np.float32(sum(one.highest for one in after)) >= self._least)
        if self._live.has_condition:
            _, is_live = self._live.addresses_of(self._partition.row_ids(some.documents))
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
        row_ids = self._partition.row_ids(some.documents)
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
    indices = np.stack([first, np.maximum(last, first + 1)], axis=1).ravel()
    limits = np.append(term.limits, absent)
    highest = np.maximum.reduceat(limits, indices)[::2]
    return np.where(last == 0, absent, highest)
