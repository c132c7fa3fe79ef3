"""Type checks for enum values: plain numbers and texts are refused.  No I/O.

Values of ``IntEnum`` and ``StrEnum`` equal their plain values but are not the same objects, so a
plain one would pass comparisons by ``==`` and fail those by identity.
"""

from __future__ import annotations

import enum

from pyspark_lance.errors import InvalidInputError


def check_enum(value: object, kind: type[enum.Enum]) -> None:
    """Reject everything but a member of ``kind``."""
    if type(value) is not kind:
        raise InvalidInputError(f"{value!r} is not a {kind.__name__}")
