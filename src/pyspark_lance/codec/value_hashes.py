"""Hashes of values by their bytes, as bloom filters have them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.arrow_values import is_variable_width, offset_bytes
from pyspark_lance.codec.xxh64 import xxh64_of_numbers, xxh64_of_values
from pyspark_lance.plain_values import plain_array, plain_numbers

_OF_NULL: Final = np.uint64(0x9AE16A3B2F90404F)


def hashes_with_nulls(values: pa.Array) -> NDArray[np.uint64]:
    """The hashes of values, all nulls alike, and all NaN of one sign; shape (n,)."""
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
