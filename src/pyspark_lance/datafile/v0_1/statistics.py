"""Statistics of the pages of a 0.1 file: smallest and largest value of every batch.

They are stored as a small 0.1 file within the file: a struct for each leaf field, named by the
field's id, with one row per batch.

Source: docs/format/file-format.md, section 10.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.v2_0.variable_width import is_variable_type
from pyspark_lance.datafile.v0_1.field_reader import Part, make_legacy_node
from pyspark_lance.datafile.v0_1.metadata import LegacyFile
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_type import informative_encoding
from pyspark_lance.format.schema import LanceSchema

NULL_COUNT: Final = "null_count"
MIN_VALUE: Final = "min_value"
MAX_VALUE: Final = "max_value"

_ONE_BATCH: Final = 1


@dataclass(frozen=True, slots=True)
class PageStatistics:
    """Statistics of one field's values in each batch."""

    # First row of each batch, and the number of rows after the last one.
    row_starts: NDArray[np.int64]
    minimum: pa.Array  # A lower bound of the batch's values; null if there is none.
    # An upper bound; null if there is none. NaN is not counted, so floats have none.
    maximum: pa.Array
    # Nulls of the data as they were written; what reads back instead (null, zero, anything) is not
    # within the bounds.
    null_count: NDArray[np.int64]


def read_statistics(file: LegacyFile, field_ids: Iterable[int]) -> dict[int, PageStatistics]:
    """Field id -> statistics, for those of the fields that have any."""
    message = file.metadata.statistics
    if message is None or not len(message.fields):
        return {}
    pages = file.metadata.read_page_table(
        message.page_table_position, 0, max(message.fields), _ONE_BATCH
    )
    rows = [Part(0, 0, file.metadata.num_batches)] if file.metadata.num_batches else []
    wanted = {str(field_id) for field_id in field_ids}
    statistics = {}
    for entry in LanceSchema.from_protos(list(message.schema)).fields:
        members = {child.name: child for child in entry.children}
        if entry.name not in wanted or not members.keys() >= {NULL_COUNT, MIN_VALUE, MAX_VALUE}:
            continue

        def read(member: Field) -> pa.Array:
            return make_legacy_node(file, pages, member).read(rows)

        statistics[int(entry.name)] = PageStatistics(
            file.metadata.batch_starts,
            read(members[MIN_VALUE]),
            read(members[MAX_VALUE]),
            np.asarray(read(members[NULL_COUNT])).astype(np.int64),
        )
    return statistics


_PREFIX_BYTES: Final = 64
_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
# An id per struct and per member.
_IDS_PER_FIELD: Final = 4


@dataclass(slots=True)
class _Bounds:
    """Bounds of one field so far, an entry per group."""

    of: Field
    type: pa.DataType
    null_counts: list[int] = field(default_factory=list)
    minima: list[Any] = field(default_factory=list)
    maxima: list[Any] = field(default_factory=list)


class StatisticsCollector:
    """Statistics of columns, and of fields of structs, of types whose values have an order."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._bounds = {
            part.id: _Bounds(part, part.to_arrow().type)
            for top in fields
            for part in _outside_of_lists(top)
            if part.logical_type != "json" and _has_statistics(part.to_arrow().type)
        }

    def add(self, of: Field, array: pa.Array) -> None:
        """Add the values of a top-level field in the next group."""
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if of.is_struct:
            for index, child in enumerate(of.children):
                self.add(child, array.field(index))
            return
        bounds = self._bounds.get(of.id)
        if bounds is not None:
            minimum, maximum = _extremes(array)
            bounds.null_counts.append(array.null_count)
            bounds.minima.append(minimum)
            bounds.maxima.append(maximum)

    def finish(self) -> tuple[list[Field], list[pa.Array]]:
        """Fields and columns of the small file that holds the statistics; a row per group."""
        fields, columns = [], []
        for number, bounds in enumerate(self._bounds.values()):
            first_id = number * _IDS_PER_FIELD
            members = [
                _member(first_id + 1, NULL_COUNT, "int64", nullable=False),
                _member(first_id + 2, MIN_VALUE, bounds.of.logical_type, nullable=True),
                _member(first_id + 3, MAX_VALUE, bounds.of.logical_type, nullable=True),
            ]
            fields.append(
                Field(
                    first_id, str(bounds.of.id), "struct", nullable=False, children=tuple(members)
                )
            )
            arrays = [
                pa.array(bounds.null_counts, pa.int64()),
                pa.array(bounds.minima, bounds.type),
                pa.array(bounds.maxima, bounds.type),
            ]
            columns.append(pa.StructArray.from_arrays(arrays, [m.name for m in members]))
        return fields, columns


def _member(field_id: int, name: str, logical_type: str, *, nullable: bool) -> Field:
    encoding = informative_encoding(logical_type)
    return Field(field_id, name, logical_type, nullable=nullable, encoding=encoding)


def _outside_of_lists(top: Field) -> Iterator[Field]:
    if top.is_struct:
        for child in top.children:
            yield from _outside_of_lists(child)
    elif not top.children:
        yield top


def _has_statistics(data_type: pa.DataType) -> bool:
    types = pa.types
    if types.is_floating(data_type):
        return not types.is_float16(data_type)
    return bool(
        types.is_integer(data_type)
        or types.is_boolean(data_type)
        or types.is_decimal(data_type)
        or types.is_date(data_type)
        or is_variable_type(data_type)
    )


def _extremes(array: pa.Array) -> tuple[Any, Any]:
    """Bounds of the values; wide ones if there is no value to bound."""
    data_type = array.type
    if pa.types.is_floating(data_type):
        return _float_extremes(array)
    ends = pc.min_max(array)
    minimum, maximum = ends["min"], ends["max"]
    if is_variable_type(data_type):
        is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
        low, high = minimum.as_py(), maximum.as_py()
        if low is None:
            return None, None
        return (
            (text_prefix(low), text_above(high)) if is_text else (low[:_PREFIX_BYTES], above(high))
        )
    # Nulls are refused for all other types, and no group is empty. Scalars, since Python's dates
    # end with the year 9999.
    return minimum, maximum


def _float_extremes(array: pa.Array) -> tuple[float, float]:
    """NaN does not count; a zero bound covers both zeros."""
    numbers = array.to_numpy(zero_copy_only=False)
    numbers = numbers[~np.isnan(numbers)]
    if not len(numbers):
        return -math.inf, math.inf
    low, high = float(numbers.min()), float(numbers.max())
    return (-0.0 if low == 0 else low), (0.0 if high == 0 else high)


def text_prefix(text: str) -> str:
    """Return at most 64 bytes of whole characters; a lower bound of the text."""
    return text.encode()[:_PREFIX_BYTES].decode(errors="ignore")


def text_above(text: str) -> str | None:
    """The text, or at most 64 bytes that are above it; None if there are none."""
    prefix = text_prefix(text)
    if prefix == text:
        return text
    for end in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[end]) + 1
        code = _SURROGATES.stop if code in _SURROGATES else code
        if code <= _LAST_CHARACTER:
            return prefix[:end] + chr(code)
    return None


def above(value: bytes) -> bytes | None:
    """The value, or at most 64 bytes that are above it; None if there are none."""
    if len(value) <= _PREFIX_BYTES:
        return value
    prefix = value[:_PREFIX_BYTES].rstrip(b"\xff")
    return prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix else None
