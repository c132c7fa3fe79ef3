"""Tables made to do harm: names that lead outside.

Names are put wherever a string of a file becomes a path.
"""

from __future__ import annotations

import json
from dataclasses import replace

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table.verify.hostile_manifests import change_fragment, change_manifest
from table_access import read_ours, write_table

from pyspark_lance.errors import LanceError, UnsupportedFeatureError
from pyspark_lance.format.fragment import ExternalFile
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.history.history import detail
from pyspark_lance.table.index_build.column_indices import create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.refs import create_branch, set_tag
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

SECRET = pa.table({"id": pa.array([666, 667], pa.int64())})
# Each leads to a file beside the table, if it is resolved from the folder "data".
NAMES = (
    "../../secret/data/{file}", "../data/../../secret/data/{file}", "{root}/secret/data/{file}",
    "file://{root}/secret/data/{file}", "/{root}/secret/data/{file}", "./../../secret/data/{file}",
    "%2e%2e/%2e%2e/secret/data/{file}", "..%2f..%2fsecret/data/{file}",
    "x/../../../secret/data/{file}",
    "..\\..\\secret\\data\\{file}", "../../secret/data/{file}\0", "", ".", "..", "s3://b/{file}",
    "memory://x::file://{root}/secret/data/{file}",
)  # fmt: skip


@pytest.fixture
def place(tmp_path):
    """A table, and another one beside it that it must not show."""
    write_table(str(tmp_path / "t"), pa.table({"id": pa.array([1, 2], pa.int64())}))
    write_table(str(tmp_path / "secret"), SECRET)
    return tmp_path


def hostile_name(place, form):
    (file,) = (place / "secret" / "data").glob("*.lance")
    return form.format(file=file.name, root=place)


def refused(path, **how):
    with pytest.raises(LanceError) as error:
        read_ours(str(path), **how)
    assert "Traceback" not in str(error.value)


# Names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", NAMES)
def test_data_file_must_be_below_root(place, form):
    (file,) = Snapshot.open(Table(str(place / "t"))).manifest.fragments[0].files
    name = hostile_name(place, form)
    change_fragment(place / "t", files=(replace(file, path=name),))
    refused(place / "t")


@pytest.mark.parametrize("form", NAMES)
def test_data_file_must_be_below_base_path(place, form):
    """Also where the base path itself is declared, and is no root of a table."""
    (file,) = Snapshot.open(Table(str(place / "t"))).manifest.fragments[0].files
    (place / "base").mkdir()
    name = hostile_name(place, form)
    base = BasePath(1, None, False, str(place / "base"))

    def change(manifest):
        files = (replace(file, path=name, base_id=1),)
        fragments = (replace(manifest.fragments[0], files=files),)
        return replace(manifest, fragments=fragments, base_paths=(base,))

    change_manifest(place / "t", change)
    refused(place / "t")


@pytest.mark.parametrize("form", NAMES)
def test_external_sequences_must_be_below_root(place, form):
    (fragment,) = Snapshot.open(Table(str(place / "t"))).manifest.fragments
    (place / "secret" / "data" / "ids").write_bytes(fragment.row_ids)
    name = hostile_name(place, form).rpartition("/")[0] + "/ids"
    change_fragment(place / "t", row_ids=ExternalFile(name, 0, len(fragment.row_ids)))
    refused(place / "t")


