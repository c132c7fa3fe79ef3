"""Logical types, and the Arrow types that represent them outside of the format.

Lance stores types that a SQL engine does not have: unsigned integers, half floats, fixed-size
lists, dictionaries, timestamps of four units. Each maps to one plain type that can represent all
its values; a value that does not fit (nanoseconds that are no whole microseconds) is an error and
never rounded.

Conversely, Spark declares types that Lance stores as another type: ``varchar(5)`` is stored as a
string, a vector of its ML library as a struct. The metadata of the field contain Spark's type.

Types here are storage types; extension types are in field metadata (``field.py``). Pure, no I/O.

Source: docs/format/table-format.md, section 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError

_PLAIN_TYPES = {
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

    ``time_as_integer``: return times of day as int64 nanoseconds, for engines without that type.
    """
    if stored in _SAME:
        return stored
    if stored in _PLAIN_TYPES:
        return _PLAIN_TYPES[stored]
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
    indices = [array.type.get_field_index(member.name) for member in target]
    return [parts[at if index < 0 else index] for at, index in enumerate(indices)]


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


# As Spark writes the type: ``varchar(5)``, ``char(3)``, or the JSON of a user-defined type.
SPARK_TYPE_KEY: Final = "spark.type"
# SQL text of the default value of the column.
DEFAULT_KEY: Final = "spark.default"
COMMENT_KEY: Final = "comment"

_TEXT_OF_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")


def declared_text(metadata: Mapping[str, bytes], key: str) -> str | None:
    """Return a value of field metadata as text; None if it is absent."""
    value = metadata.get(key)
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def longest_text(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """Return the maximum length in characters from Arrow field metadata; None if unlimited."""
    if not metadata:
        return None
    match = _TEXT_OF_LENGTH.fullmatch(metadata.get(SPARK_TYPE_KEY.encode(), b"").decode())
    return None if match is None else int(match[2])


EXTENSION_NAME_KEY: Final = "ARROW:extension:name"
EXTENSION_METADATA_KEY: Final = "ARROW:extension:metadata"

BFLOAT16: Final = "lance.bfloat16"
"""Extension name of a two-byte float; the items of a fixed size list may have it."""

_MAX_LIST_DEPTH: Final = 32

_ARROW_OF: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
    "duration:s": pa.duration("s"),
    "duration:ms": pa.duration("ms"),
    "duration:us": pa.duration("us"),
    "duration:ns": pa.duration("ns"),
    # JSONB: bytes on disk; readers that support JSON convert it to text.
    "json": pa.large_binary(),
}

_LOGICAL_OF: Final[dict[pa.DataType, str]] = {
    arrow: logical for logical, arrow in _ARROW_OF.items() if logical != "json"
} | {pa.string_view(): "string", pa.binary_view(): "binary"}

_TIME_UNITS: Final = ("s", "ms", "us", "ns")
_LIST_TYPES: Final = ("list", "list.struct", "large_list", "large_list.struct")

# Value of field 7 of the Field message; readers of files since 2.0 ignore it.
_NO_ENCODING, _PLAIN, _VAR_BINARY, _DICTIONARY = 0, 1, 2, 3
_ENCODING_OF: Final = {
    "null": _NO_ENCODING,
    "struct": _NO_ENCODING,
    "string": _VAR_BINARY,
    "large_string": _VAR_BINARY,
    "binary": _VAR_BINARY,
    "large_binary": _VAR_BINARY,
    "json": _VAR_BINARY,
}


