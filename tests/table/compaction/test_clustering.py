"""Clustering: rows lie in the order that was asked for, and nothing else of them changes."""

from __future__ import annotations

import itertools
import math

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to
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
from zone_map_tables import matching

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.clustering import CLUSTERING_KEY, Clustering
from pyspark_lance.table.columns.change_columns import rename_column
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index.btree import has_order
from pyspark_lance.table.index.index_status import index_status
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.sort import Curve, hilbert_key, zorder_key
from pyspark_lance.table.tasks import run_local
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

ORDERS = [one.value for one in Curve]


def cluster(path, *names, order="linear", **given):
    """Some hundred rows are sorted at a time, unless more is given."""
    options = {"cluster_by": names, "order": order, "sort_bytes": 4000, **given}
    return compact(Table(path), CompactionRequest(**options))


def all_but_places(rows, name="_rowid"):
    return rows.drop(["_rowaddr"]).sort_by(name)


def assert_equal(one, other):
    assert one.schema == other.schema
    # NaN equals NaN.
    assert one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist())


def place(value):
    """Spark's order: nulls first, NaN last."""
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        return (2, 0.0) if math.isnan(value) else (1, value)
    return (1, value)


def in_place(path, *names):
    """Rows as they lie, one tuple of places each."""
    rows = read_ours(path, system_columns=("_rowaddr",)).sort_by("_rowaddr").to_pylist()
    return [tuple(place(row[name]) for name in names) for row in rows]


def feeds(path, last):
    windows = itertools.combinations(range(1, last + 1), 2)
    return [
        sorted(map(repr, read_changes(path, *window, mode).to_pylist()))
        for window in [*windows, (last, last)]
        for mode in ("none", "netChanges")
    ]


def fill(path, rng, sizes, first=0, **settings):
    """Append rows of a small number of values; return the id that is next."""
    for size in sizes:
        table = pa.table(
            {
                "id": range(first, first + size),
                "a": pa.array(rng.integers(0, 12, size), mask=rng.random(size) < 0.1),
                "b": [None if one < 3 else f"b{one}" for one in rng.integers(0, 30, size)],
                "c": np.where(rng.random(size) < 0.1, np.nan, rng.random(size)),
            }
        )
        write_table(path, table, **settings)
        first += size
    return first


# Rows --------------------------------------------------------------------------------------


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 80))]


