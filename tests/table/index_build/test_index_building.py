"""Indices that we make are used by pylance and by us, and stay correct after changes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.file import LanceFileReader
from lance.indices import IndexConfig
from local_changes import delete_rows
from pyroaring import BitMap
from random_seeds import seeds
from row_changes import set_to
from zone_map_tables import (
    COLUMNS,
    LISTS,
    STRUCT,
    change,
    change_in_place,
    change_ours,
    check_rows,
    matching,
    retained_rows,
    some_rows,
    with_lists,
)

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    RetryableCommitError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.operation import CreateIndex
from pyspark_lance.format.row_address import pack_tree_map, parse_tree_map, row_addresses
from pyspark_lance.table import sort
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index.bitmap import BITMAP_FILE
from pyspark_lance.table.index.btree import sort_order
from pyspark_lance.table.index.index_status import index_status
from pyspark_lance.table.index.lookups import SegmentState, segment_state
from pyspark_lance.table.index_build import index_plan, merged_segments
from pyspark_lance.table.index_build.column_indices import (
    commit_index,
    create_index,
    drop_index,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.index_plan import (
    IndexRequest,
    plan_index,
    plan_index_refresh,
    references_moved_rows,
)
from pyspark_lance.table.index_build.merged_segments import IDS, VALUES, RowSorter
from pyspark_lance.table.index_build.segment_files import (
    SegmentOutput,
    can_have_bloom_filter,
    num_blocks,
    schema_of,
)
from pyspark_lance.table.scan import fragment_pruning
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

SHOWN = {
    "btree": "BTree", "bitmap": "Bitmap", "label_list": "LabelList", "bloomfilter": "BloomFilter",
    "zonemap": "ZoneMap",
}  # fmt: skip
EVERY_KIND = ("btree", "bitmap", "zonemap", "bloomfilter")
# Decimals and booleans have no bloom filters, pylance asks none of fields of structs, and loses NaN
# of `f > 1.0` with zone maps.
KINDS_OF = {"c": EVERY_KIND[:3], "b": EVERY_KIND[:3], "f": ("btree", "bitmap", "bloomfilter")}
KINDS_OF |= {"h": KINDS_OF["f"], f"{STRUCT}.x": EVERY_KIND[:3]}
# As pylance spells conditions on the columns, and those that are not NaN.
THEIR_QUERIES = {
    "i": ["i = 3", "i IN (1, 2, 19)", "i < 4", "i >= 5 AND i < 9", "i != 3"],
    "n": ["n = 3", "n > 10", "NOT (n > 3)"],
    "f": ["f = 2.5", "f > 1.0", "f < 0.0", "f = 0.0"],
    "h": ["h = 2.5", "h > 1.0", "h = 0.0"],
    "s": ["s = 'ab'", "s >= 'b'", "s IN ('', 'zz')", "s < 'abc'"],
    "y": ["y = X'00'", "y > X'61'"],
    "d": ["d = DATE '1970-01-02'", "d < DATE '1970-01-02'"],
    "t": ["t > TIMESTAMP '1969-12-31 23:59:53'"],
    "m": ["m > TIMESTAMP '1969-12-31 23:59:53'"],
    "c": ["c = CAST(0.25 AS decimal(10, 2))", "c < CAST(1 AS decimal(10, 2))"],
    "u": ["u = 2", "u > 1"],
    "b": ["b", "NOT b", "b = true"],
    f"{STRUCT}.x": [f"{STRUCT}.x = 3", f"{STRUCT}.x > 9"],
    LISTS: ["array_has(l, 'ab')", "array_has_any(l, ['a', 'zz'])", "NOT array_has(l, 'b')"],
}


@pytest.fixture
def no_table_is_small(monkeypatch: pytest.MonkeyPatch):
    """Indices are asked for tables of a few rows, too, and used at any selectivity."""
    monkeypatch.setattr(fragment_pruning, "SMALL_ROW_COUNT", 0)
    monkeypatch.setattr(fragment_pruning, "_MAX_SHARE", 1.0)


def our_conditions(rng: random.Random) -> list[str]:
    """One of each column, as we spell it."""
    found = [f"{LISTS} IS NULL"]
    for name in [*COLUMNS, f"{STRUCT}.x"]:
        _, values, spell = COLUMNS["i" if "." in name else name]
        first, second = (spell(rng.choice(values)) for _ in range(2))
        found += [
            f"{name} {rng.choice(['=', '<', '>=', '<=>'])} {first}",
            rng.choice([f"{name} IN ({first}, {second})", f"{name} IS NULL", f"{name} <> {first}"]),
        ]
    _, values, spell = COLUMNS["s"]
    return [*found, *(f"array_contains({LISTS}, {spell(value)})" for value in values[:3])]


def check_pylance(path: str, columns: list[str]) -> None:
    """Pylance finds with an index what it finds without."""
    dataset = lance.dataset(path, session=lance.Session())
    for column in columns:
        nulls = [] if column == LISTS else [f"{column} IS NULL", f"{column} IS NOT NULL"]
        for query in [*THEIR_QUERIES[column], *nulls]:
            with_index, without = (
                sorted(
                    dataset.scanner(
                        columns=["n"], filter=query, with_row_address=True, use_scalar_index=use
                    ).to_table()["_rowaddr"].to_pylist()
                )
                for use in (True, False)
            )  # fmt: skip
            assert with_index == without, query


def check_used(path: str, kinds: dict[str, str]) -> None:
    """Plans of pylance name the index of each column."""
    dataset = lance.dataset(path)
    has_tree = any(index.name == "tree" for index in Snapshot.open(Table(path)).indices)
    for column, kind in kinds.items():
        if column == "n" and has_tree:
            continue  # Of two indices over a column pylance takes one.
        # Bloom filters are asked for no ranges.
        is_range = kind == "bloomfilter" and column in ("t", "m")
        query = f"{column} IS NULL" if is_range else THEIR_QUERIES[column][0]
        plan = dataset.scanner(filter=query).explain_plan()
        assert f"({SHOWN[kind]})" in plan and "ScalarIndexQuery" in plan, (column, kind, plan)


def change_indices(path: str, rng: random.Random) -> None:
    act = rng.choice([refresh_indices, refresh_indices, optimize_indices])
    act(Table(path), rows_per_segment=rng.choice([30, 10_000]))


@pytest.mark.parametrize("seed", seeds(6, in_ci=1, first=1))
def test_built_indices_return_same_rows_as_scan(tmp_path, seed, no_table_is_small, caplog):
    check_history(tmp_path, seed, 5, caplog)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_built_indices_return_same_rows_after_15_steps(tmp_path, seed, no_table_is_small, caplog):
    check_history(tmp_path, seed, 15, caplog)


def check_history(tmp_path: Path, seed: int, num_steps: int, caplog) -> None:
    """Indices of random kinds, and changes by pylance and by us; both find the rows of a scan."""
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    rows = with_lists(some_rows(rng, rng.randint(1, 150)), rng)
    lance.write_dataset(
        rows, path, max_rows_per_file=rng.choice([20, 60, 1000]),
        enable_stable_row_ids=rng.random() < 0.6,
        data_storage_version=rng.choice(["2.1", "2.2"]),
    )  # fmt: skip
    for _ in range(rng.randint(0, 2)):
        change(path, rng)
    kinds = {name: rng.choice(KINDS_OF.get(name, EVERY_KIND)) for name in [*COLUMNS, f"{STRUCT}.x"]}
    kinds[LISTS] = "label_list"
    for column, kind in kinds.items():
        zones = rng.choice([None, 5, 64]) if kind in ("zonemap", "bloomfilter") else None
        request = IndexRequest(
            (column,), kind, rows_per_segment=rng.choice([40, 10_000]), rows_per_zone=zones
        )
        create_index(Table(path), request)
    check_pylance(path, list(kinds))
    check_used(path, kinds)
    check_rows(path, our_conditions(rng))
    for _ in range(num_steps):
        rng.choice([change, change, change_ours, change_indices, change_indices])(path, rng)
        check_rows(path, our_conditions(rng))
        check_pylance(path, rng.sample(list(kinds), 5))
    if {index.name for index in Snapshot.open(Table(path)).indices} >= {"i_idx", "l_idx"}:
        refresh_indices(Table(path))
        check_pylance(path, list(kinds))
        check_used(path, kinds)
        lance.dataset(path).optimize.optimize_indices()
        check_pylance(path, list(kinds))
    lance.dataset(path).validate()
    check_rows(path, our_conditions(rng))
    assert not verify(Table(path), read_data=True).errors
    assert not caplog.messages


# Files -----------------------------------------------------------------------------------------

WIDE = {
    "i8": pa.int8(), "u16": pa.uint16(), "i64": pa.int64(), "f16": pa.float16(),
    "f32": pa.float32(), "f64": pa.float64(), "bool": pa.bool_(), "text": pa.string(),
    "bytes": pa.binary(), "fixed": pa.binary(3), "large": pa.large_string(),
    "decimal": pa.decimal128(12, 3), "wide": pa.decimal256(50, 3), "day": pa.date32(),
    "day64": pa.date64(), "time": pa.time32("ms"), "time64": pa.time64("us"),
    "s": pa.timestamp("s"), "ns": pa.timestamp("ns", "UTC"), "span": pa.duration("us"),
}  # fmt: skip


def values_of(kind: pa.DataType, rng: np.random.Generator, count: int) -> pa.Array:
    numbers = rng.integers(0, 120, count)
    if pa.types.is_floating(kind):
        some = np.array([-np.nan, -np.inf, -1.5, -0.0, 0.0, 1.5, np.inf, np.nan])
        values = pa.array(some[numbers % 8].astype(kind.to_pandas_dtype()), kind)
    elif pa.types.is_boolean(kind):
        values = pa.array(numbers % 2 == 0)
    elif pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        values = pa.array([int(n).to_bytes(3, "little") for n in numbers], kind)
    elif pa.types.is_decimal(kind):
        values = pa.array(numbers - 60).cast(pa.decimal128(19, 0)).cast(kind)
    elif pa.types.is_date64(kind):
        values = pa.array(numbers * 86_400_000).view(kind)
    elif pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        values = pa.array(numbers).cast(width).view(kind)
    elif pa.types.is_integer(kind):
        values = pa.array(numbers).cast(kind)
    else:
        values = pa.array(numbers).cast(pa.string()).cast(kind)
    return pc.if_else(pa.array(rng.random(count) < 0.1), pa.scalar(None, kind), values)


def content(path: str, name: str, file: str) -> pa.Table:
    (index,) = (i for i in Snapshot.open(Table(path)).indices if i.name == name)
    return LanceFileReader(f"{path}/_indices/{index.uuid}/{file}").read_all().to_table()


def bits(column: pa.ChunkedArray) -> list:
    """The values, with floats as their bits."""
    kind = column.type
    if pa.types.is_floating(kind):
        array = column.combine_chunks().fill_null(12345.0 if kind.bit_width > 16 else 0)
        numbers = np.asarray(array).view(f"i{kind.bit_width // 8}")
        return list(zip(numbers.tolist(), column.is_null().to_pylist(), strict=True))
    return column.to_pylist()


@pytest.mark.parametrize("kind", WIDE, ids=list(WIDE))
def test_built_index_files_equal_pylance(tmp_path, kind):
    """In their order; of equal values pylance has the rows in any."""
    path = str(tmp_path / "t")
    rng = np.random.default_rng(len(kind))
    rows = pa.table({"c": values_of(WIDE[kind], rng, 9_000)})
    lance.write_dataset(rows, path, max_rows_per_file=4_000, enable_stable_row_ids=True)
    for name, made in (("btree", "BTREE"), ("bitmap", "BITMAP")):
        create_index(Table(path), IndexRequest(("c",), name, f"our_{name}"))
        lance.dataset(path).create_scalar_index("c", made, name=f"their_{name}", replace=False)
    ours, from_pylance = (
        content(path, f"{w}_btree", "page_lookup.lance") for w in ("our", "their")
    )
    assert ours.schema == from_pylance.schema
    assert [bits(column) for column in ours.columns] == [
        bits(column) for column in from_pylance.columns
    ]
    ours, from_pylance = (content(path, f"{w}_btree", "page_data.lance") for w in ("our", "their"))
    assert ours.schema == from_pylance.schema
    assert bits(ours["values"]) == bits(from_pylance["values"])
    assert set(zip(bits(ours["values"]), ours["ids"].to_pylist(), strict=True)) == set(
        zip(bits(from_pylance["values"]), from_pylance["ids"].to_pylist(), strict=True)
    )
    ours, from_pylance = (
        content(path, f"{w}_bitmap", "bitmap_page_lookup.lance") for w in ("our", "their")
    )
    assert bits(ours["keys"]) == bits(from_pylance["keys"])
    read = [
        [parse_tree_map(data.as_py()) for data in rows["bitmaps"]] for rows in (ours, from_pylance)
    ]
    assert read[0] == read[1]
    entries = {index.name: index for index in Snapshot.open(Table(path)).indices}
    for name in ("btree", "bitmap"):
        mine, their = entries[f"our_{name}"], entries[f"their_{name}"]
        assert mine.details_type == their.details_type
        assert (mine.index_version, mine.fields) == (their.index_version, their.fields)
        assert mine.fragment_bitmap == their.fragment_bitmap


@pytest.mark.parametrize("kind", [k for k in WIDE if can_have_bloom_filter(WIDE[k])])
def test_built_bloom_filters_equal_pylance(tmp_path, kind):
    """Byte by byte, of zones that lack deleted rows, and of nulls."""
    path = str(tmp_path / "t")
    rng = np.random.default_rng(len(kind))
    values = values_of(WIDE[kind], rng, 20_000)
    rows = pa.table({"n": range(20_000), "c": values})
    lance.write_dataset(rows, path, max_rows_per_file=12_000, enable_stable_row_ids=True)
    lance.dataset(path).delete("n % 1000 = 3")
    create_index(Table(path), IndexRequest(("c",), "bloomfilter", "ours"))
    lance.dataset(path).create_scalar_index("c", "BLOOMFILTER", name="theirs", replace=False)
    ours, from_pylance = (content(path, name, "bloomfilter.lance") for name in ("ours", "theirs"))
    assert ours.schema == from_pylance.schema
    assert ours == from_pylance
    entries = {index.name: index for index in Snapshot.open(Table(path)).indices}
    mine, their = (
        LanceFileReader(f"{path}/_indices/{entries[name].uuid}/bloomfilter.lance")
        for name in ("ours", "theirs")
    )
    assert mine.metadata().schema.metadata == their.metadata().schema.metadata
    assert mine.read_global_buffer(1) == their.read_global_buffer(1)
    for part in ("details_type", "index_version", "fields", "fragment_bitmap"):
        assert getattr(entries["ours"], part) == getattr(entries["theirs"], part)


@pytest.mark.parametrize(
    ("items", "false_positives", "num_bytes"),
    [(8192, 0.00057, 32768), (1000, 0.00057, 4096), (100, 0.01, 256)],
)
def test_bloom_filter_size_equals_pylance(items, false_positives, num_bytes):
    assert num_blocks(items, false_positives) * 32 == num_bytes


@pytest.mark.parametrize("kind", WIDE, ids=list(WIDE))
@pytest.mark.parametrize("most_rows", [1, 37, 500, 10_000])
def test_external_sort_equals_in_memory_sort(kind, most_rows):
    rng = np.random.default_rng(most_rows)
    values = values_of(WIDE[kind], rng, 1_500 if most_rows > 1 else 40)
    ids = rng.permutation(len(values)).astype(np.uint64)
    with RowSorter(values.type, most_rows) as sorter:
        for start in range(0, len(values), 100):
            sorter.add(values.slice(start, 100), ids[start : start + 100])
        rows = pa.Table.from_batches(sorter.batches()).combine_chunks()
    order = sort_order(values, stable=True)
    expected = pa.chunked_array([values.take(pa.array(order))])
    assert bits(rows[VALUES]) == bits(expected)
    assert set(zip(bits(rows[VALUES]), rows[IDS].to_pylist(), strict=True)) == set(
        zip(bits(pa.chunked_array([values])), ids.tolist(), strict=True)
    )
    found = rows[IDS].to_numpy()[: values.null_count]
    assert found.tolist() == ids[np.asarray(values.is_null())].tolist()


@pytest.mark.parametrize("room", [1, 2, 3])
def test_partially_loaded_runs_lose_no_rows(monkeypatch, room):
    """Each run has many batches, of which some are read at a time."""
    monkeypatch.setattr(sort, "_BATCH_ROWS", 16)
    monkeypatch.setattr(sort, "_MERGED_BYTES", 5 * 256 * room)
    values = pa.array(np.random.default_rng(room).permutation(1_000))
    with RowSorter(values.type, most_rows=200) as sorter:
        for start in range(0, len(values), 50):
            sorter.add(values.slice(start, 50), np.arange(start, start + 50, dtype=np.uint64))
        rows = pa.Table.from_batches(sorter.batches())
    assert rows[VALUES].to_pylist() == list(range(1_000))
    assert values.take(rows[IDS].combine_chunks()).to_pylist() == rows[VALUES].to_pylist()


def test_long_values_are_sorted_in_bounded_memory(tmp_path):
    """Runs are cut by their bytes; merged, not all of them are in memory."""
    values = pa.array([f"{n * 7919 % 5_000:05d}" * 200 for n in range(5_000)])
    with RowSorter(values.type, most_bytes=300_000) as sorter:
        for start in range(0, len(values), 50):
            sorter.add(values.slice(start, 50), np.arange(start, start + 50, dtype=np.uint64))
        rows = pa.Table.from_batches(sorter.batches())
    assert rows[VALUES].to_pylist() == sorted(values.to_pylist())
    assert values.take(rows[IDS].combine_chunks()).to_pylist() == rows[VALUES].to_pylist()


@pytest.mark.parametrize("kind", ["i64", "f64", "text", "decimal", "bytes"])
@pytest.mark.parametrize("stable", [False, True])
def test_merged_segments_equal_rebuilt_segment(tmp_path, monkeypatch, kind, stable):
    """By their pages: of their rows the data files need not be there."""
    path = str(tmp_path / "t")
    rng = np.random.default_rng(len(kind))
    rows = pa.table({"n": range(20_000), "c": values_of(WIDE[kind], rng, 20_000)})
    lance.write_dataset(rows, path, max_rows_per_file=3_000, enable_stable_row_ids=stable)
    create_index(Table(path), IndexRequest(("c",), rows_per_segment=9_000))
    lance.dataset(path).delete("n % 100 = 7 OR n > 18000 OR n < 3000")
    monkeypatch.setattr(merged_segments, "_BATCH_ROWS", 4_096)  # some pages of each segment
    lance.dataset(path).update({"n": "n + 100000"}, where="n % 1000 = 9")
    assert len(covered(path, "c_idx")) == 3
    create_index(Table(path), IndexRequest(("c",), name="rebuilt", rows_per_segment=100_000))
    known = {number for part in covered(path, "c_idx") for number in part}
    moved = [
        (Path(path) / "data" / fragment.files[0].path).rename(tmp_path / fragment.files[0].path)
        for fragment in Snapshot.open(Table(path)).manifest.fragments
        if fragment.id in known
    ]
    optimize_indices(Table(path), "c_idx")
    for file in moved:
        file.rename(Path(path) / "data" / file.name)
    assert covered(path, "c_idx") == covered(path, "rebuilt")
    joined, rebuilt = (content(path, name, "page_data.lance") for name in ("c_idx", "rebuilt"))
    assert bits(joined["values"]) == bits(rebuilt["values"])
    assert set(zip(bits(joined["values"]), joined["ids"].to_pylist(), strict=True)) == set(
        zip(bits(rebuilt["values"]), rebuilt["ids"].to_pylist(), strict=True)
    )
    drop_index(Table(path), "rebuilt")
    plan = lance.dataset(path).scanner(filter="c IS NULL").explain_plan()
    assert "@c_idx(BTree)" in plan
    check_rows(path, ["c IS NULL", "n > 100000"])
    assert not verify(Table(path)).errors


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", ["f64", "text"])
def test_merged_row_sets_equal_rebuilt_sets(tmp_path, monkeypatch, kind, stable):
    """Of the rows that have one the data files need not be there; rows that are new are added."""
    path = str(tmp_path / "t")
    rng = np.random.default_rng(len(kind))
    few = values_of(WIDE[kind], rng, 40).take(pa.array(rng.integers(0, 40, 3_000)))
    rows = pa.table({"n": range(3_000), "c": few})
    lance.write_dataset(rows, path, max_rows_per_file=500, enable_stable_row_ids=stable)
    create_index(Table(path), IndexRequest(("c",), "bitmap", rows_per_segment=1_000))
    lance.dataset(path).delete("n % 100 = 7 OR n > 2800 OR n < 500")
    lance.write_dataset(rows.slice(0, 10), path, mode="append")
    set_to(path, "n % 200 = 3", c=None)
    monkeypatch.setattr(merged_segments, "_BATCH_ROWS", 16)
    monkeypatch.setattr(merged_segments, "_MERGED_BYTES", 3_000)  # some keys at a time
    create_index(Table(path), IndexRequest(("c",), "bitmap", "rebuilt", rows_per_segment=100_000))
    known = {number for part in covered(path, "c_idx") for number in part}
    moved = [
        (Path(path) / "data" / fragment.files[0].path).rename(tmp_path / fragment.files[0].path)
        for fragment in Snapshot.open(Table(path)).manifest.fragments
        if fragment.id in known
    ]
    assert len(covered(path, "c_idx")) == 3
    optimize_indices(Table(path), "c_idx")
    for file in moved:
        file.rename(Path(path) / "data" / file.name)
    assert covered(path, "c_idx") == covered(path, "rebuilt")
    joined, rebuilt = (content(path, name, BITMAP_FILE) for name in ("c_idx", "rebuilt"))
    assert bits(joined["keys"]) == bits(rebuilt["keys"])
    of_joined, of_rebuilt = (
        [parse_tree_map(rows) for rows in sets["bitmaps"].to_pylist()] for sets in (joined, rebuilt)
    )
    assert of_joined == of_rebuilt
    check_rows(path, ["c IS NULL", "n > 2000"])
    assert not verify(Table(path)).errors


def test_segments_awaiting_remap_are_rebuilt_from_column(tmp_path):
    path = str(tmp_path / "t")
    for first, rows in ((0, 10), (10, 10), (20, 100)):
        lance.write_dataset(pa.table({"n": range(first, first + rows)}), path, mode="append")
        if first == 10:
            lance.dataset(path).create_scalar_index("n", "BTREE")
    refresh_indices(Table(path))
    compact(Table(path), CompactionRequest(target_rows_per_fragment=50, defer_index_remap=True))
    assert optimize_indices(Table(path)).numRows == 120
    snapshot = Snapshot.open(Table(path))
    (entry,) = (one for one in snapshot.indices if one.fields)
    assert segment_state(snapshot, entry) == SegmentState(True, num_named=120)


@pytest.mark.parametrize("num_stored", [1, 3])
def test_several_small_segments_are_merged_beside_new_ones(path, num_stored):
    """One alone would only be written again."""
    rows_per_segment = 3_000 // num_stored
    create_index(Table(path), IndexRequest(("x",), rows_per_segment=rows_per_segment))
    for first in range(3_000, 9_000, 2_000):
        append(path, first, 2_000)
    plan = plan_index_refresh(
        Table(path), "x_idx", ChangeSettings(), rows_per_segment=2_000, rows_per_joined=100_000
    )
    (planned,) = plan.segmented
    several = num_stored > 1
    made = [task.fragments for task in planned.tasks]
    assert made == [(0, 1, 2)] * several + [(3,), (4,), (5,)]
    assert len(planned.replaced) == num_stored * several


def test_unmergeable_segments_are_rebuilt_from_column(path, caplog):
    """One with damaged pages, and those of rows that a compaction moved and left noted."""
    create_index(Table(path), IndexRequest(("x",), rows_per_segment=1_000))
    first = Snapshot.open(Table(path)).indices[0]
    lookup = Path(path) / "_indices" / str(first.uuid) / "page_lookup.lance"
    lookup.write_bytes(lookup.read_bytes()[:-20])
    assert optimize_indices(Table(path), "x_idx").num_segments == 1
    assert num_read(path, "x = 205") == 1
    check_rows(path, ["x IS NULL", "x = 2999"])
    assert not caplog.messages


# Histories -------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def path(tmp_path, request):
    """Three fragments of 1000 rows; x in random order, every seventh is null."""
    path = str(tmp_path / "t")
    x = np.arange(3_000)
    shuffled = np.random.default_rng(5).permutation(x)
    table = pa.table(
        {"x": pa.array(shuffled, mask=shuffled % 7 == 0), "name": [f"n{i % 10}" for i in x]}
    )
    lance.write_dataset(table, path, max_rows_per_file=1_000, enable_stable_row_ids=request.param)
    return path


def append(path: str, first: int, count: int = 30) -> None:
    table = pa.table({"x": np.arange(first, first + count), "name": [f"n{first}"] * count})
    lance.write_dataset(table, path, mode="append")


def covered(path: str, name: str = "x_idx") -> list[list[int]]:
    return [list(i.fragment_bitmap) for i in Snapshot.open(Table(path)).indices if i.name == name]


def num_read(path: str, condition: str) -> int:
    return sum(map(len, retained_rows(path, condition).values()))


def test_index_status_reports_coverage_and_reason(path):
    for kind in ("btree", "bitmap", "bloomfilter", "zonemap"):
        create_index(Table(path), IndexRequest(("x",), kind, kind, rows_per_segment=2_000))
    append(path, 10_000)
    delete_rows(path, "x < 10")
    facts = index_status(Snapshot.open(Table(path)))
    assert {(fact.name, fact.num_rows_uncovered) for fact in facts} == {
        (kind, 30) for kind in ("btree", "bitmap", "bloomfilter", "zonemap")
    }
    trees = [fact for fact in facts if fact.name == "btree"]
    assert sum(fact.num_rows + fact.num_rows_stale for fact in trees) == 3_000
    assert sum(fact.num_rows_stale for fact in trees) == 8
    assert all(fact.is_used and fact.note is None for fact in facts)
    # A row that was deleted before, the first one of a fragment, is in no zone.
    delete_rows(path, "_rowaddr = 0")
    create_index(Table(path), IndexRequest(("x",), "bloomfilter", replace=True, name="bloomfilter"))
    for file in Path(path).glob("_indices/*/bitmap_page_lookup.lance"):
        file.unlink()
    facts = {fact.name: fact for fact in index_status(Snapshot.open(Table(path)))}
    assert facts["bloomfilter"].is_used
    assert "does not have all rows of" in facts["bloomfilter"].note
    assert not facts["bitmap"].is_used
    assert "cannot be read" in facts["bitmap"].note


def test_index_follows_table_changes(path):
    made = create_index(Table(path), IndexRequest(("x", "name"), rows_per_segment=1_500))
    assert (made.names, made.num_segments, made.num_rows) == (("x_idx", "name_idx"), 4, 6_000)
    assert covered(path) == [[0, 1], [2]]
    assert num_read(path, "x = 1234") == 1
    append(path, 10_000)
    assert num_read(path, "x = 10007") == 30
    done = refresh_indices(Table(path), "x_idx")
    assert (done.names, done.num_segments, done.num_rows) == (("x_idx",), 1, 30)
    assert covered(path) == [[0, 1], [2], [3]]
    assert covered(path, "name_idx") == [[0, 1], [2]]
    assert num_read(path, "x = 10007") == 1
    assert refresh_indices(Table(path), "x_idx").version is None
    set_to(path, "x = 1234", x=20_000)
    delete_rows(path, "x = 1235")
    assert matching(path, "x = 1234").num_rows == 0
    assert matching(path, "x = 20000").num_rows == 1
    done = optimize_indices(Table(path), rows_per_segment=10_000)
    assert done.names == ("x_idx", "name_idx")
    assert len(covered(path)) == len(covered(path, "name_idx")) == 1
    assert num_read(path, "x = 20000") == 1
    assert optimize_indices(Table(path), rows_per_segment=10_000).version is None
    compact(Table(path))
    refresh_indices(Table(path))
    assert num_read(path, "x = 20000") == 1
    assert [n for part in covered(path) for n in part] == [
        f.id for f in Snapshot.open(Table(path)).manifest.fragments
    ]
    assert drop_index(Table(path), "x_idx").version is not None
    assert [fact.name for fact in index_status(Snapshot.open(Table(path)))] == ["name_idx"]
    assert not verify(Table(path)).errors


@pytest.mark.parametrize("kind", ["btree", "bitmap"])
def test_pylance_and_package_alternately_extend_indices(path, kind):
    create_index(Table(path), IndexRequest(("x",), kind))
    dataset = lance.dataset(path)
    assert dataset.stats.index_stats("x_idx")["index_type"] == SHOWN[kind]
    for turn in range(4):
        append(path, 10_000 * (turn + 1))
        dataset = lance.dataset(path)
        if turn % 2:
            refresh_indices(Table(path))
        else:
            dataset.optimize.optimize_indices(num_indices_to_merge=turn)
        dataset.update({"x": "x + 100000"}, where=f"x > 2990 AND x < {2994 + turn}")
        dataset = lance.dataset(path)
        for query in ("x = 205", "x IS NULL", "x > 2990", "x IN (10007, 30001)"):
            with_index, without = (
                sorted(dataset.scanner(filter=query, use_scalar_index=use, with_row_address=True)
                       .to_table()["_rowaddr"].to_pylist())
                for use in (True, False)
            )  # fmt: skip
            assert with_index == without == sorted(matching(path, query)["_rowaddr"].to_pylist())
        plan = dataset.scanner(filter="x = 205").explain_plan()
        assert f"@x_idx({SHOWN[kind]})" in plan
    assert num_read(path, "x = 205") <= 31
    dataset.validate()


@pytest.mark.parametrize("kind", ["btree", "bitmap", "label_list"])
def test_moved_rows_are_not_found_by_old_values(tmp_path, kind):
    """Pylance asks all segments of a row, where rows have ids, wherever the row is now."""
    path = str(tmp_path / "t")
    lists = [None, *([n % 10] for n in range(99))]
    values = pa.array(lists) if kind == "label_list" else pa.array(range(100))
    rows = pa.table({"n": range(100), "c": values})
    lance.write_dataset(rows, path, max_rows_per_file=50, enable_stable_row_ids=True)
    create_index(Table(path), IndexRequest(("c",), kind))
    is_list = kind == "label_list"
    dataset = lance.dataset(path)
    dataset.update({"c": "make_array(CAST(99 AS bigint))" if is_list else "99"}, where="n < 7")
    refresh_indices(Table(path))
    queries = [f"array_has(c, {n})" if is_list else f"c = {n}" for n in (3, 99)]
    for query in [*queries, *(f"NOT ({query})" for query in queries)]:
        with_index, without = (
            sorted(lance.dataset(path).scanner(filter=query, use_scalar_index=use)
                   .to_table()["n"].to_pylist())
            for use in (True, False)
        )  # fmt: skip
        assert with_index == without, query
    assert len(covered(path, "c_idx")) == (2 if kind == "btree" else 1)


@pytest.mark.parametrize("sets", [2, 10_000])
def test_named_rows_are_checked_in_bounded_batches(tmp_path, monkeypatch, sets):
    monkeypatch.setattr(index_plan, "_SETS_AT_ONCE", sets)
    monkeypatch.setattr(index_plan, "_ROWS_AT_ONCE", 3)
    path = str(tmp_path / "t")
    rows = pa.table({"c": pa.array([n % 7 for n in range(40)])})
    lance.write_dataset(rows, path, max_rows_per_file=20, enable_stable_row_ids=True)
    create_index(Table(path), IndexRequest(("c",), "bitmap"))
    snapshot = Snapshot.open(Table(path))
    (entry,) = snapshot.indices
    assert not references_moved_rows(snapshot, entry, [0, 1])
    assert references_moved_rows(snapshot, entry, [0]) and references_moved_rows(
        snapshot, entry, [1]
    )
    for num_bytes in (150, 1):  # of one or two sets, or of less than one
        monkeypatch.setattr(index_plan, "_SET_BYTES_AT_ONCE", num_bytes)
        assert not references_moved_rows(snapshot, entry, [0, 1])
        assert references_moved_rows(snapshot, entry, [0])


def range_of(count):
    rows = BitMap()
    rows.add_range(0, count)
    return rows


def test_full_row_set_is_bounded_by_table_rows(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"c": pa.array(range(40))})
    lance.write_dataset(rows, path, max_rows_per_file=20, enable_stable_row_ids=True)
    create_index(Table(path), IndexRequest(("c",), "bitmap"))
    snapshot = Snapshot.open(Table(path))
    (entry,) = snapshot.indices
    every = pack_tree_map({high: range_of(1 << 32) for high in (0, 7)})
    schema = schema_of([("keys", pa.int64(), True), ("bitmaps", pa.binary(), True)])
    (Path(path) / "_indices" / str(entry.uuid) / BITMAP_FILE).unlink()
    with SegmentOutput(snapshot.files.store_of(None), entry.uuid, BITMAP_FILE, schema) as output:
        output.write(pa.record_batch([[1], [every]], schema=schema))
    hostile = replace(entry, file_sizes={BITMAP_FILE: output.size_bytes})
    assert not references_moved_rows(snapshot, hostile, [0, 1])
    assert references_moved_rows(snapshot, hostile, [0])


@pytest.mark.parametrize("kind", ["btree", "bitmap", "zonemap"])
def test_null_packed_members_are_indexed_as_null(tmp_path, kind):
    path = str(tmp_path / "t")
    x, y = pa.array(range(100)), pa.array(range(100))
    structs = pa.StructArray.from_arrays([x, y], ["x", "y"], mask=pc.less(x, 10))
    field = pa.field("s", structs.type, metadata={"lance-encoding:packed": "true"})
    rows = pa.table([structs, x], schema=pa.schema([field, ("n", pa.int64())]))
    lance.write_dataset(rows, path, data_storage_version="2.1")
    create_index(Table(path), IndexRequest(("s.x",), kind))
    for condition, expected in (
        ("s.x IS NULL", list(range(10))),
        ("s.x = 3", []),
        ("s.x = 13", [13]),
    ):
        scanner = lance.dataset(path).scanner(filter=condition)
        assert f"@s.x_idx({SHOWN[kind]})" in scanner.explain_plan()
        assert scanner.to_table()["n"].to_pylist() == expected
        assert matching(path, condition)["n"].to_pylist() == expected


def test_changed_null_list_rebuilds_segment(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"n": range(100), "c": [None, *([n % 10] for n in range(99))]})
    lance.write_dataset(rows, path, max_rows_per_file=50, enable_stable_row_ids=True)
    create_index(Table(path), IndexRequest(("c",), "label_list"))
    lance.dataset(path).update({"c": "make_array(CAST(99 AS bigint))"}, where="n = 0")
    refresh_indices(Table(path))
    assert len(covered(path, "c_idx")) == 1


def test_segment_without_remaining_fragments_is_removed(tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 10):
        lance.write_dataset(pa.table({"c": range(first, first + 10)}), path, mode="append")
        if not first:
            create_index(Table(path), IndexRequest(("c",)))
    refresh_indices(Table(path))
    assert len(covered(path, "c_idx")) == 2
    delete_rows(path, "c >= 10")
    assert len(covered(path, "c_idx")) == 2
    refresh_indices(Table(path))
    assert len(covered(path, "c_idx")) == 1


def test_row_beyond_fragment_end_is_corrupt(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"c": range(10)}), path)
    snapshot = Snapshot.open(Table(path))
    live = merged_segments.LiveRows(snapshot.files, tuple(snapshot.manifest.fragments), False)
    assert live.are_among(row_addresses(0, np.array([9]))).all()
    with pytest.raises(CorruptFileError, match="beyond the end of a fragment"):
        live.are_among(row_addresses(0, np.array([10])))


def test_values_changed_in_place_are_reindexed(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table({"n": pa.array(range(2_000), pa.int32()), "i": range(2_000)})
    lance.write_dataset(table, path, max_rows_per_file=1_000)
    create_index(Table(path), IndexRequest(("i", "n")))
    change_in_place(path, 0)
    assert covered(path, "i_idx") == [[1]]
    refresh_indices(Table(path))
    assert covered(path, "i_idx") == [[1], [0]]
    assert covered(path, "n_idx") == [[0, 1]]
    assert matching(path, "i < 0")["n"].to_pylist() == [3]
    assert num_read(path, "i < 0") == 1
    assert lance.dataset(path).to_table(filter="i < 0")["n"].to_pylist() == [3]


@pytest.mark.parametrize("by", ["compact", "in place"])
def test_concurrent_row_changes_conflict_with_index_build(tmp_path, by):
    path = str(tmp_path / "t")
    table = pa.table({"n": pa.array(range(100), pa.int32()), "i": range(100)})
    lance.write_dataset(table, path, max_rows_per_file=50)
    plan = plan_index(Table(path), IndexRequest(("i",)), ChangeSettings())
    built = [task.run() for task in plan.tasks]
    assert len(list(Path(path).glob("_indices/*/*"))) == 2
    if by == "compact":
        compact(Table(path))
    else:
        change_in_place(path, 0)
    work = UnitOfWork(Table(path), ChangeSettings())
    with pytest.raises(RetryableCommitError):
        work.once(lambda unit: commit_index(plan, built, unit))
    assert not list(Path(path).glob("_indices/*/*"))


@pytest.mark.parametrize("kind", ["btree", "bloomfilter", "zonemap"])
def test_index_dropped_during_refresh_stays_dropped(path, kind):
    create_index(Table(path), IndexRequest(("x",), kind))
    append(path, 10_000)
    plan = plan_index_refresh(Table(path), "x_idx", ChangeSettings())
    built = [task.run() for task in plan.tasks]
    drop_index(Table(path), "x_idx")
    with pytest.raises(RetryableCommitError):
        UnitOfWork(Table(path), ChangeSettings()).once(lambda unit: commit_index(plan, built, unit))
    assert not index_status(Snapshot.open(Table(path)))
    assert refresh_indices(Table(path)).version is None
    check_rows(path, ["x = 205", "x = 10007"])


@pytest.mark.parametrize("kind", ["btree", "bloomfilter"])
def test_drop_removes_concurrently_added_segments(path, kind):
    create_index(Table(path), IndexRequest(("x",), kind))
    dropped = Snapshot.open(Table(path))
    append(path, 10_000)
    refresh_indices(Table(path))
    work = UnitOfWork(Table(path), ChangeSettings())
    operation = CreateIndex(removed_indices=dropped.indices)
    with pytest.raises(RetryableCommitError):
        work.once(
            lambda unit: unit.commit(unit.propose(BaseVersion.of(dropped.manifest), operation))
        )
    drop_index(Table(path), "x_idx")
    assert not index_status(Snapshot.open(Table(path)))


def test_concurrent_appends_allow_index_build(path):
    plan = plan_index(Table(path), IndexRequest(("x",)), ChangeSettings())
    built = [task.run() for task in plan.tasks]
    append(path, 10_000)
    delete_rows(path, "x = 3")
    work = UnitOfWork(Table(path), ChangeSettings())
    assert work.once(lambda unit: commit_index(plan, built, unit)).version == 4
    assert covered(path) == [[0, 1, 2]]
    assert num_read(path, "x = 205") == 31


def test_existing_index_requires_replace(path):
    create_index(Table(path), IndexRequest(("x",)))
    with pytest.raises(InvalidInputError, match="there is an index 'x_idx'"):
        create_index(Table(path), IndexRequest(("x",)))
    create_index(Table(path), IndexRequest(("x",), replace=True, rows_per_segment=1_000))
    assert covered(path) == [[0], [1], [2]]
    create_index(Table(path), IndexRequest(("x",), "bitmap"))
    create_index(Table(path), IndexRequest(("name",), "bitmap", "mine"))
    names = [fact.name for fact in index_status(Snapshot.open(Table(path)))]
    assert names == ["x_idx"] * 3 + ["x_bitmap_idx", "mine"]
    with pytest.raises(InvalidInputError, match="there is an index 'mine'"):
        create_index(Table(path), IndexRequest(("x",), "btree", "mine"))


def test_files_of_replaced_indices_are_cleaned_up(path):
    for _ in range(3):
        create_index(Table(path), IndexRequest(("x",), replace=True))
    assert len(list(Path(path).glob("_indices/*"))) == 3
    cleanup_old_versions(
        Table(path), CleanupPolicy(retain_versions=1, older_than_s=0, delete_unverified=True)
    )
    assert num_read(path, "x = 205") == 1
    assert len(list(Path(path).glob("_indices/*/*"))) == 2


def test_unindexable_columns_are_refused(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table(
        {
            "x": [1], "l": [[1]], "o": [{"x": 1}], "s": pa.array(["a"]).dictionary_encode(),
            "b": [True], "t": ["abc"],
        }
    )  # fmt: skip
    lance.write_dataset(table, path)
    for kind, names in (
        ("btree", "los"), ("bitmap", "los"), ("label_list", "xos"), ("bloomfilter", "losb"),
        ("zonemap", "lo"), ("ngram", "xlosb"),
    ):  # fmt: skip
        for name in names:
            with pytest.raises(UnsupportedFeatureError, match=f"the column '{name}' of type"):
                create_index(Table(path), IndexRequest((name,), kind))
    for request in (
        IndexRequest(("y",)), IndexRequest(("o.y",)), IndexRequest(("x", "X")), IndexRequest(()),
        IndexRequest(("x",), "hash"), IndexRequest(("x", "o.x"), name="both"),
        IndexRequest(("x",), name="__lance_frag_reuse"), IndexRequest(("x",), rows_per_zone=8),
        IndexRequest(("x",), "bloomfilter", rows_per_zone=0),
        IndexRequest(("x",), "zonemap", rows_per_zone=0),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            create_index(Table(path), request)
    for act in (refresh_indices, optimize_indices, drop_index):
        with pytest.raises(InvalidInputError, match="there is no index 'x_idx'"):
            act(Table(path), "x_idx")
    lance.dataset(path).create_scalar_index("t", IndexConfig("fm", {}))
    with pytest.raises(InvalidInputError, match=r"'ivf_pq' is not a kind[\s\S]*createVectorIndex"):
        create_index(Table(path), IndexRequest(("x",), "ivf_pq"))
    with pytest.raises(InvalidInputError, match="not one of the kinds"):
        refresh_indices(Table(path), "t_idx")
    assert not list(Path(path).glob("_indices/*/page_*"))


def test_index_of_empty_table_is_extended_later(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": pa.array([], pa.int64())}), path)
    assert create_index(Table(path), IndexRequest(("x",))).num_rows == 0
    assert lance.dataset(path).to_table(filter="x = 2").num_rows == 0
    rows = pa.table({"x": pa.array(range(1_000), pa.int64())})
    lance.write_dataset(rows, path, mode="append")
    assert refresh_indices(Table(path)).num_rows == 1_000
    assert len(covered(path)) == 1
    assert num_read(path, "x = 3") == 1
    assert "@x_idx(BTree)" in lance.dataset(path).scanner(filter="x = 2").explain_plan()
    delete_rows(path, "x >= 0")
    create_index(Table(path), IndexRequest(("x",), replace=True))
    assert lance.dataset(path).to_table(filter="x = 2").num_rows == 0
