"""Assign row ids and row versions to fragments added by a commit; pure, no I/O.

An executor knows neither the version that its rows will belong to nor the free row ids.  Both are
assigned here from the newest manifest, again for every attempt.  All sequences are aligned with the
physical rows of a fragment, deleted ones included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.fragment import SPILLED, Fragment, SequenceSource
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.u64_segment import RangeSegment, U64Segment
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence

# Version that a row of a fragment without version metadata reads as.
_ABSENT_VERSION = 1

_MAX_ROW_ID = 2**64 - 1


def inline_bytes(source: SequenceSource, what: str, fragment: Fragment) -> bytes | None:
    """Return the serialized sequence of a fragment, or None."""
    if source is None or isinstance(source, bytes):
        return source
    raise UnsupportedFeatureError(
        f"the {what} of the rows are stored outside the manifest", f"fragment {fragment.id}"
    )


def row_ids_of(fragment: Fragment) -> RowIdSequence | None:
    """Return the stable row ids in the fragment's metadata."""
    data = inline_bytes(fragment.row_ids, "row ids", fragment)
    return None if data is None else RowIdSequence.from_bytes(data)


def created_at_of(fragment: Fragment) -> RowDatasetVersionSequence | None:
    """Return the versions that created the rows, if recorded."""
    data = inline_bytes(fragment.created_at, "created-at versions", fragment)
    return None if data is None else RowDatasetVersionSequence.from_bytes(data)


def last_updated_at_of(fragment: Fragment) -> RowDatasetVersionSequence | None:
    """Return the versions that last updated the rows, if recorded."""
    data = inline_bytes(fragment.last_updated_at, "last-updated-at versions", fragment)
    return None if data is None else RowDatasetVersionSequence.from_bytes(data)


def assign_lineage(
    fragment: Fragment, *, next_row_id: int, version: int, sources: Iterable[Fragment] = ()
) -> tuple[Fragment, int]:
    """Assign the row ids and versions that a new fragment lacks.

    Row ids in the fragment's metadata belong to its first rows, which moved into it; the rows after
    them are new and get ids from ``next_row_id`` on.

    Returns the completed fragment and the next unused row id.
    """
    num_rows = fragment.physical_rows
    updated = RowDatasetVersionSequence.constant(num_rows, version).to_bytes()
    if SPILLED in (fragment.row_ids, fragment.created_at):
        # Hidden columns cover all rows, and all of them moved.
        return replace(fragment, last_updated_at=updated), next_row_id
    carried = row_ids_of(fragment)
    num_moved = 0 if carried is None else len(carried)
    if num_moved > num_rows:
        raise InvalidInputError(f"{num_moved} row ids for a fragment of {num_rows} rows")
    after = next_row_id + num_rows - num_moved
    if after > _MAX_ROW_ID:
        raise InvalidInputError("the table has used up its 2^64 row ids")

    if carried is None or num_moved == 0:
        row_ids = RowIdSequence.consecutive(next_row_id, num_rows).to_bytes()
        created = RowDatasetVersionSequence.constant(num_rows, version)
    else:
        moved = carried.to_array()
        new = np.arange(next_row_id, after, dtype=np.uint64)
        row_ids = (
            RowIdSequence.from_array(np.concatenate([moved, new])).to_bytes()
            if len(new)
            else inline_bytes(fragment.row_ids, "row ids", fragment) or b""
        )
        created = _created_at(fragment, moved, version, sources)
    return (
        replace(fragment, row_ids=row_ids, created_at=created.to_bytes(), last_updated_at=updated),
        after,
    )


def _created_at(
    fragment: Fragment, moved: NDArray[np.uint64], version: int, sources: Iterable[Fragment]
) -> RowDatasetVersionSequence:
    """Return copied versions for moved rows and ``version`` for the new rows after them."""
    given = created_at_of(fragment)  # set if the rows were moved with their lineage
    if given is not None and len(given) not in (len(moved), fragment.physical_rows):
        raise InvalidInputError(
            f"{len(given)} created-at versions for {len(moved)} moved rows",
            f"fragment {fragment.id}",
        )
    known = find_created_at(moved, sources, version) if given is None else given.to_array()
    new = np.full(fragment.physical_rows - len(known), version, dtype=np.uint64)
    return RowDatasetVersionSequence.from_array(np.concatenate([known, new]))


