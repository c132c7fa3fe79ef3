"""Fixtures for every layer: the Spark session, hypothesis profiles."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

import process_boundary
import pytest
from hypothesis import HealthCheck, settings
from session_kinds import runs_in_both_kinds

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")

process_boundary.put_up()


# "true": the default session has the JVM companion too, so that every test runs with it.
WITH_COMPANION = "PYSPARK_LANCE_TEST_COMPANION"


def start_session(*, companion: bool):
    """A local session with the default settings of Spark but for the size.

    There is one JVM for each process, and the jars of its class path are decided when it starts.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        pytest.skip("this process has a JVM of another kind: poe test has two runs")
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
    if companion:
        import pyspark_lance

        catalog = "org.pysparklance.LanceCatalog"
        builder = (
            builder.config("spark.jars", pyspark_lance.companion_jar())
            .config("spark.sql.catalog.lance", catalog)
            .config("spark.sql.catalog.folder", catalog)
            .config("spark.sql.catalog.folder.path", f"{warehouse}/folder")
        )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    shutil.rmtree(warehouse, ignore_errors=True)


@pytest.fixture(scope="session")
def spark():
    """One session for each test process."""
    yield from start_session(companion=os.environ.get(WITH_COMPANION) == "true")


def pytest_collection_modifyitems(config, items):
    """Leaves out what another run has, and lets the files of Spark, the longest ones, begin."""
    left_out = {item for item in items if _is_in_another_run(item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def _is_in_another_run(item) -> bool:
    """With the companion: tests that have no session of this process, or once and for all."""
    if os.environ.get(WITH_COMPANION) != "true" or item.path.parent.name == "companion":
        return False
    if not {"spark", "companion"} & set(item.fixturenames):
        return True
    return not runs_in_both_kinds(item.path, getattr(item, "originalname", item.name))
