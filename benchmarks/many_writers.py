"""Sixteen processes that write one local table as fast as they can, against pylance.

python benchmarks/many_writers.py [--writers 16] [--seconds 15] [--rounds 2] [append] [upsert] [hot]

Each writer appends 100 rows, or upserts 20 of 10,000 keys (``hot``: of 200), again and again.  Ours
with and without ``fsync``, and pylance, which makes none, take turns on tables of their own.
Prints commits per second, commits of the slowest, the mean and the fastest writer, how often work
was tried again, and how many writes failed after the default number of retries.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import lance
import pyarrow as pa
from timing import print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from row_changes import upsert

from pyspark_lance.commit.retries import Retries
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

KEYS = {"upsert": 10_000, "hot": 200}
UPSERTED = 20
APPENDED = 100

Write = Callable[[str, random.Random], None]


def rows(ids: list[int], value: float) -> pa.Table:
    return pa.table({"id": ids, "value": [value] * len(ids), "text": [f"row {i}" for i in ids]})


def append_ours(path: str, chance: random.Random) -> None:
    table, new = Table(path), rows(list(range(APPENDED)), chance.random())
    plan = plan_write(table, new.schema, WriteSettings(), existing=open_existing(table))
    commit_write(plan, write_rows(plan, new.to_batches()))


def append_theirs(path: str, chance: random.Random) -> None:
    new = rows(list(range(APPENDED)), chance.random())
    lance.write_dataset(new, path, mode="append")


def upserted(path: str, chance: random.Random) -> pa.Table:
    keys = KEYS[Path(path).name.partition("-")[0]]
    return rows(chance.sample(range(keys), UPSERTED), chance.random())


def upsert_ours(path: str, chance: random.Random) -> None:
    upsert(path, upserted(path, chance))


def upsert_theirs(path: str, chance: random.Random) -> None:
    merge = lance.dataset(path).merge_insert("id")
    merge = merge.when_matched_update_all().when_not_matched_insert_all()
    merge.execute(upserted(path, chance))


WAYS = ("ours", "ours without fsync", "pylance")


def write_of(job: str, way: str) -> Write:
    if job == "append":
        return append_theirs if way == "pylance" else append_ours
    return upsert_theirs if way == "pylance" else upsert_ours


def counted(retries: list[int]) -> None:
    """Counts in ``retries[0]`` how often something is tried again."""
    again = Retries.again

    def counting(self: Retries, **given: float) -> bool:
        retries[0] += 1
        return again(self, **given)

    Retries.again = counting


def writer(number: int, line: Connection) -> None:
    """A writer's process: writes for a while whenever it is told to, and says what came of it."""
    retries, fsync = [0], os.fsync
    counted(retries)
    while (task := line.recv()) is not None:
        job, way, path, start, end = task
        os.fsync = (lambda descriptor: None) if "without" in way else fsync
        write, chance = write_of(job, way), random.Random(f"{number} {start}")
        time.sleep(max(0.0, start - time.time()))
        retries[0], failed, longest = 0, 0, 0.0
        began: list[float] = [time.time()]
        while began[-1] < end:
            try:
                write(path, chance)
            except Exception as error:  # noqa: BLE001  counted
                failed += 1
                print(f"{job}, {way}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
                began[-1] = time.time()
            else:
                longest = max(longest, time.time() - began[-1])
                began.append(time.time())
        line.send((sum(one <= end for one in began[1:]), failed, retries[0], longest))


def make_table(path: str, job: str) -> None:
    keys = KEYS.get(job, APPENDED)
    lance.write_dataset(rows(list(range(keys)), 0.0), path, enable_stable_row_ids=True)


def measure(jobs: list[str], writers: int, seconds: float, rounds: int) -> list[tuple[str, ...]]:
    """Rows of the table."""
    context = get_context("fork")  # before the first call of pylance, which starts threads
    lines, processes = [], []
    for number in range(writers):
        line, other = context.Pipe()
        processes.append(context.Process(target=writer, args=(number, other)))
        processes[-1].start()
        lines.append(line)
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    found: dict[tuple[str, str], list[list[tuple[int, int, int, float]]]] = {}
    try:
        for turn in range(-1, rounds):  # the first only warms up
            for job in jobs:
                for way in WAYS:
                    path = f"{folder}/{job}-{WAYS.index(way)}-{turn}"
                    make_table(path, job)
                    start = time.time() + 0.5
                    for line in lines:
                        line.send((job, way, path, start, start + (seconds if turn >= 0 else 1)))
                    told = [line.recv() for line in lines]
                    if turn >= 0:
                        found.setdefault((job, way), []).append(told)
                    shutil.rmtree(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for line, process in zip(lines, processes, strict=True):
            line.send(None)
            process.join()
    return [row_of(job, way, told, seconds) for (job, way), told in found.items()]


def row_of(
    job: str, way: str, told: list[list[tuple[int, int, int, float]]], seconds: float
) -> tuple[str, ...]:
    commits = [[one[0] for one in turn] for turn in told]
    total = statistics.mean(sum(turn) for turn in commits)
    mean = total / len(commits[0])
    failed, again = (sum(one[at] for turn in told for one in turn) for at in (1, 2))
    return (
        job,
        way,
        f"{total / seconds:.1f}",
        f"{statistics.mean(min(turn) for turn in commits):.1f}",
        f"{mean:.1f}",
        f"{statistics.mean(max(turn) for turn in commits):.1f}",
        f"{statistics.mean(min(turn) for turn in commits) / max(mean, 1e-9):.2f}",
        f"{max(one[3] for turn in told for one in turn):.1f}",
        "" if way == "pylance" else f"{again / max(1, sum(map(sum, commits))):.2f}",
        f"{failed}",
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", nargs="*")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    jobs = given.jobs or ["append", "upsert", "hot"]
    table = measure(jobs, given.writers, given.seconds, given.rounds)
    print_table(
        f"{given.writers} writers for {given.seconds:g} s, {given.rounds} times, load "
        f"{os.getloadavg()[0]:.1f} (python benchmarks/many_writers.py)",
        (
            "job",
            "by",
            "commits/s",
            "slowest",
            "mean",
            "fastest",
            "slowest / mean",
            "longest s",
            "retries / commit",
            "failed",
        ),
        table,
    )


if __name__ == "__main__":
    main()
