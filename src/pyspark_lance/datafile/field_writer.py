"""FieldWriter: what writes one top-level field of one file, in any 2.x version."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class FieldWriter(Protocol):
    """One top-level field with its whole subtree; it buffers and cuts pages by itself.

    Physical columns are numbered depth first: a writer is made with the number of its first
    column and says how many it takes.
    """

    @property
    def num_columns(self) -> int:
        """Physical columns of the subtree."""

    @property
    def column_of(self) -> dict[int, int]:
        """Field id -> physical column, for every field of the subtree that has one."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes collected and not yet written as pages."""

    def write(self, array: pa.Array) -> None:
        """Append rows; full pages are written to the sink."""

    def own(self) -> None:
        """Copy what is buffered, so that nothing refers to the arrays that were written."""

    def flush(self) -> None:
        """Write what is still buffered."""
