"""Rows that come with the plan of a scan, as the plugin asks for them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import FloatType, LongType, StringType, StructField, StructType
from table_access import write_table

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.service.methods import methods
from pyspark_lance.spark.source import inline_small_scan
from pyspark_lance.table.index_build.column_indices import create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.nearest import search_plan
from pyspark_lance.table.scan import plan_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

COLUMNS = StructType([StructField("id", LongType()), StructField("s", StringType())])


def below(limit: int) -> str:
    """A condition, as the plugin sends it."""
    args = [{"column": ["id"]}, {"literal": limit, "type": "bigint"}]
    return json.dumps({"op": "<", "args": args})


BELOW_TEN = below(10)


@pytest.fixture
def path(tmp_path):
    """A table of 100 rows, at most 700 bytes of numbers and texts in Arrow for each ten."""
    where = str(tmp_path / "t")
    write_table(where, pa.table({"id": range(100), "s": [f"row {i}" for i in range(100)]}))
    return where


def plan(path, *, small=1 << 19, columns=COLUMNS, filter_option=None, **options):
    """The plan of a scan of the newest version, as the plugin receives it."""
    snapshot = Snapshot.open(Table(path))
    params = {
        "root": snapshot.uri,
        "version": snapshot.version,
        "columns": columns.json(),
        "small_bytes": small,
    }
    for name in {"filter", "limit", "transfer_mode"} & options.keys():
        params[name] = options.pop(name)
    if filter_option is not None:
        options["filter"] = filter_option
    return methods()["plan"]({"options": {"path": path, **options}, "params": params})


def rows_of(facts):
    """The rows of the Arrow streams in a plan, as the plugin reads them."""
    found = []
    for stream in facts["batches"]:
        found += pa.ipc.open_stream(stream).read_all().to_pylist()
    return found


def test_small_scan_rows_are_inlined_in_plan(path):
    facts = plan(path)
    assert rows_of(facts) == [{"id": i, "s": f"row {i}"} for i in range(100)]
    assert (facts["fragments"], facts["rows"]) == (1, 100)


def test_rows_are_not_inlined_without_request(path):
    left = {"fragments": 1, "rows": 100, "indices": []}
    assert methods()["plan"]({"options": {"path": path}}) == left


def test_scan_above_byte_limit_is_left_to_tasks(path):
    size = sum(stream.size for stream in plan(path)["batches"])
    assert len(rows_of(plan(path, small=size))) == 100
    assert plan(path, small=size - 1) == {"fragments": 1, "rows": 100, "indices": []}


def test_inlined_rows_respect_limit(path):
    assert rows_of(plan(path, limit=3, small=2000)) == [
        {"id": i, "s": f"row {i}"} for i in range(3)
    ]


def test_filtered_scan_is_inlined_if_small(path):
    assert [row["id"] for row in rows_of(plan(path, filter=BELOW_TEN))] == list(range(10))
    # Ten rows are fewer, but it takes reading all.
    size = sum(stream.size for stream in plan(path, limit=10)["batches"])
    assert "batches" not in plan(path, filter=BELOW_TEN, small=size)


def test_filtered_scan_with_limit_is_inlined(path, monkeypatch):
    size = sum(stream.size for stream in plan(path, filter=BELOW_TEN, limit=3)["batches"])
    first = [{"id": i, "s": f"row {i}"} for i in range(3)]
    # Of 100 rows the condition reads 8 bytes each.
    assert rows_of(plan(path, filter=BELOW_TEN, limit=3, small=size)) == first
    monkeypatch.setattr(inline_small_scan, "_MAX_CONDITION_BYTES", 800)
    assert rows_of(plan(path, filter=BELOW_TEN, limit=3, small=size)) == first
    monkeypatch.setattr(inline_small_scan, "_MAX_CONDITION_BYTES", 799)
    assert "batches" not in plan(path, filter=BELOW_TEN, limit=3, small=size)


def test_limit_counts_inlined_rows_of_all_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_scan, "_MIN_TASK_BYTES", 1)
    where = str(tmp_path / "wide")
    for first in (0, 50):
        ids = pa.array(range(first, first + 50))
        write_table(where, pa.table({"id": ids, "s": pa.array(["x" * 100] * 50)}))
    rows = rows_of(plan(where, filter=below(60), limit=55, small=9000))
    assert [row["id"] for row in rows] == list(range(55))


@pytest.mark.parametrize(("fragments", "is_read"), [(16, True), (17, False)])
def test_scan_of_many_fragments_is_left_to_tasks(tmp_path, fragments, is_read):
    where = str(tmp_path / "many")
    for first in range(fragments):
        write_table(where, pa.table({"id": [first], "s": ["x"]}))
    facts = plan(where)
    assert facts["fragments"] == fragments
    assert ("batches" in facts) == is_read
    if is_read:
        assert [row["id"] for row in rows_of(facts)] == list(range(fragments))


def test_partitioning_options_disable_inlining(path):
    assert "batches" not in plan(path, fragmentsPerPartition="1")


def test_damaged_file_is_left_to_tasks(path, tmp_path):
    (data,) = (tmp_path / "t" / "data").iterdir()
    data.write_bytes(data.read_bytes()[:-20])
    assert plan(path) == {"fragments": 1, "rows": 100, "indices": []}


def test_unsupported_scan_options_are_refused_in_plan(path):
    with pytest.raises(InvalidInputError, match="it is shared, copied or off"):
        plan(path, transfer_mode="sideways")
    with pytest.raises(InvalidInputError, match="readChangeFeed"):
        plan(path, startingVersion="1")


# Searches --------------------------------------------------------------------------------------

FOUND = StructType([*COLUMNS, StructField("_score", FloatType())])
NEAR = StructType([StructField("id", LongType()), StructField("_distance", FloatType())])


@pytest.fixture
def searched(tmp_path):
    """A table of 400 texts and vectors, with a full-text index."""
    where = str(tmp_path / "searched")
    vectors = pa.array([[float(i), 0.0] for i in range(400)], pa.list_(pa.float32(), 2))
    texts = [f"word{i % 40} common" for i in range(400)]
    write_table(
        where, pa.table({"id": range(400), "s": texts, "v": vectors}), max_rows_per_file=100
    )
    create_index(Table(where), IndexRequest(("s",), "inverted"))
    return where


def words(k, query="word7", **more):
    return {"search": json.dumps({"query": query, "k": k, "column": "s", **more})}


def test_small_search_rows_are_inlined_in_plan(searched):
    facts = plan(searched, columns=FOUND, **words(20))
    assert facts["rows"] == -1
    found = rows_of(facts)
    assert {row["id"] for row in found} == {i for i in range(400) if i % 40 == 7}
    assert all(row["_score"] > 0 and row["s"] == "word7 common" for row in found)


def test_inlined_search_respects_filter_and_limit(searched):
    below = plan(searched, columns=FOUND, filter_option="id < 100", **words(20))
    assert {row["id"] for row in rows_of(below)} == {7, 47, 87}
    assert len(rows_of(plan(searched, columns=FOUND, limit=2, **words(20)))) == 2


def test_small_vector_search_is_inlined(searched):
    nearest = json.dumps({"column": "v", "q": [17.2, 0.0], "k": 3})
    found = rows_of(plan(searched, columns=NEAR, nearest=nearest))
    assert [row["id"] for row in found] == [17, 18, 16]


def test_hybrid_search_is_inlined(searched):
    schema = StructType(
        [*FOUND, StructField("_text_score", FloatType()), StructField("_distance", FloatType())]
    )
    found = rows_of(plan(searched, columns=schema, **words(5, vector=[7.0, 0.0])))
    assert found[0]["id"] == 7


def test_near_duplicates_are_inlined(searched):
    more = {"near_duplicates": True, "max_distance": 0}
    found = rows_of(plan(searched, columns=NEAR, **words(3, "word7 common", **more)))
    assert [(row["id"], row["_distance"]) for row in found] == [(7, 0.0), (47, 0.0), (87, 0.0)]


def test_search_with_large_result_is_left_to_tasks(searched):
    every = words(None, "common")
    size = sum(stream.size for stream in plan(searched, columns=FOUND, **every)["batches"])
    assert plan(searched, columns=FOUND, small=size - 1, **every) == {"rows": -1, "indices": []}
    assert plan(searched, columns=FOUND, small=0, **words(1)) == {"rows": -1, "indices": []}


def test_large_search_is_left_to_tasks(searched, monkeypatch):
    nearest = json.dumps({"column": "v", "q": [17.2, 0.0], "k": 3})
    for schema, asked in ((FOUND, words(3)), (NEAR, {"nearest": nearest})):
        assert "batches" in plan(searched, columns=schema, **asked)
        with monkeypatch.context() as smaller:
            smaller.setattr(search_plan, "_SMALL_SEARCH_BYTES", 400)
            assert "batches" not in plan(searched, columns=schema, **asked)


def test_search_of_many_fragments_is_left_to_tasks(searched):
    schema = Snapshot.open(Table(searched)).schema.to_arrow()
    row = pa.table({"id": [1], "s": ["word7"], "v": [[0.0, 0.0]]}, schema=schema)
    for _ in range(13):  # and three of the index, for as many rows
        write_table(searched, row)
    assert "batches" in plan(searched, columns=FOUND, **words(3))
    write_table(searched, row)
    assert "batches" not in plan(searched, columns=FOUND, **words(3))


def test_failing_search_is_left_to_tasks(searched):
    assert "batches" not in plan(searched, columns=FOUND, **words(3, operator="and", column="id"))
