"""Tags and branches: made by us and by pylance, read and gone on with by both."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import append, assert_same_rows, read_ours, read_pylance

from pyspark_lance.errors import InvalidInputError, VersionNotFoundError
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table import refs
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.refs import (
    branches_of,
    create_branch,
    remove_branch,
    remove_tag,
    set_tag,
    tags_of,
)
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table, branch_root

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, 10)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    delete_rows(path, "id = 3")
    return path


# Tags --------------------------------------------------------------------------------------


def test_pylance_lists_reads_and_moves_tags(path):
    set_tag(Table(path), "v-1.0_x", VersionSpec(version=2))
    set_tag(Table(path), "newest")
    dataset = lance.dataset(path)
    assert {name: tag["version"] for name, tag in dataset.tags.list().items()} == {
        "v-1.0_x": 2,
        "newest": 3,
    }
    assert dataset.checkout_version("v-1.0_x").count_rows() == 10
    dataset.tags.update("newest", 1)
    assert [(tag.name, tag.version) for tag in tags_of(Table(path))] == [
        ("newest", 1),
        ("v-1.0_x", 2),
    ]


def test_pylance_tags_are_moved_and_removed(path):
    lance.dataset(path).tags.create("theirs", 1)
    made = tags_of(Table(path))[0].created_at
    moved = set_tag(Table(path), "theirs", VersionSpec(version=2), replaces=True)
    assert (moved.version, moved.created_at) == (2, made)
    assert moved.updated_at > made
    assert lance.dataset(path).tags.list()["theirs"]["version"] == 2
    remove_tag(Table(path), "theirs")
    assert lance.dataset(path).tags.list() == {}


def test_duplicate_and_missing_tags_are_refused(path):
    set_tag(Table(path), "here")
    with pytest.raises(InvalidInputError, match="already"):
        set_tag(Table(path), "here", VersionSpec(version=1))
    assert tags_of(Table(path))[0].version == 3
    with pytest.raises(VersionNotFoundError):
        set_tag(Table(path), "there", replaces=True)
    with pytest.raises(VersionNotFoundError):
        set_tag(Table(path), "there", VersionSpec(version=9))
    with pytest.raises(VersionNotFoundError, match="here"):
        remove_tag(Table(path), "her")


@pytest.mark.parametrize("name", ["", "a/b", ".a", "a.", "a..b", "x.lock", "é", "a b", "../x"])
def test_invalid_tag_names_are_refused(path, name):
    with pytest.raises(InvalidInputError, match="cannot be called"):
        set_tag(Table(path), name)
    assert not list(Path(path).glob("_refs/tags/*"))


@pytest.mark.parametrize("name", ["main", "1", "a.b", "A-_9"])
def test_tag_names_of_pylance_are_accepted(path, name):
    set_tag(Table(path), name)
    assert name in lance.dataset(path).tags.list()


# Branches ----------------------------------------------------------------------------------


def test_branch_is_visible_to_pylance(path):
    branch = create_branch(Table(path), "work/one", VersionSpec(version=2))
    root = branch_root(path, "work/one")
    (from_pylance,) = lance.dataset(path).branches.list().values()
    assert from_pylance["parent_version"] == branch.parent_version == 2
    dataset = lance.dataset(root)
    assert (dataset.version, dataset.count_rows()) == (2, 10)
    dataset.validate()
    # The index is where it was, and is used.
    assert "ScalarIndexQuery" in dataset.scanner(filter="id = 4").explain_plan()
    assert dataset.to_table(filter="id = 4").num_rows == 1
    lance.write_dataset(pa.table({"id": pa.array([50], pa.int64())}), root, mode="append")
    lance.dataset(root).delete("id = 0")
    append(root, 60)
    delete_rows(root, "id = 1")
    assert sorted(read_pylance(root)["id"].to_pylist()) == [*range(2, 10), 50, 60, 61, 62]
    assert_same_rows(read_ours(root), read_pylance(root))
    assert compact(Table(root)).version is not None
    assert_same_rows(read_ours(root), read_pylance(root))
    assert read_ours(path, branch="work/one").num_rows == 12
    # Main knows nothing of it.
    assert (lance.dataset(path).version, lance.dataset(path).count_rows()) == (3, 9)


def test_branches_equal_branches_of_pylance(path):
    ours, from_pylance = create_branch(Table(path), "ours"), None
    from_pylance = lance.dataset(path).create_branch("theirs", 3)
    found = {one.name: one for one in branches_of(Table(path))}
    assert found["ours"] == ours
    for one in found.values():
        assert (one.parent_branch, one.parent_version, len(one.version_mapping)) == (None, 3, 1)
    mine, other = (
        Snapshot.open(Table(root)).manifest
        for root in (branch_root(path, "ours"), from_pylance.uri)
    )
    for name in (
        "version", "schema", "fragments", "base_paths", "reader_flags", "writer_flags",
        "max_fragment_id", "next_row_id", "config",
    ):  # fmt: skip
        assert getattr(mine, name) == getattr(other, name), name
    indices = [Snapshot.open(Table(branch_root(path, one))).indices for one in ("ours", "theirs")]
    assert indices[0] == indices[1]


def test_branch_of_branch_records_parent(path):
    create_branch(Table(path), "a")
    root = branch_root(path, "a")
    append(root, 20)
    deeper = create_branch(Table(root), "b")
    assert deeper.parent_branch == "a"
    assert [version for version, _ in deeper.version_mapping] == [3, 4]
    other = lance.dataset(branch_root(path, "b"))
    assert other.count_rows() == 12
    assert_same_rows(read_ours(branch_root(path, "b")), read_pylance(branch_root(path, "b")))
    set_tag(Table(branch_root(path, "b")), "on-b")
    assert lance.dataset(path).tags.list()["on-b"]["branch"] == "b"
    assert read_ours(path, VersionSpec(tag="on-b")).num_rows == 12


def test_referenced_branch_is_not_removed(path):
    create_branch(Table(path), "a")
    create_branch(Table(branch_root(path, "a")), "a/b")
    set_tag(Table(branch_root(path, "a")), "on-a")
    with pytest.raises(InvalidInputError, match="tag 'on-a', branch 'a/b'"):
        remove_branch(Table(path), "a")
    remove_tag(Table(path), "on-a")
    remove_branch(Table(path), "a/b")
    remove_branch(Table(path), "a")
    assert branches_of(Table(path)) == []
    assert lance.dataset(path).branches.list() == {}
    assert not [one for one in Path(path, "tree").rglob("*") if one.is_file()]
    with pytest.raises(VersionNotFoundError):
        remove_branch(Table(path), "a")
    # The name is free again.
    create_branch(Table(path), "a")


def test_nested_branch_survives_removal_of_outer(path):
    create_branch(Table(path), "a")
    create_branch(Table(path), "a/b")
    remove_branch(Table(path), "a")
    assert [one.name for one in branches_of(Table(path))] == ["a/b"]
    assert read_ours(path, branch="a/b").num_rows == 9


@pytest.mark.parametrize("name", ["", "main", "/a", "a/", "a//b", "a/../b", "x.lock", "é", "a\\b"])
def test_invalid_branch_names_are_refused(path, name):
    with pytest.raises(InvalidInputError, match="cannot be called"):
        create_branch(Table(path), name)


def test_duplicate_branch_is_refused(path):
    create_branch(Table(path), "a")
    with pytest.raises(InvalidInputError, match="already"):
        create_branch(Table(path), "a", VersionSpec(version=1))
    assert lance.dataset(branch_root(path, "a")).version == 3


def files_below(path, branch):
    return {one for one in Path(path, "tree", branch).rglob("*") if one.is_file()}


class Killed(BaseException):
    """Stands for the death of the process."""


@contextlib.contextmanager
def dying(monkeypatch, owner, name):
    """Raise KeyboardInterrupt instead of calling the function."""

    def die(*arguments, **settings):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(Killed):
            yield


@pytest.fixture(params=["ours", "theirs"])
def begun(request, path, monkeypatch):
    """A branch of version 2 that has its first version, but no description."""
    if request.param == "theirs":
        lance.dataset(path).create_branch("begun", 2)
        Path(path, "_refs/branches/begun.json").unlink()
    else:
        with dying(monkeypatch, refs, "write_branch"):
            create_branch(Table(path), "begun", VersionSpec(version=2))
    assert branches_of(Table(path)) == []
    return path


def test_unfinished_branch_is_completed_by_same_fork(begun):
    files = files_below(begun, "begun")
    branch = create_branch(Table(begun), "begun", VersionSpec(version=2))
    assert branches_of(Table(begun)) == [branch]
    assert files_below(begun, "begun") == files  # nothing of it is made again
    from_pylance = lance.dataset(begun).checkout_version(("begun", None))
    assert (from_pylance.version, from_pylance.count_rows()) == (2, 10)
    append(branch_root(begun, "begun"), 20)
    assert read_ours(begun, branch="begun").num_rows == 13
    with pytest.raises(InvalidInputError, match="already"):
        create_branch(Table(begun), "begun", VersionSpec(version=2))


@pytest.mark.parametrize("fork", ["another version", "another branch", "with a new version"])
def test_unfinished_branch_blocks_other_fork_until_removed(begun, fork):
    table, at = Table(begun), VersionSpec(version=2)
    if fork == "another version":
        at = VersionSpec(version=1)
    elif fork == "another branch":
        create_branch(table, "other", at)
        table = Table(begun, branch="other")
    else:
        append(branch_root(begun, "begun"), 20)
    with pytest.raises(InvalidInputError, match="exists incompletely") as error:
        create_branch(table, "begun", at)
    assert "remove" in error.value.hint
    remove_branch(table, "begun")
    assert files_below(begun, "begun") == set()
    assert create_branch(table, "begun", at).parent_version == at.version
    assert read_ours(begun, branch="begun").num_rows == 10


def test_unfinished_branch_is_removed_unless_referenced(begun):
    set_tag(Table(branch_root(begun, "begun")), "on-it")
    with pytest.raises(InvalidInputError, match="tag 'on-it'"):
        remove_branch(Table(begun), "begun")
    remove_tag(Table(begun), "on-it")
    create_branch(Table(begun), "begun/inner")
    remove_branch(Table(begun), "begun")
    assert read_ours(begun, branch="begun/inner").num_rows == 9
    with pytest.raises(VersionNotFoundError, match="no branch 'begun'"):
        remove_branch(Table(begun), "begun")


def test_interrupted_removal_is_finished_by_next(path, monkeypatch):
    create_branch(Table(path), "a")
    append(branch_root(path, "a"), 20)
    with dying(monkeypatch, LocalStore, "delete_many"):
        remove_branch(Table(path), "a")
    assert branches_of(Table(path)) == []
    remove_branch(Table(path), "a")
    assert files_below(path, "a") == set()
    assert create_branch(Table(path), "a").parent_version == 3


def test_branch_removed_during_creation_raises(path, monkeypatch):
    real = refs.write_branch

    def late(*arguments, **settings):
        remove_branch(Table(path), "a")
        return real(*arguments, **settings)

    monkeypatch.setattr(refs, "write_branch", late)
    with pytest.raises(VersionNotFoundError, match="removed by another process"):
        create_branch(Table(path), "a")
    assert branches_of(Table(path)) == []
    assert files_below(path, "a") == set()


def test_branch_completed_during_removal_is_removed(begun, monkeypatch):
    real = LocalStore.delete_many

    def late(self, paths):
        create_branch(Table(begun), "begun", VersionSpec(version=2))
        real(self, paths)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete_many", late)
        remove_branch(Table(begun), "begun")
    assert branches_of(Table(begun)) == []
    assert files_below(begun, "begun") == set()


def test_pickled_table_keeps_its_working_directory(path, monkeypatch):
    monkeypatch.chdir(Path(path).parent)
    table = pickle.dumps(Table("t"))
    monkeypatch.chdir("/")
    assert pickle.loads(table).uri == path
    assert Table("s3://bucket/t").uri == "s3://bucket/t"


def test_relative_path_is_stored_absolute(path):
    here = os.getcwd()
    os.chdir(Path(path).parent)
    try:
        create_branch(Table("t"), "a")
    finally:
        os.chdir(here)
    assert lance.dataset(branch_root(path, "a")).count_rows() == 9
