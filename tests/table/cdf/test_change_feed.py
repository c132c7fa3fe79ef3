"""Change feeds of tables that pylance and we changed: complete, exact, as cheap as promised."""

import dataclasses
import shutil
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import commit_rewritten, delete_rows, update_rows
from random_seeds import seeds
from table_access import (
    append,
    random_history_or_skip,
    read_changes,
    read_ours,
    remove_versions,
    write_table,
)

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError, VersionNotFoundError
from pyspark_lance.format.fragment import SPILLED, SPILLED_LAST_UPDATED_AT, TOMBSTONE
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.metafile.manifest_file import encode_manifest
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.cdf.change_feed import ChangeCounts, check_change_feed, count_changes
from pyspark_lance.table.cdf.change_feed_task import CHANGE_FIELDS
from pyspark_lance.table.cdf.change_window import Bound, ChangeWindow, resolve_window
from pyspark_lance.table.cdf.row_differences import differing_values
from pyspark_lance.table.cdf.version_changes import _index_rows, overlapping, version_changes
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.rows.spilled_lineage import spill_lineage
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop
MODES = ["dropCarryovers", "none", "netChanges"]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def rows_by_id(table: pa.Table, names: list[str]) -> dict[int, str]:
    values = [table[name].to_pylist() for name in names]
    rows = [repr(row) for row in zip(*values, strict=True)]
    return dict(zip(table["_rowid"].to_pylist(), rows, strict=True))


def of_kind(table: pa.Table, kind: str) -> pa.Table:
    return table.filter(pa.compute.equal(table["_change_type"], kind))


@pytest.mark.parametrize("seed", seeds(30, in_ci=3))
def test_changes_applied_to_old_rows_give_new_rows(path, seed):
    random_history_or_skip(path, seed, ["2.0", "2.1", "2.2"][seed % 3])
    newest = Snapshot.open(Table(path)).version
    rng = np.random.default_rng(seed)
    for mode in MODES:
        start = int(rng.integers(1, newest + 1))
        end = int(rng.integers(start, newest + 1))
        after = read_ours(path, VersionSpec(version=end))
        before = read_ours(path, VersionSpec(version=max(1, start - 1)))
        before = before.slice(0, 0) if start == 1 else before
        # Columns that are the same ones; an unchanged row has nulls in those that came.
        names = [n for n in after.column_names if not n.startswith("_")]
        same = [n for n in names if n in before.column_names]
        changes = read_changes(path, start, end, mode)
        state = rows_by_id(before, same)
        versions = sorted(set(changes["_commit_version"].to_pylist()))
        for version in versions:
            of_version = changes.filter(pa.compute.equal(changes["_commit_version"], version))
            for kind in ("update_preimage", "delete"):
                gone = rows_by_id(of_kind(of_version, kind), same)
                for row_id, values in gone.items():
                    assert state.pop(row_id) == values
            for kind in ("update_postimage", "insert"):
                came = rows_by_id(of_kind(of_version, kind), same)
                assert not state.keys() & came.keys()
                state.update(came)
        assert state == rows_by_id(after, same)
        if mode == "netChanges":
            check_net(changes, names)


def check_net(changes: pa.Table, names: list[str]) -> None:
    """Each row changes once, and to other values."""
    old, new = (
        of_kind(changes, kind).sort_by("_rowid") for kind in ("update_preimage", "update_postimage")
    )
    assert old["_rowid"].equals(new["_rowid"])
    if old.num_rows:
        sides = [side.select(names).combine_chunks().to_batches()[0] for side in (old, new)]
        columns = zip(*(side.columns for side in sides), strict=True)
        assert np.any([differing_values(*both) for both in columns], axis=0).all()
    once = changes.filter(pa.compute.not_equal(changes["_change_type"], "update_preimage"))
    assert len(set(once["_rowid"].to_pylist())) == once.num_rows


