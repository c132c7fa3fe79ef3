"""Bytes for the located descriptors of blobs among rows that are written, if there are any.

Every write imports this module; what fetches the bytes is imported when a row needs it.
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


def with_blob_bytes(table: Table, batches: Iterable[_Batch]) -> Iterator[_Batch]:
    """Batches to write, with bytes for located descriptors at any depth; others as they are.

    ``table``: what is written to; see ``DescribedBlobs``.
    """
    blobs: DescribedBlobs | None = None
    for batch in batches:
        if batch is None or not any(map(holds_located, batch.schema.types)):
            yield batch
            continue
        if blobs is None:
            from pyspark_lance.table.rows.described_blobs import DescribedBlobs  # noqa: PLC0415

            blobs = DescribedBlobs(table)
        yield from blobs.with_bytes(batch)
