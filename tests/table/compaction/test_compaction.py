"""Compaction: plans as pylance does, changes nothing visible, tolerates concurrent writers."""

from __future__ import annotations

import inspect
import itertools
import re
import resource
from dataclasses import replace
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from commit_tables import new_fragment
from lance.optimize import Compaction
from local_changes import delete_rows
from random_seeds import seeds
from row_changes import add_to, set_to, upsert
from table_access import (
    append,
    assert_same_rows,
    random_history_or_skip,
    read_changes,
    read_ours,
    read_pylance,
    write_table,
)
from table_files import files_of, used_files
from table_invariants import check_invariants

from pyspark_lance import LanceTable
from pyspark_lance.errors import CorruptFileError, InvalidInputError, RetryableCommitError
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.table.compaction.compact import commit_bins, compact, plan_compaction
from pyspark_lance.table.compaction.compaction_plan import (
    CONFIGURABLE,
    SMALL_FOR_COMPACTION,
    CompactionOptions,
    CompactionRequest,
    plan_bins,
)
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.scan_task import coalesce_fragments
from pyspark_lance.table.tasks import run_local
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def committed(plan, groups):
    work = UnitOfWork(plan.change.table, plan.change.settings)
    return work.once(partial(commit_bins, plan, groups))


def visible(path, version=None):
    """All that a reader sees but where rows are, by row id."""
    at = VersionSpec(version=version)
    return read_ours(path, at).drop(["_rowaddr"]).sort_by("_rowid").to_pylist()


def fragmented(path, seed, *, stable=True, indexed=True):
    """A table of many small fragments, some with deleted rows, some indexed."""
    rng = np.random.default_rng(seed)
    first, sizes = 0, rng.integers(1, 60, 14)
    for size in sizes.tolist():
        table = pa.table(
            {"id": range(first, first + size), "k": [f"k{i % 5}" for i in range(size)]}
        )
        lance.write_dataset(table, path, mode="append", enable_stable_row_ids=stable)
        first += size
        if indexed and rng.random() < 0.15:
            lance.dataset(path).create_scalar_index("k", "BITMAP", replace=True)
        if indexed and rng.random() < 0.1:
            lance.dataset(path).create_scalar_index("id", "BTREE", replace=True)
        if rng.random() < 0.3:
            low = int(rng.integers(0, first))
            lance.dataset(path).delete(f"id >= {low} AND id < {low + int(rng.integers(1, 25))}")
    return first


# The plan ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(40, in_ci=4))
def test_compaction_bins_equal_pylance(tmp_path, seed):
    path = str(tmp_path / "t")
    rows = fragmented(path, seed, stable=seed % 2 == 0)
    snapshot = Snapshot.open(Table(path))
    for target in (10, 40, 100, rows, 10 * rows):
        for threshold in (0.0, 0.1, 0.5, 1.0):
            from_pylance = Compaction.plan(
                lance.dataset(path),
                {"target_rows_per_fragment": target, "materialize_deletions_threshold": threshold},
            )
            options = CompactionOptions(
                target_rows_per_fragment=target, materialize_deletions_threshold=threshold
            )
            ours = plan_bins(snapshot.manifest.fragments, snapshot.indices, options)
            assert [[f.id for f in one] for one in ours] == [
                [fragment.id for fragment in task.fragments] for task in from_pylance.tasks
            ], (target, threshold)


def test_deleted_share_at_threshold_does_not_compact(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, 100)
    delete_rows(path, "id < 10")
    assert compact(Table(path), CompactionRequest(target_rows_per_fragment=50)).version is None
    delete_rows(path, "id = 10")
    assert compact(Table(path), CompactionRequest(target_rows_per_fragment=50)).version == 4


def test_empty_fragment_separates_bins():
    small = [replace(new_fragment(rows), id=n) for n, rows in enumerate((5, 5, 0, 5, 5))]
    bins = plan_bins(small, (), CompactionOptions())
    assert [[fragment.id for fragment in one] for one in bins] == [[0, 1], [3, 4]]


