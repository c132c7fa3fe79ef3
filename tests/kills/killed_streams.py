"""Streams whose process is killed, again and again: nothing may be lost, and nothing come twice.

    python tests/kills/killed_streams.py --commits 300 --kills 30 --seed 1
    python tests/kills/killed_streams.py --sinks --commits 150 --kills 15

One process commits appends, updates, deletes, merges, compactions, restores and overwrites to a
table, by this package and by pylance, and removes versions that are done with.  Another one, a
Spark driver, follows that table with two queries: one merges net changes into a replica by
``foreachBatch`` with ``txnAppId`` and ``txnVersion``, the other appends all changes to a table by
``writeStream``.  The driver is killed by SIGKILL: at any time, or at the moment when a batch
begins, when a target has a new version that Spark's checkpoint does not know of, or when it knows.
A kill counts where the driver had made something since its start and had more to do; others are
printed beside it, and so is every driver that ended by itself, which is wrong but where Spark gave
up waiting for a Python process on a machine with too much other work.

In the end the replica must be the source, by value and by row id, and the appended changes must be
those of the commits.  With ``--sinks`` there are three other queries: two append to one table, the
changes of even and of odd ids, and one puts counts of all changes so far in the place of those
before (output mode ``complete``).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(one) for one in (_TESTS / "support", _TESTS, _TESTS.parent)]

import lance
import pyarrow as pa
import pyarrow.compute as pc
from local_changes import delete_rows
from proofs.proof_report import commit
from row_changes import add_to, upsert
from script_process import environment
from table_access import read_changes, read_ours, write_table

from pyspark_lance.commit.application_versions import CONFIG_PREFIX
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec, open_existing
from pyspark_lance.table.version.table import Table

# Queries, and the tables that they write to.
FOLLOWERS = {"replica": "replica", "changes": "changes"}
SINKS = {"even": "shared", "odd": "shared", "counts": "counts"}
TABLES = FOLLOWERS | SINKS

# Drivers that end by themselves before a run is given up; seconds without anything new.
_PATIENCE, _HANGS = 3, 600
# Spark gives a Python process ten seconds to start, and ends the query after them.
_OVERLOAD = "Python worker failed to connect back"
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
CHANGES = "_change_type", "source_id", "_commit_version", "id", "n", "text"


# The driver that is killed -----------------------------------------------------------------


def follow(folder: str, *, to_the_end: bool, sinks: bool) -> None:
    """Run all queries; without ``to_the_end`` until it is killed."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from pyspark_lance import LanceTable

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        # It lives for seconds: what the optimizing compiler does never pays.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def apply(batch, number):
        changes = batch.where("_change_type != 'update_preimage'")
        values = {name: f"source.{name}" for name in SCHEMA.names}
        (
            LanceTable.forPath(spark, f"{folder}/replica")
            .merge(
                changes, "target.source_id = source.source_id",
                txnAppId="replica", txnVersion=str(number),
            )
            .whenMatchedDelete("source._change_type = 'delete'")
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(values={**values, "source_id": "source.source_id"})
            .execute()
        )  # fmt: skip

    def read(**options):
        source = spark.readStream.format("lance").options(readChangeFeed=True, **options)
        return source.load(f"{folder}/source").withColumnRenamed("_rowid", "source_id")

    def started(writer, name, *path):
        for query in spark.streams.active:  # one after the other, the processor may be busy
            while query.isActive and query.status["message"].startswith("Initializing"):
                time.sleep(0.1)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoints/{name}")
        return (writer.trigger(availableNow=True) if to_the_end else writer).start(*path)

    net = read(deduplicationMode="netChanges", maxVersionsPerTrigger=4, maxRowsPerTrigger=700)
    every = read(maxRowsPerTrigger=300)

    def appended(frame, name):
        return started(frame.writeStream.format("lance"), name, f"{folder}/{TABLES[name]}")

    if sinks:
        counts = every.groupBy("_commit_version", "_change_type").agg(
            f.count("*").alias("count"), f.sum("id").alias("total")
        )
        complete = counts.writeStream.format("lance").outputMode("complete")
        queries = [appended(every.where("id % 2 = 0"), "even")]
        queries += [appended(every.where("id % 2 != 0"), "odd")]
        queries += [started(complete, "counts", f"{folder}/counts")]
    else:
        queries = [started(net.writeStream.foreachBatch(apply), "replica")]
        queries += [appended(every, "changes")]
    print("started", flush=True)
    for query in queries:
        query.awaitTermination()


