"""Scalar functions of conditions: kernels over Arrow arrays, substrings and sets of values.

Every function returns null for a null argument (``coalesce`` is not among them, as it is lazy and
part of the evaluation).  No I/O.

Substring search in arrays of texts. A rare text is searched in the concatenated bytes of all texts:
Arrow restarts the search for each text, which takes three times as long.

Membership tests of values in a set. Join keys are often many and close to each other. A bitmap over
the range of the numbers is 6 to 14 times as fast as Arrow's hash table.

LIKE and RLIKE patterns of Spark, translated to substring searches or RE2 syntax.

Spark's RLIKE is a Java regular expression.  Constructs with another meaning in RE2, or without an
equivalent, are refused.  Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.plain_values import numbers_with_default, plain_array, plain_numbers
from pyspark_lance.predicate.time_texts import to_local_seconds, year_of
from pyspark_lance.predicate.tree import Call
from pyspark_lance.predicate.types import TIMESTAMP

Kernel = Callable[[Call, list[pa.Array]], pa.Array]


def _fitting(kernel: Callable[[pa.Array], pa.Array], what: str) -> Kernel:
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
    "abs": _fitting(pc.abs_checked, "an absolute value"),
    "negative": _fitting(pc.negate_checked, "a negated value"),
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


def like_pieces(pattern: str, escape: str = "\\") -> list[str | None]:
    """Split a LIKE pattern into literal texts, ``None`` for ``%`` and ``""`` for ``_``."""
    pieces: list[str | None] = []
    text: list[str] = []

    def end_text() -> None:
        if text:
            pieces.append("".join(text))
            text.clear()

    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None or following not in ("_", "%", escape):
                raise InvalidInputError(
                    f"the LIKE pattern {pattern!r} has its escape character {escape!r} before "
                    f"{'its end' if following is None else repr(following)}",
                    hint=f"{escape!r} may stand only before '_', '%' or itself; double it",
                )
            text.append(following)
        elif character in "%_":
            end_text()
            pieces.append(None if character == "%" else "")
        else:
            text.append(character)
    end_text()
    return pieces


def like_regex(pieces: list[str | None]) -> str:
    """Return the RE2 pattern that is equivalent to the LIKE pattern."""
    parts = [".*" if piece is None else re2_quote(piece) or "." for piece in pieces]
    return rf"\A(?s:{''.join(parts)})\z"


def re2_quote(text: str) -> str:
    """Return ``text`` as an RE2 pattern that matches only itself."""
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in text)


# Java's line terminators; RE2 only supports \n.
_NOT_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_LINE_END = r"(?:(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z)"
_SPACE = r"\t\n\x{b}\f\r "
_TOKEN = re.compile(
    r"""(?P<escape>\\[dDwWtnrf.\\^$|?*+(){}\[\]/\-"'\#&@!%_:;,<>=~`])
      | (?P<space>\\[sS])
      | (?P<class>\[(?:\^)?(?:\\[dDwWsStnrf.\\^$|?*+(){}\[\]/\-"'\#&@!%_:;,<>=~`]|[^\[\]\\&])+\])
      | (?P<group>\((?:\?:)?)(?!\?)
      | (?P<quantifier>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)(?![*+?{])
      | (?P<other>[.$^|)])
      | (?P<plain>[^\\\[\](){}*+?.^$|])
    """,
    re.VERBOSE | re.DOTALL,
)


def rlike_regex(pattern: str) -> str:
    r"""Return the RE2 pattern that is equivalent to the Java pattern ``pattern``.

    Raises:
        UnsupportedFeatureError: A construct without the same meaning in RE2: look-around,
            back-references, possessive quantifiers, flags, ``\b``, nested classes, ….
    """
    translated, position = [], 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            raise UnsupportedFeatureError(
                f"the regular expression {pattern!r} uses {pattern[position : position + 4]!r} at "
                f"position {position}, which is not supported here",
                hint="use plain classes, groups, alternatives and quantifiers; or filter in Spark",
            )
        translated.append(_translate(token))
        position = token.end()
    result = "".join(translated)
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidInputError(
            f"the regular expression {pattern!r} is invalid: {error}"
        ) from error
    return result


def required_text(pattern: str) -> str:
    """The longest text that all strings contain in which ``pattern`` is found; "" if unknown."""
    runs, run, depth = [""], "", 0
    for token in _TOKEN.finditer(pattern):
        text, kind = token.group(), token.lastgroup
        if kind == "other" and text == "|" and depth == 0:
            return ""
        depth += (kind == "group") - (text == ")")
        if kind == "quantifier" and not depth:
            is_optional = text[0] in "*?" or text.startswith("{0")
            runs.append(run[:-1] if is_optional else run)
            run = ""
        elif depth or kind not in ("plain", "escape") or (kind == "escape" and text[1].isalnum()):
            runs.append(run)
            run = ""
        else:
            run += text[-1]
    return max(*runs, run, key=len)


def _translate(token: re.Match[str]) -> str:
    text = token.group()
    match token.lastgroup:
        case "other":
            return {".": _NOT_LINE_END, "$": _LINE_END, "^": r"\A"}.get(text, text)
        case "space":
            return f"[{_SPACE}]" if text == r"\s" else f"[^{_SPACE}]"
        case "class":
            if r"\S" in text:
                raise UnsupportedFeatureError(
                    rf"the class {text!r} of a regular expression contains \S", hint="spell it out"
                )
            return text.replace(r"\s", _SPACE)
        case "escape":
            return text if text[1].isalnum() else re2_quote(text[1])
        case "plain":
            return re2_quote(text)
        case _:
            return text
