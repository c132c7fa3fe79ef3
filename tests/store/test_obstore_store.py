"""Which tables obstore serves, and what s3fs does for them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from s3_server import s3_server, s3_table_root  # noqa: F401
from store_proxy import Trouble, running_proxy

from pyspark_lance.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from pyspark_lance.store import obstore_store
from pyspark_lance.store.fsspec_store import FsspecStore
from pyspark_lance.store.object_store import ByteRange
from pyspark_lance.store.obstore_store import ObstoreStore
from pyspark_lance.store.open_store import open_store

pytestmark = pytest.mark.s3

KEYS = {"key": "me", "secret": "word", "region": "eu-west-1"}

# What only s3fs obeys, or finds out itself.
FOR_S3FS = {
    "other argument": ("s3://bucket/t", KEYS | {"client_kwargs": '{"use_ssl": false}'}),
    "proxy": ("s3://bucket/t", KEYS | {"proxy_url": "http://127.0.0.1:1"}),
    "encryption": ("s3://bucket/t", KEYS | {"aws_server_side_encryption": "aws:kms"}),
    "directory bucket": ("s3://fast--use1-az4--x-s3/t", KEYS),
    "access point": ("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/t", KEYS),
    "control character": ("s3://bucket/a\nb", KEYS),
    "no region": ("s3://bucket/t", {"key": "me", "secret": "word"}),
    "half of the keys": ("s3://bucket/t", {"key": "me", "region": "eu-west-1"}),
    "no credentials": ("s3://bucket/t", {"region": "eu-west-1"}),
}


@pytest.fixture(autouse=True)
def _without_settings_of_machine(s3_server, monkeypatch, tmp_path):  # noqa: F811
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


@pytest.mark.parametrize(("uri", "options"), FOR_S3FS.values(), ids=FOR_S3FS)
def test_unsupported_tables_use_s3fs(uri, options):
    assert type(open_store(uri, options)) is FsspecStore
    with pytest.raises(UnsupportedFeatureError, match="obstore does not support"):
        open_store(uri, options | {"s3_client": "obstore"})


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_tables_with_keys_and_region_use_obstore(scheme):
    assert type(open_store(f"{scheme}://bucket/t", KEYS)) is ObstoreStore
    assert type(open_store(f"{scheme}://bucket/t", KEYS | {"s3_client": "s3fs"})) is FsspecStore
    anonymous = {"anon": "true", "endpoint": "http://127.0.0.1:1"}
    assert type(open_store(f"{scheme}://bucket/t", anonymous)) is ObstoreStore


def test_unknown_client_is_refused():
    with pytest.raises(InvalidInputError, match="s3fs or obstore"):
        open_store("s3://bucket/t", KEYS | {"s3_client": "boto"})


def test_missing_package_falls_back_to_s3fs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark_lance.store.obstore_store", None)
    assert type(open_store("s3://bucket/t", KEYS)) is FsspecStore
    with pytest.raises(UnsupportedFeatureError) as caught:
        open_store("s3://bucket/t", KEYS | {"s3_client": "obstore"})
    assert "pyspark-lance[obstore]" in str(caught.value)


def test_old_package_falls_back_to_s3fs(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.10.3")
    monkeypatch.delitem(sys.modules, "pyspark_lance.store.obstore_store")
    assert type(open_store("s3://bucket/t", KEYS)) is FsspecStore


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ("", ObstoreStore),
        ("region = eu-west-1\n", ObstoreStore),
        ("s3 =\n  addressing_style = virtual\n", FsspecStore),
        ("endpoint_url = http://127.0.0.1:1\n", FsspecStore),
    ],
)
def test_profile_settings_decide_client(settings, used, monkeypatch, tmp_path):
    """Credentials of a profile serve both; settings that only botocore obeys need s3fs."""
    config = tmp_path / "config"
    config.write_text(f"[default]\naws_access_key_id = k\naws_secret_access_key = s\n{settings}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    region = {} if "region" in settings else {"region": "eu-west-1"}
    assert type(open_store("s3://bucket/t", region)) is used


def test_local_and_other_tables_do_not_import_obstore():
    program = """
import sys
from pyspark_lance.store.open_store import open_store
open_store("/tmp/t"), open_store("memory://t")
assert not any(name.startswith(("obstore", "s3fs")) for name in sys.modules)
open_store("s3://bucket/t", {"key": "a", "secret": "b", "region": "r"})
assert "obstore" in sys.modules and "s3fs" not in sys.modules and "botocore" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture
def store(s3_server, s3_table_root):  # noqa: F811
    return open_store(s3_table_root, s3_server.options | {"s3_client": "obstore"})


