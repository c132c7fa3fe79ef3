"""Parts of a column in several files, joined: nulls and items stay with their rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.rows.column_parts import join_parts, prune_field

NULLS = pa.array([False, True, False, True, False])


def lists_of(kind, items):
    """One item in each of five lists, of which two are null."""
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=NULLS)
    of = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    offsets = pa.array(range(6), pa.int64() if of is pa.LargeListArray else pa.int32())
    return of.from_arrays(offsets, items, type=kind, mask=NULLS)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda item: pa.list_(item, 1)])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_parts_of_sliced_lists_stay_with_their_rows(kind, first):
    pair = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.int32())])
    (field,) = LanceSchema.from_arrow(pa.schema([pa.field("x", kind(pair))])).fields
    parts = []
    for factor, member in enumerate(field.children[0].children, start=1):
        part = prune_field(field, {member.id})
        numbers = pa.array([n * factor for n in range(5)], pa.int32())
        items = pa.StructArray.from_arrays([numbers], fields=[pa.field(member.name, pa.int32())])
        parts.append((part, lists_of(part.to_arrow().type, items).slice(first)))
    joined = join_parts(field, parts, 5 - first, frozenset())
    joined.validate(full=True)
    rows = [[{"a": n, "b": 2 * n}] if n % 2 == 0 else None for n in range(5)]
    assert joined.to_pylist() == rows[first:]
