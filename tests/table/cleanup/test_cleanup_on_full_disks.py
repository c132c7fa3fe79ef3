"""Disks without room: a cleanup frees some, and marked versions cannot be referenced."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from table_access import append, read_ours

from pyspark_lance.errors import StorageError, VersionNotFoundError
from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.store import open_store as opening
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table import refs
from pyspark_lance.table.cleanup import cleanup as cleaning
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.refs import create_branch, set_tag
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table

ALL_OLD = CleanupPolicy(older_than_s=0)


@pytest.fixture
def path(tmp_path):
    """Five versions; the rows of the first four are in no other version."""
    path = str(tmp_path / "t")
    for number in range(5):
        append(path, 10 * number, overwrite=True)
    return path


def versions(path):
    return [one.version for one in list_versions(LocalStore(path))]


def files(path):
    return {str(one.relative_to(path)) for one in Path(path).rglob("*") if one.is_file()}


class FullDisk(LocalStore):
    """Takes no content, only names; with ``names`` false, not even those before a file goes."""

    names = True

    def put(self, path, data):
        if len(data) or not type(self).names:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise StorageError("cannot write the object", f"{self.uri}/{path}") from full
        super().put(path, data)

    def delete(self, path):
        super().delete(path)
        type(self).names = True


@pytest.fixture
def full_disk(monkeypatch):
    monkeypatch.setattr(opening, "LocalStore", FullDisk)
    monkeypatch.setattr(FullDisk, "names", True)


def test_full_disk_is_cleaned_up(path, full_disk):
    before = files(path)
    result = cleanup_old_versions(Table(path), ALL_OLD)
    assert result.versions == (1, 2, 3, 4)
    assert versions(path) == [5]
    assert files(path) < before  # no mark is left, nor anything else that is new
    assert read_ours(path)["id"].to_pylist() == [40, 41, 42]


def test_marked_version_on_full_disk_cannot_be_referenced(path, full_disk, monkeypatch):
    real, refused = cleaning.move_to_pending_removal, []
    monkeypatch.setattr(
        cleaning, "move_to_pending_removal", lambda *given, **more: needed(*given, **more)
    )

    def needed(store, locations, **settings):
        monkeypatch.setattr(opening, "LocalStore", LocalStore)  # space for other writers
        for need in (
            lambda: set_tag(Table(path), "late", VersionSpec(version=2)),
            lambda: create_branch(Table(path), "late", VersionSpec(version=2)),
            lambda: restore(Table(path), VersionSpec(version=2)),
        ):
            with pytest.raises(VersionNotFoundError, match="version 2 is being removed"):
                need()
            refused.append(need)
        real(store, locations, **settings)

    cleanup_old_versions(Table(path), ALL_OLD)
    assert len(refused) == 3
    assert versions(path) == [5]
    assert not [one for one in files(path) if "removed" in one]


def test_full_disk_removes_unreferenced_files_first(path, full_disk, monkeypatch):
    leftover = Path(path, "data", "leftover.lance")
    leftover.write_bytes(b"of a job that died")
    os.utime(leftover, (0, 1))
    monkeypatch.setattr(FullDisk, "names", False)
    cleanup_old_versions(Table(path), ALL_OLD)
    assert versions(path) == [5]
    assert not leftover.exists()


def test_cleanup_without_any_space_removes_nothing(path, full_disk, monkeypatch):
    before = files(path)
    monkeypatch.setattr(FullDisk, "names", False)
    with pytest.raises(StorageError):
        cleanup_old_versions(Table(path), ALL_OLD)
    assert files(path) == before


def test_copy_on_full_disk_links_file(tmp_path):
    store = FullDisk(str(tmp_path))
    LocalStore(str(tmp_path)).put("a", b"content")
    LocalStore(str(tmp_path)).put("b", b"before")
    store.copy("a", "b")
    store.copy("a", "b")
    LocalStore(str(tmp_path)).put("a", b"other")
    assert bytes(store.get("b")) == b"content"
    assert sorted(files(str(tmp_path))) == ["a", "b"]


SMALL_DISK = """
    import os, sys
    import pyarrow as pa
    from table_access import append, read_ours
    from pyspark_lance.errors import StorageError
    from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
    from pyspark_lance.table.version.table import Table

    path = sys.argv[1] + "/t"
    room = lambda: os.statvfs(sys.argv[1]).f_bavail
    append(path, 0, rows=60_000)
    try:
        while True:
            append(path, 0, rows=60_000, overwrite=True)
    except StorageError:
        pass
    try:
        with open(sys.argv[1] + "/fill", "wb", buffering=0) as fill:
            while True:
                fill.write(bytes(4096))
    except OSError:
        pass
    assert room() == 0, room()
    done = cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0, delete_unverified=True))
    assert len(done.versions) > 1 and room() > 0
    append(path, 60_000)
    assert read_ours(path).num_rows == 60_003
    print("cleaned up")
"""


def test_full_small_file_system_is_cleaned_up(tmp_path):
    """One of a megabyte, in a namespace of its own."""
    mount = f"mount -t tmpfs -o size=1M tmpfs {tmp_path}"
    may = shutil.which("unshare") and subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False
    )
    if not may or may.returncode:
        pytest.skip("no file systems may be mounted here")
    script = tmp_path.parent / f"{tmp_path.name}.py"
    script.write_text(textwrap.dedent(SMALL_DISK))
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && {sys.executable} {script} {tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "support")},
    )
    assert done.stdout.strip() == "cleaned up", done.stderr[-2000:]


# What a killed process leaves of a branch -----------------------------------------


def test_unfinished_branch_files_expire_after_week(path, monkeypatch):

    def dies(*given):
        raise KeyboardInterrupt

    before = files(path)
    with monkeypatch.context() as patch:
        patch.setattr(refs, "encode_manifest", dies)
        with pytest.raises(KeyboardInterrupt):
            create_branch(Table(path), "trial", VersionSpec(version=3))
    (left,) = files(path) - before
    assert left.startswith("tree/trial/_transactions/")
    everything = CleanupPolicy(retain_versions=100, delete_unverified=True)
    cleanup_old_versions(Table(path), everything)
    assert left in files(path)  # it may be in progress
    info = LocalStore(path).stat(left)
    week_later = info.modified_ns + int((SAFE_AGE_S + 1) * 1e9)
    assert left in cleanup_old_versions(Table(path), everything, now_ns=week_later).paths
    assert files(path) == before


def test_files_of_branches_are_kept_at_any_age(path):
    create_branch(Table(path), "trial", VersionSpec(version=3))
    before = {one for one in files(path) if one.startswith("tree/")}
    far = LocalStore(path).stat(min(before)).modified_ns + int(10 * SAFE_AGE_S * 1e9)
    cleanup_old_versions(Table(path), ALL_OLD, now_ns=far)
    assert {one for one in files(path) if one.startswith("tree/")} == before
    assert read_ours(path, branch="trial").num_rows == 3
