"""Prune pages of 0.1 files by the trustworthy part of their statistics.

The statistics describe the written values. Bounds include neither NaN nor the values stored for
nulls.

Source: docs/format/file-format.md, sections 10.3 and 10.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.v0_1.statistics import PageStatistics
from pyspark_lance.format.field import Field
from pyspark_lance.predicate.conditions import Bounds, Predicate, parts_that_can_match
from pyspark_lance.predicate.prune import ColumnPath
from pyspark_lance.predicate.tree import column_paths_of


def matching_rows(
    predicate: Predicate, fields: Sequence[Field], reader: DataFileReader, start: int, end: int
) -> NDArray[np.bool_] | None:
    """Return for each of the rows [start, end) whether its page may match; None if unknown.

    ``start``: first row; ``end``: one past the last row.
    """
    wanted = column_paths_of(predicate)
    by_path = {path: leaf for path, leaf in _leaves(fields) if path in wanted}
    statistics = reader.page_statistics([leaf.id for leaf in by_path.values()])
    bounds = {
        path: _trusted_bounds(leaf, statistics[leaf.id])
        for path, leaf in by_path.items()
        if leaf.id in statistics
    }
    if not bounds:
        return None
    row_starts = next(iter(statistics.values())).row_starts
    pages = parts_that_can_match(predicate, bounds, len(row_starts) - 1)
    if pages.all():
        return None
    return np.repeat(pages, np.diff(row_starts))[start:end]


def _leaves(fields: Sequence[Field], path: ColumnPath = ()) -> Iterator[tuple[ColumnPath, Field]]:
    """Yield columns and struct fields that are shown as stored."""
    for field in fields:
        if field.is_struct:
            yield from _leaves(field.children, (*path, field.name))
        elif not field.children and field.logical_type != "json":
            yield (*path, field.name), field


def _trusted_bounds(field: Field, known: PageStatistics) -> Bounds:
    data_type = field.to_arrow().type
    minimum, maximum = known.minimum, known.maximum
    is_text = field.logical_type in ("string", "large_string", "binary", "large_binary")
    if not (is_text and field.nullable):
        # Nulls are stored as arbitrary values.
        sound = pa.array(np.arange(len(minimum)), mask=known.null_count != 0)
        minimum, maximum = minimum.take(sound), maximum.take(sound)
    if pa.types.is_floating(data_type):
        # NaN is greater than all values, and may be present.
        maximum = pa.nulls(len(maximum), maximum.type)
    return Bounds(minimum, maximum)
