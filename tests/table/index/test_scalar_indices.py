"""Scans that ask B-trees and bitmaps find what scans without them find, also after changes."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.indices import IndexConfig
from local_changes import commit_rewritten, delete_rows
from pyroaring import BitMap
from random_seeds import seeds
from row_changes import set_to
from zone_map_tables import (
    COLUMNS,
    LISTS,
    STRUCT,
    change,
    change_ours,
    check_rows,
    matching,
    parse,
    retained_rows,
    some_rows,
    with_lists,
)

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.format.index_metadata import indices_from_section, section_of_indices
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.manifest_file import encode_manifest
from pyspark_lance.proto import table_pb2
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.index.bloom import bytes_of_values
from pyspark_lance.table.index.index_status import index_status
from pyspark_lance.table.index.lookups import Candidates, indexed_columns
from pyspark_lance.table.scan import fragment_pruning
from pyspark_lance.table.scan.scan_statistics import prune_scan
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

# Those of which a bloom filter can be made.
HASHED = ("i", "n", "f", "h", "s", "y", "d", "t", "m", "u")


def index_of(path: str, column: str, kind: str, rng: random.Random) -> None:
    config = {
        "BTREE": IndexConfig("btree", {"zone_size": rng.choice([4, 16, 4096])}),
        "BLOOMFILTER": IndexConfig(
            "bloomfilter", {"number_of_items": rng.choice([4, 10, 8192]), "probability": 0.01}
        ),
    }
    lance.dataset(path).create_scalar_index(
        column, config.get(kind, kind), name=f"{column}_{kind}".replace(".", "_")
    )


def a_leaf(rng: random.Random) -> str:
    name = rng.choice([*COLUMNS, f"{STRUCT}.x", LISTS])
    if name == LISTS:
        _, values, spell = COLUMNS["s"]
        return rng.choice([f"array_contains(l, {spell(rng.choice(values))})", "l IS NULL"])
    _, values, spell = COLUMNS["i" if "." in name else name]
    spelled = [spell(rng.choice(values)) for _ in range(3)]
    choices = [
        f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {spelled[0]}",
        f"{name} {rng.choice(['', 'NOT '])}IN ({', '.join(spelled)})",
        f"{name} IN ({spelled[0]}, NULL)",
        f"{name} BETWEEN {spelled[0]} AND {spelled[1]}",
        f"{name} IS {rng.choice(['', 'NOT '])}NULL",
        f"{name} <=> NULL",
    ]
    if name in ("f", "h"):
        choices += [f"isnan({name})", f"{name} = 0.0", f"{name} < 0.0"]
    if name == "s":
        choices += ["s LIKE 'a%'", "s NOT LIKE '%b%'", "upper(s) = 'AB'"]
    if name == "b":
        choices += ["b", "NOT b"]
    return rng.choice(choices)


def a_condition(rng: random.Random, depth: int = 2) -> str:
    if depth and rng.random() < 0.5:
        terms = [a_condition(rng, depth - 1) for _ in range(2)]
        return rng.choice(["({} AND {})", "({} OR {})", "NOT ({})"]).format(*terms)
    return a_leaf(rng)


@pytest.fixture
def no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Indices are asked for tables of a few rows, too, and used at any selectivity."""
    monkeypatch.setattr(fragment_pruning, "SMALL_ROW_COUNT", 0)
    monkeypatch.setattr(fragment_pruning, "_MAX_SHARE", 1.0)
    yield


def put_off_remapping(path: str, stable: bool) -> None:
    if not stable:
        lance.dataset(path).optimize.compact_files(
            target_rows_per_fragment=100, defer_index_remap=True
        )


