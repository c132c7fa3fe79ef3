"""Tables that are clustered: compactions sort rows by the columns that the table names."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from table_access import assert_same_rows, read_changes, read_ours, read_pylance, write_table

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.clustering import CLUSTER_BY_KEY, ClusterBy, Clustering
from pyspark_lance.table.cdf.change_window import Deduplication
from pyspark_lance.table.columns.change_columns import drop_columns, rename_column
from pyspark_lance.table.columns.cluster_by import set_cluster_by
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.compaction.stable_row_ids import copy_with_stable_row_ids
from pyspark_lance.table.history.history import detail
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.unit_of_work import set_properties
from pyspark_lance.table.version.snapshot import Snapshot, properties_of
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings
from pyspark_lance.table.write.write_table import create_table

pytestmark = pytest.mark.interop

SMALL = {"sort_bytes": 20_000}


def rows(start, count, **others):
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "a": pa.array([number * 37 % 100 for number in numbers], pa.int64()),
            "b": pa.array([f"b{number * 11 % 50:02}" for number in numbers]),
            "s": pa.array([{"x": number % 7, "tags": [number]} for number in numbers]),
            **others,
        }
    )


def made(path, *columns, order="hilbert"):
    """A table of three fragments."""
    write_table(path, rows(0, 300))
    for start in (300, 600):
        write_table(path, rows(start, 300))
    if columns:
        set_cluster_by(Table(path), columns, order)
    return Table(path)


def asked(table):
    return ClusterBy.of(Snapshot.open(table).manifest.config)


def sorted_by(table):
    return Clustering.of(Snapshot.open(table).manifest.config)


def fragment_ids(table):
    return {one.id for one in Snapshot.open(table).manifest.fragments}


def as_they_lie(path, name):
    lying = read_ours(path, system_columns=("_rowaddr",)).sort_by("_rowaddr")
    return lying.column(name).to_pylist()


def test_compaction_sorts_only_new_rows_by_table_columns(tmp_path):
    path = str(tmp_path / "t")
    table = made(path)
    assert set_cluster_by(table, ["A"]).version == 4
    assert set_cluster_by(table, ["a"]).version is None  # the same, as it is spelled
    assert detail(table).clustering_columns == ("a",)
    assert detail(table).advice == ("compact: 3 of 3 fragments are to be sorted by a",)
    before = read_ours(path, system_columns=("_rowid",)).sort_by("_rowid")
    assert compact(table, CompactionRequest(**SMALL), dry_run=True).numRows == 900
    assert compact(table, CompactionRequest(**SMALL)).numRows == 900
    assert as_they_lie(path, "a") == sorted(as_they_lie(path, "a"))
    assert read_ours(path, system_columns=("_rowid",)).sort_by("_rowid").equals(before)
    assert read_changes(path, 4, 5, Deduplication.NONE).num_rows == 0
    assert detail(table).advice == ()
    assert compact(table, CompactionRequest(**SMALL)).version is None
    # Full fragments stay where new rows come.
    write_table(path, rows(900, 40))
    full = {**SMALL, "target_rows_per_fragment": 500}
    assert compact(table, CompactionRequest(**full)).numRows == 40
    assert compact(table, CompactionRequest(**full)).version is None
    assert set(sorted_by(table).fragment_ids) == fragment_ids(table)


@pytest.mark.parametrize(
    ("columns", "given", "order"),
    [
        (("a", "b"), {}, "hilbert"),
        (("a", "b"), {"order": "zorder"}, "zorder"),
        (("a", "b"), {"split_files_by": ("a",)}, "linear"),
        (("s.x", "b"), {}, "hilbert"),
        (("b",), {}, "linear"),  # one column has no curve
    ],
)
def test_compaction_options_override_table_order(tmp_path, columns, given, order):
    table = made(str(tmp_path / "t"), *columns)
    assert compact(table, CompactionRequest(**{**SMALL, **given})).numRows == 900
    assert sorted_by(table).order == order
    assert len(sorted_by(table).field_ids) == len(columns)
    assert sorted_by(table).num_split == len(given.get("split_files_by", ()))


def test_cluster_by_option_overrides_table(tmp_path):
    path = str(tmp_path / "t")
    table = made(path, "a")
    assert compact(table, CompactionRequest(**{**SMALL, "cluster_by": ()})).fragmentsAdded == 1
    assert sorted_by(table) is None
    assert as_they_lie(path, "id") == list(range(900))
    compact(table, CompactionRequest(**{**SMALL, "cluster_by": ("b",)}))
    assert as_they_lie(path, "b") == sorted(as_they_lie(path, "b"))
    assert asked(table).columns == ("a",)
    set_cluster_by(table, ())
    assert asked(table) is None and detail(table).clustering_columns == ()
    assert compact(table, CompactionRequest(**SMALL)).version is None
    assert set_cluster_by(table, ()).version is None


def test_zone_maps_follow_clustered_rows(tmp_path):
    path = str(tmp_path / "t")
    table = made(path, "a")
    create_zone_maps(table, ["a"])
    compact(table, CompactionRequest(**SMALL))
    covered = Snapshot.open(table).indices[0].fragment_bitmap
    assert set(covered) == fragment_ids(table)


@pytest.mark.parametrize(
    ("columns", "order", "message"),
    [
        (("aa",), "hilbert", "there is no column 'aa'\n.*\n?.*did you mean 'a'"),
        (("s.y",), "hilbert", "the column 's' has no field 'y'\n.*x"),
        (("a", "A"), "hilbert", "named twice"),
        (("a",), "spiral", "there is no order 'spiral'"),
    ],
)
def test_unknown_columns_and_orders_are_refused(tmp_path, columns, order, message):
    table = made(str(tmp_path / "t"), "b")
    with pytest.raises(InvalidInputError, match=message):
        set_cluster_by(table, columns, order)
    assert asked(table).columns == ("b",)


@pytest.mark.parametrize("column", ["s", "s.tags"])
def test_unsortable_columns_are_refused(tmp_path, column):
    table = made(str(tmp_path / "t"))
    with pytest.raises(UnsupportedFeatureError, match=f"cannot be sorted by the column '{column}'"):
        set_cluster_by(table, [column])


def test_clustering_follows_renames_and_blocks_drops(tmp_path):
    path = str(tmp_path / "t")
    table = made(path, "a", "s.x")
    rename_column(table, "a", "c")
    rename_column(table, "s", "t")
    rename_column(table, "t.x", "y")
    assert asked(table) == ClusterBy(("c", "t.y"))
    for name in ("c", "t", "t.y"):
        with pytest.raises(InvalidInputError, match=r"clustered by (c|t\.y)\n(.*\n)*.*CLUSTER BY"):
            drop_columns(table, [name])
    drop_columns(table, ["t.tags", "b"])
    assert compact(table, CompactionRequest(**SMALL)).numRows == 900
    set_cluster_by(table, ["id"])
    drop_columns(table, ["c"])


def test_clustering_key_is_not_a_property(tmp_path):
    table = made(str(tmp_path / "t"), "a")
    assert CLUSTER_BY_KEY in Snapshot.open(table).manifest.config
    assert properties_of(Snapshot.open(table)) == {}
    with pytest.raises(InvalidInputError, match="not the name of a property"):
        set_properties(table, {CLUSTER_BY_KEY: "a"})


def test_writes_keep_or_replace_clustering_columns(tmp_path):
    path = str(tmp_path / "t")
    table = Table(path)
    create_table(table, rows(0, 1).schema, WriteSettings(cluster_by=("B", "a")))
    assert asked(table) == ClusterBy(("b", "a"))
    set_cluster_by(table, ("b", "a"), "zorder")
    kept = ClusterBy(("b", "a"), "zorder")
    write_table(path, rows(0, 9))
    write_table(path, rows(9, 9), cluster_by=("b", "a"))
    write_table(path, rows(0, 9), overwrite=True)
    write_table(path, rows(0, 9), overwrite=True, cluster_by=("b", "a"))
    write_table(path, rows(0, 9).drop(["id"]), overwrite=True)
    assert asked(table) == kept
    with pytest.raises(InvalidInputError, match="clustered by b, a, and an append does not change"):
        write_table(path, rows(0, 9).drop(["id"]), cluster_by=("a",))
    with pytest.raises(
        InvalidInputError, match=r"by b, a, but there is no column 'a'\n(.*\n)*.*NONE"
    ):
        write_table(path, rows(0, 9).drop(["a"]), overwrite=True)
    with pytest.raises(InvalidInputError, match="no column 'nothing'"):
        write_table(path, rows(0, 9), overwrite=True, cluster_by=("nothing",))
    write_table(path, rows(0, 9).drop(["a"]), overwrite=True, cluster_by=("id",))
    assert asked(table) == ClusterBy(("id",), "linear")
    write_table(path, rows(0, 9), overwrite=True, cluster_by=())
    assert asked(table) is None
    write_table(path, rows(0, 9))


def test_copy_with_stable_row_ids_keeps_clustering(tmp_path):
    source, target = str(tmp_path / "t"), Table(str(tmp_path / "copy"))
    write_table(source, rows(0, 90), enable_stable_row_ids=False)
    set_cluster_by(Table(source), ["a"])
    copy_with_stable_row_ids(Table(source), target)
    assert asked(target).columns == ("a",)


def test_pylance_appends_to_and_compacts_clustered_table(tmp_path):
    path = str(tmp_path / "t")
    table = made(path, "a", "b")
    compact(table, CompactionRequest(**SMALL))
    from_pylance = lance.dataset(path)
    from_pylance.validate()
    from_pylance.insert(rows(900, 40))
    from_pylance.delete("id = 7")
    from_pylance.optimize.compact_files(target_rows_per_fragment=5000)
    assert asked(table) == ClusterBy(("a", "b"))
    assert_same_rows(read_ours(path), read_pylance(path))
    assert compact(table, CompactionRequest(**SMALL)).numRows == 939
    lance.dataset(path).validate()
    assert lance.dataset(path).count_rows() == 939


def test_missing_clustering_column_error_suggests_override(tmp_path):
    path = str(tmp_path / "t")
    table = made(path, "a", "b")
    lance.dataset(path).drop_columns(["b"])
    with pytest.raises(
        InvalidInputError, match=r"by a, b, but there is no column 'b'\n(.*\n)*.*NONE"
    ):
        compact(table, CompactionRequest(**SMALL))
    assert detail(table).advice == (
        "choose other columns to cluster by than a, b: there is no column 'b'",
    )
    assert compact(table, CompactionRequest(**{**SMALL, "cluster_by": ()})).fragmentsAdded == 1
    set_cluster_by(table, ["a"])
    assert compact(table, CompactionRequest(**SMALL)).numRows == 900


def test_deferred_remap_is_refused_for_clustered_tables(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, rows(0, 90), enable_stable_row_ids=False)
    write_table(path, rows(90, 90))
    table = Table(path)
    set_cluster_by(table, ["a"])
    with pytest.raises(InvalidInputError, match=r"clusterBy=\(\) does without"):
        compact(table, CompactionRequest(defer_index_remap=True))
    assert (
        compact(table, CompactionRequest(defer_index_remap=True, cluster_by=())).fragmentsAdded == 1
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"columns":[],"order":"hilbert"}', "null"])
def test_unreadable_clustering_columns_are_ignored(text):
    assert ClusterBy.of({CLUSTER_BY_KEY: text}) is None
    assert ClusterBy.of({}) is None
    assert ClusterBy.of({CLUSTER_BY_KEY: ClusterBy(("a",)).to_text()}) == ClusterBy(("a",))
