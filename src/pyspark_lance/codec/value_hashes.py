"""XXH64 hashes of values, and the split block bloom filters that hold them.

As in Parquet, a filter consists of blocks of 256 bits: eight words of 32 bits. The upper half of a
hash selects a block, the lower half one bit in each word of the block.

Source: docs/format/table-format.md, section 10.6; https://xxhash.com, algorithm XXH64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.values import is_variable_width, offset_bytes
from pyspark_lance.plain_values import plain_array, plain_numbers

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_STRIPE: Final = 32
_Numbers: TypeAlias = NDArray[np.uint64]


def xxh64(data: bytes) -> int:
    """The hash of ``data`` with the seed 0."""
    at = len(data) - len(data) % _STRIPE
    mixed = (_mix_stripes(data, at) if at else _P5) + len(data) & _MASK
    while at + 8 <= len(data):
        (word,) = struct.unpack_from("<Q", data, at)
        mixed = (_rotate(mixed ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        (half,) = struct.unpack_from("<I", data, at)
        mixed = (_rotate(mixed ^ half * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        mixed = _rotate(mixed ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    mixed = (mixed ^ mixed >> 33) * _P2 & _MASK
    mixed = (mixed ^ mixed >> 29) * _P3 & _MASK
    return mixed ^ mixed >> 32


def _mix_stripes(data: bytes, end: int) -> int:
    lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
    for stripe in struct.iter_unpack("<4Q", data[:end]):
        lanes = [_round(lane, word) for lane, word in zip(lanes, stripe, strict=True)]
    mixed = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        mixed = ((mixed ^ _round(0, lane)) * _P1 + _P4) & _MASK
    return mixed


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


# Many values at once: numbers of 64 bits that wrap around by themselves ------------------------


def xxh64_of_numbers(numbers: NDArray[np.generic]) -> _Numbers:
    """The hashes of numbers of 1, 2, 4 or 8 bytes, as in memory; shape (n,)."""
    width = numbers.dtype.itemsize
    mixed = np.full(len(numbers), _P5 + width & _MASK, np.uint64)
    if width == 8:
        return _finalize(_with_word(mixed, numbers.view("<u8")))
    if width == 4:
        return _finalize(_with_half(mixed, numbers.view("<u4").astype(np.uint64)))
    for byte in numbers.view(np.uint8).reshape(len(numbers), width).T:
        mixed = _with_byte(mixed, byte.astype(np.uint64))
    return _finalize(mixed)


def xxh64_of_values(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> _Numbers:
    """The hashes of values of any lengths; shape (n,).

    ``data``: the bytes of all values. ``offsets``: where each begins, and where the last one ends;
    shape (n + 1,).
    """
    return xxh64_of_slices(data, offsets[:-1], np.diff(offsets))


# Slices that are hashed together, so that what is known of them fits into the cache of a core.
_SLICES_AT_ONCE: Final = 1 << 14


def xxh64_of_slices(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: int = 0
) -> _Numbers:
    """Return the hashes of slices of bytes, which may overlap; shape (n,)."""
    # Eight bytes more than there are, so that a word can be read at the place of the last one.
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    hashes = np.empty(len(starts), np.uint64)
    for first in range(0, len(starts), _SLICES_AT_ONCE):
        part = slice(first, first + _SLICES_AT_ONCE)
        hashes[part] = _hash_slices(padded, starts[part], lengths[part], seed)
    return hashes


def _hash_slices(
    padded: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: int
) -> _Numbers:
    mixed = _of_whole_stripes(padded, starts, lengths, seed) + lengths.astype(np.uint64)
    left = lengths % _STRIPE
    at = starts + lengths - left
    for width, with_part in ((8, _with_word), (8, _with_word), (8, _with_word), (4, _with_half),
                             (1, _with_byte), (1, _with_byte), (1, _with_byte)):  # fmt: skip
        _take_part(padded, mixed, at, left, width, with_part)
    return _finalize(mixed)


def _take_part(
    padded: NDArray[np.uint8],
    mixed: _Numbers,
    at: NDArray[np.int64],
    left: NDArray[np.int64],
    width: int,
    with_part: Callable[[_Numbers, _Numbers], _Numbers],
) -> None:
    """Hash the next ``width`` bytes, in place, of the values that have as many left."""
    chosen = np.flatnonzero(left >= width)
    if len(chosen):
        mixed[chosen] = with_part(mixed[chosen], _read(padded, at[chosen], width))
        at[chosen] += width
        left[chosen] -= width


def _of_whole_stripes(
    padded: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: int
) -> _Numbers:
    """Hash the whole 32-byte stripes of each value; the rest is mixed in later."""
    mixed = np.full(len(starts), seed + _P5 & _MASK, np.uint64)
    counts = lengths // _STRIPE
    order = np.flatnonzero(counts)
    if not len(order):
        return mixed
    # The longest first, so that those that are not at their end are the head of all.
    order = order[np.argsort(-counts[order], kind="stable")]
    counts, positions = counts[order], starts[order]
    lanes = np.empty((4, len(order)), np.uint64)
    first = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
    lanes[:] = np.array([lane & _MASK for lane in first], np.uint64)[:, None]
    for number in range(int(counts[0])):
        head = int(np.searchsorted(-counts, -number))
        for lane in range(4):
            words = _read(padded, positions[:head] + (number * _STRIPE + lane * 8), 8)
            lanes[lane, :head] = _rounds(lanes[lane, :head], words)
    joined = np.zeros(len(order), np.uint64)
    for words, by in zip(lanes, (1, 7, 12, 18), strict=True):
        joined += _rotate_all(words, by)
    for words in lanes:
        joined = (joined ^ _rounds(np.zeros_like(words), words)) * np.uint64(_P1) + np.uint64(_P4)
    mixed[order] = joined
    return mixed


def _read(padded: NDArray[np.uint8], positions: NDArray[np.int64], width: int) -> _Numbers:
    """The numbers of ``width`` bytes that begin at any ``positions``."""
    count = len(padded) - width + 1
    parts: NDArray[Any] = np.ndarray((count,), f"<u{width}", padded.data, strides=(1,))
    return parts[positions].astype(np.uint64)


def _with_word(mixed: _Numbers, words: _Numbers) -> _Numbers:
    mixed = mixed ^ _rounds(np.zeros_like(mixed), words)
    return _rotate_all(mixed, 27) * np.uint64(_P1) + np.uint64(_P4)


def _with_half(mixed: _Numbers, halves: _Numbers) -> _Numbers:
    return _rotate_all(mixed ^ halves * np.uint64(_P1), 23) * np.uint64(_P2) + np.uint64(_P3)


def _with_byte(mixed: _Numbers, bytes_: _Numbers) -> _Numbers:
    return _rotate_all(mixed ^ bytes_ * np.uint64(_P5), 11) * np.uint64(_P1)


def _finalize(mixed: _Numbers) -> _Numbers:
    mixed = (mixed ^ mixed >> np.uint64(33)) * np.uint64(_P2)
    mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(_P3)
    return mixed ^ mixed >> np.uint64(32)


def _rounds(lanes: _Numbers, words: _Numbers) -> _Numbers:
    return _rotate_all(lanes + words * np.uint64(_P2), 31) * np.uint64(_P1)


def _rotate_all(values: _Numbers, by: int) -> _Numbers:
    return values << np.uint64(by) | values >> np.uint64(64 - by)


_OF_NULL: Final = np.uint64(0x9AE16A3B2F90404F)


def hashes_with_nulls(values: pa.Array) -> NDArray[np.uint64]:
    """The hashes of values, all nulls equal, and all NaN of one sign; shape (n,)."""
    is_null = plain_numbers(values.is_null())
    hashes = np.full(len(values), _OF_NULL, np.uint64)
    present = values.drop_null()
    if pa.types.is_floating(values.type):
        numbers = plain_numbers(present).copy()
        is_nan = np.isnan(numbers)
        numbers[is_nan] = np.copysign(numbers.dtype.type(np.nan), numbers[is_nan])
        present = plain_array(numbers)
    hashes[~is_null] = hashes_of(present)
    return hashes


def hashes_of(values: pa.Array) -> NDArray[np.uint64]:
    """The hashes of the bytes of values without nulls, of types of indices; shape (n,)."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if pa.types.is_decimal(values.type) or pa.types.is_fixed_size_binary(values.type):
        width = values.type.byte_width
        every = np.frombuffer(values.buffers()[1], np.uint8)
        own = every[values.offset * width : (values.offset + len(values)) * width]
        return xxh64_of_values(own, np.arange(len(values) + 1) * width)
    if not is_variable_width(values.type):
        if pa.types.is_temporal(values.type):
            values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
        return xxh64_of_numbers(np.ascontiguousarray(plain_numbers(values)))
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return xxh64_of_values(np.empty(0, np.uint8), np.zeros(len(values) + 1, np.int64))
    every = np.frombuffer(offsets, f"<i{offset_bytes(values.type)}")
    ends = every[values.offset : values.offset + len(values) + 1]
    begin, end = int(ends[0]), int(ends[-1])
    own = np.frombuffer(data, np.uint8)[begin:end]
    return xxh64_of_values(own, ends.astype(np.int64) - begin)


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


def may_intersect(one: bytes, other: bytes) -> bool:
    """Return whether two filters of one size may share a hash: all its bits are set in both."""
    both = np.frombuffer(one, "<u4") & np.frombuffer(other, "<u4")
    return bool((both.reshape(-1, WORDS) != 0).all(axis=1).any())
