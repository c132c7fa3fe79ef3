"""The writer of SQL commands beside others, without a session."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from table_access import read_ours, write_table

from pyspark_lance.errors import RetryableCommitError
from pyspark_lance.spark.change_writer import LanceChangeWriter
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.table.change.moved_rows import CHANGED_ADDRESS, CHANGED_ROW_ID, CLAUSE

INSERT = 3
NAMES = (CLAUSE, CHANGED_ROW_ID, CHANGED_ADDRESS, "id", "n")


@pytest.fixture(params=[True, False], ids=["with primary key", "without"])
def path(tmp_path, request):
    metadata = {"lance-schema:unenforced-primary-key": "true"} if request.param else None
    key = pa.field("id", pa.int64(), nullable=False, metadata=metadata)
    path = str(tmp_path / "t")
    table = pa.table({"id": [1], "n": [0]}, schema=pa.schema([key, pa.field("n", pa.int64())]))
    write_table(path, table)
    return path


def merge(path, n):
    """A MERGE that inserts key 7, up to its commit."""
    schema = StructType([StructField(name, LongType()) for name in NAMES])
    writer = LanceChangeWriter(WriteOptions.parse({"path": path}), (path, 1), schema, "MERGE")
    none = pa.array([None], pa.int64())
    batch = pa.RecordBatch.from_arrays(
        [pa.array([INSERT], pa.int32()), none, none, pa.array([7]), pa.array([n])],
        names=list(NAMES),
    )
    return writer, [writer.write(iter([batch]))]


def files(path):
    return len(list(Path(path, "data").iterdir()))


def test_two_merges_at_one_version_do_not_both_insert_a_key(path):
    (first, written), (second, too_late) = merge(path, 1), merge(path, 2)
    first.commit(written)
    with pytest.raises(RetryableCommitError):
        second.commit(too_late)
    second.abort(too_late)
    assert read_ours(path).select(["id", "n"]).to_pylist() == [
        {"id": 1, "n": 0},
        {"id": 7, "n": 1},
    ]
    assert files(path) == 2


def test_an_abort_removes_files_though_others_went_on_and_keeps_those_that_landed(path):
    (first, written), (second, never) = merge(path, 1), merge(path, 2)
    first.commit(written)
    first.abort(written)
    assert files(path) == 3
    second.abort(never)
    assert files(path) == 2
    assert read_ours(path).num_rows == 2
