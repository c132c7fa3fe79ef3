"""Casts of whole arrays from one Spark type to another, with and without Spark's ANSI mode.

In ANSI mode a value that does not fit, or a malformed text, is an error, never NULL or a wrapped
number. Without it, such a value becomes NULL or wraps around; only casts that can fail differ.  No
I/O; no loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array, plain_numbers, plain_scalar
from pyspark_lance.predicate.time_texts import (
    TRIMMED,
    date_text,
    dates_of,
    times_of,
    timestamps_of,
    to_instants,
    to_local,
    to_local_dates,
)
from pyspark_lance.predicate.tree import always_fits
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


def _check_pattern(values: pa.Array, pattern: str, wanted: pa.DataType) -> None:
    """Raise for the first text that does not match ``pattern`` as a whole."""
    matches = pc.match_substring_regex(values, rf"\A(?:{pattern})\z")
    bad = values.filter(pc.invert(matches))
    if len(bad):
        raise _malformed_error(bad[0].as_py(), wanted)


def _malformed_error(text: str, wanted: pa.DataType) -> InvalidInputError:
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
        _check_pattern(text, _INTEGER_TEXT, wanted)
        return pc.replace_substring_regex(text, r"\A\+", "").cast(wanted)
    if pa.types.is_floating(wanted):
        _check_pattern(text, FLOAT_TEXT, wanted)
        plain = pc.replace_substring_regex(text, r"([0-9.])[dDfF]\z", r"\1")
        plain = pc.replace_substring_regex(plain, r"\A\+", "")
        return pc.ascii_lower(plain).cast(wanted)
    _check_pattern(text, FLOAT_NUMBER, wanted)
    plain = pc.replace_substring_regex(text, r"\A\+", "")
    return cast_array(_decimal_text(plain), wanted)


def _decimal_text(text: pa.Array) -> pa.Array:
    """Return number texts as decimal256; excess digits far beyond the point are cut."""
    small = pc.replace_substring_regex(text, r"(\.[0-9]{38})[0-9]+", r"\1")
    return small.cast(pa.decimal256(76, 38))


_TRUE_TEXT, _FALSE_TEXT = r"t|true|y|yes|1", r"f|false|n|no|0"


def _string_to_boolean(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    text = pc.ascii_lower(pc.utf8_trim(values, characters=TRIMMED))
    _check_pattern(text, f"{_TRUE_TEXT}|{_FALSE_TEXT}", wanted)
    return pc.match_substring_regex(text, rf"\A(?:{_TRUE_TEXT})\z")


def _check_texts(values: pa.Array, read: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return ``read``; raise for the first text that became NULL."""
    bad = values.filter(pc.and_(values.is_valid(), read.is_null()))
    if len(bad):
        raise _malformed_error(bad[0].as_py(), wanted)
    return read