@pytest.mark.parametrize("seed", SEEDS)
def test_clustering_random_tables_changes_only_row_order(tmp_path, seed):
    path, rng = str(tmp_path / "t"), np.random.default_rng(seed)
    random_history_or_skip(path, seed, ["2.0", "2.1", "2.2"][seed % 3])
    before, snapshot = read_ours(path), Snapshot.open(Table(path))
    schema = snapshot.schema.to_arrow()
    sortable = [one.name for one in schema if has_order(one.type) and not one.metadata]
    count = min(len(sortable), 1 + seed % 3)
    names = rng.choice(sortable, count, replace=False).tolist()
    target = 1 + before.num_rows // int(rng.choice([1, 2, 5]))
    given = {
        "order": ORDERS[seed % 3],
        "target_rows_per_fragment": target,
        "sort_bytes": max(1, before.nbytes // 3),
    }
    result = cluster(path, *names, **given)
    assert result.num_rows == before.num_rows
    after = read_ours(path)
    assert_equal(all_but_places(before), all_but_places(after))
    assert_same_rows(after, read_pylance(path))
    lance.dataset(path).validate()
    check_invariants(path)
    assert verify(Table(path), read_data=True).errors == ()
    # What tasks left to each other is gone.
    unused = files_of(path) - used_files(path)
    assert {one for one in unused if one.startswith("data/")} <= set()
    assert cluster(path, *names, **given).version is None
    live = [fragment.num_rows for fragment in Snapshot.open(Table(path)).manifest.fragments]
    assert max(live) < 2 * target and len(live) <= max(1, before.num_rows // target)


@pytest.mark.parametrize(("stable", "sort_bytes"), [(True, 1 << 20), (False, 4000)])
def test_rows_are_sorted_by_clustering_columns(tmp_path, stable, sort_bytes):
    path, rng = str(tmp_path / "t"), np.random.default_rng(7)
    fill(path, rng, [150, 40, 90], enable_stable_row_ids=stable)
    delete_rows(path, "id % 5 = 2")
    for names in (("a", "b"), ("c", "a")):
        options = {"sort_bytes": sort_bytes, "target_rows_per_fragment": 60}
        assert cluster(path, *names, **options).num_rows == 224
        rows = in_place(path, *names)
        assert rows == sorted(rows) and len(rows) == 224
    lance.dataset(path).validate()


def test_equal_rows_keep_their_order(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table({"id": range(600), "k": [i % 2 for i in range(600)]})
    write_table(path, table, max_rows_per_file=90)
    cluster(path, "k", target_rows_per_fragment=100)
    assert in_place(path, "k", "id") == sorted(in_place(path, "k", "id"))


def values_of_files(path, name):
    """Of each fragment the values of a column."""
    every = [fragment.to_table()[name] for fragment in lance.dataset(path).get_fragments()]
    return [sorted(map(repr, set(map(repr, column.to_pylist())))) for column in every]


@pytest.mark.parametrize(("stable", "sort_bytes"), [(True, 1 << 20), (False, 4000)])
def test_split_files_have_one_value_of_column(tmp_path, stable, sort_bytes):
    path, rng = str(tmp_path / "t"), np.random.default_rng(7)
    first = fill(path, rng, [150, 40, 90], enable_stable_row_ids=stable)
    before = read_ours(path, system_columns=()).sort_by("id")
    options = {"sort_bytes": sort_bytes, "target_rows_per_fragment": 60}
    cluster(path, "b", "c", **options)
    assert any(len(values) > 1 for values in values_of_files(path, "b"))
    # Sorted they were, but not split; what is split is as good as sorted.
    assert cluster(path, "b", "c", split_files_by=("b",), **options).num_rows == 280
    assert all(len(values) == 1 for values in values_of_files(path, "b"))
    rows = in_place(path, "b")
    assert rows == sorted(rows)
    assert_equal(before, read_ours(path, system_columns=()).sort_by("id"))
    assert cluster(path, "b", "c", split_files_by=(), **options).version is None
    # Columns by which files are split once stay so.
    fill(path, rng, [70], first)
    assert cluster(path, "b", "c", **options).num_rows == 350
    assert all(len(values) == 1 for values in values_of_files(path, "b"))
    lance.dataset(path).validate()


def test_split_columns_must_lead_linear_order(tmp_path):
    path = str(tmp_path / "t")
    fill(path, np.random.default_rng(1), [30])
    for given in (
        {"split_files_by": ("b",), "cluster_by": ("a", "b")},
        {"split_files_by": ("a",), "cluster_by": ("a", "b"), "order": "zorder"},
        {"split_files_by": ("a",)},
    ):
        with pytest.raises(InvalidInputError, match="split by"):
            compact(Table(path), CompactionRequest(**given))


def test_split_by_column_with_many_values_is_refused(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": np.random.default_rng(1).permutation(12_000)}))
    with pytest.raises(InvalidInputError, match="more than 12000"):
        compact(Table(path), CompactionRequest(split_files_by=("id",), cluster_by=("id",)))


@pytest.mark.parametrize("by", ["ours", "pylance"])
def test_zone_maps_cover_clustered_fragments(tmp_path, by):
    path, rng = str(tmp_path / "t"), np.random.default_rng(7)
    first = fill(path, rng, [50, 40], enable_stable_row_ids=True)
    if by == "ours":
        create_zone_maps(Table(path), ["a", "id"], 5)
    else:
        lance.dataset(path).create_scalar_index("a", "ZONEMAP")
    fill(path, rng, [20], first)
    done = cluster(path, "a", split_files_by=("a",), target_rows_per_fragment=1000)
    facts = index_status(Snapshot.open(Table(path)))
    assert {one.num_rows_uncovered for one in facts} == {0} and {one.num_rows for one in facts} == {
        110
    }
    assert Snapshot.open(Table(path)).version == done.version + 1
    condition = "a = 3 AND id >= 0"
    expected = lance.dataset(path).to_table(filter=condition, scan_in_order=True)
    assert sorted(matching(path, condition)["id"].to_pylist()) == sorted(expected["id"].to_pylist())
    # Nothing moved, and there is no other version.
    assert cluster(path, "a").version is None
    assert Snapshot.open(Table(path)).version == done.version + 1


@pytest.mark.parametrize("order", ["zorder", "hilbert"])
def test_curves_keep_rows_near_in_all_columns(tmp_path, order):
    path, rng = str(tmp_path / "t"), np.random.default_rng(3)
    x, y = rng.integers(0, 1000, (2, 1600))
    write_table(path, pa.table({"x": x, "y": [f"{one:04}" for one in y]}), max_rows_per_file=400)
    cluster(path, "x", "y", order=order, sort_bytes=10_000, target_rows_per_fragment=800)
    rows = read_ours(path).sort_by("_rowaddr")
    own = rows["x"].to_numpy(), rows["y"].to_numpy(zero_copy_only=False).astype(int)
    # 16 squares would be a quarter of each column; sorted by one, the other one spans all.
    spans = [np.median(np.ptp(one.reshape(16, 100), axis=1)) for one in own]
    assert max(spans) < 400


def test_hilbert_curve_is_continuous_and_complete():
    for columns, bits in ((2, 4), (3, 3), (5, 2)):
        grid = np.array(list(itertools.product(range(1 << bits), repeat=columns)), np.uint64).T
        key = hilbert_key(list(grid), bits)
        assert sorted(key.tolist()) == list(range(1 << bits * columns))
        steps = np.abs(np.diff(grid[:, np.argsort(key)].astype(int), axis=1)).sum(axis=0)
        assert set(steps.tolist()) == {1}


def test_zorder_key_interleaves_bits():
    rng = np.random.default_rng(0)
    for columns in (1, 2, 3, 7):
        cells = rng.integers(0, 1 << 5, (columns, 40)).astype(np.uint64)
        bits = [[f"{one:05b}" for one in row] for row in cells.tolist()]
        interleaved = [
            "".join("".join(parts) for parts in zip(*own, strict=True))
            for own in zip(*bits, strict=True)
        ]
        assert zorder_key(list(cells), 5).tolist() == [int(one, 2) for one in interleaved]


# Lineage, feeds, indices -------------------------------------------------------------------


def test_clustering_is_invisible_to_feeds_and_writers(tmp_path):
    path, rng = str(tmp_path / "t"), np.random.default_rng(11)
    fill(path, rng, [60, 40])
    set_to(path, "a = 3", c=0.5)
    delete_rows(path, "id % 9 = 4")
    last = Snapshot.open(Table(path)).version
    before, rows = feeds(path, last), all_but_places(read_ours(path))
    result = cluster(path, "a", "b", order="hilbert", target_rows_per_fragment=30)
    assert feeds(path, last) == before
    assert read_changes(path, result.version, result.version, "none").num_rows == 0
    assert_equal(all_but_places(read_ours(path)), rows)
    dataset = lance.dataset(path)
    dataset.update({"b": "'theirs'"}, where="id = 7")
    dataset.delete("id = 8")
    dataset.insert(pa.table({"id": [900], "a": [1], "b": ["x"], "c": [0.0]}))
    dataset.create_scalar_index("a", "BTREE")
    dataset.optimize.compact_files(target_rows_per_fragment=1000)
    set_to(path, "id = 9", b="ours")
    assert_same_rows(read_ours(path), read_pylance(path))
    kept = {row["id"]: row for row in read_ours(path).to_pylist()}
    assert (kept[7]["b"], kept[9]["b"], 8 in kept) == ("theirs", "ours", False)
    check_invariants(path)


def test_long_lineage_is_spilled(tmp_path):
    path = str(tmp_path / "t")
    fill(path, np.random.default_rng(6), [90, 60])
    lance.dataset(path).update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "20"}
    )
    before = all_but_places(read_ours(path))
    for names in (("b", "c"), ("c",)):
        assert cluster(path, *names, target_rows_per_fragment=70).num_rows == 150
        assert_equal(all_but_places(read_ours(path)), before)
        assert_same_rows(read_ours(path), read_pylance(path))
        fragments = Snapshot.open(Table(path)).manifest.fragments
        assert all(fragment.has_spilled_lineage for fragment in fragments)
        assert cluster(path, *names, target_rows_per_fragment=70).version is None
    assert verify(Table(path), read_data=True).errors == ()


@pytest.mark.parametrize("stable", [True, False])
def test_indices_answer_equally_after_clustering(tmp_path, stable):
    path, rng = str(tmp_path / "t"), np.random.default_rng(2)
    first = fill(path, rng, [80, 40], enable_stable_row_ids=stable)
    dataset = lance.dataset(path)
    dataset.create_scalar_index("b", "BITMAP")
    dataset.create_scalar_index("id", "BTREE")
    create_zone_maps(Table(path), ["a"], 8, ChangeSettings())
    fill(path, rng, [50], first)
    # What an index covers and what it does not are never in one fragment.
    result = cluster(path, "a", "c", target_rows_per_fragment=40)
    assert result.fragments_removed == 3
    covered = {index.name: index.fragment_bitmap for index in Snapshot.open(Table(path)).indices}
    live = {fragment.id for fragment in Snapshot.open(Table(path)).manifest.fragments}
    assert bool(live & set(covered["b_idx"])) == stable
    conditions = ("b = 'b7'", "id > 60 AND id < 90", "a = 3", "a IS NULL AND b = 'b9'")
    for condition in conditions:
        found = lance.dataset(path).to_table(filter=condition)["id"].to_pylist()
        scanned = lance.dataset(path).scanner(filter=condition, use_scalar_index=False)
        assert sorted(found) == sorted(scanned.to_table()["id"].to_pylist())
    create_zone_maps(Table(path), ["a"], 8, ChangeSettings())
    assert verify(Table(path), read_data=True).errors == ()


def test_blobs_and_nested_columns_move_with_their_rows(tmp_path):
    for version, kind in (("2.1", "old"), ("2.2", "new")):
        path, rng = str(tmp_path / version), np.random.default_rng(5)
        blobs = [None if i % 7 == 3 else rng.bytes(70_000 if i % 10 == 0 else i) for i in range(80)]
        old = pa.field("blob", pa.large_binary(), True, {"lance-encoding:blob": "true"})
        fields = [
            pa.field("id", pa.int64()),
            pa.field("place", pa.struct([("k", pa.int32()), ("names", pa.list_(pa.string()))])),
            pa.field("vector", pa.list_(pa.float32(), 4)),
            lance.blob_field("blob") if kind == "new" else old,
        ]
        columns = [
            pa.array(range(80)),
            pa.array(
                [{"k": i * 7 % 13, "names": ["x"] * (i % 3)} for i in range(80)], fields[1].type
            ),
            pa.array(rng.random((80, 4), np.float32).tolist(), fields[2].type),
            lance.blob_array(blobs) if kind == "new" else pa.array(blobs, pa.large_binary()),
        ]
        rows = pa.table(columns, schema=pa.schema(fields))
        for start in (0, 30):
            part = rows.slice(start, 30 if not start else 50)
            lance.write_dataset(part, path, mode="append", data_storage_version=version)
        cluster(path, "place.k", sort_bytes=200_000, target_rows_per_fragment=30)
        dataset = lance.dataset(path)
        table = dataset.to_table(["id", "place", "vector"])
        keys = [row["k"] for row in table["place"].to_pylist()]
        assert keys == sorted(keys)
        ids = table["id"].to_pylist()
        assert table.sort_by("id").equals(rows.select(["id", "place", "vector"]))
        there = [i for i, one in enumerate(ids) if blobs[one]]
        found = [blob.readall() for blob in dataset.take_blobs("blob", indices=there)]
        assert found == [blobs[ids[i]] for i in there]
        assert verify(Table(path), read_data=True).errors == ()


# What is sorted already --------------------------------------------------------------------


def sorted_ids(path):
    known = Clustering.of(Snapshot.open(Table(path)).manifest.config)
    live = {fragment.id for fragment in Snapshot.open(Table(path)).manifest.fragments}
    return live & set(known.fragment_ids)


@pytest.mark.parametrize("order", ["linear", "zorder"])
def test_clustering_sorts_only_new_rows(tmp_path, order):
    path, rng = str(tmp_path / "t"), np.random.default_rng(4)
    first = fill(path, rng, [200])
    given = {"sort_bytes": 1 << 20, "order": order, "target_rows_per_fragment": 50}
    assert cluster(path, "a", "c", **given).num_rows == 200
    before = sorted_ids(path)
    assert cluster(path, "a", "c", **given).version is None
    first = fill(path, rng, [70], first)
    assert cluster(path, "a", "c", **given).num_rows == 70
    assert before < sorted_ids(path)
    # A small one is sorted again, but not for its own sake.
    fill(path, rng, [10], first)
    assert cluster(path, "a", "c", **given).num_rows == 10
    assert cluster(path, "a", "c", **given).version is None
    fill(path, rng, [15], first + 10)
    assert cluster(path, "a", "c", **given).num_rows == 25
    # Rows that moved have no order any more, and those that are left keep it.
    set_to(path, "id = 5", c=0.25)
    assert cluster(path, "a", "c", materialize_deletions=False, **given).num_rows == 26
    # Neither by other columns nor in another order is anything sorted yet.
    other = ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]
    assert cluster(path, "a", "c", **{**given, "order": other}).num_rows == 295
    assert cluster(path, "c", "a", **{**given, "order": other}).num_rows == 295


def test_clustering_follows_field_ids(tmp_path):
    path = str(tmp_path / "t")
    fill(path, np.random.default_rng(1), [40])
    assert cluster(path, "a").num_rows == 40
    rename_column(Table(path), "a", "renamed")
    assert cluster(path, "renamed").version is None
    # Values that pylance replaces in place are in another file.
    dataset = lance.dataset(path)
    dataset.alter_columns({"path": "renamed", "data_type": pa.int32()})
    assert cluster(path, "renamed").num_rows == 40


def test_pylance_keeps_clustering_state(tmp_path):
    path = str(tmp_path / "t")
    fill(path, np.random.default_rng(1), [40])
    cluster(path, "a")
    dataset = lance.dataset(path)
    dataset.update_config({"mine": "1"})
    dataset.delete("id = 3")
    dataset.create_scalar_index("id", "BTREE")
    assert dataset.config()[CLUSTERING_KEY] == '{"fields":[1],"order":"linear","fragments":[[1,1]]}'
    assert cluster(path, "a").version is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"fields":[1],"order":"linear","fragments":[[2]]}']
)
def test_unreadable_clustering_state_is_ignored(text):
    assert Clustering.of({CLUSTERING_KEY: text}) is None


