"""Storage options reach the executors, and show nowhere: not in texts, logs, errors or files."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from local_changes import delete_rows
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructField, StructType
from row_changes import set_to, upsert
from s3_server import s3_server  # noqa: F401

from pyspark_lance.errors import LanceError
from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.store.open_store import open_store
from pyspark_lance.store.storage_options import _TABLES, parse_storage_options
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.refs import create_branch, set_tag
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.unit_of_work import restore, set_properties
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

MARKER = "hunter22"
NAMES = [(protocol, name) for protocol, table in sorted(_TABLES.items()) for name in sorted(table)]


def value_of(protocol: str, name: str) -> str:
    """A value that the option takes."""
    for value in (MARKER, "true", "7", f'{{"private_key": "{MARKER}"}}'):
        try:
            parse_storage_options(protocol, {name: value})
        except LanceError:
            continue
        return value
    raise AssertionError(f"no value is found for {name}")


def write(table, numbers):
    data = pa.table({"id": pa.array(numbers, pa.int64())})
    plan = plan_write(table, data.schema, WriteSettings(), existing=open_existing(table))
    commit_write(plan, write_rows(plan, data.to_batches()))
    return plan


class Recorder(MemoryFileSystem):
    """Stands for the file system of a cloud, which is not asked anything."""

    cachable = False


def arguments_seen(tasks: list[tuple[str, bytes, bytes]]) -> list[dict]:
    """In an executor: what file systems are opened with for pickled scans and writes."""
    seen = []
    for protocol, scan, request in tasks:
        fsspec.register_implementation(protocol, Recorder, clobber=True)
        tables = (pickle.loads(scan).files.table, pickle.loads(request).table)
        stores = [open_store(f"{protocol}://bucket/t", table.storage) for table in tables]
        arguments = [store._fs.storage_options for store in stores]
        assert arguments[0] == arguments[1]
        seen.append(arguments[0])
    return seen


def test_options_reach_executors(tmp_path):
    path = str(tmp_path / "t")
    write(Table(path), [1])
    tasks, expected = [], []
    for protocol, name in NAMES:
        options = {f"storage.{name}": value_of(protocol, name)}
        table = Table(path, options)
        (scan,) = plan_scan(Snapshot.open(table), ScanRequest())
        plan = plan_write(
            table, pa.schema([("id", pa.int64())]), WriteSettings(), existing=Snapshot.open(table)
        )
        for shown in (repr(scan), repr(plan.request), repr(table), f"{scan} {plan} {table}"):
            assert MARKER not in shown
        tasks.append((protocol, pickle.dumps(scan), pickle.dumps(plan.request)))
        assert not [dump for dump in tasks[-1][1:] if MARKER.encode() in dump]
        expected.append(parse_storage_options(protocol, options, bucket="bucket").arguments)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executors:
        seen = executors.submit(arguments_seen, tasks).result()
    assert len(seen) == len(NAMES) > 90
    for (_, name), there, wanted in zip(NAMES, seen, expected, strict=True):
        if waits := wanted.pop("requests_timeout", None):
            assert {key: getattr(there["requests_timeout"], key) for key in waits} == waits
        assert {key: there.get(key) for key in wanted if key != "config_kwargs"} == {
            key: value for key, value in wanted.items() if key != "config_kwargs"
        }, name
        given = wanted.get("config_kwargs", {})
        assert {key: there["config_kwargs"].get(key) for key in given if key != "retries"} == {
            key: value for key, value in given.items() if key != "retries"
        }, name


def test_pickled_objects_contain_no_option_values(tmp_path):
    """The source itself, its readers with their partitions, and its writers; they work after it."""
    path, schema = str(tmp_path / "t"), StructType([StructField("id", LongType())])
    write(Table(path), [1, 2])
    options = {"path": path, "storage.aws_secret_access_key": MARKER}
    source = LanceDataSource(CaseInsensitiveDict(options))
    reader = source.reader(schema)
    for thing in (source, reader, reader.partitions(), source.writer(schema, overwrite=False)):
        assert MARKER.encode() not in cloudpickle.dumps(thing), thing
    there = cloudpickle.loads(cloudpickle.dumps(source))
    assert there.options == source.options
    assert there.options["STORAGE.AWS_SECRET_ACCESS_KEY"] == MARKER
    reader = there.reader(schema)
    partitions, tasks = reader.partitions(), cloudpickle.loads(cloudpickle.dumps(reader))
    batches = [batch for partition in partitions for batch in tasks.read(partition)]
    assert pa.Table.from_batches(batches).to_pydict() == {"id": [1, 2]}


def everything(table, storage):
    """All kinds of work on a table."""
    write(table, [0, 1, 2])
    write(table, [3, 4])
    delete_rows(table.root, "id = 1", options=storage)
    set_to(table.root, "id = 2", id=20, _arguments={"options": storage})
    upsert(table.root, pa.table({"id": pa.array([0, 7], pa.int64())}), options=storage)
    set_properties(table, {"k": "v"})
    set_tag(table, "t")
    create_branch(table, "b")
    write(table.on_branch("b"), [8])
    compact(table)
    restore(table, VersionSpec(version=1))
    cleanup_old_versions(table, CleanupPolicy(older_than_s=0, error_if_tagged=False))
    return [row for task in plan_scan(Snapshot.open(table), ScanRequest()) for row in task.run()]


def test_table_files_and_log_contain_no_option_values(tmp_path, caplog):
    table = Table(str(tmp_path / "t"), {f"storage.{name}": MARKER for _, name in NAMES})
    with caplog.at_level(logging.DEBUG):
        everything(table, table.storage)
    files = [one for one in Path(table.root).rglob("*") if one.is_file()]
    assert len(files) > 10
    assert not [one for one in files if MARKER.encode() in one.read_bytes()]
    assert MARKER not in caplog.text


@pytest.mark.s3
def test_remote_log_and_errors_hide_option_values(
    s3_server,  # noqa: F811
    caplog,
):
    bucket = s3_server.new_bucket()
    secret = {"storage.aws_secret_access_key": MARKER, "storage.aws_session_token": f"{MARKER}+t"}
    options = {**{f"storage.{k}": v for k, v in s3_server.options.items()}, **secret}
    with caplog.at_level(logging.DEBUG, logger="pyspark_lance"):
        everything(Table(f"s3://{bucket}/t", options), options)
        for uri, more in (
            ("s3://there-is-no-such-bucket/t", {}),
            (f"s3://{bucket}/t", {"storage.aws_endpoint": "http://127.0.0.1:1"}),
            (f"s3://{bucket}/t", {"storage.proxy_url": f"http://{MARKER}:x@127.0.0.1:1"}),
            (f"s3://{bucket}/t", {"storage.aws_secret_acces_key": MARKER}),
        ):
            with pytest.raises(LanceError) as error:
                write(Table(uri, {**options, **more, "storage.client_max_retries": "0"}), [1])
            assert MARKER not in "".join(traceback.format_exception(error.value))
    listed = s3_server.client().list_objects_v2(Bucket=bucket)["Contents"]
    for one in listed:
        body = s3_server.client().get_object(Bucket=bucket, Key=one["Key"])["Body"]
        assert MARKER.encode() not in body.read()
    assert MARKER not in caplog.text
