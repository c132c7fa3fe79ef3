"""A table of a hundred million rows of 16 columns: time, memory and bytes of each action.

python benchmarks/large_table.py [--rows 100000000] [--formats lance,delta] [--folder /somewhere]

Each format has a process and a Spark session (``local[2]``) of its own, one after the other. Delta
comes from Maven Central, for Spark 4.1 and 4.2. Spark computes rows from their ids, so it also
computes what a table must contain after each action: count and sums of hashes of all rows, and of
all changes of the feed by version and kind, must be equal, or the benchmark ends.

The table has, for each action: seconds by the clock and of the processor (the Python driver and
all that it started, without the checks); the resident memory at most of the JVM, of our service,
of the Python driver and of the largest Python worker, in brackets without the pages of files that
are mapped; MB of new files in the folder of the table; MB that all processes wrote to disks, which
has temporary files, too; and the latter divided by the bytes of the rows that changed, as large as
an average row of the table.

``--keep`` leaves the tables in ``--folder``. The folder needs three times the size of the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import TypeVar

import pyspark
import row_changes
from harness import print_table
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from row_changes import DELTA

import pyspark_lance

MB = 1_000_000
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
}
SETTINGS_OF = {
    "lance": row_changes.FORMATS["lance"].settings,
    "delta": {
        **row_changes.FORMATS["delta"].settings,
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    },
}
T = TypeVar("T")
_TICK = os.sysconf("SC_CLK_TCK")
# Of larger tables all columns are compared of a part of the rows.
_MOST_COMPARED = 30_000_000
# Actions that write rows to other files.
_MOVING = ("compaction", "clustering", "cleanup")
_KINDS = ("jvm", "service", "driver", "worker")


# Processes


@dataclass
class _Process:
    """What was last seen of a process."""

    kind: str
    ticks: int = 0
    written: int = 0


@dataclass
class Use:
    """What an action took.

    Attributes:
        resident: MB at most by kind of process, of the largest process of a kind.
        own: The same without pages of mapped files.
    """

    seconds: float = 0.0
    processor: float = 0.0
    written: float = 0.0
    resident: dict[str, float] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)


class Watch:
    """Looks at the processes that this one has started, five times a second."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], _Process] = {}
        self._use = Use()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(0.2)
            self.look()

    def look(self, *, forget_peaks: bool = False) -> None:
        with self._lock:
            for pid, parent, started, ticks in _descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    self._look_at(pid, parent, started, ticks, forget_peaks=forget_peaks)

    def _look_at(
        self, pid: int, parent: int, started: int, ticks: int, *, forget_peaks: bool
    ) -> None:
        key = (pid, started)
        if key not in self._seen:
            self._seen[key] = _Process(_kind(pid, parent))
        process = self._seen[key]
        process.ticks = max(process.ticks, ticks)
        process.written = _fields(f"/proc/{pid}/io")["write_bytes"]
        if forget_peaks:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        memory = _fields(f"/proc/{pid}/status")
        if "VmHWM" in memory:
            own = memory["RssAnon"] + memory["RssShmem"]
            for found, size in ((self._use.resident, memory["VmHWM"]), (self._use.own, own)):
                found[process.kind] = max(found.get(process.kind, 0.0), size * 1024 / MB)

    def measure(self, action: Callable[[], T]) -> tuple[Use, T]:
        with self._lock:
            self._use = Use()
        self.look(forget_peaks=True)
        with self._lock:
            use = self._use = Use()
        ticks, written = self._totals()
        start = time.perf_counter()
        result = action()
        use.seconds = time.perf_counter() - start
        self.look()
        ticks_after, written_after = self._totals()
        use.processor = (ticks_after - ticks) / _TICK
        use.written = (written_after - written) / MB
        with self._lock:
            self._use = Use()
        return use, result

    def _totals(self) -> tuple[int, int]:
        with self._lock:
            seen = self._seen.values()
            return sum(each.ticks for each in seen), sum(each.written for each in seen)


