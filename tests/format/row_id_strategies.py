"""Hypothesis strategies for row ids, deleted offsets and damaged bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from pyspark_lance.format.row_id_sequence import RowIdSequence

_BASES = st.sampled_from([0, 1, 100, 2**16 - 3, 2**32 - 5, 2**40, 2**63 - 7, 2**64 - 5000])


@st.composite
def u64_arrays(draw, max_size: int = 60) -> np.ndarray:
    """Dense, sparse, sorted, unsorted and huge numbers, distinct."""
    base = draw(_BASES)
    spread = draw(st.sampled_from([max_size, 4 * max_size, 4000]))
    values = draw(st.lists(st.integers(0, spread), max_size=max_size, unique=True))
    if draw(st.booleans()):
        values.sort()
    if values and base == 0 and draw(st.booleans()):
        values[-1] = draw(st.sampled_from([70_000, 2**33, 2**64 - 1]))
    return np.array([base + value for value in values], dtype=np.uint64)


@st.composite
def sequences(draw) -> RowIdSequence:
    """Several segments of any shape; the same id may occur twice."""
    return RowIdSequence.concat(
        [RowIdSequence.from_array(values) for values in draw(st.lists(u64_arrays(), max_size=4))]
    )


@st.composite
def damaged(draw, data: bytes) -> bytes:
    """``data`` cut short, or with some bits flipped."""
    if draw(st.booleans()):
        return data[: draw(st.integers(0, max(0, len(data) - 1)))]
    broken = bytearray(data)
    for _ in range(draw(st.integers(1, 3)) if data else 0):
        broken[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(broken)
