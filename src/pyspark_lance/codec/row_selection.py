"""Filter and take on record batches, safe for every type.

pyarrow (26 among others) gives wrong rows, or rows of memory that is not theirs, when it filters
or takes from a fixed-size list of fixed-size lists that starts at an offset, as slices do, however
deep it lies in other types.  Such columns are copied to offset 0 first.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_array


def filter_rows(batch: pa.RecordBatch, mask: NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows of ``batch`` where ``mask``, shape (num_rows,)."""
    return _safe(batch).filter(plain_array(mask))


def take_rows(batch: pa.RecordBatch, indices: NDArray[np.integer]) -> pa.RecordBatch:
    """The rows of ``batch`` at ``indices``, in that order."""
    return _safe(batch).take(plain_array(indices))


def take_values(array: pa.Array, indices: pa.Array) -> pa.Array:
    """The values of ``array`` at ``indices``, which are known to be inside."""
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.take(without_offset(array), indices, boundscheck=False)


def without_offset(array: pa.Array) -> pa.Array:
    """``array``, copied to offset 0 if its type is one that pyarrow selects wrongly from."""
    if _is_mishandled(array.type) and _has_offset(array):
        return pa.concat_arrays([array, array.slice(0, 0)])
    return array


def _safe(batch: pa.RecordBatch) -> pa.RecordBatch:
    if not any(_is_mishandled(field.type) for field in batch.schema):
        return batch
    columns = [without_offset(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_mishandled(data_type: pa.DataType) -> bool:
    """Return whether a fixed-size list of fixed-size lists is in ``data_type``."""
    if pa.types.is_fixed_size_list(data_type) and pa.types.is_fixed_size_list(data_type.value_type):
        return True
    return any(_is_mishandled(data_type.field(i).type) for i in range(data_type.num_fields))


def _has_offset(array: pa.Array) -> bool:
    """Return whether the array or a part of it starts inside of its buffers."""
    if array.offset:
        return True
    if isinstance(array, pa.ExtensionArray):
        return _has_offset(array.storage)
    if pa.types.is_struct(array.type):
        return any(_has_offset(array.field(i)) for i in range(array.type.num_fields))
    if pa.types.is_map(array.type):
        return _has_offset(array.keys) or _has_offset(array.items)
    return bool(array.type.num_fields) and _has_offset(array.values)
