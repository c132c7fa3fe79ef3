"""Merges that rewrite columns do what merges that move rows do."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.metafile.manifest_file import latest_version, read_manifest
from pyspark_lance.spark.jobs import merge_job
from pyspark_lance.table.dml import row_change
from pyspark_lance.table.dml.row_change import ChangeResult
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def make(path):
    ids = np.arange(60)
    columns = {
        "id": ids,
        "v": pa.array(ids * 10, pa.int32()),
        "name": [f"n{i}" for i in ids],
        "vec": pa.array([[i, i] for i in ids], pa.list_(pa.float32(), 2)),
    }
    write_table(path, pa.table(columns), max_rows_per_file=20)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    lance.dataset(path).create_scalar_index("v", "BTREE")
    lance.dataset(path).delete("id IN (3, 25)")


def checked(path):
    ours = read_ours(path)
    assert_same_rows(ours, read_pylance(path))
    lance.dataset(path).validate()
    for condition in ("v < 100", "id > 30 AND id < 45"):
        answers = [
            lance.dataset(path).scanner(filter=condition, use_scalar_index=used).to_table()
            for used in (True, False)
        ]
        assert answers[0].sort_by("id").equals(answers[1].sort_by("id"))
    return ours.sort_by("_rowid")


def files_per_fragment(path):
    snapshot = Snapshot.open(Table(path))
    return [len(fragment.files) for fragment in snapshot.manifest.fragments]


def modified_fields(path):
    store = Snapshot.open(Table(path)).store
    location = latest_version(store)
    operation = read_manifest(store, location).transaction().operation
    schema = Snapshot.open(Table(path)).schema
    return {schema.field_by_id(one).name for one in operation.fields_modified}


def update_all(merge):
    return merge.whenMatchedUpdateAll()


def update_with_lock(merge):
    return (
        merge.whenMatchedUpdate("s.id < 10", {"v": "t.v + s.v", "id": "s.id"})
        .whenMatchedUpdate("s.id > 40", {"name": "upper(t.name)"})
        .whenMatchedUpdate("s.id = 22", {"v": "null", "vec": "array(float(7), float(8))"})
    )


@pytest.mark.parametrize(
    ("clauses", "names", "plain"),
    [
        (update_all, {"v"}, False),
        (update_all, {"v"}, True),
        (update_with_lock, {"v", "name", "vec"}, False),
    ],
    ids=["all of the source", "without a join", "clauses with different columns"],
)
def test_column_rewrite_equals_moving_rows(spark, tmp_path, monkeypatch, clauses, names, plain):
    paths = {mode: str(tmp_path / mode) for mode in ("columns", "rows")}
    make(paths["columns"])
    shutil.copytree(paths["columns"], paths["rows"])
    monkeypatch.setattr(merge_job, "MIN_TARGET_ROWS", 0 if plain else 10**9)
    rows = [(i, -i) for i in (0, 2, 5, 3, 41, 45, 22, 77)]
    source = spark.createDataFrame(rows, "id long, v int").alias("s")
    results = {}
    for mode, path in paths.items():
        table = LanceTable.forPath(spark, path).alias("t")
        results[mode] = clauses(table.merge(source, "t.id = s.id", rewrite=mode)).execute()
    assert results["columns"] == results["rows"]
    before = lance.dataset(paths["columns"], version=results["rows"].version - 1).count_rows()
    assert before == 58
    columns, moved = checked(paths["columns"]), checked(paths["rows"])
    others = [name for name in moved.column_names if name != "_rowaddr"]
    assert columns.select(others).equals(moved.select(others))
    assert modified_fields(paths["columns"]) - {"item"} == names
    assert files_per_fragment(paths["columns"]) == [2, 2, 2]
    assert files_per_fragment(paths["rows"])[:3] == [1, 1, 1]


def test_duplicate_source_match_leaves_no_files(spark, tmp_path):
    path = str(tmp_path / "t")
    make(path)
    files = sorted(Path(path, "data").iterdir())
    source = spark.createDataFrame([(5, 1), (9, 1), (5, 2)], "id long, v int").alias("s")
    table = LanceTable.forPath(spark, path).alias("t")
    with pytest.raises(InvalidInputError, match="id = 5"):
        table.merge(source, "t.id = s.id", rewrite="columns").whenMatchedUpdateAll().execute()
    assert sorted(Path(path, "data").iterdir()) == files


def test_merge_chooses_rewrite_by_cost_only_for_updates(spark, tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    rng = np.random.default_rng(3)
    wide = [rng.bytes(2000) for _ in range(5000)]
    columns = {"id": np.arange(5000), "v": pa.array(np.zeros(5000), pa.int32()), "wide": wide}
    write_table(path, pa.table(columns))
    lance.dataset(path).create_scalar_index("id", "BTREE")
    monkeypatch.setattr(row_change, "WORTH_COUNTING_S", 0.0)
    table = LanceTable.forPath(spark, path).alias("t")

    def merge(rows, rewrite="auto"):
        source = spark.createDataFrame(rows, "id long, v int").alias("s")
        return table.merge(source, "t.id = s.id", rewrite=rewrite)

    one = merge([(1, 1)]).whenMatchedUpdateAll().execute()
    assert (one.num_updated_rows, one.rewrite.mode) == (1, "rows")
    assert "moving 1 of 5,000 rows takes about" in one.rewrite.reason
    assert files_per_fragment(path) == [1, 1]
    every = [(i, i) for i in range(5000)]
    assert merge(every).whenMatchedUpdateAll().execute().num_updated_rows == 5000
    assert files_per_fragment(path) == [2, 2]
    assert merge([(7777, 1)]).whenMatchedUpdateAll().execute() == ChangeResult()
    with pytest.raises(InvalidInputError, match="does not rewrite columns"):
        merge(every, "columns").whenMatchedUpdateAll().whenNotMatchedInsertAll()
    with pytest.raises(InvalidInputError, match="cells"):
        merge(every, "cells")
    assert checked(path)["v"].to_pylist() == list(range(5000))


def test_unsupported_column_rewrite_is_refused(spark, tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1], "v": [1]}), path, data_storage_version="legacy")
    source = spark.createDataFrame([(1, 2)], "id long, v long").alias("s")
    merge = LanceTable.forPath(spark, path).merge(source, "target.id = s.id", rewrite="columns")
    with pytest.raises(UnsupportedFeatureError, match=r"version 0\.1"):
        merge.whenMatchedUpdateAll().execute()
