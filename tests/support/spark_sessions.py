"""Spark sessions of tests, without the plugin and with it; its jar is among those of PySpark."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from session_kinds import is_whole

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own settings of code that it generates for a query."""
# Most queries of tests are over before such code would pay. Scripts and documents have Spark's own
# settings, and so have the tests of the fixture ``compiled``.
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def start_session(*, plugin: bool):
    """A local session with the default settings of Spark but for size, kind and generated code."""
    # Spark starts workers with the python3 of PATH when it looks for data sources.
    folder = os.path.dirname(sys.executable)
    os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    warehouse = tempfile.mkdtemp(prefix="pyspark-lance-warehouse-")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pyspark-lance-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", warehouse)
    )
    builder = builder.config(map=COMPILED if is_whole() else _INTERPRETED)
    if plugin:
        builder = builder.config(
            "spark.sql.catalog.folder", "org.pysparklance.LanceCatalog"
        ).config("spark.sql.catalog.folder.path", f"{warehouse}/folder")
    else:
        builder = builder.config("spark.sql.lance.plugin", "off")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    shutil.rmtree(warehouse, ignore_errors=True)


@contextmanager
def session_settings(session, values: Mapping[str, str]) -> Iterator[None]:
    """Some settings of a session, until the end of the block."""
    before = {key: session.conf.get(key, None) for key in values}
    try:
        for key, value in values.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, value)
