"""Top-k scans: a task reads the order column first, and then only the rows it needs.

Spark sorts the results of all tasks, so a task may return more rows than needed, never fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.row_address import group_by_fragment
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.predicate.conditions import columns_of
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.scan_task import HasEnough, ScanTask

_NO_OFFSETS: Final = np.empty(0, np.uint32)
_WORTHWHILE: Final = 1 / 16
"""Up to this fraction of its rows, a task fetches single rows."""


@dataclass(frozen=True, slots=True)
class TopRows:
    """The order and limit of a top-k scan."""

    column: str  # The first order column, a table column.
    rows: int  # The limit.
    descending: bool  # Whether the greatest come first; NaN is greater than all numbers.
    nulls_first: bool  # Whether nulls come before all values.
    has_more_columns: bool  # Whether ties of ``column`` are ordered by further columns.


def run_top(task: ScanTask, top: TopRows, has_enough: HasEnough) -> Iterator[pa.RecordBatch]:
    """Yield at least the rows of ``task`` that may be among the top rows."""
    least = _restrict_to_top_rows(task, top, has_enough)
    yield from (task if least is None else least).run(has_enough=has_enough)


def _restrict_to_top_rows(task: ScanTask, top: TopRows, has_enough: HasEnough) -> ScanTask | None:
    """Return a task that reads only the top rows; None if that is not worthwhile."""
    most = int(_WORTHWHILE * task.num_rows)
    key = next((field for field in task.fields if field.name == top.column), None)
    if key is None or top.rows > most or not _is_ordered(key.to_arrow().type):
        return None
    if len(task.fields) == 1 and not task.system_columns:
        return None
    named = columns_of(task.predicate) if task.predicate is not None else frozenset()
    others = {field.name: field for field in (*task.filter_fields, *task.fields)}
    seeking = replace(
        task,
        fields=(key,),
        filter_fields=tuple(
            field for name, field in others.items() if name in named and field != key
        ),
        system_columns=(ROW_ADDRESS,),
        keep_dictionaries=False,
    )
    first = _FirstRows(top)
    for batch in seeking.run(has_enough=has_enough):
        first.add(batch[top.column], plain_numbers(batch[ROW_ADDRESS]))
        if first.num_rows > most + batch.num_rows:
            first.drop_non_candidates()
            if first.num_rows > most:
                return None
    slices = _at(task.slices, first.addresses())
    return replace(task, slices=slices, predicate=None, filter_fields=())


def _is_ordered(data_type: pa.DataType) -> bool:
    """Return whether Arrow orders normalized values of this type as Spark does."""
    types = pa.types
    return (
        types.is_integer(data_type) or types.is_floating(data_type) or types.is_date32(data_type)
        or types.is_timestamp(data_type) or types.is_string(data_type)
        or types.is_large_string(data_type) or types.is_decimal128(data_type)
    )  # fmt: skip


def _normalize(values: pa.Array) -> pa.Array:
    """Normalize values for Spark's order: zeros are equal, NaN is greater than all numbers."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = plain_numbers(values).astype(np.float64) + 0.0
    numbers[np.isnan(numbers)] = np.nan
    bits = numbers.view(np.int64)
    return plain_array(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits))


class _FirstRows:
    """The candidate top rows so far."""

    def __init__(self, top: TopRows) -> None:
        self._top = top
        self._order = "descending" if top.descending else "ascending"
        # Ties of the last row are interchangeable, unless further columns order them.
        ends = (pc.greater, pc.less), (pc.greater_equal, pc.less_equal)
        self._within = ends[top.has_more_columns][not top.descending]
        self._keys: list[pa.Array] = []
        self._addresses: list[NDArray[np.uint64]] = []
        self._nulls: list[NDArray[np.uint64]] = []
        self._last: pa.Scalar | None = None
        self.num_rows = 0

    def add(self, values: pa.Array, addresses: NDArray[np.uint64]) -> None:
        """Add rows with their addresses."""
        if values.null_count:
            is_null = plain_numbers(values.is_null())
            self._nulls.append(addresses[is_null])
            self.num_rows += len(self._nulls[-1])
            values, addresses = values.drop_null(), addresses[~is_null]
        keys = _normalize(values)
        if self._last is not None:
            within = self._within(keys, self._last)
            keys, addresses = keys.filter(within), addresses[plain_numbers(within)]
        self._keys.append(keys)
        self._addresses.append(addresses)
        self.num_rows += len(keys)
        if sum(map(len, self._keys)) > 2 * self._top.rows:
            self.drop_non_candidates()

    def drop_non_candidates(self) -> None:
        """Drop rows that cannot be among the top rows."""
        rows = self._top.rows
        keys, addresses = pa.concat_arrays(self._keys), np.concatenate(self._addresses)
        if len(keys) > rows:
            indices = pc.array_sort_indices(keys, order=self._order)
            self._last = keys[indices[rows - 1].as_py()]
            if self._top.has_more_columns:
                indices = pc.indices_nonzero(self._within(keys, self._last))
            else:
                indices = indices[:rows]
            keys, addresses = keys.take(indices), addresses[plain_numbers(indices)]
        nulls = np.concatenate(self._nulls) if self._nulls else np.empty(0, np.uint64)
        if not self._top.has_more_columns:
            nulls = nulls[:rows]
        if not self._top.nulls_first and len(keys) >= rows:
            nulls = nulls[:0]
        self._keys, self._addresses, self._nulls = [keys], [addresses], [nulls]
        self.num_rows = len(keys) + len(nulls)

    def addresses(self) -> NDArray[np.uint64]:
        """Return the addresses of the rows, unordered."""
        if not self._keys:
            return np.empty(0, np.uint64)
        self.drop_non_candidates()
        return np.concatenate([*self._addresses, *self._nulls])


def _at(slices: Sequence[ScanSplit], addresses: NDArray[np.uint64]) -> tuple[ScanSplit, ...]:
    """Return splits of the rows at ``addresses``."""
    of_fragments = group_by_fragment(addresses)
    kept = []
    for scan_split in slices:
        offsets = of_fragments.get(scan_split.fragment.id, _NO_OFFSETS)
        start, end = offsets.searchsorted([scan_split.start, scan_split.end])
        if start < end:
            kept.append(replace(scan_split, offsets=OffsetSet.of(offsets[start:end])))
    return tuple(kept)
