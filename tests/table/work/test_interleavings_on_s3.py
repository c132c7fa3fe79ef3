"""Interleaved writers on S3: puts on a condition, whose lost answers come back as refusals."""

from __future__ import annotations

import contextlib
import functools
import itertools

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from directed_store import DirectedStore, Director, in_charge
from interleaving import POINTS, places
from local_changes import update_rows
from random_seeds import cases
from s3_server import s3_server  # noqa: F401

from pyspark_lance.errors import CommitConflictError, StorageError
from pyspark_lance.store import s3_store
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    abort_write,
    commit_write,
    plan_write,
    write_rows,
)

pytestmark = [pytest.mark.s3, pytest.mark.interop]

_numbers = itertools.count()


def write(uri, options, ids, **settings):
    table = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([0] * len(ids), pa.int64())})
    existing = open_existing(Table(uri, options))
    plan = plan_write(
        Table(uri, options), table.schema, WriteSettings(**settings), existing=existing
    )
    files = write_rows(plan, table.to_batches())
    try:
        commit_write(plan, files)
    except Exception:
        abort_write(plan, files)
        raise


def add(uri, options, condition):
    update_rows(uri, condition, ["n"], lambda batch: {"n": pc.add(batch["n"], 1)}, options=options)


WORK = {
    "append": lambda uri, options: write(uri, options, [20, 21]),
    "replace": lambda uri, options: write(
        uri, options, [40], overwrite=True, replace_where="id >= 40"
    ),
    "update": lambda uri, options: add(uri, options, "id IN (2, 3)"),
    "their update": lambda uri, options: lance.dataset(
        uri, storage_options=options, session=lance.Session()
    ).update({"n": "n + 10"}, where="id = 3"),
}
FIRST = ("append", "replace", "update")
SECOND = ("replace",)
STOPS = ("before the put", "put fails", "answer lost", "refused")


@pytest.fixture
def bucket(s3_server, monkeypatch):  # noqa: F811
    """Opened by the package itself, in stores that can be directed."""
    opened = s3_store.open_s3_store
    monkeypatch.setattr(
        s3_store, "open_s3_store", lambda *arguments: DirectedStore(opened(*arguments))
    )
    return f"s3://{s3_server.new_bucket()}", s3_server.options


def new_table(bucket):
    root, options = bucket
    uri = f"{root}/{next(_numbers)}"
    write(uri, options, range(6), max_rows_per_file=3)
    return uri


def contents(uri, options):
    """All rows, of which both readers say the same."""
    batches = [
        b for t in plan_scan(Snapshot.open(Table(uri, options)), ScanRequest()) for b in t.run()
    ]
    ours = sorted((row["id"], row["n"]) for batch in batches for row in batch.to_pylist())
    dataset = lance.dataset(uri, storage_options=options, session=lance.Session())
    dataset.validate()
    assert ours == sorted((row["id"], row["n"]) for row in dataset.to_table().to_pylist())
    return ours


def in_order(bucket, *names):
    uri = new_table(bucket)
    for name in names:
        WORK[name](uri, bucket[1])
    return contents(uri, bucket[1])


@pytest.mark.parametrize("first", cases(FIRST, in_ci=["update"]))
@pytest.mark.parametrize("second", SECOND)
def test_two_writers_on_s3_are_serializable(bucket, first, second):
    options = bucket[1]
    alone, before, after = (
        in_order(bucket, *names) for names in ([second], [first, second], [second, first])
    )
    trace = Director()
    uri = new_table(bucket)
    with in_charge(trace):
        WORK[first](uri, options)
    found = places(trace.calls)
    for name in STOPS:
        point = POINTS[name]
        uri = new_table(bucket)
        allowed = [before, after]
        others = functools.partial(WORK[second], uri, options)
        director = Director({found[point.place]: point.scene(others)})
        with in_charge(director):
            try:
                WORK[first](uri, options)
            except CommitConflictError:
                allowed = [alone]
        assert contents(uri, options) in allowed, (first, name, second)


@pytest.mark.parametrize("first", cases(FIRST, in_ci=["append"]))
def test_lost_s3_response_duplicates_nothing(bucket, s3_server, first):  # noqa: F811
    expected = in_order(bucket, first)
    uri = new_table(bucket)

    def lose(director, call):
        s3_server.lose_answers.append("PUT")
        return call()

    trace = Director()
    with in_charge(trace):
        WORK[first](uri, bucket[1])
    uri = new_table(bucket)
    director = Director({places(trace.calls)["put"]: lose})
    with in_charge(director), contextlib.suppress(StorageError):
        WORK[first](uri, bucket[1])
    assert not s3_server.lose_answers
    assert contents(uri, bucket[1]) == expected
