"""Re-raise a ``LanceError`` of a worker on the driver with its own class.

A Spark job only returns the text of the error, whose code determines the class.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import re
from collections.abc import Callable, Iterator, Sequence

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from pyspark_lance.errors import InvalidInputError, error_in
from pyspark_lance.format.column_names import name_hint
from pyspark_lance.predicate.name_parts import name_parts

# As reported by a classic session, and by a Connect server.
_OF_ANOTHER_PLAN = ("MISSING_ATTRIBUTES", "CANNOT_RESOLVE_DATAFRAME_COLUMN")
# The first line of an exception in a Java stack trace, if it has an error class of Spark.
_CODED = re.compile(r"^(?:Caused by)?: [\w.$]+: (\[[A-Z_0-9.]+\] .*)$", re.MULTILINE)
_UNKNOWN_NAME = ("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD")
# PySpark logs an analysis error, pages of JSON, before it raises it.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_is_error_expected = contextvars.ContextVar("is_error_expected", default=False)


class _Unlogged(logging.Filter):
    """Log filter that drops PySpark's records of errors that ``typed_errors`` raises."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_error_expected.get()


_UNLOGGED = _Unlogged()


@functools.cache
def _filter_logs() -> None:
    for logger in _LOGGERS:
        PySparkLogger.getLogger(logger).addFilter(_UNLOGGED)


@contextlib.contextmanager
def typed_errors(columns: Callable[[], Sequence[str]] = tuple, alias: str = "") -> Iterator[None]:
    """Convert an exception of Spark that contains a ``LanceError`` to that error.

    ``columns``: returns the names that an expression may use, for suggestions. Spark only sees the
    needed columns, and would suggest one of them, or an internal name.
    """
    _filter_logs()
    outside = _is_error_expected.set(True)
    try:
        yield
    except PySparkException as error:
        lance_error = (
            error_in(str(error))
            or _unknown_name(error, columns, alias)
            or _error_of_user(error, alias)
        )
        if lance_error is None:
            raise
        raise lance_error from None
    except Py4JJavaError as error:  # for a subquery, Spark only shows a Java stack trace
        lance_error = error_in(str(error)) or _error_of_subquery(str(error))
        if lance_error is None:
            raise
        raise lance_error from None
    finally:
        _is_error_expected.reset(outside)


def _error_of_subquery(trace: str) -> InvalidInputError | None:
    """Return the innermost exception in a stack trace, if it has an error class."""
    shown = _CODED.findall(trace)
    if not shown:
        return None
    return InvalidInputError(
        f"Spark could not evaluate a condition, a value or a subquery in it: {shown[-1]}",
        hint="run it as a SELECT to see for which rows it fails",
    )


def _unknown_name(
    error: PySparkException, columns: Callable[[], Sequence[str]], alias: str
) -> InvalidInputError | None:
    """Convert Spark's error of an unresolved name."""
    if not (error.getCondition() or "").startswith(_UNKNOWN_NAME):
        return None
    known = list({column.lower(): column for column in columns()}.values())
    if not known:
        return None
    *qualifiers, name = name_parts((error.getMessageParameters() or {}).get("objectName", ""))
    shown = ".".join((*qualifiers, name))
    if qualifiers and name.lower() in map(str.lower, known):
        hint = f"the table is called {alias!r} here, and the rows to merge are called 'source'"
    else:
        hint = name_hint(name, known)
    return InvalidInputError(f"there is no column {shown!r}", hint=hint)


def _error_of_user(error: PySparkException, alias: str) -> InvalidInputError | None:
    """Convert an error that Spark reports in terms of its plans."""
    if alias and error.getCondition() == "AMBIGUOUS_REFERENCE":
        name = ".".join(name_parts((error.getMessageParameters() or {}).get("name", "")))
        return InvalidInputError(
            f"{name!r} is ambiguous: more than one column has that name",
            hint=f"in a merge it is {alias}.{name} or source.{name}; where names differ by case "
            "only, set spark.sql.caseSensitive = true",
        )
    if not (error.getCondition() or "").startswith(_OF_ANOTHER_PLAN):
        return None
    return InvalidInputError(
        "a condition or value takes a column from another DataFrame, which is not part of it",
        hint='name columns by functions.col("target.id") or in SQL text, not by df["id"]',
    )
