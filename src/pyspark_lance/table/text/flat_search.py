"""Searches rows that no index covers: their texts are read and made to tokens.

Their scores depend on how many of all such rows have a word, so tasks count, and scores come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer, Tokens
from pyspark_lance.table.scan.scan_task import ScanTask, run
from pyspark_lance.table.text.scoring import (
    NO_ROWS,
    ScoredRows,
    Statistics,
    joined_rows,
    term_scores,
)
from pyspark_lance.table.text.search_query import Leaf
from pyspark_lance.table.text.segment_search import Pairs, documents_with_phrase

# So many rows are held before those that cannot be among the best are dropped.
_MAX_WAITING: Final = 1 << 18
# From more leaves on, the tokens of a batch are sorted.
_FEW_LEAVES: Final = 8


@dataclass(frozen=True, slots=True)
class TextScanTask:
    """Some rows of a column that no index covers."""

    scan: ScanTask  # Reads their texts, row ids and addresses.
    column: str
    leaves: tuple[tuple[int, Leaf], ...]  # Of the column, with their places in the query.
    k: int | None  # How many rows of each leaf are enough; None for all.


@dataclass(frozen=True, slots=True)
class CountedRows:
    """Rows that a leaf finds, without scores, and what these depend on."""

    rows: ScoredRows  # Scores are 0.
    counts: NDArray[np.int32]  # How often each row has each distinct term, shape (n, terms).
    lengths: NDArray[np.int32]  # Tokens of each row.
    statistics: Statistics  # Of all rows that were read, by the distinct terms.

    def at(self, chosen: NDArray[np.integer] | NDArray[np.bool_]) -> CountedRows:
        """Some of the rows, with the statistics of all."""
        return CountedRows(
            self.rows.at(chosen), self.counts[chosen], self.lengths[chosen], self.statistics
        )


def search_texts(task: TextScanTask) -> dict[int, CountedRows]:
    """The rows of each leaf, by its place."""
    tokenizers = {leaf.options: Tokenizer(leaf.options) for _, leaf in task.leaves}
    most = _MAX_WAITING // max(1, len(task.leaves))
    waiting: dict[int, list[CountedRows]] = {
        place: [_nothing(_distinct(leaf))] for place, leaf in task.leaves
    }
    for batch in run(task.scan):
        names = batch.schema.names
        texts = batch.column(names.index(task.column))
        row_ids = plain_numbers(batch.column(names.index(ROW_ID)))
        addresses = plain_numbers(batch.column(names.index(ROW_ADDRESS)))
        found = {
            options: _BatchTokens(one.tokenize(texts), batch.num_rows, len(task.leaves))
            for options, one in tokenizers.items()
        }
        rows = ScoredRows(row_ids, addresses, np.zeros(len(row_ids), np.float32))
        for place, leaf in task.leaves:
            waiting[place].append(_counted(leaf, found[leaf.options], rows))
            if task.k is not None and sum(len(one.rows) for one in waiting[place]) > most:
                waiting[place] = [_not_dominated(joined_counts(waiting[place]), task.k)]
    joined = {place: joined_counts(parts) for place, parts in waiting.items()}
    if task.k is None:
        return joined
    return {place: _not_dominated(one, task.k) for place, one in joined.items()}


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
        """Sorts the tokens, if there are many leaves."""
        self.tokens, self.size = tokens, size
        self.lengths = np.bincount(tokens.rows, minlength=size).astype(np.int32)
        self._codes = {term: code for code, term in enumerate(tokens.terms)}
        self._order = self._firsts = None
        if num_leaves > _FEW_LEAVES:
            self._order = np.argsort(tokens.codes, kind="stable")
            ends = np.arange(len(tokens.terms) + 1)
            self._firsts = np.searchsorted(tokens.codes[self._order], ends)

    def places_of(self, term: str) -> NDArray[np.int64]:
        """Return the places of a term among the tokens, ascending."""
        code = self._codes.get(term)
        if code is None:
            return np.empty(0, np.int64)
        if self._order is None or self._firsts is None:
            return np.flatnonzero(self.tokens.codes == code)
        return self._order[self._firsts[code] : self._firsts[code + 1]]


def _counted(leaf: Leaf, batch: _BatchTokens, rows: ScoredRows) -> CountedRows:
    """The rows of a batch that a leaf finds."""
    terms, size, tokens = _distinct(leaf), len(rows), batch.tokens
    places = [batch.places_of(term) for term in terms]
    cells = [tokens.rows[own] * len(terms) + number for number, own in enumerate(places)]
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
            own = places[terms.index(token)]
            words[group].append((tokens.rows[own], tokens.positions[own]))
        with_phrase = documents_with_phrase(words, leaf.positions, leaf.slop)
        chosen &= np.isin(np.arange(size), with_phrase)
    return CountedRows(rows, counts, batch.lengths, statistics).at(chosen)


def _has_words(leaf: Leaf, terms: Sequence[str], hit: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows have one of the words, or all of them.

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


def joined_counts(found: Sequence[CountedRows]) -> CountedRows:
    """All rows of all, and the statistics of all."""
    if len(found) == 1:
        return found[0]
    statistics = found[0].statistics
    for one in found[1:]:
        statistics = statistics + one.statistics
    return CountedRows(
        joined_rows([one.rows for one in found]),
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


def scored(leaf: Leaf, found: CountedRows) -> ScoredRows:
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
