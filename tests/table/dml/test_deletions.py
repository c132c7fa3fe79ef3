"""Rows that a change says are gone: they must be there, and what is left is written down."""

import numpy as np
import pytest
from local_changes import delete_rows, update_rows
from table_access import append, read_ours

from pyspark_lance.errors import CommitConflictError, InvalidInputError
from pyspark_lance.format.row_address import row_addresses
from pyspark_lance.table.dml.deletions import AffectedRows, touched_rows, write_deletions
from pyspark_lance.table.dml.row_change import ChangeSettings, plan_change
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table


@pytest.fixture
def path(tmp_path):
    """Two fragments of four rows; the row with id 1 is deleted."""
    path = str(tmp_path / "t")
    append(path, 0, 4)
    append(path, 10, 4)
    delete_rows(path, "id = 1")
    return path


def lose(path, fragment, offsets, gone=None):
    """What becomes of fragments of which the rows at ``offsets`` are met, and are gone."""
    addresses = row_addresses(fragment, np.array(offsets, np.uint32))
    is_gone = np.ones(len(offsets), np.bool_) if gone is None else np.array(gone)
    touched = touched_rows(addresses, is_gone)
    return write_deletions(plan_change(Table(path)), touched.values(), one_match_each=True)


def test_deleted_rows_cannot_be_deleted_again(path):
    with pytest.raises(InvalidInputError, match="are deleted already in version 3"):
        lose(path, 0, [0, 1])


def test_rows_beyond_fragment_end_are_refused(path):
    with pytest.raises(InvalidInputError, match="row 4 of fragment 1, which has 4 rows"):
        lose(path, 1, [2, 4])


def test_missing_fragment_is_conflict(path):
    with pytest.raises(CommitConflictError, match="fragment 7 is not in version 3"):
        lose(path, 7, [0])


def test_row_matched_by_distant_tasks_is_repeated(path):
    gone = np.ones(1, np.bool_)
    tasks = [touched_rows(row_addresses(1, np.array([row])), gone)[1] for row in (0, 2, 0)]
    (loss,) = write_deletions(plan_change(Table(path)), tasks, one_match_each=True)
    assert loss.repeated == 1 << 32
    assert loss.deletion_file is None


def test_new_deletions_are_merged_with_existing(path):
    (loss,) = lose(path, 0, [3])
    assert (loss.num_removed, loss.deletion_file.num_deleted_rows) == (1, 2)
    assert AffectedRows(plan_change(Table(path)), [loss])[0].tolist() == [3]
    assert sorted(read_ours(path)["id"].to_pylist()) == [0, 2, 3, 10, 11, 12, 13]


def test_emptied_fragment_writes_no_deletion_file(path):
    (loss,) = lose(path, 0, [0, 2, 3])
    assert (loss.num_removed, loss.deletion_file) == (3, None)
    assert AffectedRows(plan_change(Table(path)), [loss])[0].tolist() == [0, 2, 3]


def test_kept_rows_are_not_removed(path):
    (loss,) = lose(path, 1, [0, 2], gone=[False, False])
    assert (loss.num_removed, loss.deletion_file) == (0, None)


def test_repeated_row_is_reported(path):
    (loss,) = lose(path, 1, [2, 2])
    assert loss.repeated == (1 << 32) + 2


def test_rows_moved_into_several_files_keep_ids(path):
    before = read_ours(path)
    settings = ChangeSettings(max_rows_per_file=3)
    update_rows(path, None, ["id"], lambda rows: {"id": rows["id"]}, settings=settings)
    after = read_ours(path)
    assert len(Snapshot.open(Table(path)).manifest.fragments) == 3
    for name in ("_rowid", "_row_created_at_version"):
        ids = dict(zip(before["id"].to_pylist(), before[name].to_pylist(), strict=True))
        assert dict(zip(after["id"].to_pylist(), after[name].to_pylist(), strict=True)) == ids
