"""Words of texts as Lance finds them: runs of alphanumeric characters, in the bytes of UTF-8.

No I/O.
"""

from __future__ import annotations

from functools import cache
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_array, plain_numbers, single_value
from pyspark_lance.predicate.functions import contains

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
    places = np.flatnonzero(kept)
    if words and len(places):
        some = values.take(plain_array(places))
        kept[places] = _have_words(some, [word.encode() for word in words])
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
