"""Spark types of stored types, and common types of Spark types.

Spark types are written as Arrow types: ``timestamp[us, tz=UTC]`` is TIMESTAMP, ``timestamp[us]``
is TIMESTAMP_NTZ, ``time64[ns]`` is TIME, ``duration[us]`` is a day-time interval, ``null`` is
VOID.  The common types are those of Spark's ANSI mode (the default since Spark 4.0) or of
sessions without it.  No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.logical_type import plain_type

TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
TIME = pa.time64("ns")
INTERVAL = pa.duration("us")
DATE = pa.date32()
STRING = pa.string()
BINARY = pa.binary()
NULL = pa.null()
MAX_PRECISION = 38

_NUMERIC_ORDER = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
_INTEGER_PRECISION = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def spark_type_of(stored: pa.DataType) -> pa.DataType:
    """Return the Spark type of a stored type; the stored type itself if Spark has none.

    A column of such a type can still be tested with IS NULL.
    """
    try:
        return plain_type(stored, "")
    except UnsupportedFeatureError:
        return stored


def is_comparable(data_type: pa.DataType) -> bool:
    """Return whether values of the Spark type can be compared here (not lists, structs, …)."""
    return data_type in _NAMES or pa.types.is_decimal(data_type)


def is_integral(data_type: pa.DataType) -> bool:
    """Return whether the type is tinyint, smallint, int or bigint."""
    return data_type in _INTEGER_PRECISION


def is_numeric(data_type: pa.DataType) -> bool:
    """Return whether the type is integral, floating or decimal."""
    return bool(data_type in _NUMERIC_ORDER or pa.types.is_decimal(data_type))


def decimal_of_integer(data_type: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds every value of an integral type, as Spark chooses it."""
    return pa.decimal128(_INTEGER_PRECISION[data_type], 0)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type that Spark compares decimals in: beyond 38 digits it rounds fractions."""
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if max(left.precision, right.precision) > MAX_PRECISION:  # unknown to Spark
        return pa.decimal256(min(whole + scale, 76), scale)
    scale = max(min(scale, MAX_PRECISION - whole), 0)
    return pa.decimal128(min(whole + scale, MAX_PRECISION), scale)


def common_type(left: pa.DataType, right: pa.DataType, *, ansi: bool = True) -> pa.DataType | None:
    """Return the type in which Spark compares ``left`` with ``right``; None if it cannot."""
    kinds = pa.types
    if left == right or kinds.is_null(right):
        return left
    if kinds.is_null(left):
        return right
    if kinds.is_string(left) or kinds.is_string(right):
        return _common_with_string(right if kinds.is_string(left) else left, ansi)
    if is_numeric(left) and is_numeric(right):
        return _common_number(left, right, ansi)
    if kinds.is_date(left) and kinds.is_timestamp(right):
        return right
    if kinds.is_timestamp(left) and kinds.is_date(right):
        return left
    if kinds.is_timestamp(left) and kinds.is_timestamp(right):
        return TIMESTAMP
    return None


def wider_type(types: Sequence[pa.DataType], *, ansi: bool = True) -> pa.DataType | None:
    """Return the type of ``coalesce`` and of the values of ``IN``; None if Spark has none.

    Without ANSI mode it is a string if one of them is a string, unlike that of a comparison.
    """
    first, *others = types if ansi else sorted(types, key=lambda one: one != STRING)
    kind: pa.DataType | None = first
    for other in dict.fromkeys(others):
        if not ansi and kind == STRING and not pa.types.is_null(other):
            kind = None if other in (BINARY, pa.bool_()) or not is_comparable(other) else STRING
        else:
            kind = common_type(kind, other, ansi=ansi)
        if kind is None or not is_comparable(kind):
            return None
    return kind


def _common_with_string(other: pa.DataType, ansi: bool) -> pa.DataType | None:
    if is_integral(other):
        return pa.int64() if ansi else other
    if is_numeric(other) and (ansi or pa.types.is_decimal(other)):
        return pa.float64()
    if other == INTERVAL or not is_comparable(other):
        return None
    return other


def _common_number(left: pa.DataType, right: pa.DataType, ansi: bool) -> pa.DataType:
    if left in _NUMERIC_ORDER and right in _NUMERIC_ORDER:
        wider = max(left, right, key=_NUMERIC_ORDER.index)
        # A float cannot represent every int, so ANSI mode compares the two as doubles.
        if ansi and wider == pa.float32() and left != right:
            return pa.float64()
        return wider
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    left = decimal_of_integer(left) if is_integral(left) else left
    right = decimal_of_integer(right) if is_integral(right) else right
    return wider_decimal(left, right)


_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    STRING: "string",
    BINARY: "binary",
    DATE: "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
    TIME: "time",
    INTERVAL: "interval day to second",
    NULL: "void",
}
# Types without an equivalent in Spark, although it has one of the same name.
_STORED_NAMES = {
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
}
_BY_NAME = {name: kind for kind, name in _NAMES.items()} | {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "real": pa.float32(),
    "timestamp_ltz": TIMESTAMP,
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")


def type_name(data_type: pa.DataType) -> str:
    """Return the Spark name of ``data_type``; Arrow's name if Spark has none."""
    kinds = pa.types
    if kinds.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if kinds.is_fixed_size_list(data_type):
        return f"array<{type_name(data_type.value_type)}> of length {data_type.list_size}"
    if kinds.is_list(data_type) or kinds.is_large_list(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    if kinds.is_map(data_type):
        return f"map<{type_name(data_type.key_type)}, {type_name(data_type.item_type)}>"
    if kinds.is_struct(data_type):
        members = [f"{member.name}: {type_name(member.type)}" for member in data_type]
        return f"struct<{', '.join(members)}>"
    if kinds.is_dictionary(data_type):
        return type_name(data_type.value_type)
    return _NAMES.get(data_type) or _STORED_NAMES.get(data_type) or str(data_type)


def parse_type(text: str) -> pa.DataType:
    """Parse a type name of Spark, such as ``bigint`` or ``decimal(10, 2)``."""
    word = text.strip().lower()
    if word in _BY_NAME:
        return _BY_NAME[word]
    match = _DECIMAL.fullmatch(word)
    if match is None:
        raise InvalidInputError(
            f"the type {text!r} is unknown",
            hint=f"supported: {', '.join(sorted(_BY_NAME))}, decimal(p, s)",
        )
    precision, scale = int(match[1] or 10), int(match[2] or 0)
    if not 1 <= precision <= MAX_PRECISION or scale > precision:
        raise InvalidInputError(f"decimal({precision}, {scale}) is not a valid type")
    return pa.decimal128(precision, scale)
