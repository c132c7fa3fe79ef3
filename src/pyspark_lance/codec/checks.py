"""Checks of untrusted bytes before a decoder allocates or indexes anything."""

from __future__ import annotations

from typing import NoReturn

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError


def require(condition: bool, what: str) -> None:
    """Raise CorruptFileError with the message ``what`` unless ``condition`` holds.

    The caller adds the location.
    """
    if not condition:
        raise CorruptFileError(what)


def reject_unsupported(what: str) -> NoReturn:
    """Reject an encoding by name.

    Raises UnsupportedFeatureError: always. The caller adds where.
    """
    raise UnsupportedFeatureError(what)
