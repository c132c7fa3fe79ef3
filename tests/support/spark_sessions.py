"""Spark sessions of tests, without the plugin and with it; its jar is among those of PySpark."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from session_kinds import is_whole

WHOLE_STAGES = "spark.sql.codegen.wholeStage"
"""Whether Spark compiles the operators of a stage together, as it does by default."""


def start_session(*, plugin: bool):
    """A local session with the default settings of Spark but for size, kind and compiled stages."""
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
    # Most queries of tests end before that pays. Scripts and documents have Spark's default, and so
    # have the tests of the fixture ``compiled``.
    builder = builder.config(WHOLE_STAGES, str(is_whole()).lower())
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
