"""A conflict says for machines why, which two operations, which version, and which fragments."""

from __future__ import annotations

import logging
import pickle
import random

import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to, upsert
from table_access import append, write_table

from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler
from pyspark_lance.commit.conflict import RULES
from pyspark_lance.commit.conflict_check import _BY_THEIRS
from pyspark_lance.commit.retries import Environment
from pyspark_lance.errors import (
    CommitConflictError,
    Conflict,
    ConflictReason,
    RetryableCommitError,
    error_in,
)
from pyspark_lance.format.operation import ReserveFragments, UnknownOperation, UpdateMemWalState
from pyspark_lance.table.columns.change_columns import add_null_columns
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table

ONE_MORE = ChangeSettings(retries=1)


class Interrupted(ConditionalPutCommitHandler):
    """Lets another writer in before the first put."""

    def __init__(self, action):
        self.action = action

    def put(self, store, location, data, *, uuid):
        action, self.action = self.action, None
        if action is not None:
            action()
        return super().put(store, location, data, uuid=uuid)


def beside(theirs):
    environment = Environment(handler=Interrupted(theirs), sleep=lambda _: None)
    return {"environment": environment, "settings": ChangeSettings(retries=1)}


def compacted(path):
    compact(Table(path), CompactionRequest(target_rows_per_fragment=1000))


CASES = {
    "the same row": (
        lambda path, other: set_to(path, "id = 1", n=1, _arguments=other),
        lambda path: delete_rows(path, "id = 1"),
        Conflict(ConflictReason.CONCURRENT_ROW_CHANGE, "Update", "", None, (0,)),
    ),
    "rows that moved": (
        lambda path, other: delete_rows(path, "id = 1", **other),
        compacted,
        Conflict(ConflictReason.CONCURRENT_REWRITE, "Delete", "Rewrite", 3, (0,)),
    ),
    "a row that now matches": (
        lambda path, other: delete_rows(path, "n = 7", **other),
        lambda path: set_to(path, "id = 12", n=7),
        Conflict(ConflictReason.CONCURRENT_APPEND, "Delete", "", None, (2,)),
    ),
    "another table": (
        lambda path, other: delete_rows(path, "id = 1", **other),
        lambda path: restore(Table(path), VersionSpec(version=1)),
        Conflict(ConflictReason.TABLE_REPLACED, "Delete", "Restore", 3),
    ),
    "another column": (
        lambda path, other: upsert(path, pa.table({"id": [1, 99], "n": [5, 5]}), **other),
        lambda path: add_null_columns(Table(path), pa.schema({"more": pa.int8()})),
        Conflict(ConflictReason.METADATA_CHANGED, "Update", "Merge", 3),
    ),
}


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(10), "n": [0] * 9 + [7]}))
    write_table(path, pa.table({"id": range(10, 20), "n": [0] * 10}))
    return path


@pytest.mark.parametrize("name", CASES)
def test_conflict_reports_its_reason(path, name, caplog):
    ours, theirs, expected = CASES[name]
    with caplog.at_level(logging.INFO, logger="pyspark_lance"):
        try:
            ours(path, beside(lambda: theirs(path)))
        except CommitConflictError as error:
            found = error.conflict
            assert error.reason is expected.reason
        else:  # planned again
            (found,) = [one.args[1] for one in caplog.records if "planning again" in one.msg]
    assert found == expected


def test_exhausted_delete_reports_version_taken(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)

    class Taken(ConditionalPutCommitHandler):
        def put(self, store, location, data, *, uuid):
            append(path, 100)
            return super().put(store, location, data, uuid=uuid)

    beside_appends = Environment(handler=Taken(), sleep=lambda _: None)
    with pytest.raises(RetryableCommitError) as caught:
        delete_rows(path, "id = 1", environment=beside_appends, settings=ChangeSettings(retries=0))
    assert caught.value.reason is ConflictReason.VERSION_TAKEN


def test_operations_have_conflict_reasons():
    kinds = {theirs for _, theirs in RULES}
    # The first never conflicts; the effect of the other two is unknown.
    others = {ReserveFragments, UpdateMemWalState, UnknownOperation}
    assert kinds - set(_BY_THEIRS) == others


@pytest.mark.parametrize("seed", range(20))
def test_conflicts_round_trip_through_messages_and_pickles(seed):
    rng = random.Random(seed)
    names = ["", "Append", "Update", "CreateIndex"]
    conflict = Conflict(
        rng.choice(list(ConflictReason)), rng.choice(names), rng.choice(names),
        rng.choice([None, 0, 12]), tuple(sorted(rng.sample(range(100), rng.randrange(4)))),
    )  # fmt: skip
    kind = rng.choice([CommitConflictError, RetryableCommitError])
    error = kind("it failed", rng.choice(["", "/t"]), rng.choice(["", "again"]), conflict)
    for again in (error_in(f"x {error}"), pickle.loads(pickle.dumps(error))):
        assert (type(again), str(again), again.conflict) == (kind, str(error), conflict)
