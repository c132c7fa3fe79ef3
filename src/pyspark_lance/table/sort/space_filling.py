"""Curves through a grid of cells: neighbours on the curve are neighbours in every column.

Pure: whole numbers in, whole numbers out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


def zorder_key(cells: Sequence[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """Where cells are on the z-order curve: their bits in turns; shape (n,).

    ``cells``: of each column, shape (n,), below ``2 ** bits``; the first column comes first.
    """
    key = np.zeros(len(cells[0]), np.uint64)
    for bit in reversed(range(bits)):
        for cell in cells:
            key <<= np.uint64(1)
            key |= (cell >> np.uint64(bit)) & np.uint64(1)
    return key


def hilbert_key(cells: Sequence[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """Where cells are on the Hilbert curve, which never jumps; shape (n,).

    J. Skilling, Programming the Hilbert curve, 2004, for all rows at once.

    ``cells``: of each column, shape (n,), below ``2 ** bits``.
    """
    axes = [cell.copy() for cell in cells]
    nothing = np.uint64(0)
    for bit in reversed(range(1, bits)):
        mask, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for axis in axes:
            is_set = (axis & mask) != 0
            swapped = np.where(is_set, nothing, (axes[0] ^ axis) & below)
            axes[0] ^= np.where(is_set, below, swapped)
            axis ^= swapped
    for before, axis in pairwise(axes):
        axis ^= before
    turned = np.zeros_like(axes[0])
    for bit in reversed(range(1, bits)):
        is_set = (axes[-1] & np.uint64(1 << bit)) != 0
        turned ^= np.where(is_set, np.uint64((1 << bit) - 1), nothing)
    return zorder_key([axis ^ turned for axis in axes], bits)
