"""Versions whose transaction is too long for a copy in the manifest: Lance reads its file."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import commit_tables
import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import assert_same_rows, read_ours, read_pylance, write_table
from table_invariants import check_invariants

from pyspark_lance.errors import RetryableCommitError
from pyspark_lance.format.operation import Rewrite
from pyspark_lance.metafile.manifest_file import load_transaction
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.history.history import history
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

ROWS = 300_000
CLUSTERED = 2  # The version with the long transaction.


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A table of two versions: as it was written, and clustered by our library."""
    path = str(tmp_path_factory.mktemp("long") / "t")
    key = np.random.default_rng(1).permutation(ROWS)
    table = pa.table({"id": np.arange(ROWS), "key": key})
    lance.write_dataset(table, path, enable_stable_row_ids=True, max_rows_per_file=ROWS // 2)
    assert compact(Table(path), CompactionRequest(cluster_by=("key",))).version == CLUSTERED
    return path


@pytest.fixture
def path(written, tmp_path):
    shutil.copytree(written, tmp_path / "t")
    return str(tmp_path / "t")


def clustered(path):
    return Snapshot.open(Table(path), VersionSpec(version=CLUSTERED))


def transaction_files(path):
    return {file.name for file in Path(path, "_transactions").glob("*.txn")}


def check_same_rows(path, count):
    ours = read_ours(path)
    assert ours.num_rows == count
    assert_same_rows(ours, read_pylance(path))
    check_invariants(path)


def test_both_libraries_read_long_transaction(path):
    found = clustered(path)
    assert found.file.transaction() is None
    assert found.manifest.transaction_file in transaction_files(path)
    assert isinstance(load_transaction(found.store, found.file).operation, Rewrite)
    check_same_rows(path, ROWS)
    dataset = lance.dataset(path)
    assert type(dataset.read_transaction(CLUSTERED).operation).__name__ == "Rewrite"
    assert [entry.operation for entry in history(Table(path))] == ["Rewrite", "Overwrite"]
    assert not verify(Table(path)).findings


@pytest.mark.parametrize("writer", ["ours", "pylance"])
def test_appends_and_deletes_follow_long_transaction(path, writer):
    before = lance.dataset(path, version=1)
    row = pa.table({"id": [ROWS], "key": [ROWS]})
    if writer == "ours":
        write_table(path, row)
        delete_rows(path, "id < 10")
    else:
        lance.write_dataset(row, before, mode="append")
        lance.dataset(path).delete("id < 10")
    check_same_rows(path, ROWS - 9)


@pytest.mark.parametrize("writer", ["ours", "pylance"])
def test_conflicts_with_long_transaction_are_found(path, writer):
    """A delete that was planned on the version before is planned again."""
    before = Snapshot.open(Table(path), VersionSpec(version=1))
    if writer == "pylance":
        lance.dataset(path, version=1).delete("id < 10")
        check_same_rows(path, ROWS - 10)
        return
    operation, rows = commit_tables.delete_rows(before.store, before.file, {0: [1]})
    work = commit_tables.transaction(operation, 1)
    with pytest.raises(RetryableCommitError):
        commit_tables.commit(before.store, work, affected_rows=rows)
    check_same_rows(path, ROWS)


@pytest.mark.parametrize("cleaner", ["ours", "pylance"])
def test_cleanup_keeps_long_transaction_of_kept_version(path, cleaner):
    def clean():
        if cleaner == "ours":
            cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0, error_if_tagged=False))
        else:
            lance.dataset(path).cleanup_old_versions(
                timedelta(0), error_if_tagged_old_versions=False
            )

    found = clustered(path)
    name = found.manifest.transaction_file
    delete_rows(path, "id < 10")
    lance.dataset(path).tags.create("kept", CLUSTERED)
    clean()
    assert name in transaction_files(path)
    assert clustered(path).version == CLUSTERED
    lance.dataset(path).tags.delete("kept")
    clean()
    assert name not in transaction_files(path)
    check_same_rows(path, ROWS - 10)


@pytest.mark.parametrize("restorer", ["ours", "pylance"])
def test_version_of_long_transaction_is_restored(path, restorer):
    delete_rows(path, "id < 10")
    if restorer == "ours":
        restore(Table(path), VersionSpec(version=CLUSTERED))
    else:
        lance.dataset(path, version=CLUSTERED).restore()
    check_same_rows(path, ROWS)
