"""RowOrder: sort rows by columns or along a space-filling curve.

Nulls come first and NaN last, as in Spark. On a curve, values are mapped to cells with about
equally many rows, whose boundaries come from a sample.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import is_json_text
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_array
from pyspark_lance.predicate.types import type_name
from pyspark_lance.table.index.btree import comparable, has_order, sort_order
from pyspark_lance.table.scan.column_paths import named_path, values_at

_MAX_CELLS: Final = 4096
_MAX_BITS: Final = 16
_MAX_ON_A_CURVE: Final = 16


class Curve(enum.Enum):
    """Combination of several columns into one order."""

    LINEAR = "linear"
    """Lexicographic order."""
    ZORDER = "zorder"
    HILBERT = "hilbert"

    @classmethod
    def parse(cls, text: str) -> Curve:
        """Parse the name of an order, ignoring case."""
        for one in cls:
            if one.value == text.lower():
                return one
        known = ", ".join(one.value for one in cls)
        raise InvalidInputError(f"there is no order {text!r}", hint=f"there are {known}")


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column or struct field to sort by."""

    path: tuple[Field, ...]
    descending: bool = False  # Then nulls come last, as in Spark.

    @property
    def names(self) -> tuple[str, ...]:
        """The names on the path of the field."""
        return tuple(part.name for part in self.path)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of rows; picklable."""

    columns: tuple[SortColumn, ...]
    curve: Curve = Curve.LINEAR
    # For a curve, the ascending lower bounds of cells of each column.
    cells: tuple[pa.Array, ...] = ()
    # Rows that differ in this many leading columns are in different files.
    num_split: int = 0

    @classmethod
    def of(
        cls, schema: LanceSchema, names: Sequence[str], curve: Curve = Curve.LINEAR,
        descending: Sequence[bool] = (),
    ) -> RowOrder:  # fmt: skip
        """Build an order by columns of a table.

        ``names``: a struct field is ``struct.field``. ``descending``: for each name; empty for all
        ascending. Raises InvalidInputError: no such column, none at all, or one twice. Raises
        UnsupportedFeatureError: values of a column have no order.
        """
        if not names:
            raise InvalidInputError("rows are to be sorted by no column", hint="name one or more")
        paths = [named_path(schema, name) for name in names]
        for name, path in zip(names, paths, strict=True):
            _check_has_order(path[-1], name)
        if len({path[-1].id for path in paths}) < len(paths):
            raise InvalidInputError(f"a column is named twice in {', '.join(names)}")
        if len(paths) == 1:
            curve = Curve.LINEAR
        if curve is not Curve.LINEAR and len(paths) > _MAX_ON_A_CURVE:
            raise InvalidInputError(
                f"{len(paths)} columns are too many for the order {curve.value!r}",
                hint=f"name at most {_MAX_ON_A_CURVE}, or use the order 'linear'",
            )
        flags = descending or [False] * len(paths)
        return cls(tuple(map(SortColumn, paths, flags)), curve)

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Field ids of the columns, in order."""
        return tuple(column.path[-1].id for column in self.columns)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The distinct top-level columns of the order."""
        return tuple({column.path[0].id: column.path[0] for column in self.columns}.values())

    def with_file_split(self, names: Sequence[str]) -> RowOrder:
        """Return this order with separate files for each value of its leading columns.

        Raises InvalidInputError: these are not its leading columns, or the order is not linear.
        """
        own = [".".join(column.names) for column in self.columns]
        if not names or self.curve is not Curve.LINEAR or list(names) != own[: len(names)]:
            raise InvalidInputError(
                f"files cannot be split by {', '.join(names) or 'no column'}, where rows are "
                f"sorted by {', '.join(own)} in the order {self.curve.value!r}",
                hint="name the first of the columns that rows are sorted by, in the order 'linear'",
            )
        return replace(self, num_split=len(names))

    def by_file(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        """Yield sorted rows, with None between those of different files."""
        last: list[pa.Array] = []
        for batch in batches:
            if not self.num_split or not batch.num_rows:
                yield batch
                continue
            keys = self.values(batch)[: self.num_split]
            changes = np.zeros(batch.num_rows, bool)
            for key, before in zip(keys, last or [key[:1] for key in keys], strict=True):
                for numbers in comparable(pa.concat_arrays([before, key])):
                    changes |= numbers[1:] != numbers[:-1]
            last = [key[-1:] for key in keys]
            cuts = [0, *np.flatnonzero(changes).tolist(), batch.num_rows]
            for number, (start, end) in enumerate(pairwise(cuts)):
                if number:
                    yield None
                yield batch.slice(start, end - start)

    def learn_cells(self, values: Sequence[pa.Array]) -> RowOrder:
        """Return this order with cells from a sample; ``values``: of each column."""
        if self.curve is Curve.LINEAR:
            return self
        return replace(self, cells=tuple(map(_cells, values)))

    def values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the values of each order column of a batch of the table."""
        return [_plain(values_at(batch, column.names)) for column in self.columns]

    def keys(self, values: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
        """Return the sort keys: the values, or the position on the curve."""
        if self.curve is Curve.LINEAR:
            return tuple(values)
        bits = min(_MAX_BITS, 64 // len(values))
        grid = [_cell_of(one, cells, bits) for one, cells in zip(values, self.cells, strict=True)]
        key = hilbert_key if self.curve is Curve.HILBERT else zorder_key
        return (plain_array(key(grid, bits)),)

    def places(
        self, keys: Sequence[pa.Array], ties: NDArray[np.uint64] | None = None
    ) -> NDArray[np.int64]:
        """Return the permutation that sorts the rows; shape (n,).

        ``keys``: of ``keys()``. ``ties``: tie breaker, shape (n,); None for a stable sort.
        """
        parts: list[NDArray[np.generic]] = []
        descends = [column.descending for column in self.columns]
        for key, reverse in zip(keys, descends, strict=False):
            numbers = comparable(key)
            parts += [~part for part in numbers] if reverse else numbers
        if ties is not None:
            parts.append(ties)
        if len(parts) == 1:
            return np.argsort(parts[0], kind="stable")
        return np.lexsort(parts[::-1])


def _check_has_order(field: Field, name: str) -> None:
    data_type = field.to_arrow().type
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if field.children or field.is_blob or is_json_text(field) or not has_order(data_type):
        raise UnsupportedFeatureError(
            f"rows cannot be sorted by the column {name!r} of type {type_name(data_type)}",
            hint="columns of numbers, decimals, text, bytes, days and times have an order",
        )


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _cells(sample: pa.Array) -> pa.Array:
    """Return the values that split a sample into cells of about equally many rows."""
    present = sample.drop_null()
    order = sort_order(present)
    count = min(_MAX_CELLS, len(order))
    chosen = order[np.arange(count) * len(order) // max(count, 1)]
    return present.take(plain_array(chosen)).unique()


def _cell_of(values: pa.Array, cells: pa.Array, bits: int) -> NDArray[np.uint64]:
    """Return the cell of each value, scaled to ``bits`` bits; nulls have the first one."""
    *present, numbers = comparable(pa.concat_arrays([values, cells]))
    own, begins = numbers[: len(values)], numbers[len(values) :]
    # Values below the first cell do not share the number of nulls.
    cell = begins.searchsorted(own, side="right").astype(np.uint64) + np.uint64(1)
    if present:
        cell[~present[0][: len(values)]] = 0
    return (cell << np.uint64(bits)) // np.uint64(len(cells) + 2)


def zorder_key(cells: Sequence[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """Return positions on the z-order curve by interleaving bits; shape (n,).

    ``cells``: of each column, shape (n,), below ``2 ** bits``; the first column comes first.
    """
    key = np.zeros(len(cells[0]), np.uint64)
    for bit in reversed(range(bits)):
        for cell in cells:
            key <<= np.uint64(1)
            key |= (cell >> np.uint64(bit)) & np.uint64(1)
    return key


def hilbert_key(cells: Sequence[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """Return positions on the Hilbert curve, which is continuous; shape (n,).

    J. Skilling, Programming the Hilbert curve, 2004, vectorized.

    ``cells``: of each column, shape (n,), below ``2 ** bits``.
    """
    axes = [cell.copy() for cell in cells]
    nothing = np.uint64(0)
    for bit in reversed(range(1, bits)):
        mask, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for axis in axes:
            is_set = (axis & mask) != 0
            swapped = np.where(is_set, nothing, (axes[0] ^ axis) & below)
            axes[0] ^= np.where(is_set, below, swapped)
            axis ^= swapped
    for before, axis in pairwise(axes):
        axis ^= before
    turned = np.zeros_like(axes[0])
    for bit in reversed(range(1, bits)):
        is_set = (axes[-1] & np.uint64(1 << bit)) != 0
        turned ^= np.where(is_set, np.uint64((1 << bit) - 1), nothing)
    return zorder_key([axis ^ turned for axis in axes], bits)
