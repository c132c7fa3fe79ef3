"""Compaction and cleanup of random tables, beside pylance's: plan, result, rows, files."""

from __future__ import annotations

import collections
import shutil
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.optimize import Compaction
from table_access import assert_same_rows, read_changes, read_ours, read_pylance

from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact, plan_compaction
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

OLD_BLOB = {"lance-encoding:blob": "true"}


def some_rows(rng, first, count, version):
    """Numbers, lists in lists, vectors, and blobs of all sizes of the kind that a version has."""
    lists = [[int(i)] * i for i in rng.integers(0, 4, count)]
    deep = [[[f"x{j}"] * j, None] if j else None for j in rng.integers(0, 3, count).tolist()]
    sizes = rng.choice([0, 3, 70_000], count, p=[0.4, 0.5, 0.1])
    blobs = [None if i % 7 == 3 else rng.bytes(size) for i, size in enumerate(sizes.tolist())]
    is_new = version == "2.2"
    fields = [
        pa.field("id", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("lists", pa.list_(pa.int32())),
        pa.field("deep", pa.list_(pa.list_(pa.string()))),
        pa.field("vector", pa.list_(pa.float32(), 4)),
        lance.blob_field("blob") if is_new else pa.field("blob", pa.large_binary(), True, OLD_BLOB),
    ]
    columns = [
        range(first, first + count),
        [f"k{i % 3}" for i in range(count)],
        pa.array(lists, pa.list_(pa.int32())),
        pa.array(deep, pa.list_(pa.list_(pa.string()))),
        pa.array(rng.random((count, 4), np.float32).tolist(), pa.list_(pa.float32(), 4)),
        lance.blob_array(blobs) if is_new else pa.array(blobs, pa.large_binary()),
    ]
    return pa.table(columns, schema=pa.schema(fields))


def random_table(path, seed, version, *, stable):
    rng, first = np.random.default_rng(seed), 0
    for _ in range(10):
        count = int(rng.integers(1, 30))
        rows = some_rows(rng, first, count, version)
        options = {"data_storage_version": version, "enable_stable_row_ids": stable}
        dataset = lance.write_dataset(rows, path, mode="append", **options)
        first += count
        drawn = rng.random()
        if drawn < 0.3:
            dataset.delete(f"id % {int(rng.integers(2, 9))} = 1")
        elif drawn < 0.45:
            dataset.create_scalar_index("kind", "BITMAP", replace=True)
        elif drawn < 0.6:
            dataset.create_scalar_index("lists", "LABEL_LIST", replace=True)
        elif drawn < 0.75:
            dataset.update({"kind": "'changed'"}, where=f"id = {int(rng.integers(0, first))}")


def blobs_of(path):
    dataset = lance.dataset(path)
    there = [
        i
        for i, one in enumerate(dataset.to_table(["blob"])["blob"].to_pylist())
        # A null of 2.0 files shows as an empty one.
        if one is not None and one["size"] > 0
    ]
    return [blob.readall() for blob in dataset.take_blobs("blob", indices=there)]


def rows_of(path):
    table = read_pylance(path)
    return table.select([name for name in table.column_names if name not in {"blob", "_rowaddr"}])


def kinds_of_files(path):
    names = [one for one in Path(path).rglob("*") if one.is_file()]
    return collections.Counter(
        (one.relative_to(path).parts[0], one.suffix)
        for one in names
        if one.suffix in (".lance", ".arrow", ".bin", ".txn", ".manifest")
    )


@pytest.mark.parametrize("seed", range(6))
def test_compaction_of_random_tables_equals_pylance(tmp_path, seed):
    version, stable = ["2.0", "2.1", "2.2"][seed % 3], seed % 2 == 0
    ours, from_pylance = str(tmp_path / "ours"), str(tmp_path / "theirs")
    random_table(ours, seed, version, stable=stable)
    shutil.copytree(ours, from_pylance)
    before, blobs = rows_of(ours), blobs_of(ours)
    number = Snapshot.open(Table(ours)).version
    feed = read_changes(ours, 1, number, "none") if stable else None
    options = {
        "target_rows_per_fragment": [20, 60, 1000][seed // 2],
        "materialize_deletions_threshold": [0.0, 0.1][seed % 2],
    }
    plan = Compaction.plan(lance.dataset(from_pylance), options)
    mine = plan_compaction(Table(ours), CompactionRequest(**options), None)
    assert [[one.id for one in task.fragments] for task in mine.tasks] == [
        [one.id for one in task.fragments] for task in plan.tasks
    ]
    result = compact(Table(ours), CompactionRequest(**options))
    metrics = lance.dataset(from_pylance).optimize.compact_files(**options)
    for name in ("fragments_removed", "fragments_added", "files_removed", "files_added"):
        assert getattr(result, name) == getattr(metrics, name), name
    assert result.num_rows > 0
    sizes = [
        [f.physical_rows for f in lance.dataset(one).get_fragments()]
        for one in (ours, from_pylance)
    ]
    assert sizes[0] == sizes[1]
    names = before.column_names if stable else [n for n in before.column_names if n != "_rowid"]
    after = [rows_of(one).select(names) for one in (ours, from_pylance)]
    assert repr(after[0].to_pylist()) == repr(after[1].to_pylist())
    assert sorted(map(repr, after[0].to_pylist())) == sorted(
        map(repr, before.select(names).to_pylist())
    )
    assert blobs_of(ours) == blobs_of(from_pylance)
    assert sorted(blobs_of(ours)) == sorted(blobs)
    if feed is not None:
        assert_same_rows(read_ours(ours).drop(["blob"]), read_pylance(ours).drop(["blob"]))
        again = read_changes(ours, 1, result.version, "none")
        assert again.num_rows == feed.num_rows
    assert verify(Table(ours), read_data=True).errors == ()
    cleanup_old_versions(Table(ours), CleanupPolicy(older_than_s=0))
    lance.dataset(from_pylance).cleanup_old_versions(timedelta(0))
    # Lance reserves ids in a version of its own, and rewrites other indices.
    assert kinds_of_files(ours) - kinds_of_files(from_pylance) == collections.Counter()
    assert kinds_of_files(ours)["data", ".lance"] == kinds_of_files(from_pylance)["data", ".lance"]
    assert sorted(blobs_of(ours)) == sorted(blobs)
