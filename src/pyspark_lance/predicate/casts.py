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

# Characters that UTF8String.trimAll removes: control characters and blanks of the ASCII range.
_TRIMMED = "".join(map(chr, range(0x21))) + "\x7f"
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
        text = bad[0].as_py()
        shown = repr(text) if len(text) <= 80 else f"{text[:80]!r}…"
        raise InvalidInputError(
            f"the string {shown} is not a valid {type_name(wanted)}",
            hint="correct the value, or compare with a value of the right type",
        )


_INTEGER_TEXT = r"[+-]?[0-9]+"
FLOAT_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
FLOAT_TEXT = rf"{FLOAT_NUMBER}[dDfF]?|(?i:[+-]?inf(?:inity)?|nan)"


def _string_to_number(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    text = pc.utf8_trim(values, characters=_TRIMMED)
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
    text = pc.ascii_lower(pc.utf8_trim(values, characters=_TRIMMED))
    _checked(text, f"{_TRUE_TEXT}|{_FALSE_TEXT}", wanted)
    return pc.match_substring_regex(text, rf"\A(?:{_TRUE_TEXT})\z")


_DATE = r"(?P<year>[+-]?[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})REST)?)?"
_DATE_TEXT = _DATE.replace("REST", r"(?:[ T](?s:.*))?")
_TIME = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?)?"
)
_ZONE = (
    r"\s*(?P<zone>Z|UTC|GMT|[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+|"
    r"(?:UTC|GMT)?[+-][0-9]{1,2}(?::?[0-9]{1,2})?(?::?[0-9]{2})?)"
)
_TIMESTAMP_TEXT = _DATE.replace("REST", rf"(?:[ T](?:{_TIME}(?:{_ZONE})?)?)?")


def _number(parts: pa.StructArray, name: str, default: int) -> NDArray[np.int64]:
    text = pc.struct_field(parts, name)
    text = pc.if_else(pc.equal(text, ""), str(default), text)
    text = pc.replace_substring_regex(text, r"\A\+", "").fill_null(str(default))
    return np.asarray(text.cast(pa.int64()))


def _days(parts: pa.StructArray, wanted: pa.DataType) -> NDArray[np.int64]:
    """Return days since 1970 of the ``year``, ``month`` and ``day`` groups; raise if invalid."""
    year, month, day = (
        _number(parts, "year", 1970),
        _number(parts, "month", 1),
        _number(parts, "day", 1),
    )
    in_range = (month >= 1) & (month <= 12)
    months = (year - 1970) * 12 + np.where(in_range, month - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = first + day - 1
    if not np.all(in_range & (day >= 1) & (days < after)):
        raise InvalidInputError(
            f"a string that is cast to {type_name(wanted)} has a day that does not exist"
        )
    return days


def _trimmed_parts(values: pa.Array, pattern: str, wanted: pa.DataType) -> pa.StructArray:
    text = pc.utf8_trim(values, characters=_TRIMMED)
    _checked(text, pattern, wanted)
    return pc.extract_regex(text, rf"\A(?:{pattern})\z")


def _string_to_date(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    days = _days(_trimmed_parts(values, _DATE_TEXT, wanted), wanted)
    if len(days) and (days.min() < -(2**31) or days.max() >= 2**31):
        raise InvalidInputError("a string that is cast to date has a day out of range")
    return pa.array(days.astype(np.int32), mask=_null_mask(values)).cast(DATE)


def _string_to_timestamp(values: pa.Array, wanted: pa.DataType, time_zone: str) -> pa.Array:
    parts = _trimmed_parts(values, _TIMESTAMP_TEXT, wanted)
    # A text may have years of seven digits, unlike timestamps.
    days = pa.array(_days(parts, wanted), mask=_null_mask(values))
    midnight = pc.multiply_checked(days, _MICROS_PER_DAY)
    local = pc.add_checked(midnight, _time_of_day(parts, wanted)).cast(TIMESTAMP_NTZ)
    if wanted == TIMESTAMP_NTZ:
        return local
    zones = pc.struct_field(parts, "zone").fill_null("")
    instants = pa.nulls(len(values), TIMESTAMP)
    for zone in pc.unique(zones).to_pylist():
        rows = pc.equal(zones, zone)
        instants = pc.replace_with_mask(
            instants, rows, to_instants(local.filter(rows), zone or time_zone)
        )
    return instants


def _time_of_day(parts: pa.StructArray, wanted: pa.DataType) -> NDArray[np.int64]:
    hour, minute, second = (_number(parts, name, 0) for name in ("hour", "minute", "second"))
    if not np.all((hour < 24) & (minute < 60) & (second < 60)):
        raise InvalidInputError(
            f"a string that is cast to {type_name(wanted)} has a time that does not exist"
        )
    # Spark cuts digits beyond the microsecond.
    digits = pc.struct_field(parts, "fraction").fill_null("")
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, "0"), 0, 6)
    fraction = np.asarray(digits.cast(pa.int64()))
    seconds = (hour * 60 + minute) * 60 + second
    micros: NDArray[np.int64] = seconds * 1_000_000 + fraction
    return micros


def _string_to_time(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    parts = _trimmed_parts(values, _TIME, wanted)
    nanos = _time_of_day(parts, wanted) * 1000
    return pa.array(nanos, mask=_null_mask(values)).cast(TIME)


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
