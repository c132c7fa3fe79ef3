"""Merges record the keys that they write, so that merges of other keys need not read their rows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from local_changes import Copied, merge_rows
from row_changes import insert, interrupted_by, matched_update, set_to, upsert
from table_access import read_ours, write_table

from pyspark_lance.commit.inserted_keys import ROW_KEYS_PROPERTY
from pyspark_lance.errors import RetryableCommitError
from pyspark_lance.format.operation import Update
from pyspark_lance.table.dml.key_cache import remember_row_keys, rows_with_keys
from pyspark_lance.table.dml.key_filter import (
    MAX_ROWS,
    KeyFilter,
    RowKeys,
    hash_keys,
    recorded_keys,
    row_keys_property,
)
from pyspark_lance.table.dml.merge import Match, MergeClause
from pyspark_lance.table.dml.row_change import ChangeSettings, RowAction
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, project
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ONCE = ChangeSettings(retries=0)


def rows(ids, n=1):
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())})


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, rows(range(10), 0))
    return path


def values(path):
    return dict(sorted((row["id"], row["n"]) for row in read_ours(path).to_pylist()))


def transaction_of(path):
    return Snapshot.open(Table(path)).file.transaction()


def recorded(path, names=("id",)):
    snapshot = Snapshot.open(Table(path))
    return recorded_keys(snapshot.schema, names, transaction_of(path).properties)


def hidden_data(path):
    """Hide the data files of the newest version; return a function that shows them again."""
    hidden = []
    for fragment in transaction_of(path).operation.new_fragments:
        file = Path(path) / "data" / fragment.files[0].path
        hidden.append((file, file.rename(file.with_suffix(".hidden"))))
    return lambda: [there.rename(file) for file, there in hidden]


def hashes_of(ids):
    return hash_keys([pa.array(ids, pa.int64())])


# What is recorded --------------------------------------------------------------------------


def test_transaction_records_updated_and_inserted_keys(path):
    upsert(path, rows([3, 77]))
    assert sorted(recorded(path)) == sorted(hashes_of([3, 77]))
    assert recorded(path, ("n",)) is None
    assert recorded(path, ("id", "n")) is None


def test_changed_key_is_recorded_as_written(path):
    clause = MergeClause(Match.MATCHED, RowAction.UPDATE, None, {"id": Copied("n")})
    merge_rows(path, rows([3], 50), ["id"], [clause])
    assert recorded(path).tolist() == hashes_of([50]).tolist()


def test_large_merge_records_no_keys(path):
    upsert(path, rows(range(100, 100 + MAX_ROWS)))
    assert len(recorded(path)) == MAX_ROWS
    upsert(path, rows(range(1000, 1001 + MAX_ROWS)))
    assert ROW_KEYS_PROPERTY not in transaction_of(path).properties


def test_update_by_condition_records_no_keys(path):
    set_to(path, "id = 1", n=7)
    assert ROW_KEYS_PROPERTY not in transaction_of(path).properties


def test_recorded_hashes_are_the_same_in_all_releases():
    """Other processes may have another release: with other hashes, the record needs a version."""
    assert hashes_of([0, 1, -1]).tolist() == HASHES_OF_NUMBERS
    assert hash_keys([pa.array(["", "a", "longer than eight"])]).tolist() == HASHES_OF_TEXTS


HASHES_OF_NUMBERS = [12035550249420947055, 6791897765849424158, 6755974106381971767]
HASHES_OF_TEXTS = [12035550249420947055, 16145896421896933599, 9211040115526727598]


@pytest.mark.parametrize("task", [None, b"\0" * 8 * (MAX_ROWS + 1)])
def test_keys_of_some_tasks_only_are_not_recorded(path, task):
    schema = Snapshot.open(Table(path)).schema
    known = RowKeys(("id",))
    known.add(rows([1]).to_batches()[0])
    assert row_keys_property(schema, ("id",), [known.to_bytes()])
    assert row_keys_property(schema, ("id",), [known.to_bytes(), task]) == {}
    assert row_keys_property(schema, (), [known.to_bytes()]) == {}
    assert RowKeys(()).to_bytes() is None


def test_keys_of_some_batches_only_are_not_recorded():
    known = RowKeys(("id",))
    for _ in range(2):
        known.add(rows(range(MAX_ROWS - 1)).to_batches()[0])
    assert known.to_bytes() is None


@pytest.mark.parametrize(
    "text", ["", "1", "1;0;", "1;0;AAAA", "1;0;not base64!", "2;0;AAAAAAAAAAA=", "1;1;AAAAAAAAAAA="]
)
def test_unknown_records_are_ignored(path, text):
    schema = Snapshot.open(Table(path)).schema
    assert recorded_keys(schema, ("id",), {ROW_KEYS_PROPERTY: text}) is None
    good = {ROW_KEYS_PROPERTY: "1;0;AAAAAAAAAAA="}
    assert recorded_keys(schema, ("id",), good).tolist() == [0]


# Concurrent merges -------------------------------------------------------------------------


def test_merge_of_other_keys_is_not_read(path):
    shown = []

    def other():
        upsert(path, rows([3, 20]))
        shown.append(hidden_data(path))

    upsert(path, rows([4, 30], 2), settings=ONCE, **interrupted_by(other))
    shown[0]()
    assert values(path) == dict.fromkeys(range(10), 0) | {3: 1, 20: 1, 4: 2, 30: 2}


def test_key_that_another_merge_changed_is_found(path):
    """Both merges write key 50: the other one by an update of another row's key."""
    clause = MergeClause(Match.MATCHED, RowAction.UPDATE, None, {"id": Copied("n")})
    concurrent = interrupted_by(lambda: merge_rows(path, rows([3], 50), ["id"], [clause]))
    result = upsert(path, rows([50], 2), **concurrent)
    assert (result.num_inserted_rows, result.num_updated_rows) == (0, 1)
    assert values(path)[50] == 2
    assert read_ours(path).num_rows == 10


