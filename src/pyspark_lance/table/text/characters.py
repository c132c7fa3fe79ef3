"""Tables of characters and words by which Lance makes tokens: letters, stop words, ASCII forms.

Observed in pylance 14.0.2.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
# The stop words of English, as pylance 14 removes them.
_ENGLISH: Final = """
a about above after again against all am an and any are as at be because been before being below
between both but by can did do does doing down during each few for from further had has have
having he he'd he'll he's her here hers herself him himself his how i i'd i'll i'm i've if in into
is it it'd it'll it's its itself just me more most my myself now of off on once only or other our
ours ourselves out over own re same she she'd she'll she's should should've so some such than that
that'll the their theirs them themselves then there these they they'd they'll they're they've this
those through to too under until up very was we we'd we'll we're we've were what when where which
while who whom why will with you you'd you'll you're you've your yours yourself yourselves
"""
STOP_WORDS: Final = {"English": frozenset(_ENGLISH.split())}
# ASCII forms of letters that NFKD leaves whole.
_LETTERS: Final = "ßẞÆæŒœØøŁłĐÐđðÞþĦħŦŧŊŋıĸſ"
_FORMS: Final = "ss SS AE ae OE oe O o L l D D d d TH th H h T t N n i k s"
ASCII_FORMS: Final = dict(zip(_LETTERS, re.split(" ", _FORMS), strict=True))
_CODE_POINTS: Final = 0x110000
# Unicode 16 assigns no letter from here on.
_END_OF_LETTERS: Final = 0x32400


@cache
def alphanumeric() -> NDArray[np.bool_]:
    """Whether each code point is part of a word: Alphabetic, or a number (Nd, Nl, No)."""
    found = np.zeros(_CODE_POINTS, np.bool_)
    found[:_END_OF_LETTERS] = [chr(number).isalnum() for number in range(_END_OF_LETTERS)]
    end = 0
    for text in _MORE_LETTERS.split():
        distance, _, more = text.partition(".")
        start = end + int(distance, 16)
        end = start + int(more or "0", 16)
        found[start : end + 1] = True
    return found