def _descendants(root: int) -> list[tuple[int, int, int, int]]:
    """Pid, parent, start time and ticks of a process and of all that it started."""
    found: dict[int, tuple[int, int, int, int]] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text()
            except OSError:  # it has ended
                continue
            fields = text.rpartition(")")[2].split()
            parent, ticks = int(fields[1]), int(fields[11]) + int(fields[12])
            found[int(name)] = (int(name), parent, int(fields[19]), ticks)
            children.setdefault(parent, []).append(int(name))
    tree, pids = [], [root]
    while pids:
        pid = pids.pop()
        if pid in found:
            tree.append(found[pid])
        pids += children.get(pid, [])
    return tree


def _kind(pid: int, parent: int) -> str:
    if pid == os.getpid():
        return "driver"
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if b"java" in command[0]:
        return "jvm"
    return (
        "service"
        if any(word.startswith(b"pyspark_lance.spark.service") for word in command)
        else "worker"
    )


def _fields(path: str) -> dict[str, int]:
    """Numbers by name of a file in ``/proc``."""
    pairs = (line.split(":", 1) for line in Path(path).read_text().splitlines() if ":" in line)
    numbers = {}
    for name, value in pairs:
        first = (value.split() or [""])[0]
        if first.isdigit():
            numbers[name] = int(first)
    return numbers


# Rows


def rows_of(ids: DataFrame, turn: int) -> DataFrame:
    """Rows of ``ids`` as written by a turn: 16 columns of all kinds, computed from the id."""
    words = "'red', 'swift', 'small', 'late', 'heavy', 'double', 'cold', 'spare'"
    floats = ", ".join(
        f"CAST(pmod(shiftright(h, {i}), 2048) / 2048 AS float)" for i in range(0, 40, 5)
    )
    return ids.selectExpr("id", f"xxhash64(id, {turn}L) AS h").selectExpr(
        "id",
        "id * 982451653 % 1099511627776 AS key",
        "concat('kind ', pmod(h, 5)) AS kind",
        "concat('city ', pmod(shiftright(h, 3), 1000)) AS city",
        "IF(pmod(h, 50) = 0, NULL, concat('customer ', hex(h))) AS name",
        f"concat_ws(' ', elt(1 + pmod(shiftright(h, 5), 8), {words}), "
        f"elt(1 + pmod(shiftright(h, 9), 8), {words}), "
        "'order of', pmod(shiftright(h, 13), 100000)) AS note",
        "date_add(DATE'2020-01-01', CAST(pmod(shiftright(h, 7), 1461) AS int)) AS day",
        "timestamp_micros(1600000000000000 + id * 1000 + pmod(h, 1000000)) AS at",
        "CAST(CAST(pmod(shiftright(h, 11), 100000000) AS double) / 100 AS decimal(12, 2)) AS price",
        "CAST(pmod(shiftright(h, 17), 50) AS int) AS quantity",
        "CAST(pmod(h, 4503599627370496) AS double) / 4503599627370496 AS score",
        "CAST(pmod(shiftright(h, 19), 1000) AS double) / 8 AS ratio",
        "h % 3 = 0 AS flag",
        "IF(pmod(shiftright(h, 23), 10) = 0, NULL, CAST(pmod(shiftright(h, 29), 1000000) AS int)) "
        "AS visits",
        "slice(array(CAST(pmod(h, 100) AS int), CAST(pmod(shiftright(h, 31), 1000) AS int), "
        "CAST(pmod(shiftright(h, 37), 5) AS int)), 1, CAST(pmod(shiftright(h, 43), 4) AS int)) "
        "AS tags",
        f"array({floats}) AS vector",
    )


COLUMNS = (
    "id", "key", "kind", "city", "name", "note", "day", "at", "price", "quantity", "score",
    "ratio", "flag", "visits", "tags", "vector",
)  # fmt: skip


