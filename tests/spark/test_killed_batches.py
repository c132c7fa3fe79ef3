"""A driver that is killed after a merge and before Spark notes the batch: nothing twice.

In every run, ``test_connect`` merges a batch again whose commit Spark has not noted.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from script_process import run_script
from table_access import read_ours, write_table

from pyspark_lance import LanceTable
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Runs in a process that it kills, and once more in the session of the tests.
FOLLOW = """
def follow(spark, folder, printed, end=None):
    def count(batch, number):
        counts = LanceTable.forPath(spark, folder + "/counts")
        # Not the same again where it runs twice, unlike an upsert of the rows themselves.
        done = (
            counts.merge(
                batch, "target.id = source.id", txnAppId="counts", txnVersion=str(number)
            )
            .whenMatchedUpdate(set={"times": "target.times + 1"})
            .whenNotMatchedInsert(values={"id": "source.id", "times": "1"})
            .execute()
        )
        printed("batch", number, "version", done.version)
        if end:
            end()
    rows = spark.readStream.format("lance").load(folder + "/source")
    stream = rows.writeStream.foreachBatch(count).trigger(availableNow=True)
    stream.option("checkpointLocation", folder + "/checkpoint").start().awaitTermination()
"""
KILLED = (
    """
import functools, os, signal, sys
from pyspark.sql import SparkSession
from pyspark_lance import LanceTable
"""
    + FOLLOW
    + """
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
def end():
    os.kill(spark._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
follow(spark, sys.argv[1], functools.partial(print, flush=True), end)
"""
)


def test_killed_driver_merges_batch_once(spark, tmp_path):
    ids = pa.array(range(20), pa.int64())
    write_table(str(tmp_path / "source"), pa.table({"id": ids}))
    counts = str(tmp_path / "counts")
    write_table(counts, pa.table({"id": ids[:5], "times": pa.array([0] * 5, pa.int64())}))
    with pytest.raises(AssertionError, match="batch 0 version 2"):
        run_script(KILLED, tmp_path)
    assert list((tmp_path / "checkpoint/offsets").glob("0"))
    assert not list((tmp_path / "checkpoint").glob("commits/0"))
    names, printed = {"LanceTable": LanceTable}, []
    exec(FOLLOW, names)
    names["follow"](spark, str(tmp_path), lambda *words: printed.append(words))
    assert printed == [("batch", 0, "version", None)]
    assert list((tmp_path / "checkpoint").glob("commits/0"))
    assert Snapshot.open(Table(counts)).version == 2
    rows = read_ours(counts, system_columns=()).to_pylist()
    assert sorted((row["id"], row["times"]) for row in rows) == [(one, 1) for one in range(20)]