@pytest.mark.parametrize("seed", seeds(30, in_ci=2))
def test_indexed_scans_return_same_rows_as_plain_scans(tmp_path, seed, no_table_is_small, caplog):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    stable = rng.random() < 0.6
    rows = with_lists(some_rows(rng, rng.randint(1, 150)), rng)
    lance.write_dataset(
        rows, path, max_rows_per_file=rng.choice([20, 60, 1000]),
        enable_stable_row_ids=stable, data_storage_version=rng.choice(["2.1", "2.2"]),
    )  # fmt: skip
    for _ in range(rng.randint(0, 2)):
        change(path, rng)
    for column in rng.sample([*COLUMNS, f"{STRUCT}.x"], 9):
        kinds = ["BTREE", "BITMAP", *(["BLOOMFILTER"] if column in HASHED else [])]
        for kind in rng.sample(kinds, rng.choice([1, 1, 2])):
            index_of(path, column, kind, rng)
    index_of(path, LISTS, "LABEL_LIST", rng)
    for _ in range(rng.randint(1, 6)):
        rng.choice([change, change, change_ours])(path, rng)
        if rng.random() < 0.2:
            put_off_remapping(path, stable)
        check_rows(path, [a_condition(rng) for _ in range(6)])
    lance.dataset(path).validate()
    check_rows(path, [a_leaf(rng) for _ in range(40)] + [a_condition(rng) for _ in range(20)])
    version = VersionSpec(version=rng.randint(1, lance.dataset(path).version))
    check_rows(path, [a_condition(rng) for _ in range(5)], version)
    assert not caplog.messages


# Which rows are read ---------------------------------------------------------------------------

