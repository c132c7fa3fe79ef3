"""The writer of SQL commands beside other writers, without a session."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows, update_rows
from managed_blobs import new_table, our_blobs, referenced, their_blobs
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from table_access import read_ours, write_table

from pyspark_lance.errors import CommitConflictError, RetryableCommitError, StorageError
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.service.methods import methods
from pyspark_lance.spark.source.change_writer import LanceChangeWriter
from pyspark_lance.spark.source.read_plan import PushedDown
from pyspark_lance.table.dml.moved_rows import CHANGED_ADDRESS, CHANGED_ROW_ID, CLAUSE
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

DELETE, UPDATE, INSERT = 1, 2, 3
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


def test_concurrent_merges_do_not_insert_same_key_twice(path):
    (first, written), (second, too_late) = merge(path, 1), merge(path, 2)
    first.commit(written)
    with pytest.raises(RetryableCommitError):
        second.commit(too_late)
    second.abort(too_late)
    assert read_ours(path).select(["id", "n"]).to_pylist() == [{"id": 1, "n": 0}, {"id": 7, "n": 1}]
    assert files(path) == 2


def test_abort_removes_uncommitted_files_and_keeps_committed(path):
    (first, written), (second, never) = merge(path, 1), merge(path, 2)
    first.commit(written)
    first.abort(written)
    assert files(path) == 3
    second.abort(never)
    assert files(path) == 2
    assert read_ours(path).num_rows == 2


@pytest.fixture
def rows(tmp_path):
    """Ten rows of one fragment."""
    path = str(tmp_path / "rows")
    write_table(path, pa.table({"id": range(10), "n": [0] * 10}))
    return path


def delete(path, row, options=(), **more):
    """A DELETE of one row, up to its commit."""
    schema = StructType([StructField(name, LongType()) for name in NAMES[:3]])
    pinned = (path, Snapshot.open(Table(path)).version)
    parsed = WriteOptions.parse({"path": path, **dict(options)})
    writer = LanceChangeWriter(parsed, pinned, schema, "DELETE", **more)
    none = pa.array([None], pa.int64())
    batch = pa.RecordBatch.from_arrays(
        [pa.array([DELETE], pa.int32()), none, pa.array([row])], names=list(NAMES[:3])
    )
    return writer, [writer.write(iter([batch]))]


@pytest.mark.parametrize("most", [1, 3])
def test_runs_of_command_share_retries(rows, most):
    """As the plugin does it: it passes the state of the last run."""
    runs, again = 0, ""
    while again is not None:
        writer, written = delete(rows, runs, {"commitRetries": str(most)}, retried=again)
        delete_rows(rows, f"id = {runs}")
        with pytest.raises(RetryableCommitError) as caught:
            writer.commit(written)
        runs += 1
        again = caught.value.retries or None
    assert runs == most + 1
    assert f"conflicted {runs} times" in str(caught.value)


def test_no_run_starts_after_timeout(rows):
    writer, written = delete(rows, 0, retried="1/1000000000")
    delete_rows(rows, "id = 0")
    with pytest.raises(RetryableCommitError, match="conflicted 1 times"):
        writer.commit(written)


@pytest.mark.parametrize("to", [100, 1], ids=["elsewhere", "to where the scan looked"])
def test_concurrent_rows_count_only_in_scanned_range(rows, to):
    small = """{"op": "<", "args": [{"column": ["id"]}, {"type": "bigint", "literal": 2}]}"""
    writer, written = delete(rows, 0, pushed=PushedDown(small))
    update_rows(rows, "id = 9", ["id"], lambda batch: {"id": pa.array([to] * batch.num_rows)})
    if to == 100:
        writer.commit(written)
        assert sorted(read_ours(rows)["id"].to_pylist()) == [*range(1, 9), 100]
    else:
        with pytest.raises(RetryableCommitError, match="would have matched"):
            writer.commit(written)


def update_columns(path, ids, groups):
    """An UPDATE of ``n`` by columns, up to its commit; a group of rows is one task."""
    names = [*NAMES[:3], "n"]
    schema = StructType([StructField(name, LongType()) for name in names])
    pinned = (path, Snapshot.open(Table(path)).version)
    writer = LanceChangeWriter(
        WriteOptions.parse({"path": path}), pinned, schema, "UPDATE", by_columns=True
    )
    messages = []
    for first, last in groups:
        part = ids[first:last]
        columns = [[UPDATE] * len(part), [None] * len(part), part, [one + 100 for one in part]]
        types = (pa.int32(), pa.int64(), pa.int64(), pa.int64())
        batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns, types)), names=names)
        messages.append(pickle.loads(pickle.dumps(writer)).write(iter([batch])))
    return writer, messages


def test_update_by_columns_keeps_rows_in_their_file(rows):
    writer, written = update_columns(rows, [2, 7], [(0, 2), (2, 2)])
    writer.commit(written)
    found = read_ours(rows)
    assert found["n"].to_pylist() == [0, 0, 102, 0, 0, 0, 0, 107, 0, 0]
    dataset = lance.dataset(rows)
    dataset.validate()
    assert dataset.to_table()["n"].to_pylist() == found["n"].to_pylist()
    (fragment,) = dataset.get_fragments()
    assert (fragment.count_rows(), fragment.num_deletions, dataset.version) == (10, 0, 2)
    writer.abort(written)
    assert lance.dataset(rows).to_table().num_rows == 10


def test_empty_update_by_columns_makes_no_version(rows):
    writer, written = update_columns(rows, [], [(0, 0)])
    writer.commit(written)
    assert Snapshot.open(Table(rows)).version == 1


def test_update_by_columns_runs_again_after_conflict(rows):
    writer, written = update_columns(rows, [2], [(0, 1)])
    update_rows(rows, "id = 2", ["n"], lambda batch: {"n": pa.array([5] * batch.num_rows)})
    before = files(rows)
    with pytest.raises(RetryableCommitError) as caught:
        writer.commit(written)
    assert caught.value.retries
    writer.abort(written)
    assert files(rows) in (before, before - 1)  # the commit may have removed the file already
    assert sorted(read_ours(rows)["n"].to_pylist()) == [0] * 9 + [5]


def test_update_by_columns_refuses_fragment_of_two_tasks(rows):
    before = files(rows)
    writer, written = update_columns(rows, [2, 7], [(0, 1), (1, 2)])
    with pytest.raises(StorageError, match="two tasks"):
        writer.commit(written)
    writer.abort(written)
    assert files(rows) == before
    assert Snapshot.open(Table(rows)).version == 1
    with pytest.raises(StorageError, match="a task did not report"):
        writer.commit([None])


def looked_at(path):
    """The identity of the version that Spark reads, as the plugin receives and passes it."""
    return methods()["describe"]({"options": {"path": path}})["base"]


def test_replaced_table_is_not_changed_by_earlier_scan(rows):
    """The other one has a version of the same number, and the same rows and columns."""
    base = looked_at(rows)
    writer, written = delete(rows, 3, base=base)
    shutil.rmtree(rows)
    write_table(rows, pa.table({"id": range(10), "n": [0] * 10}))
    with pytest.raises(CommitConflictError, match="replaced by another one"):
        delete(rows, 3, base=base)
    with pytest.raises(CommitConflictError, match="replaced by another one"):
        writer.commit(written)
    assert len(read_ours(rows)) == 10
    writer, written = delete(rows, 3, base=looked_at(rows))
    writer.commit(written)
    assert len(read_ours(rows)) == 9


CHOICE = StructType(
    [StructField("__lance_bytes", BinaryType()), StructField("__lance_column", StringType())]
)


@pytest.mark.interop
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "managed"])
def test_changed_rows_get_bytes_or_keep_blobs(tmp_path, version):
    path = str(tmp_path / "blobs")
    large = bytes(range(256)) * 400
    blobs = {0: b"zero", 1: large, 2: None, 3: large[1:], 4: b"", 5: b"five"}
    if version == "managed":
        new_table(path, blobs)
    else:
        blob = {"lance-encoding:blob": "true"}
        fields = [pa.field(name, pa.large_binary(), metadata=blob) for name in ("b", "c")]
        schema = pa.schema([pa.field("id", pa.int64()), *fields])
        values = list(blobs.values())
        rows = pa.table({"id": range(6), "b": values, "c": values[::-1]}, schema=schema)
        write_table(path, rows, file_version=version)
    before = referenced(path) if version == "managed" else set()
    schema = StructType([StructField(name, LongType()) for name in NAMES[:4]]).add("b", CHOICE)
    writer = LanceChangeWriter(WriteOptions.parse({"path": path}), (path, 1), schema, "MERGE")
    other = "b" if version == "managed" else "c"
    made = [b"new", None, None, None, None, b"seven"]
    kept = [None, "b", None, "b", other, None]
    chosen = pa.StructArray.from_arrays(
        [pa.array(made, pa.binary()), pa.array(kept, pa.string())],
        [one.name for one in CHOICE],
        mask=pa.array([False, False, True, False, False, False]),
    )
    columns = [
        pa.array([UPDATE] * 5 + [INSERT], pa.int32()), pa.array([0, 1, 2, 3, 4, None]),
        pa.array([0, 1, 2, 3, 4, None]), pa.array([0, 1, 2, 3, 4, 7]), chosen,
    ]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(columns, names=[*NAMES[:4], "b"])
    writer.commit([writer.write(iter([batch]))])
    expected = {0: b"new", 1: large, 2: None, 3: large[1:], 4: blobs[4], 5: b"five", 7: b"seven"}
    if version != "managed":
        expected[4] = large
    assert our_blobs(path) == expected
    assert their_blobs(path) == expected
    if version == "managed":
        assert referenced(path) == before
    assert verify(Table(path), read_data=True).findings == ()
    found = read_ours(path).select(["id", "_rowid", "_row_created_at_version"]).to_pylist()
    assert [tuple(row.values()) for row in sorted(found, key=lambda row: row["id"])] == [
        *((key, key, 1) for key in range(6)), (7, 6, 2),
    ]  # fmt: skip
