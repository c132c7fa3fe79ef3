"""Errors of ours that happened in a worker are raised on the driver as what they were.

Only text comes back from a Spark job; it holds the code, and with it the class.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.errors import PySparkException

from pyspark_lance.errors import InvalidInputError, error_in


@contextlib.contextmanager
def typed_errors() -> Iterator[None]:
    """Turns an exception of Spark that shows an error of ours into that error.

    Also a decorator.
    """
    try:
        yield
    except PySparkException as error:
        lance_error = error_in(str(error)) or _error_of_user(error)
        if lance_error is None:
            raise
        raise lance_error from None


def _error_of_user(error: PySparkException) -> InvalidInputError | None:
    """What Spark says in words of its plans."""
    if not (error.getCondition() or "").startswith("MISSING_ATTRIBUTES"):
        return None
    return InvalidInputError(
        "a condition or value takes a column from another DataFrame, which is not part of it",
        hint='name columns by functions.col("target.id") or in SQL text, not by df["id"]',
    )
