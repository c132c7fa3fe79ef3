"""Row addresses, ``fragment id << 32 | offset``, and sets of them in indices. No I/O.

The offset counts all physical rows of the fragment, deleted ones included.

``RowAddrTreeMap`` is the set of rows in index files: the u32 number of entries; for each entry,
ascending, the u32 high half of its numbers, a u32 length and a 32-bit Roaring bitmap of the low
halves. A length of zero means all rows of a fragment.

Source: docs/format/table-format.md, sections 0 and 10.8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyroaring import BitMap, FrozenBitMap

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionVector

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


_U32 = struct.Struct("<I")

TreeMap: TypeAlias = dict[int, BitMap | None]
"""High half -> low halves; None for all of a fragment."""


def parse_tree_map(data: bytes, where: str = "") -> TreeMap:
    """Decode a set of rows."""
    parsed: TreeMap = {}
    try:
        (count,) = _U32.unpack_from(data)
        at = _U32.size
        for _ in range(count):
            (high,), (length,) = _U32.unpack_from(data, at), _U32.unpack_from(data, at + 4)
            at += 2 * _U32.size
            if high in parsed or at + length > len(data):
                raise CorruptFileError("a set of rows is truncated, or has a duplicate part", where)
            content = data[at : at + length]
            parsed[high] = BitMap(_bitmap_of(content)) if length else None
            at += length
    except struct.error as error:
        raise CorruptFileError("a set of rows is truncated", where) from error
    if at != len(data):
        raise CorruptFileError(f"a set of rows ends {len(data) - at} bytes before its end", where)
    return parsed


def pack_tree_map(rows: Mapping[int, BitMap]) -> bytes:
    """The bytes of a set of rows."""
    parts = [_U32.pack(len(rows))]
    for high in sorted(rows):
        bitmap = rows[high].serialize()
        parts += [_U32.pack(high), _U32.pack(len(bitmap)), bitmap]
    return b"".join(parts)


def union_of(sets: Iterable[Mapping[int, BitMap]]) -> dict[int, BitMap]:
    """The rows that are in any of some sets."""
    parts: dict[int, list[BitMap]] = {}
    for rows in sets:
        for high, bitmap in rows.items():
            parts.setdefault(high, []).append(bitmap)
    return {high: BitMap.union(*bitmaps) for high, bitmaps in parts.items()}


def numbers_of(rows: Mapping[int, BitMap], most: int | None = None) -> NDArray[np.uint64]:
    """The numbers of all rows, ascending.

    ``most``: how many there can be. A set of some kilobytes may hold 2^32 for each high half.
    """
    if most is not None and sum(map(len, rows.values())) > most:
        raise CorruptFileError(f"a set of rows of an index has more than the {most} of its table")
    parts = [
        np.frombuffer(rows[high].to_array(), np.uint32).astype(np.uint64)
        | np.uint64(high << OFFSET_BITS)
        for high in sorted(rows)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _bitmap_of(content: bytes) -> FrozenBitMap:
    return DeletionVector.from_bitmap_bytes(content).bitmap
