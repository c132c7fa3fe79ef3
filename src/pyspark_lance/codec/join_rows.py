"""Concatenation of partial rows: dictionaries become one, and no row is lost beyond 2 GiB.

One array has limits: strings and lists have 32-bit offsets, and the indices of a dictionary address
only so many items.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyspark_lance.codec.decode_memory import BatchTooLargeError

_CANNOT_JOIN = (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError)


def concat_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """The values of all arrays, which have one type, in one; there is at least one."""
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except _CANNOT_JOIN as error:
        raise BatchTooLargeError from error


def fewest_batches(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows of all batches, which have one schema, in one if they fit; no batch is empty."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return filled
    try:
        # Columns that do not fit into one array stay in several, and rows are cut at all of them.
        joined: list[pa.RecordBatch] = pa.Table.from_batches(filled).combine_chunks().to_batches()
    except _CANNOT_JOIN:
        return filled
    return joined


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches, which have one schema, in one; there is at least one batch."""
    joined = fewest_batches(batches)
    if len(joined) > 1:
        rows = sum(batch.num_rows for batch in joined)
        raise BatchTooLargeError(f"{rows} rows of {joined[0].schema.names} are to be joined")
    return joined[0] if joined else batches[0]
