"""Compactions that put off the remapping of indices: pylance goes on answering from all of them."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from indexed_tables import check, check_used, make_indices, some_rows
from local_changes import commit_rewritten, delete_rows
from pyroaring import BitMap64
from table_access import read_ours, write_table
from table_files import files_of, used_files

from pyspark_lance.commit.application_versions import ApplicationVersion
from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.index_metadata import (
    FragmentDigest,
    ReuseDetails,
    ReuseGroup,
    ReuseVersion,
    reuse_index_of,
)
from pyspark_lance.format.row_address import row_addresses
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction import remap_indices
from pyspark_lance.table.compaction.compact import commit_bins, compact, plan_compaction
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import ChangeSettings, plan_change
from pyspark_lance.table.index.segments import map_addresses
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

DEFERRED = {"materialize_deletions_threshold": 0.0, "defer_index_remap": True}


def entry_of(path):
    return reuse_index_of(Snapshot.open(Table(path)).indices)


def ids_of(path):
    return sorted(lance.dataset(path).to_table(["id"])["id"].to_pylist())


def versions_of(path):
    details = ReuseDetails.of(entry_of(path))
    return details.versions


def small_table(path, seed):
    """Addresses of every shape: whole fragments, fragments with few and with many deleted rows."""
    rng = np.random.default_rng(seed)
    rows, per_file = (60_000, 13_000) if seed == 3 else (int(rng.integers(50, 400)), 30)
    table = pa.table({"id": range(rows), "kind": [f"k{i % 7}" for i in range(rows)]})
    dataset = lance.write_dataset(table, path, max_rows_per_file=per_file)
    dataset.create_scalar_index("id", "BTREE")
    if seed % 2:
        dataset.create_scalar_index("kind", "BITMAP")
    dataset.delete(f"id % {int(rng.integers(2, 30))} = 1 AND id > {per_file // 2}")
    return per_file


@pytest.mark.parametrize("seed", range(5))
def test_reuse_index_equals_pylance_bytes(tmp_path, seed):
    ours, from_pylance = str(tmp_path / "ours"), str(tmp_path / "theirs")
    per_file = small_table(ours, seed)
    shutil.copytree(ours, from_pylance)
    for turn in range(3):
        options = {**DEFERRED, "target_rows_per_fragment": per_file * 3**turn}
        compact(Table(ours), CompactionRequest(**options))
        lance.dataset(from_pylance).optimize.compact_files(**options)
        mine, other = entry_of(ours), entry_of(from_pylance)
        # A uuid and a time are all that is not the same.
        same = (mine.raw[:4], mine.raw[20:-7], len(mine.raw))
        assert same == (other.raw[:4], other.raw[20:-7], len(other.raw))
        assert lance.dataset(ours).version == lance.dataset(from_pylance).version
        for path in (ours, from_pylance):
            lance.dataset(path).delete(f"id % 11 = {turn}")
            new = pa.table({"id": [10**6 + turn], "kind": ["k3"]})
            lance.write_dataset(new, path, mode="append")


def indexed(path):
    write_table(
        path,
        some_rows(np.random.default_rng(3), range(300)),
        max_rows_per_file=40,
        enable_stable_row_ids=False,
    )
    make_indices(path)
    delete_rows(path, "id >= 20 AND id < 50 OR id = 170")


def rewrite_in_place(path):
    """Another kind for every third row, in place."""
    plan = plan_change(Table(path))
    request = plan_rewrite(plan.snapshot(), ["kind"])
    found = read_ours(path, system_columns=("_rowaddr",))
    found = found.filter(pc.equal(pc.bit_wise_and(found["id"], 3), 1))
    changed = pa.table({"_rowaddr": found["_rowaddr"], "kind": pa.array(["k2"] * len(found))})
    commit_rewritten(plan, request, list(rewrite_columns(request, changed.to_batches())))


def test_moved_addresses_are_found_in_several_fragments():
    rng = np.random.default_rng(8)
    for _ in range(20):
        old = np.concatenate([row_addresses(2, np.arange(30)), row_addresses(5, np.arange(30))])
        stayed = np.sort(rng.choice(old, int(rng.integers(10, 60)), replace=False))
        cuts = np.sort(rng.choice(np.arange(1, len(stayed)), 3, replace=False))
        lengths = np.diff([0, *cuts, len(stayed)])
        new = tuple(FragmentDigest(9 + n, int(rows), 0) for n, rows in enumerate(lengths))
        gone = tuple(FragmentDigest(n, 30, 0) for n in (2, 5))
        group = ReuseGroup(BitMap64(stayed).serialize(), gone, new)
        now = np.concatenate([row_addresses(one.id, np.arange(one.physical_rows)) for one in new])
        others = row_addresses(3, np.arange(4))
        asked = rng.permutation(np.concatenate([others, old]))
        found = map_addresses(asked, (ReuseVersion(1, (group,)),))
        assert sorted(found.tolist()) == sorted([*others.tolist(), *now.tolist()])


def test_indices_answer_after_deferred_compactions(tmp_path):
    path = str(tmp_path / "t")
    indexed(path)
    bodies = {index.name: index.raw for index in Snapshot.open(Table(path)).indices}
    options = {**DEFERRED, "target_rows_per_fragment": 80}
    result = compact(Table(path), CompactionRequest(**options))
    assert result.fragments_added > 1
    after = {index.name: index.raw for index in Snapshot.open(Table(path)).indices}
    assert {**bodies, "__lance_frag_reuse": after["__lance_frag_reuse"]} == after
    check(path)
    check_used(path)
    assert sorted(read_ours(path, system_columns=())["id"].to_pylist()) == ids_of(path)
    assert verify(Table(path)).errors == ()
    delete_rows(path, "id = 60")
    write_table(path, some_rows(np.random.default_rng(4), range(300, 330)))
    check(path)
    compact(Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 1000}))
    assert [len(one.groups) for one in versions_of(path)] == [2, 1]
    check(path)
    check_used(path)
    lance.dataset(path).optimize.optimize_indices()
    check(path)
    lance.dataset(path).optimize.compact_files(**DEFERRED)
    check(path)


@pytest.mark.parametrize("in_a_file", [False, True])
def test_changes_after_deferred_remap_update_coverage(tmp_path, monkeypatch, in_a_file):
    if in_a_file:
        monkeypatch.setattr(remap_indices, "MAX_INLINE_BYTES", 0)
    path = str(tmp_path / "t")
    indexed(path)
    compact(Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 80}))
    assert (versions_of(path) is None) == in_a_file
    check(path)
    check_used(path)
    rewrite_in_place(path)
    check(path)
    # Without the note rows move away from every index that knows addresses.
    compact(Table(path), CompactionRequest(target_rows_per_fragment=1000))
    check(path)
    covered = {one.name: set(one.fragment_bitmap) for one in Snapshot.open(Table(path)).indices}
    assert not any(fragments for name, fragments in covered.items() if name.endswith("_idx"))
    lance.dataset(path).optimize.optimize_indices()
    check(path)


def test_large_reuse_index_is_external(tmp_path):
    path = str(tmp_path / "t")
    rows = 1_900_000
    table = pa.table({"id": np.arange(rows, dtype=np.int32)})
    dataset = lance.write_dataset(table, path, max_rows_per_file=500_000)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id % 3 = 1")
    compact(Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 10**7}))
    entry = entry_of(path)
    (file,) = Path(path, "_indices", str(entry.uuid)).iterdir()
    assert (file.name, file.stat().st_size > 204_800) == ("details.binpb", True)
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
    assert files_of(path) == used_files(path)
    assert verify(Table(path)).errors == ()
    dataset = lance.dataset(path)
    wanted = "id >= 1234567 AND id < 1234600"
    assert "ScalarIndexQuery" in dataset.scanner(filter=wanted).explain_plan()
    found = dataset.to_table(filter=wanted)["id"].to_pylist()
    assert sorted(found) == [i for i in range(1234567, 1234600) if i % 3 != 1]
    # And ours reads it to append to it.
    dataset.delete("id % 5 = 0")
    compact(Table(path), CompactionRequest(**DEFERRED))
    assert sorted(lance.dataset(path).to_table(filter=wanted)["id"].to_pylist()) == [
        i for i in range(1234567, 1234600) if i % 3 != 1 and i % 5
    ]
    assert len(remap_indices.reuse_versions(Snapshot.open(Table(path)))) == 2
    Path(path, "_indices", str(entry_of(path).uuid), "details.binpb").unlink()
    delete_rows(path, "id < 800000")
    with pytest.raises(CorruptFileError, match="reuse index"):
        compact(Table(path), CompactionRequest(**DEFERRED))


def two_bins(path):
    """Bins {0, 1} and {3, 4} of an indexed table, with a large fragment between them."""
    first = 0
    for rows in (10, 10, 100, 10, 10):
        ids = pa.table({"id": range(first, first + rows)})
        lance.write_dataset(ids, path, mode="append")
        first += rows
    lance.dataset(path).create_scalar_index("id", "BTREE")
    return {"target_rows_per_fragment": 50, "defer_index_remap": True}


@pytest.mark.parametrize("in_a_file", [False, True])
def test_concurrent_deferred_compactions_share_reuse_index(tmp_path, monkeypatch, in_a_file):
    if in_a_file:
        monkeypatch.setattr(remap_indices, "MAX_INLINE_BYTES", 0)
    path = str(tmp_path / "t")
    given = two_bins(path)
    plans = [
        plan_compaction(Table(path), CompactionRequest(**given), ChangeSettings()) for _ in range(3)
    ]
    groups = [[task.run() for task in plan.tasks] for plan in plans[1:]]
    first = plans[0].tasks[0].run()

    def committed(plan, some):
        work = UnitOfWork(plan.change.table, plan.change.settings)
        return work.once(functools.partial(commit_bins, plan, some))

    assert committed(plans[0], [first]).fragments_removed == 2
    lost = committed(plans[1], groups[0])
    assert (lost.fragments_removed, lost.conflicting_bins) == (2, 1)
    assert committed(plans[2], groups[1]).version is None
    versions = remap_indices.reuse_versions(Snapshot.open(Table(path)))
    assert [[sorted(g.old_ids) for g in one.groups] for one in versions] == [[[0, 1]], [[3, 4]]]
    dataset = lance.dataset(path)
    for number in (3, 15, 70, 125, 139):
        assert dataset.to_table(filter=f"id = {number}")["id"].to_pylist() == [number]
    assert dataset.to_table(filter="id >= 0").num_rows == 140
    assert len(list(Path(path).glob("_indices/*/details.binpb"))) == 2 * in_a_file
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
    assert files_of(path) == used_files(path)
    assert len(list(Path(path).glob("_indices/*/details.binpb"))) == in_a_file


def test_remapped_versions_are_trimmed_from_reuse_index(tmp_path):
    path = str(tmp_path / "t")
    given = two_bins(path)
    compact(Table(path), CompactionRequest(**given))
    lance.dataset(path).create_scalar_index("id", "BTREE", replace=True)
    delete_rows(path, "id < 5")
    before = versions_of(path)
    compact(Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 50}))
    after = versions_of(path)
    assert len(before) == len(after) == 1
    assert before[0].groups != after[0].groups
    dataset = lance.dataset(path)
    assert dataset.to_table(filter="id >= 3 AND id < 8")["id"].to_pylist() == [5, 6, 7]


def test_unaffected_index_retains_no_reuse_versions(tmp_path):
    path = str(tmp_path / "t")
    for rows, column in ((range(100), "n"), (range(100, 110), None), (range(110, 120), "id")):
        lance.write_dataset(pa.table({"id": rows, "n": rows}), path, mode="append")
        if column is not None:
            lance.dataset(path).create_scalar_index(column, "BTREE")
    compact(Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 50}))
    before = versions_of(path)
    lance.dataset(path).create_scalar_index("id", "BTREE", replace=True)
    delete_rows(path, "id = 115")
    compact(Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 50}))
    after = versions_of(path)
    assert len(before) == len(after) == 1
    assert before[0].groups != after[0].groups


def test_reuse_versions_are_kept_until_all_indices_follow(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(140), "n": range(140)})
    lance.write_dataset(rows, path, max_rows_per_file=20)
    for column in ("id", "n"):
        lance.dataset(path).create_scalar_index(column, "BTREE")
    compact(Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 40}))
    lance.dataset(path).create_scalar_index("id", "BTREE", replace=True)
    compact(Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 140}))
    assert len(versions_of(path)) == 2
    for condition in ("id = 75", "n = 75"):
        assert lance.dataset(path).to_table(filter=condition)["id"].to_pylist() == [75]


def test_deferred_compaction_without_index_writes_no_reuse_index(tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 10):
        rows = pa.table({"id": range(first, first + 10)})
        lance.write_dataset(rows, path, mode="append")
    assert compact(Table(path), CompactionRequest(defer_index_remap=True)).version == 3
    assert entry_of(path) is None


def test_reuse_index_is_unchanged_without_affected_index(tmp_path):
    path = str(tmp_path / "t")
    compact(Table(path), CompactionRequest(**two_bins(path)))
    before = entry_of(path)
    lance.dataset(path).drop_index("id_idx")
    assert (
        compact(
            Table(path), CompactionRequest(**{**DEFERRED, "target_rows_per_fragment": 500})
        ).fragments_added
        == 1
    )
    assert entry_of(path) == before
    lance.dataset(path).create_scalar_index("id", "BTREE")
    assert lance.dataset(path).to_table(filter="id = 125")["id"].to_pylist() == [125]


def test_deferred_remap_is_refused_with_stable_row_ids(tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 10):
        write_table(path, pa.table({"id": range(first, first + 10)}))
    with pytest.raises(InvalidInputError, match="stable row ids"):
        compact(Table(path), CompactionRequest(defer_index_remap=True))
    assert compact(Table(path)).version == 3


def test_table_configuration_enables_deferred_remap(tmp_path):
    path = str(tmp_path / "t")
    two_bins(path)
    config = {"defer_index_remap": "true", "target_rows_per_fragment": "50"}
    lance.dataset(path).update_config({f"lance.compaction.{k}": v for k, v in config.items()})
    compact(Table(path))
    assert len(versions_of(path)) == 1


def test_numbered_compaction_runs_once(tmp_path):
    path = str(tmp_path / "t")
    given = two_bins(path)
    settings = ChangeSettings(properties=ApplicationVersion("nightly", 3).properties())
    assert compact(Table(path), CompactionRequest(**given), settings).fragments_removed == 4
    lance.write_dataset(pa.table({"id": [500]}), path, mode="append")
    number = lance.dataset(path).version
    assert compact(Table(path), CompactionRequest(**DEFERRED), settings).version is None
    assert lance.dataset(path).version == number
    assert sorted(ids_of(path)) == [*range(140), 500]
