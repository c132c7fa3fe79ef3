"""Rows on their way to Python: a limit on the bytes of a batch only where rows are wide."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pyspark_lance import LanceTable

pytestmark = pytest.mark.spark

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS = 20_000
# With these, a batch of a hundred narrow rows is small, and one with a wide row is not.
SMALL = {BYTES: "12000", RECORDS: "100"}


@pytest.fixture
def settings(plugin):
    """Set what a test needs, and unset it afterwards."""

    def put(values):
        for key, value in values.items():
            plugin.conf.set(key, value)

    yield put
    for key in (BYTES, RECORDS):
        plugin.conf.unset(key)


def rows_with(session, wide_from):
    """One partition of rows by number, of which that one is wide and some behind it."""
    wide = (F.col("id") >= wide_from) & ((F.col("id") - wide_from) % 50 == 0)
    text = F.when(wide, F.repeat(F.lit("wide "), 3000)).otherwise(F.col("id").cast("string"))
    return session.range(0, ROWS, 1, 1).select("id", text.alias("text"))


def assert_written(session, path, frame, files):
    """All rows are there once and in order, in so many files."""
    assert LanceTable.forPath(session, path).detail().first().numFiles == files
    assert session.read.format("lance").load(path).collect() == frame.collect()


@pytest.mark.parametrize(
    ("values", "wide_from", "files"),
    [
        ({}, ROWS, 1),  # Spark's own limit
        (SMALL, ROWS, 1),
        (SMALL, 0, 1),  # never begun without the limit
        (SMALL, 63, 1),  # nor if one of the first rows is as wide
        (SMALL, 64, 2),
        (SMALL, 4_999, 2),
        (SMALL, 5_000, 2),
        (SMALL, ROWS - 1, 2),
        ({BYTES: "12000", RECORDS: "0"}, ROWS, 2),  # one batch, as far as rows are counted
        ({BYTES: str(2**31 - 1), RECORDS: "100"}, 5_000, 1),  # no limit at all
    ],
)
def test_rows_arrive_once_and_in_order(plugin, path, settings, values, wide_from, files):
    settings(values)
    frame = rows_with(plugin, wide_from)
    frame.write.format("lance").save(path)
    plugin.conf.unset(RECORDS)  # Spark reads nothing by batches of no rows
    assert_written(plugin, path, frame, files)


def test_wide_rows_make_one_file_for_each_task(plugin, path, settings):
    settings({BYTES: "100000", RECORDS: "100"})
    for name, width, count in (("wide", 2_000, 300), ("very_wide", 50_000, 9)):
        frame = plugin.range(0, count, 1, 1).select("id", F.repeat(F.lit("x"), width).alias("text"))
        frame.write.format("lance").save(f"{path}/{name}")
        assert_written(plugin, f"{path}/{name}", frame, 1)


def test_many_tasks_with_and_without_wide_rows(plugin, path, settings):
    settings(SMALL)
    frame = plugin.range(0, 8_000, 1, 8).select(
        "id",
        F.when(F.col("id") % 3_000 == 2_999, F.repeat(F.lit("x"), 50_000)).alias("text"),
        F.array(F.col("id"), F.lit(None)).alias("list"),
    )
    frame.write.format("lance").save(path)
    # Two of the tasks have a wide row that is not their first one.
    assert_written(plugin, path, frame, 10)
    plugin.sql(f"INSERT INTO lance.`{path}` SELECT id + 8000, text, list FROM lance.`{path}`")
    assert plugin.read.format("lance").load(path).count() == 16_000


def test_empty_frame_is_written(plugin, path):
    plugin.range(0).write.format("lance").save(path)
    assert plugin.read.format("lance").load(path).count() == 0


def test_error_after_first_wide_row_fails_write(plugin, path, settings):
    settings(SMALL)
    frame = rows_with(plugin, 5_000)
    frame.write.format("lance").save(path)
    failing = frame.withColumn("id", F.when(F.col("id") == 9_000, F.raise_error(F.lit("no row"))))
    with pytest.raises(PySparkException, match="no row"):
        failing.write.format("lance").mode("append").save(path)
    assert_written(plugin, path, frame, 2)


def test_overwrite_by_two_workers_makes_one_version(plugin, path, settings):
    settings(SMALL)
    rows_with(plugin, ROWS).write.format("lance").save(path)
    frame = rows_with(plugin, 700)
    frame.write.format("lance").mode("overwrite").save(path)
    assert_written(plugin, path, frame, 2)
    assert LanceTable.forPath(plugin, path).history().count() == 2
