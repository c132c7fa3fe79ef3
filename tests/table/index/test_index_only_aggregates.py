"""Facts that B-trees and bitmaps provide without reading the column, also after changes."""

from __future__ import annotations

import json
import random

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from local_changes import delete_rows
from row_changes import set_to
from table_access import read_ours
from zone_map_tables import COLUMNS, PLACE, change, change_ours, parse, some_rows

from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.json import literal_node, predicate_from_json
from pyspark_lance.predicate.single_column import matching_values
from pyspark_lance.predicate.tree import And, Column, Comparison, In, IsNull, Literal, Not
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.index.segments import to_predicate_type
from pyspark_lance.table.scan import index_only_aggregates
from pyspark_lance.table.scan.index_only_aggregates import (
    bounds_by_index,
    count_where,
    first_values,
    num_values_by_index,
    value_counts,
)
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def first_of(seen: pa.Array, count: int, descending: bool) -> pa.Array:
    values = seen.drop_null()
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    order = "descending" if descending else "ascending"
    return values.take(pc.array_sort_indices(values, order=order))[:count]


def check_bounds_and_counts(snapshot: Snapshot, name: str, seen: pa.Array) -> set[str]:
    kinds = set()
    bounds = bounds_by_index(snapshot, name)
    if bounds is not None:
        is_nan = pa.types.is_floating(seen.type) and pc.any(pc.is_nan(seen)).as_py()
        low, high = (first_of(seen, 1, descending).to_pylist() for descending in (False, True))
        assert [bounds[0].as_py()] == (low or [None]), name
        assert repr([bounds[1].as_py()]) == repr([float("nan")] if is_nan else high or [None]), name
        kinds |= {"bounds", *(["NaN"] if is_nan else [])}
    num_values = num_values_by_index(snapshot, name)
    assert num_values in (None, len(seen) - seen.null_count)
    column = Column((name,), seen.type)
    values = seen.drop_null().unique()[:4]
    conditions: list[Predicate] = [IsNull(column), Not(IsNull(column)), In(column, values)]
    for value, operator in zip(values, ("=", "<", ">=", "<=>"), strict=False):
        conditions.append(Comparison(operator, column, Literal(value)))
        conditions.append(Not(And((conditions[-1], Comparison("<", column, Literal(values[-1]))))))
    for condition in conditions:
        found = count_where(snapshot, name, condition)
        if found is not None:
            assert found == matching_values(condition, (name,), seen).sum(), (name, condition)
            kinds.add("conditions")
    return kinds


def check(path: str) -> set[str]:
    """Check the facts against the rows; return the kinds of facts."""
    snapshot, kinds = Snapshot.open(Table(path)), set()
    everything = read_ours(path, system_columns=PLACE).combine_chunks()
    for field in snapshot.schema.fields:
        if field.name not in COLUMNS or not everything.num_rows:
            continue
        seen = to_predicate_type(everything[field.name].combine_chunks(), field)
        for count in (1, 5):
            for descending in (False, True):
                expected = first_of(seen, count, descending)
                found = first_values(
                    snapshot, field.name, count, descending=descending, of_all=True
                )
                if found is not None:
                    assert pc.all(pc.equal(found, expected)).as_py(), (field.name, found, expected)
                    kinds.add("first of all")
                found = first_values(snapshot, field.name, count, descending=descending)
                if found is not None:
                    last = pc.less_equal(seen, found[-1])
                    if descending:
                        last = pc.or_kleene(pc.greater_equal(seen, found[-1]), pc.is_null(seen))
                    assert pc.sum(last).as_py() >= count
                    kinds.add("first")
        kinds |= check_bounds_and_counts(snapshot, field.name, seen)
        counts = value_counts(snapshot, field.name)
        if counts is not None:
            own = {one["values"]: one["counts"] for one in pc.value_counts(seen).to_pylist()}
            assert dict(zip(counts.values.to_pylist(), counts.counts, strict=True)) == own
            kinds.add("counts")
    return kinds


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 40))]
)
def test_index_only_aggregates_equal_rows(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    lance.write_dataset(
        some_rows(rng, rng.randint(30, 150)), path, max_rows_per_file=rng.choice([20, 1000]),
        enable_stable_row_ids=seed % 2 == 0,
    )  # fmt: skip
    for column in rng.sample([*COLUMNS], 8):
        lance.dataset(path).create_scalar_index(
            column, kind := rng.choice(["BTREE", "BITMAP"]), name=f"{column}_{kind}"
        )
    for column, kind in (("i", "BTREE"), ("s", "BITMAP")):
        lance.dataset(path).create_scalar_index(column, kind, name=f"{column}_{kind}")
    kinds = check(path)
    for _ in range(4):
        rng.choice([change, change, change_ours])(path, rng)
        kinds |= check(path)
        if rng.random() < 0.4:
            lance.dataset(path).optimize.optimize_indices()
            kinds |= check(path)
    assert kinds >= {"first", "first of all", "counts", "bounds", "conditions"}


def test_rows_in_two_indices_count_once(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"n": [3, 1, 2, 1]}), path)
    for name in ("one", "two"):
        for kind in ("BTREE", "BITMAP"):
            lance.dataset(path).create_scalar_index("n", kind, name=f"{name}_{kind}")
    snapshot = Snapshot.open(Table(path))
    first = first_values(snapshot, "n", 3, descending=False, of_all=True)
    assert first is not None and first.to_pylist() == [1, 1, 2]
    counts = value_counts(snapshot, "n")
    assert counts is not None
    assert dict(zip(counts.values.to_pylist(), counts.counts, strict=True)) == {1: 2, 2: 1, 3: 1}


