"""RecentlyUsed: values that a process keeps because it may need them again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_V = TypeVar("_V")


class RecentlyUsed(Generic[_V]):
    """The values that were used last; ``bytes_of``: about what one takes, at most."""

    def __init__(self, most_bytes: int, bytes_of: Callable[[_V], int]) -> None:
        self._most_bytes = most_bytes
        self._bytes_of = bytes_of
        self._bytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, _V] = OrderedDict()

    def get(self, key: Hashable) -> _V | None:
        """The value, if it is kept."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Hashable, value: _V) -> None:
        """Keeps a value, perhaps in the place of others."""
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value
            self._bytes += self._bytes_of(value)
            while self._bytes > self._most_bytes:
                self._bytes -= self._bytes_of(self._values.popitem(last=False)[1])