@pytest.mark.parametrize("form", [form for form in NAMES if form])
def test_transaction_file_must_be_in_its_folder(place, form):
    from pyspark_lance.metafile.manifest_file import read_transaction

    name = hostile_name(place, form)
    with pytest.raises((LanceError, FileNotFoundError)):
        read_transaction(open_store(str(place / "t")), name)


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    "branch",
    [
        "../../secret", "%2e%2e/%2e%2e/secret", "..%2f..%2fsecret", "%2E%2E/%2E%2E/secret",
        "x/../../../secret", "/secret", "..", "", "a\0b", "x::memory:y", "..\\..\\secret",
        "a?b", "a#b",
    ],
)  # fmt: skip
def test_branch_of_tag_must_be_below_table(place, scheme, branch):
    tags = place / "t" / "_refs" / "tags"
    tags.mkdir(parents=True)
    (tags / "x.json").write_text(json.dumps({"branch": branch, "version": 1}))
    with pytest.raises(LanceError):
        Snapshot.open(Table(f"{scheme}{place / 't'}"), VersionSpec(tag="x"))


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("name", ["%252e%252e%2F%252e%252e%2Fsecret", "..%2F..%2Fsecret", "a%00"])
def test_branch_must_be_below_table(place, scheme, name):
    from pyspark_lance.table.refs import branches_of, remove_branch

    branches = place / "t" / "_refs" / "branches"
    branches.mkdir(parents=True)
    (branches / f"{name}.json").write_text(json.dumps({"parentVersion": 1}))
    table = Table(f"{scheme}{place / 't'}")
    with pytest.raises(LanceError):
        branches_of(table)
    with pytest.raises(LanceError):
        remove_branch(table, "../../secret")
    assert read_ours(str(place / "secret")).num_rows == 2


def test_cleanup_removes_link_but_not_its_target(place):
    from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions

    (file,) = (place / "secret" / "data").iterdir()
    (place / "t" / "data" / "link.lance").symlink_to(file)
    (place / "t" / "data" / "folder").symlink_to(file.parent)
    cleanup_old_versions(Table(str(place / "t")), CleanupPolicy(0, delete_unverified=True))
    assert not (place / "t" / "data" / "link.lance").exists()
    assert read_ours(str(place / "secret")).num_rows == 2


# Links ---------------------------------------------------------------------------------------

REMOVE_ALL = CleanupPolicy(0, delete_unverified=True, error_if_tagged=False)
FOLDERS = ("_versions", "_transactions", "data", "_deletions", "_indices", "_refs")


def changed_table(path):
    """Have files in each folder that a table may have."""
    write_table(path, pa.table({"id": pa.array(range(6), pa.int64())}), max_rows_per_file=3)
    delete_rows(path, "id = 1")
    create_index(Table(path), IndexRequest(("id",), name="by_id"))
    set_tag(Table(path), "kept", VersionSpec(version=1))


def write_everywhere(path):
    """Work that writes into the folders of a table, one after the other."""
    yield lambda: write_table(path, pa.table({"id": pa.array([9], pa.int64())}))
    yield lambda: delete_rows(path, "id = 4")
    yield lambda: create_index(Table(path), IndexRequest(("id",), name="by_id", replace=True))
    yield lambda: set_tag(Table(path), "other", VersionSpec(version=1))
    yield lambda: compact(Table(path), CompactionRequest(target_rows_per_fragment=100))
    yield lambda: cleanup_old_versions(Table(path), REMOVE_ALL)


