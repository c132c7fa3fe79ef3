"""Reject texts with a trailing word that Spark parses as an alias.

Spark parses ``id = 5 and`` as the condition ``id = 5`` with the alias ``and``, so an unfinished
condition would delete rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.errors import ParseException
from pyspark.sql import DataFrame

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.text_names import trailing_name
from pyspark_lance.spark.expressions.column_expressions import Expression

_MAX_SHOWN = 100


def refuse_trailing_aliases(frame: DataFrame, expressions: Iterable[Expression | None]) -> None:
    """Raise an error for texts that end in an alias without ``AS``.

    ``frame``: has the columns of the expressions. Raises InvalidInputError.
    """
    for text in expressions:
        if not isinstance(text, str):
            continue
        name = trailing_name(text)
        if name is None or _is_one_value(frame, text):
            continue
        shown = text if len(text) <= _MAX_SHOWN else "…" + text[-_MAX_SHOWN:]
        raise InvalidInputError(
            f"{shown!r} ends in {name!r}, which Spark would parse as an alias",
            hint=f"finish it, or leave {name!r} out",
        )


def _is_one_value(frame: DataFrame, text: str) -> bool:
    """Return whether Spark parses the whole text as a value, so that it has no trailing alias."""
    try:
        # The text may end in a comment.
        _ = frame.selectExpr(f"({text}\n) AS value").schema
    except ParseException:
        return False
    return True
