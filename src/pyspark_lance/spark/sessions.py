"""Sessions of ``LanceTable``: descriptions of jobs, and errors of stopped sessions.

Errors of tables whose session was stopped, as in a notebook after ``spark.stop()``. Without these
checks, PySpark fails with an unrelated error.

Describe the jobs of ``LanceTable`` in Spark's web UI by the method that the user called. Otherwise
it would show call sites in this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


_DESCRIPTION: Final = "spark.job.description"


@contextmanager
def describing_jobs(spark: SparkSession, method: str, uri: str) -> Iterator[None]:
    """Describe the jobs that this thread starts, unless the user set a description.

    The jobs of a Connect session are described by the server.
    """
    # A stopped context has no properties; methods that run no jobs do not need them.
    if not hasattr(spark, "_jsparkSession") or is_stopped(spark):
        yield
        return
    context = spark.sparkContext
    if context.getLocalProperty(_DESCRIPTION) is not None:
        yield
        return
    context.setLocalProperty(_DESCRIPTION, f"LanceTable.{method} of {uri}")
    try:
        yield
    finally:
        # The session may have been stopped since; the work may be committed nevertheless.
        with suppress(Exception):
            context.setLocalProperty(_DESCRIPTION, None)  # type: ignore[arg-type]
