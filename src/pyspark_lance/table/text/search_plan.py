"""Plans of text searches: which indices are used, which rows are read, how results are merged.

A search of many texts is planned once. Each of its tasks has the tasks of the whole table without
queries; it looks up the words of a block of queries and searches them in all rows, so nothing but
the result leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, find_named
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata, reuse_index_of
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.index.inverted.segments import (
    TextPartition,
    TextSegment,
    open_text_segment,
)
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.tokenizers import PLAIN
from pyspark_lance.table.index.segments import kind_of
from pyspark_lance.table.nearest.ivf_search import fragments_by_segment
from pyspark_lance.table.nearest.search_plan import (
    CONDITION_BYTES,
    LateMaterialization,
    SearchSize,
    count_fetched_fragments,
    estimate_matching,
    matching_by_segment,
    plan_fetch,
)
from pyspark_lance.table.scan.column_paths import named_path
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.text.queries import (
    Match,
    Operator,
    Phrase,
    TextQuery,
    leaves_of,
    parse_query,
    transform_query,
    with_columns,
)
from pyspark_lance.table.text.scoring import (
    Leaf,
    ScoredRows,
    best_rows,
    check_phrase,
    concat_rows,
    evaluate,
    resolve,
)
from pyspark_lance.table.text.segment_search import (
    TextMatches,
    TextScanTask,
    TextSegmentTask,
    concat_counts,
    score_rows,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

TextTask = TextSegmentTask | TextScanTask


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Query of a text search and its limits."""

    query: TextQuery
    k: int | None  # How many rows; None for all.
    predicate: Predicate | None  # Which rows count; None for all.
    columns: LanceSchema  # Columns to return of the rows that are found.
    system_columns: tuple[str, ...]  # Lineage columns to return of them.
    covered_only: bool = False  # Whether rows that no index covers are left out.

    def __post_init__(self) -> None:
        """Reject an invalid number of rows."""
        if self.k is not None:
            check_k(self.k)


