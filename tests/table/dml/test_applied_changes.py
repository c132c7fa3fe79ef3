"""A table that follows another one, in this process: feeds cut at random, the position kept along.

Which change of a key is the last one is found by Spark in the product; here a dict does it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from local_changes import SOURCE_PREFIX, delete_rows, merge_rows, update_rows
from random_seeds import seeds
from row_changes import insert, matched_delete, matched_update
from table_access import read_changes, read_ours, write_table

from pyspark_lance.commit.application_versions import (
    ApplicationVersion,
    SourceIdentity,
    application_of_source,
)
from pyspark_lance.errors import TableReplacedError
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.dml.commit_changes import applied_version, with_applied_version
from pyspark_lance.table.dml.row_change import ChangeResult, ChangeSettings, plan_change
from pyspark_lance.table.unit_of_work import UnitOfWork, restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64())])
THERE = {"insert", "update_postimage"}


def step_at_random(path, rng, turn):
    """Rows come, go, get other values, change places, or come back from an older version."""
    key = int(rng.integers(12))
    match int(rng.integers(6)):
        case 0:
            delete_rows(path, f"id % 4 = {key % 4}")
        case 1:

            def swapped(batch):
                return {"id": pa.array([11 - one for one in batch["id"].to_pylist()], pa.int64())}

            update_rows(path, f"id IN ({key}, {11 - key})", ["id"], swapped)
        case 2:
            compact(Table(path))
        case 3 if turn > 2:
            restore(Table(path), VersionSpec(version=turn // 2))
        case _:
            taken = set(rows_of(path))
            new = [one for one in rng.choice(12, 4, replace=False).tolist() if one not in taken]
            if new:
                write_table(path, pa.table([new, [turn] * len(new)], schema=SCHEMA))
            else:
                update_rows(
                    path, f"id >= {key}", ["x"],
                    lambda batch: {"x": pa.array([turn] * batch.num_rows, pa.int64())},
                )  # fmt: skip


def rows_of(path, version=None):
    found = read_ours(path, VersionSpec(version=version), system_columns=())
    return dict(zip(found["id"].to_pylist(), found["x"].to_pylist(), strict=True))


def newest(path):
    return Snapshot.open(Table(path)).version


def last_changes(changes):
    """Key -> value, None if it is gone."""
    rank = {"update_preimage": 0, "delete": 0}
    rows = sorted(
        changes.to_pylist(),
        key=lambda row: (row["_commit_version"], rank.get(row["_change_type"], 1)),
    )
    state = {row["_rowid"]: row for row in rows}  # the last of each row of the source
    found = {row["id"]: None for row in rows}
    found.update((row["id"], row["x"]) for row in state.values() if row["_change_type"] in THERE)
    return found


def apply(path, changes, end):
    """As ``spark/jobs/apply_job.py``."""
    last = last_changes(changes)
    there = [value is not None for value in last.values()]
    source = pa.table(
        {"id": pa.array(last, pa.int64()), "x": pa.array(last.values(), pa.int64()), "there": there}
    )
    is_there = SOURCE_PREFIX + "there"
    clauses = [
        matched_delete(lambda rows: pc.invert(rows[is_there])),
        matched_update(["x"]),
        insert(["id", "x"], lambda rows: rows[is_there]),
    ]
    properties = ApplicationVersion(application_of_source("source"), end).properties()
    settings = ChangeSettings(properties=properties)
    done = merge_rows(path, source, ["id"], clauses, settings=settings)
    if done.version is None and not plan_change(Table(path), settings).is_done:
        work = UnitOfWork(Table(path), settings)
        commit = with_applied_version(
            plan_change(Table(path), settings), lambda work: ChangeResult()
        )
        return work.run(commit)
    return done


@pytest.mark.parametrize("seed", seeds(24, in_ci=4))
def test_applied_change_windows_keep_replica_equal(tmp_path, seed):
    rng = np.random.default_rng(seed)
    source, replica = str(tmp_path / "source"), str(tmp_path / "replica")
    write_table(source, pa.table([list(range(6)), [0] * 6], schema=SCHEMA))
    write_table(replica, pa.table([[], []], schema=SCHEMA))
    for turn in range(1, 15):
        step_at_random(source, rng, turn)
    done, seen = 0, []
    while done < newest(source):
        end = min(newest(source), done + int(rng.integers(1, 5)))
        mode = str(rng.choice(["dropCarryovers", "none", "netChanges"]))
        changes = read_changes(source, done + 1, end, mode)
        before = newest(replica)
        assert apply(replica, changes, end).version == before + 1
        assert apply(replica, changes, end).version is None  # the answer was lost, once more
        assert newest(replica) == before + 1
        assert rows_of(replica) == rows_of(source, end), (mode, done, end)
        done = applied_version(Snapshot.open(Table(replica)), "source")
        assert done == end
        seen.append((before + 1, end))
    # The position goes back with the rows, and then forward again.
    version, end = seen[len(seen) // 2]
    restore(Table(replica), VersionSpec(version=version))
    assert applied_version(Snapshot.open(Table(replica)), "source") == end
    apply(replica, read_changes(source, end + 1, newest(source), "netChanges"), newest(source))
    assert rows_of(replica) == rows_of(source)


def test_record_without_row_changes_keeps_time_of_source(tmp_path):
    path = str(tmp_path / "replica")
    write_table(path, pa.table([[], []], schema=SCHEMA))

    def record(version, **source):
        identity = SourceIdentity(**source)
        work = ApplicationVersion(application_of_source("source"), version, identity)
        settings = ChangeSettings(properties=work.properties())
        plan = plan_change(Table(path), settings)
        commit = with_applied_version(plan, lambda work: ChangeResult())
        return None if plan.is_done else UnitOfWork(Table(path), settings).run(commit).version

    assert record(3, first="a", applied_us=30) == 2
    assert record(4, applied_us=40, before=3, before_us=30) == 3
    assert record(4, before=4, before_us=40) is None
    with pytest.raises(TableReplacedError):
        record(5, before=4, before_us=41)
    with pytest.raises(TableReplacedError):
        record(5, first="b")
    assert record(6) == 4  # of a source that is not known
