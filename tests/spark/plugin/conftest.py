"""The session of the plugin's tests: a JVM with the jar on its class path."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import lance
import pytest

_BUILD = Path(__file__).parents[3] / "src" / "plugin" / "build.py"


@pytest.fixture(scope="session")
def plugin_build():
    """The build command as a module."""
    spec = importlib.util.spec_from_file_location("plugin_build", _BUILD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def jar(plugin_build):
    """The jar of these sources; without a JDK, that of the last build."""
    try:
        if not plugin_build.is_up_to_date():
            plugin_build.build()
    except plugin_build.CannotBuildError as error:
        if not plugin_build.TARGET.exists():
            pytest.skip(str(error))
    return plugin_build.TARGET


@pytest.fixture(scope="session")
def plugin(jar, spark):
    """A session that plans with the plugin."""
    return spark


@pytest.fixture
def path(tmp_path):
    """Where a test may make a table."""
    return str(tmp_path / "table")


def plan_of(frame):
    """The physical plan as EXPLAIN shows it."""
    return frame._jdf.queryExecution().executedPlan().toString()


def sql(session, text):
    """Rows as tuples, sorted."""
    return sorted((tuple(row) for row in session.sql(text).collect()), key=repr)


def register_meddler(session, path, column, marker):
    """Register ``meddled``, whose first call also changes row 5, as another writer would.

    ``marker``: a file that does not exist yet.
    """

    def meddled(text):
        if not marker.exists():
            marker.touch()
            lance.dataset(path).update({column: "'theirs'"}, where="id = 5")
        return f"{text}!"

    session.udf.register("meddled", meddled)


@pytest.fixture
def settings(plugin):
    """Settings of the session that a test makes, and what they were before."""
    kept = {}

    def change(more):
        for name, value in more.items():
            kept.setdefault(name, plugin.conf.get(name, None))
            plugin.conf.set(name, value)

    yield change
    for name, value in kept.items():
        plugin.conf.unset(name) if value is None else plugin.conf.set(name, value)


def rows_read(session):
    """How many rows each scan of the newest query gave that looked for keys."""
    return rows_of_nodes(session, "BatchScan", "RuntimeFilters: [dynamic")


def rows_of_nodes(session, name, description):
    """How many rows each node of such a name and description in the newest query gave."""
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = session._jsparkSession.sharedState().statusStore()
    newest = max(
        store.executionsList().apply(i).executionId() for i in range(store.executionsList().size())
    )
    values = store.executionMetrics(newest)
    nodes = store.planGraph(newest).allNodes()
    found = {}
    for node in map(nodes.apply, range(nodes.size())):
        if name in node.name() and description in node.desc():
            metrics = map(node.metrics().apply, range(node.metrics().size()))
            (number,) = (one.accumulatorId() for one in metrics if "output rows" in one.name())
            found[number] = int(values.apply(number).replace(",", ""))
    return sorted(found.values())
