"""Pieces of a buffer are put together, regular or not, and chunks' buffers are checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.errors import CorruptFileError


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=30), st.booleans())
def test_gather_joins_pieces_in_order(pieces, regular):
    if regular and pieces:
        pieces = [(16, 8)] * len(pieces)
    starts, sizes, position = [], [], 0
    for size, gap in pieces:
        starts.append(position)
        sizes.append(size)
        position += size + gap
    data = np.random.default_rng(0).integers(0, 256, position + 3).astype(np.uint8)
    found = gather(data, np.array(starts, np.int64), np.array(sizes, np.int64))
    expected = b"".join(
        data[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True)
    )
    assert found.tobytes() == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20), st.integers(1, 13))
def test_gather_bits_joins_chunks_without_padding(counts, bits):
    rng = np.random.default_rng(sum(counts))
    flags = [rng.random(count * bits) < 0.5 for count in counts]
    packed = [np.packbits(part, bitorder="little") for part in flags]
    sizes = np.array([len(part) for part in packed], np.int64)
    starts = np.cumsum(sizes + 2) - sizes - 2
    data = np.concatenate([np.concatenate([part, np.zeros(2, np.uint8)]) for part in packed])
    chunks = ChunkBuffers(data, np.array(counts, np.int64), (starts,), (sizes,))
    joined = chunks.gather_bits(0, bits, "flags")
    expected = np.concatenate(flags)
    found = np.unpackbits(joined, bitorder="little", count=len(expected)) if len(joined) else joined
    assert (found == expected).all()
    if sizes.any():
        short = ChunkBuffers(data, chunks.num_values, (starts,), (sizes - (sizes > 0),))
        with pytest.raises(CorruptFileError):
            short.gather_bits(0, bits, "flags")


@given(st.sets(st.integers(0, 60)))
def test_offsets_and_ranges_convert_both_ways(offsets):
    ascending = np.array(sorted(offsets), np.int64)
    ranges = RowRanges.of_offsets(ascending)
    assert ranges.to_positions().tolist() == ascending.tolist()
    assert (ranges.starts[1:] > ranges.ends[:-1]).all()
    clipped = ranges.clip(10, 30)
    expected = [offset - 10 for offset in sorted(offsets) if 10 <= offset < 30]
    assert clipped.to_positions().tolist() == expected
