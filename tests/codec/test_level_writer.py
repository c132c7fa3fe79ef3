from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.codec.chunk_buffers import ChunkBuffer
from pyspark_lance.codec.compressive.bit_packed import decode_out_of_line_block
from pyspark_lance.codec.leaf_column import leaf_columns
from pyspark_lance.codec.shred import shred
from pyspark_lance.codec.structural.mini_block import (
    encode_levels,
    entries_per_chunk,
    repetition_index,
)


def chunk_bytes(buffer: ChunkBuffer) -> list[bytes]:
    sizes = buffer.sizes()
    starts = np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()), np.uint8)
    buffer.copy_to(out, starts)
    return [out[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True)]


@pytest.mark.parametrize("largest", [1, 2, 3, 9])
@pytest.mark.parametrize("seed", range(6))
def test_levels_of_every_chunk_round_trip(largest, seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, [5, 1100, 4000][seed % 3], 9)
    if seed % 2:
        counts[:] = rng.integers(1, 4) * 1024 + rng.integers(0, 70)
    ends = np.cumsum(counts)
    levels = rng.integers(0, largest + 1, int(ends[-1])).astype(np.uint8)
    if len(levels):
        levels[0] = largest
    encoding, buffer = encode_levels(levels, ends)
    for end, count, content in zip(ends, counts, chunk_bytes(buffer), strict=True):
        expected = levels[end - count : end].tolist()
        block = np.frombuffer(content, np.uint8)
        if encoding.HasField("flat"):
            assert len(levels) < 1024
            assert block.view("<u2").tolist() == expected
            continue
        bits = encoding.out_of_line_bitpacking.values.flat.bits_per_value
        assert bits == largest.bit_length()
        found = decode_out_of_line_block(block, 16, bits, int(count))
        assert found.buffer.view("<u2")[: int(count)].tolist() == expected


@pytest.mark.parametrize("seed", range(8))
def test_repetition_index_counts_rows_ending_in_each_chunk(seed):
    rng = np.random.default_rng(seed)
    lists = [
        None if rng.random() < 0.1 else list(range(rng.integers(0, [4, 90][seed % 2])))
        for _ in range(60)
    ]
    array = pa.array(lists, pa.list_(pa.int32()))
    field = pa.field("c", array.type)
    (column,), (rows,) = list(leaf_columns(field)), shred(array, field)
    count = len(rows.values)
    value_ends = np.append(np.arange(16, count, 16), count)
    ends = entries_per_chunk(rows, value_ends)
    index = repetition_index(rows, column, ends)
    row_ends = [*rows.row_starts(column).tolist()[1:], rows.num_entries]
    start, expected = 0, []
    for end in ends.tolist():
        ended = [stop for stop in row_ends if start < stop <= end]
        last = max([stop for stop in row_ends if stop <= end], default=0)
        expected.append([len(ended), end - max(last, start)])
        start = end
    assert index.tolist() == expected
    assert int(index[:, 0].sum()) == len(lists)
