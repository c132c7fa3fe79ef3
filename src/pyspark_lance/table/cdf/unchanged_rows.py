"""Proofs that the rows of a removed version are those of a later one that is left.

Compactions, indices and configuration create versions with the rows of the version before.  A
reader that has seen a version which is removed by now can continue with a later one, if what is
left proves that they are the same:

* The later one directly follows, and its transaction moves no rows.
* Or its lineage shows it.  A row keeps the number of the version that inserted or updated it last.
  If no number is above that of version V, and some are V, then the later version descends from V
  (a restore of a version before V has no row of V), and all of its rows were there.  If it has as
  many rows as V had, none was deleted.  If no row id was assigned since, none was added.

Everything that is not proven counts as changed.  Deletes leave no trace in the lineage of other
rows, so the number of rows has to be remembered; and a version that only deletes rows cannot be
V.  A fragment of several data files may have got one of them without a trace in the lineage, from
old releases of Lance.

Source: docs/format/table-format.md, sections 6.3, 7.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pyspark_lance.errors import CorruptFileError, VersionNotFoundError
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT
from pyspark_lance.format.fragment import TOMBSTONE, Fragment
from pyspark_lance.format.fragments import PARSED
from pyspark_lance.format.operation import (
    CreateIndex,
    Operation,
    ReserveFragments,
    Rewrite,
    UpdateBases,
    UpdateConfig,
)
from pyspark_lance.metafile.manifest_file import ManifestLocation, load_transaction
from pyspark_lance.table.scan.fragment_pruning import (
    compute_bounds,
    counted_fragments,
    fragment_bounds,
)
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The rows of a version, as far as it takes to recognize them in a later one."""

    stamped: int  # The version that changed rows last; some of the rows have its number.
    count: int  # How many rows there are.
    next_row_id: int  # The first row id that was not given out.
    columns: str  # Digest of the columns; '' if they are not known.

    def to_text(self) -> str:
        """Serialize for the checkpoint."""
        return f"{self.stamped}-{self.count}-{self.next_row_id}-{self.columns}"

    @classmethod
    def from_text(cls, text: str) -> LiveRows:
        """Parse the output of ``to_text``."""
        *numbers, columns = text.split("-")
        if len(numbers) != 3 or not all(one.isascii() and one.isdigit() for one in numbers):
            raise CorruptFileError(f"{text!r} does not describe the rows of a version")
        stamped, count, next_row_id = map(int, numbers)
        return cls(stamped, count, next_row_id, columns)


def live_rows(
    table: Table,
    version: int,
    locations: Mapping[int, ManifestLocation],
    known: Mapping[int, LiveRows],
) -> LiveRows | None:
    """Describe the rows of a version; None if nothing could recognize them later.

    Args:
        table: The table or branch.
        version: The version.
        locations: The manifests that are left, by version.
        known: The rows of earlier versions, where they were described before.
    """
    snapshot = at = _load(table, locations[version])
    while at.version not in known:
        operation = _operation_of(at)
        if operation is None:
            return None
        if not moves_no_rows(operation):
            if not _stamps_rows(at):
                return None
            return _describe_live_rows(snapshot, stamped=at.version)
        if at.version - 1 not in locations:
            return None
        at = _load(table, locations[at.version - 1])
    return _describe_live_rows(snapshot, stamped=known[at.version].stamped)


def has_rows_of(
    table: Table, removed: int, rows: LiveRows | None, location: ManifestLocation
) -> bool:
    """Return True if a version is proven to have the rows of an earlier one that was removed.

    Args:
        table: The table or branch.
        removed: The number of the earlier one.
        rows: Its rows; None if they are not known.
        location: The manifest of the later one.
    """
    later = _load(table, location)
    if later.version == removed + 1 and _moved_no_rows(later):
        return True
    if rows is None:
        found = _describe_live_rows(later, stamped=removed)
        # With all row ids in use, no row was ever deleted.
        rows = found if found.count == found.next_row_id else None
    return rows is not None and _is_recognized(later, rows)


def last_changed_version(table: Table, after: int, end: int) -> int:
    """Return the last version in ``(after, end]`` that may have changed rows; ``after`` for none.

    This usually reads the transaction of ``end`` alone.
    """
    for version in range(end, after, -1):
        try:
            if not _moved_no_rows(Snapshot.open(table, VersionSpec(version=version))):
                return version
        except VersionNotFoundError:
            return version
    return after


def moves_no_rows(operation: Operation) -> bool:
    """Return True if a version has the rows and columns of the one before it, wherever they are."""
    if isinstance(operation, UpdateConfig):
        return not (
            operation.schema_metadata_updates
            or operation.field_metadata_updates
            or operation.schema_metadata
            or operation.field_metadata
        )
    return isinstance(operation, Rewrite | CreateIndex | ReserveFragments | UpdateBases)


def _load(table: Table, location: ManifestLocation) -> Snapshot:
    return Snapshot.load(table, table.store(), location)


def _moved_no_rows(snapshot: Snapshot) -> bool:
    """Return True if the version is known to have the rows of the one before it."""
    operation = _operation_of(snapshot)
    return operation is not None and moves_no_rows(operation)


def _operation_of(snapshot: Snapshot) -> Operation | None:
    transaction = load_transaction(snapshot.store, snapshot.file)
    return None if transaction is None else transaction.operation


def _stamps_rows(snapshot: Snapshot) -> bool:
    """Return True if some rows have the number of the version itself."""
    fragments = counted_fragments(snapshot)
    # New fragments have the highest ids, so most versions need no look at the others.
    newest = fragments.take(slice(max(0, len(fragments) - PARSED), None))
    for some in (newest, fragments):
        _, last = compute_bounds(snapshot, some, LAST_UPDATED_AT)
        if (last == snapshot.version).any():
            return True
    return False


def _describe_live_rows(snapshot: Snapshot, *, stamped: int) -> LiveRows:
    columns = [
        (field.id, field.name, field.logical_type, len(field.children))
        for field in snapshot.schema.walk()
    ]
    return LiveRows(
        stamped,
        int(counted_fragments(snapshot).columns.num_rows.sum()),
        snapshot.manifest.next_row_id,
        hashlib.sha256(repr(columns).encode()).hexdigest()[:16],
    )


def _is_recognized(later: Snapshot, rows: LiveRows) -> bool:
    if not later.uses_stable_row_ids or _describe_live_rows(later, stamped=rows.stamped) != rows:
        return False
    fragments = counted_fragments(later)
    _, created = fragment_bounds(later, fragments, CREATED_AT)
    _, updated = fragment_bounds(later, fragments, LAST_UPDATED_AT)
    stamped = np.uint64(rows.stamped)
    if (created > stamped).any() or not (updated == stamped).any() or (updated > stamped).any():
        return False
    return all(map(_is_as_written, fragments))


def _is_as_written(fragment: Fragment) -> bool:
    """Return True if no column was added or replaced since the rows were written."""
    return len(fragment.files) == 1 and TOMBSTONE not in fragment.files[0].fields