def test_many_deleted_rows_cause_sorting(tmp_path):
    path = str(tmp_path / "t")
    fill(path, np.random.default_rng(1), [100])
    given = {"target_rows_per_fragment": 20}
    cluster(path, "id", **given)
    delete_rows(path, "id >= 20 AND id < 30")
    assert cluster(path, "id", **given).num_rows == 10
    assert in_place(path, "id")[-10:] == [(place(one),) for one in range(30, 40)]
    assert cluster(path, "id", **given).version is None


def test_source_row_limit_sorts_fragments_in_order(tmp_path):
    path = str(tmp_path / "t")
    for number in range(6):
        append(path, 10 * number, 10)
    given = {"target_rows_per_fragment": 10, "max_source_rows": 25}
    rows = [cluster(path, "id", **given).num_rows for _ in range(4)]
    assert rows == [20, 20, 20, 0]


def test_dry_run_predicts_clustering(tmp_path):
    path = str(tmp_path / "t")
    fill(path, np.random.default_rng(1), [100, 30])
    options = {"cluster_by": ("a",), "target_rows_per_fragment": 40}
    planned = compact(Table(path), CompactionRequest(**options), dry_run=True)
    assert planned.version is None
    done = compact(Table(path), CompactionRequest(**options))
    assert (planned.num_rows, planned.fragments_added) == (done.num_rows, done.fragments_added)


