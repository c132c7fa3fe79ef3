"""Tables on S3: read, append, overwrite, and two committers of one version."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from s3_server import s3_server, s3_table_root  # noqa: F401
from vector_tables import WIDTH, ours, rows_of

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.metafile.manifest_file import latest_version
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.cleanup import cleanup
from pyspark_lance.table.cleanup.cleanup import (
    CleanupPolicy,
    cleanup_old_versions,
    find_orphan_files,
    remove_orphan_files,
)
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.index_build.vector_build import (
    VectorIndexRequest,
    create_vector_index,
    refresh_vector_indices,
)
from pyspark_lance.table.nearest.ivf_search import SegmentTask
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

pytestmark = pytest.mark.s3


def write(uri, options, start, rows, **settings):
    table = pa.table({"id": pa.array(range(start, start + rows)), "s": ["x"] * rows})
    plan = plan_write(
        Table(uri, options),
        table.schema,
        WriteSettings(**settings),
        existing=open_existing(Table(uri, options)),
    )
    return commit_write(plan, write_fragments(plan.request, table.to_batches()))


def read(uri, options):
    tasks = plan_scan(Snapshot.open(Table(uri, options)), ScanRequest(system_columns=("_rowid",)))
    return sorted(
        (row["_rowid"], row["id"]) for task in tasks for b in task.run() for row in b.to_pylist()
    )


def test_s3_table_supports_append_overwrite_and_read(s3_table_root, s3_server):  # noqa: F811
    uri, options = f"{s3_table_root}/t", s3_server.options
    assert write(uri, options, 0, 10).version == 1
    assert write(uri, options, 10, 5).version == 2
    assert read(uri, options) == [(i, i) for i in range(15)]
    assert write(uri, options, 100, 2, overwrite=True).version == 3
    assert read(uri, options) == [(15, 100), (16, 101)]


def test_concurrent_puts_of_one_version_have_one_winner(s3_table_root, s3_server):  # noqa: F811
    uri, options = f"{s3_table_root}/t", s3_server.options
    write(uri, options, 0, 1)
    results, barrier = [], threading.Barrier(2)

    def put(content: bytes) -> None:
        store = open_store(uri, options)
        barrier.wait()
        results.append(store.put_if_absent("_versions/contested.manifest", content))

    threads = [threading.Thread(target=put, args=(bytes([i]),)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, True]


def test_compaction_reads_concurrently_and_cleanup_deletes_in_batches(
    s3_table_root,  # noqa: F811
    s3_server,  # noqa: F811
    monkeypatch,
):
    uri, options = f"{s3_table_root}/t", s3_server.options
    for number in range(8):
        write(uri, options, 10 * number, 10)
    before = read(uri, options)
    del s3_server.requests[:]
    assert compact(Table(uri, options)).fragments_removed == 8
    asked = [path for method, path, *_ in s3_server.requests if method == "GET"]
    files = [path for path in asked if path.endswith(".lance")]
    assert len(files) == len(set(files)) == 8
    monkeypatch.setattr(cleanup, "_BATCH", 5)
    result = cleanup_old_versions(Table(uri, options), CleanupPolicy(older_than_s=0))
    assert result.files == {"data": 8, "transactions": 8, "manifests": 8}
    assert read(uri, options) == before
    left = [one.path for one in open_store(uri, options).list("")]
    kinds = sorted(path.partition("/")[0] for path in left if "version_hint" not in path)
    assert kinds == ["_transactions", "_versions", "data"]


def test_concurrent_appends_on_s3_all_commit(s3_table_root, s3_server):  # noqa: F811
    uri, options = f"{s3_table_root}/t", s3_server.options
    write(uri, options, 0, 1)
    threads = [
        threading.Thread(
            target=write, args=(uri, options, 10 * i, 3), kwargs={"retries": 50, "timeout_s": 120.0}
        )
        for i in range(1, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = read(uri, options)
    assert [row_id for row_id, _ in rows] == list(range(13))
    assert Snapshot.open(Table(uri, options)).version == 5


def test_orphan_files_are_found_and_removed_on_s3(s3_table_root, s3_server):  # noqa: F811
    uri, options = f"{s3_table_root}/t", s3_server.options
    write(uri, options, 0, 10)
    store = open_store(uri, options)
    store.put("data/stray.lance", b"nothing")
    assert [one.path for one in find_orphan_files(Table(uri, options))] == ["data/stray.lance"]
    assert find_orphan_files(Table(uri, options), older_than_s=3600) == []
    assert remove_orphan_files(Table(uri, options)) == []
    assert len(remove_orphan_files(Table(uri, options), older_than_s=0, force=True)) == 1
    assert find_orphan_files(Table(uri, options)) == []
    assert read(uri, options) == [(i, i) for i in range(10)]


@pytest.fixture
def careless_options(s3_server, monkeypatch):  # noqa: F811
    """The server replaces what it should only create; it has a name that no commit has proven."""
    monkeypatch.setattr(s3_server, "ignores_conditions", True)
    endpoint = s3_server.endpoint.replace("127.0.0.1", "localhost")
    return {**s3_server.options, "aws_endpoint": endpoint}


def test_verify_rereads_cached_deletion_files(s3_table_root, s3_server):  # noqa: F811
    uri, options = f"{s3_table_root}/t", s3_server.options
    write(uri, options, 0, 10)
    delete_rows(uri, "id < 3", options=options)
    assert len(read(uri, options)) == 7
    store = open_store(uri, options)
    (path,) = [info.path for info in store.list("_deletions")]
    store.put(path, b"damaged")
    found = verify(Table(uri, options)).findings
    assert "bad_deletion_file" in [one.kind for one in found]


def test_store_ignoring_conditional_puts_is_refused(
    careless_options, s3_table_root  # noqa: F811
):  # fmt: skip
    for _ in range(2):
        with pytest.raises(UnsupportedFeatureError, match="ignores conditional writes"):
            write(s3_table_root, careless_options, 0, 3)
    assert not list(open_store(s3_table_root, careless_options).list("_versions"))


def test_options_allow_store_without_conditional_puts(
    careless_options, s3_table_root, tmp_path  # noqa: F811
):  # fmt: skip
    for number, option in enumerate(
        ({"allow_unsafe_put": "true"}, {"manifest_store": f"sqlite:{tmp_path}/v.db"})
    ):
        uri, options = f"{s3_table_root}{number}", {**careless_options, **option}
        assert write(uri, options, 0, 3).version == 1
        assert write(uri, options, 3, 3).version == 2
        store = Table(uri, options).store()
        newest = latest_version(store)
        assert not store.put_if_absent(newest.path, b"of another writer")
        assert len(read(uri, options)) == 6


@pytest.mark.interop
def test_vector_index_lifecycle_on_s3_equals_disk(s3_table_root, s3_server, tmp_path):  # noqa: F811
    """What it answers is what the same table on a disk answers."""
    numbers = np.random.default_rng(1).normal(size=(600, WIDTH))
    for root, options in ((f"{s3_table_root}/t", s3_server.options), (str(tmp_path / "t"), {})):
        table = Table(root, options)
        for start in (0, 400):
            rows = rows_of(numbers[start : start + 400], start=start)
            existing = open_existing(table)
            plan = plan_write(table, rows.schema, WriteSettings(), existing=existing)
            commit_write(plan, write_fragments(plan.request, rows.to_batches()))
            if not start:
                request = VectorIndexRequest("v", num_partitions=3, num_sub_vectors=4, seed=1)
                assert create_vector_index(table, request).numRows == 401
        (fresh,) = refresh_vector_indices(table)
        (joined,) = refresh_vector_indices(table, joins_segments=True)
        assert (fresh.numRows, joined.numRows) == (201, 602)
        assert not [file for file in find_orphan_files(table) if "_indices" in file.path]
    query = numbers[5].astype("f4")
    (plan, on_s3), (_, on_disk) = (
        ours(one, query, 7, nprobes=2)
        for one in (Table(f"{s3_table_root}/t", s3_server.options), Table(str(tmp_path / "t")))
    )
    assert [type(task) for task in plan.tasks] == [SegmentTask]
    assert on_s3.row_id.tolist() == on_disk.row_id.tolist()
    assert on_s3.distance.tolist() == on_disk.distance.tolist()
