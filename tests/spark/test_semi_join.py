"""Merges into tables that are large enough for the keys of the source to be found first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from table_access import read_ours, write_table

from pyspark_lance import LanceTable
from pyspark_lance.spark.expressions.column_expressions import conjuncts
from pyspark_lance.spark.jobs.semi_join import MIN_TARGET_ROWS, KeyPair, equal_sides
from pyspark_lance.table.dml.row_change import ChangeResult

pytestmark = pytest.mark.spark

ID = KeyPair("id", ("s", "id"))


def equal_columns(condition, alias, names):
    """The equations of plain columns that a condition demands, as far as they are easily seen."""
    pairs = (equal_sides(conjunct, alias, names) for conjunct in conjuncts(condition))
    return tuple(pair for pair in pairs if pair is not None)


@pytest.mark.parametrize(
    ("condition", "pairs"),
    [
        ("t.id = s.id", (ID,)),
        ("s.id == t.id", (ID,)),
        ("T.`id` = s.id AND t.day > 3", (ID,)),
        ("(t.id = s.id)", ()),
        ("t.id = s.id AND (t.day = 1 AND t.day = s.day)", (ID,)),
        ("t.id = s.id and t.day=s.d", (ID, KeyPair("day", ("s", "d")))),
        ("t.id = s.id OR t.day = s.day", ()),
        ("t.id <=> s.id", ()),
        ("t.id = s.id + 1", ()),
        ("t.id = t.day", ()),
        ("t.day BETWEEN 1 AND t.id = s.id", ()),
        ("CASE WHEN true AND t.id = s.id AND false THEN 1 END = 2", ()),
        ("NOT true AND t.id = s.id", ()),
        ("t.name = 'x AND t.id = s.id AND y'", ()),
        ("id = s.id", ()),
        ("`t.id` = s.id", ()),
        ("t.id = t.part.id", ()),
        ("t.id = s.`a``b.c`", (KeyPair("id", ("s", "a`b.c")),)),
        ("t.flag = true", ()),
    ],
)
def test_condition_equations_are_found(condition, pairs):
    assert equal_columns(condition, "t", ["id", "day", "name", "flag"]) == pairs


def test_column_equations_are_compared(spark):
    assert equal_columns(sf.col("t.id") == sf.col("s.id"), "t", ["id"]) == (ID,)
    assert equal_columns(sf.col("t.id") > sf.col("s.id"), "t", ["id"]) == ()
    # A constant may be shown like a column.
    assert equal_columns(sf.col("t.id") == sf.col("id"), "t", ["id"]) == (KeyPair("id", ("id",)),)
    for other in (sf.lit("id"), sf.lit("s.id")):
        assert equal_columns(sf.col("t.id") == other, "t", ["id"]) == ()


def test_merge_into_large_table_finds_all_matches(spark, tmp_path):
    path = str(tmp_path / "t")
    ids = np.arange(MIN_TARGET_ROWS)
    table = {"id": ids, "k": np.char.add("k", (ids % 1000).astype("U4")), "v": np.zeros_like(ids)}
    write_table(path, pa.table(table), max_rows_per_file=300_000)
    target = LanceTable.forPath(spark, path).alias("t")
    rows = [(5, "k5", 1), (999_999, "k999", 2), (7, "k8", 3), (10**7, "k0", 4), (None, "k1", 5)]
    source = spark.createDataFrame(rows, "id long, k string, v long")
    merge = target.merge(source.alias("s"), "t.id = s.id AND t.k = s.k")
    result = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll("s.id > 1000").execute()
    assert result == ChangeResult(2, num_inserted_rows=1, num_updated_rows=2)
    changed = read_ours(path).filter(pa.compute.field("v") > 0).sort_by("v").to_pylist()
    assert [(row["id"], row["_rowid"], row["v"]) for row in changed] == [
        (5, 5, 1),
        (999_999, 999_999, 2),
        (10**7, 10**6, 4),
    ]
    gone = spark.range(0, 2000).alias("s")
    result = target.merge(gone, sf.col("t.id") == sf.col("s.id")).whenMatchedDelete().execute()
    assert result == ChangeResult(3, num_deleted_rows=2000)
