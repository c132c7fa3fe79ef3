"""HeldArrays: rows that wait for a page, referenced for as long as that is cheap.

A slice of a batch keeps all of the batch alive: a column of numbers next to one of documents
would hold on to every document until it has a page of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


class HeldArrays:
    """Arrays in the order in which they came."""

    def __init__(self) -> None:
        self._arrays: list[pa.Array] = []
        self._num_owned = 0

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, array: pa.Array) -> None:
        """Keep a reference."""
        self._arrays.append(array)

    def own(self) -> None:
        """Copy what still references the memory of others."""
        own, borrowed = self._arrays[: self._num_owned], self._arrays[self._num_owned :]
        self._arrays = own + [pa.concat_arrays([array]) for array in borrowed]
        self._num_owned = len(self._arrays)

    def take(self) -> Sequence[pa.Array]:
        """All of them, and forgets them."""
        arrays, self._arrays, self._num_owned = self._arrays, [], 0
        return arrays