def test_changes_have_version_and_time_of_commit(path):
    append(path, 0)
    append(path, 10, 2)
    delete_rows(path, "id = 1")
    lance.dataset(path).update({"id": "id + 100"}, where="id >= 10")
    lance.dataset(path).optimize.compact_files()
    table = Table(path)
    found = read_changes(path, 2, Snapshot.open(table).version, "dropCarryovers")
    times = {
        version: Snapshot.open(Table(path), VersionSpec(version=version)).manifest.timestamp_ns
        // 1000
        for version in (2, 3, 4)
    }
    rows = zip(
        found["_commit_version"].to_pylist(),
        found["_change_type"].to_pylist(),
        found["id"].to_pylist(),
        found["_rowid"].to_pylist(),
        strict=True,
    )
    assert sorted(rows) == [
        (2, "insert", 10, 3),
        (2, "insert", 11, 4),
        (3, "delete", 1, 1),
        (4, "update_postimage", 110, 3),
        (4, "update_postimage", 111, 4),
        (4, "update_preimage", 10, 3),
        (4, "update_preimage", 11, 4),
    ]
    assert found["_commit_timestamp"].cast(pa.int64()).to_pylist() == [
        times[version] for version in found["_commit_version"].to_pylist()
    ]
    assert [found.schema.field(f.name) for f in CHANGE_FIELDS] == list(CHANGE_FIELDS)


def test_rewritten_equal_rows_appear_only_without_deduplication(path):
    append(path, 0)
    lance.dataset(path).update({"id": "id"}, where="id < 2")
    lance.dataset(path).update({"id": "7"}, where="id = 0")
    assert read_changes(path, 2, 2, "dropCarryovers").num_rows == 0
    assert read_changes(path, 2, 2, "netChanges").num_rows == 0
    kept = read_changes(path, 2, 2, "none")
    assert sorted(kept["id"].to_pylist()) == [0, 0, 1, 1]
    assert read_changes(path, 2, 3, "netChanges")["id"].to_pylist() == [0, 7]


def test_changes_of_unselected_columns_count(path):
    write_table(path, pa.table({"id": [1, 2], "s": [{"a": 1, "b": 1}] * 2, "x": [7, 8]}))
    lance.dataset(path).update({"x": "x + 1"}, where="id = 1")
    lance.dataset(path).update({"x": "x"}, where="id = 2")
    (field,) = (f for f in Snapshot.open(Table(path)).schema.fields if f.name == "s")
    narrow = dataclasses.replace(field, children=field.children[1:])
    for mode, count in zip(MODES, (2, 4, 2), strict=True):
        found = read_changes(path, 2, 3, mode, columns=(narrow,))
        assert found["s"].to_pylist() == [{"b": 1}] * count


def test_restored_row_is_insert_and_nets_to_nothing(path):
    append(path, 0)
    delete_rows(path, "id = 1")
    lance.dataset(path, version=1).restore()
    found = read_changes(path, 2, 3, "dropCarryovers")
    assert found["_change_type"].to_pylist() == ["delete", "insert"]
    assert found["id"].to_pylist() == [1, 1]
    assert read_changes(path, 2, 3, "netChanges").num_rows == 0


def test_overwrite_with_new_field_ids_deletes_old_values(path):
    write_table(path, pa.table({"a": [1, 2], "s": [{"x": 1, "y": 2}] * 2}))
    write_table(path, pa.table({"s": [{"y": 7}], "b": [5], "a": ["new"]}), overwrite=True)
    lance.dataset(path, version=1).restore()
    gone = of_kind(read_changes(path, 2, 2, "dropCarryovers"), "delete")
    assert gone["a"].to_pylist() == ["1", "2"]  # in the type that the column has now
    assert gone["s"].to_pylist() == [{"y": 2}, {"y": 2}]
    assert gone["b"].to_pylist() == [None, None]
    back = of_kind(read_changes(path, 2, 3, "dropCarryovers"), "delete")
    assert back["a"].to_pylist() == [1, 2, None]  # "new" is no number
    assert read_changes(path, 2, 3, "netChanges").num_rows == 0


def test_overlapping_range_covers_later_ranges():
    assert overlapping([(50, 60), (101, 110)], [(0, 100), (10, 20)]).tolist() == [True, False]


