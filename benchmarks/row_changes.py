"""UPDATE, DELETE and MERGE of 1 % of a table and their feed, next to Delta and Iceberg.

python benchmarks/row_changes.py [--rows 3000000] [--repeats 5] [--formats lance,delta,iceberg]

Each format has a session of its own; they take turns, statement by statement, and in the end all
tables must hold the same rows. Delta and Iceberg come from Maven Central, for the release of Spark
that is installed; the rows that are changed lie scattered over all files. All three mark rows as
deleted instead of rewriting files (deletion vectors, merge on read). The tables have the
medians of the seconds by the clock and of those of the processor, of the JVM and all that it
started. Then a hundred updates of 0.1 % each, the feed of the last 1, 10 and 100 of them, and what
that many updates and their feed take together: a format may write more to read less.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyspark
from harness import (
    Served,
    Turns,
    jvm_of,
    noop,
    print_table,
    rows_of_turns,
    run,
    scratch,
    start_session,
    take_turns,
    timed_in_jvm,
)
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import pyspark_lance

FILES = 8
STATEMENTS = ("UPDATE", "DELETE", "MERGE", "feed")
UPDATES = 100
MANY_UPDATES = f"{UPDATES} updates of 0.1 %"
WINDOWS = {f"feed of {number} versions": number for number in (1, 10, UPDATES)}
# By the release of Spark.
DELTA = {"4.1": "io.delta:delta-spark_4.1_2.13:4.4.0", "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
ICEBERG = {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"}


@dataclass(frozen=True)
class Format:
    """What differs between the formats.

    Attributes:
        settings: Of the session; ``{folder}`` is where tables are.
        table: The name of the table in SQL.
        create: What comes before ``AS SELECT`` in the statement that makes it.
        packages: The coordinates by the release of Spark; None where there is nothing to get.
    """

    settings: dict[str, str]
    table: str
    create: str
    packages: dict[str, str] | None = None

    def for_this_spark(self) -> dict[str, str] | None:
        """Settings with the package; None where there is none for the Spark that is installed."""
        if self.packages is None:
            return self.settings
        package = self.packages.get(".".join(pyspark.__version__.split(".")[:2]))
        return {**self.settings, "spark.jars.packages": package} if package else None


FORMATS = {
    "lance": Format(
        {
            "spark.jars": pyspark_lance.plugin_jar(),
            "spark.sql.catalog.lance": "org.pysparklance.LanceCatalog",
        },
        "lance.`{folder}/lance`",
        "CREATE TABLE {table}",
    ),
    "delta": Format(
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # It is made for clusters; two cores have no use for 50 tasks that read a log.
            "spark.databricks.delta.snapshotPartitions": "2",
        },
        "delta.`{folder}/delta`",
        "CREATE TABLE {table} USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true, "
        "delta.enableDeletionVectors = true)",
        DELTA,
    ),
    "iceberg": Format(
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions."
            "IcebergSparkSessionExtensions",
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": "{folder}/iceberg",
        },
        "ice.db.t",
        "CREATE TABLE {table} USING iceberg TBLPROPERTIES ('format-version' = '2', "
        "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', "
        "'write.merge.mode' = 'merge-on-read')",
        ICEBERG,
    ),
}


class Session:
    """One format's Spark session with its table."""

    def __init__(self, name: str, folder: str, rows: int) -> None:
        self._name, self._folder, self._rows = name, folder, rows
        self._format = FORMATS[name]
        self._table = self._format.table.format(folder=folder)
        settings = self._format.for_this_spark()
        if settings is None:
            known = ", ".join(self._format.packages or ())
            sys.exit(f"there is no {name} for Spark {pyspark.__version__}; install pyspark {known}")
        self.spark = start_session(settings, folder)
        self._jvm = jvm_of(self.spark)
        self._of(self.spark.range(0, rows, 1, FILES), 0).createOrReplaceTempView("first")
        create = self._format.create.format(table=self._table)
        self.spark.sql(f"{create} AS SELECT * FROM first")
        self._version = 1 if name == "lance" else 0

    @staticmethod
    def _of(ids: DataFrame, turn: int) -> DataFrame:
        numbers = [
            (sf.xxhash64("id", sf.lit(i + turn)) % 1000 / 7).alias(f"f{i}") for i in range(5)
        ]
        name = sf.concat(sf.lit("customer "), sf.col("id") * 7919 % 100_003)
        return ids.select("id", *numbers, name.alias("name"), (sf.col("id") % 5).alias("kind"))

    def turn(self, number: int, statement: str) -> object:
        """Take a turn of a statement; or of ``checksum``."""
        if statement == "checksum":
            return self.checksum()
        at = 10 * number % 100
        ids = self.spark.range(0, self._rows * 11 // 10, 1, FILES).filter(f"id % 100 = {at + 2}")
        self._of(ids, number).createOrReplaceTempView("source")
        works: dict[str, Callable[[], object]] = {
            "UPDATE": lambda: self.spark.sql(
                f"UPDATE {self._table} SET f0 = -1.5, name = 'changed' WHERE id % 100 = {at}"
            ),
            "DELETE": lambda: self.spark.sql(
                f"DELETE FROM {self._table} WHERE id % 100 = {at + 1}"
            ),
            "MERGE": lambda: self.spark.sql(
                f"MERGE INTO {self._table} t USING source s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ),
            "feed": partial(self._read_feed, 3),
            MANY_UPDATES: self._update_often,
            **{text: partial(self._read_feed, count) for text, count in WINDOWS.items()},
        }
        if statement in ("UPDATE", "DELETE", "MERGE"):
            self._version += 1
        taken = timed_in_jvm(self._jvm, works[statement])
        return taken and taken[:2]

    def _update_often(self) -> None:
        for number in range(UPDATES):
            self.spark.sql(
                f"UPDATE {self._table} SET f1 = {number}.5D WHERE id % 1000 = {10 * number + 5}"
            )
        self._version += UPDATES

    def _read_feed(self, versions: int) -> None:
        noop(self._feed(versions))

    def _feed(self, versions: int) -> DataFrame:
        """The changes of the last versions."""
        if self._name == "iceberg":
            # Its changelog does not read tables whose deletes are merged on read.
            raise NotImplementedError
        reader = self.spark.read.format(self._name).option("readChangeFeed", "true")
        return reader.option("startingVersion", str(self._version - versions + 1)).load(
            f"{self._folder}/{self._name}"
        )

    def checksum(self) -> list[int]:
        """The number of rows and a sum over all values."""
        rows = self.spark.table(self._table)
        values = sf.sum(sf.xxhash64(*sorted(rows.columns)).cast("decimal(38,0)"))
        return [int(value) for value in rows.agg(sf.count("*"), values).collect()[0]]


def _with_updates(found: Turns, feed: str, updates: int) -> dict[str, list[list[float]]]:
    """Add the mean of the updates to each run of a feed, by format."""
    return {
        name: [
            [read + write * updates / UPDATES for read, write in zip(run, writes, strict=True)]
            for run in runs
        ]
        for name, runs in found[feed].items()
        for writes in found[MANY_UPDATES][name]
    }


def main(*, rows: int = 3_000_000, repeats: int = 5, formats: tuple = tuple(FORMATS)) -> None:
    with scratch() as folder:
        sessions = {name: Served(name, folder, rows) for name in formats}
        found = take_turns(sessions, STATEMENTS, repeats, warm=1)
        found |= take_turns(sessions, (MANY_UPDATES,), 1, warm=0)
        found |= take_turns(sessions, tuple(WINDOWS), repeats, warm=1)
        found |= {
            f"{number} updates and their feed": _with_updates(found, text, number)
            for text, number in WINDOWS.items()
        }
        sums = {name: session.ask(0, "checksum") for name, session in sessions.items()}
        for session in sessions.values():
            session.close()
    if len({json.dumps(value) for value in sums.values()}) != 1:
        sys.exit(f"the tables differ: {sums}")
    title = f"1 % of {rows:,} rows, Spark {pyspark.__version__}, local[2]"
    columns = (f"{name}{kind} s" for kind in ("", " processor") for name in formats)
    print_table(title, ("what", *columns), rows_of_turns(found))


if __name__ == "__main__":
    run(main, session=Session)
