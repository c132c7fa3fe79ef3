"""Appends of 100 rows, as the table grows by a fragment and a version each time, against pylance.

python benchmarks/small_appends.py [appends]

Milliseconds of planning, writing the file and committing, each step in a process of its own, as
with Spark 4.2 and later; medians of the 20 appends before the table has that many versions. pylance
makes no ``fsync``, ours six.  Through Spark: ``lance_spark.py "20 appends"``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import lance
import numpy as np
import pyarrow as pa
from harness import Cost, print_table, run, scratch, timed

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WritePlan, WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

AT = (20, 100, 300, 1000)
NEIGHBOURS = 20


def rows() -> pa.Table:
    """100 rows of nine numbers and seven strings."""
    ids = np.arange(100)
    numbers = {f"n{i}": ids * i for i in range(9)}
    return pa.table(numbers | {f"s{i}": [f"{v % (i + 3)}" for v in ids] for i in range(7)})


def plan(path: str) -> WritePlan:
    table = Table(path)
    return plan_write(table, rows().schema, WriteSettings(), existing=open_existing(table))


def write(planned: WritePlan) -> tuple[Fragment, ...]:
    return write_rows(planned, rows().to_batches())


def commit(planned: WritePlan, written: tuple[Fragment, ...]) -> None:
    commit_write(planned, written)


def append_theirs(path: str) -> None:
    lance.write_dataset(rows(), path, mode="append", enable_stable_row_ids=True)


def appends(folder: str, count: int) -> dict[str, list[Cost]]:
    """Seconds by the clock and of the processor of each append, by step."""
    steps = (plan, write, commit, append_theirs)
    found: dict[str, list[Cost]] = {step.__name__: [] for step in steps}
    pools = {step: ProcessPoolExecutor(1, get_context("spawn")) for step in steps}

    def run_step(step: Callable[..., object], *given: object) -> object:
        cost, answer = pools[step].submit(timed, step, *given).result()
        found[step.__name__].append(cost)
        return answer

    for _ in range(count):
        planned = run_step(plan, f"{folder}/ours")
        run_step(commit, planned, run_step(write, planned))
        run_step(append_theirs, f"{folder}/theirs")
    for pool in pools.values():
        pool.shutdown()
    return found


def main(count: int = 300) -> None:
    with scratch() as folder:
        found = appends(folder, count)
    table = []
    for at in (at for at in AT if at <= count):
        costs = [zip(*taken[at - NEIGHBOURS : at], strict=True) for taken in found.values()]
        cells = (" ".join(f"{1000 * statistics.median(one):.1f}" for one in cost) for cost in costs)
        table.append((at, *cells))
    header = "versions | planning | writing | committing | pylance, all of it"
    print_table("An append of 100 rows, ms by the clock and of the processor", header, table)


if __name__ == "__main__":
    run(main)
