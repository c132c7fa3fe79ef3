"""Compaction and cleanup through Spark: the wiring."""

from __future__ import annotations

from datetime import timedelta

import lance
import pytest
from table_access import append, assert_same_rows, read_ours, read_theirs

from pyspark_lance import LanceTable
from pyspark_lance.errors import CorruptFileError

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def test_bins_are_rewritten_on_the_executors_and_a_failure_leaves_the_table(spark, tmp_path):
    path = str(tmp_path / "t")
    for first, rows in ((0, 10), (10, 10), (20, 100), (120, 10), (130, 10)):
        append(path, first, rows)
    table = LanceTable.forPath(spark, path)
    before = read_ours(path).drop(["_rowaddr"]).sort_by("_rowid")
    result = table.compact(targetRowsPerFragment=50, userMetadata="tidy")
    assert (result.version, result.fragments_removed, result.fragments_added) == (6, 4, 2)
    assert read_ours(path).drop(["_rowaddr"]).sort_by("_rowid").equals(before)
    assert_same_rows(read_ours(path), read_theirs(path))
    entry = table.history(1).first()
    assert (entry.operation, entry.userMetadata) == ("Rewrite", "tidy")
    assert entry.applicationId == spark.sparkContext.applicationId

    append(path, 200)
    fragments = lance.dataset(path).get_fragments()
    small = next(f for f in fragments if f.count_rows() == 3).metadata.files[0].path
    damaged = tmp_path / "t" / "data" / small
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptFileError):
        table.compact(targetRowsPerFragment=50)
    damaged.write_bytes(content)
    assert lance.dataset(path).version == 7
    assert table.cleanupOldVersions(timedelta(0)).versions == (1, 2, 3, 4, 5, 6)
    assert_same_rows(read_ours(path), read_theirs(path))


def test_indices_follow_later_where_that_is_asked_for(spark, tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 10):
        append(path, first, 10, enable_stable_row_ids=False)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    table = LanceTable.forPath(spark, path)
    table.delete("id = 3")
    assert table.compact(deferIndexRemap=True).fragments_added == 1
    dataset = lance.dataset(path)
    wanted = "id >= 2 AND id < 12"
    assert "ScalarIndexQuery" in dataset.scanner(filter=wanted).explain_plan()
    found = dataset.to_table(filter=wanted)["id"].to_pylist()
    assert sorted(found) == [2, *range(4, 12)]
    table.setProperties({"lance.compaction.defer_index_remap": "true"})
    table.delete("id = 5")
    assert table.compact(materializeDeletionsThreshold=0.0).num_rows == 18
    assert sorted(lance.dataset(path).to_table(filter=wanted)["id"].to_pylist()) == [
        2,
        4,
        *range(6, 12),
    ]
