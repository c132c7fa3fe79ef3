"""Estimates of indices and analyses: near the truth where values are even; bounds always hold."""

from __future__ import annotations

from decimal import Decimal

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyspark_lance.format.operation import UpdateConfig, UpdateMap
from pyspark_lance.predicate.conditions import evaluate
from pyspark_lance.predicate.json import literal_node
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.scan.estimates import column_estimate, rows_estimate
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.scan.scan_statistics import PREFIX, statistics_entries
from pyspark_lance.table.unit_of_work import change_metadata
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

COUNT = 8000


def set_config(table: Table, entries: dict[str, str]) -> None:
    change_metadata(table, lambda _: UpdateConfig(config_updates=UpdateMap(tuple(entries.items()))))


def make_table(path: str, seed: int) -> pa.Table:
    """Even numbers, days and nulls, in fragments with zone maps; some rows are deleted later."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-50, 1000, COUNT)
    rows = pa.table(
        {
            "n": numbers,
            "day": pa.array(rng.integers(9000, 9400, COUNT).astype(np.int32)).cast(pa.date32()),
            "m": pa.array(rng.integers(0, 8, COUNT), mask=rng.random(COUNT) < 0.25),
            "s": pa.array(numbers).cast(pa.string()),
        }
    )
    table = lance.write_dataset(rows, path, max_rows_per_file=3000)
    for column in ("n", "day", "m", "s"):
        table.create_scalar_index(column, "ZONEMAP", name=column)
    table.create_scalar_index("m", "BITMAP", name="bits")
    if seed % 2:
        table.delete(f"n % {seed + 3} = 0")
    return lance.dataset(path).to_table()


CONDITIONS = (
    "n = 7", "n <> 7", "n < 300", "300 < n", "n BETWEEN 100 AND 200", "n >= 990 AND n <= 995",
    "n IN (1, 2, 3, 4)", "NOT n > 500", "n < 0 OR n > 900", "m IS NULL", "m = 3 AND n < 500",
    "m IS NOT NULL AND m > 5", "day < DATE '1995-01-01'", "n = 5000", "n > 100 AND s LIKE '1%'",
    "n < 400 AND day >= DATE '1995-03-01' AND n > 200",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_row_estimates_are_accurate(tmp_path, seed):
    path = str(tmp_path / "t.lance")
    live = make_table(path, seed)
    snapshot = Snapshot.open(Table(path))
    for text in CONDITIONS:
        predicate = parse_predicate(text, predicate_schema(snapshot.schema))
        rows = lance.dataset(path).count_rows(filter=text.replace("DATE '", "date '"))
        found = rows_estimate(snapshot, predicate, live.num_rows)
        assert 1 <= found <= live.num_rows
        if "LIKE" not in text:
            assert abs(found - rows) <= 0.1 * live.num_rows, text
        assert found <= 12 * max(rows, 20), text


@pytest.mark.parametrize("seed", range(3))
def test_estimated_bounds_and_counts_hold(tmp_path, seed):
    path = str(tmp_path / "t.lance")
    live = make_table(path, seed)
    snapshot = Snapshot.open(Table(path))
    for name in ("n", "day", "m"):
        known = column_estimate(snapshot, name)
        low, high = known.ends
        assert low <= pc.min(live[name].cast(pa.int32())).as_py()
        assert high >= pc.max(live[name].cast(pa.int32())).as_py()
        distinct = pc.count_distinct(live[name]).as_py()
        assert distinct <= known.num_distinct <= 1.5 * distinct
    known = column_estimate(snapshot, "m")  # by its bitmap, which knows of deleted rows
    assert known.num_rows - known.num_values == live["m"].null_count
    assert known.num_distinct == pc.count_distinct(live["m"]).as_py()
    assert column_estimate(snapshot, "s") is None


def keep(path: str, live: pa.Table, names: tuple[str, ...]) -> Snapshot:
    """What an analysis finds of columns, by Arrow."""
    snapshot, found = Snapshot.open(Table(path)), {}
    for name in names:
        values = live[name]
        known = {
            "num_nulls": values.null_count, "num_distinct": pc.count_distinct(values).as_py(),
        }  # fmt: skip
        if not pa.types.is_string(values.type):
            ends = (pc.min(values), pc.max(values))
            known |= {
                end: literal_node(value)["literal"]
                for end, value in zip(("minimum", "maximum"), ends, strict=True)
            }
        found[name] = known
    entries = statistics_entries(snapshot, found, live.num_rows)
    set_config(Table(path), entries)
    return Snapshot.open(Table(path))


@pytest.mark.parametrize("seed", range(3))
def test_stored_statistics_estimate_rows_until_data_changes(tmp_path, seed):
    path = str(tmp_path / "t.lance")
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-900, 900, COUNT)
    cents = pa.array([Decimal(int(n)) / 4 for n in numbers], pa.decimal128(12, 2))
    rows = pa.table(
        {
            "d": cents, "f": pa.array(numbers / 8, mask=rng.random(COUNT) < 0.3),
            "s": pa.array(numbers % 20).cast(pa.string()), "n": numbers,
        }
    )  # fmt: skip
    lance.write_dataset(rows, path, max_rows_per_file=3000)
    snapshot = keep(path, rows, ("d", "f", "s"))
    for text in (
        "d < 0", "d >= 200.5", "f BETWEEN -20.5 AND 60.25", "f IS NULL", "s = '7'", "s <> '7'",
        "s IN ('1', '2', '3')", "d = 5 AND s = '3'", "f > 100000", "s = '4' AND d > -100 AND f < 9",
    ):  # fmt: skip
        predicate = parse_predicate(text, predicate_schema(snapshot.schema))
        matching = pc.sum(evaluate(predicate, rows.to_batches()[0])).as_py()
        assert abs(rows_estimate(snapshot, predicate, COUNT) - matching) <= 0.1 * COUNT, text
    assert column_estimate(snapshot, "n") is None
    lance.write_dataset(rows.slice(0, 4000), path, mode="append")
    known = column_estimate(Snapshot.open(Table(path)), "f")
    assert known.ends is None
    assert known.num_distinct == pc.count_distinct(rows["f"]).as_py()
    nulls = known.num_rows - known.num_values
    assert nulls == round(rows["f"].null_count * 1.5)
    lance.dataset(path).delete("n > -800")
    assert column_estimate(Snapshot.open(Table(path)), "f") is None


def test_zones_provide_bounds_and_statistics_distinct_counts(tmp_path):
    path = str(tmp_path / "t.lance")
    rows = pa.table({"n": pa.array([0, 1_000_000] * 500)})
    lance.write_dataset(rows, path).create_scalar_index("n", "ZONEMAP")
    assert column_estimate(Snapshot.open(Table(path)), "n").num_distinct == 1000
    known = column_estimate(keep(path, rows, ("n",)), "n")
    assert (known.ends, known.num_distinct) == ((0, 1_000_000), 2)


def test_unreadable_statistics_are_ignored(tmp_path):
    path = str(tmp_path / "t.lance")
    rows = pa.table({"n": pa.array(range(10))})
    lance.write_dataset(rows, path)
    for text in ("", "[]", "{}", '{"version": 1, "more": 2}'):
        set_config(Table(path), {f"{PREFIX}n": text})
        assert column_estimate(Snapshot.open(Table(path)), "n") is None


def test_bitmap_provides_distinct_count_of_texts(tmp_path):
    path = str(tmp_path / "t.lance")
    rows = pa.table({"s": pa.array(["a", "b", None, "c"] * 5)})
    lance.write_dataset(rows, path).create_scalar_index("s", "BITMAP")
    known = column_estimate(Snapshot.open(Table(path)), "s")
    assert (known.num_distinct, known.num_values, known.num_rows) == (3, 15, 20)
    assert known.ends is None


def test_fragment_without_zones_disables_estimates(tmp_path):
    path = str(tmp_path / "t.lance")
    make_table(path, 2)
    lance.write_dataset(lance.dataset(path).to_table(limit=5), path, mode="append")
    snapshot = Snapshot.open(Table(path))
    predicate = parse_predicate("n = 7", predicate_schema(snapshot.schema))
    assert column_estimate(snapshot, "n") is None
    assert rows_estimate(snapshot, predicate, 77) == 77
