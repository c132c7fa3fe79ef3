"""Keys of small fragments are read once by a process; what is found is what a scan would find."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to, upsert
from table_access import write_table

from pyspark_lance.codec.row_selection import filter_rows
from pyspark_lance.format.column_names import CREATED_AT, ROW_ADDRESS, ROW_ID
from pyspark_lance.table.columns.change_columns import drop_columns, rename_column
from pyspark_lance.table.dml.key_cache import rows_with_keys
from pyspark_lance.table.dml.key_filter import KeyFilter, hash_keys
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, project
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

NAMES = ("text", "id")


def found(path, names, wanted, rows_of):
    """The addresses of rows with keys of ``wanted``."""
    snapshot = Snapshot.open(Table(path))
    request = ScanRequest(
        schema=project(snapshot.schema, names), system_columns=(ROW_ID, ROW_ADDRESS)
    )
    addresses = []
    for task in plan_scan(snapshot, request):
        for rows in rows_of(task, names, wanted):
            addresses += rows.column(ROW_ADDRESS).to_pylist()
    return sorted(addresses)


def by_scan(task, names, keys):
    for rows in task.run():
        yield filter_rows(rows, keys.may_contain(hash_keys([rows.column(n) for n in names])))


def wanted_keys(rng, names):
    ids = [rng.randrange(60) for _ in range(rng.randrange(1, 6))]
    parts = {"id": pa.array(ids, pa.int64()), "text": pa.array([f"t{one % 7}" for one in ids])}
    return KeyFilter.of([hash_keys([parts[name] for name in names])])


def rows(ids, n):
    return pa.table({"id": ids, "text": [f"t{one % 7}" for one in ids], "n": [n] * len(ids)})


@pytest.mark.parametrize("seed", range(4))
def test_key_lookup_in_random_histories_equals_scan(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    write_table(path, rows(list(range(40)), 0))
    for step in range(12):
        ids = rng.sample(range(60), 4)
        match rng.randrange(5):
            case 0 | 1:
                upsert(path, rows(ids, step))
            case 2:
                delete_rows(path, f"id IN ({ids[0]}, {ids[1]})")
            case 3:
                set_to(path, f"id = {ids[0]}", n=step)
            case 4:
                newest = Snapshot.open(Table(path)).version
                restore(Table(path), VersionSpec(version=rng.randrange(1, newest + 1)))
        for names in (("id",), NAMES):
            keys = wanted_keys(rng, names)
            assert found(path, names, keys, rows_with_keys) == found(path, names, keys, by_scan)


def test_files_without_wanted_keys_are_not_reopened(tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 10, 20):
        write_table(path, rows(list(range(first, first + 10)), 0))
    everything = KeyFilter.of([hash_keys([pa.array(np.arange(30))])])
    assert len(found(path, ("id",), everything, rows_with_keys)) == 30
    files = sorted((tmp_path / "t" / "data").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in (files[0], files[2]):
        file.rename(file.with_suffix(".away"))
    middle = KeyFilter.of([hash_keys([pa.array([13, 17])])])
    assert found(path, ("id",), middle, rows_with_keys) == [(1 << 32) + 3, (1 << 32) + 7]


def test_renamed_column_invalidates_key_cache(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": [1, 2], "other": [5, 6]}))
    keys = KeyFilter.of([hash_keys([pa.array([5])])])
    assert found(path, ("id",), keys, rows_with_keys) == []
    drop_columns(Table(path), ["id"])
    rename_column(Table(path), "other", "id")
    assert found(path, ("id",), keys, rows_with_keys) == [0]


def test_restored_row_is_found_after_cached_read(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, rows(list(range(10)), 0))
    delete_rows(path, "id = 3")
    keys = KeyFilter.of([hash_keys([pa.array([3])])])
    assert found(path, ("id",), keys, rows_with_keys) == []
    restore(Table(path), VersionSpec(version=1))
    assert found(path, ("id",), keys, rows_with_keys) == [3]


@pytest.mark.parametrize("system", [(ROW_ADDRESS,), (ROW_ADDRESS, CREATED_AT, ROW_ID)])
@pytest.mark.parametrize("stable", [True, False])
def test_cached_rows_equal_scan(tmp_path, stable, system):
    path = str(tmp_path / "t")
    write_table(path, rows(list(range(10)), 0), enable_stable_row_ids=stable)
    write_table(path, rows(list(range(10, 20)), 0))
    set_to(path, "id IN (3, 12)", n=1)
    delete_rows(path, "id = 4")
    snapshot = Snapshot.open(Table(path))
    names = tuple(name for name in system if stable or name != CREATED_AT)
    request = ScanRequest(schema=project(snapshot.schema, NAMES), system_columns=names)
    (task,) = plan_scan(snapshot, request)
    keys = KeyFilter.of([hash_keys([pa.array(["t5", "t3"]), pa.array([12, 3])])])

    def seen(rows_of):
        return pa.Table.from_batches(rows_of(task, NAMES, keys)).sort_by(ROW_ADDRESS)

    first, again = seen(rows_with_keys), seen(rows_with_keys)
    assert first.num_rows == 2
    assert first.equals(seen(by_scan), check_metadata=True)
    assert again.equals(first, check_metadata=True)
