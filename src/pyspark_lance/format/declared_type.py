"""Declared types of columns that Lance stores as another type.

Spark's ``varchar(5)`` is stored as a string, a vector of its ML library as a struct; the metadata
of the field contain Spark's type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# As Spark writes the type: ``varchar(5)``, ``char(3)``, or the JSON of a user-defined type.
SPARK_TYPE_KEY: Final = "spark.type"
# SQL text of the default value of the column.
DEFAULT_KEY: Final = "spark.default"
COMMENT_KEY: Final = "comment"

_TEXT_OF_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")


def declared_text(metadata: Mapping[str, bytes], key: str) -> str | None:
    """Return a value of field metadata as text; None if it is absent."""
    value = metadata.get(key)
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def longest_text(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """Return the maximum length in characters from Arrow field metadata; None if unlimited."""
    if not metadata:
        return None
    match = _TEXT_OF_LENGTH.fullmatch(metadata.get(SPARK_TYPE_KEY.encode(), b"").decode())
    return None if match is None else int(match[2])
