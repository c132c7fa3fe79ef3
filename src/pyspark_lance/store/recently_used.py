"""RecentlyUsed: a cache of the most recently used values, bounded by bytes; and memory limits."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

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


# Limits of the memory of a container, by both versions of control groups.
_CONTAINER_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def memory_share(parts: int, *, least: int, most: int) -> int:
    """Return one of ``parts`` of the memory that this process may use, within two bounds; bytes.

    That is the machine's memory, its container's, or the limit of the process, which Spark sets by
    ``spark.executor.pyspark.memory``.
    """
    return max(least, min([most, *(limit // parts for limit in _memory_limits())]))


def _memory_limits() -> Iterator[int]:
    with contextlib.suppress(AttributeError, ValueError, OSError):  # not on every platform
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _CONTAINER_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
            yield int(Path(path).read_text(encoding="ascii"))
    with contextlib.suppress(ImportError):  # Windows limits no process's memory
        import resource  # noqa: PLC0415

        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            yield limit