class Driver:
    """The process of ``follow``, with all that it starts."""

    def __init__(self, folder: str, *, sinks: bool, to_the_end: bool = False) -> None:
        self._log = Path(folder, "driver.log")
        command = [sys.executable, __file__, "--follow", folder]
        command += ["--sinks"] if sinks else []
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--to-the-end"] if to_the_end else command,
                env=environment(), stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder,
                start_new_session=True,
            )  # fmt: skip

    def wait_until_started(self) -> None:
        """Until all queries run, or it has ended."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("started"):
                return

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self, *, with_workers: bool) -> str | None:
        """Without the Python workers, which Spark puts in a group of their own, they go later.

        Returns:
            None; what it wrote, where it had ended by itself.
        """
        ended = not self.is_running()
        if with_workers or ended:
            for process in _processes_of_session(self._process.pid):
                _kill(process)
        else:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        return self._story() if ended else None

    def wait(self) -> str | None:
        """Until it is done; what it wrote, where it failed."""
        self._process.communicate()
        return self._story() if self._process.returncode else None

    def _story(self) -> str:
        ended = f"a driver ended by itself with {self._process.returncode}:\n"
        return ended + self._log.read_text()[-4000:]


def _processes_of_session(session: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = folder.joinpath("stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it is gone
        if int(state[3]) == session:
            yield int(folder.name)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


# The table that is followed ----------------------------------------------------------------


@dataclass
class Source:
    """A table that gets one commit after another, and what each of them changed.

    Attributes:
        path: Root of the table.
        chance: Decides what comes next.
        changes: Of each version, its changes as rows.
        rows: Of each version, its rows as inserts.
        kinds: How many commits of each kind.
    """

    path: str
    rng: random.Random
    changes: dict[int, list[str]] = field(default_factory=dict)
    rows: dict[int, list[str]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    next_id: int = 0

    def create(self) -> None:
        write_table(self.path, self._new_rows(1000), max_rows_per_file=200)
        self._remember()

    def commit(self) -> None:
        """One commit of a random kind."""
        kinds: dict[Callable[[], object], int] = {
            self._append: 4, self._update: 5, self._update_by_pylance: 2, self._delete: 3,
            self._delete_by_pylance: 1, self._merge: 4, self._compact: 1,
            self._compact_by_pylance: 1, self._restore: 1, self._overwrite: 1,
        }  # fmt: skip
        while True:
            (kind,) = self.rng.choices(list(kinds), list(kinds.values()))
            kind()
            if self._version() not in self.changes:
                self.kinds[kind.__name__.strip("_").replace("_", " ")] += 1
                return self._remember()

    def _version(self) -> int:
        return Snapshot.open(Table(self.path)).version

    def _remember(self) -> None:
        version = self._version()
        changes = read_changes(self.path, version, version, "dropCarryovers")
        self.changes[version] = _texts(changes)
        rows = read_ours(self.path, system_columns=("_rowid",))
        added = {"_change_type": pa.array(["insert"] * len(rows), pa.string())}
        added["_commit_version"] = pa.array([version] * len(rows), pa.int64())
        for name, values in added.items():
            rows = rows.append_column(name, values)
        self.rows[version] = _texts(rows)

    def _new_rows(self, count: int) -> pa.Table:
        first, self.next_id = self.next_id, self.next_id + count
        return self._rows(range(first, self.next_id))

    def _rows(self, ids) -> pa.Table:
        ids = list(ids)
        number = self.rng.randrange(1000)
        return pa.table([ids, [number] * len(ids), [f"text {one}" for one in ids]], schema=SCHEMA)

    def _some(self) -> str:
        first = self.rng.randrange(self.next_id)
        return f"id BETWEEN {first} AND {first + self.rng.choice([0, 10, 100, 400])}"

    def _append(self) -> None:
        write_table(self.path, self._new_rows(self.rng.choice([1, 30, 500])))

    def _update(self) -> None:
        add_to(self.path, self._some(), "n", 1)

    def _update_by_pylance(self) -> None:
        lance.dataset(self.path).update({"n": "n + 7"}, where=self._some())

    def _delete(self) -> None:
        delete_rows(self.path, f"{self._some()} AND id % 3 = 0")

    def _delete_by_pylance(self) -> None:
        lance.dataset(self.path).delete(f"{self._some()} AND id % 3 = 1")

    def _merge(self) -> None:
        first = self.rng.randrange(self.next_id)
        known = self._rows(self.rng.sample(range(first, first + 50), 20))
        self.next_id = max(self.next_id, first + 50)
        upsert(self.path, known)

    def _compact(self) -> None:
        compact(Table(self.path))

    def _compact_by_pylance(self) -> None:
        lance.dataset(self.path).optimize.compact_files()

    def _restore(self) -> None:
        there = [one["version"] for one in lance.dataset(self.path).versions()]
        restore(Table(self.path), VersionSpec(version=self.rng.choice(there[-3:])))

    def _overwrite(self) -> None:
        write_table(self.path, self._new_rows(600), overwrite=True)

    def clean_up(self, done: int) -> int:
        """Remove versions before ``done``; return how many."""
        result = cleanup_old_versions(Table(self.path), CleanupPolicy(before_version=done))
        return len(result.versions)


def _texts(changes: pa.Table) -> list[str]:
    if "_rowid" in changes.column_names:
        changes = changes.rename_columns({"_rowid": "source_id"})
    return [repr(tuple(row.values())) for row in changes.select(CHANGES).to_pylist()]


# Killing -----------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What happened, and what is wrong in the end."""

    seed: int
    queries: tuple[str, ...]
    commits: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    idle_kills: int = 0
    gave_up: int = 0
    overloaded: int = 0
    run_again: Counter[str] = field(default_factory=Counter)
    recognised: Counter[str] = field(default_factory=Counter)
    versions_removed: int = 0
    facts: dict[str, object] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def report(self) -> str:
        """A table."""
        lines = ["| what | count |", "|---|---|", f"| seed | {self.seed} |"]
        lines += [f"| commits to the source | {self.commits} |"]
        lines += [f"| kills of a driver at work | {self.kills.total()} |"]
        lines += [f"| of these: {kind} | {count} |" for kind, count in sorted(self.kills.items())]
        lines += [f"| kills before any work or after all of it, beside these | {self.idle_kills} |"]
        lines += [f"| drivers that ended by themselves | {self.gave_up} |"]
        lines += [f"| drivers that Spark ended for want of processor | {self.overloaded} |"]
        for name in self.queries:
            lines.append(f"| {name}: batches run again | {self.run_again[name]} |")
            lines.append(f"| {name}: which were committed before | {self.recognised[name]} |")
        lines.append(f"| versions of the source that were cleaned up | {self.versions_removed} |")
        lines += [f"| {what} | {count} |" for what, count in self.facts.items()]
        lines += [f"| commit | {commit()} |"]
        return "\n".join([*lines, *(f"WRONG: {one}" for one in self.wrong)])

    def note_end(self, story: str | None) -> None:
        """Of a driver that was not killed."""
        if story is not None and _OVERLOAD in story:
            self.overloaded += 1
        elif story is not None:
            self.gave_up += 1
            self.wrong.append(story)
            print(story, flush=True)