ROWS = 40_000


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable"])
def original(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    """Four fragments of 10,000 rows; ids in random order, 40 kinds, each row of one in 40."""
    path = str(tmp_path_factory.mktemp("original") / "t")
    numbers = np.arange(ROWS)
    table = pa.table(
        {
            "id": np.random.default_rng(7).permutation(ROWS),
            "kind": pa.array([f"k{number % 40}" if number % 41 else None for number in numbers]),
            "flag": numbers % 2 == 0,
            "n": numbers,
        }
    )
    lance.write_dataset(table, path, max_rows_per_file=10_000, enable_stable_row_ids=request.param)
    for column, kind in (("id", "BTREE"), ("kind", "BITMAP"), ("flag", "BITMAP")):
        lance.dataset(path).create_scalar_index(column, kind)
    return path


@pytest.fixture
def path(original: str, tmp_path: Path) -> str:
    """A table for one test alone."""
    return shutil.copytree(original, str(tmp_path / "t"))


def num_read(path: str, condition: str) -> int:
    return sum(map(len, retained_rows(path, condition).values()))


def test_candidates_keep_uncovered_rows():
    ids, rows = np.array([0, 1], np.uint64), np.array([3, 5, 1 << 32 | 7], np.uint64)
    one = Candidates(ids, rows, frozenset({"a"}))
    ids, rows = np.array([0, 2], np.uint64), np.array([5, 2 << 32 | 9], np.uint64)
    other = Candidates(ids, rows, frozenset({"b"}))
    for both in (one.both(other), other.both(one)):
        assert both.indices == {"a", "b"}
        assert both.fragments.tolist() == [0, 1, 2]
        assert both.addresses.tolist() == [5, 1 << 32 | 7, 2 << 32 | 9]
    assert one.either(other).fragments.tolist() == [0]
    assert one.either(other).addresses.tolist() == [3, 5]


def test_only_rows_named_by_index_are_read(path):
    assert num_read(path, "id = 17") == 1
    assert num_read(path, "id IN (1, 2, 3, 39999, 40000)") == 4
    assert num_read(path, "id >= 100 AND id < 200") == 100
    assert num_read(path, "NOT (id < 39990)") == 10
    assert num_read(path, "kind = 'k7'") == matching(path, "kind = 'k7'").num_rows < 1000
    assert num_read(path, "kind IS NULL") == 976
    assert num_read(path, "kind = 'k7' AND flag") == 0
    assert num_read(path, "upper(kind) = 'K7' AND id < 100") < 10
    assert num_read(path, "id = 1 OR kind = 'k7' AND id < 100") < 10
    assert num_read(path, "id = -1") == 0
    for condition in ("id = 17", "kind = 'k7'", "id = 1 OR kind = 'k7' AND id < 100"):
        check_rows(path, [condition])


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("has_null", [False, True])
def test_negative_nan_is_greatest_in_queries(tmp_path, kind, has_null):
    path = str(tmp_path / "t")
    values = np.arange(1, 2_001).astype(kind.to_pandas_dtype())
    values[5], values[6], values[7], values[8] = -np.nan, np.nan, -0.0, 0.0
    table = pa.table({"f": pa.array(values, kind, mask=np.arange(2_000) == 9)})
    if not has_null:
        table = table.filter(pc.is_valid(table["f"]))
    lance.write_dataset(table, path)
    assert np.signbit(lance.dataset(path).to_table()["f"].to_numpy()[5])
    lance.dataset(path).create_scalar_index("f", IndexConfig("btree", {"zone_size": 100}))
    assert num_read(path, "f < 4") == matching(path, "f < 4").num_rows == 5
    assert num_read(path, "f > 1999") == matching(path, "f > 1999").num_rows == 3
    assert num_read(path, "f = double('nan')") == num_read(path, "isnan(f)") == 2
    assert num_read(path, "f = 0.0") == num_read(path, "f IN (-0.0D)") == 2
    conditions = ["f < 4", "f > 1999", "f >= double('nan')", "isnan(f)", "f = 0", "f < 0", "f <= 0"]
    check_rows(path, [*conditions, "f IS NULL", "NOT (f < 1999)", "f <=> NULL OR f > 1999"])


def test_unselective_or_partly_indexed_conditions_read_all_rows(path):
    assert num_read(path, "flag") == ROWS
    assert num_read(path, "id >= 100") == ROWS
    assert num_read(path, "kind <> 'k7'") == ROWS
    assert num_read(path, "id = 17 OR n = 3") == ROWS
    assert num_read(path, "NOT (id = 17 AND n = 3)") == ROWS
    assert num_read(path, "id = 17 AND n = 3") == 1
    # A cast that can fail does so on the rows that are read, as without an index.
    assert num_read(path, "CAST(kind AS int) = 3") == ROWS


def test_uncovered_rows_are_read(path):
    new = pa.table(
        {
            "id": [17, *range(50_001, 50_010)],
            "kind": ["k7"] * 10,
            "flag": [True, None] * 5,
            "n": range(10),
        }
    )
    lance.write_dataset(new, path, mode="append")
    assert num_read(path, "id = 17") == 11
    assert len(matching(path, "id = 17")) == 2
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    assert len({index.name for index in Snapshot.open(Table(path)).indices}) == 3
    assert len(Snapshot.open(Table(path)).indices) == 6
    assert num_read(path, "id = 17") == 2
    check_rows(path, ["id = 17", "kind = 'k7' AND id = 17", "kind = 'k7'"])


def test_index_ignores_rows_of_rewritten_column(path, caplog):
    plan = plan_change(Table(path))
    request = plan_rewrite(plan.snapshot(), ["id"])
    address = pa.array([3 << 32 | 5], pa.uint64())
    changed = pa.record_batch([address, pa.array([50_000])], ["_rowaddr", "id"])
    old = lance.dataset(path).to_table()["id"][30_005].as_py()
    commit_rewritten(plan, request, list(rewrite_columns(request, [changed])))
    # The last fragment is not covered, though the index still names its rows.
    assert num_read(path, f"id = {old}") == 10_000
    check_rows(path, [f"id = {old}", "id = 50000", f"id IN ({old}, 17)"])
    assert not caplog.messages


def test_updated_rows_are_found_at_new_addresses(path):
    lance.dataset(path).update({"id": "id + 100000", "kind": "'new'"}, where="id = 17")
    assert matching(path, "id = 17").num_rows == 0
    assert matching(path, "id = 100017")["kind"].to_pylist() == ["new"]
    assert num_read(path, "id = 100017") == 1
    lance.dataset(path).delete("id = 18")
    assert matching(path, "id = 18").num_rows == 0
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=100_000)
    check_rows(path, ["id = 19", "kind = 'k7'", "kind = 'new'", "id = 100017"])


