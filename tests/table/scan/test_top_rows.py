"""The first rows of an order, as tasks find them: against a sort of all rows."""

from __future__ import annotations

import datetime as dt
import decimal
import functools

import lance
import numpy as np
import pyarrow as pa
import pytest
from process_boundary import sent
from random_seeds import seeds

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.scan.top_rows import TopRows, run_top
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

FLOATS = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, -1.5, 2e-300]
START = dt.datetime(2024, 1, 1)


def values_of(rng: np.random.Generator, kind: str, rows: int) -> pa.Array:
    few = int(rng.choice([3, 50, 10**6]))
    numbers = rng.integers(-few, few, rows).tolist()
    made = {
        "int": (lambda n: n, pa.int32()),
        "unsigned": (lambda n: n + few, pa.uint64()),
        "float": (lambda n: FLOATS[n % 8] if n % 3 else float(n), pa.float64()),
        "half": (lambda n: np.float16(FLOATS[n % 8] if n % 3 else n % 99), pa.float16()),
        "text": (
            lambda n: ["", "ä", "z", "Z", "\U0001f600", "\uffff"][n % 6] + str(n),
            pa.string(),
        ),
        "decimal": (lambda n: decimal.Decimal(n) / 100, pa.decimal128(12, 2)),
        "date": (lambda n: START.date() + dt.timedelta(n % 9999), pa.date32()),
        "nanoseconds": (lambda n: 1000 * n, pa.timestamp("ns")),
        "flag": (lambda n: n % 2 == 0, pa.bool_()),
    }
    make, data_type = made[kind]
    is_null = rng.random(rows) < rng.choice([0, 0.02, 0.6])
    return pa.array(
        [None if null else make(n) for n, null in zip(numbers, is_null, strict=True)], data_type
    )


KINDS = ("int", "unsigned", "float", "half", "text", "decimal", "date", "nanoseconds", "flag")


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    """A column of each kind, in fragments large and small, with deleted rows."""
    folder = str(tmp_path_factory.mktemp("top") / "t")
    rng = np.random.default_rng(11)
    first = 0
    for rows in (1600, 90, 90, 900):
        columns = {kind: values_of(rng, kind, rows) for kind in KINDS}
        content = pa.table({"id": pa.array(range(first, first + rows)), **columns})
        lance.write_dataset(content, folder, mode="append", enable_stable_row_ids=True)
        first += rows
    lance.dataset(folder).delete("id % 7 = 3 OR (id >= 1600 AND id < 1685)")
    return folder


def tasks_of(path: str, condition: str | None, parallelism: int = 2) -> list[ScanTask]:
    snapshot = Snapshot.open(Table(path))
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    return list(plan_scan(snapshot, ScanRequest(predicate=predicate, parallelism=parallelism)))


def found(path: str, top: TopRows, condition: str | None = None) -> list[dict]:
    tasks = [sent((task, top)) for task in tasks_of(path, condition)]
    batches = [batch for task, order in tasks for batch in run_top(task, order, lambda: False)]
    return [row for batch in batches for row in batch.to_pylist()]


def compared(one: object, other: object) -> int:
    """As Spark compares values: NaN is the greatest number, texts are compared by their bytes."""
    if isinstance(one, str):
        one, other = one.encode(), str(other).encode()
    elif isinstance(one, float | np.floating):
        one, other = ((bool(np.isnan(x)), 0.0 if np.isnan(x) else float(x)) for x in (one, other))
    return (one > other) - (one < other)


def rank(value: object, top: TopRows) -> tuple:
    if value is None:
        return (0 if top.nulls_first else 2, 0)
    key = functools.cmp_to_key(compared)(value)
    return (1, Reversed(key) if top.descending else key)


@functools.total_ordering
class Reversed:
    def __init__(self, key) -> None:
        self.key = key

    def __eq__(self, other) -> bool:
        return self.key == other.key

    def __lt__(self, other) -> bool:
        return other.key < self.key


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(4, in_ci=1))
def test_tasks_return_all_top_rows(path, kind, seed):
    rng = np.random.default_rng([KINDS.index(kind), seed])
    dataset = lance.dataset(path)
    for condition in (None, "id % 3 = 1", f"{kind} IS NOT NULL AND id > 400", "_rowid < 1500"):
        rows = dataset.to_table(filter=condition and condition.replace("_rowid", "id")).to_pylist()
        for _ in range(2):
            descending, nulls_first, more = rng.integers(0, 2, 3).astype(bool).tolist()
            top = TopRows(kind, int(rng.choice([1, 5, 40])), descending, nulls_first, more)
            keys = sorted(rank(row[kind], top) for row in rows)
            last = keys[top.rows - 1]
            some = found(path, top, condition)
            assert {row["id"] for row in some} <= {row["id"] for row in rows}
            assert len({row["id"] for row in some}) == len(some)
            ranks = sorted(rank(row[kind], top) for row in some)
            assert ranks[: top.rows] == keys[: top.rows], (condition, top)
            if more:  # for any order of equal rows by other columns
                wanted = [row["id"] for row in rows if rank(row[kind], top) <= last]
                assert set(wanted) <= {row["id"] for row in some}, (condition, top)


def test_top_task_returns_only_requested_rows(path):
    for kind in ("int", "float", "text", "decimal", "date", "nanoseconds"):
        top = TopRows(kind, 5, descending=True, nulls_first=False, has_more_columns=False)
        for task in tasks_of(path, None, parallelism=1):
            batches = list(run_top(sent(task), top, lambda: False))
            assert sum(batch.num_rows for batch in batches) == 5, kind


def test_top_task_returns_all_equal_rows(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": range(3000), "one": [1] * 3000}), path)
    top = TopRows("one", 5, descending=False, nulls_first=True, has_more_columns=True)
    assert sorted(row["id"] for row in found(path, top)) == list(range(3000))


def test_unsupported_top_column_leaves_scan_unchanged(path):
    whole = len(lance.dataset(path).to_table())
    for name in ("flag", "nothing"):
        top = TopRows(name, 5, descending=False, nulls_first=True, has_more_columns=False)
        assert len(found(path, top)) == whole
