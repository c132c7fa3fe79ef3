"""XXH64 gives the hashes that its authors publish, and those in filters of pylance."""

from __future__ import annotations

import pytest

from pyspark_lance.codec.xxh64 import xxh64


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
def test_hashes_are_those_of_the_algorithm(data, expected):
    assert xxh64(data) == expected