NARROW = ("id", "key", "name", "quantity", "score")


def digest(columns: Sequence[str]) -> Column:
    """A sum over hashes of the values of some columns."""
    half = sf.xxhash64(*columns).bitwiseAND(sf.lit(0xFFFFFFFF))
    return sf.coalesce(sf.sum(half), sf.lit(0))


# Remainders of ids by 110 that a merge writes; a row in eleven is new.
MERGES = {"merge": 5, "indexed merge": 6}


@dataclass(frozen=True)
class State:
    """What the table contains after some of the changes."""

    rows: int
    done: tuple[str, ...] = ()

    def after(self, change: str) -> State:
        return State(self.rows, (*self.done, change))

    def of(self, ids: DataFrame) -> DataFrame:
        """Rows of the table among ``ids``."""
        merges = [(turn, MERGES[c]) for turn, c in enumerate(MERGES, 1) if c in self.done]
        first = ids.filter(sf.col("id") < self.rows)
        for _, rest in merges:
            first = first.filter(sf.col("id") % 110 != rest)
        first = rows_of(first, 0)
        if "update" in self.done:
            is_updated = sf.col("id") % 1000 == 7
            for name, value in (("name", sf.lit("changed")), ("score", sf.lit(-1.5))):
                first = first.withColumn(name, sf.when(is_updated, value).otherwise(sf.col(name)))
        parts = [rows_of(ids.filter(sf.col("id") % 110 == rest), turn) for turn, rest in merges]
        found = reduce(DataFrame.union, [first, *parts])
        return found.filter("id % 200 != 11") if "delete" in self.done else found

    def changed_ids(self, spark: SparkSession, change: str) -> DataFrame:
        """Ids of the rows that a change may write or delete."""
        most = self.rows * 11 // 10
        if change == "update":
            return spark.range(7, self.rows, 1000)
        if change == "delete":
            return spark.range(11, most, 200)
        return spark.range(MERGES[change], most, 110)


Digest = tuple[int, ...]


def numbers_of(frame: DataFrame, *aggregates: Column) -> Digest:
    return tuple(int(value) for value in frame.agg(*aggregates).collect()[0])


def digest_of(frame: DataFrame, sample: int = 1) -> Digest:
    """The number of rows, a digest of some columns, and one of all, of one row in ``sample``."""
    narrow = numbers_of(frame, sf.count("*"), digest(NARROW))
    return (*narrow, *numbers_of(frame.filter(sf.col("id") % sample == 0), digest(COLUMNS)))


# Formats


