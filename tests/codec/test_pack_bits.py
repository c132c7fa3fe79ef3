from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.codec.bit_packing import WORD_TYPES, unpack_blocks, unpack_one_bit_blocks
from pyspark_lance.codec.compressive.fixed_width import (
    bit_widths,
    pack_blocks,
    pack_level_blocks,
    pack_one_bit_blocks,
)


def random_blocks(word_bits: int, packed_bits: int, blocks: int) -> np.ndarray:
    rng = np.random.default_rng(word_bits * 100 + packed_bits)
    values = rng.integers(0, 1 << 63, (blocks, 1024), dtype=np.uint64) * np.uint64(2)
    values |= rng.integers(0, 2, values.shape, dtype=np.uint64)
    mask = (1 << packed_bits) - 1
    return (values & np.uint64(mask)).astype(WORD_TYPES[word_bits])


@pytest.mark.parametrize("word_bits", [8, 16, 32, 64])
def test_pack_and_unpack_round_trip(word_bits):
    for packed_bits in range(1, word_bits + 1):
        for blocks in (1, 3):
            values = random_blocks(word_bits, packed_bits, blocks)
            packed = np.full((blocks, 1024 * packed_bits // word_bits), 7, values.dtype)
            pack_blocks(values, packed_bits, packed)
            unpacked = np.empty_like(values)
            unpack_blocks(packed, packed_bits, unpacked)
            assert (unpacked == values).all(), packed_bits


def test_many_blocks_round_trip_in_several_steps():
    values = random_blocks(64, 13, 700)
    packed = np.empty((700, 1024 * 13 // 64), values.dtype)
    pack_blocks(values, 13, packed)
    unpacked = np.empty_like(values)
    unpack_blocks(packed, 13, unpacked)
    assert (unpacked == values).all()


def test_element_order_follows_format():
    # Spec: element index of (lane l, row r) is ORDER[r // 8] * 16 + (r % 8) * 128 + l.
    values = np.zeros((1, 1024), np.uint16)
    values[0, 64 + 128 + 5] = 1  # row 9 of lane 5
    packed = pack_one_bit_blocks(values.astype(np.uint8)).view("<u2")
    assert np.flatnonzero(packed).tolist() == [5]
    assert packed[0, 5] == 1 << 9


def test_one_bit_levels_pack_like_generic_width():
    levels = (np.random.default_rng(1).random((5, 1024)) < 0.3).astype(np.uint8)
    generic = np.empty((5, 64), "<u2")
    pack_blocks(levels.astype("<u2"), 1, generic)
    assert (pack_one_bit_blocks(levels).view("<u2") == generic).all()
    assert (unpack_one_bit_blocks(generic) == levels).all()


@pytest.mark.parametrize("packed_bits", [1, 2, 5, 8])
def test_zero_blocks_pack_to_nothing(packed_bits):
    assert pack_level_blocks(np.empty((0, 1024), np.uint8), packed_bits).size == 0


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5))
def test_bit_widths_match_largest_values(largest):
    blocks = np.zeros((len(largest), 1024), np.uint64)
    blocks[:, 77] = largest
    expected = [value.bit_length() for value in largest]
    assert bit_widths(blocks.reshape(-1)).tolist() == expected
    assert bit_widths(blocks.reshape(-1)[:-900]).tolist() == expected


@pytest.mark.parametrize("word_bits", [8, 16, 32, 64])
def test_bit_widths_are_exact_near_powers_of_two(word_bits):
    for bits in range(1, word_bits + 1):
        for value in ((1 << bits) - 1, 1 << (bits - 1)):
            assert bit_widths(np.array([0, value], WORD_TYPES[word_bits])).tolist() == [bits]
