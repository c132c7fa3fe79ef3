"""Makes the zones of some rows of a table: what an executor does to build zone maps.

Rows are streamed; of each zone only bounds and counts are kept, of nulls their offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.field import Field
from pyspark_lance.plain_values import (
    numbers_with_default,
    plain_array,
    plain_dtype,
    plain_numbers,
    plain_scalar,
)
from pyspark_lance.predicate.types import type_name
from pyspark_lance.table.index.zone_map_file import ZoneMap
from pyspark_lance.table.index_build.zone_boundaries import ZoneCutter, note_nulls
from pyspark_lance.table.scan.column_paths import values_at
from pyspark_lance.table.scan.scan_task import ScanTask, run

_OFFSETS: Final = np.uint64(2**32 - 1)


@dataclass(frozen=True, slots=True)
class ZonedColumn:
    """A column that gets a zone map.

    ``path``: its name, and those of the fields below it that lead to the value.
    """

    path: tuple[str, ...]
    field: Field
    rows_per_zone: int


@dataclass(frozen=True, slots=True)
class ZoneMapTask:
    """Rows to look at; picklable.

    ``scan``: reads the columns and the addresses of live rows.
    """

    scan: ScanTask
    columns: tuple[ZonedColumn, ...]


@dataclass(frozen=True, slots=True)
class BuiltZones:
    """The zones of a column in the rows of a task."""

    rows: pa.RecordBatch  # As in the file of an index; picklable.
    nulls: dict[int, bytes]  # Fragment -> bitmap of its nulls, as bytes.


def build_zones(task: ZoneMapTask) -> tuple[BuiltZones, ...]:
    """The zones of each column, in the order of the task's columns."""
    builders = [_ZoneBuilder(column) for column in task.columns]
    for batch in run(task.scan):
        addresses = plain_numbers(batch.column(ROW_ADDRESS))
        for builder in builders:
            builder.add(addresses, values_at(batch, builder.column.path))
    return tuple(builder.done() for builder in builders)


def check_can_have_zones(field: Field, name: str) -> None:
    """Refuses a column whose values have no order."""
    data_type = field.to_arrow().type
    try:
        if not field.children and not field.is_blob and field.logical_type != "json":
            pc.min_max(_comparable(pa.nulls(0, data_type)))
            return
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        pass
    raise UnsupportedFeatureError(
        f"the column {name!r} of type {type_name(data_type)} cannot have a zone map",
        hint="columns of numbers, decimals, text, bytes, days and times can",
    )


def _comparable(values: pa.Array) -> pa.Array:
    """The values in a type of the same order that Arrow has bounds of."""
    if pa.types.is_temporal(values.type):
        return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


@dataclass(slots=True)
class _Pieces:
    """Parts of zones in the order of rows; a zone may have several."""

    zone: list[NDArray[np.int64]] = field(default_factory=list)
    first: list[NDArray[np.uint64]] = field(default_factory=list)
    last: list[NDArray[np.uint64]] = field(default_factory=list)
    null_count: list[NDArray[np.int64]] = field(default_factory=list)
    nan_count: list[NDArray[np.int64]] = field(default_factory=list)
    ends: list[pa.StructArray] = field(default_factory=list)


