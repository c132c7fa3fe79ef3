"""Zone maps that we make are those that pylance makes, and stay correct after changes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from lance.indices import IndexConfig
from local_changes import delete_rows
from row_changes import set_to
from zone_map_tables import COLUMNS, STRUCT, change_in_place, matching, retained_rows, some_rows

from pyspark_lance.errors import InvalidInputError, RetryableCommitError, UnsupportedFeatureError
from pyspark_lance.format.row_address import row_addresses
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index.zone_map_file import read_zones_and_nulls
from pyspark_lance.table.index_build.zone_maps import (
    ZoneSplitter,
    commit_zone_maps,
    create_zone_maps,
    plan_zone_maps,
    refresh_zone_maps,
)
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def entries(path: str) -> dict[str, table_pb2.IndexMetadata]:
    indices = Snapshot.open(Table(path)).indices
    return {index.name: table_pb2.IndexMetadata.FromString(index.raw) for index in indices}


def files(path: str) -> dict[str, LanceFileReader]:
    indices = Snapshot.open(Table(path)).indices
    return {i.name: LanceFileReader(f"{path}/_indices/{i.uuid}/zonemap.lance") for i in indices}


def zones(reader: LanceFileReader) -> list[str]:
    """As text, in which NaN is equal to itself; zeros without their sign."""
    rows = reader.read_all().to_table().to_pylist()
    return [repr(row).replace("-0.0", "0.0") for row in rows]


@pytest.mark.parametrize("seed", range(3))
def test_built_zone_maps_equal_pylance(tmp_path, seed):
    rng, path = random.Random(seed), str(tmp_path / "t")
    rows = some_rows(rng, rng.randint(1, 200))
    lance.write_dataset(rows, path, max_rows_per_file=rng.choice([1, 60, 500]))
    lance.dataset(path).delete(f"n > {rng.randint(0, 9)} AND n < {rng.randint(9, 20)}")
    columns = [*COLUMNS, f"{STRUCT}.x"]
    size = rng.choice([1, 8, 8192])
    result = create_zone_maps(Table(path), columns, size)
    assert result.columns == tuple(columns)
    ours, our_files = entries(path), files(path)
    for column in columns:
        lance.dataset(path).create_scalar_index(
            column, IndexConfig("zonemap", {"rows_per_zone": size, "use_seeds": False})
        )
    assert result.num_zones == sum(len(zones(file)) for file in our_files.values())
    for (name, from_pylance), their_file in zip(
        entries(path).items(), files(path).values(), strict=True
    ):
        mine, my_file = ours[name], our_files[name]
        assert mine.index_details == from_pylance.index_details
        assert list(mine.fields) == list(from_pylance.fields)
        assert mine.fragment_bitmap == from_pylance.fragment_bitmap
        assert mine.index_version == from_pylance.index_version
        assert zones(my_file) == zones(their_file), name
        assert my_file.metadata().schema == their_file.metadata().schema
        assert my_file.metadata().schema.metadata == their_file.metadata().schema.metadata
        assert my_file.read_global_buffer(1) == their_file.read_global_buffer(1)
    # One version for all columns, whose predecessor knows nothing of them.
    assert not lance.dataset(path, version=result.version - 1).list_indices()


BUILD = """
import sys

from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.version.table import Table

