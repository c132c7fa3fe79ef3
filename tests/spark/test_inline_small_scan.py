"""Rows that come with the plan of a scan, as the plugin asks for them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from table_access import write_table

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.service.methods import methods
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

COLUMNS = StructType([StructField("id", LongType()), StructField("s", StringType())])
BELOW_TEN = json.dumps({"op": "<", "args": [{"column": ["id"]}, {"literal": 10, "type": "bigint"}]})


@pytest.fixture
def path(tmp_path):
    """A table of 100 rows, at most 700 bytes of numbers and texts in Arrow for each ten."""
    where = str(tmp_path / "t")
    write_table(where, pa.table({"id": range(100), "s": [f"row {i}" for i in range(100)]}))
    return where


def plan(path, *, small=1 << 19, **options):
    """The plan of a scan of the newest version, as the plugin receives it."""
    snapshot = Snapshot.open(Table(path))
    params = {
        "root": snapshot.uri,
        "version": snapshot.version,
        "columns": COLUMNS.json(),
        "small_bytes": small,
    }
    for name in {"filter", "limit", "transfer_mode"} & options.keys():
        params[name] = options.pop(name)
    return methods()["plan"]({"options": {"path": path, **options}, "params": params})


def rows_of(facts):
    """The rows of the Arrow streams in a plan, as the plugin reads them."""
    found = []
    for stream in facts["batches"]:
        found += pa.ipc.open_stream(stream).read_all().to_pylist()
    return found


def test_small_scan_rows_are_inlined_in_plan(path):
    facts = plan(path)
    assert rows_of(facts) == [{"id": i, "s": f"row {i}"} for i in range(100)]
    assert (facts["fragments"], facts["rows"]) == (1, 100)


def test_rows_are_not_inlined_without_request(path):
    left = {"fragments": 1, "rows": 100, "indices": []}
    assert methods()["plan"]({"options": {"path": path}}) == left


def test_scan_above_byte_limit_is_left_to_tasks(path):
    size = sum(stream.size for stream in plan(path)["batches"])
    assert len(rows_of(plan(path, small=size))) == 100
    assert plan(path, small=size - 1) == {"fragments": 1, "rows": 100, "indices": []}


def test_inlined_rows_respect_limit(path):
    assert rows_of(plan(path, limit=3, small=2000)) == [
        {"id": i, "s": f"row {i}"} for i in range(3)
    ]


def test_filtered_scan_is_inlined_if_small(path):
    assert [row["id"] for row in rows_of(plan(path, filter=BELOW_TEN))] == list(range(10))
    # Ten rows are fewer, but it takes reading all.
    size = sum(stream.size for stream in plan(path, limit=10)["batches"])
    assert "batches" not in plan(path, filter=BELOW_TEN, small=size)


@pytest.mark.parametrize(("fragments", "is_read"), [(16, True), (17, False)])
def test_scan_of_many_fragments_is_left_to_tasks(tmp_path, fragments, is_read):
    where = str(tmp_path / "many")
    for first in range(fragments):
        write_table(where, pa.table({"id": [first], "s": ["x"]}))
    facts = plan(where)
    assert facts["fragments"] == fragments
    assert ("batches" in facts) == is_read
    if is_read:
        assert [row["id"] for row in rows_of(facts)] == list(range(fragments))


def test_partitioning_options_disable_inlining(path):
    assert "batches" not in plan(path, fragmentsPerPartition="1")


def test_damaged_file_is_left_to_tasks(path, tmp_path):
    (data,) = (tmp_path / "t" / "data").iterdir()
    data.write_bytes(data.read_bytes()[:-20])
    assert plan(path) == {"fragments": 1, "rows": 100, "indices": []}


def test_unsupported_scan_options_are_refused_in_plan(path):
    with pytest.raises(InvalidInputError, match="it is shared, copied or off"):
        plan(path, transfer_mode="sideways")
    with pytest.raises(InvalidInputError, match="readChangeFeed"):
        plan(path, startingVersion="1")
