"""Substring search in arrays of texts.

A rare text is searched in the concatenated bytes of all texts: Arrow restarts the search for each
text, which takes three times as long.
"""

from __future__ import annotations

import re
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.plain_values import plain_array, plain_numbers

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
