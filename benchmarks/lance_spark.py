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

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyspark
from harness import (
    Served,
    jvm_of,
    noop,
    print_table,
    rows_of_turns,
    run,
    save_parquet,
    scratch,
    setting_of_jar,
    start_session,
    take_turns,
    timed_in_jvm,
)
from pyspark.sql import DataFrame
from spark import hashed, lineitem, of

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

    def __init__(self, name: str, folder: str, jar: str) -> None:
        self._format = FORMATS[name]
        self._folder = f"{folder}/{name}"
        settings = dict(self._format.settings)
        if name == "lance":
            from pyspark_lance import plugin_jar  # too new for the Spark of lance-spark

            settings["spark.jars"] = plugin_jar()
        else:
            settings["spark.sql.lance.plugin"] = "off"
        if name == "lance-spark" and jar:
            settings[setting_of_jar(jar)] = jar
        self.spark = start_session(settings, self._folder)
        self._jvm = jvm_of(self.spark)
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

    def turn(self, number: int, what: str) -> object:
        """Take a turn of some work; or of ``checksum``."""
        if what == "checksum":
            return self.checksum()
        if what == "MERGE of 1 %" and self._format.changes_rows:
            self._version = self.read().agg({NUMBERED: "max"}).collect()[0][0]
        taken = timed_in_jvm(self._jvm, partial(WORK[what], self, number))
        if what == "write":
            shutil.rmtree(self._format.path.format(folder=self._folder, name=f"written{number}"))
        return taken and taken[:2]

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


def main(
    *what: str,
    rows: int = 3_000_000,
    repeats: int = 5,
    formats: tuple = (),
    lance_spark: str = "",
    python: str = sys.executable,
) -> None:
    names = formats or ("lance", "parquet")
    if lance_spark and not formats:
        names += THEIRS if python != sys.executable else THEIRS[:1]
    chosen = [one for one in WORK if one.startswith(what or "")]
    with scratch() as folder:
        save_parquet(lineitem(rows, np.random.default_rng(3)), f"{folder}/source")
        pythons = dict.fromkeys(THEIRS, python)
        sessions = {
            name: Served(name, folder, lance_spark, python=pythons.get(name, sys.executable))
            for name in names
        }
        found = take_turns(sessions, chosen, repeats, WARM)
        sums = {json.dumps(session.ask(0, "checksum")) for session in sessions.values()}
        for session in sessions.values():
            session.close()
    if len({tuple(json.loads(value)[:1]) for value in sums}) != len(sums):
        sys.exit(f"the tables differ: {sums}")
    title = f"{rows:,} rows of 16 columns, Spark {pyspark.__version__}, local[2]"
    columns = (f"{name}{kind} s" for kind in ("", " processor") for name in names)
    print_table(title, ("what", *columns), rows_of_turns(found))


if __name__ == "__main__":
    run(main, session=Session)
