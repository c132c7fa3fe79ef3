"""Plain Arrow types that represent Lance values outside of the format.

Lance stores types that a SQL engine does not have: unsigned integers, half floats, fixed-size
lists, dictionaries, timestamps of four units.  Each maps to one plain type that can represent all
its values; a value that does not fit (nanoseconds that are no whole microseconds) is an error and
never rounded.  Pure, no I/O.
"""

from __future__ import annotations

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError

_PLAIN = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_SAME = {
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(),
    pa.float64(), pa.string(), pa.binary(), pa.date32(),
}  # fmt: skip
_MAX_DECIMAL128 = 38


def plain_type(stored: pa.DataType, name: str, *, time_as_integer: bool = False) -> pa.DataType:
    """Return the plain type of a stored type.

    ``time_as_integer``: return times of day as int64 nanoseconds, for engines without such a type.
    """
    if stored in _SAME:
        return stored
    if stored in _PLAIN:
        return _PLAIN[stored]
    types = pa.types
    if types.is_timestamp(stored):
        return pa.timestamp("us", tz=None if stored.tz is None else "UTC")
    if types.is_time(stored):
        return pa.int64() if time_as_integer else pa.time64("ns")
    if types.is_duration(stored):
        return pa.duration("us")
    if types.is_fixed_size_binary(stored):
        return pa.binary()
    if types.is_decimal(stored):
        return _plain_decimal(stored, name)
    if types.is_dictionary(stored):
        return plain_type(stored.value_type, name, time_as_integer=time_as_integer)
    return _plain_nested(stored, name, time_as_integer=time_as_integer)


def _plain_decimal(stored: pa.DataType, name: str) -> pa.DataType:
    if stored.precision > _MAX_DECIMAL128 or stored.scale < 0:
        raise UnsupportedFeatureError(
            f"the column {name!r} is {stored}; Spark's decimals have at most "
            f"{_MAX_DECIMAL128} digits and no negative scale",
            hint="leave the column out with the option columns",
        )
    return pa.decimal128(stored.precision, stored.scale)


def _plain_nested(stored: pa.DataType, name: str, *, time_as_integer: bool) -> pa.DataType:
    def plain_field(child: pa.Field) -> pa.Field:
        inner = plain_type(child.type, f"{name}.{child.name}", time_as_integer=time_as_integer)
        return pa.field(child.name, inner, nullable=True)

    types = pa.types
    if types.is_list(stored) or types.is_large_list(stored) or types.is_fixed_size_list(stored):
        item = plain_type(stored.value_type, f"{name}.item", time_as_integer=time_as_integer)
        return pa.list_(pa.field("element", item))
    if types.is_struct(stored):
        return pa.struct([plain_field(stored.field(i)) for i in range(stored.num_fields)])
    if types.is_map(stored):
        key = plain_type(stored.key_type, f"{name}.key", time_as_integer=time_as_integer)
        return pa.map_(key, plain_field(stored.item_field))
    raise UnsupportedFeatureError(
        f"the column {name!r} is {stored}, for which Spark has no type",
        hint="leave the column out with the option columns",
    )


def to_plain(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    """Convert ``array``, as Lance stores it, to its plain type ``target``."""
    if array.type == target:
        return array
    try:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_time(array.type) and pa.types.is_integer(target):
            array = array.cast(pa.time64("ns"))
        if array.type == pa.uint64() and target == pa.int64() and _fits_int64(array):
            return array.view(target)  # lineage columns: a cast would copy them
        return array.cast(target)
    except pa.ArrowInvalid as error:
        if array.type.num_fields:  # the value may be outside of a slice, or below a null
            return _to_plain_nested(array, target, name)
        raise InvalidInputError(
            f"a value of column {name!r} ({array.type}) does not fit {target}: {error}",
            hint="leave the column out with the option columns, or rewrite the value",
        ) from error
    except pa.ArrowNotImplementedError:
        return _to_plain_nested(array, target, name)


def _fits_int64(array: pa.Array) -> bool:
    import pyarrow.compute as pc  # not needed for types only

    largest = pc.max(array).as_py()
    return largest is None or largest < 1 << 63


def _members(array: pa.StructArray, target: pa.StructType) -> list[pa.Array]:
    """Return the members of ``target``, by name or else by position; null where the struct is."""
    parts = array.flatten()
    places = [array.type.get_field_index(member.name) for member in target]
    return [parts[at if place < 0 else place] for at, place in enumerate(places)]


def _to_plain_nested(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    """Convert level by level if Arrow has no cast for the whole type."""
    types = pa.types
    validity = array.is_valid().buffers()[1] if array.null_count else None
    if types.is_struct(target):
        children = [
            to_plain(part, member.type, f"{name}.{member.name}")
            for part, member in zip(_members(array, target), target, strict=True)
        ]
        mask = array.is_null() if array.null_count else None
        fields = [target.field(i) for i in range(target.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if types.is_list(target):
        lists = array.cast(pa.list_(array.type.value_type))
        first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
        items = to_plain(lists.values.slice(first, last - first), target.value_type, name)
        offsets = rebase_offsets(lists.offsets, first)
        return pa.Array.from_buffers(
            target, len(array), [validity, offsets], null_count=array.null_count, children=[items]
        )
    if types.is_map(target):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        keys = to_plain(array.keys.slice(first, last - first), target.key_type, name)
        values = to_plain(array.items.slice(first, last - first), target.item_type, name)
        entries = pa.StructArray.from_arrays(
            [keys, values], fields=[target.key_field, target.item_field]
        )
        offsets = rebase_offsets(array.offsets, first)
        return pa.Array.from_buffers(
            target, len(array), [validity, offsets], null_count=array.null_count, children=[entries]
        )
    raise UnsupportedFeatureError(f"the column {name!r} ({array.type}) cannot be shown as {target}")


def rebase_offsets(offsets: pa.Array, first: int) -> pa.Buffer:
    """Return offsets that start at 0, with unchanged width: Arrow would widen them to 64 bits."""
    import pyarrow.compute as pc

    return pc.subtract(offsets, pa.scalar(first, offsets.type)).buffers()[1]
