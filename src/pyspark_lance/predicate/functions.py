"""Scalar functions of conditions: their kernels over Arrow arrays.

Every function returns null for a null argument (``coalesce`` is not among them, as it is lazy and
part of the evaluation).  No I/O.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.time_zones import to_local_seconds, year_of
from pyspark_lance.predicate.tree import Call
from pyspark_lance.predicate.types import TIMESTAMP

Kernel = Callable[[Call, list[pa.Array]], pa.Array]


def _checked(kernel: Callable[[pa.Array], pa.Array], what: str) -> Kernel:
    def run(call: Call, arguments: list[pa.Array]) -> pa.Array:
        try:
            return kernel(arguments[0])
        except pa.ArrowInvalid as error:
            raise InvalidInputError(f"{what} does not fit {call.type}") from error

    return run


def _change_case(
    ascii_kernel: Callable[[pa.Array], pa.Array], full: Callable[[str], str]
) -> Kernel:
    def run(_: Call, arguments: list[pa.Array]) -> pa.Array:
        text = arguments[0]
        if pc.all(pc.string_is_ascii(text)).as_py() is not False:
            return ascii_kernel(text)
        # Arrow maps one character to one; Spark (like Python) turns ß into SS.
        distinct = text.dictionary_encode()
        changed = [full(value) for value in distinct.dictionary.to_pylist()]
        return pa.array(changed, pa.string()).take(distinct.indices)

    return run


def _length(_: Call, arguments: list[pa.Array]) -> pa.Array:
    text = arguments[0]
    kernel = pc.utf8_length if pa.types.is_string(text.type) else pc.binary_length
    return kernel(text).cast(pa.int32())


def _substring(call: Call, arguments: list[pa.Array]) -> pa.Array:
    start, length = call.options
    text = arguments[0]
    first = start - 1 if start > 0 else start
    if length is None:
        return pc.utf8_slice_codeunits(text, first)
    stop = first + length
    if length <= 0:
        return pc.utf8_slice_codeunits(text, 0, 0)
    if first < 0 <= stop:
        return pc.utf8_slice_codeunits(text, first)
    return pc.utf8_slice_codeunits(text, first, stop)


def _concat(_: Call, arguments: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*arguments, "", null_handling="emit_null")


def _part(kernel: Callable[[pa.Array], pa.Array]) -> Kernel:
    """Return the kernel for a part of a date, or of a timestamp in the session's time zone."""

    def run(call: Call, arguments: list[pa.Array]) -> pa.Array:
        moments = arguments[0]
        if moments.type == TIMESTAMP:
            moments = to_local_seconds(moments, call.options[0])
        return kernel(moments).cast(pa.int32())

    return run


FUNCTIONS: dict[str, Kernel] = {
    "abs": _checked(pc.abs_checked, "an absolute value"),
    "negative": _checked(pc.negate_checked, "a negated value"),
    # For sessions without ANSI mode: the least integer is unchanged.
    "wrapping_abs": lambda _, arguments: pc.abs(arguments[0]),
    "wrapping_negative": lambda _, arguments: pc.negate(arguments[0]),
    "lower": _change_case(pc.ascii_lower, str.lower),
    "upper": _change_case(pc.ascii_upper, str.upper),
    "length": _length,
    "trim": lambda _, arguments: pc.utf8_trim(arguments[0], characters=" "),
    "ltrim": lambda _, arguments: pc.utf8_ltrim(arguments[0], characters=" "),
    "rtrim": lambda _, arguments: pc.utf8_rtrim(arguments[0], characters=" "),
    "substring": _substring,
    "concat": _concat,
    "year": _part(year_of),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
}
