"""Facts of zone maps without reading: bounds of a column, and an end of its first rows."""

from __future__ import annotations

import json
import random

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from table_access import read_ours
from zone_map_tables import COLUMNS, change, change_ours, some_rows

from pyspark_lance.predicate.conditions import evaluate
from pyspark_lance.predicate.json import literal_node, predicate_from_json
from pyspark_lance.predicate.types import spark_type_of, type_name
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.scan.scan_statistics import column_statistics, end_of_first_rows
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

# Of the types in which Spark sees values as they are stored.
NAMES = [name for name in COLUMNS if name != "u"]


def holding(batch: pa.RecordBatch, snapshot: Snapshot, condition: dict) -> int:
    predicate = predicate_from_json(json.dumps(condition), predicate_schema(snapshot.schema))
    return pc.sum(evaluate(predicate, batch)).as_py() or 0


def check_first_rows(snapshot: Snapshot, batch: pa.RecordBatch, name: str, count: int) -> bool:
    """At least ``count`` values are not beyond the end; whether there is one."""
    is_known = False
    for descending in (False, True):
        end = end_of_first_rows(snapshot, name, count, descending=descending)
        if end is not None:
            within = {
                "op": ">=" if descending else "<=",
                "args": [{"column": [name]}, literal_node(end)],
            }
            assert holding(batch, snapshot, within) >= count, (name, descending, end)
            is_known = True
    return is_known


def check_bounds(snapshot: Snapshot, batch: pa.RecordBatch, name: str) -> bool:
    facts = column_statistics(snapshot, name)
    if facts is None:
        return False
    values = batch.column(name)
    assert facts.num_values == len(values) - values.null_count
    seen = values.cast(facts.minimum.type, safe=False)
    assert (facts.minimum, facts.maximum) == (pc.min(seen), pc.max(seen)), name
    return True


@pytest.mark.parametrize("seed", range(6))
def test_zone_facts_hold_after_later_changes(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    lance.write_dataset(
        some_rows(rng, rng.randint(20, 150)), path, max_rows_per_file=rng.choice([20, 60, 1000]),
        enable_stable_row_ids=rng.random() < 0.7,
    )  # fmt: skip
    create_zone_maps(Table(path), NAMES, rng.choice([3, 8]))
    checked = 0
    for step in range(4):
        snapshot = Snapshot.open(Table(path))
        batches = read_ours(path, system_columns=()).combine_chunks().to_batches()
        for name in NAMES if batches else ():
            checked += check_first_rows(snapshot, batches[0], name, rng.choice([1, 4, 20]))
            is_known = check_bounds(snapshot, batches[0], name)
            assert is_known or step or name not in ("i", "n", "d", "t", "m")
        rng.choice([change, change_ours])(path, rng)
    assert checked


def test_bound_of_first_rows_leaves_few_zones(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": range(1000)}), path, enable_stable_row_ids=True)
    create_zone_maps(Table(path), ["x"], 100)
    snapshot = Snapshot.open(Table(path))
    assert end_of_first_rows(snapshot, "x", 5, descending=True).as_py() == 900
    assert end_of_first_rows(snapshot, "x", 101, descending=False).as_py() == 199
    assert end_of_first_rows(snapshot, "x", 1001, descending=False) is None
    lance.dataset(path).delete("x >= 850 AND x < 905")
    after = Snapshot.open(Table(path))
    # Which zone lost the 55 rows is not looked up.
    assert end_of_first_rows(after, "x", 50, descending=True).as_py() == 800
    assert column_statistics(after, "x") is None


@pytest.mark.parametrize("name", NAMES)
def test_constants_round_trip_through_nodes(name):
    data_type, values, _ = COLUMNS[name]
    seen = spark_type_of(data_type)
    for value in values:
        scalar = pa.scalar(value, data_type).cast(seen)
        node = literal_node(scalar)
        assert node["type"] == type_name(seen)
        same = {"op": "<=>", "args": [{"column": [name]}, node]}
        batch = pa.record_batch([pa.array([value], data_type)], [name])
        predicate = predicate_from_json(json.dumps(same), batch.schema)
        assert evaluate(predicate, batch).to_pylist() == [True], value
