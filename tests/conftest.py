"""Fixtures for every layer: the Spark session, hypothesis profiles; which process runs a test."""

from __future__ import annotations

import gc
import os

import process_boundary
import pytest
from hypothesis import HealthCheck, settings
from jars_of_spark import refresh_jar
from quick_starts import use_quick_jvms
from session_kinds import KINDS, PLAIN, PLUGIN, kinds_of
from session_schedule import SessionScheduling
from spark_sessions import WHOLE_STAGES, session_settings, start_session
from temporary_folders import use_memory

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")

process_boundary.put_up()
use_memory()
use_quick_jvms()
refresh_jar()

_KIND = pytest.StashKey[str]()
# Their last tests take a minute, in which the other processes would have nothing more to do.
_LONG_FOLDERS = {"work", "stateful", "store", "proofs"}


def pytest_addoption(parser):
    parser.addoption(
        "--sessions",
        choices=KINDS,
        help="only tests with the plugin in their session, or only the others",
    )


@pytest.fixture(scope="session")
def spark(request):
    """One session for each test process, with the plugin or without it."""
    yield from start_session(plugin=request.config.stash[_KIND] == PLUGIN)


@pytest.fixture
def compiled(spark):
    """The session compiles whole stages of queries, as that of a user does."""
    with session_settings(spark, {WHOLE_STAGES: "true"}):
        yield


@pytest.fixture
def session_kind(request):
    """Which session a test has that runs in both kinds."""
    return request.param


def pytest_xdist_make_scheduler(config, log):
    """Processes that have sessions of one kind each."""
    return SessionScheduling(config, log) if config.option.dist == "loadfile" else None


def pytest_generate_tests(metafunc):
    """Tests whose session matters run once without the plugin and once with it."""
    if "spark" in metafunc.fixturenames:
        kinds = kinds_of(metafunc.definition.path, metafunc.function.__name__)
        if "plugin" in metafunc.fixturenames:
            kinds = (PLUGIN,)
        metafunc.fixturenames.append("session_kind")
        metafunc.parametrize("session_kind", kinds, indirect=True)


def pytest_collection(session):
    """Finding ten thousand tests makes a million objects that stay, and hardly any that go."""
    gc.disable()


def pytest_collection_finish(session):
    """What stays need not be looked at again and again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config, items):
    """Leave out what another run has, and let the files of Spark, the longest ones, begin."""
    only = config.getoption("sessions")
    left_out = {item for item in items if only and (_kind_of(item) or PLAIN) != only}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=_order)


def _kind_of(item) -> str | None:
    """Which session of this process a test has."""
    return item.callspec.params.get("session_kind") if hasattr(item, "callspec") else None


def _order(item) -> tuple[int, bool, bool]:
    kind = _kind_of(item)
    is_short = item.path.parent.name not in _LONG_FOLDERS
    if kind is not None:
        return KINDS.index(kind), False, False
    return len(KINDS), item.get_closest_marker("spark") is None, is_short


def pytest_runtest_setup(item):
    """The jars of the JVM's class path are decided when it starts."""
    kind = _kind_of(item)
    if kind is None:
        return
    if item.config.stash.setdefault(_KIND, kind) != kind:
        reason = "this process has a JVM of another kind: choose one by --sessions"
        is_dealt_out = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)) > 1
        (pytest.fail if is_dealt_out else pytest.skip)(reason)
