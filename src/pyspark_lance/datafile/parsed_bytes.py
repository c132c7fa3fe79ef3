"""ParsedBytes: what was parsed from small messages, found again by their bytes.

The files of a table share their layout: most messages of a file are, byte for byte, those of the
file before. What is kept must follow from the bytes alone, and nobody may change it.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

_MOST_ENTRIES: Final = 1024
_MOST_BYTES: Final = 4096

_V = TypeVar("_V")


class ParsedBytes(Generic[_V]):
    """Values by the bytes that they were parsed from; begins anew when it is full."""

    def __init__(self) -> None:
        self._known: dict[bytes, _V] = {}

    def get(self, data: bytes) -> _V | None:
        """What was parsed from the same bytes."""
        return self._known.get(data)

    def keep(self, data: bytes, value: _V) -> None:
        """Remembers a value, unless it is large."""
        if len(data) <= _MOST_BYTES:
            if len(self._known) >= _MOST_ENTRIES:
                self._known.clear()
            self._known[data] = value
