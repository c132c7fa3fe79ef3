"""Spark's trees of Columns say what a condition demands and names; test_connect has them again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from table_access import read_ours, write_table

from pyspark_lance import LanceTable
from pyspark_lance.spark.expressions.column_expressions import (
    conjuncts,
    equation,
    name_parts,
    names_in,
    node_of,
    reference,
    sql_text,
)

pytestmark = pytest.mark.spark

COL = sf.col
# A condition, and the equations of names that it demands, with None for each other part.
CONDITIONS = {
    "an equation": (lambda: COL("t.id") == COL("s.id"), [(("t", "id"), ("s", "id"))]),
    "several": (
        lambda: (COL("t.id") == COL("s.id")) & (COL("a") > 1) & (COL("t.k") == COL("s.k")),
        [(("t", "id"), ("s", "id")), None, (("t", "k"), ("s", "k"))],
    ),
    "one of two": (lambda: (COL("t.id") == COL("s.id")) | (COL("t.k") == COL("s.k")), [None]),
    "not": (lambda: ~(COL("t.id") == COL("s.id")), [None]),
    "null safe": (lambda: COL("t.id").eqNullSafe(COL("s.id")), [None]),
    "a constant like a name": (lambda: COL("t.id") == sf.lit("s.id"), [None]),
    "a constant like an equation": (
        lambda: COL("t.id") == sf.lit("x), =(t.id, s.id"), [None]
    ),
    "a constant with a quote": (lambda: COL("t.id") == sf.lit("it's s.id"), [None]),
    "dots in a name": (
        lambda: COL("`t.id`") == COL("s.`a.b`.c"), [(("t.id",), ("s", "a.b", "c"))]
    ),
    "backquotes in a name": (lambda: COL("t.`a``b`") == COL("s.id"), [(("t", "a`b"), ("s", "id"))]),
    "no letters of ours": (
        lambda: COL("t.größe") == COL("s.`大 小`"), [(("t", "größe"), ("s", "大 小"))]
    ),
    "an alias": (lambda: (COL("t.id") == COL("s.id")).alias("t.id = s.id"), [None]),
    "a cast": (lambda: COL("t.id").cast("int") == COL("s.id"), [None]),
    "functions": (lambda: sf.upper(sf.trim(COL("t.id"))) == COL("s.id"), [None]),
    "a member": (lambda: COL("t.id") == COL("s.id")["x"], [None]),
    "a text": (lambda: sf.expr("t.id = s.id"), [(("t", "id"), ("s", "id"))]),
    "a text of several": (
        lambda: sf.expr("t.id = s.id AND t.`a.b` == s.`c``d` AND t.x = 'a = b'"),
        [(("t", "id"), ("s", "id")), (("t", "a.b"), ("s", "c`d")), None],
    ),
    "a text in an equation": (
        lambda: sf.expr("t.id") == sf.expr("s.id"), [(("t", "id"), ("s", "id"))]
    ),
    "a text and an equation": (
        lambda: sf.expr("t.id = s.id OR true") & (COL("t.k") == COL("s.k")),
        [None, (("t", "k"), ("s", "k"))],
    ),
    "a constant without quotes": (lambda: sf.expr("t.id = true"), [None]),
}  # fmt: skip

# Expressions, and which of the names a, b, "c d", "e.f", "g`h" they mention; None for all.
MENTIONS = {
    "a name": (lambda: COL("t.a"), {"a"}),
    "odd names": (lambda: COL("`c d`") > COL("x.`e.f`") + COL("`g``h`"), {"c d", "e.f", "g`h"}),
    "a constant": (lambda: COL("a") == sf.lit("b"), {"a"}),
    "a text": (lambda: sf.expr("`g``h`[0] > 1 AND A = 'b'"), {"a", "g`h"}),
    "a case": (lambda: sf.when(COL("a") > 1, COL("b")).otherwise(3), {"a", "b"}),
    "a lambda": (lambda: sf.transform("a", lambda x: x + COL("b")), {"a", "b"}),
    "a list": (lambda: COL("a").isin(*range(50)), {"a"}),
    "a change of a struct": (lambda: COL("a").withField("b", COL("`c d`")), {"a", "c d"}),
    "a cast of a call": (lambda: sf.call_function("upper", COL("a")).cast("int").alias("b"), {"a"}),
    "all columns": (lambda: sf.struct(COL("*")), None),
    "a text of all columns": (lambda: sf.expr("to_json(struct(*))"), None),
}  # fmt: skip


def found_equations(make):
    return [equation(node) for node in conjuncts(make())]


def found_names(make):
    found = names_in([make()])
    names = {"a", "b", "c d", "e.f", "g`h"}
    return None if found.may_be_any else names & (found.qualifiers | found.ends)


@pytest.mark.parametrize("name", CONDITIONS)
def test_column_equations_are_found(spark, name):
    make, expected = CONDITIONS[name]
    assert found_equations(make) == expected


@pytest.mark.parametrize("name", MENTIONS)
def test_column_names_are_found(spark, name):
    make, expected = MENTIONS[name]
    assert found_names(make) == expected


def test_dataframe_columns_and_python_functions_show_names(spark):
    frame = spark.range(3).alias("t")
    plus = sf.udf(lambda x: x + 1, "bigint")
    assert found_equations(lambda: frame["id"] == COL("s.id")) == [None]
    assert names_in([frame["id"] == COL("s.k")]).ends == {"id", "k"}
    assert names_in([plus(COL("t.id")) > 1]).ends == {"id"}
    assert names_in([COL("a") == frame.select(sf.max("id")).scalar()]).may_be_any


def test_expression_text_is_kept(spark):
    assert sql_text("id > 3") == sql_text(sf.expr("id > 3")) == "id > 3"
    assert sql_text(COL("id") > 3) is None
    assert reference(node_of(COL("t.`a.b`"))) == reference(node_of("t . `a.b`")) == ("t", "a.b")


def test_connect_names_are_parsed():
    assert name_parts("t.`a.b`.`c``d`.e f") == ("t", "a.b", "c`d", "e f")


def test_merges_with_special_column_names_match_rows(spark, tmp_path):
    path = str(tmp_path / "t")
    rows = {"id": [1, 2, 3], "a b": ["x", "t.id = s.id", "it's"], "g`h": [10, 20, 30]}
    write_table(path, pa.table(rows))
    table = LanceTable.forPath(spark, path).alias("t")
    assert table.update(COL("a b") == "it's", {"id": COL("`g``h`") - 27}).num_updated_rows == 1
    source = spark.createDataFrame([(2, 20, -2), (3, 7, -3)], ["id", "g`h", "v"]).alias("s")
    on = (COL("t.id") == COL("s.id")) & (COL("t.`g``h`") == COL("s.`g``h`"))
    merge = table.merge(source, on & (COL("t.`a b`") == sf.lit("t.id = s.id")))
    assert merge.whenMatchedUpdate(set={"id": COL("s.v")}).execute().num_updated_rows == 1
    assert table.delete(sf.expr("`a b` = 'x'")).num_deleted_rows == 1
    assert sorted(read_ours(path)["id"].to_pylist()) == [-2, 3]
    assert sorted(read_ours(path)["g`h"].to_pylist()) == [20, 30]