def test_column_keeps_values_after_rename_and_cast(path):
    append(path, 0)
    dataset = lance.dataset(path)
    dataset.alter_columns({"path": "id", "name": "key"})
    dataset.alter_columns({"path": "key", "data_type": pa.int32()})
    delete_rows(path, "key = 1")
    found = read_changes(path, 1, 4, "dropCarryovers")
    assert found.column_names[0] == "key"
    assert found["key"].to_pylist() == [0, 1, 2, 1]
    assert found["_change_type"].to_pylist() == ["insert"] * 3 + ["delete"]


def test_readded_column_of_same_name_is_different(path):
    write_table(path, pa.table({"id": [1, 2], "x": [5, 6]}))
    lance.dataset(path).update({"x": "x + 1"}, where="id = 1")
    lance.dataset(path).drop_columns(["x"])
    lance.dataset(path).add_columns({"x": "id * 10"})
    found = read_changes(path, 2, 4, "dropCarryovers")
    assert sorted(found["x"].to_pylist(), key=repr) == [10, 20, None, None]
    assert set(found["_commit_version"].to_pylist()) == {4}


@pytest.mark.parametrize("compacted", [False, True])
def test_restored_dropped_column_shows_values(path, compacted):
    write_table(path, pa.table({"id": [1, 2], "x": [5, None]}), max_rows_per_file=1)
    lance.dataset(path).drop_columns(["x"])
    if compacted:
        lance.dataset(path).optimize.compact_files()
    newest = Snapshot.open(Table(path)).version
    lance.dataset(path, version=1).restore()
    found = read_changes(path, newest + 1, newest + 1, "dropCarryovers")
    assert found["x"].to_pylist() == [None, 5]
    assert found["_change_type"].to_pylist() == ["update_preimage", "update_postimage"]
    assert read_changes(path, 2, newest + 1, "netChanges").num_rows == 0


def test_unchanged_fragments_are_not_opened(path):
    append(path, 0, 5)
    for data in Path(path, "data").iterdir():
        data.unlink()
    append(path, 10, 4)
    append(path, 20, 4, max_rows_per_file=2)
    found = read_changes(path, 2, 3, "dropCarryovers")
    assert found["id"].to_pylist() == [10, 11, 12, 13, 20, 21, 22, 23]


def test_counts_open_no_data_file(path):
    append(path, 0, 5)
    append(path, 10, 4)
    delete_rows(path, "id < 2")
    lance.dataset(path).update({"id": "id + 1"}, where="id > 10")
    lance.dataset(path).optimize.compact_files()
    newest = Snapshot.open(Table(path)).version
    shutil.rmtree(Path(path, "data"))
    assert count_changes(Table(path), ChangeWindow(1, newest)) == (
        ChangeCounts(1, 5, 0, 0),
        ChangeCounts(2, 4, 0, 0),
        ChangeCounts(3, 0, 0, 2),
        ChangeCounts(4, 0, 3, 0),
    )


def test_plans_of_any_parallelism_return_same_changes(path):
    for first in range(0, 40, 10):
        append(path, first, 10, max_rows_per_file=3)
    lance.dataset(path).update({"id": "id + 1000"}, where="id % 3 = 0")
    delete_rows(path, "id % 7 = 1")
    few = read_changes(path, 1, 6, "dropCarryovers", parallelism=1)
    many = read_changes(path, 1, 6, "dropCarryovers", parallelism=1000, batch_rows=2)
    keys = [(name, "ascending") for name in ("_commit_version", "_rowid", "_change_type")]
    assert few.sort_by(keys).equals(many.sort_by(keys))
    assert few.num_rows > 60


def test_predicate_filters_changes_by_any_column(path):
    write_table(path, pa.table({"id": [1, 2, 3], "s": [{"a": 1, "b": 2}] * 3}))
    delete_rows(path, "id = 2")
    snapshot = Snapshot.open(Table(path))
    every = pa.schema([*snapshot.schema.to_arrow(), *CHANGE_FIELDS])
    condition = parse_predicate("_change_type = 'delete' OR (id = 3 AND s.b = 2)", every)
    fields = tuple(f for f in snapshot.schema.fields if f.name == "id")
    found = read_changes(path, 1, 2, "dropCarryovers", columns=fields, predicate=condition)
    assert found["id"].to_pylist() == [3, 2]
    assert found.column_names == ["id", *(field.name for field in CHANGE_FIELDS)]


