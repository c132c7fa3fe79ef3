"""Cleanup removes what only old versions need, and nothing else: the same files as pylance."""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from random_seeds import seeds
from row_changes import set_to, upsert
from table_access import append, assert_same_rows, read_ours, read_pylance, write_table
from table_files import files_of, used_files

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pyspark_lance.metafile.cleanup_marks import CleanupMark
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.cleanup import auto_cleanup
from pyspark_lance.table.cleanup.auto_cleanup import auto_policy, parse_duration
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.refs import branches_of, create_branch, set_tag
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

ALL_OLD = CleanupPolicy(older_than_s=0)
LONG_AGO = 8 * 24 * 3600


def every_file(path):
    return {str(one.relative_to(path)) for one in Path(path).rglob("*") if one.is_file()}


def versions(path):
    return [location.version for location in list_versions(Table(path).store())]


def some_rows(count):
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    columns = [pa.array(range(count), pa.int64()), pa.array([b"x" * 9] * count, pa.large_binary())]
    return pa.table(columns, schema=pa.schema([("id", pa.int64()), blob]))


@pytest.fixture
def path(tmp_path):
    """Versions of all kinds of operations, with an index, and a blob column."""
    path = str(tmp_path / "t.lance")
    write_table(path, some_rows(40), max_rows_per_file=10)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    delete_rows(path, "id = 3")
    lance.dataset(path).delete("id = 13")
    set_to(path, "id = 5", id=1005)
    lance.dataset(path).optimize.compact_files()
    lance.dataset(path).create_scalar_index("id", "BTREE", replace=True)
    compact(Table(path))
    delete_rows(path, "id = 7")
    return path


def both(path, policy, **from_pylance):
    """Clean up a copy with pylance and this one with ours; the same files must be left."""
    copy = f"{path}-copy"
    shutil.copytree(path, copy)
    stats = lance.dataset(copy).cleanup_old_versions(**from_pylance)
    foreseen = cleanup_old_versions(Table(path), policy, dry_run=True)
    result = cleanup_old_versions(Table(path), policy)
    assert foreseen == result
    assert every_file(path) == every_file(copy)
    assert (len(result.versions), result.num_bytes) == (stats.old_versions, stats.bytes_removed)
    counts = [
        result.files.get(kind, 0) for kind in ("data", "transactions", "indices", "deletions")
    ]
    assert counts == [
        stats.data_files_removed,
        stats.transaction_files_removed,
        stats.index_files_removed,
        stats.deletion_files_removed,
    ]
    assert read_ours(path).num_rows == lance.dataset(path).count_rows()
    lance.dataset(path).validate()
    return result


def test_cleanup_by_age_removes_same_files_as_pylance(path):
    before = read_pylance(path).drop(["b"])
    result = both(path, ALL_OLD, older_than=timedelta(0))
    assert versions(path) == [result.versions[-1] + 1]
    assert read_pylance(path).drop(["b"]).equals(before)
    # Again: nothing is left to do.
    assert cleanup_old_versions(Table(path), ALL_OLD).num_files == 0


def test_cleanup_by_count_removes_same_files_as_pylance(path):
    assert both(path, CleanupPolicy(retain_versions=3), retain_versions=3).versions[0] == 1
    assert len(versions(path)) == 3


def test_cleanup_by_both_rules_equals_pylance(path):
    policy = CleanupPolicy(retain_versions=2, older_than_s=3600)
    assert both(path, policy, retain_versions=2, older_than=timedelta(hours=1)).versions == ()


def test_default_cleanup_keeps_recent_versions(path):
    assert both(path, None).num_files == 0
    later = time.time_ns() + 15 * 24 * 3600 * 10**9
    assert len(cleanup_old_versions(Table(path), now_ns=later, dry_run=True).versions) > 3


def test_cleanup_before_version_keeps_newest(path):
    newest = versions(path)[-1]
    assert cleanup_old_versions(Table(path), CleanupPolicy(before_version=4)).versions == (1, 2, 3)
    assert versions(path)[0] == 4
    read_ours(path, VersionSpec(version=4))
    # Never the newest, for any policy.
    cleanup_old_versions(Table(path), CleanupPolicy(before_version=10**6))
    assert versions(path) == [newest]