def files_below(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replace_by_link(place, folder, target):
    moved = place / "t" / folder
    target.parent.mkdir(parents=True, exist_ok=True)
    moved.rename(target)
    moved.symlink_to(target)


@pytest.mark.parametrize("folder", FOLDERS)
def test_outward_link_blocks_writes_and_removal(tmp_path, folder):
    path = str(tmp_path / "t")
    changed_table(path)
    replace_by_link(tmp_path, folder, tmp_path / "elsewhere" / folder)
    (tmp_path / "elsewhere" / folder / "theirs.lance").write_bytes(b"theirs")
    before = files_below(tmp_path / "elsewhere")
    refused_writes = 0
    for write in write_everywhere(path):
        try:
            write()
        except UnsupportedFeatureError as error:
            refused_writes += 1
            assert f"t/{folder}" in str(error)
            assert "storage.allowed_base_paths" in str(error)
    assert refused_writes
    assert files_below(tmp_path / "elsewhere") == before
    assert read_ours(path).num_rows  # what is there is read


@pytest.mark.parametrize("allowed", ["{place}/elsewhere", "s3://b/x, file://{place}/elsewhere/"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_links_to_allowed_locations_are_followed(tmp_path, folder, allowed):
    path = str(tmp_path / "t")
    changed_table(path)
    replace_by_link(tmp_path, folder, tmp_path / "elsewhere" / folder)
    storage = {"storage.allowed_base_paths": allowed.format(place=tmp_path)}
    table = Table(path, storage)
    delete_rows(path, "id = 4", options=storage)
    create_index(table, IndexRequest(("id",), name="by_id", replace=True))
    set_tag(table, "other", VersionSpec(version=1))
    compact(table, CompactionRequest(target_rows_per_fragment=100))
    cleanup_old_versions(table, REMOVE_ALL)
    assert sorted(read_ours(path)["id"].to_pylist()) == [0, 2, 3, 5]


def test_links_to_and_within_table_are_followed(tmp_path):
    path = str(tmp_path / "t")
    changed_table(path)
    replace_by_link(tmp_path, "data", tmp_path / "t" / "data_of_2024")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    for write in write_everywhere(str(tmp_path / "link")):
        write()
    assert sorted(read_ours(path)["id"].to_pylist()) == [0, 2, 3, 5, 9]


def test_dangling_link_creates_no_folder(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": pa.array([1, 2], pa.int64())}))
    (tmp_path / "t" / "_deletions").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsupportedFeatureError):
        delete_rows(path, "id = 1")
    assert not (tmp_path / "elsewhere").exists()


# Base paths ----------------------------------------------------------------------------------


def with_base(path, base, *, dataset_root=True):
    """Have the only data file below another root."""

    def change(manifest):
        (fragment,) = manifest.fragments
        files = (replace(fragment.files[0], base_id=1),)
        bases = (BasePath(1, None, dataset_root, base),)
        return replace(manifest, fragments=(replace(fragment, files=files),), base_paths=bases)

    change_manifest(path, change)


@pytest.mark.parametrize("base", ["secret", "../secret", "./secret", "~/secret", "a/../secret"])
def test_relative_base_path_ignores_working_folder(place, base, monkeypatch):
    (place / "x").mkdir()
    monkeypatch.chdir(place if ".." not in base or "a/" in base else place / "x")
    monkeypatch.setenv("HOME", str(place))
    (place / "a").mkdir()
    with_base(place / "t", base)
    with pytest.raises(
        UnsupportedFeatureError, match="a path relative to the working directory"
    ) as error:
        read_ours(str(place / "t"))
    assert "storage.allowed_base_paths" in str(error.value)


def test_relative_base_path_resolves_to_allowed_location(place, monkeypatch):
    (place / "away").mkdir()
    monkeypatch.chdir(place / "away")
    with_base(place / "t", "t")
    assert read_ours(str(place / "t")).num_rows == 2
    with_base(place / "t", f"{place.name}/t/")
    assert read_ours(str(place / "t")).num_rows == 2
    (file,) = (place / "t" / "data").iterdir()
    (place / "other" / "data").mkdir(parents=True)
    file.rename(place / "other" / "data" / file.name)
    with_base(place / "t", "other")
    with pytest.raises(LanceError):
        read_ours(str(place / "t"))
    storage = {"storage.allowed_base_paths": f"{place}/other"}
    snapshot = Snapshot.open(Table(str(place / "t"), storage))
    tasks = plan_scan(snapshot, ScanRequest())
    assert sum(batch.num_rows for task in tasks for batch in task.run()) == 2


@pytest.mark.interop
def test_pylance_branches_with_relative_path_are_read(place, monkeypatch):
    monkeypatch.chdir(place)
    lance.dataset("t").create_branch("x")
    (place / "away").mkdir()
    monkeypatch.chdir(place / "away")
    assert read_ours(str(place / "t"), branch="x").num_rows == 2


def test_locations_outside_table_are_listed(place, tmp_path):
    path, other = str(place / "t"), f"{place}/secret"
    with_base(path, "t")
    assert detail(Table(path)).base_paths == verify(Table(path)).basePaths == ()
    with_base(path, other)
    assert detail(Table(path)).base_paths == verify(Table(path)).basePaths == (other,)
    with_base(path, "elsewhere")
    found = verify(Table(path))
    assert found.basePaths == ("elsewhere",)
    assert "bad_data_file" in {one.kind for one in found.errors}


def test_branch_has_no_files_outside_table(place):
    path = str(place / "t")
    create_branch(Table(path), "x")
    assert detail(Table(path, branch="x")).base_paths == ()
    assert detail(Table(f"{path}/tree/x")).base_paths == ()