class TableActions:
    """What both formats do alike."""

    name: str
    spills_lineage = False  # Whether long sequences of row ids and versions leave the manifest.

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.path = spark, path
        self.table = f"{self.name}.`{path}`"

    def write(self, frame: DataFrame, mode: str) -> None:
        frame.write.format(self.name).mode(mode).save(self.path)

    def read(self) -> DataFrame:
        return self.spark.read.format(self.name).load(self.path)

    def version(self) -> int:
        history = self.spark.sql(f"DESCRIBE HISTORY {self.table}")
        return int(history.agg(sf.max("version")).collect()[0][0])

    def update(self) -> None:
        self.spark.sql(
            f"UPDATE {self.table} SET name = 'changed', score = -1.5 WHERE id % 1000 = 7"
        )

    def merge(self, source: DataFrame) -> None:
        source.createOrReplaceTempView("source")
        self.spark.sql(
            f"MERGE INTO {self.table} t USING source s ON t.key = s.key "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def delete(self) -> None:
        self.spark.sql(f"DELETE FROM {self.table} WHERE id % 200 = 11")

    def feed(self, first: int, last: int) -> DataFrame:
        reader = self.spark.read.format(self.name).option("readChangeFeed", "true")
        reader = reader.option("startingVersion", str(first)).option("endingVersion", str(last))
        return reader.load(self.path)

    def maintenance(self) -> dict[str, Callable[[], object]]:
        """Actions that move or remove files, by name, in this order."""
        raise NotImplementedError

    def build_index(self) -> None:
        raise NotImplementedError


class Lance(TableActions):
    name = "lance"

    def write(self, frame: DataFrame, mode: str) -> None:
        writer = frame.write.format(self.name).mode(mode)
        writer.option("vector.fixed_size_list", "8").save(self.path)
        if mode == "overwrite" and self.spills_lineage:
            self._api().setProperties({"lance.row_lineage.spill": "true"})

    def version(self) -> int:
        return int(self._api().history(1).collect()[0].version)

    def _api(self) -> pyspark_lance.LanceTable:
        return pyspark_lance.LanceTable.forPath(self.spark, self.path)

    def build_index(self) -> None:
        self._api().createIndex("key")

    def maintenance(self) -> dict[str, Callable[[], object]]:
        api = self._api()
        return {
            "compaction": api.compact,
            "zone maps of two columns": lambda: api.createZonemap(["day", "city"]),
            "clustering": lambda: api.compact(clusterBy=["day", "city"], order="hilbert"),
            "refresh of the B-tree": lambda: api.refreshIndices("key_idx"),
            "cleanup": lambda: api.cleanupOldVersions(olderThan=0),
        }


class Delta(TableActions):
    name = "delta"

    def maintenance(self) -> dict[str, Callable[[], object]]:
        return {
            "compaction": lambda: self.spark.sql(f"OPTIMIZE {self.table}"),
            "clustering": lambda: self.spark.sql(f"OPTIMIZE {self.table} ZORDER BY (day, city)"),
            "cleanup": lambda: self.spark.sql(f"VACUUM {self.table} RETAIN 0 HOURS"),
        }


FORMATS: dict[str, type[TableActions]] = {"lance": Lance, "delta": Delta}


# The run


@dataclass
class Step:
    """A measured action."""

    action: str
    use: Use
    files: float  # MB of new files in the folder of the table
    changed: int = 0  # rows
    row_bytes: float = 0.0


class Run:
    """All actions on one table of one format."""

    def __init__(self, spark: SparkSession, actions: TableActions, rows: int, output: Path) -> None:
        self._spark, self._actions, self._output = spark, actions, output
        self._state = State(rows)
        self._watch = Watch()
        self._row_bytes = 0.0
        self._feed: dict[tuple[int, str], Digest] = {}
        self._expected: Digest = ()
        # All columns of all rows of a hundred million take longer than most actions.
        self._sample = 1 if rows <= _MOST_COMPARED else 16

    def measure(self, action: str, act: Callable[[], T], changed: int = 0) -> T:
        before = _files(self._actions.path)
        use, result = self._watch.measure(act)
        after = _files(self._actions.path)
        new = sum(size for path, size in after.items() if before.get(path) != size)
        self._row_bytes = self._row_bytes or sum(after.values()) / self._state.rows
        step = Step(action, use, new / MB, changed, self._row_bytes)
        with self._output.open("a") as output:
            output.write(json.dumps(asdict(step)) + "\n")
        print(time.strftime("%H:%M:%S"), self._actions.name, *_cells(step), file=sys.stderr)
        return result

    def run(self) -> None:
        spark, actions, rows = self._spark, self._actions, self._state.rows
        most = rows - rows // 10
        some = numbers_of(rows_of(spark.range(0, rows, self._sample), 0), digest(COLUMNS))
        all_ = rows_of(spark.range(rows), 0)
        self._expected = (*numbers_of(all_, sf.count("*"), digest(NARROW)), *some)
        self.measure(
            "write of 90 %", lambda: actions.write(rows_of(spark.range(most), 0), "overwrite"), most
        )
        self.measure(
            "append of 10 %",
            lambda: actions.write(rows_of(spark.range(most, rows), 0), "append"),
            rows - most,
        )
        self._row_bytes = sum(_files(actions.path).values()) / rows
        self._queries("")
        self._change("update", actions.update)
        self._change("merge", lambda: actions.merge(self._source("merge")))
        with contextlib.suppress(NotImplementedError):
            self.measure("B-tree on the key", actions.build_index)
            self._lookup("one key, B-tree")
        self._change("indexed merge", lambda: actions.merge(self._source("indexed merge")))
        self._change("delete", actions.delete)
        self._read_feed()
        for action, act in actions.maintenance().items():
            self.measure(action, act)
            if action in _MOVING:
                self._check(action)
            self._lookup(f"one key after {action}")
        self._queries(", clustered")

    def _queries(self, when: str) -> None:
        """Measures reads and compares their results with those of computed rows."""
        self._check_all(when)
        read, ids = self._actions.read, self._spark.range(self._state.rows * 11 // 10)
        rows = self._state.of(ids)
        narrow = [sf.sum("quantity"), sf.max("score")]
        some_days = "day BETWEEN DATE'2021-03-01' AND DATE'2021-03-07' AND city LIKE 'city 7_'"
        queries: dict[str, Callable[[DataFrame], DataFrame]] = {
            "count": lambda table: table.agg(sf.count("*")),
            "count again": lambda table: table.agg(sf.count("*")),
            "scan of two columns": lambda table: table.agg(*narrow),
            "averages by city": lambda table: (
                table.groupBy("city").agg(sf.avg("quantity").alias("q")).agg(sf.max("q"))
            ),
            "a week of ten cities": lambda table: table.filter(some_days).agg(
                sf.count("*"), digest(COLUMNS)
            ),
        }
        for action, query in queries.items():
            found = self.measure(action + when, lambda query=query: query(read()).collect())
            if not when or action == "a week of ten cities":
                _compare(action, found, query(rows).collect())
        self._lookup("one id" + when, "id")
        self._lookup("one id again" + when, "id")

    def _lookup(self, action: str, column: str = "key") -> None:
        one = self._spark.range(1).selectExpr(f"{self._state.rows // 3 // 110 * 110 + 6}L AS id")
        expected = self._state.of(one)
        value = expected.collect()[0][column]
        rows = self._actions.read().filter(sf.col(column) == value)
        found = self.measure(action, rows.collect)
        _compare(
            action,
            [tuple(row[c] for c in COLUMNS) for row in found],
            [*map(tuple, expected.collect())],
        )

    def _source(self, change: str) -> DataFrame:
        turn = 1 + list(MERGES).index(change)
        return rows_of(self._state.changed_ids(self._spark, change), turn)

    def _change(self, change: str, act: Callable[[], object]) -> None:
        before, after = self._state, self._state.after(change)
        ids = before.changed_ids(self._spark, change)
        removed, added = before.of(ids), after.of(ids)
        old, now = digest_of(removed, self._sample), digest_of(added, self._sample)
        gone = digest_of(removed)
        kept = removed.select("id").withColumn("old", sf.lit(True))
        kept_rows = added.join(kept, "id", "left")
        updated = digest_of(kept_rows.filter("old").drop("old"))
        new = digest_of(kept_rows.filter("old IS NULL").drop("old"))
        is_delete = change == "delete"
        self.measure(change, act, gone[0] if is_delete else now[0])
        version = self._actions.version()
        parts = {
            "delete": gone if is_delete else (0, 0, 0),
            "update_preimage": (0, 0, 0) if is_delete else gone,
            "update_postimage": updated,
            "insert": new,
        }
        self._feed |= {(version, kind): part for kind, part in parts.items() if part[0]}
        known = zip(self._expected, old, now, strict=True)
        self._expected = tuple(whole - less + more for whole, less, more in known)
        self._state = after
        self._check(change)

    def _check(self, action: str) -> None:
        """Compare some columns of all rows with those that are computed."""
        found = numbers_of(self._actions.read(), sf.count("*"), digest(NARROW))
        _compare(action, found, self._expected[:2])

    def _check_all(self, when: str) -> None:
        """Compare all columns, and measure it."""
        part = f" of a row in {self._sample}" if self._sample > 1 else ""
        found = self.measure(
            f"hash of all columns{part}{when}",
            lambda: digest_of(self._actions.read(), self._sample),
        )
        _compare("all columns" + when, found, self._expected)

    def _read_feed(self) -> None:
        versions = [version for version, _ in self._feed]
        aggregates = sf.count("*"), digest(NARROW), digest(COLUMNS)

        def read() -> list[Row]:
            feed = self._actions.feed(min(versions), max(versions))
            return feed.groupBy("_commit_version", "_change_type").agg(*aggregates).collect()

        for action in ("change feed of these", "change feed again"):
            found = self.measure(action, read)
            _compare(action, {(row[0], row[1]): (*map(int, row[2:]),) for row in found}, self._feed)


def _compare(what: str, found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"WRONG ROWS: {what}: {found} instead of {expected}")


def _files(folder: str) -> dict[str, int]:
    return {str(file): file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()}


def _serve(name: str, rows: int, folder: Path, *, spills_lineage: bool) -> None:
    settings = {**SETTINGS, **SETTINGS_OF[name], "spark.local.dir": str(folder / "spark")}
    if name == "delta":
        settings["spark.jars.packages"] = DELTA[pyspark.__version__[:3]]
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    actions = FORMATS[name](spark, str(folder / name))
    actions.spills_lineage = spills_lineage
    Run(spark, actions, rows, folder / f"{name}.jsonl").run()
    spark.stop()


def _steps(file: Path) -> Iterator[Step]:
    for line in file.read_text().splitlines():
        values = json.loads(line)
        yield Step(**{**values, "use": Use(**values["use"])})


def _cells(step: Step) -> tuple[str, ...]:
    use = step.use

    def memory(kind: str) -> str:
        if kind not in use.resident:
            return "–"
        return f"{use.resident[kind]:.0f} ({use.own[kind]:.0f})"

    changed = step.changed * step.row_bytes / MB
    return (
        step.action, f"{use.seconds:.2f}", f"{use.processor:.2f}", *map(memory, _KINDS),
        f"{step.files:.0f}", f"{use.written:.0f}",
        f"{use.written / changed:.2f}" if changed else "",
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--formats", default="lance")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--spill", action="store_true", help="lance.row_lineage.spill = true")
    parser.add_argument("--serve", choices=FORMATS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        _serve(given.serve, given.rows, given.folder, spills_lineage=given.spill)
        return
    names = given.formats.split(",")
    if "delta" in names and pyspark.__version__[:3] not in DELTA:
        sys.exit(
            f"there is no delta for Spark {pyspark.__version__}; install pyspark {list(DELTA)}"
        )
    folder = Path(tempfile.mkdtemp(prefix="pyspark-lance-bench-", dir=given.folder))
    try:
        for name in names:
            command = [sys.executable, __file__, "--serve", name, "--rows", str(given.rows)]
            command += ["--folder", str(folder), *(["--spill"] if given.spill else [])]
            done = subprocess.run(command, check=False)
            figures = folder / f"{name}.jsonl"
            steps = list(_steps(figures)) if figures.exists() else []
            print_table(
                f"{name}: {given.rows:,} rows x 16 columns, "
                f"{steps[-1].row_bytes if steps else 0:.0f} bytes each, "
                f"Spark {pyspark.__version__}, local[2] (python benchmarks/large_table.py)",
                (
                    "action", "s", "processor s", *(f"{kind} MB" for kind in _KINDS),
                    "MB of files", "MB written", "written / changed",
                ),
                [_cells(step) for step in steps],
            )  # fmt: skip
            if done.returncode:
                sys.exit(done.returncode)
            if not given.keep:
                shutil.rmtree(folder / name, ignore_errors=True)
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
