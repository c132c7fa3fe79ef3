"""Casts of whole arrays from one Spark type to another, by the rules of Spark's ANSI mode.

A value that does not fit, or a malformed text, is an error and never NULL or a wrapped number.  No
I/O; no loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.predicate.time_texts import TRIMMED, dates_of, times_of, timestamps_of
from pyspark_lance.predicate.time_zones import date_text, to_instants, to_local, to_local_dates
from pyspark_lance.predicate.types import (
    BINARY,
    DATE,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_integral,
    is_numeric,
    type_name,
)

LEAVE_TO_SPARK = "leave it to Spark: df.where(…)"
_MICROS_PER_DAY = 86_400_000_000


def cast_array(values: pa.Array, wanted: pa.DataType, time_zone: str = "UTC") -> pa.Array:
    """Cast ``values`` to ``wanted``.

    ``wanted``: a Spark type, or decimal256 (only inside comparisons of decimals).
    """
    source = values.type
    if source == wanted:
        return values
    if pa.types.is_null(source):
        return pa.nulls(len(values), wanted)
    try:
        cast = _find_cast(source, wanted)
        if cast is not None:
            return cast(values, wanted, time_zone)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InvalidInputError(
            f"a {type_name(source)} value does not fit {type_name(wanted)}: {error}"
        ) from error
    raise InvalidInputError(
        f"{type_name(source)} cannot be cast to {type_name(wanted)}", hint=LEAVE_TO_SPARK
    )


def can_cast(source: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether ``cast_array`` supports a cast of ``source`` to ``wanted``."""
    return source == wanted or pa.types.is_null(source) or _find_cast(source, wanted) is not None


_Cast = Callable[[pa.Array, pa.DataType, str], pa.Array]


def _find_cast(source: pa.DataType, wanted: pa.DataType) -> _Cast | None:
    kinds = pa.types
    if is_numeric(source) and is_numeric(wanted):
        return _number_to_number
    if kinds.is_boolean(source) and is_numeric(wanted):
        return lambda values, wanted, _: cast_array(values.cast(pa.int8()), wanted)
    if is_numeric(source) and kinds.is_boolean(wanted):
        return lambda values, _wanted, _: pc.not_equal(values, pa.scalar(0).cast(source))
    if kinds.is_string(source):
        if is_numeric(wanted):
            return _string_to_number
        return _FROM_STRING.get(wanted)
    if kinds.is_string(wanted):
        if source == DATE:
            return lambda values, _wanted, _: date_text(values)
        printable = is_integral(source) or source in (BINARY, pa.bool_())
        return (lambda values, wanted, _: values.cast(wanted)) if printable else None
    return _BETWEEN_TIMES.get((source, wanted))


