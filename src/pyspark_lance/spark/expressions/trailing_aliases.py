"""Refuses texts with a word too many at their end, which Spark takes for an alias.

``id = 5 and`` is to Spark the condition ``id = 5`` with the alias ``and``: what looks unfinished
would delete rows.
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
    """Refuses texts that end in an alias without ``AS``.

    ``frame``: has the columns that the expressions name. Raises InvalidInputError.
    """
    for text in expressions:
        if not isinstance(text, str):
            continue
        name = trailing_name(text)
        if name is None or _is_one_value(frame, text):
            continue
        shown = text if len(text) <= _MAX_SHOWN else "…" + text[-_MAX_SHOWN:]
        raise InvalidInputError(
            f"{shown!r} ends in {name!r}, which Spark would take for an alias of what is before it",
            hint=f"finish it, or leave {name!r} out",
        )


def _is_one_value(frame: DataFrame, text: str) -> bool:
    """Whether Spark takes all of the text for a value; within a value no alias has a place."""
    try:
        # The text may end in a comment.
        _ = frame.selectExpr(f"({text}\n) AS value").schema
    except ParseException:
        return False
    return True
