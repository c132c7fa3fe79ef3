"""Tables of the Hugging Face Hub, beside a server that answers as the Hub does."""

import socket

import lance
import pyarrow as pa
import pytest
from hub_server import REPOSITORY, hub_server
from table_access import read_ours

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.store.object_store import ByteRange
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write

TOKEN = "hf_not_for_messages"
URI = f"hf://datasets/{REPOSITORY}/numbers.lance"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    path = str(folder / "numbers.lance")
    for start in (0, 500):
        rows = pa.table({"id": range(start, start + 500), "text": ["a b", "c"] * 250})
        lance.write_dataset(rows, path, mode="append", enable_stable_row_ids=True)
    lance.dataset(path).delete("id % 10 = 3")
    return folder


@pytest.fixture
def hub(folder):
    with hub_server(folder, TOKEN) as hub:
        yield hub


def options(hub, token=TOKEN):
    endpoint = {"storage.endpoint": f"http://127.0.0.1:{hub.server_port}"}
    return endpoint | ({"storage.token": token} if token else {})


def test_table_has_rows_of_local_copy(hub, folder):
    found = read_ours(URI, storage=options(hub))
    assert found.equals(read_ours(str(folder / "numbers.lance")))
    assert not verify(Table(URI, options(hub)), read_data=True).findings


def test_ranges_are_read_exactly(hub, folder):
    store = open_store(URI, options(hub))
    (name, *_) = sorted(one.name for one in (folder / "numbers.lance" / "data").iterdir())
    content = (folder / "numbers.lance" / "data" / name).read_bytes()
    ranges = [ByteRange(0, 10), ByteRange(len(content) - 3, len(content)), ByteRange(7, 7)]
    found = store.get_ranges(f"data/{name}", ranges)
    assert list(map(bytes, found)) == [content[start:end] for start, end in ranges]
    assert bytes(store.get(f"data/{name}")) == content
    with pytest.raises(CorruptFileError, match="bytes up to"):
        store.get_range(f"data/{name}", 0, len(content) + 1)


def test_stat_identifies_content(hub, folder):
    store = open_store(URI, options(hub))
    manifests = [store.stat(one.path) for one in list_versions(store)]
    assert len({info.identity for info in manifests}) == len(manifests) == 3
    assert all(info.modified_ns == 1767323045000000000 for info in manifests)
    with pytest.raises(FileNotFoundError):
        store.stat("_versions")
    assert not store.exists("data/none.lance")


def test_new_files_are_listed(hub, folder):
    store = open_store(URI, options(hub))
    before = store.list_names("_versions")
    new = folder / "numbers.lance" / "_versions" / "99.txt"
    new.write_text("new")
    assert set(store.list_names("_versions")) == {*before, "99.txt"}
    new.unlink()
    assert store.list_names("_versions") == before


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.check_writable(),
        lambda store: store.put("data/new", b"1"),
        lambda store: store.put_if_absent("data/new", b"1"),
        lambda store: store.copy("data/old", "data/new"),
        lambda store: store.open_output("data/new"),
        lambda store: store.delete("data/old"),
        lambda store: store.delete_many(["data/old"]),
    ],
)
def test_writes_are_refused_without_request(hub, write):
    store = open_store(URI, options(hub))
    hub.requests.clear()
    with pytest.raises(UnsupportedFeatureError, match=r"read-only[^$]*hf upload"):
        write(store)
    assert not hub.requests


@pytest.mark.parametrize("token", ["hf_wrong_token", ""])
def test_missing_permission_names_token_option(hub, token, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(TableNotFoundError, match=r"storage\.token or HF_TOKEN") as raised:
        open_store(URI, options(hub, token))
    assert "hf_wrong" not in str(raised.value)


def test_statements_are_refused_when_planned(hub):
    table = Table(URI, options(hub))
    schema, snapshot = pa.schema({"id": pa.int64()}), Snapshot.open(table)
    for existing in (None, snapshot):
        with pytest.raises(UnsupportedFeatureError, match="read-only"):
            plan_write(table, schema, WriteSettings(), existing=existing)
    with pytest.raises(UnsupportedFeatureError, match="read-only"):
        plan_change(table)


def test_unreachable_server_is_a_storage_error():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(StorageError, match="Connect"):
            open_store(URI, {"storage.endpoint": endpoint, "storage.token": TOKEN})


@pytest.mark.parametrize(
    "uri", ["hf://numbers.lance", "hf:///x", "hf://datasets/user", "hf://user/numbers/t.lance"]
)
def test_uri_without_dataset_is_refused(uri):
    with pytest.raises(InvalidInputError, match="hf://datasets/USER/NAME/PATH"):
        open_store(uri)
