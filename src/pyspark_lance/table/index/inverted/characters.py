"""Tables by which Lance makes tokens of words: stop words, and ASCII forms of characters.

Observed in pylance 14.0.2.
"""

from __future__ import annotations

import re
from typing import Final

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
