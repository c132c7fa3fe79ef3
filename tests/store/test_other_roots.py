"""What metadata may name: places as near as the table, others by an option, and no host but one
of the same kind gets the table's options."""

import lance
import pyarrow as pa
import pytest

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.store.other_roots import open_other_root, options_for, root_of_url
from pyspark_lance.store.storage_options import ALLOWED
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

OPTIONS = {"storage.headers": '{"Authorization": "Bearer abcdef"}'}


@pytest.mark.parametrize(
    ("table", "other"),
    [
        ("/tables/a", "/tables/b"),
        ("/tables/a", "file:///elsewhere/b"),
        ("file:///tables/a", "/tables/b"),
        ("s3://bucket/a", "s3://bucket/b/c"),
        ("s3a://bucket/a", "s3://bucket/b"),
        ("gs://bucket/a", "gs://bucket/b"),
        ("abfss://box@account.dfs.core.windows.net/a", "az://box@account.dfs.core.windows.net/b"),
        ("https://host/a", "https://host/b"),
        ("memory://a", "memory://b"),
        ("simplecache::s3://bucket/a", "simplecache::s3://bucket/b"),
    ],
)
def test_roots_near_table_use_table_options(table, other):
    assert options_for(table, other, OPTIONS) == OPTIONS


FAR = [
    ("/tables/a", "http://evil/x"),
    ("/tables/a", "s3://bucket/x"),
    ("/tables/a", "github://owner:repo@main/x"),
    ("s3://bucket/a", "/etc"),
    ("s3://bucket/a", "file:///etc"),
    ("s3://bucket/a", "s3://other/b"),
    ("s3://bucket/a", "simplecache::s3://bucket/b"),
    ("s3://bucket/a", "s3://bucket/b::http://evil/x"),
    ("s3://bucket/a", "gs://bucket/b"),
    ("https://host/a", "http://host/b"),
    ("https://host/a", "https://host:8443/b"),
    ("https://host/a", "https://host@evil/b"),
    ("https://host/a", "https://host.evil/b"),
    ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@other.dfs.core.windows.net/a"),
    ("memory://a", "/etc"),
]


@pytest.mark.parametrize(("table", "other"), FAR)
def test_distant_roots_are_refused_by_name(table, other):
    with pytest.raises(
        UnsupportedFeatureError, match="outside the table's own location"
    ) as refused:
        options_for(table, other, OPTIONS)
    assert ALLOWED in str(refused.value)
    assert "abcdef" not in str(refused.value)


@pytest.mark.parametrize(("table", "other"), FAR)
def test_allowed_distant_roots_get_no_foreign_options(table, other):
    options = {**OPTIONS, f"storage.{ALLOWED}": f"s3://nothing/here, {other}"}
    same_cloud = table.startswith("s3://bucket") and other == "s3://other/b"
    assert options_for(table, other, options) == (options if same_cloud else {})


@pytest.mark.parametrize(
    "other", ["s3://other/base2/x", "s3://other/", "s3://other/base/../secret", "s3://othe"]
)
def test_allowed_root_excludes_siblings(other):
    options = {ALLOWED: "s3://other/base/"}
    assert options_for("s3://bucket/a", "s3://other/base/t", options) == options
    with pytest.raises(UnsupportedFeatureError):
        options_for("s3://bucket/a", other, options)


@pytest.mark.parametrize(
    ("root", "other"),
    [
        ("file:///base", "file:///base/%2e%2e/secret"),
        ("https://other/base", "https://other/base/%2e%2e/secret"),
        ("/base", "file:///base/%2E%2E/secret"),
    ],
)
def test_allowed_root_resists_escaped_parent_segments(root, other):
    with pytest.raises(UnsupportedFeatureError):
        options_for("s3://bucket/a", other, {ALLOWED: root})
    assert options_for("s3://bucket/a", other.replace("/%2e%2e", "").replace("/%2E%2E", ""),
                       {ALLOWED: root}) == {}  # fmt: skip


@pytest.mark.parametrize("other", ["/tables/\0x", "", " "])
def test_invalid_roots_are_corrupt(other):
    with pytest.raises(CorruptFileError, match="not a storage root"):
        options_for("/tables/a", other, {})


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("file:///data/a%20b", "/data/a b"),
        ("FILE:///data/%C3%A4", "/data/ä"),
        ("file:///data/a/%2e%2e/b", "/data/b"),
        ("/data/a%20b", "/data/a%20b"),
        ("s3://bucket/a%20b", "s3://bucket/a%20b"),
    ],
)
def test_file_urls_are_unescaped(root, path):
    assert root_of_url(root) == path
    with pytest.raises(CorruptFileError):
        root_of_url("file:///data/%00")


@pytest.mark.interop
@pytest.mark.parametrize("name", ["a b", "per%cent", "enc%20oded"])
def test_pylance_clones_with_file_urls_are_read(tmp_path, name):
    lance.write_dataset(pa.table({"id": [1, 2]}), f"{tmp_path}/{name}")
    url = (tmp_path / name).as_uri()
    lance.dataset(url).shallow_clone(f"{tmp_path}/clone", reference=1)
    snapshot = Snapshot.open(Table(f"{tmp_path}/clone"))
    (base,) = snapshot.manifest.base_paths
    assert base.path == url
    options = {ALLOWED: f"{tmp_path}"}
    with pytest.raises(UnsupportedFeatureError):
        open_other_root("s3://bucket/a", base.path, {})
    assert open_other_root("s3://bucket/a", base.path, options).uri == f"{tmp_path}/{name}"
    files = snapshot.manifest.fragments
    assert len(files) == 1
    store, path = snapshot.files.locate(next(iter(files)).files[0])
    assert store.exists(path)
