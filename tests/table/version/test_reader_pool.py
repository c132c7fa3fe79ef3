"""Readers that stay open between searches: never of another file, never for two, bounded."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import lance
import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import MissingFileError
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.row_address import row_addresses
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.nearest import search_plan
from pyspark_lance.table.nearest.search_plan import plan_fetch, read_found
from pyspark_lance.table.scan.plan_scan import project
from pyspark_lance.table.version.reader_pool import READER_POOL, ReaderPool
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS, PER_FILE = 300, 100


@dataclass
class At:
    """Rows that a search has found."""

    address: np.ndarray

    def __len__(self):
        return len(self.address)


@pytest.fixture(autouse=True)
def empty_pool():
    READER_POOL.clear()
    yield
    READER_POOL.clear()


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    write(path, 0)
    return path


def write(path, first, version="2.1", mode="create"):
    """Rows of some numbers; equally many bytes whatever the first number is."""
    numbers = np.arange(first, first + ROWS)
    table = pa.table(
        {
            "n": numbers,
            "s": [f"{number:09}" for number in numbers],
            "p": [{"a": number, "b": [number] * (number % 3)} for number in numbers.tolist()],
        }
    )
    lance.write_dataset(
        table, path, max_rows_per_file=PER_FILE, data_storage_version=version, mode=mode
    )


def read(path, numbers, columns=("n", "s", "p"), snapshot=None):
    """The rows of a version at some numbers, as a search reads them."""
    snapshot = snapshot or Snapshot.open(Table(path))
    fetch = plan_fetch(snapshot, project(snapshot.schema, columns), ())
    fragments = [fragment.id for fragment in snapshot.manifest.fragments]
    found = [row_addresses(fragments[one // PER_FILE], [one % PER_FILE])[0] for one in numbers]
    found = At(np.array(found, np.uint64))
    return [row for _, rows in read_found(fetch, found) for row in rows.to_pylist()]


def texts(path, numbers):
    return [row["s"] for row in read(path, numbers, ("s",))]


def opened(path, pool):
    """The first data file of a table, and what opens it with a pool."""
    snapshot = Snapshot.open(Table(path))
    file = snapshot.manifest.fragments[0].files[0]
    store, at = snapshot.files.locate(file)

    def borrow(lent, files=snapshot.files):
        return lent.reader(files, file, lambda: DataFileReader.open(store, at))

    return snapshot.files, borrow


@pytest.mark.parametrize(("most", "sizes"), [(1, {1}), (2, {1, 2}), (3, {1, 3})])
def test_files_are_joined_by_groups(path, monkeypatch, most, sizes):
    monkeypatch.setattr(search_plan, "_MAX_JOINED", most)
    rng = np.random.default_rng(most)
    for _ in range(12):
        numbers = rng.permutation(ROWS)[:12].tolist()
        assert texts(path, numbers) == [f"{number:09}" for number in numbers]
    texts(path, [250])
    found = {len(idle.identities) for idle in READER_POOL._idle.values()}
    assert found == sizes
    assert READER_POOL.num_files == sum(len(idle.identities) for idle in READER_POOL._idle.values())


def test_tables_of_many_files_are_not_joined(path, monkeypatch):
    monkeypatch.setattr(search_plan, "_MAX_JOINED_OF_TABLE", 2)
    for _ in range(3):
        assert texts(path, [205, 5]) == ["000000205", "000000005"]
    assert [len(idle.identities) for idle in READER_POOL._idle.values()] == [1, 1]


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_repeated_reads_return_requested_rows(tmp_path, version):
    path, rng = str(tmp_path / "t"), np.random.default_rng(3)
    write(path, 0, "legacy" if version == "0.1" else version)
    for _ in range(20):
        numbers = rng.integers(0, ROWS, rng.integers(1, 40)).tolist()
        columns = [("n", "s", "p"), ("s",), ("p", "n")][rng.integers(0, 3)]
        expected = {
            number: {"n": number, "s": f"{number:09}",
                     "p": {"a": number, "b": [number] * (number % 3)}}
            for number in numbers
        }  # fmt: skip
        assert read(path, numbers, columns) == [
            {name: expected[number][name] for name in columns} for number in numbers
        ]
    of_each, every = ROWS // PER_FILE, READER_POOL.num_files
    is_joined = [len(idle.identities) == of_each for idle in READER_POOL._idle.values()]
    assert any(is_joined) == (version in ("2.1", "2.2"))
    # Rows of one file are read by its own reader, beside the one of all files.
    most = {"0.1": 0, "2.0": of_each}.get(version, 2 * of_each)
    assert (0 if version == "0.1" else of_each) <= every <= most


def test_fragments_in_any_order_are_read_together(path):
    snapshot = Snapshot.open(Table(path))
    fetch = plan_fetch(snapshot, project(snapshot.schema, ("n", "s")), (ROW_ADDRESS,))
    fetch = replace(fetch, every=replace(fetch.every, slices=tuple(fetch.every.slices)[::-1]))
    addresses = [row_addresses(number, [7 * number + 1])[0] for number in (2, 0, 1)]
    for _ in range(3):
        ((_, rows),) = read_found(fetch, At(np.array(addresses, np.uint64)))
        assert rows.to_pydict() == {
            "n": [215, 1, 108],
            "s": ["000000215", "000000001", "000000108"],
            ROW_ADDRESS: addresses,
        }
    assert [len(idle.identities) for idle in READER_POOL._idle.values()] == [3]


def test_idle_reader_is_lent_again(path):
    pool = ReaderPool()
    _, borrow = opened(path, pool)
    with pool.acquire() as lent:
        first = borrow(lent)
    with pool.acquire() as lent:
        assert borrow(lent) is first


def test_reader_is_lent_to_one_caller(path):
    pool = ReaderPool()
    _, borrow = opened(path, pool)
    with pool.acquire() as one, pool.acquire() as other:
        assert borrow(one) is not borrow(other)
    assert pool.num_files == 1


def test_reader_of_failed_caller_is_dropped(path):
    pool = ReaderPool()
    _, borrow = opened(path, pool)
    with pytest.raises(ValueError, match="failed"), pool.acquire() as lent:
        borrow(lent)
        raise ValueError("failed")
    assert pool.num_files == pool.num_bytes == 0


def test_readers_of_other_options_are_distinct(path):
    pool = ReaderPool()
    files, borrow = opened(path, pool)
    other = replace(files, table=Table(path, {"allowed_base_paths": "/somewhere"}))
    with pool.acquire() as lent:
        first = borrow(lent)
    with pool.acquire() as lent:
        assert borrow(lent, other) is not first


@pytest.mark.parametrize("limits", [{"max_files": 2}, {"max_bytes": 60_000}])
def test_pool_drops_least_recently_used_readers(path, limits):
    pool = ReaderPool(**limits)
    snapshot = Snapshot.open(Table(path))
    files = [fragment.files[0] for fragment in snapshot.manifest.fragments]

    def borrow(lent, file):
        store, at = snapshot.files.locate(file)
        return lent.reader(snapshot.files, file, lambda: DataFileReader.open(store, at))

    readers = []
    for file in files:
        with pool.acquire() as lent:
            readers.append(borrow(lent, file))
    assert 0 < pool.num_files <= 2
    assert pool.num_bytes <= limits.get("max_bytes", 1 << 20)
    with pool.acquire() as lent:
        assert borrow(lent, files[2]) is readers[2]
    with pool.acquire() as lent:
        assert borrow(lent, files[0]) is not readers[0]


def test_pool_counts_what_readers_learned(path):
    read(path, [1], ("n",))
    before = READER_POOL.num_bytes
    read(path, [1], ("n", "s", "p"))
    assert READER_POOL.num_files == 1
    assert READER_POOL.num_bytes > before > 0


@pytest.mark.parametrize("is_renamed", [False, True])
def test_recreated_table_is_read_anew(path, tmp_path, is_renamed):
    """Also where its files have the names and sizes of those before."""
    for _ in range(3):  # by the reader of each file, then by one of all
        assert texts(path, [5, 205]) == ["000000005", "000000205"]
    other = str(tmp_path / "other")
    write(other, 1000)
    if is_renamed:
        for old, new in zip(sorted(os.listdir(f"{path}/data")), other_files(other), strict=True):
            shutil.copy(f"{other}/data/{new}", f"{path}/data/{old}.new")
            os.replace(f"{path}/data/{old}.new", f"{path}/data/{old}")
    else:
        shutil.rmtree(path)
        shutil.copytree(other, path)
    assert sorted(texts(path, [5, 105, 205])) == ["000001005", "000001105", "000001205"]


def other_files(path):
    return sorted(os.listdir(f"{path}/data"))


def test_removed_file_raises_missing_file_error(path):
    snapshot = Snapshot.open(Table(path))
    for _ in range(3):
        assert len(read(path, [5, 205], snapshot=snapshot)) == 2
    write(path, 1000, mode="overwrite")
    cleanup_old_versions(Table(path), CleanupPolicy(retain_versions=1, delete_unverified=True))
    for numbers in ([5], [5, 205]):
        with pytest.raises(MissingFileError):
            read(path, numbers, snapshot=snapshot)
    assert texts(path, [5]) == ["000001005"]


def test_file_that_is_removed_beside_joined_readers_raises(path):
    for _ in range(3):
        assert len(texts(path, [5, 105, 205])) == 3
    snapshot = Snapshot.open(Table(path))
    (file,) = snapshot.manifest.fragments[1].files
    os.remove(f"{path}/data/{file.path}")
    assert texts(path, [5, 205]) == ["000000005", "000000205"]
    with pytest.raises(MissingFileError, match="fragment 1"):
        texts(path, [5, 105])


def test_cleanup_closes_idle_readers(path):
    read(path, [5])
    write(path, 1000, mode="overwrite")
    cleanup_old_versions(Table(path), CleanupPolicy(retain_versions=1, delete_unverified=True))
    assert READER_POOL.num_files == 0


def test_threads_read_requested_rows(path):
    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            numbers = rng.integers(0, ROWS, 8).tolist()
            assert texts(path, numbers) == [f"{number:09}" for number in numbers]
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(8)))
    assert ROWS // PER_FILE <= READER_POOL.num_files <= 2 * ROWS // PER_FILE


def _read_in_child(path, connection):
    connection.send((READER_POOL.num_files, texts(path, [7, 107])))


def test_forked_process_starts_with_empty_pool(path):
    read(path, [7])
    context = multiprocessing.get_context("fork")
    ours, child = context.Pipe()
    with READER_POOL._lock:  # as if another thread had it
        process = context.Process(target=_read_in_child, args=(path, child), daemon=True)
        process.start()
        assert ours.poll(60)
        assert ours.recv() == (0, ["000000007", "000000107"])
        process.join()
