"""Merges that are matched without a join of Spark do what merges by a join do."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from random_seeds import grid
from spark_releases import needs
from table_access import LINEAGE, assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.spark.jobs import merge_job
from pyspark_lance.spark.jobs.plain_merge_plan import plain_merge
from pyspark_lance.spark.jobs.semi_join import parse_merge_condition
from pyspark_lance.table.dml import plain_merge as plain_merge_stages
from pyspark_lance.table.dml.row_change import ChangeResult, plan_change
from pyspark_lance.table.index_build.column_indices import create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def make(path):
    """Rows with keys of two parts, null parts, keys that come twice, and deleted rows."""
    ids = np.arange(3000)
    table = pa.table(
        {
            "id": pa.array(ids // 2 * 2, pa.int32(), mask=ids % 500 == 0),
            "k": pa.array([f"k{i % 7}" for i in ids], mask=ids % 700 == 0),
            "v": ids * 10,
            "tags": [[f"t{i}"] for i in ids],
        }
    )
    write_table(path, table, max_rows_per_file=1000)
    lance.dataset(path).delete("v >= 100 AND v < 300")


def source_rows(spark):
    rows = [(i, f"k{i % 7}", -i, [f"n{i}"]) for i in range(200)]
    rows += [(i, f"k{(i + 1) % 7}", -i, None) for i in range(1000, 1100)]
    rows += [(None, "k1", -5, None), (500, None, -6, None), (10**9, "new", -7, ["n"])]
    return spark.createDataFrame(rows, "id long, k string, v long, tags array<string>")


ON = "t.id = s.id AND t.k = s.k"
SHAPES = {
    "upsert": (ON, lambda merge: merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()),
    "some columns": (
        ON + " AND t.v < 1000",
        lambda merge: merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsert(
            values={"id": "s.v", "t.tags": sf.col("s.tags")}
        ),
    ),
    "insert": (ON, lambda merge: merge.whenNotMatchedInsertAll()),
    "delete": ("t.v = s.id", lambda merge: merge.whenMatchedDelete()),
}


def is_plain(spark, path, source, condition, clauses):
    plan = plan_change(Table(path))
    found = plain_merge(
        spark, plan, source, parse_merge_condition(condition, "t", plan.schema), "t",
        clauses, every=merge_job.ALL_COLUMNS,
    )  # fmt: skip
    return found is not None


def in_values(path):
    """Contents with lineage, independent of where a row is; ids of new rows depend on it."""
    ours = read_ours(path)
    assert_same_rows(ours, read_pylance(path))
    lance.dataset(path).validate()
    names = [name for name in ours.column_names if name not in LINEAGE]
    ids = [i if i < 3000 else None for i in ours["_rowid"].to_pylist()]
    assert len(set(ours["_rowid"].to_pylist())) == ours.num_rows
    rows = ours.select([*names, *LINEAGE[2:]]).to_pylist()
    return sorted((repr(row), i) for row, i in zip(rows, ids, strict=True))


@needs("limits of bytes for batches")
@pytest.mark.parametrize(("few", "shape"), grid([True, False], list(SHAPES)))
def test_plain_merge_equals_join(spark, tmp_path, monkeypatch, shape, few):
    condition, clauses = SHAPES[shape]
    paths = [str(tmp_path / name) for name in ("plain", "joined")]
    make(paths[0])
    shutil.copytree(*paths)
    source = source_rows(spark).alias("s")
    monkeypatch.setattr(merge_job, "MIN_TARGET_ROWS", 0)
    if not few:
        monkeypatch.setattr(plain_merge_stages, "_SMALL_ROW_COUNT", 1)
    results = []
    for path in paths:
        merge = clauses(LanceTable.forPath(spark, path).alias("t").merge(source, condition))
        assert is_plain(spark, path, source, condition, merge._merge.clauses)
        results.append(merge.execute())
        monkeypatch.setattr(merge_job, "MIN_TARGET_ROWS", 10**9)
    assert results[0] == results[1]
    assert results[0].version == 3
    assert in_values(paths[0]) == in_values(paths[1])


def test_plain_merge_duplicate_match_error_shows_key(spark, tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    make(path)
    monkeypatch.setattr(merge_job, "MIN_TARGET_ROWS", 0)
    source = spark.createDataFrame([(40, 1), (40, 2)], "id long, w long").alias("s")
    table = LanceTable.forPath(spark, path).alias("t")
    merge = table.merge(source, "t.v = s.id").whenMatchedUpdate(set={"v": "s.w"})
    with pytest.raises(InvalidInputError, match="v = 40"):
        merge.execute()
    assert table.merge(source, "t.v = s.id").whenMatchedDelete().execute() == ChangeResult(
        3, num_deleted_rows=1
    )


def test_merge_without_effect_makes_no_version(spark, tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    make(path)
    monkeypatch.setattr(merge_job, "MIN_TARGET_ROWS", 0)
    table = LanceTable.forPath(spark, path).alias("t")
    rows = source_rows(spark).alias("s")
    for source in (rows.where("false"), rows.where("s.id = 1000000000")):
        merge = table.merge(source, "t.id = s.id").whenMatchedUpdateAll()
        assert merge.execute() == ChangeResult()


@needs("limits of bytes for batches")
def test_merges_with_expressions_are_left_to_spark(spark, tmp_path):
    path = str(tmp_path / "t")
    make(path)
    table, source = LanceTable.forPath(spark, path).alias("t"), source_rows(spark).alias("s")

    def plain(condition, clauses):
        merge = clauses(table.merge(source, condition))
        return is_plain(spark, path, source, condition, merge._merge.clauses)

    def update(value):
        return lambda merge: merge.whenMatchedUpdate(set={"v": value})

    assert plain(ON, update("s.v"))
    assert plain(ON, update(sf.col("s.v")))
    assert plain(sf.col("t.v") == sf.col("s.v"), update("s.v"))
    for value in ("s.v + 1", "v", "t.v", "1", "s.k", "s.tags[0]", sf.lit("s.v"), "s.nothing"):
        assert not plain(ON, update(value)), value
    for condition in ("t.id = s.id OR t.k = s.k", "t.id <=> s.id", ON + " AND s.v > 3",
                      "t.tags = s.tags", "t.id > s.id", "t.id = id", "true"):  # fmt: skip
        assert not plain(condition, update("s.v")), condition
    assert not plain(ON, lambda merge: merge.whenMatchedUpdateAll("s.v > 3"))
    assert not plain(ON, lambda merge: merge.whenNotMatchedBySourceDelete())
    assert not plain(ON, lambda merge: merge.whenMatchedUpdate(set={"v.x": "s.v"}))


@pytest.mark.parametrize("least", [0, 10**9], ids=["without a join", "by a join"])
def test_target_only_condition_limits_matches(spark, tmp_path, monkeypatch, least):
    path = str(tmp_path / "t")
    letters = list("abcdef")
    write_table(path, pa.table({"id": range(6), "v": [10 * i for i in range(6)], "s": letters}))
    monkeypatch.setattr(merge_job, "MIN_TARGET_ROWS", least)
    table = LanceTable.forPath(spark, path).alias("t")
    source = spark.createDataFrame(
        [(i, -1, "new") for i in range(1, 5)], "id long, v long, s string"
    )
    merge = table.merge(source.alias("s"), "t.v >= 20 AND t.id = s.id AND t.s <> 'd'")
    result = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert result == ChangeResult(2, num_inserted_rows=2, num_updated_rows=2)
    rows = sorted((row["id"], row["s"], row["_rowid"]) for row in read_ours(path).to_pylist())
    old, new = rows[:2] + rows[3:5] + rows[6:], [rows[2], rows[5]]
    assert old == [(0, "a", 0), (1, "b", 1), (2, "new", 2), (3, "d", 3), (4, "new", 4), (5, "f", 5)]
    assert [row[:2] for row in new] == [(1, "new"), (3, "new")]
    # Rows that only fail the condition on the target are without a match, too.
    merge = table.merge(source.alias("s"), "t.id = s.id AND t.s = 'new'")
    result = merge.whenNotMatchedBySourceDelete().execute()
    assert result == ChangeResult(3, num_deleted_rows=4)
    assert {row["s"] for row in read_ours(path).to_pylist()} == {"new"}


def with_one_file(path):
    """Ids in random order in four files, with an index; the data files without 7 are gone."""
    ids = np.random.default_rng(3).permutation(8_000)
    write_table(path, pa.table({"id": ids, "v": ids * 10}), max_rows_per_file=2_000)
    create_index(Table(path), IndexRequest(("id",), "btree"))
    number = int(np.flatnonzero(ids == 7)[0]) // 2_000
    for fragment in Snapshot.open(Table(path)).manifest.fragments:
        if fragment.id != number:
            (Path(path) / "data" / fragment.files[0].path).unlink()


MERGES = {
    "plain": lambda table, source: (
        table.alias("t").merge(source, "t.id = s.id").whenMatchedUpdateAll().execute()
    ),
    "joined": lambda table, source: (
        table.alias("t").merge(source, "t.id = s.id").whenMatchedUpdateAll("s.v < 0").execute()
    ),
    "applied": lambda table, source: table.applyChanges(
        source.selectExpr("*", "'insert' AS _change_type", "2L AS _commit_version"), keys="id"
    ),
}


@pytest.mark.parametrize("way", MERGES)
def test_indexed_merge_skips_files_without_source_keys(spark, tmp_path, monkeypatch, way):
    path = str(tmp_path / "t")
    with_one_file(path)
    monkeypatch.setattr(merge_job, "MIN_TARGET_ROWS", 0)
    source = spark.createDataFrame([(7, -1), (10**9, -2)], "id long, v long").alias("s")
    MERGES[way](LanceTable.forPath(spark, path), source)
    found = read_ours(path, predicate=parse_predicate("id = 7", pa.schema({"id": pa.int64()})))
    assert found["v"].to_pylist() == [-1]