def test_keys_without_names_are_listed_by_s3fs(store, s3_server, s3_table_root):  # noqa: F811
    bucket = s3_table_root.split("/")[2]
    for name in ("a", "b//c", "d"):
        s3_server.client().put_object(Bucket=bucket, Key=f"warehouse/table/{name}", Body=b"x")
    assert [info.path for info in store.list("")] == ["a", "b//c", "d"]


def test_folders_of_consoles_are_not_listed(store, s3_server, s3_table_root):  # noqa: F811
    bucket = s3_table_root.split("/")[2]
    s3_server.client().put_object(Bucket=bucket, Key="warehouse/table/data/", Body=b"")
    store.put("data/x", b"")
    store.put("empty", b"")
    assert [info.path for info in store.list("")] == ["data/x", "empty"]
    assert [info.path for info in store.list("data")] == ["data/x"]


def test_many_distant_ranges_keep_order(store):
    content = bytes(range(256)) * (40 << 10)
    store.put("x", content)
    starts = [number * (300 << 10) + number for number in range(30)][::-1]
    found = store.get_ranges("x", [ByteRange(start, start + 7) for start in starts])
    assert list(map(bytes, found)) == [content[start : start + 7] for start in starts]


def test_output_is_put_at_once_until_part_size(store, s3_server):  # noqa: F811
    s3_server.requests.clear()
    small = store.open_output("small")
    small.write(bytes(6 << 20))
    small.write(bytes(9 << 20))
    assert small.tell() == 15 << 20
    small.close()
    small.close()
    assert [method for method, *_ in s3_server.requests] == ["PUT"]
    with pytest.raises(ValueError, match="closed"):
        small.write(b"3")
    aborted = store.open_output("aborted")
    aborted.write(b"x")
    aborted.abort()
    aborted.close()
    assert not store.exists("aborted")


def test_failed_upload_leaves_no_parts(s3_server, s3_table_root):  # noqa: F811
    with running_proxy(s3_server.endpoint) as proxy:
        through = {"aws_endpoint": proxy.endpoint, "s3_client": "obstore", "read_timeout": "1s"}
        options = s3_server.options | through | {"client_max_retries": "0"}
        store = open_store(s3_table_root, options)
        output = store.open_output("large")
        output.write(bytes(20 << 20))
        # The part that is left, and the request that completes the object.
        proxy.faults = lambda request: (
            Trouble.UNAVAILABLE if request.method in ("PUT", "POST") else None
        )
        with pytest.raises(StorageError):
            output.close()
        proxy.faults = lambda request: None
        assert not store.exists("large")
    bucket = s3_table_root.split("/")[2]
    assert "Uploads" not in s3_server.client().list_multipart_uploads(Bucket=bucket)


def test_refused_credentials_are_explained(store, monkeypatch):
    def denied(*_, **__):
        raise obstore_store.PermissionDeniedError("no\n\nDebug source:\nPermission { … }")

    monkeypatch.setattr(obstore_store.obstore, "get", denied)
    with pytest.raises(StorageError) as caught:
        store.get("x")
    assert caught.value.hint == "check the credentials and what they may do"
    assert "Debug source" not in str(caught.value)


REQUESTS = {
    "get": lambda store: store.get("x"),
    "get_tail": lambda store: store.get_tail("x", 3),
    "stat": lambda store: store.stat("x"),
    "list": lambda store: list(store.list("data")),
    "one range": lambda store: store.get_range("x", 0, 3),
    "ranges": lambda store: store.get_ranges(
        "x", [ByteRange(i << 20, 1 + (i << 20)) for i in range(30)]
    ),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_interrupt_does_not_wait_for_response(request_name):
    """The server sends the signal, and no response before the caller has been interrupted."""
    obstore_store._idle_threads.clear()
    before = threading.enumerate()
    has_sent, is_interrupted, has_responded = threading.Lock(), threading.Event(), threading.Event()

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self):
            if has_sent.acquire(blocking=False):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            is_interrupted.wait(20)
            has_responded.set()
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_):
            pass

    with Server(("127.0.0.1", 0), Requests) as server:
        threading.Thread(target=server.serve_forever).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        store = open_store("s3://bucket/t", KEYS | {"endpoint": endpoint, "s3_client": "obstore"})
        try:
            with pytest.raises(KeyboardInterrupt):
                REQUESTS[request_name](store)
            assert not has_responded.is_set()
            (left,) = [
                one
                for one in threading.enumerate()
                if one not in before and one.name == "pyspark-lance-requests"
            ]
        finally:
            is_interrupted.set()
            server.shutdown()
    left.join(60)
    assert not left.is_alive()
