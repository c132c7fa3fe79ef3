"""A stream with the option ``consumer`` keeps what it has not read; its reader needs no JVM."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from spark_releases import needs
from table_access import append

from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.table.refs import consumers_of
from pyspark_lance.table.version.table import Table

pytestmark = needs("limits of micro-batches")


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    for version in range(4):
        append(path, 3 * version)
    return path


def reader_of(path, **options):
    options = {"path": path, "consumer": "mirror", **options}
    return LanceDataSource(options).streamReader(StructType([StructField("id", LongType())]))


def position(path):
    found = consumers_of(Table(path))
    return [(one.name, one.version, one.lag) for one in found]


def next_batch(reader, start=None):
    """The end of a batch that is planned and read."""
    start = start or reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.partitions(start, end)
    return end


def test_consumer_retains_unread_versions(path):
    reader = reader_of(path, maxRowsPerTrigger="5")
    assert position(path) == []
    first = next_batch(reader)
    assert first["v"] == -1  # a part of the snapshot, which is kept
    assert position(path) == [("mirror", 4, 0)]
    append(path, 100)
    append(path, 200)
    offsets = [first]
    while (end := next_batch(reader, offsets[-1])) != offsets[-1]:
        reader.commit(offsets[-1])  # once the next batch is known, as Spark does it
        offsets.append(end)
    # In the middle of version 6.
    assert [5, 2, 6] in [[one["v"], one.get("i"), one.get("t")] for one in offsets]
    assert position(path) == [("mirror", 5, 1)]
    reader.commit(end)
    assert position(path) == [("mirror", 6, 0)]
    # Another query, from a checkpoint that is behind: it gets back what it needs.
    next_batch(reader_of(path), {"f": 1, "v": 4})
    assert position(path) == [("mirror", 4, 2)]


def test_consumer_of_stream_with_start_keeps_previous_version(path):
    next_batch(reader_of(path, startingVersion="3"))
    assert position(path) == [("mirror", 2, 2)]
    next_batch(reader_of(path, startingVersion="latest"))
    assert position(path) == [("mirror", 4, 0)]


def test_failed_consumer_update_does_not_end_stream(path, caplog):
    reader = reader_of(path)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.commit({**end, "v": 99})
    assert "a consumer could not be moved" in caplog.text
