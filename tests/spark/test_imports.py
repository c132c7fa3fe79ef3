"""Processes of Spark import what their work needs, and no more: each import is paid by each one."""

from __future__ import annotations

import pytest
from kinds_of_work import PROCESSES, run

# What no small piece of work on a local table needs, of any kind.
NEVER = (
    "pandas", "fsspec", "s3fs", "aiobotocore", "asyncio", "multiprocessing", "requests", "ssl",
    "pyarrow.dataset", "pyarrow.parquet", "pyarrow.acero", "pyarrow.fs",
    "pyspark_lance.namespace", "pyspark_lance.command_line", "pyspark_lance.spark.jobs",
    "pyspark_lance.spark.api.lance_table", "pyspark_lance.spark.sql.procedures",
    "pyspark_lance.spark.source.stream_reader", "pyspark_lance.table.cdf.change_feed_task",
    "pyspark_lance.table.verify.verify",
)  # fmt: skip
WRITES = (
    "pyspark_lance.datafile.writer",
    "pyspark_lance.table.write",
    "pyspark_lance.commit.conflict",
)
SCANS = ("pyspark_lance.table.scan", "pyspark_lance.datafile", "pyspark_lance.codec")
CONDITIONS = ("pyspark_lance.predicate", "pyarrow.compute")
# A name of SQL is taken apart by a module that imports nothing else.
ROW_CHANGES = (
    "pyspark_lance.predicate.tokens", "pyspark_lance.predicate.tree", "pyspark_lance.table.scan",
    "pyspark_lance.table.index", "pyspark_lance.table.change", "pyspark_lance.datafile.reader",
    "pyspark_lance.table.cleanup.cleanup",
    "pyspark_lance.datafile.v0_1", "pyspark_lance.datafile.v2_0",
)  # fmt: skip
# A process reads the version that its table has.
OLD_FILES = (
    "pyspark_lance.datafile.v2_0", "pyspark_lance.codec.v2_0.variable_width",
    "pyspark_lance.datafile.v0_1.field_reader", "pyspark_lance.datafile.v0_1.statistics",
    "pyspark_lance.table.rows.legacy_pruning",
)  # fmt: skip
WRITERS = ("pyspark_lance.datafile.writer", "pyspark_lance.codec.structural", "pyarrow.compute")
# The table has none.
INDICES = (
    "pyspark_lance.table.index.lookups", "pyspark_lance.table.index.bitmap",
    "pyspark_lance.table.index.btree", "pyspark_lance.table.index.bloom",
)  # fmt: skip
# What a task does is planned.
PLANS = (
    "pyspark_lance.predicate.parse", "pyspark_lance.spark.options.parse_options",
    "pyspark_lance.table.version.snapshot", "pyspark_lance.metafile.manifest_file",
    "pyspark_lance.table.scan.plan_scan", "pyspark_lance.commit",
)  # fmt: skip
LEFT_OUT = {
    "look up the source": ("numpy", "pyarrow", "google", "pyspark_lance.table", *CONDITIONS),
    "find the schema": (*WRITES, *SCANS, *CONDITIONS),
    "describe for the plugin": (*WRITES, *OLD_FILES),
    "plan a scan": (*WRITES, *INDICES, *OLD_FILES),
    "scan": (*WRITES, *INDICES, *PLANS, *OLD_FILES),
    "plan a write": (*ROW_CHANGES, *WRITERS),
    "write": ROW_CHANGES,
    "commit": (*ROW_CHANGES, *WRITERS),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the processes are sent."""
    path = tmp_path_factory.mktemp("work")
    run("prepare", path)
    return path


@pytest.mark.parametrize("kind", PROCESSES)
def test_process_imports_only_needed_modules(kind, folder):
    modules = run(kind, folder)["modules"]
    assert "pyspark_lance.spark.data_source" in modules
    unwanted = (*NEVER, *LEFT_OUT[kind])
    assert [
        name
        for name in modules
        if any(name == one or name.startswith(f"{one}.") for one in unwanted)
    ] == []


@pytest.mark.parametrize("kind", ["scan", "write"])
def test_worker_of_prepared_daemon_imports_nothing(kind, folder):
    assert run(kind, folder, "pyspark_lance.spark.daemon")["modules"] == []
