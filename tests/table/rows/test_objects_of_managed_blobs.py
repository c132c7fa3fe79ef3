"""Objects in ``_blobs`` live as long as a row of some version, branch or tag needs them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from managed_blobs import (
    blob_rows,
    check,
    kinds,
    new_table,
    objects,
    our_blobs,
    referenced,
    their_blobs,
)
from row_changes import upsert
from table_access import write_table

from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.cleanup.cleanup import (
    CleanupPolicy,
    cleanup_old_versions,
    find_orphan_files,
    remove_orphan_files,
)
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.refs import create_branch, remove_branch, remove_tag, set_tag
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest, write_fragments
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

OLD = CleanupPolicy(older_than_s=0, error_if_tagged=False)
SCRIPT = """
import json, sys
sys.path[:0] = sys.argv[1:3]
from killed_calls import kill_at_calls
from test_objects_of_managed_blobs import WORK

print(json.dumps(kill_at_calls(sys.argv[3], WORK[sys.argv[4]])))
"""


def blobs(*keys: int) -> dict[int, bytes]:
    return {key: np.random.default_rng(key).bytes(70_000 + key) for key in keys}


ROWS = blobs(1, 2, 3)
WORK = {
    "append": lambda table: write_table(table.uri, blob_rows(blobs(4, 5))),
    "merge": lambda table: upsert(table.uri, blob_rows(blobs(3, 4) | {2: b"small"})),
    "compact": lambda table: compact(table, CompactionRequest(materialize_deletions_threshold=0.0)),
}
AFTER = {"append": blobs(1, 2, 3, 4, 5), "merge": blobs(1, 3, 4) | {2: b"small"}, "compact": ROWS}


@pytest.mark.parametrize(
    "work", [pytest.param(work, marks=pytest.mark.slow if work != "merge" else ()) for work in WORK]
)
def test_killed_write_leaves_no_row_without_blob(tmp_path, work):
    before = str(tmp_path / "before")
    new_table(before, blobs(1, 2))
    lance.write_dataset(blob_rows(blobs(3, 9)), before, mode="append")
    delete_rows(before, "id = 9")
    here = Path(__file__).parent
    folders = [str(here.parents[1] / "support"), str(here)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *folders, str(tmp_path), work],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    died = json.loads(done.stdout)
    calls = [(call, folder) for _, call, folder in died]
    assert ("put_if_absent", "_versions") in calls
    assert (("output.close", "_blobs") in calls) == (work != "compact")
    seen = set()
    for name, call, folder in died:
        path = str(tmp_path / name)
        found = our_blobs(path)
        assert found in (ROWS, AFTER[work]), (name, call, folder)
        seen.add(found == AFTER[work])
        assert verify(Table(path), read_data=True).errors == ()
        left = {one.path for one in find_orphan_files(Table(path)) if one.path.endswith(".blob")}
        assert left == objects(path) - referenced(path) - old_objects(path)
        cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0, delete_unverified=True))
        assert objects(path) == referenced(path)
        assert their_blobs(path) == found
    assert work == "compact" or seen == {True, False}


def old_objects(path: str) -> set[str]:
    """What rows of older versions refer to."""
    found = set()
    for one in lance.dataset(path).versions():
        rows = lance.dataset(path, version=one["version"]).to_table(columns=["b"])
        found |= {row["blob_uri"] for row in rows["b"].to_pylist() if row}
    return found - {""}


def test_objects_referenced_by_kept_versions_stay(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, blob_rows(blobs(1, 2), managed=True), file_version="2.2")
    first = objects(path)
    set_tag(Table(path), "kept", VersionSpec(version=1))
    create_branch(Table(path), "b")
    upsert(path, blob_rows(blobs(1) | {2: b"new"}))
    assert first < objects(path)
    cleanup_old_versions(Table(path), OLD)
    assert first < objects(path)
    remove_tag(Table(path), "kept")
    # The branch refers to them where they are, before and after its rows have moved.
    on_branch = Table(path, branch="b")
    for change in (lambda: None, lambda: compact(on_branch, CompactionRequest(cluster_by=["id"]))):
        change()
        cleanup_old_versions(on_branch, OLD)
        cleanup_old_versions(Table(path), OLD)
        assert our_blobs(path, "b") == their_blobs(path, "b") == blobs(1, 2)
    assert kinds(path, "b") == [5, 5]
    assert verify(on_branch, read_data=True).findings == ()
    # What is written on the branch lies below its own root.
    there = lance.dataset(path).checkout_version(("b", None))
    lance.write_dataset(blob_rows(blobs(7)), there, mode="append")
    for table in (Table(path), on_branch):
        cleanup_old_versions(table, OLD)
    assert our_blobs(path, "b") == their_blobs(path, "b") == blobs(1, 2, 7)
    remove_branch(Table(path), "b")
    write_table(path, blob_rows(blobs(3)))
    cleanup_old_versions(Table(path), OLD)
    assert objects(path) == referenced(path)
    check(path, blobs(1, 3) | {2: b"new"})


def test_blob_objects_are_removed_only_by_owning_table(tmp_path):
    path, shallow, deep = (str(tmp_path / name) for name in ("t", "shallow", "deep"))
    write_table(path, blob_rows(blobs(1, 2), managed=True), file_version="2.2")
    upsert(path, blob_rows({2: b"new"}))
    lance.dataset(path).shallow_clone(shallow, reference=1)
    lance.dataset(path).deep_clone(deep, 1)
    for clone in (shallow, deep):
        there = objects(path)
        write_table(clone, blob_rows(blobs(4)))
        delete_rows(clone, "id = 1")
        compact(Table(clone), CompactionRequest(materialize_deletions_threshold=0.0))
        cleanup_old_versions(Table(clone), OLD)
        assert objects(path) == there
        assert our_blobs(clone) == their_blobs(clone) == blobs(2, 4)
        assert verify(Table(clone), read_data=True).findings == ()
    assert kinds(shallow) == [4, 5]
    # A deep copy has objects of its own.
    shutil.rmtree(path)
    check(deep, blobs(2, 4))
    assert objects(deep) == referenced(deep)


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_sidecar_files_stay_for_moved_rows(tmp_path, whose):
    """A table that begins to manage its blobs keeps those where they are that it has."""
    path = str(tmp_path)
    rows = blobs(1, 2, 3) | {4: b"z" * 5_000_000}
    lance.write_dataset(blob_rows(rows), path, data_storage_version="2.2", max_rows_per_file=2)
    assert kinds(path) == [1, 1, 1, 2]
    there = objects(path)
    lance.dataset(path).update_schema_metadata({"lance.blob.managed": "true"}, replace=True)
    if whose == "ours":
        compact(Table(path))
    else:
        lance.dataset(path).optimize.compact_files()
    assert referenced(path) == there
    cleanup_old_versions(Table(path), OLD)
    assert objects(path) == there
    check(path, rows)
    delete_rows(path, "id <= 2")
    cleanup_old_versions(Table(path), OLD)
    assert objects(path) == referenced(path) < there
    lance.dataset(path).cleanup_old_versions(timedelta(0))
    check(path, {key: rows[key] for key in (3, 4)})


def test_failed_write_leaves_no_blob_objects(tmp_path):
    path = str(tmp_path)
    write_table(path, blob_rows(blobs(1), managed=True), file_version="2.2")
    there = objects(path)
    schema = Snapshot.open(Table(path)).schema

    def batches():
        yield from blob_rows(blobs(2)).to_batches()
        yield None  # ends a file
        yield from blob_rows(blobs(3) | {4: b"z" * 5_000_000}).to_batches()
        raise KeyError("gone")

    with pytest.raises(KeyError):
        write_fragments(WriteFragmentsRequest(Table(path), schema, "2.2"), batches())
    assert objects(path) == there
    # Objects of a killed process are found, and removed once no writer can still use them.
    (left,) = write_fragments(
        WriteFragmentsRequest(Table(path), schema, "2.2"), blob_rows(blobs(5)).to_batches()
    )
    lost = objects(path) - there
    cleanup_old_versions(Table(path), OLD)
    assert objects(path) == there | lost
    assert lost < {one.path for one in find_orphan_files(Table(path))}
    remove_orphan_files(Table(path), older_than_s=0, force=True)
    assert objects(path) == there
    assert not Path(path, "data", left.files[0].path).exists()


def test_blobs_in_lists_and_structs_have_objects(tmp_path):
    path = str(tmp_path)
    blob = lance.blob_field("item")
    item = pa.struct([pa.field("name", pa.string()), blob.with_name("pixels")])
    made = {"lance.blob.managed": "true"}
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("many", pa.list_(blob)), pa.field("one", item)],
        metadata=made,
    )
    values = lance.blob_array([b"a" * 80_000, None, b"b" * 90_000, b"c"])
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 4], pa.int32()), values, type=schema.field("many").type
    )
    structs = pa.StructArray.from_arrays(
        [pa.array(["x", "y", None]), lance.blob_array([b"d" * 70_000, None, b""])],
        fields=list(item),
    )
    rows = pa.table([pa.array([1, 2, 3], pa.int64()), lists, structs], schema=schema)
    write_table(path, rows, file_version="2.2")
    delete_rows(path, "id = 1")
    compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))
    cleanup_old_versions(Table(path), OLD)
    assert len(objects(path)) == 1
    assert verify(Table(path), read_data=True).findings == ()
    pylance_rows = lance.dataset(path).to_table(blob_handling="all_binary").to_pylist()
    assert pylance_rows == [
        {"id": 2, "many": [], "one": {"name": "y", "pixels": None}},
        {"id": 3, "many": [b"b" * 90_000, b"c"], "one": {"name": None, "pixels": b""}},
    ]
    shown = logical_schema(Snapshot.open(Table(path)).schema)
    assert shown.fields[1].children[0].is_blob
    (held,) = objects(path)
    Path(path, held).unlink()
    assert {one.kind for one in verify(Table(path)).findings} == {"missing_blobs"}


def test_added_blob_column_has_objects(tmp_path):
    path = str(tmp_path)
    rows = blob_rows({1: None, 2: None, 3: None}, managed=True)
    write_table(path, rows.select(["id", "n"]), file_version="2.2", max_rows_per_file=2)
    delete_rows(path, "id = 1")
    write_table(path, blob_rows(blobs(4)), merge_schema=True)
    assert kinds(path) == [4]
    check(path, {2: None, 3: None} | blobs(4))
