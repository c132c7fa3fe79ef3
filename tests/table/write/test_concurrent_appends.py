"""Many processes append to one table: every append lands, and row ids stay dense."""

from __future__ import annotations

import multiprocessing

import lance
import pytest
from table_access import append

pytestmark = pytest.mark.interop

PROCESSES, APPENDS, ROWS = 8, 25, 3


def append_many(path: str, worker: int) -> None:
    for number in range(APPENDS):
        append(path, (worker * APPENDS + number) * ROWS, ROWS, retries=1000, timeout_s=120.0)


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