def check_k(k: object) -> None:
    """Reject a number of rows that is none."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise InvalidInputError(f"k, the number of rows to find, must be at least 1, not {k!r}")


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts, or a struct field of them."""

    path: tuple[Field, ...]  # The column, and the fields below it that lead to the texts.

    @property
    def name(self) -> str:
        """The name, with dots between those of fields."""
        return ".".join(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields on the path."""
        return tuple(field.name for field in self.path)

    @property
    def field(self) -> Field:
        """The field that holds the texts."""
        return self.path[-1]

    def as_schema(self) -> LanceSchema:
        """Return a schema of this column, of structs with this field alone."""
        own = self.field
        for parent in self.path[-2::-1]:
            own = parent.with_only([own])
        return LanceSchema(fields=(own,))


@dataclass(frozen=True, slots=True)
class TextMerge:
    """Merge of the results of all tasks."""

    query: TextQuery
    leaves: tuple[Leaf, ...]  # In the order of the query.
    k: int | None


@dataclass(frozen=True, slots=True)
class TextPlan:
    """A planned search."""

    tasks: tuple[TextTask, ...]
    merge: TextMerge
    fetch: LateMaterialization


@dataclass(frozen=True, slots=True)
class TextIndex:
    """The full-text index of a column."""

    segments: tuple[TextSegment, ...]  # That answer for fragments.
    options: TokenizerOptions
    has_positions: bool


def merge_matches(merge: TextMerge, parts: Sequence[TextMatches]) -> ScoredRows:
    """The rows of the query, given the results of all tasks; the best first."""
    by_leaf: dict[int, ScoredRows] = {}
    for index, leaf in enumerate(merge.leaves):
        rows = [part.covered[index] for part in parts if index in part.covered]
        counted = [part.counted[index] for part in parts if index in part.counted]
        if counted:
            rows.append(score_rows(leaf, concat_counts(counted)))
        by_leaf[index] = concat_rows(rows)
    return best_rows(evaluate(merge.query, by_leaf), merge.k)


def plan_search(snapshot: Snapshot, request: SearchRequest) -> TextPlan:
    """The tasks of a search; reads the tokens of indices, and no data file."""
    query = _with_columns_of_table(snapshot, request.query)
    leaves = leaves_of(query)
    columns = {
        name: searched_column(snapshot.schema, name) for name in dict.fromkeys(map(_name, leaves))
    }
    indices = {name: text_index(snapshot, column) for name, column in columns.items()}
    partitions = {name: _partitions(snapshot, index) for name, index in indices.items()}
    resolved = []
    for leaf in leaves:
        name = _name(leaf)
        index = indices[name]
        if isinstance(leaf, Phrase):
            check_phrase(leaf, has_positions=index is None or index.has_positions)
        options = PLAIN if index is None else index.options
        resolved.append(resolve(leaf, columns[name].name, options, partitions[name]))
    # Rows of several leaves meet before the best of them are known.
    k = request.k if len(leaves) == 1 else None
    tasks: list[TextTask] = []
    for name, column in columns.items():
        own = tuple(
            (number, resolved[number]) for number, leaf in enumerate(leaves) if _name(leaf) == name
        )
        tasks += column_tasks(snapshot, request, column, indices[name], own, k)
    return TextPlan(
        tuple(tasks),
        TextMerge(query, tuple(resolved), request.k),
        plan_fetch(snapshot, request.columns, request.system_columns),
    )


# Of a document that has a word of the query, and of any other.
_POSTING_BYTES: Final = 8
_DOCUMENT_BYTES: Final = 1


def estimate_text_search(plan: TextPlan) -> SearchSize:
    """Estimate the work of a search."""
    postings = sum(sum(leaf.statistics.containing) for leaf in plan.merge.leaves)
    size = SearchSize(_POSTING_BYTES * postings, count_fetched_fragments(plan.fetch, plan.merge.k))
    for task in plan.tasks:
        if isinstance(task, TextScanTask):
            size += SearchSize(CONDITION_BYTES * task.num_rows, len(task.scan.slices))
        else:
            size += SearchSize(_DOCUMENT_BYTES * task.num_rows, 0) + estimate_matching(
                task.matching
            )
    return size


def text_index(snapshot: Snapshot, column: TextColumn) -> TextIndex | None:
    """The first full-text index of a column, None if it has none."""
    key = "text index", column.field.id
    if key not in snapshot.memo:
        snapshot.memo[key] = _open_index(snapshot, column.field)
    return snapshot.memo[key]  # type: ignore[return-value]


def _open_index(snapshot: Snapshot, column: Field) -> TextIndex | None:
    entries = [one for one in snapshot.indices if _is_over(one, column)]
    if not entries:
        return None
    own = [one for one in entries if one.name == entries[0].name]
    segments = tuple(open_text_segment(snapshot.files, entry) for entry in own)
    # As in Lance, the documents of a segment count for scores when all of its fragments are gone.
    used = segments
    if reuse_index_of(snapshot.indices) is not None:
        used = ()  # row addresses in the index are those of before a compaction
    options = segments[0].options
    return TextIndex(used, options, options.with_position)


def _is_over(entry: IndexMetadata, column: Field) -> bool:
    return kind_of(entry) == "inverted" and entry.fields == (column.id,)


def _partitions(snapshot: Snapshot, index: TextIndex | None) -> list[TextPartition]:
    return [
        partition
        for segment in (index.segments if index is not None else ())
        for partition in segment.open_partitions(snapshot.files)
    ]


def _with_columns_of_table(snapshot: Snapshot, query: TextQuery) -> TextQuery:
    """The query with a column for each leaf, named as in the table."""
    if any(leaf.column is None for leaf in leaves_of(query)):
        query = with_columns(query, searched_columns(snapshot))

    def leaf(one: Match | Phrase) -> TextQuery:
        return replace(one, column=searched_column(snapshot.schema, _name(one)).name)

    return transform_query(query, leaf)


def searched_columns(snapshot: Snapshot) -> list[str]:
    """The columns to search where none is named: all with a full-text index.

    Raises:
        InvalidInputError: There is none.
    """
    indexed = [
        column.name
        for column in _columns_below((), snapshot.schema.fields)
        if any(_is_over(entry, column.field) for entry in snapshot.indices)
    ]
    if not indexed:
        raise InvalidInputError(
            "the table has no full-text index: say which column to search",
            hint=f"columns of texts: {_text_columns(snapshot.schema)}",
        )
    return indexed


def _name(leaf: Match | Phrase) -> str:
    assert leaf.column is not None
    return leaf.column


def searched_column(schema: LanceSchema, name: str) -> TextColumn:
    """The column to search; a struct field is ``struct.field``.

    Raises:
        InvalidInputError: There is none, or it holds no texts.
    """
    field = find_named(schema.fields, name)
    hint = f"columns of texts: {_text_columns(schema)}"
    if field is None and "." not in name:
        raise InvalidInputError(f"there is no column {name!r}", hint=hint)
    column = TextColumn(named_path(schema, name) if field is None else (field,))
    if not _holds_texts(column.field):
        raise InvalidInputError(f"the column {name!r} holds no texts", hint=hint)
    return column


def _text_columns(schema: LanceSchema) -> str:
    return ", ".join(column.name for column in text_columns(schema)) or "none"


def text_columns(schema: LanceSchema) -> list[TextColumn]:
    """Return all columns and struct fields of texts."""
    return [one for one in _columns_below((), schema.fields) if _holds_texts(one.field)]


def _columns_below(above: tuple[Field, ...], fields: Sequence[Field]) -> Iterator[TextColumn]:
    for field in fields:
        yield TextColumn((*above, field))
        if field.is_struct:
            yield from _columns_below((*above, field), field.children)


def _holds_texts(field: Field) -> bool:
    """Return whether a column holds strings, or lists of them."""
    kind = field.to_arrow().type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def column_tasks(
    snapshot: Snapshot,
    request: SearchRequest,
    column: TextColumn,
    index: TextIndex | None,
    leaves: tuple[tuple[int, Leaf], ...],
    k: int | None,
) -> list[TextTask]:
    """The tasks for one column: one for each segment, and scans of uncovered rows."""
    segments = index.segments if index is not None else ()
    by_segment = fragments_by_segment(snapshot, segments)
    tasks: list[TextTask] = [
        TextSegmentTask(
            segment, snapshot.files, fragments, snapshot.uses_stable_row_ids, leaves, k, matching
        )
        for segment, fragments, matching in matching_by_segment(
            snapshot, request.predicate, by_segment
        )
    ]
    if request.covered_only and index is not None:
        return tasks
    covered = {fragment.id for _, fragments in by_segment for fragment in fragments}
    if len(covered) == len(snapshot.manifest.fragments):
        return tasks
    scan = ScanRequest(
        schema=column.as_schema(), system_columns=(ROW_ID, ROW_ADDRESS), predicate=request.predicate
    )
    for task in plan_scan(snapshot, scan):
        left = tuple(one for one in task.slices if one.fragment.id not in covered)
        if left:
            tasks.append(TextScanTask(replace(task, slices=left), column.names, leaves, k))
    return tasks


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
        known = find_named(columns, one.column or "")
        if known is None:
            names = ", ".join(column.name for column in columns)
            raise InvalidInputError(
                f"a query of several asks for the column {one.column!r}, which is not searched",
                hint=f"searched are {names}: name it in column=, too",
            )
        if isinstance(one, Phrase):
            check_phrase(one, has_positions=known.has_positions)
        return replace(one, column=known.name)

    return transform_query(query, leaf)


def _search_block(
    plan: BatchPlan,
    partitions: dict[str, list[TextPartition]],
    queries: Sequence[tuple[int, TextQuery]],
) -> RowsByQuery:
    by_name = {column.name: column for column in plan.columns}
    by_column: dict[str, list[tuple[int, Leaf]]] = {}
    merges: list[tuple[int, TextMerge]] = []
    index, firsts = 0, []
    for number, query in queries:
        leaves: list[Leaf] = []
        for one in leaves_of(query):
            assert one.column is not None
            options = by_name[one.column].options
            leaf = resolve(one, one.column, options, partitions[one.column])
            by_column.setdefault(one.column, []).append((index + len(leaves), leaf))
            leaves.append(leaf)
        merges.append((number, TextMerge(query, tuple(leaves), plan.k)))
        firsts.append(index)
        index += len(leaves)
    # Rows of several leaves meet before the best of them are known.
    k = plan.k if index == len(queries) else None
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
    return RowsByQuery(np.repeat(numbers, [len(rows) for rows in found]), concat_rows(found))