@pytest.mark.parametrize("others", [[50], [*range(100, 100 + 2 * MAX_ROWS), 50]])
def test_same_new_key_is_inserted_once(path, others):
    concurrent = interrupted_by(lambda: upsert(path, rows(others)))
    result = upsert(path, rows([50], 2), **concurrent)
    assert (result.num_inserted_rows, result.num_updated_rows) == (0, 1)
    assert read_ours(path).num_rows == 10 + len(others)


def test_same_key_is_a_conflict_without_retries(path):
    concurrent = interrupted_by(lambda: upsert(path, rows([50])))
    with pytest.raises(RetryableCommitError):
        upsert(path, rows([50], 2), settings=ONCE, **concurrent)


# Looking keys up ---------------------------------------------------------------------------


def found(path, ids):
    snapshot = Snapshot.open(Table(path))
    request = ScanRequest(
        schema=project(snapshot.schema, ("id",)), system_columns=("_rowid", "_rowaddr")
    )
    keys = KeyFilter.of([hashes_of(ids)])
    return sorted(
        value
        for task in plan_scan(snapshot, request)
        for batch in rows_with_keys(task, ("id",), keys)
        for value in batch.column("id").to_pylist()
    )


def test_recorded_fragments_without_wanted_keys_are_not_read(path):
    upsert(path, rows([3, 20]))
    assert found(path, [3]) == [3]  # read once: the other fragments
    upsert(path, rows([4, 30]))
    show = hidden_data(path)
    assert found(path, [3, 5, 20]) == [3, 5, 20]
    show()
    assert found(path, [4, 30, 77]) == [4, 30]


@pytest.mark.parametrize("seed", range(3))
def test_lookup_with_records_finds_all_rows(path, seed):
    rng = random.Random(seed)
    for step in range(15):
        ids = rng.sample(range(30), 3)
        if rng.random() < 0.2:
            set_to(path, f"id = {ids[0]}", n=step)
        else:
            upsert(path, rows(ids, step))
        wanted = rng.sample(range(40), 5)
        assert found(path, wanted) == sorted(set(wanted) & set(values(path)))


def test_records_of_other_operations_are_not_kept(path):
    upsert(path, rows([3]))
    snapshot, transaction = Snapshot.open(Table(path)), transaction_of(path)
    assert isinstance(transaction.operation, Update)
    hashes = remember_row_keys(Table(path), snapshot.schema, ("id",), transaction)
    assert np.array_equal(hashes, hashes_of([3]))
    without = replace(transaction, properties={})
    assert remember_row_keys(Table(path), snapshot.schema, ("id",), without) is None


def test_merge_records_only_rows_that_it_writes(path):
    merge_rows(path, rows([3, 40]), ["id"], [insert(["id", "n"])])
    assert recorded(path).tolist() == hashes_of([40]).tolist()
    merge_rows(path, rows([3, 41], 5), ["id"], [matched_update(["id", "n"])])
    assert recorded(path).tolist() == hashes_of([3]).tolist()
