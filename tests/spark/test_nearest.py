"""LanceTable.nearest: what is asked in which form, where it is worked on, what comes back."""

from __future__ import annotations

import datetime
import json
import re

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark.errors import AnalysisException

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.data_source import LanceDataSource

pytestmark = pytest.mark.spark

WIDTH = 4


def save(spark, path, numbers, *, parts=3, start=0):
    """Rows ``id``, ``name`` and ``vec``, in some fragments."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.astype("f4").ravel()), WIDTH)
    ids = np.arange(start, start + len(numbers))
    rows = pa.table(
        {"id": ids, "name": [f"n{i}" for i in ids], "vec": lists.cast(pa.list_(pa.float32()))}
    )
    frame = spark.createDataFrame(rows).repartitionByRange(parts, "id")
    options = {"vec.fixed_size_list": str(WIDTH)}
    frame.write.format("lance").options(**options).mode("append").save(path)
    return LanceTable.forPath(spark, path)


def expected(queries, numbers, k):
    """For each query the places of the nearest vectors."""
    every = ((queries[:, None].astype("f8") - numbers[None].astype("f4")) ** 2).sum(-1)
    return np.argsort(every, axis=1, kind="stable")[:, :k], np.sort(every, axis=1)[:, :k]


@pytest.fixture(autouse=True, scope="module")
def searches_are_jobs(spark):
    """Small searches would need none; these tests are about jobs."""
    spark.conf.set("spark.sql.lance.smallScanBytes", "0")
    yield
    spark.conf.unset("spark.sql.lance.smallScanBytes")


@pytest.fixture(scope="module")
def numbers():
    return np.random.default_rng(3).normal(size=(500, WIDTH))


@pytest.fixture(scope="module")
def tables_path(tmp_path_factory):
    return str(tmp_path_factory.mktemp("nearest") / "t")


@pytest.fixture(scope="module")
def table(spark, tables_path, numbers):
    return save(spark, tables_path, numbers)


def test_nearest_accepts_one_several_and_frame_queries(spark, table, numbers):
    queries = np.random.default_rng(4).normal(size=(3, WIDTH)).astype("f4")
    ids, distances = expected(queries, numbers, 5)

    one = table.nearest(queries[0].tolist(), k=5)
    assert one.columns == ["_rank", "_distance", "_rowid", "id", "name", "vec"]
    assert dict(one.dtypes)["_rank"] == "int"
    assert dict(one.dtypes)["_distance"] == "float"
    rows = one.collect()
    assert [row.id for row in rows] == ids[0].tolist()
    assert [row._rank for row in rows] == [1, 2, 3, 4, 5]
    assert [row._distance for row in rows] == pytest.approx(distances[0], rel=1e-5)
    assert [row.name for row in rows] == [f"n{i}" for i in ids[0]]
    assert rows[0].vec == numbers[ids[0][0]].astype("f4").tolist()
    by_id = {row._rowid: row.id for row in table.scan(["id", "_rowid"]).collect()}
    assert [by_id[row._rowid] for row in rows] == ids[0].tolist()

    several = table.nearest(queries, k=np.int64(5), columns=["id"], nprobes=np.int32(3))
    assert several.columns == ["_query", "_rank", "_distance", "_rowid", "id"]
    found = {(row["_query"], row._rank): row.id for row in several.collect()}
    assert found == {(q, r + 1): int(ids[q][r]) for q in range(3) for r in range(5)}

    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    asked = [(f"q{n}", moment, [float(x) for x in q], (n, None)) for n, q in enumerate(queries)]
    asked.append(("none", moment, None, (7, "x")))
    asked.append(("nan", moment, [float("nan")] * WIDTH, None))
    columns = "label string, at timestamp, vec array<double>, more struct<n: int, s: string>"
    frame = spark.createDataFrame(asked, columns)
    joined = table.nearest(frame, k=2, columns=["name", "_rowaddr"])
    assert joined.columns == [
        "label", "at", "more", "_rank", "_distance", "_rowid", "name", "_rowaddr",
    ]  # fmt: skip
    rows = sorted(joined.collect(), key=lambda row: (row.label, row._rank))
    assert [(row.label, row.name) for row in rows] == [
        (f"q{q}", f"n{ids[q][r]}") for q in range(3) for r in range(2)
    ]
    assert {(row.at, row.more.n, row.more.s) for row in rows if row.label == "q1"} == {
        (moment, 1, None)
    }


def test_many_queries_are_joined_in_tasks(spark, table, numbers):
    queries = np.random.default_rng(6).normal(size=(700, WIDTH)).astype("f4")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(queries.ravel()), WIDTH)
    rows = pa.table(
        {
            "label": [f"q{n}" for n in range(700)],
            "embedding": lists.cast(pa.list_(pa.float32())),
            "a.b `c": pa.array(range(700)),
        }
    )
    frame = spark.createDataFrame(rows)
    answer = table.nearest(frame, 3, columns=["id"])
    ids, _ = expected(queries, numbers, 3)
    found = {(row.label, row._rank): (row.id, row["a.b `c"]) for row in answer.collect()}
    assert found == {(f"q{q}", r + 1): (int(ids[q][r]), q) for q in range(700) for r in range(3)}


def test_query_array_exceeding_broadcast_limit_is_answered(table, numbers):
    queries = np.tile(numbers[:7], (1300, 1)).astype("f4")
    answer = table.nearest(queries, 1, columns=[])
    assert answer.columns == ["_query", "_rank", "_distance", "_rowid"]
    rows = answer.toArrow()
    assert sorted(rows["_query"].to_pylist()) == list(range(9100))
    assert set(rows["_distance"].to_pylist()) == {0.0}
    assert len(set(rows["_rowid"].to_pylist())) == 7


def test_filters_versions_and_deleted_rows(spark, tmp_path, numbers):
    table = save(spark, str(tmp_path / "t"), numbers[:100])
    query = numbers[10].tolist()
    first = [row.id for row in table.nearest(query, 4).collect()]
    assert first[0] == 10
    table.delete(f"id = {first[1]}")
    save(spark, str(tmp_path / "t"), numbers[10:11], start=1000)
    assert [row.id for row in table.nearest(query, 4).collect()] == [10, 1000, *first[2:]]
    assert [row.id for row in table.nearest(query, 4, version=1).collect()] == first
    held = LanceTable.forPath(spark, str(tmp_path / "t"), version=1)
    assert [row.id for row in held.nearest(query, 4).collect()] == first
    condition = f"id > 10 AND id != {first[2]} AND _row_created_at_version = 1"
    some = table.nearest(query, 200, filter=condition).collect()
    assert len(some) == 89 - sum(one > 10 for one in first[1:3])
    assert some[0].id == next(i for i in expected(numbers[10:11], numbers[:100], 100)[0][0]
                              if i > 10 and i not in first[1:3])  # fmt: skip
    assert not table.nearest(query, 4, filter="id < 0").collect()


def test_queries_may_be_stream(spark, tmp_path, table, numbers):
    source = save(spark, str(tmp_path / "queries"), numbers[:5])
    stream = spark.readStream.format("lance").load(str(tmp_path / "queries"))
    near = table.nearest(stream.select("vec", "name"), 1, columns=["id"])
    query = (
        near.writeStream.format("memory").queryName("near_rows").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    query.awaitTermination()
    rows = spark.table("near_rows").collect()
    assert sorted((row.name, row.id) for row in rows) == [(f"n{i}", i) for i in range(5)]
    assert source.toDF().count() == 5


def test_nearest_joins_table_with_itself(table):
    left = table.toDF().where("id < 20").withColumnsRenamed({"id": "left", "name": "left_name"})
    pairs = table.nearest(left, 2, metric="cosine", columns=["id"]).where("left != id").collect()
    assert len(pairs) == 20
    assert {row.left for row in pairs} == set(range(20))


def test_vector_index_is_combined_with_new_rows(spark, tmp_path, numbers):
    path = str(tmp_path / "t")
    table = save(spark, path, numbers)
    lance.dataset(path).create_index("vec", "IVF_PQ", num_partitions=4, num_sub_vectors=2)
    queries = numbers[:600].astype("f4")
    coded = table.nearest(queries[:3], 5, nprobes=2, columns=["id"]).toArrow()
    for number in range(3):
        nearest = {"column": "vec", "q": queries[number], "k": 5, "nprobes": 2}
        best = lance.dataset(path).to_table(columns=["id", "_distance"], nearest=nearest)
        mine = coded.filter(pa.compute.field("_query") == number)
        assert mine["_distance"].to_pylist() == pytest.approx(best["_distance"].to_pylist(), 1e-4)
    exact = table.nearest(queries[:3], 5, useIndex=False, columns=["id"]).toArrow()
    assert exact["_distance"] != coded["_distance"]
    refined = table.nearest(queries[:3], 5, refineFactor=100, nprobes=4, columns=["id"]).toArrow()
    assert refined.sort_by([("_query", "ascending"), ("_rank", "ascending")]).equals(
        exact.sort_by([("_query", "ascending"), ("_rank", "ascending")])
    )
    # Several tasks look into the one segment, each for some of the queries.
    every = table.nearest(queries, 2, refineFactor=100, nprobes=4, columns=["id"])
    assert every.where("_rank = 1 AND _query != id % 600").count() == 0
    assert every.count() == 2 * len(queries)
    save(spark, path, queries[:1], start=5000)
    asked = table.toDF().where("id < 400").selectExpr("vec", "CAST(id AS string) AS q")
    joined = table.nearest(asked, 2, refineFactor=100, nprobes=4, columns=["id"])
    rows = {(row.q, row._rank): (row.id, row._distance) for row in joined.collect()}
    assert len(rows) == 800
    assert rows["0", 1] == (0, 0.0)
    assert rows["0", 2] == (5000, 0.0)
    assert {rows[str(number), 1] for number in range(400)} == {(n, 0.0) for n in range(400)}


def test_tables_and_frames_without_rows(spark, tmp_path, table):
    empty = LanceTable.create(
        spark, str(tmp_path / "t"), "id bigint, vec array<float>",
        options={"vec.fixed_size_list": WIDTH},
    )  # fmt: skip
    assert empty.nearest([1.0] * WIDTH).collect() == []
    assert empty.nearest(table.toDF().select("vec")).collect() == []
    no_rows = table.toDF().where("id < 0").select("vec", "name")
    assert table.nearest(no_rows, columns=["id"]).collect() == []
    nothing = table.toDF().limit(1).selectExpr("id AS q", "CAST(NULL AS array<float>) AS vec")
    assert table.nearest(nothing, columns=["name"]).collect() == []


def test_invalid_nearest_calls_are_refused(spark, table):
    vector = [1.0] * WIDTH
    wrong = [
        (lambda: table.nearest(vector, k=0), "k, the number"),
        (lambda: table.nearest(vector, metric="manhattan"), "not a vector metric"),
        (lambda: table.nearest(vector[1:]), "a query has length 3"),
        (lambda: table.nearest([vector, [float("nan")] * WIDTH]), "query 1 holds NaN"),
        (lambda: table.nearest(vector, column="name"), "holds no vectors"),
        (lambda: table.nearest(vector, columns=["nope"]), "nope"),
        (lambda: table.nearest(vector, filter="nope > 1"), "nope"),
        (lambda: table.nearest("word"), "not vectors"),
        (lambda: table.nearest(vector, nearest=1), "takes no argument 'nearest'"),
        (lambda: table.nearest(table.toDF()), "'id' would be in the result twice"),
        (lambda: table.nearest(spark.range(3)), "no column 'vec' of arrays"),
    ]
    for call, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            call()
    short = spark.createDataFrame([([1.0, 2.0],)], "vec array<float>")
    with pytest.raises(InvalidInputError, match="a query has length 2"):
        table.nearest(short)


def test_wrong_query_length_is_reported_by_task(spark, table):
    many = spark.range(600).selectExpr(
        "CAST(id AS string) AS q", f"array_repeat(1F, IF(id = 500, 3, {WIDTH})) AS vec"
    )
    answer = table.nearest(many, columns=["id"])
    with pytest.raises(Exception, match=r"\[LANCE_INVALID_INPUT\] a query has length 3"):
        answer.collect()


def test_vector_index_is_built_on_executors(spark, tmp_path, numbers):
    path = str(tmp_path / "t")
    table = save(spark, path, numbers)
    result = table.createVectorIndex(
        "vec", "IVF_PQ", "cosine", numPartitions=4, numSubVectors=2, seed=1, userMetadata="codes"
    )
    assert (result.names, result.num_rows, result.num_fragments) == (("vec_idx",), 500, 3)
    assert table.history(1).first().userMetadata == "codes"
    (row,) = table.indices().collect()
    assert (row.name, row.kind, row.columns, row.numRows) == ("vec_idx", "vector", ["vec"], 500)
    assert not table.leftoverFiles()
    query = numbers[3].astype("f4")
    nearest = {"column": "vec", "q": pa.array(query), "k": 5, "nprobes": 2}
    dataset = lance.dataset(path)
    assert "ANN" in dataset.scanner(nearest=nearest).explain_plan()
    from_pylance = dataset.to_table(columns=["id", "_distance"], nearest=nearest)
    found = table.nearest(query, 5, nprobes=2, columns=["id"]).toArrow()
    assert found["id"].to_pylist() == from_pylance["id"].to_pylist()
    assert found["_distance"].to_pylist() == pytest.approx(
        from_pylance["_distance"].to_pylist(), 1e-4
    )
    assert table.refreshVectorIndices() == ()
    save(spark, path, numbers[:20], parts=1, start=1000)
    with pytest.raises(InvalidInputError, match="there is no vector index 'other'"):
        table.refreshVectorIndices("other")
    (added,) = table.refreshVectorIndices(userMetadata="more codes")
    assert (added.names, added.num_rows, added.num_fragments) == (("vec_idx",), 20, 1)
    assert table.history(1).first().userMetadata == "more codes"
    assert [row.numRows for row in table.indices().collect()] == [500, 20]
    joined = table.optimizeIndices("vec_idx")
    assert (joined.names, joined.numSegments, joined.numRows) == (("vec_idx",), 1, 520)
    save(spark, path, numbers[:5], parts=1, start=2000)
    table.createIndex("id")
    save(spark, path, numbers[:7], parts=1, start=3000)
    fresh = table.refreshIndices()
    assert (fresh.names, fresh.numRows) == (("id_idx", "vec_idx"), 19)
    table.dropIndex("id_idx")
    again = table.createVectorIndex("vec", "ivf_flat", replace=True)
    assert (again.num_partitions, table.indices().count()) == (1, 1)


def test_unindexable_vectors_are_refused(spark, tmp_path, table):
    with pytest.raises(InvalidInputError, match="the kinds are ivf_flat, ivf_pq, ivf_sq"):
        table.createVectorIndex("vec", "hnsw")
    with pytest.raises(InvalidInputError, match="holds no vectors"):
        table.createVectorIndex("name")
    nothing = save(spark, str(tmp_path / "nan"), np.full((3, WIDTH), np.nan), parts=1)
    with pytest.raises(InvalidInputError, match="no vector that can be indexed"):
        nothing.createVectorIndex()
    assert not nothing.leftoverFiles()


def test_nearest_is_read_option(spark, tmp_path, numbers):
    path = str(tmp_path / "t")
    table = save(spark, path, numbers)
    query = np.random.default_rng(8).normal(size=WIDTH)
    ids, distances = expected(query[None], numbers, 7)
    asked = {"column": "vec", "key": query.tolist(), "k": 7}

    def read(options=(), **more):
        text = json.dumps({**asked, **more})
        return (
            spark.read.format("lance").option("nearest", text).options(**dict(options)).load(path)
        )

    frame = read()
    assert frame.columns == ["id", "name", "vec", "_distance"]
    rows = frame.collect()
    assert [row.id for row in rows] == ids[0].tolist()
    assert [row._distance for row in rows] == pytest.approx(distances[0], rel=1e-5)
    assert frame.count() == 7
    assert [row.id for row in frame.select("id").collect()] == ids[0].tolist()
    assert [row.id for row in frame.limit(2).collect()] == ids[0][:2].tolist()
    first = int(ids[0][0])
    # What Spark tests is tested of what was found, what the option says before.
    assert [row.id for row in frame.where(f"id != {first}").collect()] == ids[0][1:].tolist()
    narrowed = read({"filter": f"id != {first}", "columns": "name", "metadataColumns": "_rowid"})
    assert narrowed.columns == ["name", "_rowid", "_distance"]
    assert [row.name for row in narrowed.collect()[:6]] == [f"n{i}" for i in ids[0][1:]]
    assert narrowed.count() == 7
    joined = frame.alias("a").join(frame.where(f"id = {first}").alias("b"), "id")
    assert [row.id for row in joined.collect()] == [first]
    table.delete(f"id = {first}")
    assert [row.id for row in read().collect()[:6]] == ids[0][1:].tolist()
    assert read({"version": "1"}).first().id == first
    table.createVectorIndex("vec", "ivf_flat", numPartitions=4, seed=1)
    as_lance_spark = read(
        minimumNprobes=1, maximumNprobes=4, useIndex=True, distanceType="L2", refineFactor=None
    )
    assert [row.id for row in as_lance_spark.collect()[:6]] == ids[0][1:].tolist()
    left = np.delete(np.arange(500), first)
    near_17 = left[expected(numbers[17:18], numbers[left], 3)[0][0]].tolist()
    several = read(key=[query.tolist(), numbers[17].tolist()], k=3, useIndex=False)
    assert several.columns == ["query_index", "id", "name", "vec", "_distance"]
    assert [(row.query_index, row.id) for row in several.select("query_index", "id").collect()] == [
        *((0, i) for i in ids[0][1:4].tolist()), *((1, i) for i in near_17),
    ]  # fmt: skip
    few = read(nprobes=1, k=400).count()
    assert few < 400 == read(nprobes=1, k=400, use_index=False).count()


def plan(path, text):
    """What Spark asks the source when it plans a read."""
    source = LanceDataSource({"path": path, "nearest": text})
    return source.reader(source.schema()).partitions()


def test_spark_shows_what_the_source_refuses(spark, table, tables_path):
    text = '{"key": [1, 2, 3]}'
    with pytest.raises(InvalidInputError) as error:
        plan(tables_path, text)
    with pytest.raises(AnalysisException, match=re.escape(error.value.what)):
        spark.read.format("lance").option("nearest", text).load(tables_path).collect()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "is no JSON object"),
        ("{", "is no JSON object"),
        ('{"k": 3}', "has no vector"),
        ('{"key": [1, true]}', "has no vector"),
        ('{"key": []}', "has no vector"),
        ('{"key": [[1, 2, 3, 4], 1]}', "has no vector"),
        ('{"key": [[1, 2, 3, 4], [1, 2]]}', "the queries are not vectors"),
        ('{"key": [1, 2, 3, 4], "probes": 3}', "has 'probes', which it does not know"),
        ('{"key": [1, 2, 3, 4], "use_index": 1}', "use_index that is neither true nor false"),
        ('{"key": [1, 2, 3, 4], "column": 1}', "column that is not a string"),
        ('{"key": [1, 2, 3, 4], "k": 0}', "k, the number of rows to find"),
        ('{"key": [1, 2, 3]}', "a query has length 3, but the column's vectors have length 4"),
        ('{"key": [1, 2, 3, 4], "metric": "hamming"}', "is not a vector metric"),
        ('{"key": [1, 2, 3, 4], "column": "name"}', "holds no vectors"),
    ],
)
def test_invalid_nearest_option_is_refused(table, tables_path, text, message):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        plan(tables_path, text)


ONE = [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("queries", "more", "message"),
    [
        ([1.0, 2.0, 3.0], {}, "a query has length 3, but the column's vectors have length 4"),
        ([ONE, ONE[1:]], {}, "the queries are not vectors"),
        ([], {}, "the queries have the shape|has no vector"),
        ([[]], {}, "the queries have the shape|has no vector"),
        ([1.0, None, 2.0, 3.0], {}, "query 0 holds NaN|has no vector"),
        ([0.0] * WIDTH, {"metric": "cosine"}, "query 0 has no direction"),
        (ONE, {"k": 0}, "k, the number of rows to find, must be at least 1, not 0"),
        (ONE, {"k": -3}, "k, the number of rows to find, must be at least 1, not -3"),
        (ONE, {"metric": "hamming"}, "is not a vector metric"),
        (ONE, {"column": "name"}, "holds no vectors"),
        (ONE, {"nprobes": 0}, "nprobes must be a number, at least 1"),
    ],
)
def test_nearest_method_and_option_refuse_same_arguments(
    table, tables_path, queries, more, message
):
    with pytest.raises(InvalidInputError, match=message):
        table.nearest(queries, **more)
    with pytest.raises(InvalidInputError, match=message):
        plan(tables_path, json.dumps({"key": queries, **more}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id"], "the table has no column of vectors"),
        (["id", "a", "b"], "the table has several columns of vectors: say which"),
    ],
)
def test_nearest_requires_unambiguous_vector_column(spark, tmp_path, columns, message):
    path = str(tmp_path / "t")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(ONE, pa.float32()), WIDTH)
    every = {"id": pa.array([1]), "a": vectors, "b": vectors}
    lance.write_dataset(pa.table({name: every[name] for name in columns}), path)
    table = LanceTable.forPath(spark, path)
    read = spark.read.format("lance")
    with pytest.raises(InvalidInputError, match=message):
        table.nearest(ONE)
    with pytest.raises(AnalysisException, match=message):
        read.option("nearest", json.dumps({"key": ONE})).load(path).collect()
    if "b" in columns:
        assert table.nearest(ONE, column="b").first()._distance == 0
        named = read.option("nearest", json.dumps({"key": ONE, "column": "b"})).load(path)
        assert named.first()._distance == 0


def test_nearest_handles_excess_k_and_other_metric(spark, tmp_path, numbers):
    path = str(tmp_path / "t")
    table = save(spark, path, numbers[:40])
    table.createVectorIndex("vec", "ivf_flat", "l2", numPartitions=4, seed=1)
    query = np.array(ONE, "f4")
    cosine = 1 - numbers[:40] @ query / np.linalg.norm(numbers[:40], axis=1) / np.linalg.norm(query)
    nearest = {
        "l2": ((numbers[:40].astype("f4") - query) ** 2).sum(axis=1),
        "cosine": cosine,  # which the index is not for
    }
    for metric, distances in nearest.items():
        text = json.dumps({"key": ONE, "k": 1000, "metric": metric})
        option = spark.read.format("lance").option("nearest", text).load(path)
        for found in (table.nearest(ONE, 1000, metric=metric), option):
            rows = found.collect()
            assert [row.id for row in rows] == np.argsort(distances, kind="stable").tolist()
            assert [row._distance for row in rows] == pytest.approx(np.sort(distances), rel=1e-4)


def test_streams_and_feeds_have_no_nearest_rows(spark, table, tables_path):
    read = {"nearest": '{"key": [1]}', "readChangeFeed": "true", "startingVersion": "1"}
    with pytest.raises(AnalysisException, match="the option nearest is not for change feeds"):
        spark.read.format("lance").options(**read).load(tables_path).schema  # noqa: B018