def test_unreferenced_files_are_removed_after_one_week(path):
    young = ("data/young.lance", "_deletions/0-1-5.arrow", "_transactions/1-a.txn",
             "_indices/6a1f3c5e-0000-4000-8000-000000000000/x.idx")  # fmt: skip
    old = ("data/old.lance", "data/old/1.blob", "_transactions/1-b.txn", "_versions/.tmp_x")
    others = ("data/notes.txt", "notes.lance", "_refs/x", "data/a/b/c.blob")
    for name in (*young, *old, *others):
        file = Path(path) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"nothing")
        if name not in young:
            os.utime(file, (time.time() - LONG_AGO,) * 2)
    both(path, ALL_OLD, older_than=timedelta(0))
    left = every_file(path)
    assert left.issuperset({*young, *others})
    assert left.isdisjoint(old)
    result = cleanup_old_versions(
        Table(path), CleanupPolicy(older_than_s=0, delete_unverified=True)
    )
    assert set(result.paths) == set(young)


def test_unreferenced_files_of_unknown_age_are_kept(path):
    stray = Path(path, "data", "stray.lance")
    stray.write_bytes(b"nothing")
    os.utime(stray, ns=(0, 0))  # what a store that keeps no time says
    cleanup_old_versions(Table(path), ALL_OLD)
    assert stray.exists()


def test_dry_run_keeps_version_that_branch_begins_with(path):
    create_branch(Table(path), "b", VersionSpec(version=2))
    planned = cleanup_old_versions(Table(path), ALL_OLD, dry_run=True)
    assert 2 not in planned.versions
    assert cleanup_old_versions(Table(path), ALL_OLD) == planned


def test_tagged_versions_are_kept_or_refused(path):
    lance.dataset(path).tags.create("kept", 3)
    before = every_file(path)
    with pytest.raises(InvalidInputError, match="kept"):
        cleanup_old_versions(Table(path), ALL_OLD)
    assert every_file(path) == before
    policy = CleanupPolicy(older_than_s=0, error_if_tagged=False)
    both(path, policy, older_than=timedelta(0), error_if_tagged_old_versions=False)
    assert versions(path)[0] == 3
    assert read_ours(path, VersionSpec(tag="kept")).num_rows == 39
    lance.dataset(path).tags.delete("kept")
    cleanup_old_versions(Table(path), ALL_OLD)
    assert len(versions(path)) == 1


def test_cleanup_keeps_files_of_branches(path):
    branch = lance.dataset(path).create_branch("work/one", 3)
    write_table(branch.uri, some_rows(2))
    deeper = lance.dataset(branch.uri).create_branch("deeper")
    lance.dataset(deeper.uri).delete("id = 20")
    rows = [lance.dataset(uri).count_rows() for uri in (branch.uri, deeper.uri)]
    cleanup_old_versions(Table(path), ALL_OLD)
    assert versions(path)[0] == 3
    assert [read_ours(uri).num_rows for uri in (branch.uri, deeper.uri)] == rows
    # A branch has versions of its own, and never removes what lies in the main folder.
    main = {name for name in every_file(path) if not name.startswith("tree/")}
    write_table(branch.uri, some_rows(2))
    result = cleanup_old_versions(Table(branch.uri), ALL_OLD)
    assert result.versions
    assert {name for name in every_file(path) if not name.startswith("tree/")} == main
    assert [lance.dataset(uri).count_rows() for uri in (branch.uri, deeper.uri)] == [
        rows[0] + 2,
        rows[1],
    ]


def test_cleanup_of_clone_keeps_files_of_origin(path, tmp_path):
    clone = str(tmp_path / "clone")
    lance.dataset(path).shallow_clone(clone, versions(path)[-1])
    delete_rows(clone, "id = 20")
    compact(Table(clone), CompactionRequest(target_rows_per_fragment=20))
    before = every_file(path)
    assert cleanup_old_versions(Table(clone), ALL_OLD).versions
    assert every_file(path) == before
    assert read_ours(clone).num_rows == read_ours(path).num_rows - 1