def test_spilled_lineage_is_followed(path):
    table = pa.table({"id": range(20), "s": [str(number) for number in range(20)]})
    write_table(path, table, max_rows_per_file=6)
    spill = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"}
    lance.dataset(path).update_config(spill)
    lance.dataset(path).update({"s": "'x'"}, where="id % 9 = 0")
    lance.dataset(path).update({"s": "'y'"}, where="id = 3 OR id = 9")
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=100)
    lance.dataset(path).delete("id = 5")
    assert "column_row_ids" in str(Snapshot.open(Table(path)).manifest.fragments[0].to_proto())
    for mode in MODES:
        found = read_changes(path, 3, Snapshot.open(Table(path)).version, mode)
        once = found.filter(pa.compute.not_equal(found["_change_type"], "update_preimage"))
        rows = zip(once["id"].to_pylist(), once["s"].to_pylist(), strict=True)
        first = [] if mode == "netChanges" else [(9, "x")]
        assert sorted(rows) == sorted([(0, "x"), (3, "y"), (5, "5"), (9, "y"), (18, "x"), *first])


def hide_lineage_again(path: str) -> None:
    """As writers may leave a version whose last one has its sequences in the manifest."""
    snapshot = Snapshot.open(Table(path))
    shown = [
        replace(
            one,
            files=tuple(
                replace(
                    file,
                    fields=tuple(
                        TOMBSTONE if f == SPILLED_LAST_UPDATED_AT else f for f in file.fields
                    ),
                )
                for file in one.files
            ),
        )
        for one in snapshot.manifest.fragments
    ]
    hidden = spill_lineage(plan_change(Table(path)).write_request(), shown)
    manifest = replace(snapshot.manifest, fragments=Fragments.of(hidden))
    content = encode_manifest(manifest, snapshot.indices, None)
    snapshot.store.put(snapshot.file.location.path, content)


def test_in_place_updates_are_followed_with_spilled_lineage(path):
    write_table(path, pa.table({"id": range(20), "x": [0] * 20}), max_rows_per_file=6)
    spill = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"}
    lance.dataset(path).update_config(spill)
    lance.dataset(path).update({"x": "1"}, where="id % 9 = 0")
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=100)
    before = Snapshot.open(Table(path))
    update_columns(path, 4, 9)
    hide_lineage_again(path)
    lance.dataset(path).drop_columns(["x"])
    after = Snapshot.open(Table(path))
    for one, other in zip(before.manifest.fragments, after.manifest.fragments, strict=True):
        assert one.last_updated_at is other.last_updated_at is SPILLED
    # What else the row had is gone, and that it changed is not.
    changes = version_changes(before, after)
    assert [rows.updated.to_array().tolist() for rows in changes.kept] == [[3]]  # behind 1 to 3


def test_lineage_provides_changes_of_removed_versions(path):
    append(path, 0)
    append(path, 10)
    lance.dataset(path).update({"id": "100"}, where="id = 0")
    delete_rows(path, "id = 1")
    append(path, 20, 1)
    for version in (1, 2, 3):
        remove_version(path, version)
    found = read_changes(path, 0, 5, "dropCarryovers")
    rows = dict(zip(found["id"].to_pylist(), found["_commit_version"].to_pylist(), strict=True))
    assert rows == {2: 1, 10: 2, 11: 2, 12: 2, 100: 3, 20: 5}
    times = dict(
        zip(
            found["_commit_version"].to_pylist(),
            found["_commit_timestamp"].to_pylist(),
            strict=True,
        )
    )
    assert times[1] is times[2] is times[3] is None
    assert times[5] is not None
    with pytest.raises(VersionNotFoundError, match="need version 1, which") as caught:
        resolve_window(Table(path), Bound(version=2), Bound())
    assert "startingVersion can be 5 or later" in str(caught.value)


def remove_version(path: str, version: int) -> None:
    (found,) = (
        one
        for one in Path(path, "_versions").glob("*.manifest")
        if lance_version(one.stem) == version
    )
    found.unlink()


