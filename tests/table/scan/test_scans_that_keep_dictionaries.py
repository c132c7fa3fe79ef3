"""Scans that may give dictionaries of strings: the same rows as scans that may not."""

from __future__ import annotations

import itertools

import lance
import pyarrow as pa
import pytest
from data_file_writing import without_dictionaries
from process_boundary import sent
from random_seeds import grid

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

LINEAGE = ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2"])
def path(request, tmp_path_factory) -> str:
    """Fragments large and small, some with deleted rows, some with dictionaries."""
    folder = str(tmp_path_factory.mktemp("repeated") / "t")
    first = 0
    for part, rows in enumerate([20_000, 300, 300, 300, 12_000, 50, 9000]):
        ids = range(first, first + rows)
        content = pa.table(
            {
                "id": pa.array(ids),
                "few": [f"word {i % 40}" for i in ids],
                "null": [None if i % 3 else "word" for i in ids],
                "large": pa.array([f"word {i % 30}" for i in ids], pa.large_string()),
                "sometimes": [f"word {i % 9 if part % 2 == 0 else i}" for i in ids],
            }
        )
        lance.write_dataset(
            content, folder, mode="append" if part else "create",
            data_storage_version=request.param, enable_stable_row_ids=True,
        )  # fmt: skip
        first += rows
    lance.dataset(folder).delete("id % 11 = 3 OR (id >= 15000 AND id < 19000)")
    return folder


def scan(path: str, condition: str | None, **request: object) -> list[pa.RecordBatch]:
    snapshot = Snapshot.open(Table(path))
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    wanted = ScanRequest(predicate=predicate, parallelism=2, **request)
    return [batch for task in plan_scan(snapshot, wanted) for batch in sent(task).run()]


CONDITIONS = (
    None, "_rowid % 3 = 1", "_rowid < 70", "few = 'word 7'", "id >= 3 AND id < 20100",
    "few < 'word 3' AND null IS NULL", "sometimes = large OR few LIKE '%1'", "id % 40 <> 7",
)  # fmt: skip
LIMITS = tuple(itertools.product(((), LINEAGE), (777, 65_536)))


@pytest.mark.parametrize(("condition", "limits"), grid(CONDITIONS, LIMITS))
def test_kept_dictionaries_return_same_rows(path, condition, limits):
    lineage, batch_rows = limits
    limits = {"system_columns": lineage, "batch_rows": batch_rows}
    plain = scan(path, condition, **limits)
    assert len({str(batch.schema) for batch in plain}) == 1
    kept = scan(path, condition, keep_dictionaries=True, **limits)
    expected = pa.Table.from_batches(plain)
    assert without_dictionaries(kept, expected.schema).equals(expected)
    assert max(batch.num_rows for batch in kept) <= max(batch_rows, 4096)


def test_repeated_values_are_returned_as_dictionaries(path):
    batches = scan(path, None, keep_dictionaries=True)
    if lance.dataset(path).data_storage_version == "2.0":
        assert len({str(batch.schema) for batch in batches}) == 1
        return
    large = [batch for batch in batches if batch.num_rows > 5000]
    assert large
    for batch in large:
        for name in ("few", "null", "large", "sometimes"):
            assert pa.types.is_dictionary(batch.schema.field(name).type), name
