import http.server
import json
import threading
import traceback
import uuid
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from s3_server import s3_server  # noqa: F401
from store_conformance import StoreConformance
from table_access import append

from pyspark_lance.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from pyspark_lance.store.fsspec_store import FsspecStore, create_only_arguments
from pyspark_lance.store.object_store import ByteRange
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, open_existing
from pyspark_lance.table.version.table import Table


class TestFsspecMemory(StoreConformance):
    @pytest.fixture
    def store(self):
        return open_store(f"memory://{uuid.uuid4().hex}/table")


class UnknownFileSystem(LocalFileSystem):
    """Stands for any file system we know nothing of; it takes absolute paths."""

    protocol = "unknown"
    cachable = False


class FailingFileSystem(MemoryFileSystem):
    """Fails with an error that contains secrets."""

    protocol = "failing"
    cachable = False
    text = "denied for secret key hunter22-secret"

    def __init__(self, secret=None, **kwargs):
        super().__init__(**kwargs)

    def _fail(self, *args, **kwargs):
        try:
            raise PermissionError(self.text)
        except PermissionError as error:
            raise RuntimeError(f"{self.text} https://h/k?X-Amz-Signature=feedbeef&a=b") from error

    cat_file = cat_ranges = info = find = pipe_file = put_file = rm_file = _fail


@pytest.fixture(autouse=True, scope="module")
def registered():
    fsspec.register_implementation("unknown", UnknownFileSystem, clobber=True)
    fsspec.register_implementation("failing", FailingFileSystem, clobber=True)


