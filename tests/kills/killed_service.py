"""The service of the JVM plugin is killed, again and again: nothing may be lost or come twice.

    python tests/kills/killed_service.py --kills 200 --seed 1

Threads with a session and a table each run statements: appends, updates, merges, deletes and
counts. The service is killed by SIGKILL: at a random time, when a commit has written its
transaction file, and when it has put its version. A statement either succeeds, and then its rows
are there once, or fails with an error that has a code; whether it was committed is then looked up.
In the end each table has the rows of the model, and ``verify`` finds nothing. Before most kills a
statement may succeed, or a slow machine would only show that a service that starts can be killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(one) for one in (_TESTS / "support", _TESTS, _TESTS.parent)]

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from table_access import read_ours

from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table

# The longest time that a kill at a random time waits; statements take some tenths of a second.
_MAX_WAIT_S = 1.5
# The longest wait for a statement that succeeds, or for a file of a commit.
_PATIENCE_S = 20.0
_POLL_S = 0.002
_SHARE_AFTER_SUCCESS = 0.8
# When the service is killed: at a random time, or once a folder of a table has another file.
_MOMENTS = {
    "at a random time": None,
    "after a transaction file was written": "_transactions",
    "after a version was put": "_versions",
}


@dataclass
class Outcome:
    """What happened in a run."""

    kills: Counter[str] = field(default_factory=Counter)  # by their moment
    succeeded: int = 0
    failed: int = 0
    landed: int = 0  # of those that failed
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        moments = ", ".join(f"{self.kills[one]} {one}" for one in _MOMENTS)
        return (
            f"service killed {self.kills.total()} times: {moments}\n"
            f"statements: {self.succeeded} succeeded; {self.failed} ended with an error, of which "
            f"{self.landed} had been committed and {self.failed - self.landed} had not\n"
            f"problems: {len(self.problems)} (errors without a code, statements of which a part "
            "was committed, tables that differ from the model, findings of verify)"
        )


def service_processes() -> list[int]:
    """The services among the descendants of this process."""
    parents, services = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = entry.joinpath("stat").read_text().rpartition(") ")[2].split()[1]
                parents[int(entry.name)] = int(parent)
                words = entry.joinpath("cmdline").read_bytes().split(b"\0")
                if words[1:3] == [b"-m", b"pyspark_lance.spark.service"]:
                    services.append(int(entry.name))

    def ancestors(process: int) -> Iterator[int]:
        while process in parents:
            process = parents[process]
            yield process

    return [one for one in services if os.getpid() in ancestors(one)]


class _Worker:
    """Statements of one session on one table, whose rows it knows."""

    def __init__(self, spark: SparkSession, path: str, seed: int, outcome: Outcome) -> None:
        self._spark = spark
        self.path = path
        self._rng = random.Random(seed)
        self._outcome = outcome
        self._rows: dict[int, int] = {}
        self._next = 0

    def step(self) -> None:
        """Run one statement, and find out whether it was committed if it failed."""
        after, statement = self._statement()
        try:
            self._spark.sql(statement).collect()
        except PySparkException as error:
            self._outcome.failed += 1
            if "[LANCE_" not in str(error):
                self._outcome.problems.append(f"no code: {error}"[:3000])
            found = self.rows()
            if found == after != self._rows:
                self._outcome.landed += 1
            elif found != self._rows:
                self._outcome.problems.append(f"half a statement: {statement}")
            self._rows = found
        else:
            self._outcome.succeeded += 1
            self._rows = after

    def check(self) -> None:
        """Compare the table with the rows that it must have."""
        if self.rows() != self._rows:
            self._outcome.problems.append(f"{self.path} differs from its model")
        found = verify(Table(self.path), read_data=True)
        self._outcome.problems += map(str, found.findings)

    def rows(self) -> dict[int, int]:
        """The rows that are there, read without Spark."""
        table = read_ours(self.path)
        ids = table["id"].to_pylist()
        if len(ids) != len(set(ids)):
            self._outcome.problems.append(f"rows of {self.path} are there twice")
        return dict(zip(ids, table["n"].to_pylist(), strict=True))

    def _statement(self) -> tuple[dict[int, int], str]:
        table, rows = f"lance.`{self.path}`", dict(self._rows)
        kind = self._rng.choice(["insert", "insert", "update", "delete", "merge", "count"])
        some = self._rng.randrange(5)
        if kind == "count":
            return rows, f"SELECT count(*), max(n) FROM {table} WHERE id % 5 = {some}"
        if kind == "update":
            changed = {key: n + 1 if key % 5 == some else n for key, n in rows.items()}
            return changed, f"UPDATE {table} SET n = n + 1 WHERE id % 5 = {some}"
        if kind == "delete":
            kept = {key: n for key, n in rows.items() if key % 7 != some}
            return kept, f"DELETE FROM {table} WHERE id % 7 = {some}"
        first, self._next = self._next, self._next + 10
        if kind == "insert":
            rows |= dict.fromkeys(range(first, first + 10), some)
            return rows, f"INSERT INTO {table} SELECT id, {some} FROM range({first}, {first + 10})"
        first -= 5 if first else 0
        rows |= dict.fromkeys(range(first, self._next), some)
        return rows, (
            f"MERGE INTO {table} t USING (SELECT id, {some} n FROM range({first}, {self._next})) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


def _wait_until(is_so: Callable[[], bool]) -> bool:
    """Whether it came to that before patience ended."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(_POLL_S)
    return False