def lance_version(stem: str) -> int:
    number = int(stem)
    return 2**64 - 1 - number if number > 2**63 else number


def test_compaction_keeps_changes_of_removed_versions(path):
    append(path, 0, 4)
    append(path, 10, 4)
    lance.dataset(path).update({"id": "id + 100"}, where="id = 1")
    delete_rows(path, "id = 12")
    lance.dataset(path).optimize.compact_files()
    newest = Snapshot.open(Table(path)).version
    remove_versions(path, range(3, newest))
    found = read_changes(path, 3, newest, "dropCarryovers")
    kinds = zip(found["_change_type"].to_pylist(), found["id"].to_pylist(), strict=True)
    assert sorted(kinds) == [("delete", 12), ("update_postimage", 101), ("update_preimage", 1)]


def test_windows_by_time(path):
    for first in range(4):
        append(path, first, 1)
    times = {
        version: Snapshot.open(Table(path), VersionSpec(version=version)).manifest.timestamp_ns
        for version in range(1, 5)
    }

    def window(start, end=None):
        return resolve_window(Table(path), Bound(timestamp_ns=start), Bound(timestamp_ns=end))

    assert window(0) == ChangeWindow(1, 4)
    assert window(times[2]) == ChangeWindow(2, 4)
    assert window(times[2] + 1, times[3]) == ChangeWindow(3, 3)
    assert window(times[2] + 1, times[3] - 1).is_empty
    assert count_changes(Table(path), window(times[2] + 1, times[3] - 1)) == ()
    assert window(times[4] + 1) == window(2**62) == ChangeWindow(5, 4)
    assert window(2**62, 2**62 + 1).is_empty
    with pytest.raises(VersionNotFoundError, match="no version was committed at or before"):
        window(0, times[1] - 1)


def test_window_after_newest_version_is_empty(path):
    append(path, 0)
    window = resolve_window(Table(path), Bound(version=2), Bound())
    assert window.is_empty
    assert count_changes(Table(path), window) == ()
    append(path, 10)
    assert resolve_window(Table(path), Bound(version=2), Bound()) == ChangeWindow(2, 2)


def without(version: int) -> Bound:
    return Bound(version=version, is_exclusive=True)


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        (without(3), Bound(), ChangeWindow(4, 3)),
        (without(1), without(2), ChangeWindow(2, 1)),
        (without(2), Bound(version=2), ChangeWindow(3, 2)),
        (without(1), without(4), ChangeWindow(2, 3)),
        (Bound(version=2), without(3), ChangeWindow(2, 2)),
        (without(3), Bound(timestamp_ns=2**62), ChangeWindow(4, 3)),
    ],
)
def test_window_bounds_can_be_exclusive(path, starting, ending, expected):
    for first in range(3):
        append(path, first)
    window = resolve_window(Table(path), starting, ending)
    assert window == expected
    append(path, 9)
    assert resolve_window(Table(path), starting, ending, pinned_end=window.end) == expected


def test_empty_window_stays_empty_when_resolved_again(path):
    append(path, 0)
    append(path, 1)
    until = Bound(version=1, is_exclusive=True)
    window = resolve_window(Table(path), Bound(version=1), until)
    assert window == ChangeWindow(3, 2)
    assert resolve_window(Table(path), Bound(version=1), until, pinned_end=2) == window
    # Where the version before is gone the newest one defines the columns, then and later.
    append(path, 2)
    remove_version(path, 2)
    until = Bound(version=3, is_exclusive=True)
    assert resolve_window(Table(path), Bound(version=3), until) == ChangeWindow(4, 3)
    append(path, 3)
    again = resolve_window(Table(path), Bound(version=3), until, pinned_end=3)
    assert again == ChangeWindow(4, 3)