def logical_type_of(data_type: pa.DataType) -> str:
    """The logical type of an Arrow storage type; children of nested types are fields themselves."""
    simple = _LOGICAL_OF.get(data_type)
    if simple is not None:
        return simple
    types = pa.types
    if types.is_timestamp(data_type):
        return f"timestamp:{data_type.unit}:{data_type.tz or '-'}"
    if types.is_decimal128(data_type) or types.is_decimal256(data_type):
        return f"decimal:{data_type.bit_width}:{data_type.precision}:{data_type.scale}"
    if types.is_fixed_size_binary(data_type):
        return f"fixed_size_binary:{data_type.byte_width}"
    if types.is_struct(data_type):
        return "struct"
    if types.is_list(data_type) or types.is_large_list(data_type):
        name = "large_list" if types.is_large_list(data_type) else "list"
        return f"{name}.struct" if types.is_struct(data_type.value_type) else name
    if types.is_fixed_size_list(data_type):
        return _fixed_size_list(data_type)
    if types.is_map(data_type):
        if data_type.keys_sorted:
            raise UnsupportedFeatureError("maps with sorted keys cannot be stored")
        return "map"
    if types.is_dictionary(data_type) and not types.is_nested(data_type.value_type):
        index = logical_type_of(data_type.index_type)
        # The format cannot represent the ordered flag.
        return f"dict:{logical_type_of(data_type.value_type)}:{index}:false"
    raise UnsupportedFeatureError(f"the type {data_type} cannot be stored in a Lance table")


MAX_VALUE_BYTES = (1 << 31) - 1
"""Maximum size of one value in bytes."""


def arrow_type_of(logical_type: str, children: Sequence[pa.Field] = ()) -> pa.DataType:
    """The Arrow storage type of a logical type."""
    simple = _ARROW_OF.get(logical_type)
    if simple is not None:
        if children:
            raise _children_error(logical_type, 0, len(children))
        return simple
    try:
        return _parse(logical_type, children, depth=0)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise CorruptFileError(f"malformed logical type {logical_type!r}: {error}") from error


def informative_encoding(logical_type: str) -> int:
    """Return the ``encoding`` of a field, which files since 2.0 do not need."""
    if logical_type.startswith("dict:"):
        return _DICTIONARY
    return _ENCODING_OF.get(logical_type, _PLAIN)


def _fixed_size_list(data_type: pa.FixedSizeListType) -> str:
    """Format a list type; its string contains items without children, a struct is a child."""
    item, size = data_type.value_field, data_type.list_size
    extension = (item.metadata or {}).get(EXTENSION_NAME_KEY.encode(), b"")
    if extension.decode(errors="replace") == BFLOAT16:
        return f"fixed_size_list:{BFLOAT16}:{size}"
    nested = pa.types.is_fixed_size_list(item.type) and _has_child_fields(item.type)
    if nested or pa.types.is_map(item.type) or _is_variable_list(item.type):
        raise UnsupportedFeatureError(f"fixed size lists of {item.type} cannot be stored")
    return f"fixed_size_list:{logical_type_of(item.type)}:{size}"


def _is_variable_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def _has_child_fields(data_type: pa.DataType) -> bool:
    """Return whether a fixed size list ends in a struct."""
    while pa.types.is_fixed_size_list(data_type):
        data_type = data_type.value_type
    return bool(pa.types.is_struct(data_type))


def _parse(logical_type: str, children: Sequence[pa.Field], *, depth: int) -> pa.DataType:
    """Parse types with parameters or children."""
    simple = _ARROW_OF.get(logical_type)
    if simple is not None:
        return simple
    kind, _, parameters = logical_type.partition(":")
    if kind == "fixed_size_list":
        return _parse_fixed_size_list(logical_type, parameters, children, depth)
    nested = _parse_nested(logical_type, children)
    if nested is not None:
        return nested
    if children:
        raise _children_error(logical_type, 0, len(children))
    if kind == "dict":
        return _parse_dictionary(parameters, depth)
    parse = _PARAMETRIC.get(kind)
    if parse is None:
        raise UnsupportedFeatureError(f"the logical type {logical_type!r} is not implemented")
    return parse(parameters)


def _parse_timestamp(parameters: str) -> pa.DataType:
    unit, _, zone = parameters.partition(":")
    if unit not in _TIME_UNITS or not zone:
        raise ValueError("unit and time zone expected")
    return pa.timestamp(unit, tz=None if zone == "-" else zone)


def _parse_decimal(parameters: str) -> pa.DataType:
    bits, precision, scale = parameters.split(":")
    if bits not in ("128", "256"):
        raise UnsupportedFeatureError(f"decimals of {bits} bits are not implemented")
    make = pa.decimal128 if bits == "128" else pa.decimal256
    return make(int(precision), int(scale))


