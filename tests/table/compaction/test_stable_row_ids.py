"""Tables without stable row ids get them, in place or as a copy; pylance goes on with both."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to, upsert
from table_access import (
    append,
    assert_same_rows,
    read_changes,
    read_ours,
    read_pylance,
    write_table,
)
from table_files import files_of, used_files
from table_invariants import check_invariants

from pyspark_lance.errors import InvalidInputError, TableAlreadyExistsError, UnsupportedFeatureError
from pyspark_lance.table.compaction.compact import commit_bins, compact, plan_compaction
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.compaction.stable_row_ids import (
    copy_with_stable_row_ids,
    enable_stable_row_ids,
)
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.unit_of_work import UnitOfWork, restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    """Four fragments, one of which has lost rows, in a table without stable row ids."""
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(40), "v": [f"v{i}" for i in range(40)]})
    write_table(path, rows, max_rows_per_file=10, enable_stable_row_ids=False)
    lance.dataset(path).delete("id = 13 OR id = 14")
    return path


@pytest.fixture(params=["in place", "copy"])
def migrated(request, path, tmp_path):
    if request.param == "in place":
        assert enable_stable_row_ids(Table(path)).version == 3
        return path
    target = str(tmp_path / "copy")
    result = copy_with_stable_row_ids(Table(path), Table(target))
    assert (result.version, result.num_rows, result.num_fragments) == (1, 38, 1)
    return target


def test_migrated_rows_have_ids_and_read_equally(migrated):
    check_invariants(migrated)
    assert verify(Table(migrated), read_data=True).findings == ()
    assert lance.dataset(migrated).has_stable_row_ids
    assert_same_rows(read_ours(migrated), read_pylance(migrated))
    lance.dataset(migrated).validate()
    rows = read_ours(migrated)
    version = Snapshot.open(Table(migrated)).version
    assert rows["id"].to_pylist() == [i for i in range(40) if i not in (13, 14)]
    assert set(rows["_row_created_at_version"].to_pylist()) == {version}


def test_migrated_table_keeps_row_ids_in_later_commits(migrated):
    ids = dict(
        zip(*(read_ours(migrated)[name].to_pylist() for name in ("id", "_rowid")), strict=True)
    )
    first = Snapshot.open(Table(migrated)).version
    lance.dataset(migrated).update({"v": "'theirs'"}, where="id < 3")
    set_to(migrated, "id >= 3 AND id < 6", v="ours")
    upsert(migrated, pa.table({"id": [7, 200], "v": ["a", "b"]}))
    lance.dataset(migrated).delete("id = 30")
    delete_rows(migrated, "id = 31")
    compact(Table(migrated), CompactionRequest(materialize_deletions_threshold=0.0))
    lance.dataset(migrated).optimize.compact_files()
    rows = read_ours(migrated)
    now = dict(zip(*(rows[name].to_pylist() for name in ("id", "_rowid")), strict=True))
    assert {key: value for key, value in now.items() if key != 200} == {
        key: value for key, value in ids.items() if key not in (30, 31)
    }
    assert now[200] not in ids.values()
    assert_same_rows(rows, read_pylance(migrated))
    feed = read_changes(migrated, first + 1, Snapshot.open(Table(migrated)).version, "netChanges")
    assert sorted(
        feed.filter(pa.compute.equal(feed["_change_type"], "delete"))["id"].to_pylist()
    ) == [30, 31]


def test_table_with_stable_row_ids_is_unchanged(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    assert enable_stable_row_ids(Table(path)).version is None
    assert Snapshot.open(Table(path)).version == 1


def test_enabling_stable_row_ids_requires_rows(tmp_path):
    path = str(tmp_path / "empty")
    write_table(path, pa.table({"id": pa.array([], pa.int64())}), enable_stable_row_ids=False)
    with pytest.raises(InvalidInputError, match="create the table again"):
        enable_stable_row_ids(Table(path))
    assert lance.dataset(path).version == 1


def test_indices_block_migration_and_error_suggests_copy(path):
    lance.dataset(path).create_scalar_index("id", "BTREE")
    with pytest.raises(UnsupportedFeatureError, match="copyWithStableRowIds"):
        enable_stable_row_ids(Table(path))
    assert Snapshot.open(Table(path)).version == 3


def test_restore_before_migration_is_refused(path):
    enable_stable_row_ids(Table(path))
    with pytest.raises(UnsupportedFeatureError, match="stable row ids"):
        restore(Table(path), VersionSpec(version=1))


def test_migration_retries_after_concurrent_commit(path, monkeypatch):
    from pyspark_lance.table.compaction import stable_row_ids

    real, calls = stable_row_ids._with_lineage, []

    def interrupted(fragments, version):
        calls.append(version)
        if len(calls) == 1:
            lance.dataset(path).delete("id = 0")
        return real(fragments, version)

    monkeypatch.setattr(stable_row_ids, "_with_lineage", interrupted)
    assert enable_stable_row_ids(Table(path)).version == 4
    assert calls == [3, 4]
    assert read_pylance(path)["id"].to_pylist()[0] == 1
    check_invariants(path)


def test_compaction_planned_before_migration_conflicts(path):
    plan = plan_compaction(Table(path), CompactionRequest(), ChangeSettings())
    group = plan.tasks[0].run()
    assert group.new_fragments[0].row_ids is None
    enable_stable_row_ids(Table(path))
    work = UnitOfWork(Table(path), ChangeSettings())
    result = work.once(lambda one: commit_bins(plan, [group], one))
    assert (result.version, result.conflicting_bins) == (None, 1)
    check_invariants(path)
    assert files_of(path) == used_files(path)


def test_copy_requires_free_target(path, tmp_path):
    target = str(tmp_path / "copy")
    append(target, 0)
    with pytest.raises(TableAlreadyExistsError):
        copy_with_stable_row_ids(Table(path), Table(target))
    assert files_of(target) == used_files(target)


def test_copy_keeps_schema_and_configuration(path, tmp_path):
    lance.dataset(path).update_config({"lance.compaction.target_rows_per_fragment": "7"})
    target = str(tmp_path / "copy")
    copy_with_stable_row_ids(Table(path), Table(target))
    mine, other = (Snapshot.open(Table(one)).manifest for one in (target, path))
    assert mine.schema == other.schema
    assert mine.config == other.config
    assert mine.file_version == other.file_version