def test_old_versions_and_branches_use_own_indices(path):
    before = lance.dataset(path).version
    lance.dataset(path).create_branch("b")
    lance.dataset(path).drop_index("id_idx")
    assert num_read(path, "id = 17") == ROWS
    snapshot = Snapshot.open(Table(path), VersionSpec(version=before))
    (part,) = fragment_pruning.prune_splits(snapshot, parse(snapshot, "id = 17"))
    assert len(part.offsets) == 1
    branch = Snapshot.open(Table(path, branch="b"))
    (part,) = fragment_pruning.prune_splits(branch, parse(branch, "id = 17"))
    assert len(part.offsets) == 1
    check_rows(path, ["id = 17"], VersionSpec(version=before))


def test_index_with_deferred_remap_uses_reuse_index(tmp_path):
    path = str(tmp_path / "t")
    ids = np.random.default_rng(3).permutation(20_000)
    lance.write_dataset(pa.table({"id": ids}), path, max_rows_per_file=2_000)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    lance.dataset(path).delete("id % 10 = 3")
    lance.dataset(path).optimize.compact_files(
        target_rows_per_fragment=9_000, defer_index_remap=True
    )
    assert num_read(path, "id = 17") == 1
    assert num_read(path, "id = 13") == 0
    check_rows(path, ["id = 17", "id = 13", "id BETWEEN 100 AND 300"])


