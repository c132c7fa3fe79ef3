"""Scalar functions of conditions: kernels over Arrow arrays, patterns, words and sets of values.

Every function returns null for a null argument (``coalesce``, which is lazy, is part of the
evaluation).

* Substring search: a rare text is searched in the concatenated bytes of all texts. Arrow restarts
  the search for each text, which takes three times as long.
* Membership: join keys are often many and close to each other. A bitmap over the range of the
  numbers is 6 to 14 times as fast as Arrow's hash table.
* Patterns: LIKE and RLIKE are translated to substring searches or RE2 syntax. RLIKE is a Java
  regular expression in Spark: constructs with another meaning in RE2, or without an equivalent, are
  refused.
* Words are those of Lance: runs of alphanumeric characters, in the bytes of UTF-8.

No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.plain_values import (
    numbers_with_default,
    plain_array,
    plain_numbers,
    single_value,
)
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
    indices = [one.start() + begin for one in islice(found, most + 1)]
    if len(indices) > most:
        return pc.match_substring(values, pattern=part)
    firsts = np.array(indices, ends.dtype)
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
    indices = np.clip(numbers, least, least + len(is_wanted) - 1) - least
    return plain_array(is_wanted[indices])


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


_Numbers: TypeAlias = NDArray[np.int64]
_Flags: TypeAlias = NDArray[np.bool_]

# Alphanumeric characters of Unicode 16 that ``str.isalnum`` of Python 3.11 does not know: marks and
# symbols that are Alphabetic, and letters of newer Unicode versions. Hexadecimal: the distance to
# the end of the range before, then a dot and how many characters more the range has.
_MORE_LETTERS: Final = """
345 1e.c 241.d 2 2.1 2.1 2 49.a 31.c 2.6 11 66.6 5.3 3.1 5 24 1f.f 67.a 66.1 4.8 2.2 2.3 63 8
3d.b 4.6 7.13 37.1 3.e 2.1 6.2 b.1 1e.2 3b.6 3.1 3.1 b b.1 1e.2 3b.4 5.1 3.1 5 1f.1 4 c.2 3b.7
2.2 2.1 16.1 17.2 5.2 3b.6 3.1 3.1 a.1 b.1 1f 3c.4 4.2 2.2 b 29.4 3a.6 2.2 2.2 9.1 6 6.1 1e.2
3b.6 2.2 2.2 9.1 6 6.1 10 d.3 3b.6 2.2 2.2 b b.1 1e.2 4c.5 2 2.7 13.1 3e 3.6 13 64 3.5 2.1 11
a4.12 a.a 2.23 6f.b 2 3.3 18.3 5.2 2.2 3.6 4.3 e.b 2 b.3 675.1 1f.1 1f.1 1f.1 43.12 bd.1 23 77.b
5.8 df.4 3a.9 3.13 4b.1 c.2 32.4 31.e 3d.2 1f.8 3.1 3a.a 33.12 53.1 149.21 6c2.33 8f7.1f 7875.7
23.1 12c.4 3 2 6.2 15 11 9 18.4 59.1 33.f 2 3a 27.4 1d.b 2e.3 31.b 26 44.d d 9.1 2e.2 33 2.2 3.1
6 2d.4 6 ee.7 4f34 858.4 246.33 34d.19 a8.2 2.1 6.3 315.3 19.25 4 6.16 126.1 16.5 33.2 104.2
36.d 2e.1 c.2 2e.8 a 3e.2 25.b 13.1 3a.2 31.c f.1 5d.8 3 7.3 9e.9 18.3 3b.6 3.1 3.1 b b.1 1d.9 2
3 2.25 2.9 2 3 2.3 2.1 4 2 62.c 2.2 6b.11 ee.6 3.6 1e.1 53.e 2 6b.a 1b.13 3a.d 102.c f8.5 2.1
3.1 4 2 8f.6 3.5 5 1d.9 2b.4 2.3 13.a 2f.d c9.7 59.20 10.9 36.7 2.6 54.15 2.d 7b.5 4 2.1 2.2 2 4
43.4 2.1 2.3 1a.2b 5.9 10a.3 a.10 2.28 4.2 10.9 14d6 12.5 1a.f9a 1d06.2e 2.9 c07.2c 4.9 127.18
3.18 7c 2.36 8.3 5e.6 1802.7 500 a.15 62.72 2340 23 b49 1052.9 5c7.13 c52.5 d6.6 2.10 3.6 2.1
2.4 6.3d 22 441.1b 5.9 d7.1d 3.a c6.1e 2.15 9.1 248 7e9.19 7.19 7.19 fa67.26d 24f3.105f
"""
_CODE_POINTS: Final = 0x110000
# Unicode 16 assigns no letter from here on.
_END_OF_LETTERS: Final = 0x32400


@cache
def alphanumeric() -> NDArray[np.bool_]:
    """Return whether each code point is part of a word: Alphabetic, or a number (Nd, Nl, No)."""
    found = np.zeros(_CODE_POINTS, np.bool_)
    found[:_END_OF_LETTERS] = [chr(number).isalnum() for number in range(_END_OF_LETTERS)]
    end = 0
    for text in _MORE_LETTERS.split():
        distance, _, more = text.partition(".")
        start = end + int(distance, 16)
        end = start + int(more or "0", 16)
        found[start : end + 1] = True
    return found


def words_of(text: str) -> list[str]:
    """Return the distinct words of one text, in its order."""
    data, offsets = text_bytes(single_value(text.encode(), pa.large_string()))
    starts, lengths = word_runs(offsets, word_bytes(data))
    ends = (starts + lengths).tolist()
    content = data.tobytes()
    found = [content[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
    return list(dict.fromkeys(word.decode() for word in found))


def contains_words(values: pa.Array | pa.Scalar, text: str) -> pa.Array | pa.Scalar:
    """Return whether each text has all words of ``text``; null for null."""
    if isinstance(values, pa.Scalar):
        return contains_words(pa.repeat(values, 1), text)[0]
    kept = ~plain_numbers(values.is_null())
    words = words_of(text)
    for word in words:
        kept &= plain_numbers(contains(values, word).fill_null(False))
    indices = np.flatnonzero(kept)
    if words and len(indices):
        some = values.take(plain_array(indices))
        kept[indices] = _have_words(some, [word.encode() for word in words])
    return plain_array(kept, plain_numbers(values.is_null()) if values.null_count else None)


def _have_words(texts: pa.Array, words: list[bytes]) -> _Flags:
    """Return which of some texts, none of them null, have all words."""
    data, offsets = text_bytes(texts.cast(pa.large_string()))
    starts, lengths = word_runs(offsets, word_bytes(data))
    has_all = np.ones(len(texts), np.bool_)
    for word in words:
        wanted = np.frombuffer(word, np.uint8)
        here = starts[lengths == len(word)]
        here = here[data[here] == wanted[0]]
        equal = (data[here[:, None] + np.arange(len(word))] == wanted).all(axis=1)
        has_it = np.zeros(len(texts), np.bool_)
        has_it[np.searchsorted(offsets, here[equal], "right") - 1] = True
        has_all &= has_it
    return has_all


def text_bytes(texts: pa.LargeStringArray) -> tuple[NDArray[np.uint8], _Numbers]:
    """Return the UTF-8 of all texts without gaps, and where each begins, the end last."""
    if texts.null_count:
        texts = texts.fill_null("")
    _, offset_buffer, data = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(texts) + 1, texts.offset * 8)
    first, last = int(offsets[0]), int(offsets[-1])
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return content[first:last], offsets - first


def word_bytes(data: NDArray[np.uint8]) -> _Flags:
    """Return whether each byte of UTF-8 is of an alphanumeric character."""
    known = alphanumeric()
    if not len(data) or data.max() < 0x80:
        return known[:0x80][data]
    letters = known[_code_points(data)]
    return letters[np.cumsum(character_starts(data)) - 1]


def character_starts(data: NDArray[np.uint8]) -> _Flags:
    """Return whether each byte of UTF-8 is the first of a character."""
    return (data & 0xC0) != 0x80


def _code_points(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.frombuffer(data.tobytes().decode().encode("utf-32-le"), "<u4")


def word_runs(offsets: _Numbers, in_word: _Flags) -> tuple[_Numbers, _Numbers]:
    """Return starts and lengths of the maximal runs of bytes of words, none across texts."""
    begins = in_word.copy()
    begins[1:] &= ~in_word[:-1]
    heads = offsets[:-1][offsets[:-1] < len(in_word)]
    begins[heads] = in_word[heads]
    starts = np.flatnonzero(begins)
    lengths = np.zeros(len(starts), np.int64)
    if len(starts):
        lengths = np.add.reduceat(in_word, starts, dtype=np.int64)
    return starts, lengths