def test_compaction_options_default_to_table_configuration(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, 10)
    append(path, 10, 10)
    lance.dataset(path).update_config({"lance.compaction.target_rows_per_fragment": "5"})
    assert compact(Table(path)).version is None
    assert (
        compact(Table(path), CompactionRequest(target_rows_per_fragment=20)).fragments_removed == 2
    )
    lance.dataset(path).update_config({"lance.compaction.target_rows_per_fragment": "many"})
    with pytest.raises(InvalidInputError, match="many"):
        compact(Table(path))
    with pytest.raises(InvalidInputError):
        compact(Table(path), CompactionRequest(target_rows_per_fragment=0))


def test_limits_take_bins_in_order(tmp_path):
    path = str(tmp_path / "t")
    for number in range(8):
        append(path, 10 * number, 10)
    given = {"target_rows_per_fragment": 20}
    assert compact(Table(path), CompactionRequest(**given), dry_run=True).fragments_removed == 8
    assert (
        compact(
            Table(path), CompactionRequest(**{**given, "max_source_rows": 45}), dry_run=True
        ).num_rows
        == 40
    )
    # A limit below the first bin does not stop the work forever.
    assert (
        compact(
            Table(path), CompactionRequest(**{**given, "max_source_fragments": 1}), dry_run=True
        ).num_rows
        == 20
    )
    assert Snapshot.open(Table(path)).version == 8


# What is seen ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", seeds(10, in_ci=2))
def test_compaction_is_invisible_and_pylance_continues(tmp_path, seed, version):
    path = str(tmp_path / "t")
    random_history_or_skip(path, seed, version)
    before, number = visible(path), Snapshot.open(Table(path)).version
    feeds = [read_changes(path, 1, number, mode) for mode in ("none", "netChanges")]
    result = compact(
        Table(path),
        CompactionRequest(target_rows_per_fragment=700, materialize_deletions_threshold=0.0),
    )
    # repr: NaN is no number that equals itself.
    assert repr(visible(path)) == repr(before)
    if result.version is None:
        assert result.fragments_removed == 0
        return
    assert result.version == number + 1
    check_invariants(path)
    assert_same_rows(read_ours(path), read_pylance(path))
    lance.dataset(path).validate()
    assert read_changes(path, number + 1, number + 1, "none").num_rows == 0
    for mode, feed in zip(("none", "netChanges"), feeds, strict=True):
        again = read_changes(path, 1, result.version, mode)
        keys = [(name, "ascending") for name in ("_commit_version", "_rowid", "_change_type")]
        assert repr(again.sort_by(keys).to_pylist()) == repr(feed.sort_by(keys).to_pylist())
    lance.dataset(path).optimize.compact_files()
    dataset = lance.dataset(path)
    dataset.delete("id % 2 = 0")
    assert read_pylance(path).num_rows == read_ours(path).num_rows


@pytest.mark.parametrize("stable", [True, False])
def test_compaction_result_equals_pylance(tmp_path, stable):
    ours, from_pylance = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for path in (ours, from_pylance):
        fragmented(path, 3, stable=stable, indexed=False)
    result = compact(Table(ours), CompactionRequest(target_rows_per_fragment=90))
    metrics = lance.dataset(from_pylance).optimize.compact_files(target_rows_per_fragment=90)
    assert (result.fragments_removed, result.fragments_added) == (
        metrics.fragments_removed,
        metrics.fragments_added,
    )
    assert (result.files_removed, result.files_added) == (
        metrics.files_removed,
        metrics.files_added,
    )
    mine, other = read_pylance(ours), read_pylance(from_pylance)
    names = ["id", "k", *(LINEAGE if stable else ["_row_created_at_version"])]
    assert mine.select(names).equals(other.select(names))
    rows = [
        [fragment.count_rows() for fragment in lance.dataset(path).get_fragments()]
        for path in (ours, from_pylance)
    ]
    assert rows[0] == rows[1]


def test_lineage_moves_with_compacted_rows(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(60), "v": ["a"] * 60})
    write_table(path, rows, max_rows_per_file=10)
    set_to(path, "id % 7 = 1", v="b")
    upsert(path, pa.table({"id": [3, 4, 100], "v": ["c"] * 3}))
    delete_rows(path, "id % 5 = 0")
    before = visible(path)
    result = compact(Table(path))
    assert visible(path) == before
    assert result.fragments_added == len(Snapshot.open(Table(path)).manifest.fragments) == 1
    check_invariants(path)
    # A second one finds nothing to do.
    assert compact(Table(path)).version is None
    add_to(path, "id < 9", "id", 1000)
    assert visible(path, result.version) == before