class _ZoneBuilder:
    """Collects the zones of one column."""

    def __init__(self, column: ZonedColumn) -> None:
        self.column = column
        self._type = column.field.to_arrow().type
        self._pieces = _Pieces()
        self._nulls: dict[int, BitMap] = {}
        self._cutter = ZoneCutter(column.rows_per_zone)

    def add(self, addresses: NDArray[np.uint64], values: pa.Array) -> None:
        """Goes on with rows behind those before."""
        if not len(addresses):
            return
        cuts, zones = self._cutter.cut(addresses)
        values = _comparable(values)
        is_null = plain_numbers(values.is_null())
        is_nan = np.zeros(len(values), np.bool_)
        if pa.types.is_floating(values.type):
            is_nan = numbers_with_default(False, pc.is_nan(values))
        pieces = self._pieces
        pieces.zone.append(zones)
        stops = np.append(cuts[1:], len(addresses))
        pieces.first.append(addresses[cuts])
        pieces.last.append(addresses[stops - 1])
        pieces.null_count.append(np.add.reduceat(is_null, cuts, dtype=np.int64))
        pieces.nan_count.append(np.add.reduceat(is_nan, cuts, dtype=np.int64))
        if is_nan.any():
            values = pc.if_else(plain_array(is_nan), plain_scalar(None, values.type), values)
        pieces.ends.append(_ends(values, cuts))
        note_nulls(self._nulls, addresses[is_null])

    def done(self) -> BuiltZones:
        """All zones."""
        nulls = {fragment: bitmap.serialize() for fragment, bitmap in self._nulls.items()}
        pieces = self._pieces
        if not pieces.zone:
            return BuiltZones(ZoneMap.empty(self._type).to_batch(), nulls)
        zone = np.concatenate(pieces.zone)
        cuts = np.flatnonzero(np.diff(zone, prepend=-1))
        stops = np.append(cuts[1:], len(zone))
        first = np.concatenate(pieces.first)[cuts]
        last = np.concatenate(pieces.last)[stops - 1]
        nan_count = np.add.reduceat(np.concatenate(pieces.nan_count), cuts).astype(np.uint32)
        minimum, maximum = self._bounds(cuts, nan_count)
        zones = ZoneMap(
            minimum,
            maximum,
            np.add.reduceat(np.concatenate(pieces.null_count), cuts).astype(np.uint32),
            nan_count,
            first >> np.uint64(32),
            first & _OFFSETS,
            last - first + np.uint64(1),
        )
        return BuiltZones(zones.to_batch(), nulls)

    def _bounds(
        self, cuts: NDArray[np.int64], nan_count: NDArray[np.uint32]
    ) -> tuple[pa.Array, pa.Array]:
        """Of each zone, from those of its pieces."""
        ends = pa.concat_arrays(self._pieces.ends)
        minimum, maximum = ends.field("min"), ends.field("max")
        if len(cuts) < len(ends):
            minimum = _ends(minimum, cuts).field("min")
            maximum = _ends(maximum, cuts).field("max")
        if pa.types.is_floating(minimum.type):
            minimum, maximum = _of_floats(minimum, maximum, nan_count)
        if pa.types.is_temporal(self._type):
            return minimum.view(self._type), maximum.view(self._type)
        return minimum.cast(self._type), maximum.cast(self._type)


def _ends(values: pa.Array, cuts: NDArray[np.int64]) -> pa.StructArray:
    """The fields min and max of the values from each cut to the next, null where all are."""
    stops = [*cuts[1:].tolist(), len(values)]
    # Arrow's group_by would find all at once, but imports pandas.
    return pa.concat_arrays(
        [
            pa.repeat(pc.min_max(values.slice(start, stop - start)), 1)
            for start, stop in zip(cuts.tolist(), stops, strict=True)
        ]
    )


def _of_floats(
    minimum: pa.Array, maximum: pa.Array, nan_count: NDArray[np.uint32]
) -> tuple[pa.Array, pa.Array]:
    """Bounds by the total order, in which -0.0 is less than 0.0 and NaN the greatest."""

    def number(value: float) -> pa.Scalar:
        return plain_array(np.array([value], plain_dtype(minimum.type)))[0]

    def with_zero(values: pa.Array, zero: float) -> pa.Array:
        is_zero = pc.equal(values, number(0.0))
        return pc.if_else(plain_array(numbers_with_default(False, is_zero)), number(zero), values)

    minimum, maximum = with_zero(minimum, -0.0), with_zero(maximum, 0.0)
    return minimum, pc.if_else(plain_array(nan_count > 0), number(np.nan), maximum)
