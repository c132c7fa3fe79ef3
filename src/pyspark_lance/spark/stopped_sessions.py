"""Errors of tables whose session was stopped, as in a notebook after ``spark.stop()``.

Without these checks, PySpark fails with an unrelated error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError, LanceError

_NO_SOURCE: Final = "[DATA_SOURCE_NOT_FOUND]"  # Spark's only error of a failed look-up.


@contextmanager
def check_session(owner: Any, *, needs_session: bool) -> Iterator[None]:
    """Convert errors that occur because the session of ``owner`` was stopped.

    ``owner``: an object with ``_spark``, and perhaps ``_table``. ``needs_session``: raise the error
    at once, rather than for work that needs a job.

    Raises:
        InvalidInputError: The session was stopped.
    """
    if needs_session and is_stopped(_session_of(owner)):
        raise _stopped(owner)
    try:
        yield
    except Exception as error:
        says_enough = isinstance(error, LanceError) and _NO_SOURCE not in str(error)
        if says_enough or not is_stopped(_session_of(owner)):
            raise
        raise _stopped(owner) from None


def is_stopped(spark: Any) -> bool:
    """Return True if a session, classic or of Connect, was stopped."""
    if hasattr(spark, "_jsparkSession"):
        return bool(spark._sc._jsc is None)
    return bool(getattr(spark, "is_stopped", False))  # of Connect


def _session_of(owner: Any) -> Any:
    return getattr(owner, "_spark", None)


def _stopped(owner: Any) -> InvalidInputError:
    table = getattr(owner, "_table", None)
    return InvalidInputError(
        "the Spark session of this table was stopped",
        "" if table is None else table.uri,
        "create it again with the active session: LanceTable.forPath(spark, …)",
    )
