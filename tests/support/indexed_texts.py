"""A column of texts with an inverted and an n-gram index, and what searches of it must find."""

from __future__ import annotations

import itertools
import re

import pyarrow as pa

from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.columns.change_columns import add_columns, compute_columns
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index_build.column_indices import create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.nearest.search_plan import read_found
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.text.queries import Match, Operator, Phrase
from pyspark_lance.table.text.search_plan import SearchRequest, merge_matches, plan_search
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

WORDS = ("amber", "birch", "cedar", "delta", "ember")
OPTIONS = TokenizerOptions(with_position=True, stem=False, remove_stop_words=False)
INDICES = {
    "by_words": IndexRequest(("s",), "inverted", "by_words", text=OPTIONS),
    "by_grams": IndexRequest(("s",), "ngram", "by_grams"),
}


def text_of(number: int) -> str | None:
    """The text of a row; each fifth has none."""
    if number % 5 == 4:
        return None
    return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in range(1, 4))


def add_texts(table: Table) -> None:
    """Add a column ``s``, by the column ``id``."""

    def texts(batch: pa.RecordBatch) -> list[pa.Array]:
        return [pa.array(map(text_of, batch.column("id").to_pylist()), pa.string())]

    add_columns(table, pa.schema([("s", pa.string())]), compute_columns(["id"], texts))


def build_index(table: Table, name: str) -> None:
    """Build an index, unless it is there."""
    if all(entry.name != name for entry in Snapshot.open(table).indices):
        create_index(table, INDICES[name])


def assert_searches_find_rows(table: Table) -> None:
    """Compare searches by words, phrases and parts of words with the rows themselves."""
    snapshot = Snapshot.open(table)
    rows = _scanned(snapshot, None)
    texts = {row[ROW_ID]: re.findall(r"\w+", row["s"] or "") for row in rows}
    for number, word in enumerate(WORDS):
        other = WORDS[(number + 2) % len(WORDS)]
        pairs = {one for one, words in texts.items() if (word, other) in itertools.pairwise(words)}
        has = {one for one, words in texts.items() if word in words}
        has_other = {one for one, words in texts.items() if other in words}
        assert _found(snapshot, Match(word, "s")) == has, word
        assert _found(snapshot, Match(f"{word} {other}", "s")) == has | has_other
        assert _found(snapshot, Match(f"{word} {other}", "s", Operator.AND)) == has & has_other
        assert _found(snapshot, Match(word, "s"), k=2) <= has
        assert len(_found(snapshot, Match(word, "s"), k=2)) == min(2, len(has))
        if any(entry.name == "by_words" for entry in snapshot.indices):
            assert _found(snapshot, Phrase(f"{word} {other}", "s")) == pairs
        part = word[1:4]
        matching = _scanned(snapshot, f"contains(s, '{part}')")
        expected = sorted(row["id"] for row in rows if part in (row["s"] or ""))
        assert sorted(row["id"] for row in matching) == expected, part


def _scanned(snapshot: Snapshot, condition: str | None) -> list[dict]:
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    tasks = plan_scan(snapshot, ScanRequest(system_columns=(ROW_ID,), predicate=predicate))
    return [row for task in tasks for batch in task.run() for row in batch.to_pylist()]


def _found(snapshot: Snapshot, query: Match | Phrase, k: int | None = None) -> set[int]:
    """Row ids; the rows are read, too."""
    plan = plan_search(snapshot, SearchRequest(query, k, None, snapshot.schema, (ROW_ID,)))
    found = merge_matches(plan.merge, [task.run() for task in plan.tasks])
    rows = [row for _, batch in read_found(plan.fetch, found) for row in batch.to_pylist()]
    assert [row[ROW_ID] for row in rows] == found.row_id.tolist()
    return set(found.row_id.tolist())
