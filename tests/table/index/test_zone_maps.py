"""Zone maps prune only what cannot match, also after changes."""

from __future__ import annotations

import random

import lance
import numpy as np
import pyarrow as pa
import pytest
from zone_map_tables import (
    COLUMNS,
    STRUCT,
    change,
    change_ours,
    check_rows,
    index_of,
    matching,
    retained_rows,
    some_rows,
)

from pyspark_lance.format.index_metadata import indices_from_section, section_of_indices
from pyspark_lance.metafile.manifest_file import encode_manifest
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.index.zone_map_file import column_zones
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def a_condition(rng: random.Random, depth: int = 2) -> str:
    if depth and rng.random() < 0.5:
        terms = [a_condition(rng, depth - 1) for _ in range(2)]
        return rng.choice(["({} AND {})", "({} OR {})", "NOT ({})"]).format(*terms)
    name = rng.choice([*COLUMNS, f"{STRUCT}.x"])
    _, values, spell = COLUMNS["i" if "." in name else name]
    spelled = [spell(rng.choice(values)) for _ in range(3)]
    listed = rng.choice([spelled, [*spelled, "NULL"]])
    choices = [
        f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {spelled[0]}",
        f"{name} {rng.choice(['', 'NOT '])}IN ({', '.join(listed)})",
        f"{name} BETWEEN {spelled[0]} AND {spelled[1]}",
        f"{name} IS {rng.choice(['', 'NOT '])}NULL",
        f"_rowaddr {rng.choice(['<', '>'])} {rng.randint(0, 2) << 32}",
    ]  # fmt: skip
    if name == "s":
        choices.append(f"s {rng.choice(['', 'NOT '])}LIKE '{rng.choice(['a', 'b', 'ab', 'z'])}%'")
    return rng.choice(choices)


def check_pylance(path: str) -> None:
    """Pylance answers with its indices as without them."""
    dataset = lance.dataset(path)
    dataset.validate()
    for query in (
        "i = 5", "i >= 3 AND i < 6", "n IN (1, 19)", "n IS NULL", "i IS NULL", "s = 'b'", "s > 'b'",
        "d = date '1970-01-03'", "o.x = 5", "b = true", "f = 2.5", "f = 0.0",
    ):  # fmt: skip
        with_index, without = (
            dataset.scanner(
                columns=["n"], filter=query, with_row_address=True, use_scalar_index=use
            ).to_table()
            for use in (True, False)
        )
        assert sorted(with_index["_rowaddr"].to_pylist()) == sorted(
            without["_rowaddr"].to_pylist()
        ), query


