"""Tasks by key: after any history, a task has only its declared key, or no key is declared."""

from __future__ import annotations

import random
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import read_ours
from zone_map_tables import COLUMNS, change, change_in_place, change_ours

from pyspark_lance.format.clustering import CLUSTERING_KEY, Clustering
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.index_build.zone_maps import create_zone_maps, refresh_zone_maps
from pyspark_lance.table.scan.key_groups import key_columns, plan_key_grouped
from pyspark_lance.table.scan.plan_scan import ScanRequest, predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

# Equal bounds are not equal values (-0.0, NaN), or not as Spark sees them (nanoseconds).
NO_KEYS = {"f", "h", "m", "y"}
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 200))]


def rows_of_one_key(rng: random.Random, count: int) -> pa.Table:
    """Rows that have one value in most columns, or nulls."""
    arrays = {}
    for name, (data_type, values, _) in COLUMNS.items():
        chosen = [rng.choice([None, *values[:4]])] * count
        if rng.random() < 0.1:
            chosen[rng.randrange(count)] = rng.choice([None, *values])
        arrays[name] = pa.array(chosen, data_type)
    arrays["o"] = pa.StructArray.from_arrays([arrays["i"]], names=["x"])
    return pa.table(arrays)


def check(path: str, names: list[str], request: ScanRequest | None = None) -> bool:
    """The rows of each task have its key, and all tasks have all rows; whether there are keys."""
    snapshot = Snapshot.open(Table(path))
    request = request or ScanRequest(system_columns=("_rowaddr",))
    planned = plan_key_grouped(snapshot, request, names)
    if planned is None:
        return False
    assert set(planned.columns) <= set(names) - NO_KEYS
    assert planned.digest() == plan_key_grouped(snapshot, request, planned.columns).digest()
    found = []
    for number, task in enumerate(planned.tasks):
        for batch in task.run():
            found += batch.column("_rowaddr").to_pylist()
            for name, keys in zip(planned.columns, planned.keys, strict=True):
                known = pa.scalar(keys[number].as_py(), keys.type)
                values = batch.column(name).cast(keys.type)
                assert values.equals(pa.array([known.as_py()] * len(values), keys.type)), name
    every = read_ours(path, predicate=request.predicate, system_columns=("_rowaddr",))
    assert sorted(found) == sorted(every["_rowaddr"].to_pylist())
    if request.predicate is None:
        assert len(found) == lance.dataset(path).count_rows()
    return bool(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_key_groups_contain_every_row_in_random_histories(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    lance.write_dataset(
        rows_of_one_key(rng, rng.randint(5, 40)), path, enable_stable_row_ids=rng.random() < 0.7
    )
    create_zone_maps(Table(path), list(COLUMNS), rng.choice([3, 8, 50]))
    known = int(check(path, list(COLUMNS)))
    for _ in range(6):
        match rng.choice(["append", "append", "refresh", "delete", "in place", "pylance", "ours"]):
            case "append":
                more = rows_of_one_key(rng, rng.randint(1, 40))
                lance.write_dataset(more, path, mode="append")
            case "refresh":
                refresh_zone_maps(Table(path))
            case "delete":
                delete_rows(path, f"_rowaddr % 7 = {rng.randrange(7)}")
            case "in place" if lance.dataset(path).get_fragments():
                change_in_place(path, rng.choice(lance.dataset(path).get_fragments()).fragment_id)
            case "pylance":
                change(path, rng)
            case "ours":
                change_ours(path, rng)
        known += check(path, rng.sample(list(COLUMNS), 4))
        known += check(path, ["n"])
    if rng.random() < 0.5:
        compact(Table(path), CompactionRequest(cluster_by=("n",), target_rows_per_fragment=8))
    refresh_zone_maps(Table(path))
    known += check(path, list(COLUMNS))
    assert known


@pytest.mark.parametrize("stable", [True, False])
def test_fragment_without_zones_disables_key_groups(tmp_path, stable):
    path = str(tmp_path / "t")
    for key in ("a", "b"):
        table = pa.table({"k": [key] * 20, "n": range(20)})
        lance.write_dataset(table, path, mode="append", enable_stable_row_ids=stable)
    create_zone_maps(Table(path), ["k"], 6)
    assert check(path, ["k"])
    lance.write_dataset(pa.table({"k": ["a"], "n": [0]}), path, mode="append")
    assert not check(path, ["k"])
    refresh_zone_maps(Table(path))
    assert check(path, ["k"])
    # Rows that an update moved are in a fragment that is new.
    lance.dataset(path).update({"k": "'c'"}, where="n = 3")
    assert not check(path, ["k"])
    refresh_zone_maps(Table(path))
    assert check(path, ["k"])
    lance.write_dataset(pa.table({"k": ["a", None], "n": [0, 1]}), path, mode="append")
    refresh_zone_maps(Table(path))
    assert not check(path, ["k"])


def test_previously_deleted_rows_are_excluded_from_key_groups(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"k": [1] * 10 + [2] * 5, "n": range(15)}), path)
    delete_rows(path, "k = 2 OR n = 0")
    create_zone_maps(Table(path), ["k"], 4)
    assert check(path, ["k"])
    delete_rows(path, "n = 9")
    assert check(path, ["k"])


def test_condition_prunes_keys_and_tasks(tmp_path):
    path = str(tmp_path / "t")
    for key in range(6):
        table = pa.table({"k": [key % 3] * 5, "g": [key] * 5, "n": range(5)})
        lance.write_dataset(table, path, mode="append")
    create_zone_maps(Table(path), ["k", "g", "n"])
    snapshot = Snapshot.open(Table(path))
    planned = plan_key_grouped(snapshot, ScanRequest(), ["k", "n"])
    assert planned.columns == ("k",) and planned.keys[0].to_pylist() == [0, 1, 2]
    request = ScanRequest(
        predicate=parse_predicate("g >= 4", predicate_schema(snapshot.schema)),
        system_columns=("_rowaddr",),
    )
    assert check(path, ["k"], request)
    assert plan_key_grouped(snapshot, request, ["k"]).keys[0].to_pylist() == [1, 2]
    none = replace(request, predicate=parse_predicate("g > 9", predicate_schema(snapshot.schema)))
    assert plan_key_grouped(snapshot, none, ["k"]).tasks == ()


def test_large_keys_are_split_into_several_tasks(tmp_path):
    path = str(tmp_path / "t")
    noise = np.random.default_rng(1).random((60, 20_000))
    for key in (1, 2):
        columns = {f"x{i}": own for i, own in enumerate(noise)}
        lance.write_dataset(pa.table({"k": [key] * 20_000, **columns}), path, mode="append")
    create_zone_maps(Table(path), ["k"])
    planned = plan_key_grouped(Snapshot.open(Table(path)), ScanRequest(parallelism=4), ["k"])
    keys = planned.keys[0].to_pylist()
    assert keys == sorted(keys) and set(keys) == {1, 2} and len(keys) > 2
    assert check(path, ["k"])


def test_key_columns_are_clustering_columns(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": [1], "f": [1.5], "b": ["x"]}), path)
    manifest = Snapshot.open(Table(path)).manifest
    schema = Snapshot.open(Table(path)).schema
    assert key_columns(manifest.config, schema) == ()
    config = {CLUSTERING_KEY: Clustering((2, 1, 0, 7), "linear").to_text()}
    assert key_columns(config, schema) == ("b", "a")
    assert key_columns({CLUSTERING_KEY: "{"}, schema) == ()
