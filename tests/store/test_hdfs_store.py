"""The store on a real HDFS, alone and with several writers."""

import itertools
import json
import multiprocessing
import os
import pickle

import pyarrow as pa
import pytest
from hdfs_cluster import hdfs_cluster  # noqa: F401
from store_conformance import StoreConformance

from pyspark_lance.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.store.open_store import open_store
from pyspark_lance.store.storage_options import hadoop_as_storage
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

# A cluster takes a JVM of its own.
pytestmark = pytest.mark.slow

_NUMBERS = itertools.count()


@pytest.fixture
def root(hdfs_cluster):  # noqa: F811
    """A folder that is not there yet."""
    return f"{hdfs_cluster.uri}/tests/{os.getpid()}-{next(_NUMBERS)}"


class TestHdfsStore(StoreConformance):
    @pytest.fixture
    def store(self, root):
        return open_store(root)


def mount_table(cluster, *, fallback=True):
    """Settings of ``viewfs://all``: its folder ``/data`` is a folder of the cluster."""
    links = {"link./data": f"{cluster.uri}/mounted"}
    if fallback:
        links["linkFallback"] = f"{cluster.uri}/fallback"
    return {f"fs.viewfs.mounttable.all.{name}": uri for name, uri in links.items()}


class TestMountedStore(StoreConformance):
    @pytest.fixture
    def store(self, hdfs_cluster):  # noqa: F811
        return open_store(f"viewfs://all/data/{next(_NUMBERS)}", mount_table(hdfs_cluster))


def append(uri, first, num_rows, settings=None):
    table = Table(uri, settings or {})
    rows = pa.table({"id": pa.array(range(first, first + num_rows), pa.int64())})
    plan = plan_write(table, rows.schema, WriteSettings(), existing=open_existing(table))
    return commit_write(plan, write_rows(plan, rows.to_batches())).version


def append_often(uri, number, times, done):
    versions = [append(uri, (number * times + i) * 10, 10) for i in range(times)]
    done.put(versions)


def ids(uri, settings=None):
    snapshot = Snapshot.open(Table(uri, settings or {}), LATEST)
    batches = [batch for task in plan_scan(snapshot, ScanRequest()) for batch in task.run()]
    return sorted(value for batch in batches for value in batch.column("id").to_pylist())


def test_concurrent_hdfs_appends_lose_no_rows(root):
    append(root, 10_000, 10)
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    writers = [
        context.Process(target=append_often, args=(root, number, 4, done)) for number in range(4)
    ]
    for writer in writers:
        writer.start()
    versions = [version for _ in writers for version in done.get(timeout=300)]
    for writer in writers:
        writer.join()
    assert sorted(versions) == list(range(2, 18))
    assert ids(root) == [*range(160), *range(10_000, 10_010)]
    assert not [info.path for info in open_store(root).list("") if ".tmp_" in info.path]


def read_in_child(store, done):
    try:
        done.put(bytes(store.get("x")))
    except UnsupportedFeatureError as error:
        done.put(str(error))


def test_forked_process_is_refused_and_spawned_process_reads(root):
    store = open_store(root)
    store.put("x", b"content")
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        done = context.Queue()
        child = context.Process(target=read_in_child, args=(store, done))
        child.start()
        found = done.get(timeout=60)
        child.join()
        assert found == b"content" if method == "spawn" else "forked" in found


def test_repeated_rename_of_own_file_succeeds(root, monkeypatch):
    """The client repeats what got no response, and meets its own file."""
    store = open_store(root)
    client = store._client
    rename = client.rename

    def lose_response(*arguments):
        rename(*arguments)
        rename(*arguments)

    monkeypatch.setattr(client, "rename", lose_response)
    assert store.put_if_absent("a", b"first") is True
    assert store.put_if_absent("a", b"second") is False
    assert bytes(store.get("a")) == b"first"
    assert [info.path for info in store.list("")] == ["a"]


def test_invalid_hdfs_paths_and_hosts_are_refused(root):
    with pytest.raises(InvalidInputError, match=r"\.\."):
        open_store(f"{root}/../x")
    assert open_store(f"{root}//a/./b%20c").uri == f"{root}/a/b%20c"
    with pytest.raises(InvalidInputError, match="names no host"):
        open_store("hdfs:/data/t")


def test_name_services_of_the_session_are_known(hdfs_cluster, root):  # noqa: F811
    """As ``hdfs-site.xml`` or ``spark.hadoop.dfs.*`` says; the first name node does not answer."""
    append(root, 0, 3)
    settings = {
        "dfs.nameservices": "Both",
        "dfs.ha.namenodes.Both": "nn1,nn2",
        "dfs.namenode.rpc-address.Both.nn1": "127.0.0.1:1",
        "dfs.namenode.rpc-address.Both.nn2": hdfs_cluster.uri.partition("://")[2],
        "fs.s3a.secret.key": "shh-secret",
    }
    uri = f"hdfs://Both{root.removeprefix(hdfs_cluster.uri)}"
    options = {keys.HADOOP: json.dumps({"fs.defaultFS": "hdfs://Both", **settings})}
    path = root.removeprefix(hdfs_cluster.uri)
    table = ReadOptions.parse({"path": path, **options}).table
    assert table.root == uri
    assert "fs.s3a.secret.key" not in table.storage
    table = pickle.loads(pickle.dumps(table))
    assert Snapshot.open(table, LATEST).num_rows() == 3
    given = {
        f"storage.{name}": text for name, text in hadoop_as_storage(uri, table.storage).items()
    }
    assert ReadOptions.parse({"path": uri, **given}).table.store().exists("_versions/x") is False


def test_mount_tables_lead_to_tables_of_clusters(hdfs_cluster):  # noqa: F811
    settings = mount_table(hdfs_cluster)
    number = next(_NUMBERS)
    for mounted, folder in (("data", "mounted"), ("other", "fallback/other")):
        uri = f"viewfs://all/{mounted}/{number}"
        append(uri, 0, 3, settings)
        append(f"{hdfs_cluster.uri}/{folder}/{number}", 3, 2)
        assert ids(uri, settings) == [0, 1, 2, 3, 4]
    with pytest.raises(StorageError, match="linkFallback"):
        open_store("viewfs://all/data/t", mount_table(hdfs_cluster, fallback=False))


def test_table_survives_stopped_data_node(root, hdfs_cluster):  # noqa: F811
    """The client gives up a write to a node that the name node still counts, and says so."""
    append(root, 0, 10)
    hdfs_cluster.order("stop data node")
    assert ids(root) == list(range(10))
    expected = list(range(10))
    try:
        append(root, 10, 10)
        expected = list(range(20))
    except StorageError as error:
        assert "cannot write" in str(error)
    assert ids(root) == expected
