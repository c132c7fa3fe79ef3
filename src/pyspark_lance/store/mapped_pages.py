"""MappedPages: a scan through a mapped file need not keep all of it resident.

The pages of a map count as memory of the process until the system takes them back, which it only
does when it runs short; container limits and monitors see them before. Letting them go is always
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
    """Remembers which large pieces of maps were handed out, and lets go of the oldest.

    ``limit``: about how many bytes of them stay resident.
    """

    def __init__(self, limit: int = MAX_RESIDENT_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._pieces: deque[tuple[weakref.ref[mmap.mmap], int, int]] = deque()
        self._total = 0

    def handed_out(self, view: memoryview, start: int, end: int) -> None:
        """Takes note of a piece; small ones do not count."""
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
"""Those of all maps of this process."""
