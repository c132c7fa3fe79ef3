"""search of SQL, and the option of a read that it is: what arguments mean, what is refused."""

from __future__ import annotations

import json

import lance
import numpy as np
import pyarrow as pa
import pytest
from text_tables import from_pylance, texts

from pyspark_lance import LanceTable
from pyspark_lance.table.text.queries import Match, Operator, Phrase

from .conftest import plan_of

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture(scope="module")
def searched(plugin, tmp_path_factory):
    """The path of a table of several fragments, of which an index covers some, and a view."""
    rng = np.random.default_rng(9)
    path = str(tmp_path_factory.mktemp("search") / "t")
    rows = pa.table({"id": np.arange(600), "s": texts(rng, 600), "t": texts(rng, 600)})
    dataset = lance.write_dataset(
        rows[:400], path, max_rows_per_file=200, enable_stable_row_ids=True
    )
    dataset.create_scalar_index("s", "INVERTED", name="by_s", with_position=True)
    lance.write_dataset(rows[400:], path, mode="append")
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW texts USING lance OPTIONS (path '{path}')")
    return path


def ask(plugin, arguments, columns="*", rest=""):
    return plugin.sql(f"SELECT {columns} FROM search({arguments}) {rest}")


def scores(rows):
    return {row.id: row._score for row in rows}


def same(expected):
    return pytest.approx(expected, rel=1e-5)


def test_best_rows_come_first(plugin, searched):
    found = ask(plugin, f"'{searched}', 'river cat', 8")
    assert found.columns == ["id", "s", "t", "_score"]
    rows = found.collect()
    expected = from_pylance(searched, "river cat", k=8)
    assert [row._score for row in rows] == same(list(expected.values()))
    assert "TakeOrderedAndProject(limit=8" in plan_of(found)
    for table in ("texts", f"lance.`{searched}`"):
        assert scores(ask(plugin, f"'{table}', 'river cat', 8").collect()) == scores(rows)
    joined = ask(plugin, "'texts', 'river', 1000", "a.id", "a JOIN texts b USING (id)")
    assert joined.count() == len(from_pylance(searched, "river"))
    low = ask(plugin, "'texts', 'river', 1000", "id", "WHERE _score < 1").collect()
    expected = {row for row, score in from_pylance(searched, "river").items() if score < 1}
    assert {row.id for row in low} == expected


def test_search_function_accepts_arguments(plugin, searched):
    arguments = (
        "table => 'texts', query => 'river cat', column => 's', operator => 'and', limit => 500, "
        "columns => array('id', '_score'), filter => 'id % 2 = 0', with_row_id => true"
    )
    found = ask(plugin, arguments)
    assert found.columns == ["id", "_rowid", "_score"]
    query = Match("river cat", "s", Operator.AND)
    assert scores(found.collect()) == same(from_pylance(searched, query, condition="id % 2 = 0"))
    phrase = ask(plugin, "'texts', '\"cat dog\"', 500")
    assert scores(phrase.collect()) == same(from_pylance(searched, Phrase("cat dog", "s")))
    text = json.dumps({"match": {"terms": "rivre", "column": "s", "fuzziness": 2}})
    fuzzy = plugin.sql("SELECT * FROM search('texts', :q, 500)", args={"q": text})
    assert scores(fuzzy.collect()) == same(from_pylance(searched, Match("rivre", "s", fuzziness=2)))
    either = ask(plugin, "'texts', 'river', 900, column => array('s', 't')")
    one, other = (from_pylance(searched, Match("river", name)) for name in ("s", "t"))
    assert scores(either.collect()) == same(
        {row: max(one.get(row, 0), other.get(row, 0)) for row in one | other}
    )
    covered = ask(plugin, "'texts', 'river', 900, covered_only => true, version => 3")
    assert max(row.id for row in covered.collect()) < 400


def test_search_is_read_option(plugin, searched):
    asked = {"query": {"match": {"terms": "river cat", "column": "s"}}, "k": 9}
    reader = plugin.read.format("lance").option("search", json.dumps(asked))
    found = reader.option("columns", "id").load(searched)
    assert found.columns == ["id", "_score"]
    expected = from_pylance(searched, "river cat", k=9)
    assert [row._score for row in found.collect()] == same(list(expected.values()))
    assert found.select("id").where("_score > 1").count() == sum(s > 1 for s in expected.values())
    assert found.limit(3).count() == 3
    filtered = reader.option("filter", "id >= 400").load(searched)
    assert min(row.id for row in filtered.collect()) >= 400


