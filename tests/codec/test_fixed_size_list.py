"""Lists of a fixed size: impossible sizes are refused before anything is decoded."""

from __future__ import annotations

import pytest

from pyspark_lance.codec.compressive.fixed_size_list import ListLayer, row_bytes
from pyspark_lance.errors import CorruptFileError


def test_row_bytes_of_full_zip_pages_include_bitmaps():
    layers = [ListLayer(3, has_validity=True), ListLayer(4, has_validity=False)]
    assert row_bytes(layers, 32) == (1, 48)
    assert row_bytes([ListLayer(9, has_validity=True)], 1) == (2, 9)


@pytest.mark.parametrize("dimension", [0, 1 << 31])
def test_impossible_dimensions_are_corrupt(dimension):
    with pytest.raises(CorruptFileError):
        row_bytes([ListLayer(2, has_validity=False), ListLayer(dimension, has_validity=True)], 8)
