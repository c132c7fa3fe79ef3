"""Constant: one value for every slot of a page.

Source: docs/format/file-format.md, section 6.6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.values import ArrowBuffersValue

MAX_BUFFERS = 16


def decode_inline_value(value: bytes, num_values: int) -> ArrowBuffersValue:
    """A value that stands in the page's description: fixed width, a boolean in one byte."""
    return ArrowBuffersValue(num_values, (np.frombuffer(value, np.uint8),))


def decode_value_block(block: NDArray[np.uint8], num_values: int) -> ArrowBuffersValue:
    """A value as the Arrow buffers of an array of length one, without validity."""
    require(len(block) >= 4, "a constant value has no header")
    count = int(block[:4].view("<u4")[0])
    require(count <= MAX_BUFFERS, f"a constant value has {count} buffers")
    position = 4 + 4 * count
    require(len(block) >= position, "a constant value is cut short")
    buffers = []
    for size in block[4:position].view("<u4").tolist():
        require(position + size <= len(block), "a constant value is cut short")
        buffers.append(block[position : position + size])
        position += size
    return ArrowBuffersValue(num_values, tuple(buffers))