def _number_to_number(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    kinds, source = pa.types, values.type
    if kinds.is_decimal(wanted):
        return _to_decimal(values, wanted)
    if is_integral(wanted) and not is_integral(source):
        if kinds.is_floating(source):
            return _float_to_integer(values, wanted)
        return pc.trunc(values).cast(pa.decimal128(38, 0)).cast(wanted)
    if kinds.is_floating(wanted):
        if kinds.is_decimal(source):
            # Arrow multiplies by a power of ten, which can be off by one bit; the text is exact.
            return values.cast(STRING).cast(pa.float64()).cast(wanted, safe=False)
        return values.cast(wanted, safe=False)
    return values.cast(wanted)


def _float_to_integer(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    wide = pc.trunc(values.cast(pa.float64()))
    low, high = -(2.0 ** (wanted.bit_width - 1)), 2.0 ** (wanted.bit_width - 1)
    fits = pc.and_(pc.greater_equal(wide, low), pc.less(wide, high))
    if pc.any(pc.invert(fits)).as_py():
        raise InvalidInputError(
            f"a {type_name(values.type)} value does not fit {type_name(wanted)}"
        )
    return wide.cast(pa.int64(), safe=False).cast(wanted)


def _to_decimal(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    kinds = pa.types
    if kinds.is_floating(values.type):
        if pc.any(pc.invert(pc.is_finite(values))).as_py():
            raise InvalidInputError(f"NaN or infinity does not fit {type_name(wanted)}")
        # As in Spark: the shortest text that represents the double, then rounded half up.
        text = values.cast(pa.float64()).cast(STRING)
        return cast_array(text, wanted)
    if is_integral(values.type):
        values = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
    wide = pa.decimal256(76, max(values.type.scale, wanted.scale))
    values = values.cast(wide)
    if values.type.scale > wanted.scale:
        values = pc.round(values, wanted.scale, round_mode="half_towards_infinity")
    return values.cast(wanted)


def _checked(values: pa.Array, pattern: str, wanted: pa.DataType) -> None:
    """Raise for the first text that does not match ``pattern`` as a whole."""
    matches = pc.match_substring_regex(values, rf"\A(?:{pattern})\z")
    bad = values.filter(pc.invert(matches))
    if len(bad):
        raise _malformed(bad[0].as_py(), wanted)


def _malformed(text: str, wanted: pa.DataType) -> InvalidInputError:
    shown = repr(text) if len(text) <= 80 else f"{text[:80]!r}…"
    return InvalidInputError(
        f"the string {shown} is not a valid {type_name(wanted)}",
        hint="correct the value, or compare with a value of the right type",
    )


_INTEGER_TEXT = r"[+-]?[0-9]+"
FLOAT_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
FLOAT_TEXT = rf"{FLOAT_NUMBER}[dDfF]?|(?i:[+-]?inf(?:inity)?|nan)"


def _string_to_number(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    text = pc.utf8_trim(values, characters=TRIMMED)
    if is_integral(wanted):
        _checked(text, _INTEGER_TEXT, wanted)
        return pc.replace_substring_regex(text, r"\A\+", "").cast(wanted)
    if pa.types.is_floating(wanted):
        _checked(text, FLOAT_TEXT, wanted)
        plain = pc.replace_substring_regex(text, r"([0-9.])[dDfF]\z", r"\1")
        plain = pc.replace_substring_regex(plain, r"\A\+", "")
        return pc.ascii_lower(plain).cast(wanted)
    _checked(text, FLOAT_NUMBER, wanted)
    plain = pc.replace_substring_regex(text, r"\A\+", "")
    return cast_array(_decimal_text(plain), wanted)


def _decimal_text(text: pa.Array) -> pa.Array:
    """Return number texts as decimal256; excess digits far beyond the point are cut."""
    small = pc.replace_substring_regex(text, r"(\.[0-9]{38})[0-9]+", r"\1")
    return small.cast(pa.decimal256(76, 38))


_TRUE_TEXT, _FALSE_TEXT = r"t|true|y|yes|1", r"f|false|n|no|0"


def _string_to_boolean(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    text = pc.ascii_lower(pc.utf8_trim(values, characters=TRIMMED))
    _checked(text, f"{_TRUE_TEXT}|{_FALSE_TEXT}", wanted)
    return pc.match_substring_regex(text, rf"\A(?:{_TRUE_TEXT})\z")


def _checked_texts(values: pa.Array, read: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return ``read``; raise for the first text that became NULL."""
    bad = values.filter(pc.and_(values.is_valid(), read.is_null()))
    if len(bad):
        raise _malformed(bad[0].as_py(), wanted)
    return read


def _string_to_date(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    return _checked_texts(values, dates_of(values), wanted)


def _string_to_timestamp(values: pa.Array, wanted: pa.DataType, time_zone: str) -> pa.Array:
    return _checked_texts(values, timestamps_of(values, wanted, time_zone), wanted)


def _string_to_time(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    return _checked_texts(values, times_of(values), wanted)


def _null_mask(values: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = plain_numbers(pc.is_null(values))
    return mask


def _date_of(local: pa.Array) -> pa.Array:
    micros = np.asarray(local.cast(pa.int64()).fill_null(0))
    days = np.floor_divide(micros, _MICROS_PER_DAY)
    return pa.array(days.astype(np.int32), mask=_null_mask(local)).cast(DATE)


def _midnight(dates: pa.Array) -> pa.Array:
    micros = pc.multiply_checked(dates.cast(pa.int32()).cast(pa.int64()), _MICROS_PER_DAY)
    return micros.cast(TIMESTAMP_NTZ)


_FROM_STRING: dict[pa.DataType, _Cast] = {
    pa.bool_(): _string_to_boolean,
    DATE: _string_to_date,
    TIMESTAMP: _string_to_timestamp,
    TIMESTAMP_NTZ: _string_to_timestamp,
    TIME: _string_to_time,
    BINARY: lambda values, wanted, _: values.cast(wanted),
}
_BETWEEN_TIMES: dict[tuple[pa.DataType, pa.DataType], _Cast] = {
    (DATE, TIMESTAMP): lambda values, _, zone: to_instants(_midnight(values), zone),
    (DATE, TIMESTAMP_NTZ): lambda values, _wanted, _: _midnight(values),
    (TIMESTAMP_NTZ, TIMESTAMP): lambda values, _, zone: to_instants(values, zone),
    (TIMESTAMP, TIMESTAMP_NTZ): lambda values, _, zone: to_local(values, zone),
    (TIMESTAMP, DATE): lambda values, _, zone: to_local_dates(values, zone),
    (TIMESTAMP_NTZ, DATE): lambda values, _wanted, _: _date_of(values),
}