def _has_more(folders: Sequence[str]) -> Callable[[], bool]:
    """A function that returns whether one of the folders has a file that it has not now."""
    before = [set(os.listdir(folder)) for folder in folders]
    return lambda: any(
        set(os.listdir(folder)) - names for folder, names in zip(folders, before, strict=True)
    )


def run(spark: SparkSession, folder: str, *, kills: int, seed: int, threads: int = 2) -> Outcome:
    """Kill the service of ``spark`` so many times while threads run statements."""
    outcome = Outcome()
    workers = []
    for number in range(threads):
        path = f"{folder}/t{number}"
        spark.sql(f"CREATE TABLE lance.`{path}` (id BIGINT, n BIGINT)")
        workers.append(_Worker(spark.newSession(), path, seed + number, outcome))
    ended = threading.Event()

    def work(worker: _Worker) -> None:
        try:
            while not ended.is_set():
                worker.step()
        except Exception as error:  # noqa: BLE001  (a thread would end in silence)
            outcome.problems.append(f"{type(error).__name__}: {error}"[:3000])

    running = [threading.Thread(target=work, args=(one,)) for one in workers]
    for thread in running:
        thread.start()
    rng = random.Random(seed)
    while outcome.kills.total() < kills and any(thread.is_alive() for thread in running):
        if rng.random() < _SHARE_AFTER_SUCCESS:
            before = outcome.succeeded
            _wait_until(lambda before=before: outcome.succeeded > before)
        moment, folder = rng.choice(list(_MOMENTS.items()))
        if folder is None:
            threading.Event().wait(rng.uniform(0, _MAX_WAIT_S))
        elif not _wait_until(_has_more([f"{one.path}/{folder}" for one in workers])):
            continue
        for process in service_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                outcome.kills[moment] += 1
    ended.set()
    for thread in running:
        thread.join()
    for worker in workers:
        worker.step()  # the next statement works
        worker.check()
    return outcome


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    from pyspark_lance import plugin_jar

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.jars", plugin_jar()).config("spark.log.level", "OFF")
    spark = builder.config("spark.sql.catalog.lance", "org.pysparklance.LanceCatalog").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(spark, folder, kills=arguments.kills, seed=arguments.seed)
    spark.stop()
    for problem in outcome.problems:
        print(problem)
    print(outcome)
    print(f"seed: {arguments.seed}")
    shows_commits = min(outcome.succeeded, outcome.landed, outcome.failed - outcome.landed) > 0
    is_whole = outcome.kills.total() >= arguments.kills and shows_commits
    return 0 if is_whole and not outcome.problems else 1


if __name__ == "__main__":
    sys.exit(main())
