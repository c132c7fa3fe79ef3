"""Index-only aggregates of a column: first values and value counts.

Index entries may refer to rows that were removed or updated since. So results are verified: first
values are read again from the table, and counts must add up to the number of rows. What cannot be
verified, or is too costly, needs a scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import LanceError
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.field import Field
from pyspark_lance.format.row_address import fragment_ids, group_by_fragment, numbers_of, offsets
from pyspark_lance.plain_values import numbers_with_default, plain_array, plain_numbers
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.single_column import matching_values
from pyspark_lance.predicate.tree import Column, IsNaN, can_raise, column_paths_of
from pyspark_lance.predicate.types import spark_type_of
from pyspark_lance.table.index.bitmap import BitmapIndex, read_row_sets
from pyspark_lance.table.index.btree import BTree
from pyspark_lance.table.index.index_file import ColumnQuery
from pyspark_lance.table.index.lookups import LockedSegment, lock_segments
from pyspark_lance.table.index.segments import BITMAP, BTREE, field_at, to_predicate_type
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_statistics import is_exact
from pyspark_lance.table.version.snapshot import Snapshot

MAX_FIRST_VALUES: Final = 1_000
"""Verifying more rows is slower than a scan."""
_MAX_PAGES: Final = 64
# Maximum fraction of all pages that is read to count rows.
_WORTHWHILE_SHARE: Final = 8
_MAX_VALUES: Final = 10_000
# Rows that are identified by row ids are looked up individually.
_MAX_LOCATED: Final = 4 << 20


def first_values(
    snapshot: Snapshot, name: str, rows: int, *, descending: bool, of_all: bool = False
) -> pa.Array | None:
    """Return the first ``rows`` values of a top-level column, without nulls and NaN.

    ``of_all``: whether uncovered rows must be included. The values are in order and in the type of
    predicates; None if B-trees cannot provide that many.
    """
    field, _ = field_at(snapshot.schema.fields, (name,))
    if field is None or not 0 < rows <= MAX_FIRST_VALUES:
        return None
    try:
        with lock_segments(snapshot, field, BTREE) as segments:
            if not segments or (of_all and not _cover_all(snapshot, segments)):
                return None
            parts = [_first_of(snapshot, one, field, rows, descending) for one in segments]
    except (LanceError, FileNotFoundError):
        return None  # A scan reports the corruption.
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    every = pa.concat_arrays([values for values, _ in found])
    where = np.concatenate([addresses for _, addresses in found])
    order = pc.array_sort_indices(every, order="descending" if descending else "ascending")
    chosen = order[:rows]
    if len(chosen) < rows:
        return None
    first = every.take(chosen)
    return first if _have_values(snapshot, field, first, where[chosen.to_numpy()]) else None


def bounds_by_index(snapshot: Snapshot, name: str) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the minimum and maximum of a column in Spark's order; null if all values are."""
    field, _ = field_at(snapshot.schema.fields, (name,))
    kind = None if field is None else spark_type_of(field.to_arrow().type)
    if kind is None or not _has_bounds(kind):
        return None
    counts = value_counts(snapshot, name)
    if counts is not None:
        values = _sort_values(counts.values.drop_null())
        return (values[0], values[-1]) if len(values) else (pa.scalar(None, kind),) * 2
    ends = (first_values(snapshot, name, 1, descending=way, of_all=True) for way in (False, True))
    low, high = (None if end is None else end[0] for end in ends)
    if pa.types.is_floating(kind):
        num_nan = count_where(snapshot, name, IsNaN(Column((name,), kind)))
        if num_nan is None:
            return None
        if num_nan:  # NaNs are equal, and greater than any number.
            high = pa.scalar(float("nan"), kind)
    return None if low is None or high is None else (low, high)


def _has_bounds(kind: pa.DataType) -> bool:
    types = pa.types
    kinds = types.is_boolean, types.is_decimal, types.is_string, types.is_binary, types.is_floating
    return is_exact(kind) or any(is_of(kind) for is_of in kinds)


def num_values_by_index(snapshot: Snapshot, name: str) -> int | None:
    """Count non-null rows of a column; None if indices do not cover all rows."""
    counts = value_counts(snapshot, name)
    if counts is not None:
        return int(counts.counts[np.asarray(counts.values.is_valid())].sum())
    try:
        with _whole_trees(snapshot, name) as trees:
            valid = (tree.num_rows - int(tree.null_count.sum()) for tree in trees)
            return sum(valid) if trees else None
    except (LanceError, FileNotFoundError):
        return None  # As above.