def some_numbers(n: int) -> list[float | None] | None:
    if n % 5 == 0:
        return [float(n % 900), None]
    return [float("nan")] if n % 991 == 1 else [-0.0] if n % 997 == 3 else None


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def many_kinds(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Two fragments of 20,000 rows with lists, and values of one zone of 2,000 rows each."""
    path = str(tmp_path / "m")
    numbers = np.arange(ROWS)
    zones = numbers // 2_000
    words = [None if 6_000 <= n < 6_010 else f"w{n // 2_000}" for n in range(ROWS)]
    table = pa.table(
        {
            "n": numbers,
            "tags": [
                [f"t{n % 500}", f"u{n % 7}"] if n % 3 else [] if n % 2 else None
                for n in range(ROWS)
            ],
            "numbers": [some_numbers(n) for n in range(ROWS)],
            "word": words,
            "value": zones.astype(np.float32),
            "byte": zones.astype(np.int8),
        }
    )
    lance.write_dataset(table, path, max_rows_per_file=20_000, enable_stable_row_ids=request.param)
    dataset = lance.dataset(path)
    for column in ("tags", "numbers"):
        dataset.create_scalar_index(column, "LABEL_LIST")
    config = IndexConfig("bloomfilter", {"number_of_items": 2_000, "probability": 0.001})
    for column in ("word", "value", "byte"):
        dataset.create_scalar_index(column, config)
    return path


def test_label_list_index_finds_list_elements(many_kinds):
    path = many_kinds
    everything = lance.dataset(path).to_table(["tags"])["tags"].to_pylist()
    wanted = sum(tags is not None and "t7" in tags for tags in everything)
    assert num_read(path, "array_contains(tags, 't7')") == wanted == 53
    assert num_read(path, "array_contains(tags, 't7') AND array_contains(tags, 'u1')") < wanted
    assert num_read(path, "array_contains(tags, 'no such')") == 0
    assert num_read(path, "NOT array_contains(tags, 't7')") == ROWS
    assert num_read(path, "tags IS NULL") == ROWS
    # All NaN are one value, and both zeros.
    assert num_read(path, "array_contains(numbers, double('nan'))") == 33
    assert matching(path, "array_contains(numbers, 0.0D)").num_rows == 45 + 33
    conditions = [
        "array_contains(numbers, 5.0D)",
        "NOT array_contains(numbers, 5.0D)",
        "array_contains(tags, 't7') OR array_contains(tags, 'u9')",
        "array_contains(numbers, double('nan'))",
        "array_contains(numbers, 0.0D)",
    ]
    check_rows(path, conditions)


def test_bloom_filters_prune_zones(many_kinds):
    path = many_kinds
    for condition in (
        "word = 'w3'", "value = 3", "value = 3.0D", "byte = 3", "byte IN (3, 3000)",
        "byte = 3 AND n > 0", "word IN ('w3', NULL)", "'w3' = word", "word <=> 'w3'",
    ):  # fmt: skip
        rows = retained_rows(path, condition)
        assert len(rows[0]) < 5_000 and set(range(6_010, 8_000)) <= set(rows[0]), condition
        check_rows(path, [condition])
    assert num_read(path, "word IS NULL") == 2_000
    assert num_read(path, "word = 'w3' OR word IS NULL") < 8_000
    assert num_read(path, "byte = 300") == 0
    assert num_read(path, "value = 3.3D") == 0
    for condition in ("word > 'w8'", "value = double('nan')", "word <> 'w3'", "word IS NOT NULL",
                      "(word IN ('w3', NULL)) IS NULL", "n = 3 OR word = 'w3'"):  # fmt: skip
        assert num_read(path, condition) == ROWS, condition
        check_rows(path, [condition])
    lance.dataset(path).delete("n >= 100 AND n < 200")
    check_rows(path, ["byte = 3", "byte = 0"])
    # An index that names the rows themselves leaves nothing to one that names zones.
    config = IndexConfig("bloomfilter", {"number_of_items": 2_000, "probability": 0.001})
    for kind in (config, "BTREE"):
        lance.dataset(path).create_scalar_index("n", kind, name=f"n_{len(str(kind))}")
    assert num_read(path, "n = 3000") == 1


# Scans that use them ----------------------------------------------------------------------------


def without_other_files(path: str, condition: str) -> None:
    """Take away the data files of fragments that have no row for which ``condition`` is true."""
    snapshot = Snapshot.open(Table(path))
    wanted = retained_rows(path, condition)
    for fragment in snapshot.manifest.fragments:
        if fragment.id not in wanted:
            for file in fragment.files:
                snapshot.store.delete(f"data/{file.path}")


def test_deletes_and_updates_use_index(path):
    without_other_files(path, "id = 17")
    set_to(path, "id = 17", n=-1)
    assert matching(path, "id = 17")["n"].to_pylist() == [-1]
    delete_rows(path, "id = 17")
    assert matching(path, "id = 17").num_rows == 0


def test_prune_scan_reports_remaining_rows_before_reading(path):
    snapshot = Snapshot.open(Table(path))
    assert prune_scan(snapshot, parse(snapshot, "id = 17")) == (1, 1, ("id_idx (btree)",))
    assert prune_scan(snapshot, parse(snapshot, "id IN (17, -5) AND kind = 'no'")) == (
        0,
        0,
        ("id_idx (btree)", "kind_idx (bitmap)"),
    )
    assert indexed_columns(snapshot) == ("id", "kind", "flag")


def test_index_status_reports_whether_indices_are_used(path):
    new = pa.table({"id": [17], "kind": ["k7"], "flag": [True], "n": [-1]})
    lance.write_dataset(new, path, mode="append")
    lance.dataset(path).create_scalar_index("n", "ZONEMAP")
    lance.dataset(path).delete("n = 3")
    lance.dataset(path).create_scalar_index("kind", "NGRAM", name="grams")
    lance.dataset(path).create_scalar_index("kind", "INVERTED", name="words")
    facts = {index.name: index for index in index_status(Snapshot.open(Table(path)))}
    assert {
        name: (index.kind, index.columns, index.num_fragments, index.num_rows, index.is_used)
        for name, index in facts.items()
    } == {
        "id_idx": ("btree", ("id",), 4, ROWS - 1, True),
        "kind_idx": ("bitmap", ("kind",), 4, ROWS - 1, True),
        "flag_idx": ("bitmap", ("flag",), 4, ROWS - 1, True),
        "n_idx": ("zonemap", ("n",), 5, ROWS, True),
        "grams": ("ngram", ("kind",), 5, ROWS, True),
        "words": ("inverted", ("kind",), 5, ROWS, True),
    }
    assert facts["id_idx"].note is None and facts["id_idx"].num_bytes > 100_000
    for file in Path(path, "_indices").glob("*/page_lookup.lance"):
        file.write_bytes(file.read_bytes()[:100])
    lance.dataset(path).delete("n = 4")  # a version that is not cached
    (broken,) = [one for one in index_status(Snapshot.open(Table(path))) if one.name == "id_idx"]
    assert not broken.is_used and "it cannot be read" in broken.note


# What is not known, and what is damaged --------------------------------------------------------


def with_changed_entries(path: str, change_entry) -> None:
    """The newest manifest with other index entries."""
    snapshot = Snapshot.open(Table(path))
    section = table_pb2.IndexSection.FromString(section_of_indices(snapshot.indices))
    for entry in section.indices:
        change_entry(entry)
    indices = indices_from_section(section.SerializeToString())
    snapshot.store.put(
        snapshot.file.location.path, encode_manifest(snapshot.manifest, indices, None)
    )


def set_version(entry) -> None:
    entry.index_version = 7


def set_kind(entry) -> None:
    entry.index_details.type_url = "/lance.table.WonderIndexDetails"


def set_no_slash(entry) -> None:
    entry.index_details.type_url = entry.index_details.type_url.rpartition("/")[2]


def set_fields(entry) -> None:
    entry.fields.append(entry.fields[0])


def set_no_bitmap(entry) -> None:
    entry.fragment_bitmap = b""


def set_covering(entry) -> None:
    entry.covering_fields.append(0)


@pytest.mark.parametrize(
    "change_entry",
    [set_version, set_kind, set_no_slash, set_fields, set_no_bitmap, set_covering],
    ids=lambda function: function.__name__,
)
def test_unknown_index_entry_is_ignored(path, change_entry, caplog):
    with_changed_entries(path, change_entry)
    assert num_read(path, "id = 17") == ROWS
    assert num_read(path, "kind = 'k7'") == ROWS
    assert matching(path, "id = 17").num_rows == 1
    assert not caplog.messages


def test_type_url_host_is_ignored(path):
    def change_entry(entry) -> None:
        entry.index_details.type_url = "type.googleapis.com" + entry.index_details.type_url

    with_changed_entries(path, change_entry)
    assert num_read(path, "id = 17") == 1


FILES = ("page_lookup.lance", "page_data.lance", "bitmap_page_lookup.lance")


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "longer", "noise"])
@pytest.mark.parametrize("name", FILES)
def test_damaged_index_file_is_logged_and_skipped(path, name, damage, caplog):
    for file in Path(path, "_indices").glob(f"*/{name}"):
        content = file.read_bytes()
        file.unlink()
        if damage != "missing":
            damaged = {
                "empty": b"",
                "cut": content[: len(content) // 2],
                "longer": content + content[-50:],
                "noise": bytes(len(content)),
            }[damage]
            file.write_bytes(damaged)
    condition, index = ("kind = 'k7'", "kind_idx") if "bitmap" in name else ("id = 17", "id_idx")
    check_rows(path, [condition])
    assert num_read(path, condition) == ROWS
    assert [index in message for message in caplog.messages] == [True]


def rewritten(path: str, name: str, change_rows, **metadata: str) -> None:
    """The files ``name`` of all indices with other rows, as a writer of nonsense leaves them."""

    def forget_sizes(entry) -> None:
        del entry.files[:]

    with_changed_entries(path, forget_sizes)
    for file in Path(path, "_indices").glob(f"*/{name}"):
        store = open_store(str(file.parent), {})
        reader = DataFileReader.open(store, name)
        fields, columns = reader.schema.fields, reader.embedded_columns()
        table = change_rows(
            pa.Table.from_batches([reader.read(fields, columns, 0, reader.num_rows)])
        )
        kept = dict(reader.schema.metadata) | {
            key: value.encode() for key, value in metadata.items()
        }
        schema = replace(LanceSchema.from_arrow(table.schema), metadata=kept)
        file.unlink()
        writer = DataFileWriter(store, name, schema, version="2.1")
        for batch in table.combine_chunks().to_batches():
            writer.write(batch)
        writer.finish()


def with_column(table: pa.Table, name: str, change_values) -> pa.Table:
    place = table.schema.get_field_index(name)
    values = change_values(table[name].to_numpy().copy())
    return table.set_column(place, table.schema.field(name), pa.array(values))


def swapped(values: np.ndarray) -> np.ndarray:
    values[[2, 3]] = values[[3, 2]]
    return values


def one_more(values: np.ndarray) -> np.ndarray:
    values[1] += 1
    return values


def far_away(values: np.ndarray) -> np.ndarray:
    """Rows right behind the end of their fragments."""
    return (values >> np.uint64(32) << np.uint64(32)) + np.uint64(10_000)


NONSENSE = {
    "the same": ("page_lookup.lance", lambda table: table, {}),
    "a page is missing": ("page_lookup.lance", lambda table: table.slice(1), {}),
    "other sizes of pages": ("page_lookup.lance", lambda table: table, {"batch_size": "100"}),
    "no size of pages": ("page_lookup.lance", lambda table: table, {"batch_size": "-1"}),
    "by range": ("page_lookup.lance", lambda table: table, {"range_partitioned": "true"}),
    "out of order": ("page_lookup.lance", lambda table: with_column(table, "min", swapped), {}),
    "pages change places": (
        "page_lookup.lance", lambda table: with_column(table, "page_idx", swapped), {}),
    "other nulls": (
        "page_lookup.lance", lambda table: with_column(table, "null_count", one_more), {}),
    "another end": ("page_lookup.lance", lambda table: with_column(table, "max", one_more), {}),
    "rows are missing": ("page_data.lance", lambda table: table.slice(0, 30_000), {}),
    "beyond fragments": ("page_data.lance", lambda table: with_column(table, "ids", far_away), {}),
    "another type": (
        "page_data.lance", lambda table: table.cast(
            pa.schema([("values", pa.int32()), ("ids", pa.uint64())])), {}),
    "all rows": (
        "bitmap_page_lookup.lance", lambda table: table.set_column(
            1, "bitmaps", pa.array([struct.pack("<III", 1, 0, 0)] * len(table), pa.binary())), {}),
    "no set": (
        "bitmap_page_lookup.lance", lambda table: table.set_column(
            1, "bitmaps", pa.array([b"\x05\0\0\0\1"] * len(table), pa.binary())), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", NONSENSE)
def test_inconsistent_index_is_logged_and_skipped(path, case, caplog):
    name, change_rows, metadata = NONSENSE[case]
    rewritten(path, name, change_rows, **metadata)
    column, other = ("id", "kind") if name.startswith("page") else ("kind", "id")
    conditions = {"id": "id > 4000 AND id < 4100", "kind": "kind = 'k7'"}
    check_rows(path, list(conditions.values()))
    is_fine = case == "the same"
    assert (num_read(path, conditions[column]) < ROWS) == is_fine
    assert num_read(path, conditions[other]) < ROWS
    assert [f"{column}_idx" in message for message in caplog.messages] == [True] * (not is_fine)


def test_misplaced_null_in_index_loses_no_rows(path, caplog):
    """Nulls come first: a lookup takes everything after the nulls for numbers."""

    def nulled(table: pa.Table, row: int) -> pa.Table:
        first = table.column(0).to_pylist()
        first[row] = None
        return table.set_column(0, table.schema.field(0), pa.array(first, table.schema[0].type))

    rewritten(path, "page_data.lance", lambda table: nulled(table, 5 * 4096))
    rewritten(
        path,
        "page_lookup.lance",
        lambda table: with_column(
            nulled(table, 5), "null_count", lambda counts: counts + (np.arange(len(counts)) == 5)
        ),
    )
    check_rows(path, ["id IN (20000, 22000)"])
    assert "not in order" in caplog.text


def test_segment_with_too_few_rows_is_not_used(path, caplog):
    new = pa.table({"id": [17], "kind": ["k7"], "flag": [True], "n": [-1]})
    lance.write_dataset(new, path, mode="append")

    def claim_all(entry) -> None:
        entry.fragment_bitmap = BitMap(range(5)).serialize()

    with_changed_entries(path, claim_all)
    assert matching(path, "id = 17").num_rows == 2
    assert "40000 rows, at least 40001" in caplog.text


@pytest.mark.parametrize(
    ("name", "condition", "index"),
    [
        ("bloomfilter.lance", "byte = 3", "byte_idx"),
        ("bitmap_page_lookup.lance", "array_contains(tags, 't7')", "tags_idx"),
    ],
)
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_damaged_zones_and_labels_are_logged_and_skipped(
    many_kinds, name, condition, index, damage, caplog
):
    for file in Path(many_kinds, "_indices").glob(f"*/{name}"):
        content = file.read_bytes()
        file.unlink()
        if damage == "cut":
            file.write_bytes(content[:-100])
    check_rows(many_kinds, [condition])
    assert num_read(many_kinds, condition) == ROWS
    assert [index in message for message in caplog.messages] == [True]


def test_rows_outside_bloom_filter_zones_are_read(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(3_000), "x": np.arange(3_000) // 500})
    lance.write_dataset(rows, path, max_rows_per_file=1_000)
    lance.dataset(path).delete("id < 10 OR id >= 1990 AND id < 2000")
    config = IndexConfig("bloomfilter", {"number_of_items": 100, "probability": 0.001})
    lance.dataset(path).create_scalar_index("x", config)
    # The first fragment begins with rows that no zone has, the second one ends with such rows.
    kept = {number: len(rows) for number, rows in retained_rows(path, "x = 17").items()}
    assert kept == {0: 1_000, 1: 1_000}
    check_rows(path, ["x = 3", "x = 0", "x = 17"])
    (fact,) = index_status(Snapshot.open(Table(path)))
    assert (fact.is_used, fact.note) == (True, "it does not have all rows of 2 of its 3 fragments")
    lance.dataset(path).delete("id >= 2000")
    (fact,) = index_status(Snapshot.open(Table(path)))
    assert (fact.is_used, fact.note) == (False, "it does not have all rows of 2 of its 2 fragments")


@pytest.mark.parametrize(
    ("values", "stored", "expected"),
    [
        (pa.array([0.0]), pa.float32(), {struct.pack("<f", 0.0), struct.pack("<f", -0.0)}),
        (pa.array([0.1, 0.5]), pa.float32(), {struct.pack("<f", 0.5)}),
        (pa.array([float("nan")]), pa.float64(), None),
        (pa.array([-129, -128, 127, 128]), pa.int8(), {b"\x80", b"\x7f"}),
        (pa.array([5], pa.timestamp("us")), pa.timestamp("us"), {struct.pack("<q", 5)}),
        (pa.array([5], pa.timestamp("us")), pa.timestamp("ms"), None),
        (pa.array([5], pa.timestamp("us")), pa.timestamp("us", "UTC"), None),
    ],
)
def test_constants_are_hashed_as_column_bytes(values, stored, expected):
    found = bytes_of_values(values, stored)
    assert (None if found is None else set(found)) == expected


@pytest.mark.parametrize("seed", seeds(3, in_ci=1, first=5))
def test_damaged_index_files_never_return_wrong_rows(path, tmp_path, seed):
    """No byte of them makes a scan fail, or hand out a row that does not match."""
    rng = random.Random(seed)
    queries = ["id = 17", "id > 39990", "kind = 'k7'", "kind IS NULL"]
    expected = {query: set(matching(path, query)["_rowaddr"].to_pylist()) for query in queries}
    files = [file for name in FILES for file in Path(path, "_indices").glob(f"*/{name}")]
    for number in range(20):
        damaged = shutil.copytree(path, tmp_path / f"d{number}")
        original = rng.choice(files)
        file = damaged / original.relative_to(path)
        content = bytearray(file.read_bytes())
        for _ in range(rng.choice([1, 3])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        for query in queries:
            rows = matching(str(damaged), query)["_rowaddr"].to_pylist()
            assert len(rows) == len(set(rows)) and set(rows) <= expected[query]
        shutil.rmtree(damaged)
