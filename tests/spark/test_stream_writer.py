"""The sink's promises towards Spark, called as Spark calls it; no JVM."""

from __future__ import annotations

import os
import time

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from table_access import write_table
from table_files import files_of, used_files

from pyspark_lance.errors import StorageError
from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.metafile.transaction_file import transaction_of
from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.spark.source.stream_writer import BATCH_PROPERTY, QUERY_PROPERTY
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.cleanup.leftovers import leftover_files, remove_leftover_files
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

SCHEMA = StructType([StructField("id", LongType())])

pytestmark = pytest.mark.interop


def run_batch(path, number, *ids, **options):
    """Spark makes one writer for the tasks, and another one for the commit."""
    writers = [
        LanceDataSource({"path": path, **options}).streamWriter(SCHEMA, overwrite=False)
        for _ in range(2)
    ]
    tasks = [[one] for one in ids] or [[]]
    parts = [pa.table([pa.array(part, pa.int64())], ["id"]).to_batches() for part in tasks]
    writers[1].commit([writers[0].write(iter(part)) for part in parts], number)


def test_a_query_with_a_name_of_its_own_is_known_by_it(tmp_path):
    path = str(tmp_path / "t")
    run_batch(path, 0, 1, 2, streamingQueryId="feed")
    for number in range(5):
        write_table(path, pa.table({"id": [10 + number]}))
    run_batch(path, 0, 1, 2, streamingQueryId="feed")  # again, as after a crash
    assert lance.dataset(path).version == 6 and files_of(path) == used_files(path)
    run_batch(path, 1, 3, streamingQueryId="feed")
    newest = Snapshot.open(Table(path))
    properties = transaction_of(newest.store, newest.file).properties
    assert (properties[QUERY_PROPERTY], properties[BATCH_PROPERTY]) == ("feed", "1")
    run_batch(path, 0, 4, streamingQueryId="another")
    run_batch(path, 2, streamingQueryId="feed")  # nothing in it: no version
    assert lance.dataset(path).version == 8
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [1, 2, 3, 4, *range(10, 15)]


def test_a_batch_that_another_writer_committed_is_known_by_its_keys(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": [0]}))
    properties = {QUERY_PROPERTY: "feed", BATCH_PROPERTY: "7"}
    write_table(path, pa.table({"id": [1]}), properties=properties)
    write_table(path, pa.table({"id": [2]}))
    for number, expected in ((7, 3), (6, 3), (8, 4), (8, 4)):
        run_batch(path, number, 10 + number, streamingQueryId="feed")
        assert lance.dataset(path).version == expected and files_of(path) == used_files(path)
    run_batch(path, 5, 100, streamingQueryId="another")
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [0, 1, 2, 18, 100]


def test_what_a_dead_executor_wrote_of_a_batch_is_found_as_a_leftover(tmp_path):
    path = str(tmp_path / "t")
    run_batch(path, 0, 1, streamingQueryId="feed")
    options = {"path": path, "streamingQueryId": "feed"}
    writer = LanceDataSource(options).streamWriter(SCHEMA, overwrite=False)
    part = pa.table([pa.array([2], pa.int64())], ["id"]).to_batches()
    before = files_of(path)
    writer.write(iter(part))  # it dies before Spark has the answer, and the task runs once more
    (lost,) = files_of(path) - before
    writer.commit([writer.write(iter(part))], 1)
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [1, 2]
    assert [file.path for file in leftover_files(Table(path))] == [lost]
    assert remove_leftover_files(Table(path)) == []  # young: it may be of a write under way
    removed = remove_leftover_files(Table(path), older_than_s=0, force=True)
    assert [file.path for file in removed] == [lost] and files_of(path) == used_files(path)
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [1, 2]


def test_cleanup_removes_old_files_of_dead_executors(tmp_path):
    path = str(tmp_path / "t")
    run_batch(path, 0, 1, streamingQueryId="feed")
    options = {"path": path, "streamingQueryId": "feed"}
    writer = LanceDataSource(options).streamWriter(SCHEMA, overwrite=False)
    before = files_of(path)
    writer.write(iter(pa.table([pa.array([2], pa.int64())], ["id"]).to_batches()))
    (lost,) = files_of(path) - before
    long_ago = time.time() - 2 * SAFE_AGE_S
    os.utime(tmp_path / "t" / lost, (long_ago, long_ago))
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
    assert files_of(path) == used_files(path)


def test_a_batch_of_nobody_is_not_committed(tmp_path):
    with pytest.raises(StorageError, match="does not say which query"):
        run_batch(str(tmp_path / "t"), 0, 1)
