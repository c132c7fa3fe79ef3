"""Fetch the bytes of located blob descriptors in rows to write.

Every write imports this module; the code that fetches bytes is imported lazily.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from pyspark_lance.format.logical_view import holds_located
from pyspark_lance.table.version.table import Table

if TYPE_CHECKING:
    from pyspark_lance.table.rows.described_blobs import DescribedBlobs

_Batch = TypeVar("_Batch", pa.RecordBatch, pa.RecordBatch | None)


class BlobBytes:
    """The bytes for the descriptors that one task writes; keeps their source files open.

    ``table``: the target; see ``DescribedBlobs``.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._blobs: DescribedBlobs | None = None

    def of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows with bytes for located descriptors at any depth, some at a time."""
        if not any(map(holds_located, batch.schema.types)):
            yield batch
            return
        if self._blobs is None:
            from pyspark_lance.table.rows.described_blobs import DescribedBlobs  # noqa: PLC0415

            self._blobs = DescribedBlobs(self._table)
        yield from self._blobs.with_bytes(batch)


def with_blob_bytes(table: Table, batches: Iterable[_Batch]) -> Iterator[_Batch]:
    """Batches of one task, with bytes for located descriptors at any depth; others unchanged."""
    blobs = BlobBytes(table)
    for batch in batches:
        if batch is None:
            yield batch
        else:
            yield from blobs.of(batch)