def _string_to_date(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    return _check_texts(values, dates_of(values), wanted)


def _string_to_timestamp(values: pa.Array, wanted: pa.DataType, time_zone: str) -> pa.Array:
    return _check_texts(values, timestamps_of(values, wanted, time_zone), wanted)


def _string_to_time(values: pa.Array, wanted: pa.DataType, _: str) -> pa.Array:
    return _check_texts(values, times_of(values), wanted)


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


# Characters removed by Java's String.trim, and by UTF8String.trimAll for integers and booleans.
_BLANKS = "".join(map(chr, range(0x21)))
_BLANKS_AND_DELETE = _BLANKS + "\x7f"
# Java and Spark, unlike Arrow, parse these as numbers too.
_JAVA_FLOAT = r"[+-]?(?:NaN|0[xX].*)"
# More digits before the point than any decimal has.
_TOO_LARGE = 1e39


def differs_without_ansi(source: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast differs without ANSI mode: a value may become NULL or wrap around."""
    if pa.types.is_string(source):
        return wanted not in (STRING, BINARY)
    if pa.types.is_boolean(source):
        return bool(pa.types.is_decimal(wanted))
    return is_numeric(source) and is_numeric(wanted) and not always_fits(source, wanted)


def cast_or_null(values: pa.Array, wanted: pa.DataType, time_zone: str = "UTC") -> pa.Array:
    """Cast ``values`` to ``wanted``, if ``differs_without_ansi`` is true for the types."""
    kinds = pa.types
    if kinds.is_temporal(wanted):
        return _to_time(values, wanted, time_zone)
    if kinds.is_decimal(wanted):
        return _to_decimal_or_null(values, wanted)
    if kinds.is_string(values.type):
        return _parse(values, wanted)
    return _wrap(values, wanted)


def _to_time(text: pa.Array, wanted: pa.DataType, time_zone: str) -> pa.Array:
    if wanted == DATE:
        return dates_of(text)
    return times_of(text) if wanted == TIME else timestamps_of(text, wanted, time_zone)


def _parse(text: pa.Array, wanted: pa.DataType) -> pa.Array:
    if is_integral(wanted):
        return _parse_integers(text, wanted)
    if pa.types.is_boolean(wanted):
        words = pc.ascii_lower(pc.utf8_trim(text, characters=_BLANKS_AND_DELETE))
        return cast_array(_only(words, r"t|true|y|yes|1|f|false|n|no|0"), wanted)
    return cast_array(_numbers(text, FLOAT_TEXT, wanted), wanted)


def _numbers(text: pa.Array, pattern: str, wanted: pa.DataType) -> pa.Array:
    """Return the trimmed texts of numbers, NULL for all other texts."""
    trimmed = pc.utf8_trim(text, characters=_BLANKS)
    numbers = _only(trimmed, pattern)
    others = trimmed.filter(pc.and_(numbers.is_null(), trimmed.is_valid()))
    if len(others) and pc.any(pc.match_substring_regex(others, rf"\A{_JAVA_FLOAT}\z")).as_py():
        raise InvalidInputError(
            f"hexadecimal strings and signed NaN cannot be cast to {type_name(wanted)} here",
            hint=LEAVE_TO_SPARK,
        )
    return numbers


def _only(text: pa.Array, pattern: str) -> pa.Array:
    return _where(pc.match_substring_regex(text, rf"\A(?:{pattern})\z"), text)


def _where(fits: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(fits, values, plain_scalar(None, values.type))


def _parse_integers(text: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Parse whole numbers; digits after a point are cut, as Spark does without ANSI mode."""
    text = pc.utf8_trim(text, characters=_BLANKS_AND_DELETE)
    text = _only(text, r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*)")
    digits = pc.replace_substring_regex(text, r"\A[+-]?0*([0-9]*).*\z", r"\1")
    digits = _where(pc.less_equal(pc.binary_length(digits), 19), digits)
    digits = pc.if_else(pc.equal(digits, ""), "0", digits)
    numbers = digits.cast(pa.decimal128(20, 0))
    numbers = pc.if_else(pc.starts_with(text, "-"), pc.negate(numbers), numbers)
    bits = wanted.bit_width - 1
    return _between(numbers, -(2**bits), 2**bits - 1).cast(wanted)


def _between(values: pa.Array, low: int, high: int) -> pa.Array:
    """Return decimals, NULL for those below ``low`` or above ``high``."""
    fits = pc.and_(pc.greater_equal(values, _big(low)), pc.less_equal(values, _big(high)))
    return _where(fits, values)


def _big(number: int) -> pa.Scalar:
    return pa.scalar(str(number)).cast(pa.decimal256(76, 0))


def _to_decimal_or_null(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    kinds = pa.types
    if kinds.is_boolean(values.type):
        values = values.cast(pa.int8())
    if kinds.is_floating(values.type):
        # As in Spark: the shortest text that represents the double.
        values = values.cast(pa.float64())
        values = _where(pc.is_finite(values), values).cast(STRING)
    if kinds.is_string(values.type):
        values = _numbers(values, FLOAT_NUMBER, wanted)
        size = pc.abs(cast_array(values, pa.float64()))
        values = _where(pc.less(size, _TOO_LARGE), values)
        values = cast_array(values, pa.decimal256(76, 38))
    elif is_integral(values.type):
        values = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
    values = values.cast(pa.decimal256(76, max(values.type.scale, wanted.scale)))
    values = pc.round(values, wanted.scale, round_mode="half_towards_infinity")
    values = values.cast(pa.decimal256(76, wanted.scale))
    unscaled = 10**wanted.precision - 1
    limit = pa.scalar(f"{unscaled}E-{wanted.scale}").cast(pa.decimal256(76, wanted.scale))
    return _where(pc.less_equal(pc.abs(values), limit), values).cast(wanted)


def _wrap(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return numbers as integers of fewer bits, by their low bits, like casts in Java."""
    unknown = plain_numbers(pc.is_null(values))
    if pa.types.is_floating(values.type):
        wide = _clip(plain_numbers(values.cast(pa.float64()).fill_null(0.0)), wanted)
    elif pa.types.is_decimal(values.type):
        wide = _low_words(pc.trunc(values).cast(pa.decimal128(38, 0)))
    else:
        wide = plain_numbers(values.cast(pa.int64()).fill_null(0))
    return plain_array(wide.astype(wanted.to_pandas_dtype()), unknown)


def _clip(numbers: NDArray[np.float64], wanted: pa.DataType) -> NDArray[np.int64]:
    """Return doubles as integers like Java: the nearest int or bigint, 0 for NaN."""
    bits = 63 if wanted == pa.int64() else 31
    limit = 2.0**bits
    numbers = np.trunc(np.nan_to_num(numbers, nan=0.0, posinf=limit, neginf=-limit))
    above, below = numbers >= limit, numbers < -limit
    whole: NDArray[np.int64] = np.where(above | below, 0.0, numbers).astype(np.int64)
    whole[above], whole[below] = 2**bits - 1, -(2**bits)
    return whole


def _low_words(values: pa.Array) -> NDArray[np.int64]:
    """Return the low 64 bits of decimals of 128 bits."""
    words = np.frombuffer(values.buffers()[1], "<i8")
    return words[2 * values.offset : 2 * (values.offset + len(values)) : 2]
