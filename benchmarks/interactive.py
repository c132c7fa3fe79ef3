"""What people do every minute in a notebook: with the plugin, without it, and with Parquet.

python benchmarks/interactive.py [--rows 2000000] [--sessions 1] [--calls 10] [--connect] [--unix]
    [--kinds plugin,plain,parquet] [--lance-spark JAR --python PYTHON] [WHAT ...]

Each kind has a session of its own, with Spark's default settings; they take turns, call by call,
all calls of one action before the next, since a call pays for the worker that the one before lost.
The table has milliseconds by the clock of the first call and of the last (the median of the last
three of ten), as medians of the sessions if there are several; and how many processes of Python
were started in the calls from the second on and still ran at the end of one (both workers of
``isEmpty`` without the plugin are gone by then).  The frames are loaded once.
``--unix`` has Python and the JVM talk by sockets of Unix, as the plugin has them do by itself;
``--connect`` goes by Spark Connect.  The kind ``lance-spark`` is the connector by JNI, as
``--lance-spark`` and ``--python`` of lance_spark.py say; its Spark may be another one, on which the
kind ``parquet-there`` reads Parquet: its ratio to ``parquet`` is that of the two Sparks.
A WHAT is the start of a label.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from harness import Served, print_table, run, save_parquet, scratch, setting_of_jar, start_session
from pyspark.sql import DataFrame, SparkSession

WARM = 0.3
APPENDS = 10
THEIRS, THEIR_PARQUET = "lance-spark", "parquet-there"
OURS, OF_THEIR_SPARK = ("plugin", "plain", "parquet"), (THEIRS, THEIR_PARQUET)
KINDS = OURS + OF_THEIR_SPARK


def rows_of(count: int, rng: np.random.Generator) -> pa.Table:
    """Eleven columns of the kinds that tables have."""
    ids = np.arange(count)
    start = np.datetime64("2024-01-01T00:00:00", "us")
    shops = rng.integers(0, 5000, count)
    words = pa.array([f"tag {i}" for i in range(300)])
    offsets = np.minimum(np.arange(count + 1) * 2, 2 * count).astype(np.int32)
    return pa.table(
        {
            "id": ids,
            "at": pa.array(start + rng.permutation(count) * 1_000_000, pa.timestamp("us", "UTC")),
            "kind": np.array([f"kind {i}" for i in range(40)])[rng.integers(0, 40, count)],
            "url": [f"https://example.org/shop{shop}/{i}" for i, shop in enumerate(shops)],
            "price": rng.random(count) * 1000,
            "stock": pa.array(rng.integers(0, 1000, count, np.int32), mask=rng.random(count) < 0.1),
            "sold": rng.random(count) < 0.5,
            # numpy's texts of this many rows would become chunks, of which no list is made.
            "tags": pa.ListArray.from_arrays(
                offsets, words.take(pa.array(rng.integers(0, 300, 2 * count)))
            ),
            "vector": pa.FixedSizeListArray.from_arrays(
                rng.random(32 * count, np.float32), 32
            ).cast(pa.list_(pa.float32())),
            "place": pa.StructArray.from_arrays(
                [rng.random(count), rng.random(count)], names=["x", "y"]
            ),
            "day": pa.array(np.datetime64("2024-01-01") + rng.integers(0, 366, count), pa.date32()),
        }
    )


def save_source(folder: str, count: int) -> None:
    """Write the rows that all begin with, in a few files of Parquet."""
    save_parquet(rows_of(count, np.random.default_rng(7)), f"{folder}/source")


def processes_of_python() -> set[tuple[int, str]]:
    """All that this process and its children started and that run Python: pid and start."""
    parents, found = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                name, _, rest = file.read().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        parts = rest.split()
        parents[int(pid)] = int(parts[1])
        found[int(pid)] = name, parts[19]
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return {(pid, found[pid][1]) for pid in mine if found.get(pid, ("",))[0].startswith("python")}


@dataclass
class Session:
    """One kind's Spark session with its tables.

    Attributes:
        kind: One of ``KINDS``.
        folder: Where the source is, and the tables come.
        connect: By Spark Connect.
        unix: By sockets of Unix between Python and the JVM.
        jar: Where lance-spark is.
    """

    kind: str
    folder: str
    connect: bool
    unix: bool
    jar: str = ""
    seen: set[tuple[int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        # The plugin uses them by itself.
        has_unix = self.unix or self.kind == "plugin"
        settings = {"spark.python.unix.domain.socket.enabled": str(has_unix).lower()}
        if self.kind == "plugin":
            from pyspark_lance import plugin_jar

            settings["spark.jars"] = plugin_jar()
        else:
            settings["spark.sql.lance.plugin"] = "off"
        if self.kind == THEIRS and self.jar:
            settings[setting_of_jar(self.jar)] = self.jar
        self.spark = start_connect(settings) if self.connect else start_session(settings, "")
        rows = self.spark.read.parquet(f"{self.folder}/source")
        self.few = rows.limit(100).cache()
        for name, frame in {"t": rows, "small": self.few, "tiny": rows.limit(25)}.items():
            frame.write.format(self._format).mode("error" if self._is_jvm else "append").save(
                self._path(name)
            )
        self.frame, self.tiny = self.load("t"), self.load("tiny")
        # The processes that write are not those that read; no reader is running yet.
        self.seen = processes_of_python()

    @property
    def _is_jvm(self) -> bool:
        return self.kind != "plain"

    @property
    def _format(self) -> str:
        return "parquet" if self.kind in ("parquet", THEIR_PARQUET) else "lance"

    def _path(self, name: str) -> str:
        return f"{self.folder}/{self.kind}/{name}" + ".lance" * (self.kind == THEIRS)

    def load(self, name: str) -> DataFrame:
        return self.spark.read.format(self._format).load(self._path(name))

    def joined(self, turn: int) -> object:
        count = self.spark.range(turn, 1 << 40, 1 << 30).count()  # the other side is no constant
        keys = self.spark.range(turn, 2_000_000, 100 + count % 2)
        return self.frame.join(keys, "id").agg({"price": "sum"}).collect()

    def appended(self, _: int) -> None:
        for _ in range(APPENDS):
            self.few.write.format(self._format).mode("append").save(self._path("small"))

    def turn(self, number: int, what: str) -> tuple[float, int]:
        """Milliseconds, and processes of Python that were not there before."""
        start = time.perf_counter()
        ACTIONS[what](self, number)
        milliseconds = 1e3 * (time.perf_counter() - start)
        running = processes_of_python()
        new = len(running - self.seen)
        self.seen |= running
        return milliseconds, new


def start_connect(settings: dict[str, str]) -> SparkSession:
    """A session whose server runs in a JVM that this process starts."""
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    builder = SparkSession.builder.remote("local[2]")
    more = {"spark.ui.enabled": "false", "spark.driver.memory": "4g"}
    for key, value in {**more, **settings}.items():
        builder = builder.config(key, value)
    return builder.config("spark.connect.grpc.binding.port", str(port)).getOrCreate()


ACTIONS: dict[str, Callable[[Session, int], object]] = {
    "limit 10": lambda on, _: on.frame.limit(10).collect(),
    "show": lambda on, _: on.frame._show_string(20),
    "head behind a filter": lambda on, turn: on.frame.where(f"stock > {900 + turn}").head(5),
    "first": lambda on, _: on.frame.first(),
    "isEmpty": lambda on, _: on.frame.isEmpty(),
    "one id": lambda on, turn: on.frame.where(f"id = {77 + 1000 * turn}").collect(),
    "20 ids": lambda on, turn: on.frame.where(
        f"id IN ({', '.join(str(97 * (i + turn)) for i in range(20))})"
    ).collect(),
    "LIKE": lambda on, turn: on.frame.where(f"url LIKE '%shop{turn + 7}/%'").count(),
    "top 10": lambda on, _: on.frame.orderBy("at", ascending=False).limit(10).collect(),
    f"{APPENDS} appends": Session.appended,
    "sum of a column": lambda on, _: on.frame.agg({"price": "sum"}).collect(),
    "join with 1 %": Session.joined,
    "distinct": lambda on, _: on.frame.select("kind").distinct().collect(),
    "count": lambda on, _: on.frame.count(),
    "25 rows": lambda on, _: on.tiny.collect(),
    "25 rows, a new filter": lambda on, turn: on.tiny.where(f"price > {turn}").collect(),
    "25 rows, loaded again": lambda on, _: on.load("tiny").collect(),
}


def measured(
    given: tuple, python: str, count: int, calls: int, chosen: list[str], kinds: tuple
) -> dict[str, dict[str, list[list[tuple[float, int]]]]]:
    """Return by action and kind: for each session, what each call took and started."""
    found: dict[str, dict[str, list[list[tuple[float, int]]]]] = {
        what: {kind: [] for kind in kinds} for what in chosen
    }
    for _ in range(count):
        sessions = {
            kind: Served(kind, *given, python=python if kind in OF_THEIR_SPARK else sys.executable)
            for kind in kinds
        }
        for what in chosen:
            for kind in kinds:
                found[what][kind].append([])
        for what in chosen:
            for turn in range(calls):
                for kind, session in sessions.items():
                    taken, new = session.ask(turn, what) or (0, 0)
                    found[what][kind][-1].append((taken, int(new)))
        for kind, session in sessions.items():
            session.close()
            shutil.rmtree(f"{given[0]}/{kind}", ignore_errors=True)
    return found


def cells(sessions: list[list[tuple[float, int]]]) -> Iterator[str]:
    """First call, last calls, processes started from the second call on."""
    yield f"{statistics.median(calls[0][0] for calls in sessions):.0f}"
    yield f"{warm(sessions):.0f}"
    yield f"{sum(new for calls in sessions for _, new in calls[1:])}"


def warm(sessions: list[list[tuple[float, int]]]) -> float:
    """Return the milliseconds of a call when all is warm: the median of the last calls."""
    return statistics.median(
        statistics.median(taken for taken, _ in calls[-max(1, round(WARM * len(calls))) :])
        for calls in sessions
    )


def main(
    *what: str,
    rows: int = 2_000_000,
    sessions: int = 1,
    calls: int = 10,
    kinds: tuple = (),
    connect: bool = False,
    unix: bool = False,
    lance_spark: str = "",
    python: str = sys.executable,
) -> None:
    kinds = kinds or (KINDS if lance_spark else OURS)
    chosen = [one for one in ACTIONS if one.startswith(what or "")]
    with scratch() as folder:
        save_source(folder, rows)
        given = (folder, connect, unix, lance_spark)
        found = measured(given, python, sessions, calls, chosen, kinds)
    names = ("first ms", "last ms", "started")
    ratios = [kind for kind in kinds if kind != "parquet" and "parquet" in kinds]
    lines = []
    for action, by_kind in found.items():
        line = [action, *(cell for kind in kinds for cell in cells(by_kind[kind]))]
        lines.append([*line, *(warm(by_kind[kind]) / warm(by_kind["parquet"]) for kind in ratios)])
    print_table(
        f"{rows:,} rows of 11 columns, {'Connect' if connect else 'classic'}, "
        f"{'Unix sockets' if unix else 'usual sockets'}, {dt.datetime.now(dt.UTC):%Y-%m-%d}",
        (
            "what",
            *(f"{kind} {name}" for kind in kinds for name in names),
            *(f"{kind} / parquet" for kind in ratios),
        ),
        lines,
    )


if __name__ == "__main__":
    run(main, session=Session)
