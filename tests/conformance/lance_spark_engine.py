"""Answer the requests of ``python tests/conformance/run.py`` by lance-spark alone.

Run it by the interpreter of an environment with its Spark; ``LANCE_SPARK`` is the class path of
the connector, its jars separated by colons.
"""

from __future__ import annotations

import os
from functools import partial

from engine_requests import COLUMNS, LINEAGE, error_class, serve
from pyspark.sql import SparkSession

CATALOG = "spark.sql.catalog.theirs"
MAX_VERSIONS = 1000


def session():
    """A session in this process alone, which prints nothing on standard output."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraClassPath", os.environ["LANCE_SPARK"])
    opened = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    builder = builder.config("spark.driver.extraJavaOptions", opened)
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config(CATALOG, "org.lance.spark.LanceNamespaceSparkCatalog")
    spark = builder.config(f"{CATALOG}.impl", "dir").config(f"{CATALOG}.root", "/").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def opened(spark, request, version):
    """The table at a version, which is looked for when rows are read."""
    if not os.path.isdir(request["table"]):
        raise ValueError("the table was not found")
    reader = spark.read.format("lance")
    path = request["table"]
    if "branch" in request:
        path = f"{path}/tree/{request['branch']}"
    return reader.option("version", version).load(path)


def look_at(spark, request, version):
    """Open a version."""
    opened(spark, request, version).select("key").limit(1).collect()


def versions(spark, request):
    """Those that it opens, since nothing in lance-spark lists them."""
    found = []
    for number in range(1, MAX_VERSIONS):
        try:
            look_at(spark, request, number)
            found.append(number)
        except Exception as error:  # the JVM's come as many kinds
            if error_class(str(error)) != "not found":
                raise
            if found:
                break
    return found


def rows(spark, request):
    rows = opened(spark, request, request["version"]).select(*LINEAGE, *COLUMNS).collect()
    return [[*(row[name] for name in LINEAGE), [row[name] for name in COLUMNS]] for row in rows]


def changes(spark, request):
    """Its changes, by version columns, as it follows a table: no deletes, no old values."""
    found = {"insert": [], "update_postimage": []}
    if request["start"] > 1:
        look_at(spark, request, request["start"] - 1)  # what the first change begins from
    for version in range(request["start"], request["end"] + 1):
        for row in opened(spark, request, version).select(*LINEAGE, *COLUMNS).collect():
            kind = "insert" if row[LINEAGE[2]] == version else "update_postimage"
            if row[LINEAGE[3]] == version:
                found[kind].append([version, row["_rowid"], [row[name] for name in COLUMNS]])
    return found


if __name__ == "__main__":
    started = session()
    serve({one.__name__: partial(one, started) for one in (versions, rows, changes)})