def test_first_values_include_remapped_rows(tmp_path):
    path = str(tmp_path / "t")
    for first, rows in ((0, 10), (10, 10), (20, 100)):
        lance.write_dataset(pa.table({"n": range(first, first + rows)}), path, mode="append")
    lance.dataset(path).create_scalar_index("n", "BTREE")
    compact(Table(path), CompactionRequest(target_rows_per_fragment=50, defer_index_remap=True))
    snapshot = Snapshot.open(Table(path))
    assert [one.num_rows for one in snapshot.manifest.fragments] == [100, 20]
    first = first_values(snapshot, "n", 1, descending=False, of_all=True)
    assert first is None or first.to_pylist() == [0]


@pytest.mark.parametrize("kind", [pa.time64("ns"), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_index_bound_reaches_tasks_unchanged(tmp_path, kind):
    path = str(tmp_path / "t")
    # Nanoseconds of a day, and microseconds from the year 294246 on: Python has neither.
    start = 7 if kind == pa.time64("ns") else 2**63 - 50_007
    numbers = pa.array([start + 1000 * number for number in range(50)])
    lance.write_dataset(pa.table({"id": range(50), "t": numbers.view(kind)}), path)
    lance.dataset(path).create_scalar_index("t", "BTREE")
    snapshot = Snapshot.open(Table(path))
    found = first_values(snapshot, "t", 3, descending=False)
    assert found is not None and found.cast(pa.int64()).equals(numbers[:3])
    condition = predicate_from_json(
        json.dumps({"op": "<=", "args": [{"column": ["t"]}, literal_node(found[-1])]}),
        predicate_schema(snapshot.schema),
    )
    request = ScanRequest(project(snapshot.schema, ["id"]), predicate=condition)
    rows = [batch for task in plan_scan(snapshot, request) for batch in task.run()]
    assert [one for batch in rows for one in batch["id"].to_pylist()] == [0, 1, 2]


def test_first_values_are_limited(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"n": range(9, -1, -1)}), path)
    lance.dataset(path).create_scalar_index("n", "BTREE")
    monkeypatch.setattr(index_only_aggregates, "MAX_FIRST_VALUES", 3)
    kinds = [first_values(Snapshot.open(Table(path)), "n", n, descending=False) for n in range(5)]
    assert [one and one.to_pylist() for one in kinds] == [None, [0], [0, 1], [0, 1, 2], None]


@pytest.mark.parametrize("stable", [False, True])
def test_deleted_and_updated_rows_are_excluded_from_counts(tmp_path, stable):
    path = str(tmp_path / "t")
    rows = pa.table({"n": range(1000), "k": [f"k{number % 5}" for number in range(1000)]})
    lance.write_dataset(rows, path, max_rows_per_file=300, enable_stable_row_ids=stable)
    lance.dataset(path).create_scalar_index("k", "BITMAP")
    delete_rows(path, "n < 10 OR k = 'k4'")
    snapshot = Snapshot.open(Table(path))
    counts = value_counts(snapshot, "k")
    assert counts.values.to_pylist() == ["k0", "k1", "k2", "k3"]
    assert counts.counts.tolist() == [198] * 4
    chosen = counts.where(parse(snapshot, "upper(k) IN ('K1', 'K3')"), "k")
    assert chosen.counts.tolist() == [198] * 2
    assert counts.where(parse(snapshot, "k = 'k1' AND n > 5"), "k") is None
    set_to(path, "n = 11", k="new")
    assert value_counts(Snapshot.open(Table(path)), "k") is None
    lance.dataset(path).optimize.optimize_indices()
    refreshed = value_counts(Snapshot.open(Table(path)), "k")
    if refreshed is not None:
        assert dict(zip(refreshed.values.to_pylist(), refreshed.counts, strict=True)) == {
            "k0": 198, "k1": 197, "k2": 198, "k3": 198, "new": 1
        }  # fmt: skip