def test_window_before_branch_error_names_branch_start(path):
    for first in range(3):
        append(path, first)
    lance.dataset(path).create_branch("side", 2)
    side = Snapshot.open(Table(path, branch="side")).uri
    append(side, 7)
    assert resolve_window(Table(side), Bound(version=3), Bound()) == ChangeWindow(3, 3)
    with pytest.raises(VersionNotFoundError, match="branch 'side' begins with version 2") as caught:
        resolve_window(Table(side), Bound(version=2), Bound())
    assert "startingVersion can be 3 or later" in str(caught.value)
    assert "main has the changes before" in str(caught.value)
    # Its first version is its own.
    remove_version(side, 2)
    with pytest.raises(VersionNotFoundError, match="version 2, which is not there any") as caught:
        resolve_window(Table(side), Bound(version=3), Bound())
    # The changes of version 4 are not in the window.
    assert "startingVersion 0 gives what is left" in str(caught.value)


@pytest.mark.parametrize(
    ("starting", "ending", "message"),
    [
        (Bound(), Bound(), "needs a start"),
        (without(4), Bound(), "start at version 5, but the newest is 2"),
        (without(2), Bound(version=1), "start at version 3, after its"),
        (Bound(version=4), Bound(), "start at version 4, but the newest is 2"),
        (Bound(version=2), Bound(version=1), "start at version 2, after its end 1"),
        (Bound(version=1), Bound(version=9), "newest is 2"),
    ],
)
def test_impossible_windows_are_refused(path, starting, ending, message):
    append(path, 0)
    append(path, 10)
    with pytest.raises(InvalidInputError, match=message):
        resolve_window(Table(path), starting, ending)


def test_untrackable_tables_are_refused(path, tmp_path):
    lance.write_dataset(pa.table({"id": [1]}), path)
    with pytest.raises(UnsupportedFeatureError, match="rows of version 1 do not have"):
        check_change_feed(Snapshot.open(Table(path)))
    other = str(tmp_path / "u")
    write_table(other, pa.table({"_commit_version": [1]}))
    with pytest.raises(InvalidInputError, match="_commit_version"):
        check_change_feed(Snapshot.open(Table(other)))


def without_row_ids(path: str, version: int) -> None:
    """Take the flag of stable row ids from a version, and the ids from its rows."""
    snapshot = Snapshot.open(Table(path), VersionSpec(version=version))
    fragments = [
        dataclasses.replace(one, row_ids=None, created_at=None, last_updated_at=None)
        for one in snapshot.manifest.fragments
    ]
    flags = {"reader_flags": 0, "writer_flags": 0}
    manifest = dataclasses.replace(snapshot.manifest, fragments=tuple(fragments), **flags)
    data = encode_manifest(manifest, (), snapshot.file.transaction())
    snapshot.store.put(snapshot.file.location.path, data)


def test_lost_row_ids_limit_change_feed(path):
    append(path, 0)
    delete_rows(path, "true")
    append(path, 10)
    without_row_ids(path, 2)
    without_row_ids(path, 3)
    check_change_feed(Snapshot.open(Table(path), VersionSpec(version=2)))
    assert count_changes(Table(path), ChangeWindow(1, 2)) == (
        ChangeCounts(1, 3, 0, 0),
        ChangeCounts(2, 0, 0, 3),
    )
    assert read_changes(path, 2, 2, "dropCarryovers")["id"].to_pylist() == [0, 1, 2]
    with pytest.raises(UnsupportedFeatureError, match="rows of version 3 do not have"):
        check_change_feed(Snapshot.open(Table(path)))
    write_table(path, pa.table({"id": [1]}), overwrite=True)
    with pytest.raises(UnsupportedFeatureError, match="rows of version 3 do not have"):
        count_changes(Table(path), ChangeWindow(3, Snapshot.open(Table(path)).version))


def test_column_rewrite_does_not_count_for_unchanged_rows(path):
    write_table(path, pa.table({"id": [1, 2, 3], "x": [5, 6, 7]}))
    write_table(path, pa.table({"id": [4], "x": [8]}))
    update_rows(path, "id = 1", ["x"], lambda batch: {"x": pa.array([50])})
    lance.dataset(path).optimize.compact_files()
    start = Snapshot.open(Table(path)).version + 1
    update_columns(path, 1, 51)
    write_table(path, pa.table({"id": [5], "x": [9]}))
    update_columns(path, 2, 61)
    found = read_changes(path, 2, Snapshot.open(Table(path)).version, "netChanges")
    names = ("_commit_version", "_change_type", "id", "x")
    assert sorted(zip(*(found[name].to_pylist() for name in names), strict=True)) == [
        (2, "insert", 4, 8),
        (start, "update_postimage", 1, 51),
        (start, "update_preimage", 1, 5),
        (start + 1, "insert", 5, 9),
        (start + 2, "update_postimage", 2, 61),
        (start + 2, "update_preimage", 2, 6),
    ]


