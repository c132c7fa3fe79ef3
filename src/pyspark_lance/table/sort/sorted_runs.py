"""Sorted runs: sorted rows in unreferenced data files.

Boundaries from a sample split all runs into the same ranges, so a task that merges some ranges
reads adjacent rows of each run and has only a few rows of each in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.join_rows import fewest_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.system_columns import ROW_ADDRESS, SYSTEM_COLUMNS
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest, write_fragments
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_BYTES
from pyspark_lance.table.sort.row_order import RowOrder
from pyspark_lance.table.version.table_files import TableFiles

_WRITTEN_ROWS: Final = 16_384
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The keys and addresses of the last rows of all ranges except the last one, in order."""

    keys: tuple[pa.Array, ...]
    addresses: NDArray[np.uint64]

    @classmethod
    def of_sample(
        cls,
        order: RowOrder,
        values: Sequence[pa.Array],
        addresses: NDArray[np.uint64],
        num_ranges: int,
    ) -> Boundaries:
        """Split a sample into ranges of about equally many rows.

        ``values``: of each order column. ``num_ranges``: at least one; fewer if the sample is too
        small.
        """
        keys = order.keys(values)
        places = order.places(keys, addresses)
        count = max(1, min(num_ranges, len(places)))
        chosen = places[np.arange(1, count) * len(places) // count]
        return cls(tuple(key.take(plain_array(chosen)) for key in keys), addresses[chosen])


@dataclass(frozen=True, slots=True)
class Run:
    """A file of sorted rows."""

    fragment: Fragment  # Without deleted rows; lineage is stored in columns.
    cuts: NDArray[np.int64]  # The rows of range r are [cuts[r], cuts[r + 1]).


class SortedRows:
    """Sorted rows in memory.

    ``batches``: the rows; the list is cleared, to release their memory. Ascending addresses, if
    any, are dropped by the sort.
    """

    def __init__(self, order: RowOrder, batches: list[pa.RecordBatch]) -> None:
        self._order = order
        joined = fewest_batches(batches)
        batches.clear()
        self._addresses: list[NDArray[np.uint64]] = []
        if joined and ROW_ADDRESS in joined[0].schema.names:
            self._addresses = [plain_numbers(batch.column(ROW_ADDRESS)) for batch in joined]
            joined = [batch.drop_columns([ROW_ADDRESS]) for batch in joined]
        self._batches = joined

    def cut_by(self, bounds: Boundaries) -> tuple[Iterator[pa.RecordBatch], NDArray[np.int64]]:
        """Return the sorted rows and the bounds of their ranges."""
        keys, own = self._keys(), len(bounds.addresses)
        both = [pa.concat_arrays(pair) for pair in zip(keys, bounds.keys, strict=True)]
        addresses = np.concatenate([*self._addresses, bounds.addresses])
        places = self._order.places(both, addresses)
        num_rows = len(places) - own
        is_bound = places >= num_rows
        cuts = np.flatnonzero(is_bound) - np.arange(own)
        return self._in(places[~is_bound]), np.concatenate([[0], cuts, [num_rows]])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the sorted rows."""
        return self._in(self._order.places(self._keys())) if self._batches else iter(())

    def _keys(self) -> list[pa.Array]:
        parts = [self._order.keys(self._order.values(batch)) for batch in self._batches]
        return [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]

    def _in(self, places: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        for first in range(0, len(places), _WRITTEN_ROWS):
            some = places[first : first + _WRITTEN_ROWS]
            # There are several batches only if the rows do not fit into one.
            number = starts.searchsorted(some, side="right") - 1
            turns = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(some)]
            for start, end in pairwise(turns):
                one = int(number[start])
                yield take_rows(self._batches[one], some[start:end] - starts[one])


def with_lineage_columns(schema: LanceSchema, names: Sequence[str]) -> LanceSchema:
    """Return the schema of runs: the table's columns, and system columns as data."""
    first = schema.max_field_id + 1
    added = [Field(first + i, name, "uint64", nullable=False) for i, name in enumerate(names)]
    return LanceSchema(fields=(*schema.fields, *added), metadata=schema.metadata)


def write_run(
    request: WriteFragmentsRequest, lineage: Sequence[str], rows: SortedRows, bounds: Boundaries
) -> Run:
    """Write rows as a run, without a commit.

    ``request``: how the table's files are written. ``lineage``: system columns to keep.
    """
    sorted_batches, cuts = rows.cut_by(bounds)
    whole = replace(
        request,
        schema=with_lineage_columns(request.schema, lineage),
        max_rows_per_file=_NO_LIMIT,
        max_bytes_per_file=_NO_LIMIT,
        max_items_per_file=_NO_LIMIT,
    )
    (fragment,) = write_fragments(whole, sorted_batches)
    return Run(fragment, cuts)


@dataclass(frozen=True, slots=True)
class RunReader:
    """Reads ranges of runs, merged.

    ``fields``: of the runs, including lineage.
    """

    files: TableFiles
    fields: tuple[Field, ...]
    order: RowOrder
    runs: tuple[Run, ...]

    def rows(self, first: int, last: int, skipped: int, count: int) -> Iterator[pa.RecordBatch]:
        """Yield some rows of the ranges [first, last), in order.

        ``skipped``: rows to skip. ``count``: maximum rows.
        """
        readers = [
            FragmentReader(self.files, run.fragment, stable_row_ids=False) for run in self.runs
        ]
        for number in range(first, last):
            buffered: list[pa.RecordBatch] = []
            for run, reader in zip(self.runs, readers, strict=True):
                span = int(run.cuts[number]), int(run.cuts[number + 1])
                if span[0] < span[1]:
                    buffered += [
                        batch
                        for _, batch in reader.windows(self.fields, (), span, DEFAULT_BATCH_BYTES)
                    ]
            for batch in SortedRows(self.order, buffered).batches():
                part = batch.slice(skipped, count)
                skipped = max(0, skipped - batch.num_rows)
                count -= part.num_rows
                if part.num_rows:
                    yield part
                if not count:
                    return


def lineage_names(*, stable_row_ids: bool) -> tuple[str, ...]:
    """Return the system columns that rows keep when they move."""
    return tuple(name for name in SYSTEM_COLUMNS if name != ROW_ADDRESS) if stable_row_ids else ()