def test_cleanup_keeps_lineage_files(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table({"id": range(40)})
    lance.write_dataset(table, path, enable_stable_row_ids=True, max_rows_per_file=10)
    lance.dataset(path).update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"}
    )
    lance.dataset(path).update({"id": "id + 100"}, where="id % 3 = 0")
    files = [f for one in lance.dataset(path).get_fragments() for f in one.metadata.files]
    assert any(all(field < 0 for field in file.fields) for file in files)
    before = read_pylance(path)
    cleanup_old_versions(Table(path), ALL_OLD)
    assert read_ours(path).num_rows == 40
    assert read_pylance(path).equals(before)


def test_detached_versions_keep_their_files(path):
    dataset = lance.dataset(path, version=4)
    before = dataset.count_rows()
    operation = lance.LanceOperation.Delete([], [dataset.get_fragments()[0].fragment_id], "")
    detached = lance.LanceDataset.commit(path, operation, read_version=4, detached=True)
    rows = detached.count_rows()
    assert rows < before
    cleanup_old_versions(Table(path), ALL_OLD)
    assert len(versions(path)) == 1
    assert lance.dataset(path, version=detached.version).to_table(["id"]).num_rows == rows


def test_unreadable_manifest_prevents_cleanup(path):
    manifest = Path(path, list_versions(Table(path).store())[2].path)
    manifest.write_bytes(manifest.read_bytes()[:-20])
    before = every_file(path)
    with pytest.raises(CorruptFileError):
        cleanup_old_versions(Table(path), ALL_OLD)
    assert every_file(path) == before


def test_cleanup_requires_table(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.lance").write_bytes(b"")
    with pytest.raises(TableNotFoundError):
        cleanup_old_versions(Table(str(tmp_path)), CleanupPolicy(delete_unverified=True))
    assert (tmp_path / "data" / "x.lance").exists()


def test_next_cleanup_finishes_interrupted_one(path, monkeypatch):
    real = LocalStore.delete_many
    before = read_pylance(path).drop(["b"])
    left = 2

    def failing(self, paths):
        paths = list(paths)
        real(self, paths[:left])
        raise OSError("the power is gone")

    monkeypatch.setattr(LocalStore, "delete_many", failing)
    with pytest.raises(OSError, match="power"):
        cleanup_old_versions(Table(path), ALL_OLD)
    monkeypatch.undo()
    assert len(list(Path(path, "_versions").iterdir())) > 5
    cleanup_old_versions(Table(path), ALL_OLD)
    assert len(versions(path)) == 1
    assert read_pylance(path).drop(["b"]).equals(before)


def test_version_restored_during_cleanup_keeps_files(path, monkeypatch):
    from pyspark_lance.table.cleanup import cleanup

    real = cleanup.move_to_pending_removal

    def late(store, locations, **settings):
        lance.dataset(path, version=1).restore()
        real(store, locations, **settings)

    monkeypatch.setattr(cleanup, "move_to_pending_removal", late)
    cleanup_old_versions(Table(path), ALL_OLD)
    assert read_ours(path).num_rows == 40
    assert lance.dataset(path).to_table(["id"])["id"].to_pylist() == list(range(40))


def test_version_tagged_before_mark_is_kept(path, monkeypatch):
    from pyspark_lance.table.cleanup import cleanup

    real = cleanup.CleanupMark

    def tagged_before(store, numbers):
        lance.dataset(path).tags.create("late", 2)
        return real(store, numbers)

    monkeypatch.setattr(cleanup, "CleanupMark", tagged_before)
    cleanup_old_versions(Table(path), ALL_OLD)
    assert versions(path)[0] == 2
    assert len(versions(path)) == 2
    assert read_ours(path, VersionSpec(tag="late")).num_rows == lance.dataset(path, 2).count_rows()
    assert list(Path(path, "_refs/cleanups").iterdir()) == []


def test_marked_version_cannot_be_tagged_branched_or_restored(path, monkeypatch):
    from pyspark_lance.table.cleanup import cleanup

    real, errors = cleanup.move_to_pending_removal, []
    old = VersionSpec(version=2)

    def too_late(store, locations, **settings):
        for need in (
            lambda: set_tag(Table(path), "late", old),
            lambda: create_branch(Table(path), "late", old),
            lambda: restore(Table(path), old),
        ):
            with pytest.raises(VersionNotFoundError, match="version 2 is being removed") as error:
                need()
            errors.append(error)
        real(store, locations, **settings)

    monkeypatch.setattr(cleanup, "move_to_pending_removal", too_late)
    newest = versions(path)[-1]
    cleanup_old_versions(Table(path), ALL_OLD)
    assert len(errors) == 3
    assert versions(path) == [newest]
    assert lance.dataset(path).tags.list() == {}
    assert branches_of(Table(path)) == []
    assert files_of(path) == used_files(path)
    assert list(Path(path, "_refs/cleanups").iterdir()) == []


def test_stale_cleanup_mark_expires_after_one_hour(path):
    store, newest = Table(path).store(), versions(path)[-1]
    stale = Path(path, CleanupMark(store, [newest, 2]).path)
    with pytest.raises(VersionNotFoundError, match="being removed"):
        set_tag(Table(path), "t", VersionSpec(version=2))
    an_hour_ago = time.time() - 3601
    os.utime(stale, (an_hour_ago, an_hour_ago))
    set_tag(Table(path), "t", VersionSpec(version=2))
    CleanupMark(store, [1])
    young = Path(path, CleanupMark(store, [1, newest]).path)
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0, error_if_tagged=False))
    assert list(Path(path, "_refs/cleanups").iterdir()) == [young]
    assert versions(path)[0] == 2