def test_changes_of_task_are_in_order_of_versions(path):
    write_table(path, pa.table({"id": [1, 2], "x": [5, 6]}))
    lance.dataset(path).add_columns({"y": "x + 1"})
    write_table(path, pa.table({"id": [3], "x": [7], "y": [8]}))
    delete_rows(path, "id = 3")
    found = read_changes(path, 1, 4, "dropCarryovers", parallelism=1)
    versions = found["_commit_version"].to_pylist()
    assert versions == sorted(versions)
    assert set(versions) == {1, 2, 3, 4}


def test_row_deleted_after_lost_update_is_only_deleted(path):
    write_table(path, pa.table({"id": [1, 2, 3], "x": [5, 6, 7]}))
    update_columns(path, 1, 51)
    update_columns(path, 2, 61)
    delete_rows(path, "id = 1")
    remove_versions(path, [2, 3])
    found = read_changes(path, 2, 4, "dropCarryovers")
    rows = zip(found["_change_type"].to_pylist(), found["x"].to_pylist(), strict=True)
    assert sorted(rows) == [("delete", 5), ("update_postimage", 61), ("update_preimage", 6)]


def test_untraced_lost_change_has_next_version(path):
    write_table(path, pa.table({"id": [1, 2], "x": [5, 6]}))
    update_columns(path, 1, 51)
    write_table(path, pa.table({"id": [3], "x": [7]}))
    traced = Snapshot.open(Table(path))
    update_columns(path, 1, 52)
    forget_last_update(path, traced)
    remove_versions(path, [3])
    found = read_changes(path, 3, 4, "dropCarryovers")
    names = ("_commit_version", "_change_type", "x")
    assert sorted(zip(*(found[name].to_pylist() for name in names), strict=True)) == [
        (3, "insert", 7),
        (4, "update_postimage", 52),
        (4, "update_preimage", 51),
    ]


def forget_last_update(path: str, before: Snapshot) -> None:
    """Leave the lineage of ``before`` in the newest version, as old releases of Lance did."""
    newest = Snapshot.open(Table(path))
    fragments = [
        replace(one, last_updated_at=old.last_updated_at)
        for one, old in zip(newest.manifest.fragments, before.manifest.fragments, strict=True)
    ]
    manifest = replace(newest.manifest, fragments=Fragments.of(fragments))
    content = encode_manifest(manifest, newest.indices, None)
    newest.store.put(newest.file.location.path, content)


def update_columns(path: str, row: int, value: int) -> None:
    """Rewrite column ``x`` where the row with this id is, with another value for it."""
    plan = plan_change(Table(path))
    found = read_ours(path, system_columns=("_rowaddr",))
    address = found.filter(pa.compute.equal(found["id"], row))["_rowaddr"]
    changed = pa.table({"_rowaddr": address, "x": [value]})
    request = plan_rewrite(plan.snapshot(), ["x"])
    commit_rewritten(plan, request, list(rewrite_columns(request, changed.to_batches())))


def test_few_row_ids_are_found_by_value():
    def index(row_ids, addresses):
        arrays = ([np.array(one, np.uint64) for one in parts] for parts in (row_ids, addresses))
        return _index_rows(*arrays)

    some = index([[5, 1], [], [9]], [[50, 10], [], [90]])
    addresses, found = some.addresses_of(np.array([1, 5, 7, 9, 10, 0, 5], np.uint64))
    assert found.tolist() == [True, True, False, True, False, False, True]
    assert addresses[found].tolist() == [10, 50, 90, 50]
    assert index([], []) is None
    assert index([[5, 1], [5]], [[50, 10], [90]]) is None