def test_implicit_versions_become_explicit(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, 5)
    append(path, 5, 5)
    plan = plan_compaction(Table(path), CompactionRequest(), ChangeSettings())
    (task,) = plan.tasks
    first, second = task.fragments
    bare = replace(
        task, fragments=(replace(first, created_at=None), replace(second, last_updated_at=None))
    )
    (new,) = bare.run().new_fragments
    created, updated = map(
        RowDatasetVersionSequence.from_bytes, (new.created_at, new.last_updated_at)
    )
    assert created.to_array().tolist() == [1] * 5 + [2] * 5
    assert updated.to_array().tolist() == [1] * 5 + [2] * 5


def test_compacted_files_have_full_pages(tmp_path):
    path = str(tmp_path / "t")
    for number in range(40):
        append(path, 100 * number, 100)
    compact(Table(path))
    (fragment,) = lance.dataset(path).get_fragments()
    from lance.file import LanceFileReader

    reader = LanceFileReader(f"{path}/data/{fragment.metadata.files[0].path}")
    assert [len(column.pages) for column in reader.metadata().columns] == [1]


def test_compacted_files_end_at_limits(tmp_path):
    path = str(tmp_path / "t")
    values = np.random.default_rng(0).integers(0, 2**60, 240_000)
    write_table(path, pa.table({"x": values}), max_rows_per_file=5000)
    given = {"target_rows_per_fragment": 100_000}
    assert compact(Table(path), CompactionRequest(**given), dry_run=True).fragments_added == 2
    assert (
        compact(
            Table(path), CompactionRequest(**{**given, "max_bytes_per_file": 1})
        ).fragments_added
        > 2
    )
    assert compact(Table(path), CompactionRequest(**given)).version == 3
    sizes = [fragment.physical_rows for fragment in Snapshot.open(Table(path)).manifest.fragments]
    assert sum(sizes) == 240_000
    assert min(sizes) >= 100_000
    assert read_pylance(path)["x"].to_pylist() == values.tolist()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_compacted_files_end_before_lists_overflow(tmp_path, version):
    path, most = str(tmp_path / "t"), 100
    rng = np.random.default_rng(1)
    rows = pa.table(
        {
            "id": range(300),
            "short": [[1] * n if n else None for n in rng.integers(0, 4, 300).tolist()],
            "deep": [
                [["x"] * inner for inner in rng.integers(0, 6, outer).tolist()]
                for outer in rng.integers(0, 6, 300).tolist()
            ],
            "inside": [{"l": [None] * n} for n in rng.integers(0, 9, 300).tolist()],
            "vector": pa.array([[1.0] * 50] * 300, pa.list_(pa.float32(), 50)),
        }
    )
    large = rows.slice(140, 1).set_column(2, "deep", [pa.array([[["y"] * 30] * 9])])
    rows = pa.concat_tables([rows.slice(0, 140), large, rows.slice(141)])
    lance.write_dataset(
        rows, path, max_rows_per_file=20, enable_stable_row_ids=True, data_storage_version=version
    )
    before = visible(path)
    result = compact(Table(path), CompactionRequest(max_items_per_file=most))
    assert (result.fragments_removed, result.fragments_added > 10) == (15, True)
    assert visible(path) == before
    assert read_pylance(path)["id"].to_pylist() == list(range(300))
    check_invariants(path)
    fragments = lance.dataset(path).get_fragments()
    alone = [one for one in fragments if max(items_of(one.to_table())) > most]
    assert [one.to_table()["id"].to_pylist() for one in alone] == [[140]]
    # Files are filled: the first row of the next one would not have fitted.
    for one, following in itertools.pairwise(fragments):
        together = pa.concat_tables([one.to_table(), following.to_table().slice(0, 1)])
        assert max(items_of(together)) > most


def items_of(table: pa.Table) -> list[int]:
    """How many items the lists of a table have, by column and depth."""
    deep = pc.list_flatten(table["deep"])
    inside = pc.struct_field(table["inside"], "l")
    return [len(pc.list_flatten(one)) for one in (table["short"], table["deep"], deep, inside)]


