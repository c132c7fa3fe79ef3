"""What happened to a table, what it is made of, and versions that write no data."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to, upsert
from table_access import (
    append,
    assert_same_rows,
    forget_transactions,
    read_changes,
    read_ours,
    read_pylance,
    remove_versions,
    write_table,
)

from pyspark_lance.errors import InvalidInputError, VersionNotFoundError
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.history.history import detail, fragments, history
from pyspark_lance.table.refs import set_tag
from pyspark_lance.table.unit_of_work import restore, set_properties
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec, properties_of
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, 10, properties={"__lance_commit_message": "the first"})
    append(path, 10, 10)
    delete_rows(path, "id = 3")
    set_to(path, "id = 5", id=105)
    upsert(path, pa.table({"id": [7, 30]}))
    lance.dataset(path).delete("id < 2")
    compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))
    lance.dataset(path).create_scalar_index("id", "BTREE")
    return path


def test_history_shows_operation_of_each_version(path):
    set_tag(Table(path), "kept", VersionSpec(version=2))
    entries = history(Table(path))
    assert [one.version for one in entries] == list(range(8, 0, -1))
    assert [one.operation for one in entries] == [
        "CreateIndex", "Rewrite", "Delete", "Update", "Update", "Delete", "Append", "Overwrite",
    ]  # fmt: skip
    for entry in entries:
        dataset = lance.dataset(path, version=entry.version)
        assert entry.num_rows == dataset.count_rows()
        assert entry.num_fragments == len(dataset.get_fragments())
    times = {one["version"]: one["timestamp"].timestamp() for one in lance.dataset(path).versions()}
    assert {one.version: pytest.approx(one.timestamp.timestamp(), abs=1e-3) for one in entries} == (
        times
    )
    by_version = {one.version: one for one in entries}
    assert by_version[1].user_metadata == "the first"
    assert by_version[2].tags == ("kept",)
    assert by_version[2].metrics == {"num_added_fragments": 1, "num_added_rows": 10}
    assert by_version[7].metrics["num_removed_fragments"] == 4
    assert by_version[7].writer.startswith("pyspark-lance")
    assert by_version[8].writer.startswith("lance")
    assert by_version[8].manifest_bytes > 100
    assert [one.version for one in history(Table(path), 3)] == [8, 7, 6]


def test_history_has_gaps_after_removal(path):
    remove_versions(path, [1, 2, 4])
    forget_transactions(path, keep_files=False)
    entries = history(Table(path))
    assert [one.version for one in entries] == [8, 7, 6, 5, 3]
    assert {one.operation for one in entries} == {""}


def test_detail_reports_state_and_advice(path):
    found = detail(Table(path))
    assert (found.version, found.num_rows, found.num_deleted_rows) == (8, 18, 0)
    assert (found.num_versions, found.oldest_version, found.stable_row_ids) == (8, 1, True)
    assert found.indices == ("id_idx",)
    assert found.advice == ()
    before = detail(Table(path), VersionSpec(version=6))
    assert before.num_deleted_rows > 0
    (advice,) = before.advice
    assert advice.startswith("compact: 4 of 4 fragments")


def test_fragments_show_row_lineage(path):
    (now,) = fragments(Table(path))
    assert (now.num_rows, now.physical_rows) == (18, 18)
    rows = read_ours(path)
    assert (now.first_row_id, now.last_row_id) == (
        min(rows["_rowid"].to_pylist()), max(rows["_rowid"].to_pylist()),
    )  # fmt: skip
    for name in ("created_at", "last_updated_at"):
        values = rows[f"_row_{name}_version"].to_pylist()
        assert getattr(now, f"min_{name}") == min(values)
        assert getattr(now, f"max_{name}") == max(values)
    assert len(fragments(Table(path), VersionSpec(version=6))) == 4


# Restore -----------------------------------------------------------------------------------


def test_restore_equals_pylance(path):
    before = read_pylance(path, 3).to_pylist()
    assert restore(Table(path), VersionSpec(version=3)).version == 9
    assert read_pylance(path).to_pylist() == before
    assert_same_rows(read_ours(path), read_pylance(path))
    manifest = Snapshot.open(Table(path)).manifest
    lance.dataset(path, version=3).restore()
    from_pylance = Snapshot.open(Table(path)).manifest
    assert (manifest.next_row_id, manifest.max_fragment_id) == (
        from_pylance.next_row_id,
        from_pylance.max_fragment_id,
    )
    # Rows that come after do not take the ids of rows that were.
    append(path, 200)
    assert min(i for i in read_ours(path)["_rowid"].to_pylist() if i > 20) == manifest.next_row_id
    feed = read_changes(path, 9, 9, "none")
    kinds = sorted(feed["_change_type"].to_pylist())
    assert kinds.count("insert") == 2  # ids 0 and 1
    assert kinds.count("delete") == 1  # id 30


def test_restore_accepts_tag_and_timestamp(path):
    set_tag(Table(path), "kept", VersionSpec(version=2))
    assert restore(Table(path), VersionSpec(tag="kept")).version == 9
    assert read_ours(path).num_rows == 20
    then = Snapshot.open(Table(path), VersionSpec(version=3)).manifest.timestamp_ns
    assert restore(Table(path), VersionSpec(timestamp_ns=then)).version == 10
    assert read_ours(path).num_rows == 19


def test_restore_of_newest_version_makes_no_version(path):
    assert restore(Table(path), VersionSpec(version=8)).version is None
    assert Snapshot.open(Table(path)).version == 8


def test_restore_of_removed_version_is_refused(path):
    remove_versions(path, [2])
    with pytest.raises(VersionNotFoundError):
        restore(Table(path), VersionSpec(version=2))
    with pytest.raises(InvalidInputError):
        restore(Table(path), VersionSpec())


# Properties --------------------------------------------------------------------------------


def test_properties_are_stored_like_lance(path):
    settings = ChangeSettings(properties={"__lance_commit_message": "why"})
    changes = {"lance.auto_cleanup.interval": "20", "owner": "web team"}
    assert set_properties(Table(path), changes, settings).version == 9
    dataset = lance.dataset(path)
    assert dataset.config() == {"lance.auto_cleanup.interval": "20"}
    assert dataset.metadata == {"owner": "web team"}
    assert properties_of(Snapshot.open(Table(path))) == changes
    assert set_properties(Table(path), changes).version is None
    assert history(Table(path), 1)[0].user_metadata == "why"
    dataset.update_config({"theirs": "1"})
    set_properties(Table(path), {"theirs": "2", "owner": None})
    assert properties_of(Snapshot.open(Table(path))) == {
        "lance.auto_cleanup.interval": "20",
        "theirs": "2",
    }
    assert lance.dataset(path).config()["theirs"] == "2"


def test_internal_keys_are_not_properties(path):
    write_table(
        path,
        pa.table({"id": [1]}),
        properties={"pyspark_lance.txn_app_id": "a", "pyspark_lance.txn_version": "1"},
    )
    assert properties_of(Snapshot.open(Table(path))) == {}
    for changes in ({"pyspark_lance.x": "1"}, {"": "1"}, {"a": 3}):
        with pytest.raises(InvalidInputError):
            set_properties(Table(path), changes)