def find_created_at(
    row_ids: NDArray[np.uint64], sources: Iterable[Fragment], default: int
) -> NDArray[np.uint64]:
    """Return the created-at version of each row id, or ``default``.

    The first fragment that has the row decides.  Deleted rows count, since a row keeps its
    created-at version.
    """
    order = np.argsort(row_ids, kind="stable")
    wanted = row_ids[order]
    versions = np.full(len(wanted), default, dtype=np.uint64)
    missing = np.ones(len(wanted), dtype=bool)
    for fragment in sources if len(row_ids) else ():
        sequence = row_ids_of(fragment)
        if sequence is None:
            continue
        sequence.expect_length(fragment.physical_rows)
        created: RowDatasetVersionSequence | None = None
        first_offset = 0
        for segment in sequence.segments:
            indices, offsets = _offsets_in(segment, wanted, missing)
            if len(indices):
                created = created or _recorded_created_at(fragment)
                versions[indices] = created.take(offsets + first_offset)
                missing[indices] = False
            first_offset += len(segment)
        if not missing.any():
            break  # before the next fragments are decoded
    result = np.empty_like(versions)
    result[order] = versions
    return result


def _recorded_created_at(fragment: Fragment) -> RowDatasetVersionSequence:
    recorded = created_at_of(fragment)
    if recorded is None:
        return RowDatasetVersionSequence.constant(fragment.physical_rows, _ABSENT_VERSION)
    return recorded.expect_length(fragment.physical_rows)


def _offsets_in(
    segment: U64Segment, wanted: NDArray[np.uint64], missing: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which of the sorted ``wanted`` ids the segment contains, and their offsets in it."""
    bounds = segment.bounds()
    nothing = np.empty(0, dtype=np.int64)
    if bounds is None:
        return nothing, nothing
    low = int(np.searchsorted(wanted, np.uint64(bounds[0]), side="left"))
    high = int(np.searchsorted(wanted, np.uint64(bounds[1]), side="right"))
    indices = low + np.flatnonzero(missing[low:high])
    if not len(indices):
        return nothing, nothing
    candidates = wanted[indices]
    if isinstance(segment, RangeSegment):
        return indices, (candidates - np.uint64(bounds[0])).astype(np.int64)
    values = segment.to_array()
    by_value = np.argsort(values, kind="stable")
    position = np.searchsorted(values, candidates, sorter=by_value)
    offsets = by_value[np.minimum(position, len(values) - 1)]
    hit = values[offsets] == candidates
    return indices[hit], offsets[hit]


def mark_all_updated(fragment: Fragment, version: int) -> Fragment:
    """Return the fragment with every row last updated at ``version``."""
    versions = RowDatasetVersionSequence.constant(fragment.physical_rows, version)
    return replace(fragment, last_updated_at=versions.to_bytes())


def mark_updated(fragment: Fragment, offsets: NDArray[np.uint32], version: int) -> Fragment:
    """Return the fragment with the rows at ``offsets`` last updated at ``version``."""
    if not len(offsets):
        return fragment
    if int(offsets.max()) >= fragment.physical_rows:
        raise InvalidInputError(
            f"row offset {int(offsets.max())} of {fragment.physical_rows} rows",
            f"fragment {fragment.id}",
        )
    before = last_updated_at_of(fragment)
    if before is None:
        # As in compaction: an unmodified row was last updated when it was created, if that is
        # known.
        before = _recorded_created_at(fragment)
    before.expect_length(fragment.physical_rows)
    return replace(fragment, last_updated_at=before.replace_at(offsets, version).to_bytes())
