"""Windows: wanted rows, cut into what is decoded at a time."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyspark_lance.codec.row_ranges import RowRanges

MAX_WINDOW_ROWS: Final = 1 << 22
# A window that turns out to be so many times as large as it should be is read in halves.
_MAX_WINDOWS: Final = 4


class Windows:
    """Cuts the wanted rows into windows of about ``window_bytes``, by what was seen before.

    Windows that hold several batches hold whole ones.
    """

    def __init__(self, rows: RowRanges, row_bytes: int, window_bytes: int, batch_rows: int) -> None:
        self._rows = rows
        self._done = 0  # rows handed out
        self._total = rows.num_rows if len(rows.starts) else 0
        self._before = np.cumsum(rows.ends - rows.starts) - (rows.ends - rows.starts)
        self._window_bytes = window_bytes
        self._batch_rows = batch_rows
        # An estimate: the first window is a quarter of what it allows.
        self._row_bytes = 4.0 * row_bytes

    def begin(self, rows: RowRanges) -> None:
        """Goes on with other rows, of which as much is known as of those before."""
        self._rows, self._done = rows, 0
        self._total = rows.num_rows
        self._before = np.cumsum(rows.ends - rows.starts) - (rows.ends - rows.starts)

    def next_rows(self) -> RowRanges | None:
        """The next window, None after the last."""
        if self._done >= self._total:
            return None
        count = int(self._window_bytes / max(self._row_bytes, 0.01))
        if count > self._batch_rows:
            count -= count % self._batch_rows
        return self._hand_out(min(max(count, 1), MAX_WINDOW_ROWS))

    def half_of(self, rows: RowRanges) -> RowRanges:
        """The first half of the window that was handed out last; the other half comes next."""
        self._done -= rows.num_rows
        return self._hand_out(rows.num_rows // 2)

    def room_of(self, rows: RowRanges) -> int | None:
        """The bytes that decoding a window may take; a single row takes what it needs."""
        return _MAX_WINDOWS * self._window_bytes if rows.num_rows > 1 else None

    def _hand_out(self, count: int) -> RowRanges:
        begin, end = self._done, min(self._done + count, self._total)
        self._done = end
        counts = self._rows.ends - self._rows.starts
        first = np.clip(begin - self._before, 0, counts)
        last = np.clip(end - self._before, 0, counts)
        kept = first < last
        starts = self._rows.starts[kept]
        return RowRanges(starts + first[kept], starts + last[kept])

    def observe(self, num_rows: int, num_bytes: int) -> None:
        """Take the size of a decoded window as the best guess for the next ones."""
        self._row_bytes = max(num_bytes / num_rows, 0.01)
