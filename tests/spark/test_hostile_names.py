"""Names and values that mean something in SQL stay names and values in what LanceTable does."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from table_access import read_ours, write_table

from pyspark_lance import LanceTable
from pyspark_lance.spark.expressions.expressions import quoted

pytestmark = pytest.mark.spark

SIGNS = [
    *("'", '"', "`", "\\", "--", "/*", "*/", ";", "\n", "\r", "\t", "\x1b[31m", "%s", "%", "{}"),
    *("{0}", "$x", ":x", "?", ",", "(", ")", " OR ", "=", "source", "target", "\u2028", "é"),
]
NAMES = [f"a{sign}b" for sign in SIGNS] + ["' OR '1'='1", "`) OR (`id", "--", "x` AS `id", "*"]
VALUES = [
    *NAMES,
    *("'' OR true --", "\\' OR 1=1 --", "\\\\", "''", "\\u0041", "source.id", "NULL", "a.b"),
]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def values_of(path, name):
    rows = read_ours(path)
    return dict(zip(rows["id"].to_pylist(), rows[name].to_pylist(), strict=True))


def test_a_value_is_only_equal_to_itself(spark, path):
    write_table(path, pa.table({"id": range(len(VALUES)), "s": VALUES, "n": [0] * len(VALUES)}))
    table = LanceTable.forPath(spark, path)
    for number in range(0, len(VALUES), 7):
        table.update(sf.col("s") == VALUES[number], {"n": sf.lit(1)})
    expected = {number: int(number % 7 == 0) for number in range(len(VALUES))}
    assert values_of(path, "n") == expected
    source = spark.createDataFrame(
        [(value, f"{value}!") for value in VALUES[1::7]], "s string, v string"
    )
    merge = table.merge(source, "target.s = source.s")
    merge.whenMatchedUpdate(set={"s": "source.v"}).execute()
    expected = {n: f"{value}!" if n % 7 == 1 else value for n, value in enumerate(VALUES)}
    assert values_of(path, "s") == expected
    table.delete(sf.col("s").isin(VALUES[::7]))
    left = {n: value for n, value in expected.items() if n % 7}
    assert values_of(path, "s") == left
    chosen = [n for n in left if n % 7 != 1][:4]
    for number in chosen:
        assert table.scan(filter=sf_text("s", VALUES[number])).count() == 1


def sf_text(name, value):
    """A condition in SQL, with the signs that Spark escapes."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{quoted(name)} = '{escaped}'"


def test_a_condition_in_sql_means_what_spark_says(spark, path):
    write_table(path, pa.table({"id": range(len(VALUES)), "s": VALUES}))
    table = LanceTable.forPath(spark, path)
    frame = table.toDF()
    conditions = [sf_text("s", value) for value in VALUES[::6]]
    conditions += [
        *("s = 'a''b'", 's = "a\'b"', "s = 'a' 'b'", r"s = r'\\'", r"s LIKE 'a\\%b'"),
        *("s = '--' -- id >= 0", "s = /* id >= 0 or */ '--'", r"s = 'a\u0027b'"),
    ]
    for condition in conditions:
        wanted = {row.id for row in frame.where(condition).collect()}
        found = {row.id for row in table.scan(filter=condition).collect()}
        assert found == wanted, condition
    condition = " OR ".join(f"({one})" for one in conditions if "--" not in one)
    wanted = {row.id for row in frame.where(condition).collect()}
    table.delete(condition)
    assert set(values_of(path, "s")) == set(range(len(VALUES))) - wanted


def test_a_name_is_only_the_column_that_has_it(spark, path):
    columns = {name: [f"{name}{row}" for row in range(3)] for name in NAMES}
    write_table(path, pa.table({"id": range(3), **columns}))
    table = LanceTable.forPath(spark, path)
    for name in NAMES[::12]:
        table.update(f"{quoted(name)} IS NOT NULL AND id = 1", {quoted(name): sf.lit("new")})
        assert values_of(path, name) == {0: f"{name}0", 1: "new", 2: f"{name}2"}
    some = [*NAMES[1::8]]
    rows = [(5, *some), (2, *some)]
    schema = "id long, " + ", ".join(f"{quoted(name)} string" for name in some)
    source = spark.createDataFrame(rows, schema)
    table.merge(source, "target.id = source.id").whenMatchedUpdateAll().whenNotMatchedInsert(
        values={quoted(name): quoted("source", name) for name in ["id", *some]}
    ).execute()
    for name in some:
        assert values_of(path, name) == {0: f"{name}0", 1: f"{name}1", 2: name, 5: name}
    key = NAMES[2]
    source = spark.createDataFrame([(f"{key}0",)], f"{quoted(key)} string")
    merge = table.merge(source, f"{quoted('target', key)} = {quoted('source', key)}")
    assert merge.whenMatchedDelete().execute().num_deleted_rows == 1
    assert set(values_of(path, key)) == {1, 2, 5}
    for name, other in itertools.pairwise(NAMES[3::12]):
        table.renameColumn(quoted(name), f"{other}!")
        assert f"{other}!" in table.toDF().columns
    table.dropColumns(quoted(NAMES[-2]))
    assert NAMES[-2] not in table.toDF().columns
    table.addColumns({quoted("' --"): sf.lit("'")})
    assert set(values_of(path, "' --").values()) == {"'"}
