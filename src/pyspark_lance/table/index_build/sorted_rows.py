"""RowSorter: values with the names of their rows, in the order of indices, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_array
from pyspark_lance.table.index.value_order import sort_order
from pyspark_lance.table.sort import external_sort
from pyspark_lance.table.sort.external_sort import MAX_BYTES, MAX_ROWS, ExternalSorter

VALUES: Final = "values"
IDS: Final = "ids"


class RowSorter(ExternalSorter):
    """Sorts rows of two columns, ``values`` and ``ids``: nulls first."""

    def __init__(
        self, data_type: pa.DataType, most_rows: int = MAX_ROWS, most_bytes: int = MAX_BYTES
    ) -> None:
        super().__init__(_places, most_rows, most_bytes)
        self._schema = pa.schema([pa.field(VALUES, data_type), pa.field(IDS, pa.uint64())])

    def add(self, values: pa.Array, ids: NDArray[np.uint64]) -> None:
        """Takes rows, in any order."""
        columns = [values, plain_array(ids)]
        self.add_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))


def merged(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted streams, sorted; a batch of each is in memory at a time."""
    return external_sort.merged(streams, _places)


def _places(rows: pa.RecordBatch) -> NDArray[np.int64]:
    return sort_order(rows.column(VALUES), stable=True)