def test_contains_tokens_works_in_scans_and_spark(plugin, searched):
    dataset = lance.dataset(searched)
    for condition in ("contains_tokens(s, 'cat, dog')", "NOT contains_tokens(s, 'Füße') OR id < 9"):
        expected = dataset.to_table(columns=["id"], filter=condition)["id"].to_pylist()
        found = plugin.table("texts").where(condition).select("id")
        assert sorted(row.id for row in found.collect()) == sorted(expected)
        assert "contains_tokens" in plan_of(found).split("BatchScan", 1)[1].lower()
        # Spark evaluates it where it is no condition of a scan.
        seen = plugin.sql(f"SELECT id, coalesce({condition}, false) AS has FROM texts").collect()
        assert sorted(row.id for row in seen if row.has) == sorted(expected)
    one = plugin.sql(
        "SELECT contains_tokens('½ kg, 中文', '中文 ½') AS a, contains_tokens(NULL, 'b')"
    )
    assert tuple(one.first()) == (True, None)
    with pytest.raises(Exception, match="contains_tokens does not accept 1 arguments"):
        plugin.sql("SELECT contains_tokens('a')")


@pytest.fixture(scope="module")
def both(plugin, tmp_path_factory):
    """The path of a table of texts and vectors."""
    rng = np.random.default_rng(4)
    path = str(tmp_path_factory.mktemp("both") / "t")
    vectors = pa.FixedSizeListArray.from_arrays(rng.random(600, np.float32), 2)
    rows = pa.table({"id": np.arange(300), "s": texts(rng, 300), "v": vectors})
    lance.write_dataset(rows, path).create_scalar_index("s", "INVERTED", name="by_s")
    return path


def test_hybrid_search_function_equals_method(plugin, both):
    table = LanceTable.forPath(plugin, both)
    weights = {"text": 0.25, "vector": 0.75}
    for fusion, arguments in (
        ("rrf", ""),
        (weights, ", text_weight => 0.25, vector_weight => 0.75, candidates => 20"),
    ):
        more = {} if fusion == "rrf" else {"candidates": 20}
        expected = table.hybridSearch(
            "river cat", [0.5, 0.25], 120, fusion, "id > 9", ["id"], **more
        ).collect()
        found = plugin.sql(
            f"SELECT * FROM hybrid_search('{both}', 'river cat', array(0.5, 0.25), 120, "
            f"columns => array('id', '_score', '_distance'), filter => 'id > 9'{arguments})"
        )
        assert found.columns == ["id", "_score", "_text_score", "_distance"]
        assert [tuple(row) for row in found.collect()] == [
            (row.id, row._score, row._text_score, row._distance) for row in expected
        ]
        assert any(row._text_score is None for row in expected)
    asked = {"query": "river cat", "vector": [0.5, 0.25], "fusion": weights, "k": 3}
    reader = plugin.read.format("lance").option("search", json.dumps(asked))
    best = table.hybridSearch("river cat", [0.5, 0.25], 3, weights, columns=["id"])
    assert [row.id for row in reader.load(both).collect()] == [row.id for row in best.collect()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'a'", "hybrid_search has no vector"),
        ("'a', array(1.0, NULL)", "hybrid_search has no vector"),
        ("'a', array(0.5, 0.5), 0", "at least 1, not 0"),
        ("'a', array(0.5, 0.5), 3, text_weight => 1", "the weight of words or of the vector"),
        ("'a', array(0.5, 0.5), fusion => 'sum'", "rankings cannot be fused by 'sum'"),
        ("'a', array(0.5, 0.5), candidates => 0", "has 0 candidates"),
        ("'a', array(0.5, 0.5), covered_only => true", "of a search by words only"),
        ("'a', array(0.5)", "2"),
    ],
)
def test_invalid_hybrid_searches_are_refused(plugin, both, arguments, message):
    with pytest.raises(Exception, match=message):
        plugin.sql(f"SELECT * FROM hybrid_search('{both}', {arguments})").collect()
    with pytest.raises(Exception, match="search has metric, but no vector"):
        ask(plugin, f"'{both}', 'a', metric => 'l2'").collect()


