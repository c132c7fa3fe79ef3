"""Damaged files of indices: no scan fails for them, and none that loses rows is not verified."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from damage import bit_flips, splices, truncations
from zone_map_tables import matching

from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index.bitmap import read_row_sets
from pyspark_lance.table.index_build.column_indices import commit_index, create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest, plan_index
from pyspark_lance.table.scan import fragment_pruning
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.verify import verify_indices
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

KINDS = {
    "i": "btree", "s": "btree", "k": "bitmap", "l": "label_list", "b": "bloomfilter",
    "z": "zonemap", "g": "ngram",
}  # fmt: skip
CONDITIONS = {
    "i": ["i = 17", "i IN (3, 250, 999)", "i IS NULL", "i > 690"],
    "s": ["s = 's5'", "s LIKE 's11%'"],
    "k": ["k = 3", "k IS NULL"],
    "l": ["array_contains(l, 4)"],
    "b": ["b = 23", "b IN (100, 205)", "b IS NULL"],
    "g": ["contains(g, '791')", "g LIKE '%7 te%'", "g RLIKE '95[0-9]+ text'"],
    "z": ["z = 77", "z < 5", "z >= 690", "z IS NULL"],
}


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable"])
def sound(tmp_path_factory, request) -> str:
    """Two fragments of 350 rows with an index of every kind, and a few rows deleted since."""
    path = str(tmp_path_factory.mktemp("sound") / "t")
    n = np.arange(700)
    mixed = np.random.default_rng(3).permutation(n)
    is_null = mixed % 9 == 0
    rows = pa.table(
        {
            "i": pa.array(mixed, mask=is_null),
            "s": [f"s{number}" for number in mixed],
            "k": pa.array(mixed % 12, mask=is_null),
            "l": [None if x % 11 == 0 else [x % 7, x % 5] for x in mixed.tolist()],
            "b": pa.array(mixed, mask=is_null),
            "z": pa.array(n, mask=is_null),
            "g": [None if x % 13 == 0 else f"some {x * 7919} text" for x in mixed.tolist()],
        }
    )
    lance.write_dataset(rows, path, max_rows_per_file=350, enable_stable_row_ids=request.param)
    for column, kind in KINDS.items():
        zones = 20 if kind in ("bloomfilter", "zonemap") else None
        create_index(Table(path), IndexRequest((column,), kind, rows_per_zone=zones))
    lance.dataset(path).delete("z > 340 AND z < 344")
    return path


@pytest.fixture(autouse=True)
def no_table_is_small(monkeypatch: pytest.MonkeyPatch):
    """Indices are asked for tables of a few rows, too, and used at any selectivity."""
    monkeypatch.setattr(fragment_pruning, "SMALL_ROW_COUNT", 0)
    monkeypatch.setattr(fragment_pruning, "_MAX_SHARE", 1.0)


@pytest.mark.parametrize("most", [1, 200])
def test_verify_reads_large_row_sets_in_parts(sound, monkeypatch, most):
    monkeypatch.setitem(read_row_sets.__kwdefaults__, "max_bytes", most)
    monkeypatch.setattr(verify_indices, "_SET_BYTES_AT_ONCE", most)
    assert verify(Table(sound), read_data=True).findings == ()


def rows_of(path: str, column: str) -> list[list[int]]:
    return [matching(path, condition)["_rowaddr"].to_pylist() for condition in CONDITIONS[column]]


def damaged(content: bytes, rng: random.Random) -> bytes:
    match rng.choice(["bit", "bit", "splice", "cut"]):
        case "bit":
            return next(bit_flips(content, 1, rng.randrange(1 << 30)))
        case "splice":
            return next(splices(content, 1, rng.randrange(1 << 30)))
    return rng.choice(list(truncations(content, 50)))


def survives(sound: str, folder: Path, seed: int) -> tuple[bool, bool]:
    """Damage a file of an index; whether that is found, and whether scans have the right rows."""
    rng = random.Random(seed)
    path = str(folder / "t")
    shutil.copytree(sound, path)
    entries = {i.name: str(i.uuid) for i in Snapshot.open(Table(path)).indices}
    column = rng.choice(sorted(KINDS))
    files = sorted(Path(path).glob(f"_indices/{entries[f'{column}_idx']}/*"))
    file = rng.choice(files)
    file.write_bytes(damaged(file.read_bytes(), rng))
    is_right = rows_of(path, column) == rows_of(sound, column)
    found = verify(Table(path), read_data=True).findings
    shutil.rmtree(path)
    return any(entries[f"{column}_idx"] in problem.what for problem in found), is_right


def check(sound: str, folder: Path, seeds: range) -> None:
    """No damage loses rows and is not found; most of it is found."""
    assert verify(Table(sound), read_data=True).findings == ()
    outcomes = [survives(sound, folder, seed) for seed in seeds]
    lost = [seed for seed, (is_found, is_right) in zip(seeds, outcomes, strict=True)
            if not is_found and not is_right]  # fmt: skip
    assert lost == []
    assert sum(is_found for is_found, _ in outcomes) > len(outcomes) // 3


def test_damaged_index_never_stops_scan_and_is_found(sound, tmp_path):
    check(sound, tmp_path, range(8))


@pytest.mark.slow
def test_damaged_index_never_stops_scan_in_500_cases(sound, tmp_path):
    check(sound, tmp_path, range(8, 350))


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    "kind", ["btree", "bitmap", "label_list", "bloomfilter", "zonemap", "ngram", "inverted"]
)
def test_index_with_values_of_other_column_is_found(tmp_path, kind, stable):
    """Its files are sound, and one value of the other column differs."""
    path = str(tmp_path / "t")
    values = [[n % 50] for n in range(300)] if kind == "label_list" else list(range(300))
    others = [*values[:77], values[76], *values[78:]]
    others[200] = [-1] if kind == "label_list" else 1_000
    if kind == "ngram":
        others[200] = 5  # Its tokens are there, of other rows.
    if kind in ("ngram", "inverted"):
        values, others = ([f"abc{n}" for n in column] for column in (values, others))
    rows = pa.table({"a": values, "b": others})
    lance.write_dataset(rows, path, max_rows_per_file=150, enable_stable_row_ids=stable)
    create_index(Table(path), IndexRequest(("a",), kind))
    assert verify(Table(path), read_data=True).findings == ()
    plan = plan_index(Table(path), IndexRequest(("a",), kind, "wrong"), ChangeSettings())
    built = [task.run() for task in plan.tasks]
    field = plan.change.snapshot().schema.fields[1]
    if plan.zone_maps is None:
        plan = replace(plan, segmented=(replace(plan.segmented[0], field=field),))
    else:
        (wanted,) = plan.zone_maps.wanted
        wanted = replace(wanted, column=replace(wanted.column, field=field))
        plan = replace(plan, zone_maps=replace(plan.zone_maps, wanted=(wanted,)))
    UnitOfWork(Table(path), ChangeSettings()).once(lambda unit: commit_index(plan, built, unit))
    assert not verify(Table(path)).findings  # That takes a look at the column.
    (problem,) = verify(Table(path), read_data=True).findings
    assert problem.kind == "index_content" and "'wrong'" in problem.what
