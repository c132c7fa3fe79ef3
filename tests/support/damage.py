"""Damaged copies of good bytes, and what readers must do with them."""

import random

import pytest

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError


def truncations(data: bytes, at_most: int = 400):
    """Prefixes of ``data``: all of them, or an even sample."""
    step = max(len(data) // at_most, 1)
    yield from (data[:length] for length in range(0, len(data), step))


def bit_flips(data: bytes, count: int, seed: int = 0):
    """Copies of ``data`` with one bit inverted."""
    rng = random.Random(seed)
    for _ in range(count):
        copy = bytearray(data)
        copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
        yield bytes(copy)


def splices(data: bytes, count: int, seed: int = 0):
    """Copies of ``data`` in which a few bytes gave way to random ones."""
    rng = random.Random(seed)
    for _ in range(count):
        start = rng.randrange(len(data))
        end = min(start + rng.randrange(1, 9), len(data))
        yield data[:start] + rng.randbytes(rng.randrange(1, 12)) + data[end:]


def refuse_every(damaged, read) -> None:
    """``read`` refuses every piece as corrupt or unsupported."""
    for data in damaged:
        with pytest.raises((CorruptFileError, UnsupportedFeatureError)):
            read(data)


def survive_every(damaged, read) -> int:
    """``read`` refuses every piece cleanly or reads it; the number of refusals."""
    refused = 0
    for data in damaged:
        try:
            read(data)
        except (CorruptFileError, UnsupportedFeatureError):
            refused += 1
    return refused
