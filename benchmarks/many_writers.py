"""Sixteen processes that write one table as fast as they can, against pylance and Delta Lake.

python benchmarks/many_writers.py [--s3] [--writers 16] [--seconds 15] [--rounds 2]
    [append] [upsert] [single] [hot]

Each writer appends 100 rows, or upserts 20 of 10,000 keys (``single``: one of them, ``hot``: 20 of
200), again and again.  Ours
with and without ``fsync``, pylance and the package ``deltalake`` (left out where it is not
installed), which make none, take turns on tables of their own.  With ``--s3`` the tables are on the
S3 server of the tests, which is one process in Python on this machine.
Prints commits per second, commits of the slowest, the mean and the fastest writer, processor time
of the writers (not of the server) for each commit, requests for each commit, how often work was
tried again, and how many writes failed after the default number of retries.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import lance
import pyarrow as pa
from harness import print_table, run, write
from s3_server import S3Server, running_server
from support.row_changes import upsert

from pyspark_lance.commit.retries import Retries

KEYS = {"upsert": 10_000, "single": 10_000, "hot": 200}
UPSERTED = {"upsert": 20, "single": 1, "hot": 20}
APPENDED = 100
OURS, UNSYNCED, PYLANCE, DELTA = "ours", "ours without fsync", "pylance", "deltalake"

Options = dict[str, str]
Write = Callable[[str, Options, random.Random], object]


def rows(ids: list[int], value: float) -> pa.Table:
    return pa.table({"id": ids, "value": [value] * len(ids), "text": [f"row {i}" for i in ids]})


def appended(rng: random.Random) -> pa.Table:
    return rows(list(range(APPENDED)), rng.random())


def upserted(path: str, rng: random.Random) -> pa.Table:
    job = Path(path).name.partition("-")[0]
    return rows(rng.sample(range(KEYS[job]), UPSERTED[job]), rng.random())


def append_ours(path: str, options: Options, rng: random.Random) -> None:
    write(path, appended(rng), options)


def append_pylance(path: str, options: Options, rng: random.Random) -> None:
    lance.write_dataset(appended(rng), path, mode="append", storage_options=options)


def append_delta(path: str, options: Options, rng: random.Random) -> None:
    from deltalake import write_deltalake

    write_deltalake(path, appended(rng), mode="append", storage_options=for_delta(options))


def upsert_ours(path: str, options: Options, rng: random.Random) -> None:
    upsert(path, upserted(path, rng), options=options)


def upsert_pylance(path: str, options: Options, rng: random.Random) -> None:
    merge = lance.dataset(path, storage_options=options).merge_insert("id")
    merge = merge.when_matched_update_all().when_not_matched_insert_all()
    merge.execute(upserted(path, rng))


def upsert_delta(path: str, options: Options, rng: random.Random) -> None:
    from deltalake import DeltaTable

    table = DeltaTable(path, storage_options=for_delta(options))
    merge = table.merge(upserted(path, rng), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def for_delta(options: Options) -> Options:
    """Storage options that create a version only if it is not there."""
    return {**options, "conditional_put": "etag"} if options else {}


APPENDS: dict[str, Write] = {PYLANCE: append_pylance, DELTA: append_delta}
UPSERTS: dict[str, Write] = {PYLANCE: upsert_pylance, DELTA: upsert_delta}


def write_of(job: str, way: str) -> Write:
    if job == "append":
        return APPENDS.get(way, append_ours)
    return UPSERTS.get(way, upsert_ours)


def counted(retries: list[int]) -> None:
    """Count in ``retries[0]`` how often something is tried again."""
    again = Retries.again

    def counting(self: Retries, **given: float) -> bool:
        retries[0] += 1
        return again(self, **given)

    Retries.again = counting


@dataclass(frozen=True)
class Task:
    """What all writers do for a while."""

    job: str
    way: str
    path: str
    options: Options
    start: float  # Seconds since the epoch.
    end: float


@dataclass(frozen=True)
class Outcome:
    """What one writer did."""

    commits: int
    late_commits: int  # Begun in time, but done after the end.
    failed: int
    retries: int
    longest_s: float
    processor_s: float
    error: str  # The first one; empty for none.


def writer(number: int, line: Connection) -> None:
    """Serve as a writer's process: write for a while for each task, and send what came of it."""
    retries, fsync = [0], os.fsync
    counted(retries)
    while (task := line.recv()) is not None:
        os.fsync = (lambda descriptor: None) if task.way == UNSYNCED else fsync
        line.send(written(task, random.Random(f"{number} {task.start}"), retries))


def written(task: Task, rng: random.Random, retries: list[int]) -> Outcome:
    """Writes until the end."""
    write = write_of(task.job, task.way)
    time.sleep(max(0.0, task.start - time.time()))
    retries[0], failed, longest, error = 0, 0, 0.0, ""
    ends: list[float] = []
    began, used = time.time(), time.process_time()
    while began < task.end:
        try:
            write(task.path, task.options, rng)
        except Exception as one:  # noqa: BLE001  counted
            failed += 1
            error = error or f"{type(one).__name__}: {one}"
        else:
            ends.append(time.time())
            longest = max(longest, ends[-1] - began)
        began = time.time()
    done = sum(one <= task.end for one in ends)
    used = time.process_time() - used
    return Outcome(done, len(ends) - done, failed, retries[0], longest, used, error)