def test_idle_cleanup_removes_stale_marks(path):
    cleanup_old_versions(Table(path), ALL_OLD)
    mark = Path(path, CleanupMark(Table(path).store(), [1]).path)
    assert cleanup_old_versions(Table(path), ALL_OLD, dry_run=True).num_files == 0
    assert mark.exists()
    assert cleanup_old_versions(Table(path), ALL_OLD).num_files == 0
    assert not mark.exists()


def test_cleanup_with_expired_mark_stops(path):
    now = 1e9
    mark = CleanupMark(Table(path).store(), [1], clock=lambda: now)
    for seconds in (1799, 1799):  # each renewal gives half an hour more
        now += seconds
        mark.renew()
    now += 1801
    with pytest.raises(StorageError, match="suspended for 1801 s"):
        mark.renew()
    mark.remove()
    assert list(Path(path, "_refs/cleanups").iterdir()) == []


def test_failed_mark_renewal_prevents_removal(path, monkeypatch):
    def held_up(self):
        raise StorageError("held up")

    before = versions(path)
    monkeypatch.setattr(CleanupMark, "renew", held_up)
    with pytest.raises(StorageError, match="held up"):
        cleanup_old_versions(Table(path), ALL_OLD)
    assert versions(path) == before
    assert list(Path(path, "_refs/cleanups").iterdir()) == []


def test_staged_references_are_removed(path):
    names = ("tags/.tmp_t.json_0.part", "branches/.tmp_b.json_0.part", "cleanups/.tmp_c_0.part")
    set_tag(Table(path), "t")
    for name in names:
        Path(path, "_refs", name).parent.mkdir(exist_ok=True)
        Path(path, "_refs", name).write_bytes(b"{")
    assert cleanup_old_versions(Table(path), ALL_OLD).files.get("staging", 0) == 0
    os.utime(Path(path, "_refs", names[0]), (time.time() - LONG_AGO,) * 2)
    assert cleanup_old_versions(Table(path), ALL_OLD).files == {"staging": 1}
    policy = CleanupPolicy(older_than_s=0, delete_unverified=True)
    assert cleanup_old_versions(Table(path), policy).files == {"staging": 2}
    assert every_file(f"{path}/_refs") == {"tags/t.json"}


def test_progress_reaches_total(path):
    steps = []
    result = cleanup_old_versions(
        Table(path), ALL_OLD, progress=lambda done, total: steps.append((done, total))
    )
    assert steps[-1] == (result.num_files, result.num_files)
    assert steps == sorted(steps)


