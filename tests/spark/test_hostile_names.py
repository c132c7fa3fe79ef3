"""Names and values that mean something in SQL stay names and values in what LanceTable does."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from spark_releases import has
from table_access import read_ours, write_table

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.text_names import trailing_name
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.table.dml.row_change import ChangeResult

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


def test_hostile_value_equals_only_itself(spark, path):
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
    return f"{quote_name(name)} = '{escaped}'"


def test_sql_condition_matches_spark(spark, path):
    write_table(path, pa.table({"id": range(len(VALUES)), "s": VALUES}))
    table = LanceTable.forPath(spark, path)
    frame = table.toDF()
    conditions = [sf_text("s", value) for value in VALUES[::6]]
    conditions += [
        *('s = "a\'b"', "s = 'a' 'b'", r"s = r'\\'", r"s LIKE 'a\\%b'"),
        *("s = '--' -- id >= 0", "s = /* id >= 0 or */ '--'", r"s = 'a\u0027b'"),
    ]
    if has("quotes doubled in strings"):
        conditions.append("s = 'a''b'")
    for condition in conditions:
        wanted = {row.id for row in frame.where(condition).collect()}
        found = {row.id for row in table.scan(filter=condition).collect()}
        assert found == wanted, condition
    condition = " OR ".join(f"({one})" for one in conditions if "--" not in one)
    wanted = {row.id for row in frame.where(condition).collect()}
    table.delete(condition)
    assert set(values_of(path, "s")) == set(range(len(VALUES))) - wanted


def test_hostile_name_refers_only_to_its_column(spark, path):
    columns = {name: [f"{name}{row}" for row in range(3)] for name in NAMES}
    write_table(path, pa.table({"id": range(3), **columns}))
    table = LanceTable.forPath(spark, path)
    for name in NAMES[::12]:
        table.update(
            f"{quote_name(name)} IS NOT NULL AND id = 1", {quote_name(name): sf.lit("new")}
        )
        assert values_of(path, name) == {0: f"{name}0", 1: "new", 2: f"{name}2"}
    some = [*NAMES[1::8]]
    rows = [(5, *some), (2, *some)]
    schema = "id long, " + ", ".join(f"{quote_name(name)} string" for name in some)
    source = spark.createDataFrame(rows, schema)
    table.merge(source, "target.id = source.id").whenMatchedUpdateAll().whenNotMatchedInsert(
        values={quote_name(name): quote_name("source", name) for name in ["id", *some]}
    ).execute()
    for name in some:
        assert values_of(path, name) == {0: f"{name}0", 1: f"{name}1", 2: name, 5: name}
    key = NAMES[2]
    source = spark.createDataFrame([(f"{key}0",)], f"{quote_name(key)} string")
    merge = table.merge(source, f"{quote_name('target', key)} = {quote_name('source', key)}")
    assert merge.whenMatchedDelete().execute().num_deleted_rows == 1
    assert set(values_of(path, key)) == {1, 2, 5}
    for name, other in itertools.pairwise(NAMES[3::12]):
        table.renameColumn(quote_name(name), f"{other}!")
        assert f"{other}!" in table.toDF().columns
    table.dropColumns(quote_name(NAMES[-2]))
    assert NAMES[-2] not in table.toDF().columns
    table.addColumns({quote_name("' --"): sf.lit("'")})
    assert set(values_of(path, "' --").values()) == {"'"}


@pytest.mark.parametrize("text", ["id = 1 and", "id IN (1, 2) `n`", "id = 1 oops -- id = 2"])
def test_condition_with_trailing_word_is_refused(spark, path, text):
    # To Spark the word is an alias: rows would go for half of a condition.
    write_table(path, pa.table({"id": range(3), "n": range(3)}))
    table = LanceTable.forPath(spark, path)
    on_target = text.replace("id", "target.id")
    merge = table.merge(spark.range(3), "target.id = source.id")
    by_text = table.merge(spark.range(3), on_target)
    for change in (
        lambda: table.delete(text),
        lambda: table.update(text, {"n": "1"}),
        lambda: table.update("id = 1", {"id": "id + 1", "n": text}),
        lambda: table.addColumns({"more": text}),
        merge.whenMatchedUpdate(on_target, {"n": "1"}).execute,
        merge.whenNotMatchedInsert(values={"n": text.replace("id", "source.id")}).execute,
        by_text.whenMatchedDelete().execute,
    ):
        with pytest.raises(InvalidInputError, match="Spark would parse as an alias"):
            change()
    assert read_ours(path).num_rows == len(values_of(path, "n")) == 3
    assert table.history().count() == 1


@pytest.mark.parametrize(
    ("text", "name"),
    {
        "id = 1 and": "and", "id = 1 `b`": "`b`", "f(x) y -- and": "y", "a[1] or": "or",
        "'x' b": "b", "id IN (1, 2) id": "id", "CASE WHEN a THEN 1 ELSE 2 END": "END",
        "x < now() - INTERVAL 1 DAY": "DAY", "id": None, "a.b": None, "NOT a": None, "x = y": None,
        "a AND b": None, "x IS NULL": None, "x IS NOT TRUE": None, "x LIKE y": None, "a, b": None,
        "(id = 1) -- and": None, "a IS DISTINCT FROM b": None, "x AS y": None, "": None,
    }.items(),
)  # fmt: skip
def test_trailing_name_finds_possible_alias(text, name):
    assert trailing_name(text) == name


def test_trailing_name_of_value_is_not_alias(spark, path):
    write_table(path, pa.table({"id": range(3), "n": range(3)}))
    table = LanceTable.forPath(spark, path)
    assert table.delete("now() < TIMESTAMP '2020-01-01' + INTERVAL 1 DAY") == ChangeResult()
    value = "CASE WHEN id = 1 THEN 7 ELSE 8 END"
    assert table.update(f"{value} = 7", {"n": f"{value} AS n"}).num_updated_rows == 1
    assert values_of(path, "n") == {0: 0, 1: 7, 2: 2}
