"""RetainedRows: rows that two versions share, by their positions in the newer one.

Where a row was before follows from its row id, which both versions keep in their sequences; so it
is looked up by the reader of the row, and a plan does not carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.format.deletion_vector import DeletionVector, OffsetSet
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import row_addresses
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.table.rows.fragment_reader import FragmentReader, row_ids_of
from pyspark_lance.table.rows.lineage import Lineage
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table_files import TableFiles

_U64Array = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class RetainedRows:
    """Rows of one fragment that the older version has too, and that may hold other values."""

    before: tuple[Fragment, ...]  # Fragments of the older version that have them all.
    after: Fragment
    rows: OffsetSet  # Which rows of ``after``.
    # Those of them that lineage calls updated; values that were replaced without a trace in it are
    # known only by comparing them.
    updated: OffsetSet
    in_place: bool  # Whether the only fragment of ``before`` has each row at the same offset.

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, first: int, last: int) -> RetainedRows:
        """Return some of the rows, counted by their offsets."""
        rows = self.rows.part(first, last)
        return replace(self, rows=rows, updated=self.updated.both(rows))

    def only_updated(self) -> RetainedRows:
        """Return the rows that are updated by their lineage."""
        return replace(self, rows=self.updated)


def join_rows(parts: Sequence[RetainedRows]) -> RetainedRows:
    """Merge rows of one new fragment to one value; ``parts`` are in place or not, all of them."""
    if len(parts) == 1:
        return parts[0]
    before = {fragment.id: fragment for part in parts for fragment in part.before}
    return replace(
        parts[0],
        before=tuple(before.values()),
        rows=OffsetSet.union(part.rows for part in parts),
        updated=OffsetSet.union(part.updated for part in parts),
    )


@dataclass(frozen=True, slots=True)
class RowAddressPairs:
    """Rows one by one; arrays of one length."""

    row_ids: _U64Array  # uint64.
    before: _U64Array  # Addresses in the older version, uint64.
    after: _U64Array  # Addresses in the newer version, uint64.
    updated: NDArray[np.bool_]  # As in ``RetainedRows``.

    def __len__(self) -> int:
        return len(self.row_ids)

    def select(self, rows: NDArray[np.bool_] | slice) -> RowAddressPairs:
        """Select some of the rows."""
        return RowAddressPairs(
            self.row_ids[rows], self.before[rows], self.after[rows], self.updated[rows]
        )


def lineage_of(files: TableFiles, fragment: Fragment) -> Lineage:
    """Compute the lineage columns of one fragment of a version with stable row ids."""
    return FragmentReader(files, fragment, stable_row_ids=True).lineage


def index_of(
    files: TableFiles, fragments: Iterable[tuple[Fragment, DeletionVector | None]]
) -> RowIdIndex:
    """Build an index of the rows of fragments by their ids, without some rows of each."""
    return RowIdIndex.build(
        (fragment.id, row_ids_of(files, fragment), without) for fragment, without in fragments
    )


class RetainedRowAddresses:
    """Positions of retained rows, one by one; row ids are decoded when first needed."""

    def __init__(
        self, kept: Sequence[RetainedRows], files_before: TableFiles, files_after: TableFiles
    ) -> None:
        self._kept, self._before, self._after = kept, files_before, files_after
        self._index: RowIdIndex | None = None
        self._lineage: tuple[Fragment, Lineage] | None = None

    def row_ids(self, fragment: Fragment, offsets: NDArray[np.uint32]) -> _U64Array:
        """Return row ids of the newer version; fast if the last call had the same fragment."""
        if self._lineage is None or self._lineage[0] is not fragment:
            self._lineage = fragment, lineage_of(self._after, fragment)
        return self._lineage[1].take(ROW_ID, offsets)

    def of(
        self, part: RetainedRows, offsets: NDArray[np.uint32], row_ids: _U64Array
    ) -> RowAddressPairs:
        """Locate some of the rows of a part of ``kept``."""
        after = row_addresses(part.after.id, offsets)
        updated = part.updated.contains_each(offsets)
        if part.in_place:
            return RowAddressPairs(
                row_ids, row_addresses(part.before[0].id, offsets), after, updated
            )
        before, found = self._find_before(row_ids)
        if not found.all():
            raise CorruptFileError(
                f"row id {row_ids[np.argmin(found)]} is not in the version before",
                where=self._before.table.uri,
            )
        return RowAddressPairs(row_ids, before, after, updated)

    def _find_before(self, row_ids: _U64Array) -> tuple[_U64Array, NDArray[np.bool_]]:
        """Return the addresses in the older version, and which rows have one."""
        # A row is live in one fragment. Deletion files show which one that is, which matters only
        # if it has been in another of these fragments before.
        try:
            self._index = self._index or _index_before(self._kept, self._before)
            return self._index.addresses_of(row_ids)
        except CorruptFileError:  # two rows have the same id
            self._index = _index_before(self._kept, self._before, with_deletions=True)
            return self._index.addresses_of(row_ids)


def row_address_pairs(
    kept: Sequence[RetainedRows], files_before: TableFiles, files_after: TableFiles
) -> Iterator[RowAddressPairs]:
    """The rows one by one, a bounded number at a time, in the order of ``kept``."""
    retained = RetainedRowAddresses(kept, files_before, files_after)
    for part in kept:
        for offsets in part.rows.windows():
            yield retained.of(part, offsets, retained.row_ids(part.after, offsets))


def _index_before(
    kept: Sequence[RetainedRows], files: TableFiles, *, with_deletions: bool = False
) -> RowIdIndex:
    fragments = {
        fragment.id: fragment for part in kept if not part.in_place for fragment in part.before
    }
    return index_of(
        files,
        (
            (
                fragment,
                load_deletion_vector(files, fragment, stable_row_ids=True)
                if with_deletions
                else None,
            )
            for fragment in fragments.values()
        ),
    )


def join_pairs(parts: Sequence[RowAddressPairs]) -> RowAddressPairs:
    """Concatenate all rows of ``parts``; there is at least one part."""
    if len(parts) == 1:
        return parts[0]

    def joined(get: Callable[[RowAddressPairs], NDArray]) -> NDArray:  # type: ignore[type-arg]
        return np.concatenate([get(part) for part in parts])

    return RowAddressPairs(
        joined(lambda part: part.row_ids),
        joined(lambda part: part.before),
        joined(lambda part: part.after),
        joined(lambda part: part.updated),
    )
