"""Lookup of candidate rows of a predicate in the indices of a version.

Each term on a single column is looked up in the indices over this column, segment by segment;
fragments without coverage are not pruned. An unreadable index is ignored with a warning. The
predicate is always evaluated on the rows as well, so lookups may return a superset.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.index_metadata import IndexMetadata, ReuseVersions, current_coverage
from pyspark_lance.format.row_address import OFFSET_BITS
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.prune import ColumnPath
from pyspark_lance.predicate.single_column import (
    is_true_for_null,
    required_words,
    rows_that_may_match,
)
from pyspark_lance.table.index.bitmap import BitmapIndex, LabelIndex
from pyspark_lance.table.index.bloom import BloomIndex
from pyspark_lance.table.index.btree import BTree
from pyspark_lance.table.index.index_file import ColumnQuery, Limits, row_id_index
from pyspark_lance.table.index.inverted.word_lookup import WordLookup
from pyspark_lance.table.index.ngram import NgramIndex
from pyspark_lance.table.index.segments import (
    BITMAP,
    BLOOMFILTER,
    BTREE,
    INVERTED,
    LABEL_LIST,
    NGRAM,
    Segment,
    indexed_field_at,
    map_addresses,
    path_of,
    reuse_versions,
    segment_of,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

logger = logging.getLogger(__name__)

# Kinds with false positives.
_INEXACT: Final = (INVERTED, NGRAM, BLOOMFILTER)
# Rows, and fraction of an index, that are always worth reading.
_FREE_ROWS: Final = 65_536
_WORTHWHILE_SHARE: Final = 8
# Maximum rows that all B-tree segments together search for single numbers, at some ns each.
_SEARCHED_ROWS: Final = 64 << 20
_MAX_CACHED_BYTES: Final = 64 << 20
_UNREADABLE_BYTES: Final = 256


class OpenSegment(Protocol):
    """An open segment."""

    @property
    def num_rows(self) -> int | None:
        """Number of its rows; None if unknown."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""

    def complete(self, fragments: BitMap, lengths: Mapping[int, int]) -> BitMap:
        """Return the fragments of which it contains all rows."""

    def rows_of(self, query: ColumnQuery, limits: Limits) -> NDArray[np.uint64] | None:
        """Return the names of rows that may match; None if not worthwhile."""


_OPENERS: Final[dict[str, Callable[..., OpenSegment]]] = {
    BTREE: BTree.open,
    BITMAP: BitmapIndex.open,
    LABEL_LIST: LabelIndex.open,
    BLOOMFILTER: BloomIndex.open,
    NGRAM: NgramIndex.open,
    INVERTED: WordLookup.open,
}


def index_candidates(
    snapshot: Snapshot, predicate: Predicate, fragments: Fragments
) -> Candidates | None:
    """Return the only rows of some ``fragments`` that can match; None if unknown."""
    if not any(entry.fields for entry in snapshot.indices):
        return None
    lookups = _lookups_of(snapshot)
    wanted = BitMap(fragments.ids.astype(np.uint32))
    with lookups.lock:
        return rows_that_may_match(
            predicate, partial(_ask, lookups, wanted), Candidates.both, Candidates.either
        )


def indexed_columns(snapshot: Snapshot, *kinds: str) -> tuple[str, ...]:
    """Return the top-level columns with an index of some kinds."""
    fields = snapshot.schema.fields
    return tuple(
        field.name
        for field in fields
        if any(
            one.kind in (kinds or (BTREE, BITMAP)) for one in usable_segments(snapshot, field.id)
        )
    )


def usable_segments(snapshot: Snapshot, field_id: int) -> list[Segment]:
    """Return the usable segments over a field, the most selective ones first."""
    stable = snapshot.uses_stable_row_ids
    over = (entry for entry in snapshot.indices if entry.fields == (field_id,))
    segments = (segment_of(entry, stable_row_ids=stable) for entry in over)
    usable = [segment for segment in segments if isinstance(segment, Segment)]
    return sorted(
        usable, key=lambda segment: _INEXACT.index(segment.kind) if segment.kind in _INEXACT else -1
    )


