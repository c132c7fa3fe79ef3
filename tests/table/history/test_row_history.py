"""Every state of a row, from the newest to the one in which it was made."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to
from table_access import append, remove_versions, write_table

from pyspark_lance.errors import UnsupportedFeatureError, VersionNotFoundError
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.history.row_history import ancestor_history, row_history
from pyspark_lance.table.refs import create_branch
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

NOTE = ChangeSettings(properties={"__lance_commit_message": "why"})


@pytest.fixture
def path(tmp_path):
    """Row 3 is made by version 1 and changed by 3, 5 and 8; row 4 goes with version 7."""
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(10), "v": ["a"] * 10})
    write_table(path, rows, max_rows_per_file=5)
    write_table(path, rows.slice(0, 2))
    set_to(path, "id = 3", v="b", _arguments={"settings": NOTE})
    set_to(path, "id = 8", v="x")
    lance.dataset(path).update({"v": "'c'"}, where="id = 3")
    compact(Table(path))
    delete_rows(path, "id = 4")
    set_to(path, "id = 3", v="d")
    return path


def versions(states):
    return [one.version for one in states]


def test_row_history_survives_updates_and_compaction(path):
    states = row_history(Table(path), 3)
    assert versions(states) == [8, 5, 3, 1]
    assert [one.seen_at for one in states] == [8, 7, 4, 2]
    assert [one.operation for one in states] == ["Update", "Update", "Update", "Overwrite"]
    assert [one.user_metadata for one in states] == [None, None, "why", None]
    assert states == sorted(states, key=lambda one: one.timestamp, reverse=True)
    for state in states:
        dataset = lance.dataset(path, version=state.seen_at)
        found = dataset.scanner(filter="id = 3", columns=["_row_last_updated_at_version"])
        assert found.to_table().column(0).to_pylist()[0] == state.version


def test_row_history_of_unchanged_and_deleted_rows(path):
    assert versions(row_history(Table(path), 0)) == [1]
    (state,) = row_history(Table(path), 4)
    assert (state.version, state.seen_at) == (1, 6)
    assert versions(row_history(Table(path), 3, 4)) == [3, 1]


def test_row_history_omits_removed_versions(path):
    remove_versions(path, [1, 2, 3, 4])
    states = row_history(Table(path), 3)
    assert versions(states) == [8, 5]
    remove_versions(path, [5])
    assert [(one.version, one.operation) for one in row_history(Table(path), 3)] == [
        (8, "Update"),
        (5, None),
    ]


def test_row_history_of_unknown_row_raises(path, tmp_path):
    with pytest.raises(VersionNotFoundError, match="999"):
        row_history(Table(path), 999)
    other = str(tmp_path / "other")
    append(other, 0, enable_stable_row_ids=False)
    with pytest.raises(UnsupportedFeatureError, match="enableStableRowIds"):
        row_history(Table(other), 0)


def test_restore_appears_in_row_history_if_row_changed(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(4), "v": ["a"] * 4}))  # 1
    set_to(path, "id = 1", v="b")  # 2
    set_to(path, "id = 2", v="c")  # 3
    delete_rows(path, "id = 3")  # 4
    restore(Table(path), VersionSpec(version=1), NOTE)  # 5
    set_to(path, "id = 1", v="d")  # 6
    restore(Table(path), VersionSpec(version=5))  # 7
    restore(Table(path), VersionSpec(version=1))  # 8, which changes nothing

    def shown(row_id, version=None):
        states = row_history(Table(path), row_id, version)
        for one in states:
            rows = lance.dataset(path, version=one.seen_at).to_table(filter=f"id = {row_id}")
            assert rows.num_rows == 1
        return [(one.version, one.seen_at, one.operation) for one in states]

    assert shown(0) == [(1, 8, "Overwrite")]
    assert shown(1) == [
        (7, 8, "Restore"), (6, 6, "Update"), (5, 5, "Restore"), (2, 4, "Update"),
        (1, 1, "Overwrite"),
    ]  # fmt: skip
    assert shown(2) == [(5, 8, "Restore"), (3, 4, "Update"), (1, 2, "Overwrite")]
    assert shown(3) == [(5, 8, "Restore"), (1, 3, "Overwrite")]
    assert shown(1, 5) == [(5, 5, "Restore"), (2, 4, "Update"), (1, 1, "Overwrite")]
    (restored, _) = row_history(Table(path), 3)
    assert restored.user_metadata == "why"
    values = [
        lance.dataset(path, version=one.seen_at).to_table(filter="id = 1")["v"][0].as_py()
        for one in row_history(Table(path), 1)
    ]
    assert values == ["a", "d", "a", "b", "a"]
    remove_versions(path, [1, 2, 3, 4])
    assert shown(2) == [(1, 8, None)]


def test_branch_row_history_includes_parent_states(path):
    main = Table(path)
    create_branch(main, "trial", VersionSpec(version=4))
    trial = main.on_branch("trial")
    set_to(trial.uri, "id = 3", v="on the branch")
    create_branch(trial, "second")
    second = main.on_branch("second")
    set_to(second.uri, "id = 3", v="on the second")
    for table in (second, Table(second.uri)):
        states = row_history(table, 3)
        assert [(one.version, one.seen_at) for one in states] == [(6, 6), (5, 5), (3, 4), (1, 2)]
        assert [one.uri for one in states] == [second.uri, trial.uri, path, path]
        assert [one.user_metadata for one in states] == [None, None, "why", None]
    assert [one.version for one in ancestor_history(second)] == [6, 5, 4, 3, 2, 1]
    assert [one.operation for one in ancestor_history(second)] == [
        "Update", "Update", "Update", "Update", "Append", "Overwrite",
    ]  # fmt: skip
    assert versions(row_history(main, 3)) == [8, 5, 3, 1]
