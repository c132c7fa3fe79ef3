"""Search of many texts at once: planned once, the words of each query are looked up by the task.

A task has the tasks of the whole table without queries; it searches a block of queries with all of
them, so nothing but the result leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import named
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.index.inverted.segments import TextPartition, TextSegment
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.tokenizers import PLAIN
from pyspark_lance.table.nearest.search_plan import plan_fetch
from pyspark_lance.table.nearest.search_task import LateMaterialization
from pyspark_lance.table.text.queries import (
    Match,
    Operator,
    Phrase,
    TextQuery,
    leaves_of,
    parse_query,
    transformed,
)
from pyspark_lance.table.text.scoring import ScoredRows, joined_rows
from pyspark_lance.table.text.search_plan import (
    SearchRequest,
    TextMerge,
    TextTask,
    column_tasks,
    merge_matches,
    searched_column,
    searched_columns,
    text_index,
)
from pyspark_lance.table.text.search_query import Leaf, check_phrase, resolve
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

# Queries that are searched at once, and those of which all rows are held before the best are known.
_QUERIES_AT_ONCE: Final = 256
_WHOLE_QUERIES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class SearchedColumn:
    """A column to search, and the tasks that search it."""

    name: str
    options: TokenizerOptions
    has_positions: bool
    segments: tuple[TextSegment, ...]  # All whose documents count for scores.
    tasks: tuple[TextTask, ...]  # Without queries.


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A planned search for queries that are not known yet."""

    files: TableFiles
    columns: tuple[SearchedColumn, ...]
    operator: Operator
    k: int | None
    fetch: LateMaterialization

    def __post_init__(self) -> None:
        """Reject a number in the place of the operator."""
        check_enum(self.operator, Operator)


@dataclass(frozen=True, slots=True)
class RowsByQuery:
    """Rows of several queries, the best first within each."""

    query: NDArray[np.int64]  # Ascending.
    rows: ScoredRows

    def ranks(self) -> NDArray[np.int64]:
        """Return the rank of each row in its query, from 1."""
        return np.arange(1, len(self.query) + 1) - np.searchsorted(self.query, self.query)


def plan_batch(
    snapshot: Snapshot, request: SearchRequest, columns: Sequence[str], operator: Operator
) -> BatchPlan:
    """Plan a search for any number of queries; the query of ``request`` is ignored.

    ``columns``: those to search; none for all with a full-text index.
    """
    found = []
    for name in columns or searched_columns(snapshot):
        column = searched_column(snapshot.schema, name)
        index = text_index(snapshot, column)
        found.append(
            SearchedColumn(
                column.name,
                PLAIN if index is None else index.options,
                index is None or index.has_positions,
                () if index is None else index.segments,
                tuple(column_tasks(snapshot, request, column, index, (), request.k)),
            )
        )
    fetch = plan_fetch(snapshot, request.columns, request.system_columns)
    return BatchPlan(snapshot.files, tuple(found), operator, request.k, fetch)


def search_batch(plan: BatchPlan, texts: Sequence[str | None]) -> Iterator[RowsByQuery]:
    """Yield the rows of all queries, some queries at a time; NULL finds nothing."""
    names = [column.name for column in plan.columns]
    partitions = {
        column.name: [
            partition
            for segment in column.segments
            for partition in segment.open_partitions(plan.files)
        ]
        for column in plan.columns
    }
    waiting: list[tuple[int, TextQuery]] = []
    is_whole = plan.k is None
    for number, text in enumerate(texts):
        if text is None:
            continue
        query = _with_known_columns(parse_query(text, names, plan.operator), plan.columns)
        waiting.append((number, query))
        is_whole |= not isinstance(query, Match | Phrase)
        if len(waiting) >= (_WHOLE_QUERIES_AT_ONCE if is_whole else _QUERIES_AT_ONCE):
            yield _search_block(plan, partitions, waiting)
            waiting, is_whole = [], plan.k is None
    if waiting:
        yield _search_block(plan, partitions, waiting)


def _with_known_columns(query: TextQuery, columns: Sequence[SearchedColumn]) -> TextQuery:
    def leaf(one: Match | Phrase) -> TextQuery:
        known = named(columns, one.column or "")
        if known is None:
            names = ", ".join(column.name for column in columns)
            raise InvalidInputError(
                f"a query of several asks for the column {one.column!r}, which is not searched",
                hint=f"searched are {names}: name it in column=, too",
            )
        if isinstance(one, Phrase):
            check_phrase(one, has_positions=known.has_positions)
        return replace(one, column=known.name)

    return transformed(query, leaf)


def _search_block(
    plan: BatchPlan,
    partitions: dict[str, list[TextPartition]],
    queries: Sequence[tuple[int, TextQuery]],
) -> RowsByQuery:
    by_name = {column.name: column for column in plan.columns}
    by_column: dict[str, list[tuple[int, Leaf]]] = {}
    merges: list[tuple[int, TextMerge]] = []
    place, firsts = 0, []
    for number, query in queries:
        leaves: list[Leaf] = []
        for one in leaves_of(query):
            assert one.column is not None
            options = by_name[one.column].options
            leaf = resolve(one, one.column, options, partitions[one.column])
            by_column.setdefault(one.column, []).append((place + len(leaves), leaf))
            leaves.append(leaf)
        merges.append((number, TextMerge(query, tuple(leaves), plan.k)))
        firsts.append(place)
        place += len(leaves)
    # Rows of several leaves meet before the best of them are known.
    k = plan.k if place == len(queries) else None
    parts = [
        replace(task, leaves=tuple(by_column[name]), k=k).run()
        for name, column in by_name.items()
        if name in by_column
        for task in column.tasks
    ]
    found = [
        merge_matches(merge, [part.of_leaves(first, len(merge.leaves)) for part in parts])
        for first, (_, merge) in zip(firsts, merges, strict=True)
    ]
    numbers = np.array([number for number, _ in merges], np.int64)
    return RowsByQuery(np.repeat(numbers, [len(rows) for rows in found]), joined_rows(found))
