"""Scalar functions of conditions: kernels over Arrow arrays, substrings and sets of values.

Every function returns null for a null argument (``coalesce`` is not among them, as it is lazy and
part of the evaluation).  No I/O.

Substring search in arrays of texts. A rare text is searched in the concatenated bytes of all texts:
Arrow restarts the search for each text, which takes three times as long.

Membership tests of values in a set. Join keys are often many and close to each other. A bitmap over
the range of the numbers is 6 to 14 times as fast as Arrow's hash table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import numbers_with_default, plain_array, plain_numbers
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


# Each match costs as much as Arrow's search in some texts.
_TEXTS_PER_PLACE = 16
_ENDS = {
    pa.string(): np.int32, pa.binary(): np.int32,
    pa.large_string(): np.int64, pa.large_binary(): np.int64,
}  # fmt: skip


def contains(values: pa.Array | pa.Scalar, part: str | bytes) -> pa.Array | pa.Scalar:
    """Return whether each text, or binary value, contains ``part``; null for null."""
    wanted = part.encode() if isinstance(part, str) else part
    is_array = isinstance(values, pa.Array) and values.type in _ENDS
    if not is_array or not wanted or _can_overlap_itself(wanted):
        return pc.match_substring(values, pattern=part)
    ends = np.frombuffer(values.buffers()[1] or bytes(8), _ENDS[values.type])
    ends = ends[values.offset : values.offset + len(values) + 1]
    begin, content = int(ends[0]), memoryview(values.buffers()[2] or b"")[ends[0] : ends[-1]]
    most = len(values) // _TEXTS_PER_PLACE
    found = re.finditer(re.escape(wanted), content)
    places = [one.start() + begin for one in islice(found, most + 1)]
    if len(places) > most:
        return pc.match_substring(values, pattern=part)
    firsts = np.array(places, ends.dtype)
    rows = ends.searchsorted(firsts, "right") - 1
    has_it = np.zeros(len(values), np.bool_)
    # Other matches start in one text and end in the next.
    has_it[rows[firsts + len(wanted) <= ends[rows + 1]]] = True
    return plain_array(has_it, plain_numbers(values.is_null()) if values.null_count else None)


def matches(values: pa.Array | pa.Scalar, pattern: str, part: str) -> pa.Array | pa.Scalar:
    """Return whether each text has a match of ``pattern`` (RE2 syntax), which contains ``part``."""
    if not part or isinstance(values, pa.Scalar):
        return pc.match_substring_regex(values, pattern=pattern)
    may_match = contains(values, part)
    if may_match.true_count * 2 > len(values):
        return pc.match_substring_regex(values, pattern=pattern)
    some = pc.match_substring_regex(values.filter(may_match), pattern=pattern)
    if some.true_count == len(some):
        return may_match
    return pc.replace_with_mask(may_match, may_match.fill_null(False), some)


def _can_overlap_itself(text: bytes) -> bool:
    """Return whether two occurrences of a text may overlap, so that a search may miss one."""
    return any(text.startswith(text[first:]) for first in range(1, len(text)))


# A flag takes a byte; all are initialized again for each batch.
_FLAGS_PER_VALUE = 8
_FEWEST_VALUES = 256


def is_in(values: pa.Array, wanted: pa.Array) -> pa.BooleanArray:
    """Return whether each of ``values`` is one of ``wanted``, which has no null; false for null.

    Both are of one type; floats are compared by their bits.
    """
    flags = _bitmap(len(values), wanted)
    if flags is None:
        return pc.is_in(values, value_set=wanted, skip_nulls=True)
    least, is_wanted = flags
    numbers = numbers_with_default(least, values.view(_INTEGERS.get(values.type, values.type)))
    # Values outside of the range and nulls map to an end, which no wanted value has.
    places = np.clip(numbers, least, least + len(is_wanted) - 1) - least
    return plain_array(is_wanted[places])


_INTEGERS = {pa.date32(): pa.int32()}


def _bitmap(num_values: int, wanted: pa.Array) -> tuple[int, NDArray[np.bool_]] | None:
    """Return the number of the first flag, and the flags; None if a bitmap is unsuitable.

    The first and the last flag are of numbers outside the list.
    """
    kind = _INTEGERS.get(wanted.type, wanted.type)
    if not len(wanted) or num_values < _FEWEST_VALUES or kind not in (pa.int32(), pa.int64()):
        return None
    numbers = plain_numbers(wanted.view(kind))
    least, largest = int(numbers.min()) - 1, int(numbers.max()) + 1
    limits = np.iinfo(numbers.dtype)
    if least < limits.min or largest > limits.max:
        return None
    if largest - least >= _FLAGS_PER_VALUE * num_values:
        return None
    flags = np.zeros(largest - least + 1, np.bool_)
    flags[numbers - least] = True
    return least, flags
