"""Casts without ANSI mode: a value that does not fit becomes NULL or wraps around.

Only casts that can fail differ from those in ``casts``.  No I/O; no loop over rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array, plain_numbers, plain_scalar
from pyspark_lance.predicate.casts import FLOAT_NUMBER, FLOAT_TEXT, LEAVE_TO_SPARK, cast_array
from pyspark_lance.predicate.time_texts import dates_of, times_of, timestamps_of
from pyspark_lance.predicate.tree import always_fits
from pyspark_lance.predicate.types import (
    BINARY,
    DATE,
    STRING,
    TIME,
    is_integral,
    is_numeric,
    type_name,
)

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
        return _to_decimal(values, wanted)
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
    """Return the trimmed texts of numbers, NULL for others."""
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


def _to_decimal(values: pa.Array, wanted: pa.DataType) -> pa.Array:
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
