"""Fixtures for every layer: the Spark session, hypothesis profiles."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

import process_boundary
import pytest
from hypothesis import HealthCheck, settings

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
        pytest.skip("this process has a JVM of another kind; run with -n 2 --dist loadgroup")
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
    """Keeps the Spark tests of a file together, and sessions of two kinds in processes apart."""
    if os.environ.get(WITH_COMPANION) == "true":
        same = {item for item in items if _is_the_same_without_companion(item)}
        items[:] = [item for item in items if item not in same]
        config.hook.pytest_deselected(items=list(same))
    spark_items = [item for item in items if item.get_closest_marker("spark")]
    own = {item: _needs_companion(item) for item in spark_items}
    has_both = len(set(own.values())) == 2 and os.environ.get(WITH_COMPANION) != "true"
    for item in spark_items:
        group = f"companion: {own[item]}" if has_both else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


def _is_the_same_without_companion(item) -> bool:
    """Whether a test needs no session of this process, so that the run without it has it too."""
    has_session = {"spark", "companion"} & set(item.fixturenames)
    return not has_session and item.path.parent.name != "companion"


def _needs_companion(item) -> bool:
    """Whether a test has a session with the companion in every run."""
    return item.path.parent.name == "companion" and item.path.stem != "test_enabling"