@pytest.mark.slow
def test_compaction_of_huge_lists_uses_little_memory(tmp_path):
    path, rows, length = str(tmp_path / "t"), 100, 1_000_000
    flags = pa.Array.from_buffers(
        pa.bool_(), rows * length, [None, pa.py_buffer(bytes(12_500_000))]
    )
    for kind, items in (("flags", flags), ("nothing", pa.nulls(rows * length))):
        lists = pa.ListArray.from_arrays(range(0, (rows + 1) * length, length), items)
        for number in range(22):
            one = pa.table({"id": range(number * rows, (number + 1) * rows), "l": lists})
            lance.write_dataset(one, f"{path}/{kind}", mode="append", data_storage_version="2.0")
    for kind in ("flags", "nothing"):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert compact(Table(f"{path}/{kind}")).fragments_added == 2
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert grown_mb < 700  # a byte for each item would be 2,000
        dataset = lance.dataset(f"{path}/{kind}")
        assert [one.physical_rows for one in dataset.get_fragments()] == [2147, 53]
        assert dataset.to_table(["id"])["id"].to_pylist() == list(range(2200))


def test_small_neighbours_are_read_together(tmp_path):
    path, rows = str(tmp_path / "t"), 60_000
    table = pa.table(
        {
            "id": range(rows),
            "name": [f"user-{i * 7919 % 1000003:06x}" for i in range(rows)],
            "tags": [[i, None] if i % 3 else None for i in range(rows)],
        }
    )
    dataset = lance.write_dataset(table, path, max_rows_per_file=6000, enable_stable_row_ids=True)
    dataset.add_columns({"twice": "id * 2"})
    dataset.delete("id % 1000 < 7 or (id > 11000 and id < 20000)")
    before = dataset.to_table(with_row_id=True)
    (task,) = plan_compaction(Table(path), CompactionRequest(), ChangeSettings()).tasks
    slices = [ScanSplit(one, 0, one.physical_rows) for one in task.fragments]
    fields = Snapshot.open(Table(path)).schema.fields
    assert len(list(coalesce_fragments(slices, fields, 65_536))) == len(slices)
    assert len(list(coalesce_fragments(slices, fields, 65_536, SMALL_FOR_COMPACTION))) == 1
    compact(Table(path))
    assert lance.dataset(path).to_table(with_row_id=True).equals(before)
    check_invariants(path)


def test_damaged_file_error_names_file(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table({"name": [f"user-{i:x}" for i in range(60_000)]})
    dataset = lance.write_dataset(table, path, max_rows_per_file=6000)
    name = dataset.get_fragments()[6].data_files()[0].path
    file = Path(path, "data", name)
    file.write_bytes(b"\xff" * 64 + file.read_bytes()[64:])
    files = files_of(path)
    with pytest.raises(CorruptFileError) as error:
        compact(Table(path))
    assert name in error.value.where
    assert files_of(path) == files


def test_dropped_and_unwritten_columns_are_compacted(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(20), "gone": range(20)}), max_rows_per_file=5)
    dataset = lance.dataset(path)
    dataset.drop_columns(["gone"])
    dataset.add_columns(pa.field("later", pa.string()))
    compact(Table(path))
    (fragment,) = Snapshot.open(Table(path)).manifest.fragments
    (file,) = fragment.files
    assert [field.name for field in Snapshot.open(Table(path)).schema.fields] == ["id", "later"]
    assert len(file.fields) == 2
    assert read_pylance(path)["later"].to_pylist() == [None] * 20


# Beside other writers ----------------------------------------------------------------------


def two_bins(path):
    """Bins {0, 1} and {3, 4}, with a large fragment between them."""
    for rows in (10, 10, 100, 10, 10):
        append(path, Snapshot.open(Table(path)).num_rows() if Path(path).exists() else 0, rows)
    return {"target_rows_per_fragment": 50}


@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_changed_bin_is_replanned_and_others_are_kept(tmp_path, writer):
    path = str(tmp_path / "t")
    given = two_bins(path)
    runs = []

    def rewrite(tasks):
        runs.append([[f.id for f in task.fragments] for task in tasks])
        groups = list(run_local(tasks))
        if len(runs) == 1:
            if writer == "ours":
                delete_rows(path, "id = 3")
            else:
                lance.dataset(path).delete("id = 3")
            append(path, 140, 2)
        return groups

    result = compact(Table(path), CompactionRequest(**given), run=rewrite)
    assert runs[0] == [[0, 1], [3, 4]]
    assert runs[1][0] == [0, 1]
    assert {3, 4}.isdisjoint(itertools.chain(*runs[1]))  # the other bin has landed
    assert result.conflicting_bins == 0
    assert sorted(read_pylance(path)["id"].to_pylist()) == [i for i in range(142) if i != 3]
    check_invariants(path)
    # Nothing is left of the bin that was lost.
    assert files_of(path) == used_files(path)


