"""MappedPages: bound the resident memory of memory maps.

The pages of a map count as memory of the process until the system reclaims them, which it only does
when memory is short; container limits and monitors count them before.  Dropping them is always
safe: a read-only map reads them again from the page cache.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import deque
from typing import Final

MAX_RESIDENT_BYTES: Final = 192 << 20
_MIN_BYTES: Final = 256 << 10
_PAGE: Final = mmap.PAGESIZE
_DONT_NEED: Final = getattr(mmap, "MADV_DONTNEED", None)


class MappedPages:
    """Tracks large views of maps and drops the pages of the oldest.

    ``limit``: approximate number of bytes that stay resident.
    """

    def __init__(self, limit: int = MAX_RESIDENT_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._pieces: deque[tuple[weakref.ref[mmap.mmap], int, int]] = deque()
        self._total = 0

    def record_view(self, view: memoryview, start: int, end: int) -> None:
        """Record a view; small ones do not count."""
        content = view.obj
        if end - start < _MIN_BYTES or _DONT_NEED is None or not isinstance(content, mmap.mmap):
            return
        with self._lock:
            self._pieces.append((weakref.ref(content), start, end))
            self._total += end - start
            old = []
            while self._total > self._limit and len(self._pieces) > 1:
                piece = self._pieces.popleft()
                self._total -= piece[2] - piece[1]
                old.append(piece)
        for reference, first, last in old:
            whole = reference()
            if whole is not None:
                first = first // _PAGE * _PAGE
                whole.madvise(_DONT_NEED, first, last - first)


MAPPED_PAGES: Final = MappedPages()
"""Tracker of all maps of this process."""