@dataclass(frozen=True, slots=True)
class LockedSegment:
    """An open segment, for callers that need more than predicate lookups."""

    opened: OpenSegment
    covered: BitMap  # Fragments that it covers, and no previous segment.
    is_by_address: bool  # Whether it refers to rows by current addresses.
    # Addresses of its rows in covered fragments; None if unknown.
    locate: Callable[[NDArray[np.uint64]], NDArray[np.uint64] | None]


@contextmanager
def lock_segments(snapshot: Snapshot, indexed: Field, kind: str) -> Iterator[list[LockedSegment]]:
    """Lock and yield the segments of one kind over a field."""
    lookups = _lookups_of(snapshot)
    with lookups.lock:
        left = BitMap(lookups.lengths)
        requested = []
        for segment in usable_segments(snapshot, indexed.id):
            opened = _open_segment(lookups, segment, indexed) if segment.kind == kind else None
            if opened is None:
                continue
            covered = _segment_coverage(lookups, segment) & left
            left -= covered
            is_by_address = not segment.names_row_ids and not _moves(lookups, segment)
            locate = partial(_locate_rows, lookups, segment, covered=covered)
            requested.append(LockedSegment(opened, covered, is_by_address, locate))
        yield requested


@dataclass(frozen=True, slots=True)
class SegmentState:
    """Use of a segment by scans."""

    is_used: bool  # Whether scans use it.
    note: str = ""  # Why it is not used, or for which fragments, if any.
    # Number of its rows, and of removed rows among them; None if unknown.
    num_named: int | None = None
    is_damaged: bool = False  # Whether its files are corrupt.


def segment_state(snapshot: Snapshot, entry: IndexMetadata) -> SegmentState:
    """Return whether scans use an index entry; opens its files."""
    segment = segment_of(entry, stable_row_ids=snapshot.uses_stable_row_ids)
    if isinstance(segment, str):
        return SegmentState(False, segment)
    indexed = indexed_field_at(
        snapshot.schema.fields, path_of(snapshot.schema.fields, entry.fields[0])
    )[0]
    if indexed is None:
        return SegmentState(False, "columns of this type are not looked up")
    lookups = _lookups_of(snapshot)
    with lookups.lock:
        try:
            opened = _open(lookups, segment, indexed)
            covered = _segment_coverage(lookups, segment) & BitMap(lookups.lengths)
        except (LanceError, FileNotFoundError) as error:
            is_damaged = not isinstance(error, UnsupportedFeatureError)
            return SegmentState(False, f"it cannot be read: {error}", is_damaged=is_damaged)
        unknown = len(covered - opened.complete(covered, lookups.lengths))
    num_named = (
        opened.num_rows if segment.kind == BTREE else None
    )  # Zones may include deleted rows.
    if not unknown:
        return SegmentState(True, "", num_named)
    note = f"it does not have all rows of {unknown} of its {len(covered)} fragments"
    return SegmentState(unknown < len(covered), note, num_named)


def covered_fragments(snapshot: Snapshot, entry: IndexMetadata) -> BitMap:
    """Return the covered fragments of an index after pending compactions."""
    segment = segment_of(entry, stable_row_ids=snapshot.uses_stable_row_ids)
    if isinstance(segment, str):
        return entry.fragment_bitmap or BitMap()
    return _segment_coverage(_lookups_of(snapshot), segment)


_Answer: TypeAlias = NDArray[np.uint64]


@dataclass(slots=True)
class _Lookups:
    """An LRU cache of index data of one version, guarded by a lock."""

    snapshot: Snapshot
    # File readers are not thread-safe.
    lock: threading.Lock = field(default_factory=threading.Lock)
    # Open segments and results, with their sizes; None if unreadable or unusable.
    kept: OrderedDict[object, tuple[OpenSegment | _Answer | None, int]] = field(
        default_factory=OrderedDict
    )
    num_bytes: int = 0  # Total size.
    lengths: dict[int, int] = field(default_factory=dict)  # Physical rows of each fragment, by id.

    def recall(self, key: object) -> tuple[bool, OpenSegment | _Answer | None]:
        """Return whether the key is cached, and its value."""
        if key not in self.kept:
            return False, None
        self.kept.move_to_end(key)
        return True, self.kept[key][0]

    def keep(self, key: object, value: OpenSegment | _Answer | None) -> None:
        """Cache a value and evict the least recently used ones."""
        size = _UNREADABLE_BYTES + (0 if value is None else int(value.nbytes))
        self.kept[key] = value, size
        self.num_bytes += size
        while self.num_bytes > _MAX_CACHED_BYTES and len(self.kept) > 1:
            _, (_, freed) = self.kept.popitem(last=False)
            self.num_bytes -= freed


