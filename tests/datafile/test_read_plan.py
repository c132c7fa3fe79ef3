"""Windows of rows: each row is in one of them, however they are cut."""

from __future__ import annotations

import numpy as np

from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.datafile.read_plan import Windows


def test_windows_cut_in_halves_have_each_row_once():
    wanted = RowRanges.of_offsets(np.array([*range(5), *range(10, 17), 20, *range(30, 90)]))
    windows = Windows(wanted, row_bytes=1, window_bytes=80, batch_rows=1)
    found = []
    for number in range(100):
        rows = windows.next_rows()
        if rows is None:
            break
        if number % 2:
            rows = windows.half_of(windows.half_of(rows))
        found += rows.to_positions().tolist()
    assert found == wanted.to_positions().tolist()
