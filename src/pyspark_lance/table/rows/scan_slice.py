"""ScanSlice: rows of a fragment that a task of a scan reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.offset_set import OffsetSet


@dataclass(frozen=True, slots=True)
class ScanSlice:
    """Rows [start, end) of one fragment, by physical offset."""

    fragment: Fragment  # The fragment, with the sequences that the scan reads.
    start: int  # First row.
    end: int  # One past the last row.
    offsets: OffsetSet | None = None  # The only rows that can match; None for all.

    @property
    def read_share(self) -> float:
        """The share of the fragment's rows that this slice reads."""
        rows = self.end - self.start if self.offsets is None else len(self.offsets)
        return rows / max(1, self.fragment.physical_rows)
