"""Tags, branches, shallow clones, naming schemes, versions by time."""

from __future__ import annotations

import json
from dataclasses import replace

import lance
import pyarrow as pa
import pytest
from s3_server import s3_server, s3_table_root  # noqa: F401
from table_access import append, assert_same_rows, read_ours, read_pylance

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version, read_manifest
from pyspark_lance.metafile.refs_file import list_branches
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_files import TableFiles

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    for start in (0, 10, 20):
        append(path, start, rows=10)
    return path


def ids(path: str, branch: str | None = None, **at: object) -> list[int]:
    return sorted(read_ours(path, VersionSpec(**at), branch=branch)["id"].to_pylist())


def test_tag_resolves_to_version(path):
    lance.dataset(path).tags.create("two", 2)
    assert ids(path, tag="two") == list(range(20))
    with pytest.raises(VersionNotFoundError, match="nope"):
        ids(path, tag="nope")


def test_branch_has_separate_versions(path):
    lance.dataset(path).create_branch("side/one", 2)
    branch_root = f"{path}/tree/side/one"
    lance.write_dataset(pa.table({"id": pa.array([99])}), lance.dataset(branch_root), mode="append")
    assert ids(path, branch="side/one") == [*range(20), 99]
    assert ids(path) == list(range(30))
    append(branch_root, 200, rows=1)
    assert ids(path, branch="side/one") == [*range(20), 99, 200]
    assert lance.dataset(branch_root).count_rows() == 22
    assert_same_rows(read_ours(branch_root), read_pylance(branch_root))
    with pytest.raises(VersionNotFoundError, match="nope"):
        ids(path, branch="nope")


def test_shallow_clone_reads_files_of_source(path, tmp_path):
    lance.dataset(path).delete("id = 5")
    clone = str(tmp_path / "clone")
    lance.dataset(path).shallow_clone(clone, reference=4)
    lance.dataset(clone).delete("id = 25")
    append(clone, 100, rows=3)
    expected = [i for i in [*range(30), 100, 101, 102] if i not in (5, 25)]
    assert ids(clone) == expected
    lance.dataset(clone).validate()
    assert_same_rows(read_ours(clone), read_pylance(clone))


def test_v1_naming_scheme_is_kept(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(
        pa.table({"id": pa.array([1, 2])}), path, enable_stable_row_ids=True,
        data_storage_version="2.1", enable_v2_manifest_paths=False,
    )  # fmt: skip
    append(path, 3, rows=1)
    assert ids(path) == [1, 2, 3]
    names = {p.name for p in (tmp_path / "t" / "_versions").glob("*.manifest")}
    assert names == {"1.manifest", "2.manifest"}
    assert lance.dataset(path).count_rows() == 3


def test_timestamp_resolves_to_newest_version_before_it(path):
    times = [
        read.manifest.timestamp_ns
        for read in (Snapshot.open(Table(path), VersionSpec(version=v)) for v in (1, 2, 3))
    ]
    assert len(ids(path, timestamp_ns=times[1])) == 20
    assert len(ids(path, timestamp_ns=times[2] - 1)) == 20
    assert len(ids(path, timestamp_ns=times[2] + 10**18)) == 30
    with pytest.raises(VersionNotFoundError, match="the oldest one left, version 1"):
        ids(path, timestamp_ns=times[0] - 1)


def test_contradictory_and_missing_versions_are_refused(path, tmp_path):
    with pytest.raises(InvalidInputError, match="version and tag both choose"):
        VersionSpec(version=1, tag="x")
    with pytest.raises(InvalidInputError, match="version and timestamp both choose"):
        VersionSpec(version=1, timestamp_ns=1)
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        ids(path, version=9)
    with pytest.raises(TableNotFoundError, match="no Lance table"):
        ids(str(tmp_path / "nothing"))


def test_recreated_table_at_same_path_is_not_cached(path):
    import shutil

    assert len(ids(path, version=1)) == 10
    shutil.rmtree(path)
    append(path, 500, rows=2)
    assert ids(path, version=1) == [500, 501]


def test_references_outside_table_are_corrupt(tmp_path):
    table, other = str(tmp_path / "table"), str(tmp_path / "other")
    lance.write_dataset(pa.table({"id": [1]}), table).tags.create("release", 1)
    lance.write_dataset(pa.table({"id": [2]}), other)
    tag = tmp_path / "table/_refs/tags/release.json"
    for branch in ("../../other", "..", "/" + other, "a/../../../other", "x\0", "", "a//b", "."):
        content = json.loads(tag.read_text()) | {"branch": branch}
        tag.write_text(json.dumps(content))
        with pytest.raises(CorruptFileError, match="not the name of a branch"):
            Snapshot.open(Table(table), VersionSpec(tag="release"))
        with pytest.raises(InvalidInputError, match="not the name of a branch"):
            Snapshot.open(Table(table, branch=branch))
    branches = tmp_path / "table/_refs/branches"
    branches.mkdir()
    (branches / "..%2F..%2Fother.json").write_text('{"parentVersion": 1}')
    with pytest.raises(CorruptFileError, match="not the name of a branch"):
        list_branches(open_store(table))


@pytest.mark.parametrize(
    ("base", "error"),
    [
        ("http://127.0.0.1:9/x", UnsupportedFeatureError),
        ("github://owner:repo@main/x", UnsupportedFeatureError),
        ("simplecache::http://127.0.0.1:9/x", UnsupportedFeatureError),
        ("s3://bucket/x", UnsupportedFeatureError),
        ("/x\0y", CorruptFileError),
        ("", CorruptFileError),
    ],
)
def test_distant_base_path_is_refused_before_requests(tmp_path, base, error):
    source, clone = str(tmp_path / "source"), str(tmp_path / "clone")
    lance.write_dataset(pa.table({"id": [1]}), source).shallow_clone(clone, 1)
    store = open_store(clone)
    file = read_manifest(store, latest_version(store))
    bases = tuple(replace(one, path=base) for one in file.manifest.base_paths)
    assert bases
    manifest = replace(file.manifest, base_paths=bases)
    store.put(file.location.path, encode_manifest(manifest, (), file.transaction()))
    with pytest.raises(error):
        read_ours(clone, system_columns=())
    files = TableFiles(Table(clone))
    with pytest.raises(error):
        files.locate_external(f"{base}/blob" if base else "\0/x", 0)


@pytest.mark.s3
def test_clone_of_other_bucket_is_read_if_allowed(s3_table_root, s3_server):  # noqa: F811
    """The other bucket is reached through the same endpoint, with the same options."""
    options = s3_server.options
    source, clone = f"{s3_table_root}/source", f"s3://{s3_server.new_bucket()}/clone"
    dataset = lance.write_dataset(pa.table({"id": [1, 2]}), source, storage_options=options)
    dataset.shallow_clone(f"{s3_table_root}/near", 1, storage_options=options)
    near, far = open_store(f"{s3_table_root}/near", options), open_store(clone, options)
    for info in list(near.list("")):
        far.put(info.path, near.get(info.path))

    def read(options):
        tasks = plan_scan(Snapshot.open(Table(clone, options)), ScanRequest(system_columns=()))
        return [value for task in tasks for batch in task.run() for value in batch[0].to_pylist()]

    with pytest.raises(UnsupportedFeatureError, match=r"storage\.allowed_base_paths"):
        read(options)
    assert read({**options, "storage.allowed_base_paths": s3_table_root}) == [1, 2]
