"""A search for many queries finds for each what a search for it alone finds."""

from __future__ import annotations

import json

import lance
import numpy as np
import pyarrow as pa
import pytest
from process_boundary import sent
from text_tables import make, ours, texts

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.text import search_plan
from pyspark_lance.table.text.queries import Match, Operator, parse_query
from pyspark_lance.table.text.search_plan import SearchRequest, plan_batch, search_batch
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

QUERIES = [
    "river cat", "dog", None, "nowhere", "", '"cat dog"', "w3 w4 w5 w6", "walking", "the",
    json.dumps({"match": {"terms": "rivre", "fuzziness": 2}}),
    json.dumps({"boolean": {"must": [{"match": {"terms": "dog"}}],
                            "must_not": [{"match": {"terms": "cat"}}]}}),
    "fox", "quick brown fox jumps", "mountain", "w17", "cat",
]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(5)
    path = str(tmp_path_factory.mktemp("batch") / "t")
    make(path, rng, 1000, segments=2, with_position=True)
    more = pa.table({"id": np.arange(1000, 1200), "s": texts(rng, 200)})
    lance.write_dataset(more, path, mode="append")
    lance.dataset(path).delete("id % 9 = 4")
    return path


def found(path, queries, k=10, condition=None, columns=("s",), operator=Operator.OR):
    snapshot = Snapshot.open(Table(path))
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    read = project(snapshot.schema, ["id"])
    request = SearchRequest(Match(""), k, predicate, read, ())
    plan = sent(plan_batch(snapshot, request, columns, operator))
    by_query = {}
    for one in search_batch(plan, queries):
        for place, rank in enumerate(one.ranks().tolist()):
            rows = by_query.setdefault(int(one.query[place]), {})
            rows[int(one.rows.row_id[place])] = float(one.rows.score[place])
            assert len(rows) == rank
    return by_query


@pytest.mark.parametrize("k", [10, None])
@pytest.mark.parametrize("condition", [None, "id % 3 = 0"])
def test_batched_queries_find_same_rows_as_single_queries(path, monkeypatch, k, condition):
    monkeypatch.setattr(search_plan, "_QUERIES_AT_ONCE", 9)
    monkeypatch.setattr(search_plan, "_WHOLE_QUERIES_AT_ONCE", 3)
    by_query = found(path, QUERIES, k, condition)
    for number, query in enumerate(QUERIES):
        expected = {}
        if query is not None:
            expected = ours(path, parse_query(query, ["s"]), k=k, condition=condition)[0]
        assert by_query.get(number, {}) == expected, query
        assert list(by_query.get(number, {})) == list(expected)


def test_and_operator_requires_all_words_in_indexed_columns(path):
    by_query = found(path, ["river cat"], None, columns=(), operator=Operator.AND)
    assert by_query[0] == ours(path, Match("river cat", "s", Operator.AND))[0]


@pytest.mark.parametrize("boost", [1.0, -1.0])
def test_best_live_rows_are_found_behind_deleted_rows(tmp_path, boost):
    path = str(tmp_path / "t")
    rows = ["fox " * (1 + number % 7) for number in range(2000)]
    dataset = lance.write_dataset(pa.table({"id": np.arange(2000), "s": rows}), path)
    dataset.create_scalar_index("s", "INVERTED", name="by_s")
    dataset.delete("id % 7 > 1 AND id < 1990")  # nearly all of the best ones
    every = ours(path, Match("fox", "s", boost=boost))[0]
    for k in (1, 5, 40, 500):
        best, _ = ours(path, Match("fox", "s", boost=boost), k=k)
        assert best == dict(list(every.items())[:k])


def test_unsearched_columns_are_refused(path):
    query = json.dumps({"match": {"column": "t", "terms": "a"}})
    with pytest.raises(InvalidInputError, match="the column 't', which is not searched"):
        found(path, [query])
    with pytest.raises(InvalidInputError, match="holds no texts"):
        found(path, ["a"], columns=("id",))