def count_where(snapshot: Snapshot, name: str, predicate: Predicate) -> int | None:
    """Count matching rows of one column; None if indices cannot count all of them.

    Only B-tree pages with both matching and other rows are read.
    """
    if column_paths_of(predicate) != {(name,)} or can_raise(predicate):
        return None
    counts = value_counts(snapshot, name)
    chosen = None if counts is None else counts.where(predicate, name)
    if chosen is not None:
        return int(chosen.counts.sum())
    query = ColumnQuery((name,), predicate)
    try:
        with _whole_trees(snapshot, name) as trees:
            most = (max(_MAX_PAGES, tree.num_pages // _WORTHWHILE_SHARE) for tree in trees)
            found = [tree.count(query, pages) for tree, pages in zip(trees, most, strict=True)]
    except (LanceError, FileNotFoundError):
        return None  # As above.
    known = [count for count in found if count is not None]
    return sum(known) if known and len(known) == len(found) else None


@contextmanager
def _whole_trees(snapshot: Snapshot, name: str) -> Iterator[list[BTree]]:
    """Yield the B-trees of a column that contain exactly the rows of the table.

    A segment has all rows of the fragments that it covers. So if it has as many rows as the table,
    none of them was removed or updated since.
    """
    field, _ = field_at(snapshot.schema.fields, (name,))
    if field is None:
        yield []
        return
    with lock_segments(snapshot, field, BTREE) as segments:
        trees = [one.opened for one in segments if isinstance(one.opened, BTree)]
        num_rows = sum(tree.num_rows for tree in trees)
        is_whole = trees and num_rows == snapshot.num_rows() and _cover_all(snapshot, segments)
        yield trees if is_whole else []


def _cover_all(snapshot: Snapshot, segments: Iterable[LockedSegment]) -> bool:
    covered = BitMap.union(*(segment.covered for segment in segments))
    columns = snapshot.manifest.fragments.columns
    return covered.issuperset(BitMap(columns.ids[columns.num_rows > 0].tolist()))


def _first_of(
    snapshot: Snapshot, segment: LockedSegment, field: Field, rows: int, descending: bool
) -> tuple[pa.Array, NDArray[np.uint64]] | None:
    """Return the first values of live rows, at least ``rows`` if available, and their addresses."""
    tree = segment.opened
    if not isinstance(tree, BTree) or not segment.is_by_address:
        return None
    pages = np.flatnonzero(~tree.bounds.all_null)[:: -1 if descending else 1]
    values = [pa.array([], to_predicate_type(tree.minimum, field).type)]
    addresses = [np.empty(0, np.uint64)]
    num_found = 0
    for number, page in enumerate(pages):
        if num_found >= rows:
            break
        if number == _MAX_PAGES:
            return None
        stored, ids = tree.read_pages(np.array([page]))
        seen, names = to_predicate_type(stored, field), plain_numbers(ids)
        is_value = plain_numbers(seen.is_valid())
        if pa.types.is_floating(seen.type):
            is_value &= ~numbers_with_default(False, pc.is_nan(seen))
        is_value &= _are_live_rows(snapshot, names, segment.covered)
        values.append(seen.filter(plain_array(is_value)))
        addresses.append(names[is_value])
        num_found += int(is_value.sum())
    return pa.concat_arrays(values), np.concatenate(addresses)


def _are_live_rows(
    snapshot: Snapshot, addresses: NDArray[np.uint64], covered: BitMap
) -> NDArray[np.bool_]:
    """Return which rows are live rows of covered fragments."""
    own = {f.id: f for f in snapshot.manifest.fragments if f.id in covered}
    numbers = fragment_ids(addresses)
    there = np.zeros(len(addresses), np.bool_)
    for number in np.unique(numbers).tolist():
        if number not in own:
            continue
        inside = np.flatnonzero(numbers == number)
        deleted = snapshot.deletion_vector(own[number])
        there[inside] = (
            True if deleted is None else ~deleted.contains_each(offsets(addresses[inside]))
        )
    return there


def _have_values(
    snapshot: Snapshot, field: Field, values: pa.Array, addresses: NDArray[np.uint64]
) -> bool:
    """Return whether rows have the given values, in any order."""
    listed = ", ".join(map(str, np.unique(addresses).tolist()))
    request = ScanRequest(
        project(snapshot.schema, [field.name]),
        predicate=parse_predicate(
            f"{ROW_ADDRESS} IN ({listed})", predicate_schema(snapshot.schema)
        ),
    )
    read = [
        to_predicate_type(batch.column(0), field)
        for task in plan_scan(snapshot, request)
        for batch in task.run()
    ]
    own = pa.concat_arrays(read) if read else values.slice(0, 0)
    return bool(_sort_values(own).equals(_sort_values(values)))


def _sort_values(values: pa.Array) -> pa.Array:
    return values.take(pc.array_sort_indices(values))


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """The distinct values of a column and the number of rows of each."""

    values: pa.Array  # Distinct, including null, in the type of predicates.
    counts: NDArray[np.int64]  # Live rows of each value, shape (len(values),); never 0.

    def where(self, predicate: Predicate | None, name: str) -> ValueCounts | None:
        """Return the matching values; None if the predicate reads other columns."""
        if predicate is None:
            return self
        if column_paths_of(predicate) != {(name,)} or can_raise(predicate):
            return None
        is_true = matching_values(predicate, (name,), self.values)
        return ValueCounts(self.values.filter(plain_array(is_true)), self.counts[is_true])


def value_counts(snapshot: Snapshot, name: str) -> ValueCounts | None:
    """Count the rows of each value; None if bitmap indices do not cover all rows."""
    key = ("value counts", name)
    if key not in snapshot.memo:
        try:
            snapshot.memo[key] = _count_values(snapshot, name)
        except (LanceError, FileNotFoundError):
            snapshot.memo[key] = None  # As above.
    return snapshot.memo[key]  # type: ignore[return-value]


def _count_values(snapshot: Snapshot, name: str) -> ValueCounts | None:
    field, _ = field_at(snapshot.schema.fields, (name,))
    # Equal floats may have different bit patterns.
    if field is None or pa.types.is_floating(field.to_arrow().type):
        return None
    keys: list[pa.Array] = []
    counts: list[int] = []
    with lock_segments(snapshot, field, BITMAP) as segments:
        if not segments or not _cover_all(snapshot, segments):
            return None
        for segment in segments:
            index = segment.opened
            if not isinstance(index, BitmapIndex) or len(index.keys) > _MAX_VALUES:
                return None
            if not segment.is_by_address and snapshot.num_rows() > _MAX_LOCATED:
                return None
            sets = read_row_sets(index.file, np.arange(len(index.keys)))
            if sets is None:
                return None
            keys.append(index.keys)
            counts += _lengths(snapshot, segment, sets)
    # Each row is listed under its value; if the counts add up, no row is listed twice.
    if sum(counts) != snapshot.num_rows():
        return None
    table = pa.table({"value": pa.concat_arrays(keys), "count": plain_array(np.array(counts))})
    summed = table.group_by("value").aggregate([("count", "sum")])
    summed = summed.filter(pc.greater(summed["count_sum"], 0)).combine_chunks()
    return ValueCounts(
        summed["value"].combine_chunks(),
        plain_numbers(summed["count_sum"].combine_chunks()).astype(np.int64),
    )


def _lengths(
    snapshot: Snapshot, segment: LockedSegment, sets: Iterable[dict[int, BitMap]]
) -> Iterator[int]:
    """Yield the number of live rows of covered fragments in each set."""
    own = {f.id: f for f in snapshot.manifest.fragments if f.id in segment.covered}
    deleted = {
        number: vector.bitmap
        for number, fragment in own.items()
        if (vector := snapshot.deletion_vector(fragment)) is not None
    }
    for rows in sets:
        by_fragment = rows
        if not segment.is_by_address:
            addresses = segment.locate(numbers_of(rows, snapshot.manifest.next_row_id))
            grouped = {} if addresses is None else group_by_fragment(np.unique(addresses))
            by_fragment = {number: BitMap(inside) for number, inside in grouped.items()}
        yield sum(
            len(bitmap) - bitmap.intersection_cardinality(deleted.get(number, _NONE))
            for number, bitmap in by_fragment.items()
            if number in own
        )


_NONE: Final = BitMap()
