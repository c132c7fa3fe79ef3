"""XXH64 gives the hashes that its authors publish, and those in filters of pylance."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pyspark_lance.codec.value_hashes import xxh64, xxh64_of_numbers, xxh64_of_values


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"message digest", 0x066ED728FCEEB3BE),
        (b"abcdefghijklmnopqrstuvwxyz", 0xCFE1F278FA89835C),
        (b"1234567890" * 8, 0xE04A477F19EE145D),
    ],
)
def test_xxh64_matches_reference(data, expected):
    assert xxh64(data) == expected


def test_xxh64_of_values_equals_single_hashes():
    """Of all lengths from none to some parts of 32 bytes, in any order."""
    rng = np.random.default_rng(1)
    lengths = rng.permutation(np.repeat(np.arange(140), 3))
    offsets = np.concatenate([[2], 2 + np.cumsum(lengths)])
    data = rng.integers(0, 256, offsets[-1] + 3).astype(np.uint8)
    expected = [xxh64(data[start:end].tobytes()) for start, end in pairwise(offsets)]
    assert xxh64_of_values(data, offsets).tolist() == expected
    assert xxh64_of_values(data[:0], np.zeros(1, np.int64)).tolist() == []


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_xxh64_of_numbers_hashes_their_bytes(width):
    rows = np.random.default_rng(width).integers(0, 256, (200, width)).astype(np.uint8)
    numbers = rows.view(f"<i{width}").ravel()
    assert xxh64_of_numbers(numbers).tolist() == [xxh64(row.tobytes()) for row in rows]
