"""A day's work on a table like TPC-H's lineitem, next to lance-spark and Spark's Parquet.

python benchmarks/lance_spark.py [--rows 3000000] [--repeats 5] [--formats lance,parquet]
    [--lance-spark JAR [--python PYTHON]] [WHAT ...]

Each has a session of its own; they take turns, piece by piece, and in the end their tables must
hold the same rows.  lance-spark (the connector by JNI) runs too where ``--lance-spark`` names its
bundle: a file, a class path (``FOLDER/*``), or coordinates on Maven Central such as
``org.lance:lance-spark-bundle-4.2_2.13:0.7.1``.  Where that is for another release of Spark,
``--python`` is an interpreter with it, whose Parquet is measured, too: what counts is then what
each takes of its own Spark's Parquet.  Parquet has no changes of rows.  The table has the
medians of the seconds by the clock, with the fastest and the slowest, and of those of the
processor, of the JVM and all that it started.  A WHAT is the start of a label.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import pyspark
from columnar import hashed, lineitem, noop, of
from pyspark.sql import DataFrame
from served import Served, serve, setting_of_jar, start_session
from timing import print_table, processor_seconds

PARTS = 4
APPENDS = 20
WARM = 2
KEYS = 12_000_000
NUMBERED = "_row_last_updated_at_version"


@dataclass(frozen=True)
class Format:
    """What differs between the formats.

    Attributes:
        source: The name after ``format``.
        table: The name of a table in SQL; ``{name}`` is the table, ``{folder}`` where it is.
        path: Where the table is.
        settings: Of the session.
        changes_rows: It knows UPDATE, DELETE and MERGE.
    """

    source: str
    table: str
    path: str
    settings: dict[str, str]
    changes_rows: bool = True


FORMATS = {
    "lance": Format(
        "lance",
        "lance.`{folder}/{name}`",
        "{folder}/{name}",
        {"spark.sql.catalog.lance": "org.pysparklance.LanceCatalog"},
    ),
    "parquet": Format("parquet", "{name}", "{folder}/{name}", {}, False),
    "lance-spark": Format(
        "lance",
        "theirs.default.{name}",
        "{folder}/{name}.lance",
        {
            "spark.sql.extensions": "org.lance.spark.extensions.LanceSparkSessionExtensions",
            "spark.sql.catalog.theirs": "org.lance.spark.LanceNamespaceSparkCatalog",
            "spark.sql.catalog.theirs.impl": "dir",
            "spark.sql.catalog.theirs.root": "{folder}",
            "spark.sql.catalog.theirs.single_level_ns": "true",
        },
    ),
    "their parquet": Format("parquet", "{name}", "{folder}/{name}", {}, False),
}
THEIRS = ("lance-spark", "their parquet")


class Session:
    """One format's Spark session with its tables."""

    def __init__(self, name: str, folder: str, jar: str | None) -> None:
        self._format = FORMATS[name]
        self._folder = f"{folder}/{name}"
        settings = dict(self._format.settings)
        if name == "lance":
            from pyspark_lance import plugin_jar  # the Spark of others may be too old for it

            settings["spark.jars"] = plugin_jar()
        else:
            settings["spark.sql.lance.plugin"] = "off"
        if name == "lance-spark" and jar is not None:
            settings[setting_of_jar(jar)] = jar
        self.spark = start_session(settings, self._folder)
        self._jvm = self.spark._jvm.java.lang.ProcessHandle.current().pid()
        self._rows = self.spark.read.parquet(f"{folder}/source")
        self._few = self._rows.limit(100).cache()
        self._few.count()
        for name, rows in {"t": self._rows, "small": self._few}.items():
            self._write(rows, name)
            if not self._format.changes_rows:
                path = self._format.path.format(folder=self._folder, name=name)
                self.spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{path}'")
        self._version = 1

    def _write(self, frame: DataFrame, name: str, mode: str = "error") -> None:
        path = self._format.path.format(folder=self._folder, name=name)
        frame.write.format(self._format.source).mode(mode).save(path)

    def _named(self, name: str = "t") -> str:
        return self._format.table.format(folder=self._folder, name=name)

    def read(self) -> DataFrame:
        return self.spark.table(self._named())

    def written(self, turn: int) -> None:
        self._write(self._rows, f"written{turn}")

    def looked_up(self, turn: int) -> object:
        return self.read().where(f"orderkey = {1_000 * turn + 77}").collect()

    def joined(self, turn: int) -> object:
        keys = self.spark.range(turn, KEYS, 100).withColumnRenamed("id", "orderkey")
        return self.read().join(keys, "orderkey").agg({"extendedprice": "sum"}).collect()

    def appended(self, _: int) -> None:
        for _ in range(APPENDS):
            self._write(self._few, "small", "append")

    def inserted(self, _: int) -> None:
        self._few.createOrReplaceTempView("few")
        for _ in range(APPENDS):
            self.spark.sql(f"INSERT INTO {self._named('small')} SELECT * FROM few")

    def merged(self, turn: int) -> None:
        self._only_if_rows_change()
        source = self._rows.where(f"orderkey % 100 = {10 * turn + 2}")
        source.dropDuplicates(["orderkey"]).createOrReplaceTempView("source")
        self.spark.sql(
            f"MERGE INTO {self._named()} t USING source s ON t.orderkey = s.orderkey "
            "WHEN MATCHED THEN UPDATE SET t.tax = s.tax + 1, t.comment = 'merged' "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def updated(self, turn: int) -> None:
        self._only_if_rows_change()
        self.spark.sql(
            f"UPDATE {self._named()} SET discount = -1.5, shipmode = 'changed' "
            f"WHERE orderkey % 100 = {10 * turn}"
        )

    def deleted(self, turn: int) -> None:
        self._only_if_rows_change()
        self.spark.sql(f"DELETE FROM {self._named()} WHERE orderkey % 100 = {10 * turn + 1}")

    def changed(self, _: int) -> object:
        self._only_if_rows_change()
        return self.read().where(f"{NUMBERED} > {self._version}").count()

    def _only_if_rows_change(self) -> None:
        if not self._format.changes_rows:
            raise NotImplementedError

    def turn(self, number: int, what: str) -> tuple[float, float] | None:
        """Seconds by the clock and of the processor; None where the format cannot do it."""
        if what == "MERGE of 1 %" and self._format.changes_rows:
            self._version = self.read().agg({NUMBERED: "max"}).collect()[0][0]
        used, start = processor_seconds(self._jvm), time.perf_counter()
        try:
            WORK[what](self, number)
        except NotImplementedError:
            return None
        seconds = time.perf_counter() - start, processor_seconds(self._jvm) - used
        if what == "write":
            shutil.rmtree(self._format.path.format(folder=self._folder, name=f"written{number}"))
        return seconds

    def checksum(self) -> list[object]:
        """Whether rows were changed, their number and a sum over all values."""
        rows = self.read()
        counted = rows.selectExpr("count(*)", f"sum(hash({', '.join(sorted(rows.columns))}))")
        return [self._format.changes_rows, *map(int, counted.collect()[0])]


WORK: dict[str, Callable[[Session, int], object]] = {
    "write": Session.written,
    "all to a sink of rows": lambda session, _: noop(session.read()),
    "hash of all columns": lambda session, _: hashed(session.read()),
    "sum of a column of numbers": lambda session, _: of("sum(extendedprice)")(session.read()),
    "longest of a column of strings": lambda session, _: of("max(length(comment))")(session.read()),
    "count": lambda session, _: session.read().count(),
    "one key": Session.looked_up,
    "join with 1 % of the keys": Session.joined,
    f"{APPENDS} appends of 100 rows": Session.appended,
    f"{APPENDS} INSERTs of 100 rows": Session.inserted,
    "MERGE of 1 %": Session.merged,
    "UPDATE of 1 %": Session.updated,
    "DELETE of 1 %": Session.deleted,
    "rows changed by these three": Session.changed,
}


def save_source(folder: str, rows: int) -> None:
    """The rows that all begin with, in a few files of Parquet."""
    os.makedirs(f"{folder}/source")
    table = lineitem(rows, np.random.default_rng(3))
    part = -(-rows // PARTS)
    for i in range(PARTS):
        pq.write_table(table.slice(i * part, part), f"{folder}/source/{i}.parquet")


def cells(found: dict[str, list[list[float]]]) -> Iterator[str]:
    """The figures of one row of the table: by the clock, then of the processor."""
    for column in (0, 1):
        for taken in found.values():
            values = [pair[column] for pair in taken]
            if not values:
                yield "–"
            elif column:
                yield f"{statistics.median(values):.2f}"
            else:
                yield f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def measured(
    sessions: dict[str, Served], chosen: list[str], repeats: int
) -> Iterator[tuple[str, ...]]:
    times: dict[str, dict[str, list[list[float]]]] = {
        what: {name: [] for name in sessions} for what in chosen
    }
    for turn in range(repeats + WARM):
        for what in chosen:
            for name, session in sessions.items():
                taken = session.ask(turn, what)
                if turn >= WARM and taken:
                    times[what][name].append(taken)
    for what, found in times.items():
        yield (what, *cells(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--repeats", type=int, default=5, choices=range(1, 8))
    parser.add_argument("--formats", help="separated by commas")
    parser.add_argument("--lance-spark", help="its bundle: a file, a class path or coordinates")
    parser.add_argument("--python", default=sys.executable, help="has the Spark that it needs")
    parser.add_argument("--folder")
    parser.add_argument("--serve", choices=FORMATS)
    parser.add_argument("what", nargs="*")
    given = parser.parse_args()
    if given.serve:
        session = Session(given.serve, given.folder, given.lance_spark)
        serve(lambda *asked: session.turn(*asked) if asked else session.checksum())
        session.spark.stop()
        return
    names = ["lance", "parquet"]
    if given.lance_spark:
        names += THEIRS if given.python != sys.executable else THEIRS[:1]
    if given.formats:
        names = given.formats.split(",")
    chosen = [what for what in WORK if not given.what or what.startswith(tuple(given.what))]
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    try:
        save_source(folder, given.rows)
        common = ["--folder", folder]
        if given.lance_spark:
            common += ["--lance-spark", given.lance_spark]
        pythons = dict.fromkeys(THEIRS, given.python)
        sessions = {
            name: Served(
                __file__, "--serve", name, *common, python=pythons.get(name, sys.executable)
            )
            for name in names
        }
        rows = list(measured(sessions, chosen, given.repeats))
        sums = {json.dumps(session.ask()) for session in sessions.values()}
        for session in sessions.values():
            session.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if len({tuple(json.loads(value)[:1]) for value in sums}) != len(sums):
        sys.exit(f"the tables differ: {sums}")
    print_table(
        f"{given.rows:,} rows of 16 columns, Spark {pyspark.__version__}, local[2], load "
        f"{os.getloadavg()[0]:.1f} (python benchmarks/lance_spark.py)",
        ("what", *(f"{name} s" for name in names), *(f"{name} processor s" for name in names)),
        rows,
    )


if __name__ == "__main__":
    main()