def _lookups_of(snapshot: Snapshot) -> _Lookups:
    lookups = snapshot.memo.get("index lookups")
    if lookups is None:
        columns = snapshot.manifest.fragments.columns
        lengths = dict(zip(columns.ids.tolist(), columns.physical_rows.tolist(), strict=True))
        # Concurrent threads share the first instance.
        lookups = snapshot.memo.setdefault("index lookups", _Lookups(snapshot, lengths=lengths))
    assert isinstance(lookups, _Lookups)
    return lookups


def _ask(
    lookups: _Lookups, wanted: BitMap, path: ColumnPath, predicate: Predicate
) -> Candidates | None:
    """Return the rows of fragments that may match a predicate on one column."""
    snapshot = lookups.snapshot
    indexed, is_inside_struct = indexed_field_at(snapshot.schema.fields, path)
    if indexed is None:
        return None
    segments = usable_segments(snapshot, indexed.id)
    if not required_words(predicate, path):
        segments = [segment for segment in segments if segment.kind != INVERTED]
    if not segments:
        return None
    if is_inside_struct and is_true_for_null(predicate, path, indexed.to_arrow().type):
        return None  # Where the struct is null so is the field, whatever was indexed.
    query = ColumnQuery(path, predicate)
    answered = BitMap()
    parts: list[NDArray[np.uint64]] = []
    requested: set[str] = set()
    for segment in segments:
        try:
            covered = (_segment_coverage(lookups, segment) & wanted) - answered
            known = _open_segment(lookups, segment, indexed) if covered else None
            if known is None:
                continue
            covered = known.complete(covered, lookups.lengths)
            addresses = _addresses(lookups, segment, known, query, covered)
        except (LanceError, FileNotFoundError) as error:
            _give_up(lookups, segment, error)
            continue
        if addresses is not None:
            answered |= covered
            parts.append(addresses)
            requested.add(segment.title)
    if not answered:
        return None
    fragments = np.fromiter(answered, np.uint64, len(answered))
    return Candidates(fragments, np.unique(np.concatenate(parts)), frozenset(requested))


def _segment_coverage(lookups: _Lookups, segment: Segment) -> BitMap:
    """Return the covered fragments of a segment after pending compactions."""
    bitmap = segment.entry.fragment_bitmap
    assert bitmap is not None
    return current_coverage(bitmap, _moves(lookups, segment))


def _moves(lookups: _Lookups, segment: Segment) -> ReuseVersions:
    if segment.names_row_ids:
        return ()
    memo = lookups.snapshot.memo
    if "reuse versions" not in memo:
        memo["reuse versions"] = reuse_versions(lookups.snapshot)
    return memo["reuse versions"]  # type: ignore[return-value]


def _addresses(
    lookups: _Lookups, segment: Segment, known: OpenSegment, query: ColumnQuery, covered: BitMap
) -> NDArray[np.uint64] | None:
    """Return the addresses of candidates in covered fragments; None if unknown."""
    names = _names(lookups, segment, known, query) if covered else None
    return None if names is None else _locate_rows(lookups, segment, names, covered)


def _give_up(lookups: _Lookups, segment: Segment, error: Exception) -> None:
    lookups.keep(segment.entry.uuid, None)
    logger.warning(
        "the index %r of %s cannot be read and is not used: %s",
        segment.entry.name,
        lookups.snapshot.uri,
        error,
    )


def _open_segment(lookups: _Lookups, segment: Segment, indexed: Field) -> OpenSegment | None:
    is_known, kept = lookups.recall(segment.entry.uuid)
    if is_known:
        return kept  # type: ignore[return-value]
    opened = _open(lookups, segment, indexed)
    lookups.keep(segment.entry.uuid, opened)
    return opened


