"""Merges that bring columns to the table."""

from __future__ import annotations

import shutil

import pytest
from pyspark.sql import functions as sf
from spark_sessions import session_settings

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError, LanceError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    """Two rows with a struct, of which each test has a copy."""
    rows = spark.sql(
        "SELECT 1L AS id, 'a' AS s, named_struct('x', 1) AS st UNION ALL SELECT 2L, 'b', "
        "named_struct('x', 2)"
    )
    path = str(tmp_path_factory.mktemp("written") / "table")
    rows.write.format("lance").mode("append").save(path)
    return path


@pytest.fixture
def table(spark, written, tmp_path):
    return LanceTable.forPath(spark, shutil.copytree(written, str(tmp_path / "table")))


def rows_of(table, *columns):
    return sorted(tuple(row) for row in table.toDF().select(*columns).collect())


def test_evolving_merge_adds_all_source_columns(spark, table):
    source = spark.sql(
        "SELECT 2L AS ID, array(1.5f, 2.5f) AS emb, named_struct('y', 'new', 'x', 7) AS st, "
        "'hid' AS _rowid UNION ALL SELECT 3L, array(3.5f), named_struct('y', 'n', 'x', 8), 'hid'"
    )
    merge = table.merge(source, "target.id = source.id").withSchemaEvolution()
    done = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert (done.num_updated_rows, done.num_inserted_rows, done.version) == (1, 1, 3)
    assert table.toDF().columns == ["id", "s", "st", "emb"]
    assert rows_of(table, "id", "s", "st.x", "st.y", "emb") == [
        (1, "a", 1, None, None), (2, "b", 7, "new", [1.5, 2.5]), (3, None, 8, "n", [3.5]),
    ]  # fmt: skip
    again = table.merge(source, "target.id = source.id").withSchemaEvolution()
    assert again.whenMatchedUpdateAll().execute().version == 4  # no version for columns


def test_evolving_merge_adds_only_named_columns(spark, table):
    source = spark.createDataFrame([(1, 10, 20, 30)], "id bigint, `a b` int, other int, more int")
    merge = table.merge(source, "target.id = source.id").withSchemaEvolution()
    merge.whenMatchedUpdate(set={"`a b`": "source.`a b` + 1", "s": sf.lit("z")}).execute()
    assert table.toDF().columns == ["id", "s", "st", "a b"]
    assert rows_of(table, "id", "s", "`a b`") == [(1, "z", 11), (2, "b", None)]
    merge = table.merge(source, "target.id = source.id").withSchemaEvolution()
    with pytest.raises(InvalidInputError, match="no column 'nowhere' to set"):
        merge.whenMatchedUpdate(set={"nowhere": "1"}).execute()


def test_merge_without_evolution_adds_no_columns(spark, table):
    source = spark.createDataFrame([(1, 10)], "id bigint, more int")
    merge = table.merge(source, "target.id = source.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert table.toDF().columns == ["id", "s", "st"]


def test_unstorable_columns_are_refused_without_changes(spark, table):
    source = spark.sql("SELECT 1L AS id, INTERVAL 1 MONTH AS span")
    merge = table.merge(source, "target.id = source.id").withSchemaEvolution()
    with pytest.raises(LanceError, match="span"):
        merge.whenMatchedUpdateAll().execute()
    assert (table.toDF().columns, table.detail().first().version) == (["id", "s", "st"], 1)


def test_numbered_evolving_merge_adds_columns_once(spark, table):
    source = spark.createDataFrame([(5, 10)], "id bigint, more int")
    for _ in range(2):
        merge = table.merge(source, "target.id = source.id", txnAppId="job", txnVersion="1")
        merge.withSchemaEvolution().whenNotMatchedInsertAll().execute()
    assert rows_of(table, "id", "more") == [(1, None), (2, None), (5, 10)]


def test_struct_members_match_by_name(spark, tmp_path):
    """In lists, maps and other structs, too; a null struct stays one."""
    kind = "struct<x: int, in: struct<p: bigint, q: string>>"
    path = str(tmp_path / "nested")
    columns = f"id int, s {kind}, l array<{kind}>, m map<string, {kind}>"
    spark.createDataFrame([], columns).write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    value = "named_struct('IN', named_struct('q', 'two', 'p', 1), 'x', 5)"
    source = spark.sql(
        f"SELECT 1 AS id, {value} AS s, array({value}, null) AS l, map('k', {value}) AS m "
        "UNION ALL SELECT 2, null, null, null"
    )
    table.merge(source, "target.id = source.id").whenNotMatchedInsertAll().execute()
    held = (5, (1, "two"))
    assert rows_of(table, "id", "s", "l", "m") == [
        (1, held, [held, None], {"k": held}), (2, None, None, None),
    ]  # fmt: skip
    with pytest.raises(InvalidInputError, match="the same fields"):
        table.update("id = 1", {"s": "named_struct('x', 5)"})


def test_nulls_and_empty_lists_fit_structs(spark, tmp_path):
    """Spark has no type for a null that no one casts."""
    path = str(tmp_path / "nested")
    columns = "id int, s struct<x: int>, l array<struct<x: int>>, n struct<i: struct<x: int>>"
    made = spark.createDataFrame([(1, (1,), [(1,)], ((1,),))], columns)
    made.write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    table.update("id = 1", {"s": "null", "l": "array()", "n": "named_struct('i', null)"})
    assert rows_of(table, "id", "s", "l", "n") == [(1, None, [], (None,))]
    source = spark.sql("SELECT 1 AS id, null AS s, array(null) AS l, null AS n")
    table.merge(source, "target.id = source.id").whenMatchedUpdateAll().execute()
    assert rows_of(table, "id", "s", "l", "n") == [(1, None, [None], None)]


def test_unfitting_members_are_refused(spark, tmp_path):
    """Also where Spark's own casts would wrap them around, or make them null."""
    path = str(tmp_path / "nested")
    columns = "id int, s struct<x: int>, l array<int>, m map<int, int>"
    made = spark.createDataFrame([(1, (1,), [1], {1: 1})], columns)
    made.write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    with session_settings(spark, {"spark.sql.ansi.enabled": "false"}):
        for column, value, what in (
            ("s", "named_struct('x', 3000000000)", "'s.x' does not fit int: 3000000000"),
            ("s", "named_struct('x', 'abc')", "'s.x' does not fit int: abc"),
            ("l", "array(1, 3000000000)", "'l.element' does not fit int: 3000000000"),
            ("m", "map(3000000000, 1)", "'m.key' does not fit int: 3000000000"),
            ("m", "map(1, 3000000000)", "'m.value' does not fit int: 3000000000"),
        ):
            with pytest.raises(LanceError, match=what):
                table.update("id = 1", {column: value})
    assert rows_of(table, "id", "s", "l", "m") == [(1, (1,), [1], {1: 1})]
