"""Refuses plain numbers and texts where a value of an enum belongs.  No I/O.

Values of ``IntEnum`` and ``StrEnum`` equal their plain values but are not the same objects, so
a plain one would pass through comparisons in one place and fail in another.
"""

from __future__ import annotations

import enum

from pyspark_lance.errors import InvalidInputError


def check_enum(value: object, kind: type[enum.Enum]) -> None:
    """Refuses everything but a member of ``kind``."""
    if type(value) is not kind:
        raise InvalidInputError(f"{value!r} is not a {kind.__name__}")
