"""RecentlyUsed: a cache of the most recently used values, bounded by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_V = TypeVar("_V")


class RecentlyUsed(Generic[_V]):
    """The most recently used values; ``bytes_of``: approximate size of a value, at most."""

    def __init__(self, most_bytes: int, bytes_of: Callable[[_V], int]) -> None:
        self._most_bytes = most_bytes
        self._bytes_of = bytes_of
        self._bytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, _V] = OrderedDict()

    def get(self, key: Hashable) -> _V | None:
        """Return the value if it is cached."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Hashable, value: _V) -> None:
        """Cache a value; evict the least recently used values if necessary."""
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value
            self._bytes += self._bytes_of(value)
            while self._bytes > self._most_bytes:
                self._bytes -= self._bytes_of(self._values.popitem(last=False)[1])
