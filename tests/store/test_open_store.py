import os
import subprocess
import sys

import pytest

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.store.fsspec_store import FsspecStore
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.open_store import open_store


@pytest.mark.parametrize(
    "uri", ["{}", "{}/", "file://{}", "file:{}", "FILE://{}", "file://localhost{}", "local://{}"]
)
def test_local_path_spellings_open_same_folder(tmp_path, uri):
    store = open_store(uri.format(tmp_path / "t.lance"), {"storage.anything": "ignored"})
    assert isinstance(store, LocalStore)
    assert store.uri == str(tmp_path / "t.lance")


def test_relative_and_home_paths_are_resolved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store("a/../b").uri == str(tmp_path / "b")
    assert open_store("~/t").uri == str(tmp_path / "home" / "t")
    assert open_store("a:b/c").uri == str(tmp_path / "a:b" / "c")


def test_paths_keep_percent_escapes(tmp_path):
    assert open_store(f"file://{tmp_path}/a%20b").uri == f"{tmp_path}/a%20b"
    assert open_store(f"file:///{tmp_path}/per%cent").uri == f"{tmp_path}/per%cent"
    assert open_store(f"{tmp_path}/a%20b").uri == f"{tmp_path}/a%20b"


def test_open_store_creates_nothing(tmp_path):
    open_store(str(tmp_path / "t"))
    assert os.listdir(tmp_path) == []


def test_local_store_does_not_import_fsspec(tmp_path):
    program = (
        "import sys; from pyspark_lance.store.open_store import open_store\n"
        f"store = open_store({str(tmp_path)!r}); store.put('x', b'1'); store.get('x')\n"
        "sys.exit(any(name.split('.')[0] in ('fsspec', 's3fs') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("uri", ["", "  ", "file://server/share", "s3://", "s3://key:shh@bucket/t"])
def test_invalid_uris_are_refused(uri):
    with pytest.raises(InvalidInputError) as caught:
        open_store(uri)
    assert "shh" not in str(caught.value)


def test_unsupported_schemes_are_refused_by_name():
    with pytest.raises(UnsupportedFeatureError, match="a table"):
        open_store("s3+ddb://bucket/table?ddbTableName=commits")
    with pytest.raises(UnsupportedFeatureError, match="carrierpigeon"):
        open_store("carrierpigeon://coop/table")


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [
        ("gs://bucket/table", "gcsfs", "gcs"),
        ("az://container/table", "adlfs", "azure"),
        ("abfss://container@account.dfs.core.windows.net/table", "adlfs", "azure"),
        ("hf://datasets/user/table", "huggingface_hub", "huggingface"),
    ],
)
def test_missing_package_error_names_extra(uri, package, extra):
    program = (
        "import sys\n"
        f"sys.modules[{package!r}] = None  # as if it were not installed\n"
        "from pyspark_lance.store.open_store import open_store\n"
        f"try: open_store({uri!r})\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith("UnsupportedFeatureError")
    assert f"pip install 'pyspark-lance[{extra}]'" in shown


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3"])
def test_s3_schemes_are_equivalent(scheme):
    store = open_store(f"{scheme}://bucket/table/", {"skip_signature": "true"})
    assert isinstance(store, FsspecStore)
    assert store.uri == "s3://bucket/table"
    assert store.lists_in_order


def test_stores_share_place_for_same_user_and_objects():
    key = {"aws_access_key_id": "me", "aws_secret_access_key": "word"}
    store = open_store("s3://bucket/t", key)
    assert store.cache_key is not None
    assert (
        store.cache_key
        == open_store("s3://bucket/t", {f"storage.{n}": key[n] for n in key}).cache_key
    )
    others = [
        open_store("s3://bucket/u", key),
        open_store("s3://bucket/t", {**key, "aws_access_key_id": "you"}),
        open_store("s3://bucket/t", {**key, "aws_endpoint": "https://elsewhere.example"}),
    ]
    assert store.cache_key not in [one.cache_key for one in others]
    assert "word" not in repr(store.cache_key)
    assert open_store("/tmp/t").cache_key is None


def test_directory_buckets_do_not_list_in_order():
    store = open_store("s3://fast--use1-az4--x-s3/t", {"skip_signature": "true"})
    assert not store.lists_in_order


@pytest.mark.parametrize("uri", ["/tables/a\0b", "file:///tables/a\0b", "s3://bucket/a\0b"])
def test_path_with_nul_is_refused(uri):
    with pytest.raises(InvalidInputError, match="NUL"):
        open_store(uri)


@pytest.mark.parametrize("uri", ["hdfs://namenode:8020/t", "hdfs:///t"])
def test_missing_hdfs_package_error_names_extra(uri, monkeypatch):
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(UnsupportedFeatureError) as caught:
        open_store(uri)
    assert "a package is missing for hdfs:// tables" in str(caught.value)
    assert "pyspark-lance[hdfs]" in str(caught.value)
