"""Tests start a hundred JVMs and Python processes; this has them start in a part of the time.

python tests/support/quick_starts.py

once for an installation of PySpark and a Java. Without it all runs just as well, later. Modules of
tests are compiled, too.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The default spends a third of the processor time of a test run on optimising what is soon over.
# What this compiles fills the space that a JVM then gives it, and is swept and compiled again.
_COMPILED_QUICKLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"

# A session with something of what most of them do, whose classes are kept.
_SESSION = """
import tempfile
from pyspark.sql import SparkSession

settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
frame = spark.range(100).selectExpr("id", "id % 7 AS k", "string(id) AS s", "array(id) AS a")
folder = tempfile.mkdtemp()
frame.write.parquet(f"{folder}/rows")
spark.read.parquet(f"{folder}/rows").createOrReplaceTempView("rows")
spark.sql("SELECT k, count(DISTINCT s), sum(id) FROM rows WHERE id > 3 GROUP BY k").collect()
spark.sql("SELECT * FROM rows JOIN (SELECT k, max(id) AS id FROM rows GROUP BY k) USING (k)").show()
frame.mapInArrow(lambda batches: batches, frame.schema).toArrow()
spark.createDataFrame([(1, "a")], "i int, s string").union(spark.sql("SELECT 1, 'x'")).collect()
source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
stream = source.writeStream.format("noop").option("checkpointLocation", f"{folder}/stream")
stream.trigger(availableNow=True).start().awaitTermination()
try:
    spark.sql("SELECT nothing FROM rows")
except Exception:
    pass
spark.stop()
"""


def use_quick_jvms() -> None:
    """All JVMs that are started from here on compile quickly rather than well, and share classes.

    An archive of another Java is passed over without a word.
    """
    options = _COMPILED_QUICKLY
    if (archive := _class_archive()).exists():
        options += f" -XX:SharedArchiveFile={archive} -Xlog:cds*=off"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)


def _class_archive() -> Path:
    """The classes of Spark as a JVM has them in memory: found, loaded and verified once."""
    return _pyspark() / "classes-of-tests.jsa"


def _pyspark() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found and found.origin
    return Path(found.origin).parent


@contextmanager
def _compiling_tests() -> Iterator[None]:
    """Compile the modules of tests as pytest changes them, which each of its processes would do."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-n", "0"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL):
        yield


def _archive_classes() -> None:
    archive = _class_archive()
    archive.unlink(missing_ok=True)
    options = f"{_COMPILED_QUICKLY} -XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off"
    # The JVM writes when Python is gone; only the end of its output is its own.
    subprocess.run(
        [sys.executable, "-c", _SESSION],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        check=True,
    )


if __name__ == "__main__":
    from jars_of_spark import refresh_jar

    from pyspark_lance.spark.compiled_archives import compile_archives

    refresh_jar()  # the archive holds for these very jars
    with _compiling_tests():
        compile_archives(_pyspark())
        _archive_classes()
