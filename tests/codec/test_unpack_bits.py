"""FastLanes blocks are unpacked as the format defines them, by either implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.codec.bit_packing import (
    ROW_ORDER,
    WORD_TYPES,
    unpack_blocks,
    unpack_one_bit_blocks,
)
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive.bit_packed import (
    decode_inline_chunks,
    decode_out_of_line_block,
)
from pyspark_lance.errors import CorruptFileError

WIDTHS = [
    (word, bits) for word in (8, 16, 32, 64) for bits in range(0, word + 1, max(1, word // 8))
]


def pack_slowly(values: list[int], word_bits: int, packed_bits: int) -> np.ndarray:
    """One block by the definition, bit by bit: every lane is a bit string of its own."""
    lanes = 1024 // word_bits
    words = [0] * (packed_bits * lanes)
    for lane in range(lanes):
        stream = 0
        for row in range(word_bits):
            element = ROW_ORDER[row // 8] * 16 + (row % 8) * 128 + lane
            stream |= values[element] << (row * packed_bits)
        for word in range(packed_bits):
            words[word * lanes + lane] = (stream >> (word * word_bits)) & ((1 << word_bits) - 1)
    return np.array(words, WORD_TYPES[word_bits])


@pytest.mark.parametrize(("word_bits", "packed_bits"), WIDTHS)
@pytest.mark.parametrize("count", [1, 129])  # both ways of unpacking
def test_unpacked_blocks_equal_packed_values(word_bits, packed_bits, count):
    rng = np.random.default_rng(packed_bits)
    values = [int(v) & ((1 << packed_bits) - 1) for v in rng.integers(0, 1 << 63, 1024)]
    block = pack_slowly(values, word_bits, packed_bits)
    packed = np.tile(block, (count, 1))
    out = np.empty((count, 1024), WORD_TYPES[word_bits])
    unpack_blocks(packed, packed_bits, out)
    assert (out == np.array(values, WORD_TYPES[word_bits])).all()


def test_one_bit_unpacking_equals_generic():
    packed = np.random.default_rng(0).integers(0, 1 << 16, (300, 64)).astype(np.uint16)
    expected = np.empty((300, 1024), np.uint16)
    unpack_blocks(packed, 1, expected)
    assert (unpack_one_bit_blocks(packed) == expected).all()
    assert unpack_one_bit_blocks(packed[:0]).shape == (0, 1024)


def inline_chunks(widths: list[int], counts: list[int], word_bits: int = 32):
    """Chunks of InlineBitpacking with a gap of 8 bytes between them, and their values."""
    rng = np.random.default_rng(1)
    pieces, starts, sizes, expected = [], [], [], []
    position = 0
    for width, count in zip(widths, counts, strict=True):
        values = [int(v) for v in rng.integers(0, 1 << width, 1024)]
        block = pack_slowly(values, word_bits, width)
        content = np.concatenate([np.array([width], block.dtype), block]).tobytes()
        pieces += [content, b"\xfe" * (-len(content) % 8 + 8)]
        starts.append(position)
        sizes.append(len(content))
        position += len(pieces[-2]) + len(pieces[-1])
        expected += values[:count]
    data = np.frombuffer(b"".join(pieces), np.uint8)
    places, lengths = (np.array(part, np.int64) for part in (starts, sizes))
    return ChunkBuffers(data, np.array(counts, np.int64), (places,), (lengths,)), expected


@pytest.mark.parametrize(
    "widths", [[5] * 40, [0] * 3, [5] * 20 + [6] * 20, [3, 9] * 20, [32, 0, 1], [7]]
)
def test_inline_chunks_of_any_widths_are_joined(widths):
    chunks, expected = inline_chunks(widths, [1024] * (len(widths) - 1) + [77])
    values = decode_inline_chunks(chunks, 32)
    assert values.num_values == len(expected)
    assert values.buffer.view("<u4").tolist() == expected


def test_partial_chunks_are_trimmed():
    chunks, expected = inline_chunks([4, 5, 6], [10, 1024, 3])
    assert decode_inline_chunks(chunks, 32).buffer.view("<u4").tolist() == expected


def test_impossible_width_is_corrupt():
    chunks, _ = inline_chunks([5, 5], [1024, 1024])
    damaged = chunks.data.copy()
    damaged[0] = 33
    with pytest.raises(CorruptFileError, match="width"):
        decode_inline_chunks(
            ChunkBuffers(damaged, chunks.num_values, chunks.starts, chunks.sizes), 32
        )


def test_chunk_too_small_for_width_is_corrupt():
    chunks, _ = inline_chunks([5], [1024])
    cut = (chunks.sizes[0] - 1,)
    with pytest.raises(CorruptFileError, match="too small"):
        decode_inline_chunks(ChunkBuffers(chunks.data, chunks.num_values, chunks.starts, cut), 32)


@given(st.integers(0, 2500), st.integers(1, 15), st.booleans())
def test_external_blocks_accept_raw_or_packed_tails(count, bits, raw_tail):
    values = np.random.default_rng(count).integers(0, 1 << bits, count).astype(np.uint16)
    padded = np.concatenate([values, np.zeros(-count % 1024, np.uint16)]).reshape(-1, 1024)
    full = count // 1024
    blocks = [pack_slowly([int(v) for v in row], 16, bits) for row in padded[:full]]
    tail = values[full * 1024 :]
    # A raw tail as long as a packed block would be taken for one; writers avoid it.
    if raw_tail and len(tail) != 64 * bits:
        blocks.append(tail)
    elif len(tail):
        blocks.append(pack_slowly([int(v) for v in padded[-1]], 16, bits))
    content = np.concatenate([*blocks, np.zeros(0, np.uint16)]).view(np.uint8)
    decoded = decode_out_of_line_block(content, 16, bits, count)
    assert decoded.buffer.view("<u2").tolist() == values.tolist()
    if count:
        with pytest.raises(CorruptFileError):
            decode_out_of_line_block(content[:1], 16, bits, count)