@pytest.mark.parametrize("seed", range(5))
def test_zone_map_scans_equal_plain_scans(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    lance.write_dataset(
        some_rows(rng, rng.randint(1, 150)), path, max_rows_per_file=rng.choice([20, 60, 1000]),
        enable_stable_row_ids=rng.random() < 0.7,
        data_storage_version=rng.choice(["2.1", "2.2"]),
    )  # fmt: skip
    conditions = [a_condition(rng) for _ in range(8)]
    for _ in range(rng.randint(0, 2)):
        change(path, rng)
    columns = rng.sample([*COLUMNS, f"{STRUCT}.x"], 6)
    if rng.random() < 0.5:
        create_zone_maps(Table(path), columns, rng.choice([3, 8, 50]))
    else:
        for column in columns:
            index_of(path, column, rng.choice([3, 8, 50]))
    for _ in range(rng.randint(0, 4)):
        rng.choice([change, change_ours])(path, rng)
        check_rows(path, conditions[:2])
    check_pylance(path)
    check_rows(path, conditions)
    check_rows(
        path, conditions[:3], VersionSpec(version=rng.randint(1, lance.dataset(path).version))
    )


@pytest.fixture
def path(tmp_path):
    """Three fragments of 100 rows; zones of 20 rows for x, whose null are those divisible by 7."""
    path = str(tmp_path / "t")
    x = np.arange(300)
    table = pa.table({"x": pa.array(x, mask=x % 7 == 0), "name": [f"n{i:03d}" for i in x]})
    lance.write_dataset(table, path, max_rows_per_file=100, enable_stable_row_ids=True)
    index_of(path, "x", 20)
    return path


def test_selective_condition_leaves_one_zone(path):
    assert retained_rows(path, "x = 140") == {}
    assert retained_rows(path, "x = 134") == {1: list(range(20, 40))}
    assert retained_rows(path, "x IN (1, 99, 250)") == {
        0: [*range(20), *range(80, 100)],
        2: list(range(40, 60)),
    }
    assert retained_rows(path, "x > 295 OR name = 'n005'") == {
        number: list(range(100)) for number in range(3)
    }
    assert retained_rows(path, "x > 295 AND name = 'n005'") == {2: list(range(80, 100))}
    assert matching(path, "x IN (1, 99, 250)")["name"].to_pylist() == ["n001", "n099", "n250"]


def test_rows_unknown_to_zone_map_are_read(path):
    lance.write_dataset(pa.table({"x": [1000], "name": ["new"]}), path, mode="append")
    assert retained_rows(path, "x = 134") == {1: list(range(20, 40)), 3: [0]}
    lance.dataset(path).update({"x": "x + 1000"}, where="x = 134")
    assert matching(path, "x = 1134")["name"].to_pylist() == ["n134"]
    assert sorted(retained_rows(path, "x = 1134")) == [3, 4]
    lance.dataset(path).optimize.optimize_indices()
    assert sorted(retained_rows(path, "x = 1134")) == [4]


def test_nulls_unknown_to_zone_map_are_read(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": range(40)}), path)
    index_of(path, "x", 20)
    lance.write_dataset(pa.table({"x": pa.array([None], pa.int64())}), path, mode="append")
    assert retained_rows(path, "x IS NULL") == {1: [0]}
    assert matching(path, "x IS NULL").num_rows == 1


def test_previously_deleted_rows_are_in_no_zone(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": range(100)}), path)
    lance.dataset(path).delete("x < 10 OR x >= 35 AND x < 45")
    index_of(path, "x", 20)
    # Deleted rows before, inside and between zones; restored they would be read.
    assert retained_rows(path, "x = 50") == {0: [*range(10), *range(30, 60)]}
    assert matching(path, "x = 50")["x"].to_pylist() == [50]


def test_overlapping_zone_maps_cover_rows_once(path):
    lance.dataset(path).create_scalar_index("x", "ZONEMAP", name="again")
    zones = column_zones(Snapshot.open(Table(path)), "x")
    assert zones is not None
    assert (zones.starts[1:] >= zones.stops[:-1]).all()
    assert retained_rows(path, "x = 134") == {1: list(range(20, 40))}


def test_renamed_column_keeps_zones(path):
    lance.dataset(path).alter_columns({"path": "x", "name": "renamed"})
    assert retained_rows(path, "renamed = 134") == {1: list(range(20, 40))}


def with_changed_entry(path: str, **changes: object) -> None:
    """The newest manifest with other fields in its index entry."""
    snapshot = Snapshot.open(Table(path))
    section = table_pb2.IndexSection.FromString(section_of_indices(snapshot.indices))
    for name in changes:
        section.indices[0].ClearField(name)
    section.indices[0].MergeFrom(table_pb2.IndexMetadata(**changes))
    indices = indices_from_section(section.SerializeToString())
    snapshot.store.put(
        snapshot.file.location.path, encode_manifest(snapshot.manifest, indices, None)
    )


# The last one says that bounds of x, which are numbers, are those of name, which is text.
@pytest.mark.parametrize(
    "changes", [{"index_version": 1}, {"fragment_bitmap": b""}, {"fields": [1]}]
)
def test_unknown_zone_map_prunes_nothing(path, changes):
    with_changed_entry(path, **changes)
    for condition in ("x = 134", "name = 'n134'"):
        assert len(retained_rows(path, condition)) == 3
        assert matching(path, condition)["name"].to_pylist() == ["n134"]


@pytest.mark.parametrize("damage", [None, b"", b"no Lance file, but longer than any footer is" * 4])
def test_unreadable_zone_map_is_logged_and_prunes_nothing(path, caplog, damage, tmp_path):
    (file,) = (tmp_path / "t" / "_indices").glob("*/zonemap.lance")
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    assert matching(path, "x = 134")["name"].to_pylist() == ["n134"]
    assert "the index 'x_idx'" in caplog.text
