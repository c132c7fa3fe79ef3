"""Concurrent appends, overwrites and replaceWhere: serializable, or an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import local_changes
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from local_changes import delete_rows, merge_rows
from row_changes import add_to, insert, matched_update
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.errors import (
    CommitConflictError,
    RetryableCommitError,
    SchemaMismatchError,
    TableAlreadyExistsError,
)
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.cleanup.cleanup import find_orphan_files
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    abort_write,
    commit_write,
    plan_write,
    write_rows,
)

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t.lance")


def days(*values, v="x"):
    return pa.table({"day": pa.array(values, pa.int64()), "v": [v] * len(values)})


def begin(path, table, **settings):
    """A write that has written its files."""
    existing = open_existing(Table(path))
    plan = plan_write(Table(path), table.schema, WriteSettings(**settings), existing=existing)
    return plan, write_rows(plan, table.to_batches())


def replaces(condition):
    return {"overwrite": True, "replace_where": condition}


def rows(path):
    ours = read_ours(path)
    assert_same_rows(ours, read_pylance(path))
    lance.dataset(path).validate()
    return sorted((row["day"], row["v"]) for row in ours.to_pylist())


def stop_before_put(monkeypatch, action):
    """``action`` runs after the commit has looked at the newest version."""
    from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler

    put = ConditionalPutCommitHandler.put
    actions = [action]

    def interrupted(self, *arguments, **more):
        if actions:
            actions.pop()()
        return put(self, *arguments, **more)

    monkeypatch.setattr(ConditionalPutCommitHandler, "put", interrupted)


# replaceWhere -------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", ["day = 2", "day >= 1", "true"])
def test_concurrent_replacements_of_empty_range_keep_one(path, monkeypatch, theirs):
    write_table(path, days(0))
    stop_before_put(monkeypatch, lambda: write_table(path, days(2, v="a"), **replaces(theirs)))
    write_table(path, days(2, v="b"), **replaces("day = 2"))
    assert rows(path) == ([] if theirs == "true" else [(0, "x")]) + [(2, "b")]


def test_replacements_of_different_ranges_both_commit_without_retry(path, monkeypatch):
    write_table(path, days(0))
    stop_before_put(monkeypatch, lambda: write_table(path, days(3, v="a"), **replaces("day = 3")))
    write_table(path, days(2, v="b"), **replaces("day = 2"))
    assert rows(path) == [(0, "x"), (2, "b"), (3, "a")]


def test_append_beside_replacement_is_kept(path, monkeypatch):
    write_table(path, days(0, 2))
    stop_before_put(monkeypatch, lambda: write_table(path, days(2, v="a")))
    write_table(path, days(2, v="b"), **replaces("day = 2"))
    assert rows(path) == [(0, "x"), (2, "a"), (2, "b")]


def test_replacement_of_compacted_rows_is_replanned(path, monkeypatch):
    write_table(path, days(0))

    def theirs():
        write_table(path, days(2, v="a"), **replaces("day = 2"))
        lance.dataset(path).optimize.compact_files()

    stop_before_put(monkeypatch, theirs)
    write_table(path, days(2, v="b"), **replaces("day = 2"))
    assert rows(path) == [(0, "x"), (2, "b")]


def test_lost_attempt_leaves_no_deletion_file(path, monkeypatch):
    write_table(path, days(0, 2))
    stop_before_put(monkeypatch, lambda: write_table(path, days(2, v="a"), **replaces("day = 2")))
    write_table(path, days(2, v="b"), **replaces("day = 2"))
    assert rows(path) == [(0, "x"), (2, "b")]
    assert len(list(Path(path, "_deletions").iterdir())) == 1


@pytest.mark.parametrize("retries", [0, 1])
def test_retries_zero_raises_on_first_conflict(path, monkeypatch, retries):
    write_table(path, days(0), retries=0)
    stop_before_put(monkeypatch, lambda: write_table(path, days(2, v="a"), **replaces("day = 2")))
    ours = {**replaces("day = 2"), "retries": retries}
    if retries:
        write_table(path, days(2, v="b"), **ours)
    else:
        with pytest.raises(RetryableCommitError):
            write_table(path, days(2, v="b"), **ours)
    assert rows(path) == [(0, "x"), (2, "b" if retries else "a")]


# Merges -------------------------------------------------------------------------------------


def merged(path, *values):
    """The table after a merge that inserts the days which are not there."""
    source = days(*values, v="new")
    merge_rows(path, source, ["day"], [insert(source.column_names)])
    return rows(path)


@pytest.mark.parametrize(
    "theirs",
    [
        lambda path: delete_rows(path, "day = 2"),
        lambda path: delete_rows(path, "day >= 1"),  # a whole fragment
        lambda path: lance.dataset(path).delete("day = 2"),
        lambda path: add_to(path, "day = 2", "day", 10),  # moved, under another key
        lambda path: write_table(path, days(9, v="x"), **replaces("day = 2 or day = 9")),
    ],
)
def test_concurrently_removed_key_is_inserted(path, monkeypatch, theirs):
    write_table(path, days(0))
    write_table(path, days(1, 2))
    stop_before_put(monkeypatch, lambda: theirs(path))
    assert (2, "new") in merged(path, 2, 5)


def test_compacted_and_removed_key_is_inserted(path, monkeypatch):
    write_table(path, days(0))
    write_table(path, days(1, 2))

    def theirs():
        lance.dataset(path).optimize.compact_files()
        delete_rows(path, "day = 2")

    stop_before_put(monkeypatch, theirs)
    assert merged(path, 2, 5) == [(0, "x"), (1, "x"), (2, "new"), (5, "new")]


def test_concurrent_delete_of_unrelated_rows_is_kept(path, monkeypatch):
    write_table(path, days(0))
    write_table(path, days(1, 2))
    stop_before_put(monkeypatch, lambda: delete_rows(path, "day = 1"))
    plans = []
    monkeypatch.setattr(local_changes, "plan_change", counted(local_changes.plan_change, plans))
    assert merged(path, 2, 5) == [(0, "x"), (2, "x"), (5, "new")]
    assert len(plans) == 2  # of the deletion and of the merge


def test_merge_without_inserts_ignores_concurrent_deletes(path, monkeypatch):
    write_table(path, days(1, 2))
    stop_before_put(monkeypatch, lambda: delete_rows(path, "day = 2"))
    source = days(1, 2, v="new")
    clauses = [matched_update(source.column_names, lambda joined: pc.equal(joined["day"], 1))]
    merge_rows(path, source, ["day"], clauses)
    assert rows(path) == [(1, "new")]


def counted(function, calls):
    def wrapped(*arguments, **more):
        calls.append(arguments)
        return function(*arguments, **more)

    return wrapped


# Overwrite ----------------------------------------------------------------------------------


def test_later_overwrite_wins(path):
    write_table(path, days(0))
    plan, files = begin(path, days(1, v="first"), overwrite=True)
    write_table(path, days(2, v="second"), overwrite=True)
    assert commit_write(plan, files).version == 3
    assert rows(path) == [(1, "first")]
    ids = read_ours(path)["_rowid"].to_pylist()
    assert ids == [2]  # no id is given twice


def test_later_overwrite_wins_with_its_schema(path):
    write_table(path, days(0))
    other = pa.table({"day": ["monday"], "v": ["y"]})
    plan, files = begin(path, other, overwrite=True)
    write_table(path, days(2), overwrite=True)
    commit_write(plan, files)
    assert rows(path) == [("monday", "y")]
    strict, files = begin(path, other, overwrite=True, overwrite_schema=False)
    write_table(path, days(3), overwrite=True)
    with pytest.raises(SchemaMismatchError):
        commit_write(strict, files)


# A table in the place of another ------------------------------------------------------------


def recreate(path, versions):
    shutil.rmtree(path)
    for _ in range(versions):
        write_table(path, pa.table({"v": ["q"], "other": [1.5], "day": [9]}))


@pytest.mark.parametrize("versions", [1, 2, 3])
@pytest.mark.parametrize(
    "settings",
    [{}, {"merge_schema": True}, {"overwrite": True}, replaces("day = 1")],
    ids=["append", "merge schema", "overwrite", "replace"],
)
def test_write_to_replaced_table_conflicts(path, settings, versions):
    write_table(path, days(0))
    write_table(path, days(0))
    plan, files = begin(path, days(1), **settings)
    recreate(path, versions)
    before = read_ours(path)
    with pytest.raises(CommitConflictError):
        commit_write(plan, files)
    assert_same_rows(read_ours(path), before)
    assert lance.dataset(path).version == versions


def test_append_commits_after_cleanup_of_base_version(path):
    write_table(path, days(0))
    plan, files = begin(path, days(1))
    write_table(path, days(2))
    clean_up(path, delete_unverified=False)
    assert lance.dataset(path).versions()[0]["version"] == 2
    assert commit_write(plan, files).version == 3
    assert [day for day, _ in rows(path)] == [0, 1, 2]


def clean_up(path, *, delete_unverified=True):
    import datetime

    dataset = lance.dataset(path, session=lance.Session())
    dataset.cleanup_old_versions(
        older_than=datetime.timedelta(0), delete_unverified=delete_unverified
    )


def test_append_with_removed_files_conflicts(path):
    write_table(path, days(0))
    plan, files = begin(path, days(1))
    recreate(path, 3)
    clean_up(path)
    with pytest.raises(CommitConflictError):
        commit_write(plan, files)
    assert read_ours(path).num_rows == 3


# abort --------------------------------------------------------------------------------------


def data_files(path):
    return {one.name for one in Path(path, "data").iterdir()}


def test_abort_removes_uncommitted_files(path):
    write_table(path, days(0))
    before = data_files(path)
    plan, files = begin(path, days(1))
    abort_write(plan, files)
    assert data_files(path) == before


def test_abort_keeps_committed_files_after_cleanup(path):
    write_table(path, days(0))
    plan, files = begin(path, days(1))
    commit_write(plan, files)
    write_table(path, days(2))
    clean_up(path)
    for info in list(open_store(path, {}).list("_transactions")):
        Path(path, info.path).unlink()
    abort_write(plan, files)
    assert [day for day, _ in rows(path)] == [0, 1, 2]


def test_abort_keeps_files_of_pending_commit(path):
    write_table(path, days(0))
    plan, files = begin(path, days(1))
    name = f"_transactions/{plan.read_version}-{plan.transaction_uuid}.txn"
    open_store(path, {}).put(name, b"left by a commit in doubt")
    before = data_files(path)
    abort_write(plan, files)
    assert data_files(path) == before


def test_abort_keeps_files_of_later_versions(path):
    write_table(path, days(0))
    plan, files = begin(path, days(1))
    delete_rows(path, "day = 0")
    before = data_files(path)
    abort_write(plan, files)
    assert len(before - data_files(path)) == 1


def test_write_that_must_create_fails_after_another(path):
    """As CREATE TABLE … AS SELECT; one that may append adds its rows."""
    begun = [begin(path, days(number), must_create=number < 3) for number in (1, 2, 3)]
    assert commit_write(*begun[0]).version == 1
    with pytest.raises(TableAlreadyExistsError):
        commit_write(*begun[1])
    abort_write(*begun[1])
    assert commit_write(*begun[2]).version == 2
    assert rows(path) == [(1, "x"), (3, "x")]
    assert find_orphan_files(Table(path)) == []