def run(folder: str, seed: int, commits: int, kinds: list[str], *, sinks: bool = False) -> Outcome:
    """Commits, and kills the driver once for each of ``kinds``.

    Args:
        folder: For tables and checkpoints.
        seed: Of all that is random, but for the speed of the machine.
        commits: To the source, besides its first, at least.
        kinds: Of each kill: ``starting``, ``any time``, or a log that just got a new file:
            ``offsets`` (a batch begins), ``versions`` (of the target) or ``commits`` (it is done).
        sinks: The queries are those of ``SINKS``.
    """
    rng = random.Random(seed)
    started = time.monotonic()
    outcome = Outcome(seed, tuple(SINKS if sinks else FOLLOWERS))
    source = Source(f"{folder}/source", random.Random(seed + 1))
    source.create()
    columns = pa.schema([*SCHEMA, pa.field("source_id", pa.int64())])
    write_table(f"{folder}/replica", columns.empty_table())
    killing = _Killing(folder, source, outcome, rng)
    for number, kind in enumerate(kinds):
        share = commits * (number + 1) // len(kinds) - commits * number // len(kinds)
        if outcome.gave_up >= _PATIENCE:
            break
        while not killing.kill_once(kind, share) and outcome.gave_up < _PATIENCE:
            # Nothing is at work before a start is over; and there has to be something to do.
            kind, share = "any time" if kind == "starting" else kind, 2
        if number % 3 == 2:
            outcome.versions_removed += source.clean_up(
                _version_that_all_did(folder, outcome.queries)
            )
        done = ", ".join(
            f"{name} {len(_checkpoint(folder, name, 'commits'))}" for name in outcome.queries
        )
        seconds = time.monotonic() - started
        print(f"{number + 1} kills, batches of {done}, {seconds:.0f} s", flush=True)
    for _ in range(_PATIENCE):
        story = Driver(folder, sinks=sinks, to_the_end=True).wait()
        outcome.note_end(story)
        if story is None:
            break
    if sinks:
        _compare_sinks(folder, source, outcome)
    else:
        _compare(folder, source, outcome)
    for kind, count in sorted(source.kinds.items()):
        outcome.facts[f"commits by {kind}"] = count
    for name in outcome.queries:
        outcome.facts[f"batches of {name}"] = len(_checkpoint(folder, name, "commits"))
    outcome.facts["seconds"] = round(time.monotonic() - started)
    return outcome


