import contextlib
import errno
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
from store_conformance import StoreConformance, paths

from pyspark_lance.errors import CorruptFileError, StorageError
from pyspark_lance.store import local_store
from pyspark_lance.store.local_store import LocalStore


@pytest.fixture
def store(tmp_path):
    return LocalStore(str(tmp_path / "table"))


class TestLocalStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(str(tmp_path / "table"))


def _race(root, barrier, results, me):
    mine = LocalStore(root)
    for number in range(40):
        barrier.wait()
        if mine.put_if_absent(f"_versions/{number}.manifest", b"%d" % me * 5000):
            results.put((number, me))


def test_concurrent_processes_create_each_object_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    racers = [
        context.Process(target=_race, args=(str(tmp_path), barrier, results, me)) for me in (1, 2)
    ]
    for racer in racers:
        racer.start()
    winners = [results.get(timeout=60) for _ in range(40)]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert results.empty()
    assert sorted(number for number, _ in winners) == list(range(40))
    store = LocalStore(str(tmp_path))
    for number, me in winners:
        assert bytes(store.get(f"_versions/{number}.manifest")) == b"%d" % me * 5000
    assert len(paths(store)) == 40  # no staging file stayed behind


def test_killed_process_leaves_no_object(tmp_path):
    program = (
        "import os, sys; from pyspark_lance.store.local_store import LocalStore\n"
        f"output = LocalStore({str(tmp_path)!r}).open_output('data/x.lance')\n"
        "output.write(b'half' * 1000000); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    store = LocalStore(str(tmp_path))
    assert not store.exists("data/x.lance")
    assert all(not path.endswith((".lance", ".manifest")) for path in paths(store))


def test_range_is_view_of_mapped_file(store):
    store.put("big", bytes(8 << 20))
    first, second = store.get_range("big", 0, 8 << 20), store.get_range("big", 4096, 8 << 20)
    address = np.frombuffer(first, np.uint8).ctypes.data
    assert np.frombuffer(second, np.uint8).ctypes.data == address + 4096
    assert first.readonly


def test_views_outlive_file_and_store(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("x", b"content" * 10_000)
    view = store.get("x")
    store.delete("x")
    del store
    assert bytes(view) == b"content" * 10_000


def test_file_truncated_after_open_is_corrupt(store, tmp_path):
    store.put("x", bytes(1 << 20))
    store.get_range("x", 0, 10)
    os.truncate(tmp_path / "table" / "x", 5000)
    assert store.size("x") == 5000
    with pytest.raises(CorruptFileError, match="has 5000 bytes"):
        store.get_range("x", 0, 1 << 20)
    with pytest.raises(CorruptFileError):
        store.get_range("x", 900_000, 900_010)
    assert bytes(store.get_range("x", 4990, 5000)) == bytes(10)


def test_grown_or_replaced_file_is_mapped_again(store, tmp_path):
    store.put("x", b"old")
    assert bytes(store.get("x")) == b"old"
    with open(tmp_path / "table" / "x", "ab") as file:
        file.write(b" and more")
    assert bytes(store.get("x")) == b"old and more"
    LocalStore(str(tmp_path / "table")).put("x", b"new")
    assert bytes(store.get("x")) == b"new"


def test_open_maps_are_bounded(store, tmp_path):
    for number in range(local_store.MAX_OPEN_MAPS + 20):
        store.put(f"{number}", b"x")
        store.get(f"{number}")
    with open("/proc/self/maps") as maps:
        assert sum(str(tmp_path) in line for line in maps) <= local_store.MAX_OPEN_MAPS


def test_reading_holds_no_file_open(store):
    store.put("x", b"x" * 100)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        store.get("x")
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the map keeps one


def test_staged_manifest_has_no_manifest_name(store, tmp_path, monkeypatch):
    seen = []
    link = os.link

    def spy(source, target):
        seen.extend(os.listdir(tmp_path / "table" / "_versions"))
        link(source, target)

    monkeypatch.setattr(os, "link", spy)
    assert store.put_if_absent("_versions/7.manifest", b"x")
    assert len(seen) == 1
    assert seen[0].startswith(".tmp_7.manifest_")
    assert not seen[0].endswith(".manifest")
    assert os.listdir(tmp_path / "table" / "_versions") == ["7.manifest"]


def test_content_is_synced_before_rename(store, monkeypatch):
    events = []

    def spy(name, function):
        def call(*arguments):
            events.append(name)
            return function(*arguments)

        return call

    for name in ("fsync", "link", "replace"):
        monkeypatch.setattr(os, name, spy(name, getattr(os, name)))
    store.put_if_absent("a", b"1")
    assert events == ["fsync", "link", "fsync"]
    events.clear()
    store.put("b", b"1")
    assert events == ["fsync", "replace", "fsync"]


def test_repeated_link_after_lost_response_succeeds(store, monkeypatch):
    link = os.link

    def twice(source, target):
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    assert store.put_if_absent("x", b"1") is True


def test_missing_hard_links_error_names_reason(store, tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match="no hard links"):
        store.put_if_absent("x", b"1")
    assert os.listdir(tmp_path / "table") == []


def test_failed_write_leaves_nothing(store, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    output = store.open_output("x")
    output.write(b"1")
    with pytest.raises(StorageError, match="No space left") as caught:
        output.close()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(StorageError, match="No space left"):
        store.put_if_absent("y", b"1")
    with pytest.raises(StorageError, match="No space left"):
        store.put("z", b"1")
    assert os.listdir(tmp_path / "table") == []


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.EACCES, "grant the Spark user read and write permission"),
        (errno.EROFS, "the file system is mounted read-only"),
        (errno.ENOSPC, "free space on the disk"),
        (errno.EIO, "check the store, the network"),
    ],
)
def test_system_error_has_one_line_and_hint(store, monkeypatch, number, step):
    def refuse(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError) as caught:
        store.put("x", b"1")
    what, where, hint = str(caught.value).splitlines()
    assert what == f"[LANCE_STORAGE] cannot write the object: {os.strerror(number)}"
    assert where.endswith("table/x")
    assert hint.startswith(f"  hint: {step}")


def test_conflicting_folder_is_storage_error(store):
    store.put("a/b", b"")
    with pytest.raises(StorageError) as caught:
        store.put("a", b"1")
    assert "table/a" in str(caught.value)


def test_only_file_links_are_followed(store, tmp_path):
    store.put("data/x", b"123")
    os.symlink("x", tmp_path / "table" / "data" / "y")
    os.symlink(tmp_path / "table", tmp_path / "table" / "loop")
    os.symlink("nowhere", tmp_path / "table" / "dangling")
    assert paths(store) == ["data/x", "data/y"]
    assert sorted(store.list_names("data")) == ["x", "y"]
    assert store.list_names("") == []  # folders, and links to them and to nothing, are no objects
    assert store.list_names("none") == store.list_names("data/x") == []
    assert bytes(store.get("data/y")) == b"123"
    assert not store.exists("dangling")


def test_long_name_has_shorter_staging_name(store):
    name = "x" * 240 + ".manifest"
    assert store.put_if_absent(name, b"1")
    assert paths(store) == [name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_storage_error(store, tmp_path):
    store.put("x", b"1")
    os.chmod(tmp_path / "table" / "x", 0)
    with pytest.raises(StorageError, match="Permission denied"):
        store.get("x")


def test_store_works_after_fork(store):
    store.put("x", b"1" * 5000)
    store.get("x")
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            if bytes(store.get("x")) == b"1" * 5000 and store.put_if_absent("y", b"2"):
                code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(store.get("y")) == b"2"
