"""Appends of 100 rows, as the table grows by a fragment and a version each time, against pylance.

python benchmarks/small_appends.py [appends]

Milliseconds of planning, writing the file and committing, each step in a process of its own, as
with Spark 4.2 and later; medians of the 20 appends before the table has that many versions. pylance
makes no ``fsync``, ours six.  Through Spark: ``lance_spark.py "20 appends"``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import lance
import numpy as np
import pyarrow as pa
from timing import print_table

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


def timed(function: Callable[..., object], *given: object) -> tuple[object, float, float]:
    """What it returns, seconds by the clock and of the processor, of this process."""
    used, start = time.process_time(), time.perf_counter()
    answer = function(*given)
    return answer, time.perf_counter() - start, time.process_time() - used


def appends(folder: str, count: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds by the clock and of the processor of each append, by step."""
    steps = (plan, write, commit, append_theirs)
    found: dict[str, list[tuple[float, float]]] = {step.__name__: [] for step in steps}
    pools = {step: ProcessPoolExecutor(1, get_context("spawn")) for step in steps}

    def run(step: Callable[..., object], *given: object) -> object:
        answer, *seconds = pools[step].submit(timed, step, *given).result()
        found[step.__name__].append((seconds[0], seconds[1]))
        return answer

    for _ in range(count):
        planned = run(plan, f"{folder}/ours")
        run(commit, planned, run(write, planned))
        run(append_theirs, f"{folder}/theirs")
    for pool in pools.values():
        pool.shutdown()
    return found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    try:
        found = appends(folder, count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = []
    for at in (at for at in AT if at <= count):
        cells = [
            " ".join(
                f"{1000 * statistics.median(pair[way] for pair in taken[at - NEIGHBOURS : at]):.1f}"
                for way in (0, 1)
            )
            for taken in found.values()
        ]
        table.append((f"{at}", *cells))
    print_table(
        "An append of 100 rows, ms by the clock and of the processor, load "
        f"{os.getloadavg()[0]:.1f} (python benchmarks/small_appends.py)",
        ("versions", "planning", "writing", "committing", "pylance, all of it"),
        table,
    )


if __name__ == "__main__":
    main()
