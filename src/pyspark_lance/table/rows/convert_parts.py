"""Convert selected nested parts of a column and keep the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from pyspark_lance.format.field import Field

Wanted = Callable[[Field], bool]
Convert = Callable[[pa.Array, str], pa.Array]


def holds_part(field: Field, wanted: Wanted) -> bool:
    """Return whether the field or one of its children is wanted."""
    return any(wanted(part) for part in field.walk())


def convert_parts(array: pa.Array, field: Field, wanted: Wanted, convert: Convert) -> pa.Array:
    """Convert the wanted parts of ``array`` to values of any type.

    ``array``: its struct fields are matched by name, and some may be missing.
    """
    return _converted(array, field, field.name, wanted, convert)


def _converted(
    array: pa.Array, field: Field, path: str, wanted: Wanted, convert: Convert
) -> pa.Array:
    if wanted(field):
        return convert(array, path)
    if not holds_part(field, wanted) or pa.types.is_null(array.type):
        return array
    if pa.types.is_struct(array.type):
        return _converted_struct(array, field, path, wanted, convert)
    item = field.children[0]
    inner = f"{path}.{item.name}"
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        entries = _converted(entries, item, inner, wanted, convert)
        data_type = pa.map_(entries.type.field(0).type, entries.type.field(1).type)
        return _with_children(array, data_type, [entries])
    items = _converted(array.values, item, inner, wanted, convert)
    child = pa.field(array.type.value_field.name, items.type)
    if pa.types.is_fixed_size_list(array.type):
        return _with_children(array, pa.list_(child, array.type.list_size), [items])
    make = pa.large_list if pa.types.is_large_list(array.type) else pa.list_
    return _with_children(array, make(child), [items])


def _converted_struct(
    array: pa.Array, field: Field, path: str, wanted: Wanted, convert: Convert
) -> pa.Array:
    parts = {child.name: child for child in field.children}
    children = []
    for index in range(array.type.num_fields):
        part, values = parts.get(array.type.field(index).name), array.field(index)
        if part is not None:
            values = _converted(values, part, f"{path}.{part.name}", wanted, convert)
        children.append(values)
    members = [
        pa.field(member.name, child.type, member.nullable)
        for member, child in zip(array.type, children, strict=True)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=members, mask=mask)


def _with_children(
    array: pa.Array, data_type: pa.DataType, children: Sequence[pa.Array]
) -> pa.Array:
    """Return the same lists with other items."""
    count = 1 if pa.types.is_fixed_size_list(data_type) else 2
    return pa.Array.from_buffers(
        data_type,
        len(array),
        array.buffers()[:count],
        null_count=array.null_count,
        offset=array.offset,
        children=list(children),
    )
