"""Pack rows into bytes, so that Spark shuffles them as a single value.

The JVM only copies packed rows and never decodes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import fewest_batches
from pyspark_lance.codec.row_selection import take_rows


def pack_rows(batch: pa.RecordBatch) -> bytes:
    """Serialize ``batch`` as an Arrow stream, without rows outside of a slice."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack_rows(packed: bytes) -> Iterator[pa.RecordBatch]:
    """Deserialize the result of ``pack_rows``."""
    with pa.ipc.open_stream(packed) as stream:
        yield from stream


def split_rows(
    batch: pa.RecordBatch, groups: NDArray[np.signedinteger[Any]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each group, ascending by group; rows of a group keep their order.

    ``groups``: of each row, shape (num_rows,).
    """
    if not len(groups):
        return
    if (groups[1:] < groups[:-1]).any():
        order = np.argsort(groups, kind="stable")
        batch, groups = take_rows(batch, order), groups[order]
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    for start, end in zip(starts, [*starts[1:], len(groups)], strict=True):
        yield int(groups[start]), batch.slice(start, end - start)


class RowBuffer:
    """Buffers batches up to ``most_rows`` rows or ``most_bytes`` bytes."""

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        self._limits = most_rows, most_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch; return whether the buffer is full."""
        if batch.num_rows:
            self._batches.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        return self._rows >= self._limits[0] or self._bytes >= self._limits[1]

    def take(self) -> list[pa.RecordBatch]:
        """Return and clear all rows, in one batch if they fit; no batch is empty."""
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        return fewest_batches(batches)
