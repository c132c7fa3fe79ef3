"""LanceTable.search: what is asked in which form, where it is worked on, what comes back."""

from __future__ import annotations

import json

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.query import MinHashQuery
from text_tables import from_pylance, lances, texts

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.spark.jobs import search_job
from pyspark_lance.spark.options.search_options import SearchOption
from pyspark_lance.table.text.queries import Boolean, Match, Operator, Phrase, parse_query

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture(autouse=True, scope="module")
def searches_are_jobs(spark):
    """Small searches would need none; these tests are about jobs."""
    spark.conf.set("spark.sql.lance.smallScanBytes", "0")
    yield
    spark.conf.unset("spark.sql.lance.smallScanBytes")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A table of which some rows are outside of its index."""
    rng = np.random.default_rng(2)
    path = str(tmp_path_factory.mktemp("search") / "t")
    table = pa.table(
        {
            "id": np.arange(900),
            "s": texts(rng, 900),
            "t": texts(rng, 900),
            "tags": [["the old fox"], None, ["a", "cat"]] * 300,
        }
    )
    dataset = lance.write_dataset(
        table[:700], path, max_rows_per_file=300, enable_stable_row_ids=True
    )
    dataset.create_scalar_index("s", "INVERTED", name="by_s", with_position=True)
    lance.write_dataset(table[700:], path, mode="append", max_rows_per_file=50)
    lance.dataset(path).delete("id % 9 = 4")
    return path


@pytest.fixture(scope="module")
def table(spark, path):
    return LanceTable.forPath(spark, path)


def scores(rows):
    return {row._rowid: row._score for row in rows}


def test_rows_are_ordered_by_score(table, path):
    found = table.search("river cat", 7)
    assert found.columns == ["_rank", "_score", "_rowid", "id", "s", "t", "tags"]
    assert [kind for _, kind in found.dtypes[:3]] == ["int", "float", "bigint"]
    rows = found.collect()
    assert [row._rank for row in rows] == list(range(1, 8))
    expected = from_pylance(path, "river cat", k=7)
    assert [row._score for row in rows] == pytest.approx(list(expected.values()), rel=1e-5)
    stored = {row.id: row.s for row in table.scan(["id", "s"]).collect()}
    assert all(row.s == stored[row.id] and row._rowid == row.id for row in rows)

    every = table.search("river cat", None, columns=[])
    assert every.columns == ["_rank", "_score", "_rowid"]
    assert scores(every.collect()) == pytest.approx(from_pylance(path, "river cat"), rel=1e-5)
    assert found.where("_score < 0").count() == 0


@pytest.mark.parametrize(
    "query",
    [
        Match("river cat dog", "s", Operator.AND),
        Match("rivre", "s", fuzziness=2, prefix_length=1),
        Phrase("cat dog", "s", slop=1),
        Boolean(must=(Match("cat", "s"),), must_not=(Match("river", "s"),)),
    ],
)
def test_lance_json_queries_are_supported(table, path, query):
    text = _json(query)
    assert parse_query(text) == query
    expected = pytest.approx(from_pylance(path, query), rel=1e-5)
    assert scores(table.search(text, None, columns=["id"]).collect()) == expected
    assert scores(table.search(json.loads(text), None).collect()) == expected


def _json(query):
    if isinstance(query, Boolean):
        parts = {name: getattr(query, name) for name in ("must", "should", "must_not")}
        return json.dumps(
            {
                "boolean": {
                    name: [json.loads(_json(one)) for one in several]
                    for name, several in parts.items()
                    if several
                }
            }
        )
    kind = "match" if isinstance(query, Match) else "phrase"
    values = {name: getattr(query, name) for name in query.__dataclass_fields__}
    return json.dumps({kind: values})


def test_search_supports_phrases_operators_columns_and_filters(table, path):
    phrase = table.search('"cat dog"', None, "s")
    assert scores(phrase.collect()) == pytest.approx(
        from_pylance(path, Phrase("cat dog", "s")), rel=1e-5
    )
    both = table.search("cat dog", None, "S", operator="AND")
    expected = from_pylance(path, Match("cat dog", "s", Operator.AND))
    assert scores(both.collect()) == pytest.approx(expected, rel=1e-5)
    # Only one of the columns has an index.
    either = scores(table.search("river", None, ["s", "t"]).collect())
    one, other = (from_pylance(path, Match("river", name)) for name in ("s", "t"))
    assert either == pytest.approx(
        {row: max(one.get(row, 0), other.get(row, 0)) for row in one | other}, rel=1e-5
    )
    lists = table.search("fox", None, "tags", filter="id < 100 AND _rowid > 10")
    assert sorted(row.id for row in lists.collect()) == [i for i in range(12, 100, 3) if i % 9 != 4]
    some = table.search("river cat", None, filter="id > 600", columns=["id", "_rowaddr"])
    assert some.columns[3:] == ["id", "_rowaddr"]
    expected = from_pylance(path, "river cat", condition="id > 600")
    assert scores(some.collect()) == pytest.approx(expected, rel=1e-5)
    covered = table.search("river cat", None, coveredOnly=True).collect()
    assert {row.id for row in covered} == {
        row for row in from_pylance(path, "river cat") if row < 700
    }


def test_search_uses_requested_version(spark, table, path):
    held = LanceTable.forPath(spark, path, version=2)
    expected = scores(held.search("river", None).collect())
    assert scores(table.search("river", None, version=2).collect()) == expected
    assert max(expected) < 700
    assert max(scores(table.search("river", None).collect())) > 700


def test_large_searches_run_in_several_tasks(table, path, monkeypatch):
    monkeypatch.setattr(search_job, "_SMALL_ROWS", 0)
    query = Boolean(must=(Match("cat", "s"),), should=(Match("river", "t"),))
    for k in (5, None):
        found = table.search(_json(query), k)
        assert found.rdd.getNumPartitions() == 1
        rows = found.collect()
        assert [row._rank for row in rows] == list(range(1, len(rows) + 1))
        every = scores(table.search(_json(query), None).collect())
        assert scores(rows) == dict(sorted(every.items(), key=lambda row: (-row[1], row[0]))[:k])
    assert scores(table.search("river cat", None).collect()) == pytest.approx(
        from_pylance(path, "river cat"), rel=1e-5
    )


def test_empty_tables_and_unknown_words_find_nothing(spark, tmp_path, table):
    empty = LanceTable.create(spark, str(tmp_path / "t"), "id bigint, body string")
    assert empty.search("river", 3, "body").collect() == []
    for words in ("zzz", "the of", ""):
        assert table.search(words).collect() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": "a", "column": "nowhere"}, "there is no column 'nowhere'"),
        ({"query": "a", "column": "id"}, "the column 'id' holds no texts"),
        ({"query": '"cat dog"', "column": "p"}, "has no positions, which phrases need"),
        ({"query": "a", "k": 0}, "at least 1, not 0"),
        ({"query": "a", "operator": "xor"}, "the operator 'xor'"),
        ({"query": 7}, "the argument query of search cannot be 7"),
        ({"query": '{"fuzzy": {}}'}, "no query of kind 'fuzzy'"),
        ({"query": '{"match": {"words": "a"}}'}, "a match query has no 'words'"),
        ({"query": "{"}, "no JSON"),
        ({"query": {"match": {"terms": "a", "fuzziness": -1}}}, "fuzziness must be"),
        ({"query": {"boolean": {"must_not": []}}}, "without must and should"),
        ({"query": "a", "columns": ["_score"]}, "_score"),
    ],
)
def test_invalid_search_calls_are_refused(spark, tmp_path_factory, arguments, message):
    path = str(tmp_path_factory.getbasetemp() / "refused")
    if not (tmp_path_factory.getbasetemp() / "refused").exists():
        dataset = lance.write_dataset(pa.table({"id": [1], "p": ["cat dog"]}), path)
        dataset.create_scalar_index("p", "INVERTED", name="by_p")
    with pytest.raises(InvalidInputError, match=message):
        LanceTable.forPath(spark, path).search(**arguments)


def test_search_option_without_json_is_refused():
    for text in ("lazy dog", "{", "[1]"):
        with pytest.raises(InvalidInputError, match="the option search is no JSON object"):
            SearchOption.parse(text)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"query": {"match": {}}}, "near_duplicates has no query: a text"),
        ({"operator": "and"}, "has operator, which is not of near_duplicates"),
        ({"vector": [1.0]}, "has vector, which is not of near_duplicates"),
        ({"column": ["a", "b"]}, "has no single column of texts"),
        ({"column": 7}, "has no single column of texts"),
        ({"max_distance": "0.3"}, "has a max_distance '0.3', which is no number"),
        ({"prefilter": False}, "filters count before a search"),
        ({"near_duplicates": False, "max_distance": 0.3}, "which is of near_duplicates only"),
    ],
)
def test_invalid_near_duplicates_options_are_refused(more, message):
    given = {"query": "a", "near_duplicates": True, "max_distance": 0.3}
    assert SearchOption.parse(json.dumps(given)).added_columns == ("_distance",)
    with pytest.raises(InvalidInputError, match=message):
        SearchOption.parse(json.dumps({**given, **more}), of_sql=True)


def test_unsupported_tokenizers_are_named(spark, tmp_path):
    dataset = lance.write_dataset(pa.table({"p": ["cat dog"]}), str(tmp_path / "t"))
    dataset.create_scalar_index("p", "INVERTED", name="by_p", base_tokenizer="icu")
    with pytest.raises(UnsupportedFeatureError, match="the tokenizer 'icu'"):
        LanceTable.forPath(spark, str(tmp_path / "t")).search("cat")
    with pytest.raises(InvalidInputError, match="the table has no full-text index"):
        LanceTable.create(spark, str(tmp_path / "n"), "body string").search("cat")
    assert lances(Match("cat", "p")).query_type().value == "match"


def test_hybrid_search_ranks_words_and_vectors(spark, tmp_path):
    rng = np.random.default_rng(12)
    numbers = rng.normal(size=(300, 4)).astype("f4")
    rows = pa.table(
        {
            "id": np.arange(300),
            "s": texts(rng, 300),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 4),
        }
    )
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(rows[:200], path, enable_stable_row_ids=True)
    dataset.create_scalar_index("s", "INVERTED", name="by_s")
    lance.write_dataset(rows[200:], path, mode="append")
    table = LanceTable.forPath(spark, path)
    query = numbers[7].tolist()

    found = table.hybridSearch("river cat", query, 6, columns=["id"], candidates=20)
    assert found.columns == ["_rank", "_score", "_rowid", "_text_score", "_distance", "id"]
    words = [row.id for row in table.search("river cat", 20).collect()]
    near = [row.id for row in table.nearest(query, 20).collect()]
    expected = {
        one: sum(1 / (61 + ranking.index(one)) for ranking in (words, near) if one in ranking)
        for one in {*words, *near}
    }
    best = sorted(expected, key=lambda one: (-np.float32(expected[one]), one))[:6]
    rows = found.collect()
    assert [row.id for row in rows] == best
    assert [row._score for row in rows] == pytest.approx([expected[one] for one in best], rel=1e-5)
    assert [row._text_score is None for row in rows] == [row.id not in words for row in rows]
    assert [row._distance is None for row in rows] == [row.id not in near for row in rows]

    only = {"text": 0, "vector": 1}
    filtered = table.hybridSearch("river", query, 3, only, "id > 7", ["id"]).collect()
    assert [row.id for row in filtered] == [
        row.id for row in table.nearest(query, 3, filter="id > 7").collect()
    ]
    with pytest.raises(InvalidInputError, match="rankings cannot be fused by 'sum'"):
        table.hybridSearch("river", query, fusion="sum")
    with pytest.raises(InvalidInputError, match="takes one vector"):
        table.hybridSearch("river", [query, query])


def test_near_duplicates_are_those_of_pylance(spark, tmp_path):
    path = str(tmp_path / "t")
    rng = np.random.default_rng(3)
    bodies = texts(rng, 60)
    bodies = [f"{body} of the year {number} and so on" for number, body in enumerate(bodies)] * 2
    rows = pa.table({"id": np.arange(120), "s": pa.array(bodies)})
    lance.write_dataset(rows[:90], path, max_rows_per_file=40, enable_stable_row_ids=True)
    table = LanceTable.forPath(spark, path)
    assert table.createIndex("s", "minhash_lsh").names == ("s_idx",)
    lance.write_dataset(rows[90:], path, mode="append")
    query = {"nearest": MinHashQuery(bodies[7], "s"), "limit": 5}
    expected = lance.dataset(path).to_table(columns=["id", "_distance"], **query)

    found = table.nearDuplicates(bodies[7], 5, columns=["id"])
    assert found.columns == ["_rank", "_distance", "_rowid", "id"]
    answer = found.collect()
    assert [row._distance for row in answer] == expected["_distance"].to_pylist()
    assert [row.id for row in answer[:2]] == [7, 67]
    several = table.nearDuplicates([bodies[7], "nothing", bodies[9]], 2, maxDistance=0.0)
    assert sorted((row._query, row.id) for row in several.collect()) == [
        (0, 7), (0, 67), (2, 9), (2, 69),
    ]  # fmt: skip
    own = table.toDF().selectExpr("id AS left", "s")
    pairs = table.nearDuplicates(own, None, maxDistance=0.05, columns=["id"], filter="id >= 60")
    copies = {(row.left, row.id) for row in pairs.where("left < id").collect()}
    assert copies == {(number, number + 60) for number in range(60)}
    assert table.nearDuplicates("").count() == 0
    with pytest.raises(InvalidInputError, match="holds no texts"):
        table.nearDuplicates("x", column="id")


def test_many_search_queries_run_in_several_tasks(spark, table, path):
    asked = [
        (1, "river cat"),
        (2, None),
        (3, "nowhere"),
        (4, "dog"),
        (5, '{"match": {"terms": "w3"}}'),
    ]
    queries = spark.createDataFrame(asked, "n int, query string")
    found = table.search(queries, 4, "s", columns=["id"])
    assert found.columns == ["n", "query", "_rank", "_score", "_rowid", "id"]
    rows = found.collect()
    assert {row.n for row in rows} == {1, 4, 5}
    for number, query in asked[::4]:
        alone = table.search(query, 4, "s", columns=["id"]).collect()
        own = sorted((row for row in rows if row.n == number), key=lambda row: row._rank)
        assert [(row._rank, row._score, row.id) for row in own] == [
            (row._rank, row._score, row.id) for row in alone
        ]
    listed = table.search(["dog", "river cat"], 1, columns=[])
    assert listed.columns == ["_query", "_rank", "_score", "_rowid"]
    best = {row._query: row._score for row in listed.collect()}
    assert best == {0: pylance_best(path, "dog"), 1: pylance_best(path, "river cat")}
    for wrong, message in (
        (queries.selectExpr("n"), "no column 'query' of strings"),
        (queries.selectExpr("query", "n AS id"), "'id' would be in the result twice"),
        (["a", 7], "the argument query of search cannot be"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            table.search(wrong, column="s")


def pylance_best(path, query):
    return pytest.approx(max(from_pylance(path, query).values()), rel=1e-5)
