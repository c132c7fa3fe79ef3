"""Runs of neighbouring numbers: most row ids and all row addresses are such runs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Adding to numbers that are there takes half the time of counting; so many (512 KiB) are kept.
_KEPT_NUMBERS = 1 << 16


def consecutive(start: int, count: int) -> NDArray[np.uint64]:
    """``start`` and the ``count - 1`` numbers after it; all must fit into 64 bits."""
    if count > _KEPT_NUMBERS:
        numbers = np.arange(count, dtype=np.uint64)
        numbers += np.uint64(start)
        return numbers
    # Arrow's pool keeps memory that was given back; fresh pages would cost more than the numbers.
    numbers = np.frombuffer(pa.allocate_buffer(max(1, 8 * count)), np.uint64, count)
    return np.add(_first_numbers()[:count], np.uint64(start), out=numbers)


@cache
def _first_numbers() -> NDArray[np.uint64]:
    numbers = np.arange(_KEPT_NUMBERS, dtype=np.uint64)
    numbers.flags.writeable = False
    return numbers
