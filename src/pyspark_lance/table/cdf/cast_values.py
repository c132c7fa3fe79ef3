"""Values in another type: null, one by one, where the type does not hold them; pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.plain_values import plain_dtype
from pyspark_lance.table.rows.arrow_casts import arrow_cast

# What the texts of numbers are made of: all that can be read as one is among these.
_INTEGER_TEXT = r"^[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)$"
_NUMBER_TEXT = r"^\s*[-+]?([0-9.]+([eE][-+]?[0-9]+)?|(?i:nan|inf|infinity))\s*$"
_TIME_TEXT = r"^[-+]?[0-9]"
_FLAG_TEXT = r"^(?i:true|false|[01])$"


def cast_values(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """``values`` as ``data_type``; those that it does not hold exactly are null."""
    if values.type.equals(data_type):
        return values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_struct(data_type) and pa.types.is_struct(values.type):
        return _cast_struct(values, data_type)
    try:
        return arrow_cast(values, data_type)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(len(values), data_type)
    except pa.ArrowInvalid:
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        return _cast_distinct(_without_hopeless(values, data_type), data_type)


def _cast_struct(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Members by name."""
    names = [member.name for member in values.type]
    members = [
        cast_values(values.field(names.index(member.name)), member.type)
        if member.name in names
        else pa.nulls(len(values), member.type)
        for member in data_type
    ]
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays(members, fields=list(data_type), mask=mask)


def _without_hopeless(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Null for values that the type surely does not hold, as far as one look at all can tell."""
    types, own = pa.types, values.type
    if types.is_string(own) or types.is_large_string(own):
        if types.is_integer(data_type):
            hopeful = pc.match_substring_regex(values, _INTEGER_TEXT)
        elif types.is_floating(data_type) or types.is_decimal(data_type):
            hopeful = pc.match_substring_regex(values, _NUMBER_TEXT)
        elif types.is_boolean(data_type):
            hopeful = pc.match_substring_regex(values, _FLAG_TEXT)
        elif types.is_temporal(data_type):
            hopeful = pc.match_substring_regex(values, _TIME_TEXT)
        else:
            return values
    elif types.is_integer(data_type) and (types.is_integer(own) or types.is_floating(own)):
        bounds = np.iinfo(plain_dtype(data_type))
        low, high = (_bound(int(bound), own) for bound in (bounds.min, bounds.max))
        hopeful = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        if types.is_floating(own):
            hopeful = pc.and_(hopeful, pc.equal(pc.trunc(values), values))
    elif (types.is_integer(own) and types.is_floating(data_type) and data_type != pa.float16()) or (
        types.is_timestamp(own) and types.is_timestamp(data_type)
    ):
        back = values.cast(data_type, safe=False).cast(own, safe=False)
        hopeful = pc.equal(back, values)
    else:
        return values
    return pc.if_else(hopeful, values, pa.scalar(None, own))


def _bound(number: int, data_type: pa.DataType) -> pa.Scalar:
    """The number in the type, or the nearest one that it has on the way to 0."""
    if pa.types.is_floating(data_type):
        nearest = np.array([number]).astype(plain_dtype(data_type))[0]
        if abs(int(nearest)) > abs(number):
            nearest = np.nextafter(nearest, nearest.dtype.type(0))
        return pa.scalar(nearest, data_type)
    bounds = np.iinfo(plain_dtype(data_type))
    return pa.scalar(max(int(bounds.min), min(int(bounds.max), number)), data_type)


def _cast_distinct(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Each value once, however often it comes."""
    if values.type.num_fields:
        return _cast_some(values, data_type)
    encoded = values.dictionary_encode()
    return _cast_some(encoded.dictionary, data_type).take(encoded.indices)


def _cast_some(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """By halves, of which those with no such value are cast at once."""
    try:
        return arrow_cast(values, data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        if len(values) <= 1:
            return pa.nulls(len(values), data_type)
    half = len(values) // 2
    parts = [_cast_some(part, data_type) for part in (values.slice(0, half), values.slice(half))]
    return pa.concat_arrays(parts)
