"""What a decoder asks of the bytes it is given, before it allocates or indexes anything."""

from __future__ import annotations

from typing import NoReturn

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError


def require(condition: bool, what: str) -> None:
    """Goes on if the bytes keep their promise.

    ``condition``: what must hold; ``what``: what was found instead, for the message. Raises
    CorruptFileError: it does not hold. The caller adds where.
    """
    if not condition:
        raise CorruptFileError(what)


def unsupported(what: str) -> NoReturn:
    """Refuse an encoding by name.

    Raises UnsupportedFeatureError: always. The caller adds where.
    """
    raise UnsupportedFeatureError(what)
