"""Many processes append to one table: every append lands, and row ids stay dense."""

from __future__ import annotations

import multiprocessing

import lance
import pyarrow as pa
import pytest

from pyspark_lance.table.write import WriteSettings, commit_write, open_existing, plan_write
from pyspark_lance.table.write_fragments import write_fragments

pytestmark = pytest.mark.interop

PROCESSES, APPENDS, ROWS = 8, 25, 3


def append(path: str, first: int, rows: int = ROWS, **settings: object) -> int | None:
    table = pa.table({"id": pa.array(range(first, first + rows), pa.int64())})
    plan = plan_write(
        path, {}, table.schema, WriteSettings(**settings), existing=open_existing(path, {})
    )
    result = commit_write(plan, write_fragments(plan.request, table.to_batches()))
    return None if result is None else result.version


def append_many(path: str, worker: int) -> None:
    for number in range(APPENDS):
        append(path, (worker * APPENDS + number) * ROWS, retries=1000, timeout_s=120.0)


def test_eight_processes_appending_25_times_each_make_200_versions(tmp_path):
    path = str(tmp_path / "t")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=append_many, args=(path, i)) for i in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    dataset = lance.dataset(path)
    total = PROCESSES * APPENDS * ROWS
    assert dataset.version == PROCESSES * APPENDS
    dataset.validate()
    table = dataset.scanner(columns=["id"], with_row_id=True).to_table()
    assert sorted(table["id"].to_pylist()) == list(range(total))
    assert sorted(table["_rowid"].to_pylist()) == list(range(total))