@pytest.fixture(scope="module")
def posts(plugin, tmp_path_factory):
    """A table of which every third text is a copy with another last word; an index of some."""
    path = str(tmp_path_factory.mktemp("posts") / "t")
    bodies = [f"{' '.join(f'w{n // 3}x{k}' for k in range(20))} end{n}" for n in range(90)]
    rows = pa.table({"id": np.arange(90), "body": bodies})
    dataset = lance.write_dataset(rows[:60], path, max_rows_per_file=30)
    dataset.create_scalar_index("body", "MINHASHLSH", name="by_body")
    lance.write_dataset(rows[60:], path, mode="append")
    return path, bodies


def test_near_duplicates_function_equals_method(plugin, posts):
    path, bodies = posts
    table = LanceTable.forPath(plugin, path)
    for text, k, more, arguments in (
        (bodies[4], 2, {}, ""),
        (bodies[70], 9, {"filter": "id <> 70"}, ", filter => 'id <> 70'"),
        (bodies[7], 9, {"maxDistance": 0.0}, ", max_distance => 0.0, column => 'body'"),
        ("nothing of these", 9, {}, ""),
    ):
        expected = table.nearDuplicates(text, k, columns=["id"], **more).collect()
        found = plugin.sql(
            f"SELECT * FROM near_duplicates('{path}', '{text}', {k}, "
            f"columns => array('id', '_distance'){arguments})"
        )
        assert found.columns == ["id", "_distance"]
        assert [tuple(row) for row in found.collect()] == [
            (row.id, row._distance) for row in expected
        ]
    assert plugin.sql(f"SELECT * FROM near_duplicates('{path}', '{bodies[4]}')").count() == 3
    asked = {"query": bodies[4], "near_duplicates": True, "k": 2}
    read = plugin.read.format("lance").option("search", json.dumps(asked)).load(path)
    assert [(row.id, row._distance) for row in read.collect()] == [
        (row.id, row._distance) for row in table.nearDuplicates(bodies[4], 2).collect()
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("7", "near_duplicates has no query: a text"),
        ("'a', 0", "at least 1, not 0"),
        ("'a', max_distance => 2", "a number from 0 to 1, not 2"),
        ("'a', column => 'id'", "holds no texts"),
        ("string(rand())", "the argument query of near_duplicates is no constant"),
        ("'a', 3, 4", "name the others, as in max_distance => 0.3"),
    ],
)
def test_invalid_near_duplicates_are_refused(plugin, posts, arguments, message):
    with pytest.raises(Exception, match=message):
        plugin.sql(f"SELECT * FROM near_duplicates('{posts[0]}', {arguments})").collect()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "search has no table"),
        ("'texts'", "search has no query: words, or a query in JSON"),
        ("'texts', 7", "search has no query"),
        ("'texts', 'a', 0", "at least 1, not 0"),
        ("'texts', 'a', 3, 4", "name the others, as in operator => 'and'"),
        ("'texts', 'a', nprobes => 3", "search has 'nprobes', which it does not know"),
        ("'texts', 'a', colum => 's'", "'colum', which it does not know: did you mean 'column'"),
        ("'texts', 'a', prefilter => false", "filters count before a search"),
        ("'texts', 'a', operator => 'near'", "the operator 'near'"),
        ("'texts', 'a', column => 'id'", "holds no texts"),
        ("'texts', 'a', column => array(1)", "a column that is not a string"),
        ("'texts', string(rand())", "the argument query of search is no constant"),
        ("'/no/table', 'a'", "LANCE_TABLE_NOT_FOUND"),
    ],
)
def test_invalid_searches_are_refused(plugin, searched, arguments, message):
    with pytest.raises(Exception, match=message):
        ask(plugin, arguments).collect()


def test_nearest_and_search_together_are_refused(plugin, searched):
    options = {"search": '{"query": "a"}', "nearest": '{"key": [1]}'}
    with pytest.raises(Exception, match="the options nearest and search at once"):
        plugin.read.format("lance").options(**options).load(searched)