create_zone_maps(Table(sys.argv[1]), sys.argv[2:], 8)
print("pandas" in sys.modules)
"""


def test_zone_maps_never_import_pandas(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(some_rows(random.Random(5), 50), path, max_rows_per_file=20)
    command = [sys.executable, "-c", BUILD, path, *COLUMNS, f"{STRUCT}.x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.fixture
def path(tmp_path):
    """Three fragments of 100 rows; x ascends, every seventh is null."""
    path = str(tmp_path / "t")
    x = np.arange(300)
    table = pa.table({"x": pa.array(x, mask=x % 7 == 0), "name": [f"n{i:03d}" for i in x]})
    lance.write_dataset(table, path, max_rows_per_file=100, enable_stable_row_ids=True)
    return path


def append(path: str, first: int) -> None:
    table = pa.table({"x": np.arange(first, first + 30), "name": [f"n{first}"] * 30})
    lance.write_dataset(table, path, mode="append")


def covered(path: str, name: str = "x_idx") -> list[int]:
    (entry,) = (i for i in Snapshot.open(Table(path)).indices if i.name == name)
    return list(entry.fragment_bitmap)


def test_zone_maps_follow_table_changes(path):
    create_zone_maps(Table(path), ["x"], 20)
    append(path, 1000)
    assert covered(path) == [0, 1, 2]
    assert retained_rows(path, "x = 1007") == {3: list(range(30))}
    done = refresh_zone_maps(Table(path))
    assert (done.columns, done.num_fragments, done.num_zones) == (("x",), 1, 17)
    assert retained_rows(path, "x = 1007") == {3: list(range(20))}
    assert refresh_zone_maps(Table(path)).version is None
    delete_rows(path, "x < 120")
    set_to(path, "x = 150", x=5000)
    assert matching(path, "x = 5000")["name"].to_pylist() == ["n150"]
    assert compact(Table(path)).version is not None
    assert sorted(retained_rows(path, "x = 205")) == [f.id for f in fragments(path)]
    refresh_zone_maps(Table(path))
    assert covered(path) == [fragment.id for fragment in fragments(path)]
    (rows,) = retained_rows(path, "x = 205").values()
    assert len(rows) == 20
    assert not verify(Table(path)).errors
    check_pylance(path)


def fragments(path: str):
    return Snapshot.open(Table(path)).manifest.fragments


def check_pylance(path: str) -> None:
    """Pylance finds with the index what it finds without it, and goes on with it."""
    for step in ("as it is", "optimize", "update", "compact", "optimize"):
        dataset = lance.dataset(path)
        match step:
            case "optimize":
                dataset.optimize.optimize_indices()
            case "update":
                dataset.update({"x": "x + 1"}, where="x > 280")
            case "compact":
                dataset.optimize.compact_files()
        dataset = lance.dataset(path)
        dataset.validate()
        for query in ("x = 205", "x IS NULL", "x > 290", "x IN (5000, 1007)"):
            with_index, without = (
                dataset.scanner(filter=query, use_scalar_index=use).to_table()["name"].to_pylist()
                for use in (True, False)
            )
            assert sorted(with_index) == sorted(without), (step, query)
            plan = dataset.scanner(filter=query).explain_plan()
            assert ("@x_idx(ZoneMap)" in plan) == (step != "compact"), step


def test_zone_maps_with_different_coverage_count_rows_once(path):
    create_zone_maps(Table(path), ["x"], 20)
    append(path, 1000)
    create_zone_maps(Table(path), ["name"], 20)
    append(path, 2000)
    assert refresh_zone_maps(Table(path)).num_zones == 2 * 19
    assert covered(path) == covered(path, "name_idx") == [0, 1, 2, 3, 4]
    compact(Table(path))
    refresh_zone_maps(Table(path))
    snapshot = Snapshot.open(Table(path))
    for entry in snapshot.indices:
        _, nulls = read_zones_and_nulls(snapshot.files, entry)
        assert nulls is not None
        assert nulls.keys() <= set(snapshot.manifest.fragments.ids.tolist())


def test_zones_end_at_fragment_boundaries():
    cutter = ZoneSplitter(4)
    for fragment, expected in ((0, [1, 2]), (1, [3, 4])):
        cuts, zones = cutter.cut(row_addresses(fragment, np.arange(6)))
        assert (cuts.tolist(), zones.tolist()) == ([0, 4], expected)


def test_pylance_reads_zone_maps(path):
    """A condition that pylance takes from the index looks at the zones that match."""
    create_zone_maps(Table(path), ["x"], 20)
    dataset = lance.dataset(path)
    assert dataset.stats.index_stats("x_idx")["index_type"] == "ZoneMap"
    plan = dataset.scanner(filter="x = 205").analyze_plan()
    (read,) = (line for line in plan.splitlines() if "LanceRead" in line)
    assert "rows_scanned=20," in read


def test_indices_of_other_kinds_are_kept(path):
    lance.dataset(path).create_scalar_index("x", "BTREE")
    create_zone_maps(Table(path), ["x"], 20)
    assert sorted(entries(path)) == ["x_idx", "x_zonemap_idx"]
    again = create_zone_maps(Table(path), ["x", "name"], 50)
    assert sorted(entries(path)) == ["name_idx", "x_idx", "x_zonemap_idx"]
    assert again.num_zones == 12
    assert len(retained_rows(path, "x = 205")[2]) == 50


def test_refresh_merges_pylance_segments(path):
    lance.dataset(path).create_scalar_index("x", IndexConfig("zonemap", {"rows_per_zone": 20}))
    for first in (1000, 2000):
        append(path, first)
        lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    assert len(Snapshot.open(Table(path)).indices) == 3
    before = {c: retained_rows(path, c) for c in ("x = 205", "x = 1007", "x = 2021", "x IS NULL")}
    done = refresh_zone_maps(Table(path))
    assert done.version is not None
    assert done.num_fragments == 0
    assert covered(path) == [0, 1, 2, 3, 4]
    assert before == {condition: retained_rows(path, condition) for condition in before}
    assert lance.dataset(path).to_table(filter="x IS NULL").num_rows == 43


def test_values_changed_in_place_get_new_zones(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table({"n": pa.array(range(100), pa.int32()), "i": range(100)})
    lance.write_dataset(table, path, max_rows_per_file=50)
    create_zone_maps(Table(path), ["i", "n"], 10)
    change_in_place(path, 0)
    assert covered(path, "i_idx") == [1]
    assert covered(path, "n_idx") == [0, 1]
    assert retained_rows(path, "i < 0") == {0: list(range(50))}
    refresh_zone_maps(Table(path))
    assert retained_rows(path, "i < 0") == {0: list(range(10))}
    assert matching(path, "i < 0")["n"].to_pylist() == [3]
    assert lance.dataset(path).to_table(filter="i < 0")["n"].to_pylist() == [3]


@pytest.mark.parametrize("by", ["compact", "in place"])
def test_concurrent_row_changes_conflict_with_zone_maps(tmp_path, by):
    path = str(tmp_path / "t")
    table = pa.table({"n": pa.array(range(100), pa.int32()), "i": range(100)})
    lance.write_dataset(table, path, max_rows_per_file=50)
    plan = plan_zone_maps(Table(path), ["i"], 20, ChangeSettings())
    built = [task.run() for task in plan.tasks]
    if by == "compact":
        compact(Table(path))
    else:
        change_in_place(path, 0)
    work = UnitOfWork(Table(path), ChangeSettings())
    with pytest.raises(RetryableCommitError):
        work.once(lambda unit: commit_zone_maps(plan, built, unit))
    assert not list(Path(path).glob("_indices/*/*"))


def test_concurrent_appends_allow_zone_maps(path):
    plan = plan_zone_maps(Table(path), ["x"], 20, ChangeSettings())
    built = [task.run() for task in plan.tasks]
    append(path, 1000)
    delete_rows(path, "x = 3")
    work = UnitOfWork(Table(path), ChangeSettings())
    assert work.once(lambda unit: commit_zone_maps(plan, built, unit)).version == 4
    assert covered(path) == [0, 1, 2]
    assert retained_rows(path, "x = 205") == {2: list(range(20)), 3: list(range(30))}


def test_files_of_replaced_zone_maps_are_cleaned_up(path):
    for _ in range(3):
        create_zone_maps(Table(path), ["x"], 20)
    folders = list(Path(path).glob("_indices/*"))
    assert len(folders) == 3
    cleanup_old_versions(
        Table(path), CleanupPolicy(retain_versions=1, older_than_s=0, delete_unverified=True)
    )
    assert matching(path, "x = 205")["name"].to_pylist() == ["n205"]
    assert len(list(Path(path).glob("_indices/*/*"))) == 1


def test_unordered_columns_are_refused(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table(
        {"x": [1], "l": [[1]], "o": [{"x": 1}], "s": pa.array(["a"]).dictionary_encode()}
    )
    lance.write_dataset(table, path)
    for name in ("l", "o", "s"):
        with pytest.raises(UnsupportedFeatureError, match=f"the column '{name}' of type"):
            create_zone_maps(Table(path), [name])
    for names in (["y"], ["o.y"], ["x", "X"], []):
        with pytest.raises(InvalidInputError):
            create_zone_maps(Table(path), names)
    with pytest.raises(InvalidInputError, match="rows per zone must be positive, not 0"):
        create_zone_maps(Table(path), ["x"], 0)


def test_zone_map_of_empty_table_has_no_zones(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": pa.array([], pa.int64())}), path)
    assert create_zone_maps(Table(path), ["x"]).num_zones == 0
    append_x = pa.table({"x": pa.array([1, 2], pa.int64())})
    lance.write_dataset(append_x, path, mode="append")
    refresh_zone_maps(Table(path))
    assert retained_rows(path, "x = 3") == {}
    assert lance.dataset(path).to_table(filter="x = 2").num_rows == 1