# Concurrent writers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "retried"),
    [
        (lambda path: append(path, 500, 5), False),
        (lambda path: lance.dataset(path).update_config({"mine": "1"}), False),
        (lambda path: lance.dataset(path).create_scalar_index("id", "BTREE"), True),
        (lambda path: delete_rows(path, "id = 3"), True),
        (lambda path: lance.dataset(path).update({"id": "id + 1000"}, where="id = 9"), True),
        (lambda path: compact(Table(path), CompactionRequest(target_rows_per_fragment=1000)), True),
        # Other compactions have done all there is to do.
        (lambda path: cluster(path, "id"), False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stage", ["SortTask", "MergeTask"])
def test_clustering_tolerates_concurrent_writes_in_every_stage(tmp_path, act, retried, stage):
    path, acted = str(tmp_path / "t"), []
    for number in range(2):
        append(path, 60 * number, 60)
    rounds = []

    def rewrite(tasks):
        rounds.append(type(tasks[0]).__name__)
        if rounds[-1] == stage and not acted:
            acted.append(act(path))
        return list(run_local(tasks))

    options = {"cluster_by": ("id",), "sort_bytes": 900, "target_rows_per_fragment": 60}
    compact(Table(path), CompactionRequest(**options), run=rewrite)
    assert (rounds.count(stage) > 1) == retried
    ids = read_ours(path)["id"].to_pylist()
    assert len(ids) == len(set(ids)) and set(range(120)) - {3, 9} <= set(ids)
    lance.dataset(path).validate()
    check_invariants(path)


def test_failed_clustering_leaves_no_files(tmp_path):
    path = str(tmp_path / "t")
    fill(path, np.random.default_rng(1), [200])
    before = files_of(path)

    def rewrite(tasks):
        if type(tasks[0]).__name__ == "MergeTask":
            raise OSError("no more")
        return list(run_local(tasks))

    with pytest.raises(OSError, match="no more"):
        compact(Table(path), CompactionRequest(cluster_by=("a",), sort_bytes=2000), run=rewrite)
    assert files_of(path) == before


# What cannot be done -----------------------------------------------------------------------


def test_unsortable_input_is_refused_by_name(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table({"id": [1], "tags": [["x"]], "place": [{"lat": 1.0}]})
    write_table(path, table)
    for names, kind, message in (
        (("nothing",), InvalidInputError, "no column 'nothing'"),
        (("id", "ID"), InvalidInputError, "named twice"),
        (("tags",), UnsupportedFeatureError, "'tags' of type array<"),
        (("place",), UnsupportedFeatureError, "'place' of type struct"),
    ):
        with pytest.raises(kind, match=message):
            cluster(path, *names)
    with pytest.raises(InvalidInputError, match=r"no order 'z'\n.*linear, zorder, hilbert"):
        cluster(path, "id", order="z")
    with pytest.raises(InvalidInputError, match="knows no rows that change their order"):
        write_table(str(tmp_path / "u"), table, enable_stable_row_ids=False)
        cluster(str(tmp_path / "u"), "id", defer_index_remap=True)
    assert cluster(path, "place.lat").num_rows == 1