@dataclass(frozen=True)
class _Killing:
    folder: str
    source: Source
    outcome: Outcome
    rng: random.Random

    def kill_once(self, kind: str, commits: int) -> bool:
        """Start a driver, and kill it while this process commits; whether that counts."""
        before = self._made()
        driver = Driver(self.folder, sinks="counts" in self.outcome.queries)
        self.outcome.commits += commits
        writer = threading.Thread(target=self._commit_slowly, args=(commits, driver))
        writer.start()
        try:
            self._wait_for(kind, driver, writer)
        finally:
            counts = bool(self._made() - before) and not self._is_all_done(writer)
            story = driver.kill(with_workers=self.rng.random() < 0.5)
            writer.join()
        self.outcome.note_end(story)
        if story is None:
            _note_unfinished(self.folder, self.outcome)
            self.outcome.kills[kind] += counts
            self.outcome.idle_kills += not counts
        return counts and story is None

    def _commit_slowly(self, commits: int, driver: Driver) -> None:
        for _ in range(commits):
            self.source.commit()
            if driver.is_running():
                time.sleep(self.source.rng.uniform(0, 1))

    def _made(self) -> set[Path]:
        """Files that show what the queries have done."""
        kinds = "offsets", "versions", "commits"
        logs = [(name, log) for name in self.outcome.queries for log in kinds]
        return _files([_place(self.folder, name, log) for name, log in logs])

    def _is_all_done(self, writer: threading.Thread) -> bool:
        done = _version_that_all_did(self.folder, self.outcome.queries)
        return not writer.is_alive() and done == max(self.source.changes)

    def _wait_for(self, kind: str, driver: Driver, writer: threading.Thread) -> None:
        """Until it is time to kill; by what the queries have done, since machines differ."""
        if kind == "starting":
            time.sleep(self.rng.uniform(0, 8))
            return
        driver.wait_until_started()
        for _ in range(self.rng.choice([0, 1, 2, 4])):
            commits = [_place(self.folder, name, "commits") for name in self.outcome.queries]
            self._wait_for_new_file(commits, driver, writer)
        if kind == "any time":
            time.sleep(self.rng.uniform(0, 4))
            return
        name = self.rng.choice(self.outcome.queries)
        self._wait_for_new_file([_place(self.folder, name, kind)], driver, writer)
        time.sleep(self.rng.choice([0, 0, self.rng.uniform(0, 0.5)]))

    def _wait_for_new_file(
        self, places: list[Path], driver: Driver, writer: threading.Thread
    ) -> None:
        before, started = _files(places), time.monotonic()
        look_up = started
        while _files(places) <= before and driver.is_running():
            time.sleep(0.001)
            if time.monotonic() > look_up:
                look_up = time.monotonic() + 1
                if self._is_all_done(writer):
                    return
            if time.monotonic() > started + _HANGS:
                self.outcome.wrong.append(f"a driver did nothing for {_HANGS} s")
                return


