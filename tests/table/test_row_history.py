"""Every state of a row, from the newest to the one in which it was made."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to
from table_access import append, remove_versions, write_table

from pyspark_lance.errors import UnsupportedFeatureError, VersionNotFoundError
from pyspark_lance.table.change.row_change import ChangeSettings
from pyspark_lance.table.upkeep.compact import compact
from pyspark_lance.table.upkeep.row_history import row_history
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


def test_states_of_a_row_through_updates_and_a_compaction(path):
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


def test_a_row_that_never_changed_and_one_that_is_gone(path):
    assert versions(row_history(Table(path), 0)) == [1]
    (state,) = row_history(Table(path), 4)
    assert (state.version, state.seen_at) == (1, 6)
    assert versions(row_history(Table(path), 3, 4)) == [3, 1]


def test_what_was_cleaned_up_is_not_known(path):
    remove_versions(path, [1, 2, 3, 4])
    states = row_history(Table(path), 3)
    assert versions(states) == [8, 5]
    remove_versions(path, [5])
    assert [(one.version, one.operation) for one in row_history(Table(path), 3)] == [
        (8, "Update"),
        (5, None),
    ]


def test_rows_that_there_never_were(path, tmp_path):
    with pytest.raises(VersionNotFoundError, match="999"):
        row_history(Table(path), 999)
    other = str(tmp_path / "other")
    append(other, 0, enable_stable_row_ids=False)
    with pytest.raises(UnsupportedFeatureError, match="enableStableRowIds"):
        row_history(Table(other), 0)
