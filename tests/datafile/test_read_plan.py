"""Windows, pages and chunks of rows: each requested row is in one of them."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.codec.structural.page_decoder import ChunkRanges
from pyspark_lance.datafile.read_plan import PageStarts, Windows


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


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(1, 2**48 - 1))
@example([3, 0, 3], 0b101101)  # a range of rows around an empty page
def test_pages_hold_their_ranges_of_rows(lengths, bits):
    wanted = [row for row in range(sum(lengths)) if bits >> row & 1]
    assume(wanted)
    starts = PageStarts.of_lengths(lengths)
    rows = RowRanges.of_offsets(np.array(wanted))

    pages = {}
    for page, length in enumerate(lengths):
        first = sum(lengths[:page])
        if held := [row - first for row in wanted if first <= row < first + length]:
            pages[page] = held

    assert list(starts.pages_of(rows)) == list(pages) or rows.is_single
    assert set(pages) <= set(starts.pages_of(rows))
    assert {page: part.to_positions().tolist() for page, part in starts.split(rows)} == pages


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8))
def test_chunks_of_ranges_ascend(steps):
    # The next range begins in the chunk where the one before ends, or later.
    bounds = np.cumsum(np.array(steps).reshape(-1))
    first, last = bounds[::2], bounds[1::2]

    chunks = ChunkRanges(first, last).chunks().tolist()

    assert chunks == sorted({c for a, b in zip(first, last, strict=True) for c in range(a, b + 1)})