def test_batched_removal_resumes_after_failure(path, monkeypatch):
    from pyspark_lance.table.cleanup import cleanup

    monkeypatch.setattr(cleanup, "_BATCH", 2)
    real, broken = LocalStore.delete_many, []

    def failing(self, paths):
        if not broken and "data/" in paths[0]:
            broken.append(paths)
            raise StorageError("no answer")
        assert not any(one.startswith("_versions/") for one in paths) or not broken
        real(self, paths)

    numbers, files = versions(path), files_of(path)
    monkeypatch.setattr(LocalStore, "delete_many", failing)
    with pytest.raises(StorageError):
        cleanup_old_versions(Table(path), ALL_OLD)
    monkeypatch.setattr(LocalStore, "delete_many", real)
    assert versions(path) == numbers[-1:]
    assert len(files_of(path)) < len(files)
    done = cleanup_old_versions(Table(path), ALL_OLD)
    assert done.versions == tuple(numbers[:-1])
    assert files_of(path) == used_files(path)
    assert list(Path(path, "_versions").glob("removed_*")) == []


# After commits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("14days", 14 * 86400), ("1day 1h 1m 1s", 90061), ("7s", 7), ("2weeks1d", 15 * 86400),
     ("0s", 0), ("1M", 30.44 * 86400), ("1y", 365.25 * 86400), ("250ms", 0.25)],
)  # fmt: skip
def test_durations_are_parsed(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "14", "days", "1 fortnight", "1d x", "-1d", "1.5h"])
def test_invalid_durations_are_refused(text):
    with pytest.raises(InvalidInputError):
        parse_duration(text)


CONFIGURATIONS = [
    {"interval": "1"},
    {"interval": "1", "older_than": "0s"},
    {"interval": "0", "older_than": "0s"},
    {"interval": "1", "retain_versions": "3"},
    {"interval": "1", "retain_versions": "3", "older_than": "1h"},
    {"interval": "3", "older_than": "0s"},
    {"interval": "x", "older_than": "0s"},
    {"interval": "1", "older_than": "soon"},
    {"older_than": "0s"},
]


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_configured_cleanup_keeps_same_versions_as_pylance(tmp_path, config):
    left = {}
    for writer in ("ours", "theirs"):
        path = str(tmp_path / writer)
        append(path, 0)
        keys = {auto_cleanup.PREFIX + name: value for name, value in config.items()}
        lance.dataset(path).update_config(keys)
        for number in range(5):
            if writer == "ours":
                append(path, 3 * number)
            else:
                lance.write_dataset(pa.table({"id": [number]}), path, mode="append")
        left[writer] = versions(path)
    assert left["ours"] == left["theirs"]


def test_commits_without_configuration_do_not_clean_up():
    assert auto_policy({}, 20) is None
    assert auto_policy({auto_cleanup.PREFIX + "older_than": "0s"}, 20) is None


def test_table_survives_repeated_upserts_and_cleanups(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, 30)
    for number in range(6):
        upsert(path, pa.table({"id": [number, 100 + number]}))
        compact(Table(path))
        cleanup_old_versions(Table(path), ALL_OLD)
        assert len(versions(path)) == 1
    assert read_ours(path).num_rows == lance.dataset(path).count_rows() == 36


@pytest.mark.parametrize("seed", seeds(40, in_ci=4))
def test_cleanup_of_random_history_removes_exactly_unused_files(tmp_path, seed):
    path, rng = str(tmp_path / "t"), np.random.default_rng(seed)
    append(path, 0, 30, max_rows_per_file=10)
    steps = [
        lambda: append(path, int(rng.integers(1000)), 12, max_rows_per_file=5),
        lambda: delete_rows(path, f"id % 5 = {rng.integers(5)}"),
        lambda: delete_rows(path, "id IS NOT NULL"),
        lambda: upsert(path, pa.table({"id": rng.permutation(40)[:9]})),
        lambda: compact(Table(path)),
        lambda: restore(Table(path), VersionSpec(version=int(rng.choice(versions(path))))),
    ]
    for number in range(14):
        steps[rng.integers(len(steps))]()
        if number % 5 == 4:
            if rng.integers(2):
                set_tag(Table(path), f"t{number}", VersionSpec(version=versions(path)[0]))
            before, kept = len(versions(path)), int(rng.integers(1, 6))
            policy = CleanupPolicy(
                retain_versions=kept, error_if_tagged=False, delete_unverified=True
            )
            cleanup_old_versions(Table(path), policy)
            assert len(versions(path)) >= min(before, kept)
            assert files_of(path) == used_files(path)
    for version in versions(path):
        assert_same_rows(read_ours(path, VersionSpec(version=version)), read_pylance(path, version))