def _place(folder: str, name: str, log: str) -> Path:
    """Where a file appears for each batch: its log, its version or the note that it is done."""
    if log == "versions":
        return Path(folder, TABLES[name], "_versions")
    return Path(folder, "checkpoints", name, log)


def _files(places: list[Path]) -> set[Path]:
    return {file for place in places for file in place.glob("[0-9]*")}


def _checkpoint(folder: str, name: str, log: str) -> list[int]:
    """Numbers of the batches in ``offsets`` or ``commits``."""
    names = [one.name for one in _place(folder, name, log).glob("[0-9]*")]
    return sorted(int(one) for one in names if one.isdigit())


def _note_unfinished(folder: str, outcome: Outcome) -> None:
    """Count batches that were logged and not finished, and those that a target has of them."""
    for name in outcome.queries:
        unfinished = _checkpoint(folder, name, "offsets")[-1:]
        if not unfinished or unfinished == _checkpoint(folder, name, "commits")[-1:]:
            continue
        outcome.run_again[name] += 1
        target = open_existing(Table(f"{folder}/{TABLES[name]}"))
        if target is not None:
            config = target.manifest.config
            done = [int(config[key]) for key in config if key.startswith(CONFIG_PREFIX)]
            # Of two queries of one table, the batch may be that of the other one.
            outcome.recognised[name] += unfinished[0] in done


def _version_that_all_did(folder: str, queries: Iterable[str]) -> int:
    """All queries are done with all versions up to this one, even if some run again."""
    done = []
    for name in queries:
        finished = _checkpoint(folder, name, "commits")
        if not finished:
            return 0
        log = Path(folder, "checkpoints", name, "offsets", str(finished[-1])).read_text()
        done.append(max(0, json.loads(log.splitlines()[-1])["v"]))
    return min(done)


def _compare(folder: str, source: Source, outcome: Outcome) -> None:
    rows = read_ours(source.path, system_columns=("_rowid",)).to_pylist()
    wanted = {row.pop("_rowid"): row for row in rows}
    replica = read_ours(f"{folder}/replica", system_columns=()).to_pylist()
    found = {row.pop("source_id"): row for row in replica}
    if len(found) != len(replica):
        outcome.wrong.append(f"{len(replica) - len(found)} rows of the replica are there twice")
    differ = [one for one in wanted.keys() | found.keys() if wanted.get(one) != found.get(one)]
    if differ:
        outcome.wrong.append(f"{len(differ)} rows of the replica differ, such as {differ[:5]}")
    appended = read_ours(f"{folder}/changes", system_columns=())
    expected = _expected(source, appended)
    lost, doubled = _differences(expected, appended, outcome)
    outcome.facts |= {
        "rows of the source, and of the replica": f"{len(wanted):,}, {len(replica):,}",
        "changes expected, and appended": f"{expected.total():,}, {appended.num_rows:,}",
        "lost": lost.total(),
        "doubled": doubled.total(),
        "rows of the replica that differ": len(differ),
    }


