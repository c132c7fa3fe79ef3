"""Six writers, two compactions and a cleanup at once, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta

import pytest
from local_changes import delete_rows
from row_changes import set_to
from table_access import append, read_ours
from table_invariants import check_invariants

from pyspark_lance.errors import RetryableCommitError
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.interop, pytest.mark.slow]

WRITERS, COMPACTORS, SECONDS = 6, 2, 60
SPAN = 1_000_000
PATIENT = ChangeSettings(retries=200, timeout_s=120.0)


def write(path, number, until):
    """Appends, changes and deletes rows of a range of ids of its own; returns what is left."""
    rng, first, there = random.Random(number), number * SPAN, set()
    while time.time() < until:
        kind = rng.choice(["append", "append", "delete", "change"])
        if kind == "append" or not there:
            count = rng.randrange(1, 30)
            append(path, first, count, retries=200, timeout_s=120.0)
            there |= set(range(first, first + count))
            first += count
            continue
        key = rng.choice(sorted(there))
        if kind == "delete":
            assert delete_rows(path, f"id = {key}", settings=PATIENT).num_deleted_rows == 1
            there.remove(key)
        else:
            new, first = first, first + 1
            set_to(path, f"id = {key}", id=new, _arguments={"settings": PATIENT})
            there = (there - {key}) | {new}
    return there


def tidy(path, until):
    """Compact again and again; return how often."""
    versions = 0
    while time.time() < until:
        try:
            result = compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))
            versions += result.version is not None
        except RetryableCommitError:
            pass
    return versions


def clean(path, until):
    """Clean up again and again what no work of a few seconds can need; return how much."""
    removed = 0
    while time.time() < until:
        policy = CleanupPolicy(older_than_s=timedelta(seconds=20).total_seconds())
        removed += len(cleanup_old_versions(Table(path), policy).versions)
    return removed


def test_maintenance_beside_writers_loses_no_rows(tmp_path):
    path = str(tmp_path / "t")
    append(path, 99 * SPAN, 10)
    until = time.time() + SECONDS
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WRITERS + COMPACTORS + 1, mp_context=spawn) as pool:
        writers = [pool.submit(write, path, number, until) for number in range(WRITERS)]
        compactors = [pool.submit(tidy, path, until) for _ in range(COMPACTORS)]
        cleaner = pool.submit(clean, path, until)
        expected = set(range(99 * SPAN, 99 * SPAN + 10)).union(*(one.result() for one in writers))
        assert sum(one.result() for one in compactors) > 0
        cleaner.result()
    found = read_ours(path)["id"].to_pylist()
    assert len(found) == len(set(found))
    assert set(found) == expected
    check_invariants(path)
    assert verify(Table(path), read_data=True).errors == ()
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