def _open(lookups: _Lookups, segment: Segment, indexed: Field) -> OpenSegment:
    files: TableFiles = lookups.snapshot.files
    opened = _OPENERS[segment.kind](files, segment.entry, indexed)
    covered = _segment_coverage(lookups, segment)
    columns = lookups.snapshot.manifest.fragments.columns
    least = int(columns.num_rows[np.isin(columns.ids, list(covered))].sum())
    if opened.num_rows is not None and opened.num_rows < least:
        raise CorruptFileError(f"it has {opened.num_rows} rows, at least {least} are expected")
    return opened


def _names(
    lookups: _Lookups, segment: Segment, opened: OpenSegment, query: ColumnQuery
) -> NDArray[np.uint64] | None:
    """Return the names of candidates of a segment."""
    key = segment.entry.uuid, query
    is_known, kept = lookups.recall(key)
    if is_known:
        return kept  # type: ignore[return-value]
    num_rows = opened.num_rows
    if num_rows is None:
        num_rows = sum(lookups.lengths.values())
    num_segments = len(usable_segments(lookups.snapshot, segment.entry.fields[0]))
    limits = Limits(max(_FREE_ROWS, num_rows // _WORTHWHILE_SHARE), _SEARCHED_ROWS // num_segments)
    names = opened.rows_of(query, limits)
    lookups.keep(key, names)
    return names


def _locate_rows(
    lookups: _Lookups, segment: Segment, names: NDArray[np.uint64], covered: BitMap
) -> NDArray[np.uint64] | None:
    """Return the current addresses of rows in covered fragments."""
    if segment.names_row_ids:
        addresses, is_found = row_id_index(lookups.snapshot).addresses_of(names)
        addresses = addresses[is_found]
    else:
        addresses = map_addresses(names, _moves(lookups, segment))
    fragments = addresses >> np.uint64(OFFSET_BITS)
    numbers = np.fromiter(covered, np.uint64, len(covered))
    addresses = addresses[np.isin(fragments, numbers)]
    indices = np.searchsorted(numbers, addresses >> np.uint64(OFFSET_BITS))
    lengths = np.array([lookups.lengths[number] for number in numbers.tolist()], np.uint64)
    if (addresses & np.uint64((1 << OFFSET_BITS) - 1) >= lengths[indices]).any():
        raise CorruptFileError("it names rows beyond the end of a fragment")
    return addresses


_SHIFT = np.uint64(OFFSET_BITS)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidate rows of some fragments; other fragments are not restricted.

    ``fragments``: ids of the fragments, ascending; ``addresses``: rows of these fragments,
    ascending; ``indices``: the titles of used indices.
    """

    fragments: NDArray[np.uint64]
    addresses: NDArray[np.uint64]
    indices: frozenset[str]

    def both(self, other: Candidates) -> Candidates:
        """Return the intersection: rows that are candidates of both."""
        mine, theirs = self.addresses, other.addresses
        is_possible = ~np.isin(mine >> _SHIFT, other.fragments)
        is_possible |= np.isin(mine, theirs, assume_unique=True)
        is_only_theirs = ~np.isin(theirs >> _SHIFT, self.fragments)
        return Candidates(
            np.union1d(self.fragments, other.fragments),
            np.sort(np.concatenate([mine[is_possible], theirs[is_only_theirs]])),
            self.indices | other.indices,
        )

    def either(self, other: Candidates) -> Candidates:
        """Return the union: rows that are candidates of either."""
        fragments = np.intersect1d(self.fragments, other.fragments, assume_unique=True)
        rows = (
            addresses[np.isin(addresses >> _SHIFT, fragments)]
            for addresses in (self.addresses, other.addresses)
        )
        return Candidates(fragments, np.union1d(*rows), self.indices | other.indices)

    def offsets_of(self, fragment_id: int) -> NDArray[np.uint32]:
        """Return the row offsets of one fragment, ascending."""
        ends = np.array([fragment_id, fragment_id + 1], np.uint64) << _SHIFT
        first, last = np.searchsorted(self.addresses, ends)
        return self.addresses[first:last].astype(np.uint32)  # the low halves
