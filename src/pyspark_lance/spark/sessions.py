"""Sessions of ``LanceTable``: descriptions of jobs, and errors of stopped sessions.

Errors of tables whose session was stopped, as in a notebook after ``spark.stop()``. Without these
checks, PySpark fails with an unrelated error.

Describe the jobs of ``LanceTable`` in Spark's web UI by the method that the user called. Otherwise
it would show call sites in this package.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from pyspark_lance.errors import InvalidInputError, LanceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@contextmanager
def describing_stage(spark: SparkSession, title: str, num_tasks: int) -> Iterator[None]:
    """Log a stage of a long method, and add it to the description of its jobs."""
    method = _method.get()
    logger.info("%s: %s, %d tasks", method, title, num_tasks)
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
