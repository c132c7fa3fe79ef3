"""Many processes append to one table: every append lands, and row ids stay dense."""

from __future__ import annotations

import multiprocessing

import lance
import pytest
from table_access import append

pytestmark = pytest.mark.interop

ROWS = 3


def append_many(path: str, worker: int, appends: int) -> None:
    for number in range(appends):
        append(path, (worker * appends + number) * ROWS, ROWS, retries=1000, timeout_s=120.0)


@pytest.mark.parametrize(
    ("processes", "appends"), [(4, 10), pytest.param(8, 25, marks=pytest.mark.slow)]
)
def test_concurrent_process_appends_each_make_version(tmp_path, processes, appends):
    path = str(tmp_path / "t")
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=append_many, args=(path, i, appends)) for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0] * processes
    dataset = lance.dataset(path)
    total = processes * appends * ROWS
    assert dataset.version == processes * appends
    dataset.validate()
    table = dataset.scanner(columns=["id"], with_row_id=True).to_table()
    assert sorted(table["id"].to_pylist()) == list(range(total))
    assert sorted(table["_rowid"].to_pylist()) == list(range(total))
