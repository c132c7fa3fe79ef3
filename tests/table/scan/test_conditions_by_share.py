"""Conditions of changing selectivity: which columns are read with theirs, and when."""

from __future__ import annotations

import itertools
from collections import Counter

import lance
import numpy as np
import pyarrow as pa
import pytest
from process_boundary import sent
from random_seeds import grid

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_statistics import limit_tasks
from pyspark_lance.table.scan.scan_task import _SplitScan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS = 40_000
# Of the rows of each stretch, so many of a thousand are marked: all, none, few, some, all, half.
STRETCHES = (1000, 0, 20, 200, 1000, 500, 0, 1000)


def content() -> pa.Table:
    """Stretches of rows that are marked seldom and often; every number is there twice."""
    ids = np.arange(ROWS)
    often = np.repeat(STRETCHES, ROWS // len(STRETCHES))
    return pa.table(
        {
            "id": ids,
            "marked": (ids * 7919 % 1000) < often,
            "word": [f"word {i % 11}" for i in ids.tolist()],
            "number": pa.array(ids % 20_000, mask=ids % 5 == 0),
            "point": [{"x": i, "y": None if i % 3 else f"{i}"} for i in ids.tolist()],
        }
    )


@pytest.fixture(scope="module", params=["0.1", "2.0", "2.1"])
def path(request, tmp_path_factory) -> str:
    """One fragment, of which a stretch and some other rows are deleted."""
    folder = str(tmp_path_factory.mktemp("shares") / "t")
    version = {"0.1": "legacy"}.get(request.param, request.param)
    rows = content().drop_columns(["point"]) if version == "legacy" else content()
    lance.write_dataset(rows, folder, data_storage_version=version, enable_stable_row_ids=True)
    lance.dataset(folder).delete("id % 13 = 5 OR (id >= 21000 AND id < 24000)")
    return folder


def scan(path: str, condition: str, columns: list[str], **request: object) -> list[pa.RecordBatch]:
    snapshot = Snapshot.open(Table(path))
    wanted = ScanRequest(
        schema=project(snapshot.schema, columns),
        predicate=parse_predicate(condition, predicate_schema(snapshot.schema)),
        parallelism=1,
        **request,
    )
    return [batch for task in plan_scan(snapshot, wanted) for batch in sent(task).run()]


CONDITIONS = (
    "marked", "marked AND number IS NOT NULL", "number IS NOT NULL", "number IS NULL OR marked",
    "number IS NOT NULL AND word IS NOT NULL", "NOT marked AND word <> 'word 3'",
    "marked AND _rowid % 2 = 0", "marked OR _rowaddr % 50 = 7",
)  # fmt: skip
# The columns, whether dictionaries are kept, and the rows of a batch.
REQUESTS = tuple(
    itertools.product((("word", "id"), ("id", "number")), (False, True), (900, 65_536))
)


@pytest.mark.parametrize(("condition", "asked"), grid(CONDITIONS, REQUESTS))
def test_filtered_rows_equal_pylance(path, condition, asked):
    names, keep_dictionaries, batch_rows = asked
    columns = list(names)
    batches = scan(
        path, condition, columns, system_columns=("_rowid",), batch_rows=batch_rows,
        keep_dictionaries=keep_dictionaries,
    )  # fmt: skip
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    wanted = lance.dataset(path).to_table(columns=columns, filter=condition, with_row_id=True)
    assert found == [tuple(row[n] for n in (*columns, "_rowid")) for row in wanted.to_pylist()]
    assert 0 < len(found) < ROWS
    assert all(batch.schema.names == [*columns, "_rowid"] for batch in batches)


def test_condition_on_other_struct_member_equals_pylance(path):
    if "point" not in lance.dataset(path).schema.names:
        pytest.skip("files of 0.1 have no nulls in structs")
    batches = scan(path, "marked AND point.y IS NOT NULL", ["point", "id"], batch_rows=900)
    found = [row for batch in batches for row in batch.to_pylist()]
    filtered = {"columns": ["point", "id"], "filter": "marked AND point.y IS NOT NULL"}
    assert found == lance.dataset(path).to_table(**filtered).to_pylist()


def streams_of(
    monkeypatch, path: str, condition: str, columns: list[str], **request
) -> list[list[str]]:
    """The columns of each read of windows, in the order of these."""
    read = FragmentReader.stream
    seen = []

    def noted(self, fields, system, rows, **how):
        seen.append([field.name for field in fields])
        return read(self, fields, system, rows, **how)

    monkeypatch.setattr(FragmentReader, "stream", noted)
    scan(path, condition, columns, **(request or {"batch_rows": ROWS // len(STRETCHES)}))
    return seen


def test_columns_are_read_together_while_many_rows_match(monkeypatch, path):
    only, rest, every = ["marked"], ["word", "id"], ["word", "id", "marked"]
    # Few rows are taken one by one. A change is seen after the first batch that shows it.
    assert streams_of(monkeypatch, path, "marked", ["word", "id"]) == [
        only, rest, every, only, rest, every, only, rest,
    ]  # fmt: skip


def test_not_null_conditions_read_all_columns_at_once(monkeypatch, path):
    condition = "number IS NOT NULL AND word IS NOT NULL"
    assert streams_of(monkeypatch, path, condition, ["word", "id"]) == [["word", "id", "number"]]


def test_numbers_are_read_together_while_any_row_matches(monkeypatch, path):
    only, rest, every = ["marked"], ["id", "number"], ["id", "number", "marked"]
    # The two stretches without a match end it.
    assert streams_of(monkeypatch, path, "marked", ["id", "number"]) == [
        only, rest, every, only, every, only, rest,
    ]  # fmt: skip


def test_short_batch_does_not_change_read_strategy(monkeypatch, tmp_path):
    ids = np.arange(ROWS)
    # Batches of 50 kB have 12,500 rows, 1,388, and then 6,153 each; one row in 900 is marked.
    is_short = (ids >= 12_500) & (ids < 13_888)
    rows = pa.table({"id": ids, "number": ids, "marked": (ids % 900 == 7) & ~is_short})
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.1")
    sizes, test = [], _SplitScan._filter_rows

    def noted(self, first, tested, keep):
        sizes.append(tested.num_rows)
        return test(self, first, tested, keep)

    monkeypatch.setattr(_SplitScan, "_filter_rows", noted)
    streams = streams_of(
        monkeypatch, str(tmp_path / "t"), "marked", ["id", "number"], batch_bytes=50_000
    )
    assert min(sizes[1:-1]) == sizes[1] < sizes[0] // 4
    assert streams == [["marked"], ["id", "number", "marked"]]


def rows_read(monkeypatch, path: str, condition: str, limit: int) -> dict[str, int]:
    """How many values of each column a scan of some rows reads."""
    counts: Counter[str] = Counter()
    stream, take = FragmentReader.stream, FragmentReader.take_batches

    def count(fields, batches):
        for found in batches:
            rows = found[1] if isinstance(found, tuple) else found
            counts.update({field.name: rows.num_rows for field in fields})
            yield found

    monkeypatch.setattr(
        FragmentReader, "stream",
        lambda self, fields, *more, **how: count(fields, stream(self, fields, *more, **how)),
    )  # fmt: skip
    monkeypatch.setattr(
        FragmentReader, "take_batches",
        lambda self, fields, *more: count(fields, take(self, fields, *more)),
    )  # fmt: skip
    snapshot = Snapshot.open(Table(path))
    request = ScanRequest(
        schema=project(snapshot.schema, ["id", "word"]),
        predicate=parse_predicate(condition, predicate_schema(snapshot.schema)),
        batch_rows=2000,
    )
    (task,) = limit_tasks(plan_scan(snapshot, request), limit)
    assert sum(batch.num_rows for batch in sent(task).run()) == limit
    return dict(counts)


@pytest.mark.parametrize(
    ("condition", "share", "read"),
    [
        ("marked", 1, {"marked": 2000, "id": 3, "word": 3}),
        ("marked IS NOT NULL", 1, {"marked": 2000, "id": 3, "word": 3}),
        ("_rowid % 2 = 0", 1, {"id": 3, "word": 3}),
        ("_row_created_at_version < 9", 1, {"id": 3, "word": 3}),
        ("_row_created_at_version < 9", 2, {"id": 3, "word": 3}),
        ("_row_created_at_version < 9", 50, {"id": 3, "word": 3}),
        ("marked", 50, {"marked": 800, "id": 3, "word": 3}),
    ],
)
def test_limited_scans_read_few_values(tmp_path, monkeypatch, condition, share, read):
    path = str(tmp_path / "t")
    rows = content().drop_columns(["point"])
    lance.write_dataset(rows, path, data_storage_version="2.1", enable_stable_row_ids=True)
    lance.dataset(path).delete(f"id % {share} <> 0")
    assert rows_read(monkeypatch, path, condition, 3) == read
