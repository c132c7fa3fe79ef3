"""What a worker of Spark has loaded costs nothing at its next request."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import subprocess
import sys
import zipfile
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from spark_releases import needs
from table_access import append, write_table

from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.spark.jobs.stages import map_rows, stage
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.source.change_writer import LanceChangeWriter
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.table.dml.moved_rows import CHANGED_ADDRESS, CHANGED_ROW_ID, CLAUSE

IDS = StructType([StructField("id", LongType())])


def make_archive(path, package):
    """A package of two modules in an archive."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/__init__.py", "")
        archive.writestr(f"{package}/one.py", "value = 1")
        archive.writestr(f"{package}/two.py", "value = 2")
    return str(path)


def importers(archive):
    """The paths for which Python keeps an importer that reads this archive."""
    return {
        path for path, finder in sys.path_importer_cache.items()
        if isinstance(finder, zipimporter) and finder.archive == archive
    }  # fmt: skip


@pytest.fixture
def sparks(tmp_path, monkeypatch):
    """An archive where Spark puts its own, one module of which is imported."""
    archive = make_archive(tmp_path / "sparks.zip", "module_of_spark")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", f"{tmp_path}/./sparks.zip", "/none"]))
    monkeypatch.syspath_prepend(archive)
    importlib.import_module("module_of_spark.one")
    yield archive
    for name in [name for name in sys.modules if name.startswith("module_of_spark")]:
        del sys.modules[name]


@pytest.fixture
def users(tmp_path, monkeypatch):
    """An archive that came later, as those of ``addPyFile`` do."""
    archive = make_archive(tmp_path / "users.zip", "module_of_user")
    monkeypatch.syspath_prepend(archive)
    importlib.import_module("module_of_user.one")
    yield archive
    for name in [name for name in sys.modules if name.startswith("module_of_user")]:
        del sys.modules[name]


def test_trimming_removes_only_spark_archive_importers(sparks, users):
    assert importers(sparks) == {sparks, f"{sparks}/module_of_spark"}
    trim_worker_overhead()
    assert importers(sparks) == set()
    assert importers(users) == {users, f"{users}/module_of_user"}
    assert gc.get_freeze_count() > 0


def test_other_modules_of_archive_are_found_later(sparks):
    trim_worker_overhead()
    importlib.invalidate_caches()
    assert importlib.import_module("module_of_spark.two").value == 2
    assert importlib.import_module("module_of_spark.one").value == 1


def test_new_user_archive_is_seen(users, sparks):
    trim_worker_overhead()
    os.remove(users)
    make_archive(users, "module_of_user_too")
    importlib.invalidate_caches()
    assert importlib.import_module("module_of_user_too.two").value == 2
    del sys.modules["module_of_user_too.two"], sys.modules["module_of_user_too"]


def ids(*values):
    return pa.RecordBatch.from_pydict({"id": pa.array(values, pa.int64())})


def source(path, **options):
    return LanceDataSource({"path": path, **options})


def feed(path):
    return source(path, readChangeFeed="true", startingVersion="1").reader(IDS)


def read(reader):
    return pa.Table.from_batches(reader.read(reader.partitions()[0])).num_rows


def writer(path):
    return source(path).writer(IDS, False)


def written(path):
    made = writer(path)
    return made, [made.write(iter([ids(7)]))]


def changer(path):
    names = [CLAUSE, CHANGED_ROW_ID, CHANGED_ADDRESS]
    schema = StructType([StructField(name, LongType()) for name in names])
    return LanceChangeWriter(WriteOptions.parse({"path": path}), (path, 1), schema, "DELETE")


def change(made):
    columns = [pa.array([1], pa.int32()), pa.array([None], pa.int64()), pa.array([0])]
    batch = pa.RecordBatch.from_arrays(columns, names=[CLAUSE, CHANGED_ROW_ID, CHANGED_ADDRESS])
    return made.write(iter([batch]))


def changed(path):
    made = changer(path)
    return made, [change(made)]


# Of what a worker of one kind is asked for: the steps before it, and its own.
REQUESTS = {
    "the source": (str, source),
    "the schema": (source, lambda made: made.schema()),
    "the plan of a scan": (source, lambda made: made.reader(IDS)),
    "a task of a scan": (lambda path: source(path).reader(IDS), read),
    "a task of changes": (feed, read),
    "the plan of a write": (source, lambda made: made.writer(IDS, False)),
    "a task of a write": (writer, lambda made: made.write(iter([ids(7)]))),
    "a commit": (written, lambda done: done[0].commit(done[1])),
    "a task of changed rows": (changer, change),
    "a commit of changed rows": (changed, lambda done: done[0].commit(done[1])),
    "the plan of a stream": (source, lambda made: made.streamReader(IDS)),
    "the sink of a stream": (source, lambda made: made.streamWriter(IDS, False)),
    "a stage of a job": (str, lambda _: list(stage(iter)(iter([ids(1)])))),
}


@pytest.mark.parametrize("request_of_spark", REQUESTS)
def test_worker_is_trimmed_after_every_request(tmp_path, sparks, request_of_spark):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": pa.array([1, 2, 3])}))
    before, asked = REQUESTS[request_of_spark]
    made = before(path)
    pkgutil.get_importer(sparks)
    assert importers(sparks)
    asked(made)
    assert importers(sparks) == set()


@pytest.mark.spark
def test_reading_workers_have_no_spark_archive_importers(spark, tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)

    def count(batches):
        import pyspark

        for batch in batches:
            found = [one for one in sys.path_importer_cache.values() if type(one) is zipimporter]
            yield pa.RecordBatch.from_pydict(
                {
                    "rows": pa.array([batch.num_rows]),
                    "importers": pa.array([len(found)]),
                    "in_archive": pa.array([type(pyspark.__loader__) is zipimporter]),
                }
            )

    rows = spark.read.format("lance").load(path).coalesce(1)
    counted = map_rows(rows, stage(count), "rows bigint, importers bigint, in_archive boolean")
    first, again = counted.collect(), counted.collect()
    assert [tuple(row) for row in again] == [(3, 0, True)]
    assert first[0]["in_archive"]


LEFT = """
import os, socket, sys, traceback, types
from pyspark import daemon
if "looked up" in sys.argv:
    sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
import pyspark_lance.spark.data_source
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead

os.environ.update(PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE="1", SPARK_REUSE_WORKER="1")
if "settled" in sys.argv:
    trim_worker_overhead()
sys.argv[1:] = ["pyspark.sql.worker.write_into_data_source"]
ours, theirs = socket.socketpair()
theirs.close()
try:
    daemon.worker(ours, True)
except BaseException as error:
    kept = error  # The daemon ends with it: Python 3.13 reports files that fail to close.
    traceback.print_exc()
try:
    ours.send(b"x")
except BrokenPipeError:
    traceback.print_exc()
os._exit(0)
"""


@needs("tracebacks of workers that cannot flush")
def test_abandoned_worker_ends_without_traceback():
    printed = {
        kind: subprocess.run(
            [sys.executable, "-c", LEFT, kind], check=True, capture_output=True, text=True
        ).stderr.count("BrokenPipeError: ")
        for kind in ("as it is", "settled", "looked up")
    }
    # Of the daemon, and of other code.
    assert printed == {"as it is": 2, "settled": 1, "looked up": 1}