def make_table(path: str, options: Options, job: str, way: str) -> None:
    first = rows(list(range(KEYS.get(job, APPENDED))), 0.0)
    if way == DELTA:
        from deltalake import write_deltalake

        write_deltalake(path, first, storage_options=for_delta(options))
    else:
        lance.write_dataset(first, path, enable_stable_row_ids=True, storage_options=options)


def check(task: Task, outcomes: list[Outcome]) -> None:
    """No commit may have got lost."""
    commits = sum(one.commits + one.late_commits for one in outcomes)
    if task.way == DELTA:
        from deltalake import DeltaTable

        table = DeltaTable(task.path, storage_options=for_delta(task.options))
        versions = table.version()
    else:
        table = lance.dataset(task.path, storage_options=task.options)
        versions = table.version - 1
    # A write that failed may have made a version whose answer was lost.
    failed = sum(one.failed for one in outcomes)
    if not commits <= versions <= commits + failed:
        sys.exit(f"{task.job}, {task.way}: {commits} commits made {versions} versions")


def ways(on_s3: bool) -> list[str]:
    """Return the writers that take turns."""
    found = [OURS, PYLANCE] if on_s3 else [OURS, UNSYNCED, PYLANCE]
    if importlib.util.find_spec("deltalake") is not None:
        return [*found, DELTA]
    print("without Delta Lake: the package deltalake is not installed")
    return found


class Writers:
    """The processes, and where their tables are."""

    def __init__(self, count: int, on_s3: bool) -> None:
        context = get_context("fork")  # before pylance, deltalake and the server start threads
        self._lines, self._processes = [], []
        for number in range(count):
            line, other = context.Pipe()
            self._processes.append(context.Process(target=writer, args=(number, other)))
            self._processes[-1].start()
            self._lines.append(line)
        self._folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
        self._server: S3Server | None = running_server() if on_s3 else None

    def run(self, job: str, way: str, seconds: float) -> tuple[list[Outcome], int]:
        """What each writer did in a new table; how many requests there were."""
        options: Options = {}
        path = f"{self._folder}/{job}-{way.replace(' ', '-')}"
        if self._server is not None:
            options = self._server.options
            path = f"s3://{self._server.new_bucket()}/{job}-{way}"
        make_table(path, options, job, way)
        start = time.time() + 0.5
        task = Task(job, way, path, options, start, start + seconds)
        if self._server is not None:
            self._server.requests.clear()
        for line in self._lines:
            line.send(task)
        outcomes = [line.recv() for line in self._lines]
        requests = 0 if self._server is None else len(self._server.requests)
        errors = {re.sub(r"\d+", "N", one.error.partition("\n")[0]) for one in outcomes}
        for error in sorted(errors - {""}):
            print(f"{job}, {way}: {error[:200]}", file=sys.stderr)
        check(task, outcomes)
        shutil.rmtree(path, ignore_errors=True)
        return outcomes, requests

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for line, process in zip(self._lines, self._processes, strict=True):
            line.send(None)
            process.join()


def row_of(
    job: str, way: str, turns: list[tuple[list[Outcome], int]], seconds: float
) -> tuple[str, ...]:
    commits = [[one.commits for one in outcomes] for outcomes, _ in turns]
    every = [one for outcomes, _ in turns for one in outcomes]
    total = statistics.mean(map(sum, commits))
    mean, slowest = total / len(commits[0]), statistics.mean(map(min, commits))
    done = max(1, sum(one.commits + one.late_commits for one in every))
    requests, again = sum(count for _, count in turns), sum(one.retries for one in every)
    return (
        job,
        way,
        f"{total / seconds:.1f}",
        f"{slowest:.1f}",
        f"{mean:.1f}",
        f"{statistics.mean(map(max, commits)):.1f}",
        f"{slowest / max(mean, 1e-9):.2f}",
        f"{max(one.longest_s for one in every):.1f}",
        f"{1e3 * sum(one.processor_s for one in every) / done:.1f}",
        f"{requests / done:.1f}" if requests else "",
        f"{again / done:.2f}" if way in (OURS, UNSYNCED) else "",
        f"{sum(one.failed for one in every)}",
    )


def main(
    *jobs: str, s3: bool = False, writers: int = 16, seconds: float = 15.0, rounds: int = 2
) -> None:
    sides, pool = ways(s3), Writers(writers, s3)
    found: dict[tuple[str, str], list[tuple[list[Outcome], int]]] = {}
    try:
        for turn in range(-1, rounds):  # the first only warms up
            for job in jobs or ("append", "upsert", "single", "hot"):
                for way in sides:
                    done = pool.run(job, way, seconds if turn >= 0 else 1)
                    if turn >= 0:
                        found.setdefault((job, way), []).append(done)
    finally:
        pool.close()
    header = (
        "job | by | commits/s | slowest | mean | fastest | slowest / mean | longest s | "
        "processor ms / commit | requests / commit | retries / commit | failed"
    )
    where = "on S3" if s3 else "in a folder"
    title = f"{writers} writers {where} for {seconds:g} s, {rounds} times"
    rows = [row_of(job, way, turns, seconds) for (job, way), turns in found.items()]
    print_table(title, header, rows)


if __name__ == "__main__":
    run(main)
