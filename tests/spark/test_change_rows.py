"""Delete, update and merge through Spark: each clause once, and what only Spark can evaluate."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf
from table_access import assert_same_rows, read_ours, read_pylance, write_table
from table_files import files_of, used_files

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.jobs.update_job import SparkStages
from pyspark_lance.table.dml.row_change import ChangeResult

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def make(path, rows=6, **more):
    """ids 0.., v = 10 * id, s = letters; three rows in each file."""
    columns = {
        "id": pa.array(range(rows), pa.int64()),
        "v": pa.array([10 * i for i in range(rows)], pa.int32()),
        "s": pa.array([chr(97 + i % 26) for i in range(rows)]),
        **more,
    }
    write_table(path, pa.table(columns), max_rows_per_file=3)


def contents(path):
    """Rows without lineage, checked to be the same for us and for pylance."""
    ours, from_pylance = read_ours(path), read_pylance(path)
    assert_same_rows(ours, from_pylance)
    lance.dataset(path).validate()
    names = [name for name in ours.column_names if not name.startswith("_row")]
    return sorted(tuple(row.values()) for row in ours.select(names).to_pylist())


def lineage(path, key):
    """(row id, created, updated) of the row with this id."""
    rows = [row for row in read_ours(path).to_pylist() if row["id"] == key]
    assert len(rows) == 1
    names = ("_rowid", "_row_created_at_version", "_row_last_updated_at_version")
    return tuple(rows[0][name] for name in names)


def test_delete_by_condition_row_id_and_subquery(spark, path):
    make(path)
    table = LanceTable.forPath(spark, path)
    assert table.delete("id = 1 OR v > 45") == ChangeResult(2, num_deleted_rows=2)
    assert table.delete("_rowid IN (0, 99)") == ChangeResult(3, num_deleted_rows=1)
    assert table.delete("id = 1") == ChangeResult()
    assert table.delete("CAST(NULL AS boolean)") == ChangeResult()
    spark.createDataFrame([(2,), (None,)], "k bigint").createOrReplaceTempView("gone_keys")
    result = table.alias("t").delete("EXISTS (SELECT 1 FROM gone_keys WHERE k = t.id)")
    assert result == ChangeResult(4, num_deleted_rows=1)
    assert [row[0] for row in contents(path)] == [3, 4]
    assert table.delete() == ChangeResult(5, num_deleted_rows=2)
    assert contents(path) == []


def test_update_with_expressions_functions_and_members_of_structs(spark, path):
    point = pa.array([{"x": i, "y": -i} for i in range(5)] + [None])
    make(path, p=point)
    table = LanceTable.forPath(spark, path)
    twice = sf.udf(lambda v: 2 * v, "int")
    result = table.update(sf.col("id") % 2 == 0, {"v": twice("v"), "p.x": "id + 100"})
    assert result == ChangeResult(2, num_updated_rows=3)
    assert table.update(set={"s": sf.upper("s")}) == ChangeResult(3, num_updated_rows=6)
    assert table.update("target.id = 1", {"target.v": "target.v + 1"}).num_updated_rows == 1
    assert contents(path)[:3] == [
        (0, 0, "A", {"x": 100, "y": 0}),
        (1, 11, "B", {"x": 1, "y": -1}),
        (2, 40, "C", {"x": 102, "y": -2}),
    ]
    assert lineage(path, 1) == (1, 1, 4)
    assert lineage(path, 2) == (2, 1, 3)
    # A member of a null struct makes the struct, as in Spark SQL; what is no text is a literal.
    assert table.update("p IS NULL", {"p.y": "7", "v": 5, "s": None}).num_updated_rows == 1
    source = spark.createDataFrame([(9,)], "id bigint")
    merge = table.merge(source, "target.id = source.id")
    merge.whenNotMatchedInsert(values={"id": "source.id", "v": 6, "p.x": 8}).execute()
    assert contents(path)[5:] == [
        (5, 5, None, {"x": None, "y": 7}), (9, 6, None, {"x": 8, "y": None}),
    ]  # fmt: skip
    with pytest.raises(InvalidInputError, match="no field 'z'"):
        table.update("id = 1", {"p.z": "1"})


@pytest.mark.parametrize("name", ["e`f", "*", "a b"])
def test_columns_with_any_name_are_updated_and_merged(spark, path, name):
    make(path, 3)
    table = LanceTable.forPath(spark, path)
    column = "`" + name.replace("`", "``") + "`"
    table.renameColumn("v", name)
    table.update("id = 1", {column: "7"}, rewrite="rows")
    table.update("id = 2", {column: "8"}, rewrite="columns")
    source = spark.sql(f"SELECT 2L AS id, 9 AS {column}, 'x' AS s UNION ALL SELECT 5L, 6, 'y'")
    merge = table.merge(source, "target.id = source.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    table.delete(f"{column} = 0")
    # pylance cannot ask for all columns of a table with such names.
    ours = read_ours(path, system_columns=()).to_pylist()
    rows = sorted(tuple(row.values()) for row in ours)
    assert rows == [(1, 7, "b"), (2, 9, "x"), (5, 6, "y")]


def test_unfitting_value_is_refused_without_changes(spark, path):
    make(path)
    table = LanceTable.forPath(spark, path)
    before = contents(path)
    with pytest.raises(Exception, match="does not fit int: 30000000000"):
        table.update("id = 3", {"v": "id * 10000000000"})
    with pytest.raises(InvalidInputError, match="no column 'nothing'"):
        table.update("id = 3", {"nothing": "1"})
    # Spark shows its plan, which contains the message for values that do not fit.
    with pytest.raises(AnalysisException, match=r"MISSING_GROUP_BY|aggregate"):
        table.update("id = 3", {"s": "sum(id)"})
    assert contents(path) == before
    assert lance.dataset(path).version == 1


def test_killed_python_worker_changes_nothing(spark, path):
    make(path)
    table = LanceTable.forPath(spark, path)
    before = contents(path)

    def kill(v):
        if v == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return v

    with pytest.raises(Exception, match=r"(?i)python worker|crashed"):
        table.update(set={"v": sf.udf(kill, "int")("v")})
    assert contents(path) == before
    # What the dead worker, and those of the other tasks, had written is listed, and can go.
    left = table.leftoverFiles()
    assert {one.path for one in left} == files_of(path) - used_files(path)
    assert table.removeLeftoverFiles() == []  # too young
    assert table.removeLeftoverFiles(0, force=True) == left
    assert files_of(path) == used_files(path)
    assert table.update("id = 4", {"v": "1"}, txnAppId="a", txnVersion="7").version == 2
    assert table.update("id = 4", {"v": "2"}, txnAppId="a", txnVersion="7").version is None
    assert contents(path)[4] == (4, 1, "e")


def test_upsert_keeps_row_ids_and_assigns_new_ones(spark, path):
    make(path)
    table = LanceTable.forPath(spark, path)
    source = spark.createDataFrame(
        [(4, 444, "M"), (9, 999, "N"), (None, 1, "?")], "id long, v int, s string"
    )
    result = (
        table.alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll("s.id IS NOT NULL")
        .execute()
    )
    assert result == ChangeResult(2, num_inserted_rows=1, num_updated_rows=1)
    assert contents(path)[4:] == [(4, 444, "M"), (5, 50, "f"), (9, 999, "N")]
    assert lineage(path, 4) == (4, 1, 2)
    assert lineage(path, 9) == (6, 2, 2)


def test_merge_clauses_apply_in_order_with_partial_source(spark, path):
    make(path, rows=8)
    table = LanceTable.forPath(spark, path)
    source = spark.createDataFrame(
        [(0, 1), (1, 2), (2, 3), (3, None), (20, 4), (21, 5), (22, 6)], "id long, n int"
    )
    result = (
        table.merge(source, "target.id = source.id")
        .whenMatchedDelete("source.n = 1")
        .whenMatchedUpdate("source.n < 3", set={"v": "target.v + source.n"})
        .whenMatchedUpdate("source.n = 3", {"s": sf.concat("target.s", sf.lit("!"))})
        .whenNotMatchedInsert("source.n = 4", values={"id": "source.id", "s": "'new'"})
        .whenNotMatchedInsert("source.n > 5", {"id": "source.id", "v": "n"})
        .whenNotMatchedBySourceUpdate("target.id = 4", {"v": "-1"})
        .whenNotMatchedBySourceDelete("target.id > 6")
        .execute()
    )
    assert result == ChangeResult(2, num_inserted_rows=2, num_updated_rows=3, num_deleted_rows=2)
    assert contents(path)[:6] == [
        (1, 12, "b"), (2, 20, "c!"), (3, 30, "d"), (4, -1, "e"), (5, 50, "f"), (6, 60, "g"),
    ]  # fmt: skip
    assert contents(path)[6:] == [(20, None, "new"), (22, 6, None)]
    again = table.merge(source, "target.id = source.id").whenMatchedDelete("n = 100").execute()
    assert again == ChangeResult()


def test_duplicate_source_match_error_shows_key(spark, path):
    make(path)
    table = LanceTable.forPath(spark, path)
    source = spark.createDataFrame([(3, 1), (3, 2), (8, 3), (8, 4)], "id long, v int").alias("s")
    with pytest.raises(InvalidInputError, match="id = 3, _rowid = 3"):
        table.alias("t").merge(source, "t.id = s.id").whenMatchedUpdateAll().execute()
    files = list((Path(path) / "data").iterdir())
    assert len(files) == 2  # nothing is left of the attempt
    result = table.alias("t").merge(source, "t.id = s.id").whenMatchedDelete().execute()
    assert result == ChangeResult(2, num_deleted_rows=1)
    result = (
        table.alias("t").merge(source, "t.id = s.id").whenNotMatchedInsertAll("s.id = 8").execute()
    )
    assert result.num_inserted_rows == 2


def test_null_keys_match_only_null_safe(spark, path):
    write_table(path, pa.table({"id": pa.array([None, 1], pa.int64()), "v": pa.array([1, 2])}))
    table = LanceTable.forPath(spark, path).alias("t")
    source = spark.createDataFrame([(None, 7)], "id long, v long").alias("s")
    assert table.merge(source, "t.id = s.id").whenMatchedUpdateAll().execute() == ChangeResult()
    safe = table.merge(source, sf.col("t.id").eqNullSafe(sf.col("s.id"))).whenMatchedUpdateAll()
    assert safe.execute() == ChangeResult(2, num_updated_rows=1)
    assert read_ours(path).sort_by("v").select(["id", "v"]).to_pylist() == [
        {"id": 1, "v": 2},
        {"id": None, "v": 7},
    ]


def test_merge_by_previously_read_row_ids(spark, path):
    make(path)
    table = LanceTable.forPath(spark, path)
    read = table.scan(["_rowid", "v"], "id > 3").selectExpr("_rowid AS r", "v + 1 AS v")
    result = table.merge(read, "target._rowid = source.r").whenMatchedUpdateAll().execute()
    assert result == ChangeResult(2, num_updated_rows=2)
    assert contents(path)[4:] == [(4, 41, "e"), (5, 51, "f")]


def vectors_of(path):
    """The vectors by id, as both libraries read them."""
    contents(path)
    rows = lance.dataset(path).to_table()
    assert rows.schema.field("emb").type == pa.list_(pa.float32(), 3)
    return dict(zip(rows["id"].to_pylist(), rows["emb"].to_pylist(), strict=True))


def test_null_vector_batches_are_updated_merged_and_appended(spark, path):
    make(path, emb=pa.array([[i, 0, 1] for i in range(6)], pa.list_(pa.float32(), 3)))
    table = LanceTable.forPath(spark, path)
    assert table.update("id < 3", {"emb": "NULL"}).num_updated_rows == 3  # all of a file
    assert table.update(set={"emb": sf.lit(None)}).num_updated_rows == 6
    assert vectors_of(path) == dict.fromkeys(range(6))
    bare = spark.createDataFrame([(3, None), (9, None)], "id long, emb array<float>")
    upsert = table.merge(bare, "target.id = source.id")
    upsert.whenMatchedUpdate(set={"emb": "source.emb"}).whenNotMatchedInsert(
        values={"id": "source.id", "emb": "source.emb"}
    ).execute()
    rows = spark.createDataFrame(
        [(10, 1, "x", None), (11, 2, "y", None)], "id long, v int, s string, emb array<float>"
    )
    rows.coalesce(1).write.format("lance").mode("append").save(path)
    assert vectors_of(path) == dict.fromkeys([*range(6), 9, 10, 11])
    table.update("id = 11", {"emb": "array(1f, 2f, 3f)"})
    assert vectors_of(path)[11] == [1, 2, 3]


def test_changed_rows_of_fragment_share_task(spark):
    rows = spark.range(0, 400, 1, 4).selectExpr("id % 3 AS part")
    for adapts in ("true", "false"):
        spark.conf.set("spark.sql.adaptive.enabled", adapts)
        try:
            near = SparkStages(spark).rebalance(rows, "part")
            tasks = near.select("part", sf.spark_partition_id()).distinct().collect()
        finally:
            spark.conf.unset("spark.sql.adaptive.enabled")
        assert len(tasks) == 3
