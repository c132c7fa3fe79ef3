"""Split block bloom filters, as Parquet has them: the bits of a hash, and filters that hold it.

A filter is a number of blocks of 256 bits, eight words of 32 each.  A hash names a block by its
upper half, and one bit of each word of it by its lower half.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES: Final = 32
WORDS: Final = 8
_WORD_BITS: Final = 32
_SALT: Final = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)


def blocks_of(hashes: NDArray[np.uint64], num_blocks: int) -> NDArray[np.int64]:
    """The block of each hash; shape (n,)."""
    return (((hashes >> np.uint64(32)) * np.uint64(num_blocks)) >> np.uint64(32)).astype(np.int64)


def bits_in_words(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The number of the bit of each word that a hash sets; shape (n, 8)."""
    return hashes.astype(np.uint32)[:, None] * _SALT >> np.uint32(27)


def bits_of(hashes: NDArray[np.uint64], num_blocks: int) -> NDArray[np.int64]:
    """The bits of the whole filter that each hash sets; shape (n, 8)."""
    word = blocks_of(hashes, num_blocks)[:, None] * WORDS + np.arange(WORDS)
    return word * _WORD_BITS + bits_in_words(hashes)


def are_in(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return whether each hash is in a filter, or looks so; ``blocks`` of shape (num_blocks, 8)."""
    bits = np.uint32(1) << bits_in_words(hashes)
    return ((blocks[blocks_of(hashes, len(blocks))] & bits) == bits).all(axis=1)


def may_share(one: bytes, other: bytes) -> bool:
    """Whether two filters of one size may have a hash in common: it has all its bits in both."""
    both = np.frombuffer(one, "<u4") & np.frombuffer(other, "<u4")
    return bool((both.reshape(-1, WORDS) != 0).all(axis=1).any())