def _parse_dictionary(parameters: str, depth: int) -> pa.DataType:
    # From the right: the value type may itself contain colons.
    value, index, _ = parameters.rsplit(":", 2)
    index_type = _ARROW_OF.get(index)
    if index_type is None or not pa.types.is_integer(index_type):
        raise ValueError(f"dictionary index type {index!r}")
    if depth > 0 and value.startswith("dict:"):
        raise ValueError("a dictionary of dictionaries of dictionaries")
    return pa.dictionary(index_type, _parse(value, (), depth=depth + 1))


def _parse_nested(logical_type: str, children: Sequence[pa.Field]) -> pa.DataType | None:
    """Parse types whose children are separate fields; None for other types."""
    if logical_type == "struct":
        return pa.struct(list(children))
    if logical_type in _LIST_TYPES:
        if len(children) != 1:
            raise _children_error(logical_type, 1, len(children))
        make = pa.large_list if logical_type.startswith("large") else pa.list_
        return make(children[0])
    if logical_type == "map":
        if len(children) != 1:
            raise _children_error(logical_type, 1, len(children))
        entries = children[0].type
        if not pa.types.is_struct(entries) or entries.num_fields != 2:
            raise ValueError(f"map entries are {entries}, not a struct of key and value")
        return pa.map_(entries.field(0), entries.field(1))
    return None


def _parse_fixed_size_list(
    logical_type: str, parameters: str, children: Sequence[pa.Field], depth: int
) -> pa.DataType:
    # The last number is the outermost size.
    item, _, size_text = parameters.rpartition(":")
    size = _size(size_text)
    if item == "struct":
        if len(children) != 1:
            raise _children_error(logical_type, 1, len(children))
        return _checked_list(children[0], size)
    if children:
        raise _children_error(logical_type, 0, len(children))
    if item == BFLOAT16:
        metadata = {EXTENSION_NAME_KEY: BFLOAT16, EXTENSION_METADATA_KEY: ""}
        return _checked_list(pa.field("item", pa.binary(2), metadata=metadata), size)
    if depth >= _MAX_LIST_DEPTH:
        raise ValueError(f"fixed size lists nested deeper than {_MAX_LIST_DEPTH}")
    return _checked_list(pa.field("item", _parse(item, (), depth=depth + 1)), size)


def _checked_list(item: pa.Field, size: int) -> pa.DataType:
    """Build a list type, whose values are limited: a null row takes as much space as a value."""
    data_type = pa.list_(item, size)
    num_bytes = least_bytes(data_type)
    if num_bytes > MAX_VALUE_BYTES:
        raise ValueError(f"a value takes {num_bytes} bytes")
    return data_type


def least_bytes(data_type: pa.DataType) -> int:
    """Return the minimum size in bytes of any value of a type, null or not; 0 for less than one."""
    if isinstance(data_type, pa.BaseExtensionType):
        return least_bytes(data_type.storage_type)
    if pa.types.is_fixed_size_list(data_type):
        bits = data_type.value_type.bit_width if pa.types.is_boolean(data_type.value_type) else 0
        return int(data_type.list_size) * (8 * least_bytes(data_type.value_type) + bits) // 8
    if pa.types.is_struct(data_type):
        return sum(least_bytes(member.type) for member in data_type)
    if pa.types.is_dictionary(data_type):
        return least_bytes(data_type.index_type)
    has_width = pa.types.is_primitive(data_type) or pa.types.is_decimal(data_type)
    if has_width or pa.types.is_fixed_size_binary(data_type):
        return int(data_type.bit_width) // 8
    return 4 if data_type.num_fields or not pa.types.is_null(data_type) else 0


def _size(text: str) -> int:
    """Parse a byte width or list size, limited to Arrow's 32 bits."""
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) >= 2**31:
        raise ValueError(f"size {text!r}")
    return int(text)


def _children_error(logical_type: str, expected: int, found: int) -> CorruptFileError:
    return CorruptFileError(f"a {logical_type!r} field has {found} children, not {expected}")


def _parse_fixed_size_binary(parameters: str) -> pa.DataType:
    return pa.binary(_size(parameters))


_PARAMETRIC: Final[dict[str, Callable[[str], pa.DataType]]] = {
    "timestamp": _parse_timestamp,
    "decimal": _parse_decimal,
    "fixed_size_binary": _parse_fixed_size_binary,
}
