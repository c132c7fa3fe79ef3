"""Whether tables have the same rows, to the letter of their text."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

Column = pa.Array | pa.ChunkedArray
Rows = pa.Table | pa.RecordBatch


def assert_same_text(found: Rows, expected: Rows) -> None:
    """The same rows in the same order, in columns of the same names."""
    names = expected.schema.names
    assert found.schema.names == names
    assert len(found) == len(expected), expected.schema.types
    for name, left, right in zip(names, found.columns, expected.columns, strict=True):
        assert has_same_text(left, right), (name, right.type, _first_difference(left, right))


def rows_at(table: pa.Table, rows: list[int]) -> pa.Table:
    """A few rows: Arrow's ``take`` finds others in slices of vectors of vectors."""
    return pa.concat_tables([table[:0], *(table.slice(row, 1) for row in rows)])


def has_same_text(found: Column, expected: Column) -> bool:
    """Whether the text of all values is the same: NaN is NaN there, 0.0 not -0.0, and 1 not True.

    It takes long to write.  Columns of one type and the same bits have the same text; all others
    are compared by theirs.
    """
    return have_same_bits(found, expected) or _texts(found) == _texts(expected)


def have_same_bits(found: Column, expected: Column) -> bool:
    """Whether types are the same and values to the last bit, as far as Arrow compares them."""
    kind = _bits_of(expected.type)
    return (
        kind is not None
        and found.type == expected.type
        and _viewed(found, kind).equals(_viewed(expected, kind))
    )


def _texts(column: Column) -> list[str]:
    return [repr(value) for value in column.to_pylist()]


def _first_difference(left: Column, right: Column) -> tuple[int, str, str]:
    pairs = zip(_texts(left), _texts(right), strict=True)
    return next((row, *pair) for row, pair in enumerate(pairs) if pair[0] != pair[1])


def _viewed(column: Column, kind: pa.DataType) -> pa.ChunkedArray:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([chunk.view(kind) for chunk in chunks], kind)


def _bits_of(kind: pa.DataType) -> pa.DataType | None:
    """The type with integers for floats, of which Arrow compares values; None where it cannot."""
    types = pa.types
    if types.is_floating(kind):
        return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    if types.is_struct(kind):
        return _nested(list(kind), lambda *members: pa.struct(members))
    if types.is_map(kind) and _bits_of(kind.key_type) == kind.key_type:
        return _nested([kind.item_field], lambda item: pa.map_(kind.key_field, item))
    if types.is_fixed_size_list(kind):
        return _nested([kind.value_field], lambda item: pa.list_(item, kind.list_size))
    if types.is_list(kind):
        return _nested([kind.value_field], pa.list_)
    if types.is_large_list(kind):
        return _nested([kind.value_field], pa.large_list)
    if types.is_dictionary(kind):
        return kind if _bits_of(kind.value_type) == kind.value_type else None
    return None if kind.num_fields or isinstance(kind, pa.BaseExtensionType) else kind


def _nested(fields: list[pa.Field], make: Callable[..., pa.DataType]) -> pa.DataType | None:
    inner = [_bits_of(field.type) for field in fields]
    if None in inner:
        return None
    # Where a struct is null, its members may be, too, even if their fields are required.
    pairs = zip(fields, inner, strict=True)
    return make(*(field.with_type(kind).with_nullable(True) for field, kind in pairs))
