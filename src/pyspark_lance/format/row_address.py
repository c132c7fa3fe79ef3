"""Row addresses: the location of a row in one version, ``fragment id << 32 | offset``.

The offset counts all physical rows of the fragment, deleted ones included.  No I/O.

Source: docs/format/table-format.md, section 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyspark_lance.errors import InvalidInputError

OFFSET_BITS = 32
MAX_FRAGMENT_ID = (1 << 32) - 1


def row_addresses(fragment_id: int, offsets: ArrayLike) -> NDArray[np.uint64]:
    """Addresses of the rows at ``offsets`` of one fragment, same shape."""
    if not 0 <= fragment_id <= MAX_FRAGMENT_ID:
        raise InvalidInputError(f"fragment id {fragment_id} is not inside [0, 2**32)")
    values = np.asarray(offsets)
    if values.size == 0:
        return np.empty(values.shape, dtype=np.uint64)
    if values.dtype != np.uint32 and (values.min() < 0 or values.max() >= 1 << OFFSET_BITS):
        raise InvalidInputError(f"an offset of fragment {fragment_id} is not inside [0, 2**32)")
    return values.astype(np.uint64) | np.uint64(fragment_id << OFFSET_BITS)


def fragment_ids(addresses: ArrayLike) -> NDArray[np.uint32]:
    """The upper halves of ``addresses``, same shape."""
    values = np.asarray(addresses, dtype=np.uint64)
    return (values >> np.uint64(OFFSET_BITS)).astype(np.uint32)


def offsets(addresses: ArrayLike) -> NDArray[np.uint32]:
    """The lower halves of ``addresses``, same shape."""
    values = np.asarray(addresses, dtype=np.uint64)
    return (values & np.uint64(0xFFFF_FFFF)).astype(np.uint32)


def group_by_fragment(addresses: ArrayLike) -> dict[int, NDArray[np.uint32]]:
    """Offsets per fragment, both ascending; duplicates are kept."""
    ordered = np.sort(np.asarray(addresses, dtype=np.uint64))
    if not len(ordered):
        return {}
    owners = fragment_ids(ordered)
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    pieces = np.split(offsets(ordered), starts[1:])
    return dict(zip(owners[starts].tolist(), pieces, strict=True))
