"""The writer's promises towards Spark, called as Spark calls it; no JVM."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_lance.errors import StorageError
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.source.batch_writer import LanceBatchWriter

SCHEMA = StructType([StructField("id", LongType())])


def writer(path, **options):
    return LanceBatchWriter(WriteOptions.parse({"path": path, **options}), SCHEMA, overwrite=False)


def rows(*ids):
    return iter([pa.record_batch([pa.array(ids, pa.int64())], ["id"])])


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def data_files(tmp_path):
    return sorted(p.name for p in tmp_path.rglob("*.lance"))


def test_a_missing_commit_message_is_an_error_and_nothing_is_committed(path, tmp_path):
    one = writer(path)
    message = one.write(rows(1, 2))
    with pytest.raises(StorageError, match="partition 1 sent no account"):
        one.commit([message, None])
    one.abort([message, None])
    assert data_files(tmp_path) == []
    assert not (tmp_path / "t" / "_versions").exists()


def test_abort_after_a_commit_that_did_happen_keeps_the_files(path):
    one = writer(path)
    message = one.write(rows(1, 2))
    one.commit([message])
    # Spark calls abort when commit raised, and it may have raised only because an answer was lost.
    one.abort([message])
    assert lance.dataset(path).to_table()["id"].to_pylist() == [1, 2]


def test_abort_removes_the_files_of_all_partitions(path, tmp_path):
    writer(path).commit([writer(path).write(rows(7))])
    before = data_files(tmp_path)
    one = writer(path)
    messages = [one.write(rows(1)), None, one.write(rows(2))]
    one.abort(messages)
    assert data_files(tmp_path) == before


def test_a_partition_that_fails_removes_what_it_wrote(path, tmp_path):
    def failing():
        yield from rows(*range(10))
        raise RuntimeError("lost connection")

    with pytest.raises(RuntimeError, match="lost connection"):
        writer(path, max_rows_per_file="3").write(failing())
    assert data_files(tmp_path) == []


def test_two_writers_that_both_create_the_table_both_land(path):
    first, second = writer(path), writer(path)
    messages = first.write(rows(1)), second.write(rows(2))
    first.commit([messages[0]])
    second.commit([messages[1]])
    dataset = lance.dataset(path)
    assert dataset.version == 2
    assert sorted(dataset.to_table()["id"].to_pylist()) == [1, 2]
    dataset.validate()
