"""EncodedU64Array: 64-bit numbers stored as small offsets from a base.

Source: docs/format/table-format.md, sections 6.1 and 6.2 (4).  No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.proto import row_ids_pb2

MAX_U64 = (1 << 64) - 1
_WIDTHS: dict[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


@dataclass(frozen=True, slots=True, eq=False)
class EncodedU64Array:
    """Numbers ``base + offsets[i]``."""

    base: int  # Added to every offset. Zero when offsets are 64 bits wide: that form has no base.
    offsets: NDArray[Any]  # One-dimensional, dtype ``<u2``, ``<u4`` or ``<u8``; read-only.

    def __post_init__(self) -> None:
        width = _WIDTHS.get(self.offsets.dtype.itemsize)
        if width is None or self.offsets.dtype.kind != "u" or self.offsets.ndim != 1:
            raise CorruptFileError(f"number array offsets have dtype {self.offsets.dtype}")
        if not 0 <= self.base <= MAX_U64 or (self.base and width.itemsize == 8):
            raise CorruptFileError(f"number array has base {self.base} at {width.itemsize} bytes")
        # A view of read-only memory; a copy of memory that the caller could modify.
        offsets = self.offsets.astype(width, copy=self.offsets.flags.writeable).view()
        offsets.flags.writeable = False
        object.__setattr__(self, "offsets", offsets)
        # With a base this low, no offset can overflow.
        if self.base >> 63 and len(offsets) and self.base + int(offsets.max()) > MAX_U64:
            raise CorruptFileError(
                f"number array holds {self.base} + {int(offsets.max())}, more than 64 bits"
            )

    def __len__(self) -> int:
        return len(self.offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncodedU64Array):
            return NotImplemented
        same_shape = self.base == other.base and self.offsets.dtype == other.offsets.dtype
        return same_shape and np.array_equal(self.offsets, other.offsets)

    def __hash__(self) -> int:
        return hash((self.base, self.offsets.dtype.itemsize, self.offsets.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, which makes the array read-only again.
        return EncodedU64Array, (self.base, self.offsets)

    def to_array(self) -> NDArray[np.uint64]:
        """The numbers, shape (len(self),)."""
        values = self.offsets.astype(np.uint64)
        if self.base:
            values += np.uint64(self.base)
        return values

    @classmethod
    def choose(cls, values: NDArray[np.uint64]) -> EncodedU64Array:
        """The narrowest form of ``values``, with their minimum as base; empty is 64 bits wide."""
        values = np.asarray(values, dtype=np.uint64)
        if not len(values):
            return cls(0, np.empty(0, dtype="<u8"))
        base = values.min()
        spread = int(values.max() - base)
        if spread > 0xFFFF_FFFF:
            return cls(0, values.astype("<u8"))
        return cls(int(base), (values - base).astype("<u2" if spread <= 0xFFFF else "<u4"))

    @classmethod
    def from_proto(cls, message: row_ids_pb2.EncodedU64Array) -> EncodedU64Array:
        """Decode the message; the numbers are a view of its bytes."""
        form = message.WhichOneof("array")
        if form == "u16_array":
            return cls(message.u16_array.base, _view(message.u16_array.offsets, 2))
        if form == "u32_array":
            return cls(message.u32_array.base, _view(message.u32_array.offsets, 4))
        if form == "u64_array":
            return cls(0, _view(message.u64_array.values, 8))
        raise CorruptFileError("number array has no known form")

    def to_proto(self) -> row_ids_pb2.EncodedU64Array:
        """The message with exactly these offsets."""
        data = self.offsets.tobytes()
        message = row_ids_pb2.EncodedU64Array()
        # CopyFrom marks the form as set even when everything in it is zero.
        if self.offsets.dtype.itemsize == 2:
            message.u16_array.CopyFrom(message.U16Array(base=self.base, offsets=data))
        elif self.offsets.dtype.itemsize == 4:
            message.u32_array.CopyFrom(message.U32Array(base=self.base, offsets=data))
        else:
            message.u64_array.CopyFrom(message.U64Array(values=data))
        return message


def _view(data: bytes, width_bytes: int) -> NDArray[Any]:
    """Read-only view of ``data`` as little-endian numbers."""
    if len(data) % width_bytes:
        raise CorruptFileError(
            f"number array has {len(data)} bytes, not a multiple of {width_bytes}"
        )
    return np.frombuffer(data, dtype=_WIDTHS[width_bytes])
