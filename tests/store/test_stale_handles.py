"""Handles that a network file system finds stale, at each call to the system of each verb."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest
from stale_mount import stale_mount

from pyspark_lance.errors import StorageError
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ByteRange

LARGE = bytes(range(256)) * 1024


def written(store, path, data):
    output = store.open_output(path)
    try:
        output.write(data)
        output.close()
    finally:
        output.abort()


READS = {
    "get": lambda store: bytes(store.get("data/large")),
    "tail of a small one": lambda store: bytes(store.get_tail("data/small", 100)[0]),
    "tail of a large one": lambda store: bytes(store.get_tail("data/large", 100)[0]),
    "ranges": lambda store: [
        bytes(one) for one in store.get_ranges("data/large", [ByteRange(0, 9), ByteRange(50, 60)])
    ],
    "stat": lambda store: store.stat("data/small"),
    "is there": lambda store: store.exists("data/small"),
    "is not there": lambda store: store.exists("data/none"),
    "list": lambda store: list(store.list("")),
    "list names": lambda store: sorted(store.list_names("data")),
    "list names beside folders": lambda store: store.list_names(""),
}
WRITES = {
    "put": lambda store: store.put("data/new", b"1"),
    "put over another": lambda store: store.put("data/small", b"1"),
    "put into a new folder": lambda store: store.put("_versions/new", b"1"),
    "create": lambda store: store.put_if_absent("_versions/new", b"1"),
    "create what is there": lambda store: store.put_if_absent("data/small", b"1"),
    "copy": lambda store: store.copy("data/large", "data/copy"),
    "copy without room": lambda store: store._link_copy("data/large", "data/copy"),
    "write": lambda store: written(store, "data/new", LARGE),
    "delete": lambda store: store.delete("data/small"),
    "delete what is not there": lambda store: store.delete("data/none"),
}
# Carried out or not, they cannot be done again: what was written may be lost.
LAST_WORD = ("fsync", "fstat")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.fixture
def root(tmp_path):
    """A folder with something in it."""
    store = LocalStore(str(tmp_path / "t"))
    store.put("data/small", b"small")
    store.put("data/large", LARGE)
    return tmp_path / "t"


def contents(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


def ended(verb, root):
    try:
        return verb(LocalStore(str(root)))
    except StorageError as error:
        assert "Stale file handle" in str(error)
        assert "mount it again" in str(error)
        return StorageError


def calls_of(verb, root):
    with stale_mount(root) as mount:
        verb(LocalStore(str(root)))
    assert mount.calls
    return mount.calls


@pytest.mark.parametrize("verb", READS.values(), ids=READS)
def test_read_retries_one_stale_handle(root, verb):
    expected = verb(LocalStore(str(root)))
    for number in range(len(calls_of(verb, root))):
        with stale_mount(root, {number}):
            assert verb(LocalStore(str(root))) == expected


@pytest.mark.parametrize("verb", READS.values(), ids=READS)
def test_read_with_only_stale_handles_raises_storage_error(root, verb):
    for number in range(len(calls_of(verb, root))):
        with stale_mount(root, since=number):
            assert ended(verb, root) is StorageError


@pytest.mark.parametrize("after", [False, True], ids=["not carried out", "carried out"])
@pytest.mark.parametrize("verb", WRITES.values(), ids=WRITES)
def test_write_with_one_stale_handle_is_atomic(root, tmp_path, verb, after):
    def table(name):
        return shutil.copytree(root, tmp_path / name)

    begin = contents(root)
    calls = calls_of(verb, table("calls"))
    answer, end = verb(LocalStore(str(table("done")))), contents(tmp_path / "done")
    for number, call in enumerate(calls):
        if after and call in ("open", "open file", "mmap"):
            continue  # what it opened would stay open
        path = table(str(number))
        with stale_mount(path, {number}, after=after) as mount:
            found = ended(verb, path)
        assert len(mount.calls) > number
        if found is StorageError:
            assert call in LAST_WORD
            assert contents(path) == begin
        else:
            assert (found, contents(path)) == (answer, end), call


@pytest.mark.parametrize("verb", WRITES.values(), ids=WRITES)
def test_write_with_only_stale_handles_raises_storage_error(root, tmp_path, verb):
    calls = calls_of(verb, shutil.copytree(root, tmp_path / "calls"))
    begin, end = contents(root), contents(tmp_path / "calls")
    for number in range(len(calls)):
        path = shutil.copytree(root, tmp_path / str(number))
        with stale_mount(path, since=number):
            found = ended(verb, path)
        objects = {
            name: data for name, data in contents(path).items() if not name.endswith(".part")
        }
        assert objects in (begin, end)
        assert found is StorageError or objects == end


def test_stale_handle_retries_are_few_and_short(root, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with stale_mount(root, since=0) as mount, pytest.raises(StorageError):
        LocalStore(str(root)).get("data/small")
    assert 3 <= len(mount.calls) <= 10
    assert sum(pauses) < 1


def test_file_removed_during_retry_is_missing(root, monkeypatch):
    real, left = os.stat, ["small"]

    def stat(path, **how):
        if left and str(path).endswith(left[0]):
            os.unlink(root / "data" / left.pop())
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(path, **how)

    with monkeypatch.context() as patch, pytest.raises(FileNotFoundError):
        patch.setattr(os, "stat", stat)
        LocalStore(str(root)).stat("data/small")
