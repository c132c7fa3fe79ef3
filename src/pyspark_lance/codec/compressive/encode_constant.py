"""Writing constant pages with a value: is there one, and its bytes.

Source: docs/format/file-format.md, section 6.6.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.arrow_values import (
    bits_per_value,
    boolean_values,
    fixed_width_values,
    is_variable_width,
    variable_width_values,
)

MAX_INLINE_BYTES: Final = 32
_FIRST_LOOK: Final = 64


def only_value(values: pa.Array) -> tuple[NDArray[np.uint8], ...] | None:
    """The Arrow buffers, without validity, of the one value that all of these are.

    ``values``: at least one, none null. Returns None if there are several, or if the type is
    nested.
    """
    data_type = values.type
    if pa.types.is_nested(data_type) or pa.types.is_dictionary(data_type):
        return None
    if is_variable_width(data_type):
        return _only_string(values)
    if pa.types.is_boolean(data_type):
        flags = boolean_values(values, None)
        return (flags[:1].copy(),) if (flags == flags[0]).all() else None
    if bits_per_value(data_type) == 0:
        return None
    numbers = fixed_width_values(values, None)
    return (numbers[:1].copy().view(np.uint8).reshape(-1),) if _all_equal(numbers) else None


def _only_string(values: pa.Array) -> tuple[NDArray[np.uint8], ...] | None:
    offsets, content = variable_width_values(values, None)
    first, length = int(offsets[0]), int(offsets[1]) - int(offsets[0])
    if (np.diff(offsets) != length).any():
        return None
    if length and not _all_equal(content[first : int(offsets[-1])].reshape(-1, length)):
        return None
    own = np.array([0, length], offsets.dtype)
    return own.view(np.uint8), content[first : first + length].copy()


def _all_equal(values: NDArray[Any]) -> bool:
    """Return whether all values, or rows of bytes, are as the first one; bits are compared."""
    look = values[:_FIRST_LOOK]
    return bool((look == values[0]).all()) and bool((values == values[0]).all())


def value_block(buffers: tuple[NDArray[np.uint8], ...]) -> bytes:
    """The buffers behind their number and sizes."""
    sizes = [len(buffer) for buffer in buffers]
    header = struct.pack(f"<I{len(sizes)}I", len(sizes), *sizes)
    return header + b"".join(buffer.tobytes() for buffer in buffers)
