"""Sessions of ``LanceTable``: descriptions of jobs, cached relations, errors of stopped sessions.

Spark's web UI describes a job by the method that the user called, instead of by call sites in this
package.

Spark refreshes its cache after its own statements. Commits of ``LanceTable`` happen in Python, so
the JVM plugin is notified of them. Without the plugin, nothing is refreshed.

A table whose session was stopped, as in a notebook after ``spark.stop()``, is an error here;
PySpark would fail with an unrelated one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.spark.options import internal_keys as keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_lance.table.version.table import Table


_NO_SOURCE: Final = "[DATA_SOURCE_NOT_FOUND]"  # Spark's only error of a failed look-up.


@contextmanager
def check_session(spark: Any, uri: str, *, needs_session: bool) -> Iterator[None]:
    """Convert errors that occur because a session was stopped.

    ``spark``: the session of an object, None for objects without one; ``uri``: the table of the
    object. ``needs_session``: raise the error at once, rather than for work that needs a job.

    Raises:
        InvalidInputError: The session was stopped.
    """
    if needs_session and is_stopped(spark):
        raise _stopped_error(uri)
    try:
        yield
    except Exception as error:
        says_enough = isinstance(error, LanceError) and _NO_SOURCE not in str(error)
        if says_enough or not is_stopped(spark):
            raise
        raise _stopped_error(uri) from None


def is_stopped(spark: Any) -> bool:
    """Return True if a session, classic or of Connect, was stopped."""
    if hasattr(spark, "_jsparkSession"):
        return bool(spark._sc._jsc is None)
    return bool(getattr(spark, "is_stopped", False))  # of Connect


def _stopped_error(uri: str) -> InvalidInputError:
    return InvalidInputError(
        "the Spark session of this table was stopped",
        uri,
        "create it again with the active session: LanceTable.forPath(spark, …)",
    )


logger = logging.getLogger(__name__)

_DESCRIPTION: Final = "spark.job.description"

_method: ContextVar[str] = ContextVar("_method")
"""The method that the user called, and its table."""


@contextmanager
def describing_jobs(spark: SparkSession, method: str, uri: str) -> Iterator[None]:
    """Describe the jobs that this thread starts, unless the user set a description."""
    text = f"LanceTable.{method} of {uri}"
    token = _method.set(text)
    try:
        with _described(spark, text, instead_of=None):
            yield
    finally:
        _method.reset(token)


def count_tasks(num_tasks: int) -> str:
    """Return a number of tasks with its noun."""
    return "1 task" if num_tasks == 1 else f"{num_tasks} tasks"


@contextmanager
def describing_stage(spark: SparkSession, title: str, num_tasks: int) -> Iterator[None]:
    """Log a stage of a long method, and add it to the description of its jobs."""
    method = _method.get()
    logger.info("%s: %s, %s", method, title, count_tasks(num_tasks))
    with _described(spark, f"{method}: {title}", instead_of=method):
        yield


@contextmanager
def _described(spark: SparkSession, text: str, *, instead_of: str | None) -> Iterator[None]:
    """Describe the jobs of this thread, unless they have another description than ``instead_of``.

    The jobs of a Connect session are described by the server.
    """
    # A stopped context has no properties; methods that run no jobs do not need them.
    if not hasattr(spark, "_jsparkSession") or is_stopped(spark):
        yield
        return
    context = spark.sparkContext
    if context.getLocalProperty(_DESCRIPTION) != instead_of:
        yield
        return
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        # The session may have been stopped since; the work may be committed nevertheless.
        with suppress(Exception):
            context.setLocalProperty(_DESCRIPTION, instead_of)  # type: ignore[arg-type]


def refresh_cached(spark: SparkSession, table: Table) -> None:
    """Refresh the cache through the plugin, which gets the path with an empty read.

    Errors are only logged, as the change is already committed.
    """
    try:
        _refresh(spark, table)
    except PySparkException:
        pass  # without the plugin, the option is unknown
    except Exception as error:  # noqa: BLE001 - the JVM or its session may be gone
        if not is_stopped(spark):
            logger.warning("cached relations of %s were not refreshed: %s", table.uri, error)


def _refresh(spark: SparkSession, table: Table) -> None:
    is_classic = hasattr(spark, "_jsparkSession")
    if is_classic and spark._jsparkSession.sharedState().cacheManager().isEmpty():
        return
    read = spark.read.format("lance").option(keys.REFRESH, "true")
    if table.branch is not None:
        read = read.option("branch", table.branch)
    # On Connect, this only requests the columns from the server.
    _ = read.load(table.root).schema
