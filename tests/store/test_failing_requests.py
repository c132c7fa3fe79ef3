"""Requests to S3 that fail, are cut off or never answered: repeated if that is safe, and ended."""

from __future__ import annotations

import socket

import pyarrow as pa
import pytest
from s3_server import s3_server, s3_table_root  # noqa: F401
from store_proxy import ANY_TROUBLE, Trouble, running_proxy

from pyspark_lance.errors import StorageError
from pyspark_lance.store.object_store import ByteRange
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

pytestmark = pytest.mark.s3


@pytest.fixture
def proxy(s3_server):  # noqa: F811
    with running_proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture(params=["s3fs", "obstore"])
def client(request):
    return request.param


@pytest.fixture
def open_through(proxy, s3_server, s3_table_root, client):  # noqa: F811
    through = {**s3_server.options, "aws_endpoint": proxy.endpoint, "s3_client": client}

    def open_with(**options):
        return open_store(s3_table_root, through | options)

    return open_with


def failing_once(trouble):
    """The first request of each method and object fails."""
    met = set()

    def fault(request):
        key = request.method, request.path
        if key in met:
            return None
        met.add(key)
        return trouble

    return fault


@pytest.mark.parametrize("trouble", ANY_TROUBLE)
def test_request_that_fails_once_is_retried(open_through, proxy, trouble):
    store = open_through(read_timeout="300ms")
    content = bytes(range(256)) * 64
    store.put("x", content)
    proxy.faults = failing_once(trouble)
    assert [bytes(part) for part in store.get_ranges("x", [ByteRange(5, 50)])] == [content[5:50]]
    tail, size = store.get_tail("x", 100)
    assert (bytes(tail), size) == (content[-100:], len(content))
    created = store.put_if_absent("new", content)
    took_it = trouble in (Trouble.ERROR_AFTER, Trouble.CUT_AFTER, Trouble.STALLED)
    # The repeated put meets its own object: the writer must check whose manifest it is.
    assert created is not took_it
    assert bytes(store.get("new")) == content
    assert [request.trouble for request in proxy.requests].count(trouble) == 3


LOST = (Trouble.ERROR_AFTER, Trouble.CUT_AFTER, Trouble.STALLED, Trouble.CONFLICT)


@pytest.mark.parametrize("trouble", LOST)
def test_commit_with_lost_response_happens_once(
    proxy,
    s3_server,  # noqa: F811
    s3_table_root,  # noqa: F811
    client,
    trouble,
):
    """The put is made again, meets our own manifest, and gets 412: the writer checks its owner."""
    options = {**s3_server.options, "aws_endpoint": proxy.endpoint, "read_timeout": "1s"}
    options["s3_client"] = client
    table, rows = Table(s3_table_root, options), pa.table({"id": [1, 2]})

    def append():
        plan = plan_write(table, rows.schema, WriteSettings(), existing=open_existing(table))
        return commit_write(plan, write_fragments(plan.request, rows.to_batches()))

    append()
    puts = []

    def fault(request):
        if request.method == "PUT" and request.path.endswith(".manifest"):
            puts.append(request)
        return trouble if puts == [request] else None

    proxy.faults = fault
    assert append().version == 2
    assert len(puts) == 2
    tasks = plan_scan(Snapshot.open(table), ScanRequest())
    ids = [value for task in tasks for batch in task.run() for value in batch["id"].to_pylist()]
    assert ids == [1, 2, 1, 2]
    assert not verify(table).errors


def test_silent_server_raises_after_few_retries(open_through, proxy):
    store = open_through(read_timeout="100ms", client_max_retries="1")
    proxy.faults = lambda request: Trouble.STALLED
    with pytest.raises(StorageError, match=r"(?i)time"):
        store.get("x")
    assert 2 <= len(proxy.requests) <= 6


@pytest.mark.parametrize("client", ["s3fs"], indirect=True)
def test_requests_have_timeout_and_retry_budget(open_through):
    config = open_through()._fs.s3.meta.config
    assert (config.connect_timeout, config.read_timeout) == (5.0, 15.0)
    assert config.retries["mode"] == "standard"
    config = open_through(connect_timeout="1s", timeout="500ms", client_max_retries="2")
    config = config._fs.s3.meta.config
    assert (config.connect_timeout, config.read_timeout) == (1.0, 0.5)
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}


def test_unanswered_google_request_times_out(monkeypatch):
    """It is made again for a while, and is an error then; gcsfs itself would wait forever."""
    retry = pytest.importorskip("gcsfs.retry")
    # Between two tries it waits for up to 32 s, but for what this says.
    monkeypatch.setattr(retry, "min", lambda *seconds: 0, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"token": "anon", "endpoint_url": endpoint}
        usual = open_store("gs://bucket/t", options)._fs.requests_timeout
        assert (usual.total, usual.sock_connect, usual.sock_read) == (None, 5.0, 15.0)
        store = open_store("gs://bucket/t", {**options, "read_timeout": "100ms"})
        assert store._fs.requests_timeout.sock_read == 0.1
        with pytest.raises(StorageError, match=r"(?i)time"):
            store.get("x")


@pytest.mark.parametrize("client", ["s3fs"], indirect=True)
def test_retry_settings_of_environment_apply(open_through, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    config = open_through(connect_timeout="2s")._fs.s3.meta.config
    assert config.retries["total_max_attempts"] == 7