def _expected(source: Source, found: pa.Table) -> Counter[str]:
    """All changes, as a query shows them that began with the rows of the first version found."""
    first = min(found["_commit_version"].to_pylist())
    later = (one for version, rows in source.changes.items() if version > first for one in rows)
    return Counter([*source.rows[first], *later])


def _differences(
    expected: Counter[str], appended: pa.Table, outcome: Outcome
) -> tuple[Counter[str], Counter[str]]:
    arrived = Counter(_texts(appended))
    lost, doubled = expected - arrived, arrived - expected
    if lost:
        outcome.wrong.append(f"{lost.total()} changes are lost, such as {next(iter(lost))}")
    if doubled:
        outcome.wrong.append(f"{doubled.total()} are too many, such as {next(iter(doubled))}")
    return lost, doubled


def _compare_sinks(folder: str, source: Source, outcome: Outcome) -> None:
    shared = read_ours(f"{folder}/shared", system_columns=())
    is_odd = pc.equal(pc.bit_wise_and(shared["id"], 1), 1)
    at = CHANGES.index("id")
    for name, remainder, found in (
        ("even", 0, shared.filter(pc.invert(is_odd))),
        ("odd", 1, shared.filter(is_odd)),
    ):
        every = _expected(source, found)
        expected = Counter(
            {one: n for one, n in every.items() if ast.literal_eval(one)[at] % 2 == remainder}
        )
        lost, doubled = _differences(expected, found, outcome)
        outcome.facts |= {
            f"{name}: changes expected, and appended": f"{expected.total():,}, {len(found):,}",
            f"{name}: lost, doubled": f"{lost.total()}, {doubled.total()}",
        }
    counts = read_ours(f"{folder}/counts", system_columns=())
    wanted: dict[tuple[int, str], list[int]] = {}
    for one, times in _expected(source, counts).items():
        change = dict(zip(CHANGES, ast.literal_eval(one), strict=True))
        sums = wanted.setdefault((change["_commit_version"], change["_change_type"]), [0, 0])
        sums[0] += times
        sums[1] += times * change["id"]
    rows = counts.to_pylist()
    found_counts = {
        (row["_commit_version"], row["_change_type"]): [row["count"], row["total"]] for row in rows
    }
    outcome.facts["counts expected, and found"] = f"{len(wanted):,}, {len(rows):,}"
    if found_counts != wanted or len(found_counts) != len(rows):
        differ = [key for key in wanted if found_counts.get(key) != wanted[key]]
        outcome.wrong.append(f"{len(rows)} counts, expected {len(wanted)}; others: {differ[:5]}")


def kinds_of_kills(kills: int, seed: int) -> list[str]:
    """A random mixture."""
    weights = {"starting": 1, "any time": 3, "offsets": 2, "versions": 3, "commits": 1}
    return random.Random(seed).choices(list(weights), list(weights.values()), k=kills)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sinks", action="store_true", help="two sinks of a table, and counts")
    parser.add_argument("--follow", metavar="FOLDER", help="what the process does that is killed")
    parser.add_argument("--to-the-end", action="store_true")
    given = parser.parse_args()
    if given.follow:
        follow(given.follow, to_the_end=given.to_the_end, sinks=given.sinks)
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        kinds = kinds_of_kills(given.kills, given.seed)
        outcome = run(folder, given.seed, given.commits, kinds, sinks=given.sinks)
    print(outcome.report())
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
