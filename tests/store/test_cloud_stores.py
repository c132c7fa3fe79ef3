"""Google Cloud Storage, Azure, a second server of S3: stores, and tables with several writers."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from cloud_servers import CLOUDS, cloud  # noqa: F401
from local_changes import delete_rows
from row_changes import upsert
from store_conformance import StoreConformance

from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.refs import create_branch, set_tag
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

pytestmark = pytest.mark.parametrize("cloud", CLOUDS, indirect=True)


class TestCloudStore(StoreConformance):
    @pytest.fixture
    def store(self, cloud):  # noqa: F811
        return open_store(cloud.new_root(), cloud.options)


def write(table, numbers):
    data = pa.table({"id": pa.array(numbers, pa.int64())})
    plan = plan_write(table, data.schema, WriteSettings(), existing=open_existing(table))
    return commit_write(plan, write_rows(plan, data.to_batches())).version


def rows(table):
    tasks = plan_scan(Snapshot.open(table), ScanRequest())
    return sorted(
        value for task in tasks for batch in task.run() for value in batch["id"].to_pylist()
    )


def test_table_lifecycle_works_in_cloud_store(cloud):  # noqa: F811
    table = Table(cloud.new_root(), cloud.options)
    storage = {"options": table.storage}
    for first in (0, 3):
        write(table, range(first, first + 3))
    delete_rows(table.root, "id = 1", **storage)
    upsert(table.root, pa.table({"id": pa.array([0, 7], pa.int64())}), **storage)
    set_tag(table, "before", replaces=False)
    create_branch(table, "b")
    write(table.on_branch("b"), [8])
    compact(table)
    assert rows(table) == [0, 2, 3, 4, 5, 7]
    assert rows(table.on_branch("b")) == [0, 2, 3, 4, 5, 7, 8]
    policy = CleanupPolicy(older_than_s=0, error_if_tagged=False, delete_unverified=True)
    assert cleanup_old_versions(table, policy).versions == (1, 2, 3)
    assert rows(table.on_branch("b")) == [0, 2, 3, 4, 5, 7, 8]
    assert not verify(table).findings


def test_concurrent_appends_all_commit_in_cloud_store(cloud):  # noqa: F811
    table = Table(cloud.new_root(), cloud.options)
    write(table, [-1])
    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(lambda number: write(table, [number]), range(8)))
    assert sorted(versions) == list(range(2, 10))
    assert rows(table) == list(range(-1, 8))