class TestUnknownFileSystem(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        return open_store(f"unknown://{tmp_path}/table", {"allow_unsafe_put": "true"})

    test_concurrent_put_if_absent_creates_object_once = None  # what "unsafe" means

    def test_put_replaces_whole_object(self, store):
        store.put("x", b"a longer text")
        store.put("x", b"short")
        assert bytes(store.get("x")) == b"short"

    test_missing_object_is_not_found = None  # a path through a file differs by file system


def test_unknown_file_system_requires_unsafe_put_option(tmp_path):
    store = open_store(f"unknown://{tmp_path}/table")
    with pytest.raises(UnsupportedFeatureError, match="allow_unsafe_put"):
        store.put_if_absent("x", b"1")
    assert not store.exists("x")


class UnreachableFileSystem(UnknownFileSystem):
    """Lists all but one folder."""

    protocol = "unreachable"

    def ls(self, path, detail=False, **kwargs):
        if path.rstrip("/").endswith("/_versions"):
            raise ConnectionError("no route to host")
        return super().ls(path, detail=detail, **kwargs)


def test_folder_that_cannot_be_listed_is_an_error(tmp_path):
    fsspec.register_implementation("unreachable", UnreachableFileSystem, clobber=True)
    options = {"allow_unsafe_put": "true"}
    for name in ("a", "_versions/1", "data/b"):
        open_store(f"unknown://{tmp_path}", options).put(name, b"1")
    store = open_store(f"unreachable://{tmp_path}", options)
    assert [info.path for info in store.list("data")] == ["data/b"]
    for folder in ("", "_versions"):
        with pytest.raises(StorageError, match="cannot list: ConnectionError: no route"):
            list(store.list(folder))
    assert list(store.list("missing")) == []


@pytest.mark.parametrize("token", ["/no/key.json", "~/no-key", "key.json"])
def test_missing_google_key_file_is_not_sent(token):
    pytest.importorskip("gcsfs")
    with pytest.raises(InvalidInputError, match="does not exist on this machine") as caught:
        open_store("gs://bucket/t", {"google_service_account": token})
    assert token not in str(caught.value)


def test_unknown_option_error_asks_for_names(s3_server):  # noqa: F811
    options = {**s3_server.options, "allow_unsafe_puts": "true"}
    with pytest.raises(StorageError, match=r"allow_unsafe_puts[^$]*names of the storage options"):
        open_store("s3://bucket/t", options).put("x", b"1")


class _WebHdfs(http.server.BaseHTTPRequestHandler):
    """Reads of a local folder by WebHDFS, as its documents describe them."""

    def do_GET(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = Path(self.server.folder + url.path.removeprefix("/webhdfs/v1"))
        if not path.exists():
            error = {"exception": "FileNotFoundException", "message": f"no {path}"}
            return self._respond(404, json.dumps({"RemoteException": error}).encode())
        if query["op"] == "OPEN":
            start = int(query.get("offset", 0))
            content = path.read_bytes()
            length = int(query.get("length", len(content)))
            return self._respond(200, content[start : start + length])
        if query["op"] == "GETFILESTATUS":
            reply = {"FileStatus": self._status(path, "")}
        else:
            names = sorted(path.iterdir()) if path.is_dir() else [path]
            infos = [self._status(name, name.name if path.is_dir() else "") for name in names]
            reply = {"FileStatuses": {"FileStatus": infos}}
        return self._respond(200, json.dumps(reply).encode())

    def _status(self, path, suffix):
        kind = "DIRECTORY" if path.is_dir() else "FILE"
        status = path.stat()
        changed = int(status.st_mtime * 1000)
        size = 0 if path.is_dir() else status.st_size
        return {"type": kind, "length": size, "modificationTime": changed, "pathSuffix": suffix}

    def _respond(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def test_webhdfs_tables_are_read_and_not_written(tmp_path):
    append(str(tmp_path / "t"), 0, 5)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _WebHdfs) as server:
        server.folder = str(tmp_path)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"webhdfs://127.0.0.1:{server.server_port}/t"
        snapshot = Snapshot.open(Table(uri), LATEST)
        batches = [batch for task in plan_scan(snapshot, ScanRequest()) for batch in task.run()]
        assert [value for batch in batches for value in batch["id"].to_pylist()] == [*range(5)]
        with pytest.raises(UnsupportedFeatureError, match="allow_unsafe_put"):
            open_store(uri).put_if_absent("x", b"1")
        server.shutdown()
    with pytest.raises(StorageError, match="cannot list"):
        open_existing(Table("webhdfs://127.0.0.1:9/t"))


def test_memory_uris_of_same_name_share_content():
    root = f"memory://{uuid.uuid4().hex}"
    open_store(root).put("a/x", b"1")
    assert bytes(open_store(f"{root}/a").get("x")) == b"1"


class AdlfsOfToday:
    async def _pipe_file(self, path, value, overwrite=True, **kwargs): ...


class GcsfsOfToday:
    async def _pipe_file(self, path, data, metadata=None, mode="overwrite"): ...


class S3fsOfOld:
    async def _pipe_file(self, path, data, chunksize=1, **kwargs): ...


def test_create_only_arguments_fit_file_system():
    assert create_only_arguments("abfs", AdlfsOfToday) == {"overwrite": False}
    assert create_only_arguments("gcs", GcsfsOfToday) == {"mode": "create"}
    assert create_only_arguments("sftp", GcsfsOfToday) is None


def test_file_system_ignoring_create_only_is_refused():
    with pytest.raises(UnsupportedFeatureError, match="newer"):
        create_only_arguments("s3", S3fsOfOld)


@pytest.fixture
def failing():
    return open_store("failing://bucket/table", {"storage.secret": "hunter22-secret"})


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get("x"),
        lambda store: store.get_range("x", 0, 3),
        lambda store: store.get_ranges("x", [ByteRange(0, 1)]),
        lambda store: store.get_tail("x", 3),
        lambda store: store.size("x"),
        lambda store: store.exists("x"),
        lambda store: store.put("x", b""),
        lambda store: store.open_output("x").close(),
        lambda store: list(store.list("")),
        lambda store: store.delete("x"),
        lambda store: store.delete_many(["x"]),
    ],
)
def test_errors_hide_secrets(failing, call):
    with pytest.raises(StorageError, match="RuntimeError: denied") as caught:
        call(failing)
    error = caught.value
    assert error.__cause__ is not None
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.__cause__)
    assert "bucket/table" in shown
    link = error
    while link is not None:
        shown += repr(link)
        link = link.__context__
    for secret in ("hunter22", "feedbeef"):
        assert secret not in shown
        assert secret not in repr(failing) + failing.uri + repr(failing._options)


def test_uri_credentials_are_not_in_repr():
    fsspec.register_implementation("ftpish", FailingFileSystem, clobber=True)
    store = open_store("ftpish://user:hunter22@host/table")
    assert isinstance(store, FsspecStore)
    assert "hunter22" not in store.uri + repr(store)


def test_cause_without_secrets_is_kept(failing, monkeypatch):
    monkeypatch.setattr(FailingFileSystem, "text", "denied")
    monkeypatch.setattr(
        FailingFileSystem, "cat_file", lambda *a, **k: (_ for _ in ()).throw(KeyError("plain"))
    )
    with pytest.raises(StorageError) as caught:
        failing.get("x")
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("uri", "hint"),
    [("ofs://om/v/b/t", "s3a://"), ("wasbs://c@a.blob.core.windows.net/t", "abfss://")],
)
def test_error_of_unknown_scheme_names_another(uri, hint):
    with pytest.raises(UnsupportedFeatureError, match=hint):
        open_store(uri)