def test_repeatedly_conflicting_compaction_raises_and_leaves_no_files(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    append(path, 3)

    def rewrite(tasks):
        groups = list(run_local(tasks))
        set_to(path, "id = 1", id=1)
        return groups

    with pytest.raises(RetryableCommitError):
        compact(Table(path), settings=ChangeSettings(retries=2), run=rewrite)
    assert files_of(path) == used_files(path)


def test_concurrent_compactions_move_rows_once(tmp_path):
    path = str(tmp_path / "t")
    given = two_bins(path)
    before = visible(path)
    first = plan_compaction(Table(path), CompactionRequest(**given), ChangeSettings())
    second = plan_compaction(Table(path), CompactionRequest(**given), ChangeSettings())
    third = plan_compaction(Table(path), CompactionRequest(**given), ChangeSettings())
    groups = [task.run() for task in first.tasks]
    others = [task.run() for task in second.tasks]
    assert committed(first, groups[:1]).version == 6
    result = committed(second, others)
    assert (result.version, result.conflicting_bins) == (7, 1)
    assert committed(third, groups[1:]).version is None
    assert visible(path) == before
    assert files_of(path) == used_files(path)
    check_invariants(path)


def test_concurrent_add_column_replans_compaction(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    append(path, 3)
    runs = []

    def rewrite(tasks):
        runs.append(len(tasks))
        groups = list(run_local(tasks))
        if len(runs) == 1:
            lance.dataset(path).add_columns({"twice": "id * 2"})
        return groups

    assert compact(Table(path), run=rewrite).fragments_added == 1
    assert len(runs) == 2
    assert read_pylance(path)["twice"].to_pylist() == [0, 2, 4, 6, 8, 10]
    assert files_of(path) == used_files(path)


# Indices -----------------------------------------------------------------------------------


def bitmaps(path):
    return {index.name: set(index.fragment_bitmap) for index in Snapshot.open(Table(path)).indices}


def test_row_id_indices_follow_compaction(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(40), "kind": ["a", "b"] * 20, "tags": [["x"], ["y"]] * 20})
    write_table(path, rows, max_rows_per_file=10)
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("kind", "BITMAP")
    dataset.create_scalar_index("tags", "LABEL_LIST")
    write_table(path, rows.slice(0, 5))
    bodies = {index.name: index.uuid for index in Snapshot.open(Table(path)).indices}
    compact(Table(path), CompactionRequest(target_rows_per_fragment=20))
    assert bitmaps(path) == {key: {5, 6} for key in ("id_idx", "kind_idx", "tags_idx")}
    remapped = {index.name: index.uuid for index in Snapshot.open(Table(path)).indices}
    assert bodies.items() ^ remapped.items() == {
        ("id_idx", bodies["id_idx"]), ("id_idx", remapped["id_idx"])
    }  # fmt: skip
    dataset = lance.dataset(path)
    plan = dataset.scanner(filter="kind = 'a'").explain_plan()
    assert "ScalarIndexQuery" in plan
    for condition in ("kind = 'a'", "id = 17", "array_has_any(tags, ['y'])"):
        used, scanned = (
            dataset.scanner(filter=condition, with_row_id=True, use_scalar_index=use).to_table()
            for use in (True, False)
        )
        assert used.sort_by("_rowid").equals(scanned.sort_by("_rowid"))


def test_compact_parameters_equal_configurable_options():
    parameters = inspect.signature(LanceTable.compact).parameters.values()
    named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    snake_case = {re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", one) for one in named}
    assert snake_case == {*CONFIGURABLE, "cluster_by", "split_files_by", "order", "dry_run"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_source_rows": 0}, "the limit 'max source rows' must be positive, not 0"),
        ({"materialize_deletions_threshold": 7.0}, "deletions threshold' is a share of rows"),
    ],
)
def test_invalid_limit_error_uses_readable_name(tmp_path, given, message):
    path = str(tmp_path / "t")
    append(path, 0)
    with pytest.raises(InvalidInputError, match=message):
        compact(Table(path), CompactionRequest(**given))
