"""Tags, branches, shallow clones, naming schemes, versions by time."""

from __future__ import annotations

import json

import lance
import pyarrow as pa
import pytest
from table_access import append, assert_same_rows, read_ours, read_theirs

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pyspark_lance.metafile.refs_file import list_branches
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.snapshot import Snapshot
from pyspark_lance.table.time_travel import VersionSpec

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    for start in (0, 10, 20):
        append(path, start, rows=10)
    return path


def ids(path: str, **at: object) -> list[int]:
    return sorted(read_ours(path, VersionSpec(**at))["id"].to_pylist())


def test_a_tag_names_a_version(path):
    lance.dataset(path).tags.create("two", 2)
    assert ids(path, tag="two") == list(range(20))
    with pytest.raises(VersionNotFoundError, match="nope"):
        ids(path, tag="nope")


def test_a_branch_has_versions_of_its_own(path):
    lance.dataset(path).create_branch("side/one", 2)
    branch_root = f"{path}/tree/side/one"
    lance.write_dataset(pa.table({"id": pa.array([99])}), lance.dataset(branch_root), mode="append")
    assert ids(path, branch="side/one") == [*range(20), 99]
    assert ids(path) == list(range(30))
    append(branch_root, 200, rows=1)
    assert ids(path, branch="side/one") == [*range(20), 99, 200]
    assert lance.dataset(branch_root).count_rows() == 22
    assert_same_rows(read_ours(branch_root), read_theirs(branch_root))
    with pytest.raises(VersionNotFoundError, match="nope"):
        ids(path, branch="nope")


def test_a_shallow_clone_reads_the_files_of_its_source(path, tmp_path):
    lance.dataset(path).delete("id = 5")
    clone = str(tmp_path / "clone")
    lance.dataset(path).shallow_clone(clone, reference=4)
    lance.dataset(clone).delete("id = 25")
    append(clone, 100, rows=3)
    expected = [i for i in [*range(30), 100, 101, 102] if i not in (5, 25)]
    assert ids(clone) == expected
    lance.dataset(clone).validate()
    assert_same_rows(read_ours(clone), read_theirs(clone))


def test_the_old_naming_scheme_is_kept(tmp_path):
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


def test_a_version_by_time_is_the_newest_at_or_before_it(path):
    times = [
        read.manifest.timestamp_ns
        for read in (Snapshot.open(path, at=VersionSpec(version=v)) for v in (1, 2, 3))
    ]
    assert len(ids(path, timestamp_ns=times[1])) == 20
    assert len(ids(path, timestamp_ns=times[2] - 1)) == 20
    assert len(ids(path, timestamp_ns=times[2] + 10**18)) == 30
    with pytest.raises(VersionNotFoundError, match="the oldest one left, version 1"):
        ids(path, timestamp_ns=times[0] - 1)


def test_contradicting_and_missing_versions_are_refused(path, tmp_path):
    with pytest.raises(InvalidInputError, match="version and tag both choose"):
        VersionSpec(version=1, tag="x")
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        ids(path, version=9)
    with pytest.raises(TableNotFoundError, match="no Lance table"):
        ids(str(tmp_path / "nothing"))


def test_a_table_made_anew_under_the_same_path_is_not_the_old_one(path):
    import shutil

    assert len(ids(path, version=1)) == 10
    shutil.rmtree(path)
    append(path, 500, rows=2)
    assert ids(path, version=1) == [500, 501]


def test_references_do_not_leave_the_table(tmp_path):
    table, other = str(tmp_path / "table"), str(tmp_path / "other")
    lance.write_dataset(pa.table({"id": [1]}), table).tags.create("release", 1)
    lance.write_dataset(pa.table({"id": [2]}), other)
    tag = tmp_path / "table/_refs/tags/release.json"
    for branch in ("../../other", "..", "/" + other, "a/../../../other", "x\0", "", "a//b", "."):
        content = json.loads(tag.read_text()) | {"branch": branch}
        tag.write_text(json.dumps(content))
        with pytest.raises(CorruptFileError, match="not the name of a branch"):
            Snapshot.open(table, at=VersionSpec(tag="release"))
        with pytest.raises(InvalidInputError, match="not the name of a branch"):
            Snapshot.open(table, at=VersionSpec(branch=branch))
    branches = tmp_path / "table/_refs/branches"
    branches.mkdir()
    (branches / "..%2F..%2Fother.json").write_text('{"parentVersion": 1}')
    with pytest.raises(CorruptFileError, match="not the name of a branch"):
        list_branches(open_store(table))
