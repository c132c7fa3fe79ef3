"""The type that a column was declared to have, where Lance has only the type of its values.

Spark's ``varchar(5)`` is stored as a string, a vector of its ML library as a struct; the metadata
of the field keep what Spark calls it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# As Spark writes the type: ``varchar(5)``, ``char(3)``, or the JSON of a user-defined type.
SPARK_TYPE_KEY: Final = "spark.type"
# The SQL text of the value that a row gets which is given none.
DEFAULT_KEY: Final = "spark.default"
COMMENT_KEY: Final = "comment"

_TEXT_OF_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")


def declared_text(metadata: Mapping[str, bytes], key: str) -> str | None:
    """A value of field metadata as text; None if it is not there."""
    value = metadata.get(key)
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def longest_text(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """How many characters the metadata of an Arrow field allow; None for any number."""
    if not metadata:
        return None
    match = _TEXT_OF_LENGTH.fullmatch(metadata.get(SPARK_TYPE_KEY.encode(), b"").decode())
    return None if match is None else int(match[2])
