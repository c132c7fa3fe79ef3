"""Reader of changed rows: the part of a change feed that runs on an executor.

A task carries all it needs; executors never read a manifest. A ``SideReader`` reads rows of one
version, before or after their change, by address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import join_batches
from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.row_selection import filter_rows, take_rows
from pyspark_lance.codec.shred import data_bytes
from pyspark_lance.format.column_names import (
    LAST_UPDATED_AT,
    ROW_ADDRESS,
    ROW_ID,
    constant_column,
    system_array,
    system_field,
)
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import fragment_ids, group_by_fragment, row_addresses
from pyspark_lance.plain_values import plain_array, plain_numbers, plain_scalar
from pyspark_lance.predicate.conditions import Predicate, matching
from pyspark_lance.table.cdf.changed_rows import (
    ChangeType,
    Commit,
    RowChanges,
    Side,
    UpdateChanges,
    WholeFragmentChanges,
    in_passes,
)
from pyspark_lance.table.cdf.column_source import ColumnSource
from pyspark_lance.table.cdf.common_rows import RowAddressPairs, join_pairs, row_address_pairs
from pyspark_lance.table.cdf.row_differences import differing_rows
from pyspark_lance.table.rows.column_parts import SharedRows
from pyspark_lance.table.rows.conform import arrow_cast
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.table_files import TableFiles

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"

# Rows may be larger than the average; this much more is tolerated.
_MAX_BATCHES: Final = 2
# Rows that are looked up in one pass over their files, old and new, are so many batches.
_PASS_BATCHES: Final = 4
# What it takes to know where a row is.
_PLACE_BYTES: Final = 64
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


CHANGE_FIELDS: Final = (
    system_field(ROW_ID),
    pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    pa.field(COMMIT_VERSION, pa.uint64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, _TIMESTAMP),
)
"""The columns that a change feed adds to those of the table."""


@dataclass(frozen=True, slots=True)
class ChangeFeedTask:
    """Some changes, and the rows to return of them."""

    sides: Mapping[Side, VersionFiles]  # How the versions are read that the changes name.
    # Columns of the table to return, as shown; the sides may have more, and structs with more
    # members.
    fields: tuple[Field, ...]
    predicate: Predicate | None  # Rows of the feed to return; None for all.
    batch_rows: int
    batch_bytes: int  # Bytes that a batch aims at.
    changes: tuple[RowChanges, ...]  # In the order in which they happened.

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes: the fields as Lance stores them, then ``CHANGE_FIELDS``."""
        wanted = pa.schema([*(field.to_arrow() for field in self.fields), *CHANGE_FIELDS])
        for batch in _read(self):
            if self.predicate is not None:
                batch = filter_rows(batch, matching(self.predicate, batch))
            if batch.num_rows:
                yield _cut_down(batch, wanted)


def _read(task: ChangeFeedTask) -> Iterator[pa.RecordBatch]:
    """Read all changes; rows that are looked up in one file are read together."""
    pass_bytes = _PASS_BATCHES * task.batch_bytes
    shared = SharedRows(_MAX_BATCHES * pass_bytes)
    row_bytes = _row_bytes(task, shared)
    for changes in in_passes(task.changes, max(1, pass_bytes // (2 * row_bytes + _PLACE_BYTES))):
        yield from chain.from_iterable(_read_together(task, changes, shared, row_bytes))
        shared.drop()


def _row_bytes(task: ChangeFeedTask, shared: SharedRows) -> int:
    """Bytes of a row that is looked up, by one that is compared and one that is not."""
    sizes: dict[bool, int] = {}
    for change in task.changes:
        if isinstance(change, UpdateChanges):
            if change.before.compared not in sizes:
                sides = _update_sides(task, change, shared)
                sizes[change.before.compared] = max(side.average_row_bytes() for side in sides)
        elif change.looked_up and False not in sizes:
            side = SideReader(task.sides[change.side], _fragments_of(change), shared)
            sizes[False] = side.average_row_bytes()
    return max(sizes.values(), default=1)


def _read_together(
    task: ChangeFeedTask, changes: Sequence[RowChanges], shared: SharedRows, row_bytes: int
) -> list[Iterator[pa.RecordBatch]]:
    """The rows of each change of one pass, in their order, once all have announced theirs."""
    found: list[Iterator[pa.RecordBatch]] = []
    updates: _UpdatedRows | None = None
    for change in changes:
        if isinstance(change, UpdateChanges):
            if updates is None or not updates.can_add(change):
                updates = _UpdatedRows(task, change, shared, row_bytes)
            found.append(updates.add(change))
        elif change.looked_up:
            found.append(_Lookup(task, change, shared, row_bytes).batches())
        else:
            found.append(_Scan(task, change).batches())
    return found


def _cut_down(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns of ``wanted``; structs that were read in full lose members."""
    columns = []
    for field in wanted:
        column = batch.column(field.name)
        columns.append(column if column.type.equals(field.type) else arrow_cast(column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


class _Scan:
    """Reader of inserted or deleted rows, one fragment after the other."""

    def __init__(self, task: ChangeFeedTask, change: WholeFragmentChanges) -> None:
        self._task, self._change = task, change

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows."""
        task, change = self._task, self._change
        system: tuple[str, ...] = (ROW_ID,)
        if change.commit.has_lost_versions and change.change_type is ChangeType.INSERT:
            system = (ROW_ID, LAST_UPDATED_AT)
        side = task.sides[change.side]
        scan = ScanTask(
            files=side.files,
            fields=fields_to_read(side.sources),
            filter_fields=(),
            system_columns=system,
            predicate=None,
            stable_row_ids=True,
            batch_rows=task.batch_rows,
            batch_bytes=task.batch_bytes,
            slices=change.slices,
            checks_text=side.checks_text,
        )
        for batch in scan.run():
            count = batch.num_rows
            columns = select_columns(batch.columns, side.sources, count)
            versions = (
                _versions(change.commit, np.asarray(batch.column(LAST_UPDATED_AT)))
                if len(system) > 1
                else constant_column(change.commit.version, count)
            )
            yield _batch_of(side.sources, columns, batch.column(ROW_ID), change, versions)


class _Lookup:
    """Reader of inserted or deleted rows, together with other rows of their files."""

    def __init__(
        self, task: ChangeFeedTask, change: WholeFragmentChanges, shared: SharedRows, row_bytes: int
    ) -> None:
        self._task, self._change = task, change
        self._step = _step(task, row_bytes)
        self._side = SideReader(task.sides[change.side], _fragments_of(change), shared)
        self._addresses = np.concatenate(
            [
                row_addresses(one.fragment.id, one.offsets.to_array())
                for one in change.slices
                if one.offsets is not None
            ]
        )
        self._side.prefetch(self._addresses)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows."""
        change, side = self._change, self._side
        is_open = change.commit.has_lost_versions and change.change_type is ChangeType.INSERT
        first, step = 0, self._step
        while first < len(self._addresses):
            rows = self._addresses[first : first + step]
            most_bytes = _MAX_BATCHES * self._task.batch_bytes if len(rows) > 1 else None
            try:
                batch = side.take(rows, most_bytes)
            except BatchTooLargeError:
                step = len(rows) // 2
                continue
            first += len(rows)
            versions = (
                _versions(change.commit, side.lineage(LAST_UPDATED_AT, rows))
                if is_open
                else constant_column(change.commit.version, len(rows))
            )
            row_ids = system_array(side.lineage(ROW_ID, rows))
            yield _batch_of(side.sources, batch.columns, row_ids, change, versions)


class _UpdatedRows:
    """Reader of both versions of the rows that updates of some versions changed.

    Versions whose files have the same columns are read together: many small ones cost little more
    than one of their size.
    """

    def __init__(
        self, task: ChangeFeedTask, first: UpdateChanges, shared: SharedRows, row_bytes: int
    ) -> None:
        self._task = task
        self._step = _step(task, row_bytes)
        self._first = first
        self._old = SideReader(task.sides[first.before], (), shared)
        self._new = SideReader(task.sides[first.after], (), shared)
        self._changes: list[UpdateChanges] = []
        self._address_pairs: list[RowAddressPairs] = []
        self._counts: list[int] = []
        self._batches: Iterator[tuple[int, pa.RecordBatch]] | None = None
        self._next: tuple[int, pa.RecordBatch] | None = None

    def can_add(self, change: UpdateChanges) -> bool:
        """Return whether the rows of another version can be read together with these."""
        sides = self._task.sides
        return (
            not self._first.commit.has_lost_versions
            and not change.commit.has_lost_versions
            and sides[change.before] is sides[self._first.before]
            and sides[change.after] is sides[self._first.after]
            and self._old.can_add(_old_fragments(change))
            and self._new.can_add(_new_fragments(change))
        )

    def add(self, change: UpdateChanges) -> Iterator[pa.RecordBatch]:
        """Add the rows of a version.

        Returns:
            Its rows that differ, or that are updated by their lineage; to be read after those of
            the versions that were added before.
        """
        self._old.add(_old_fragments(change))
        self._new.add(_new_fragments(change))
        sides = self._task.sides
        parts = list(
            row_address_pairs(change.rows, sides[change.before].files, sides[change.after].files)
        )
        for pairs in parts:
            self._old.prefetch(pairs.before)
            self._new.prefetch(pairs.after)
        self._changes.append(change)
        self._address_pairs += parts
        self._counts.append(sum(map(len, parts)))
        return self._batches_of(len(self._changes) - 1)

    def _batches_of(self, number: int) -> Iterator[pa.RecordBatch]:
        if self._batches is None:
            self._batches = self._read()
            self._next = next(self._batches, None)
        while self._next is not None and self._next[0] == number:
            yield self._next[1]
            self._next = next(self._batches, None)

    def _read(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches with the numbers of their changes: old values, then new ones, in blocks."""
        if not self._address_pairs:
            return
        every = join_pairs(self._address_pairs)
        self._address_pairs.clear()
        owners = np.repeat(np.arange(len(self._counts)), self._counts)
        first, step = 0, self._step
        while first < len(every):
            chosen = slice(first, first + step)
            rows, numbers = every.select(chosen), owners[chosen]
            most_bytes = _MAX_BATCHES * self._task.batch_bytes if len(rows) > 1 else None
            try:
                before = self._old.take(rows.before, most_bytes)
                after = self._new.take(rows.after, most_bytes)
            except BatchTooLargeError:
                step = len(rows) // 2
                continue
            first += len(rows)
            yield from self._pairs(numbers, rows, before, after)

    def _pairs(
        self,
        numbers: NDArray[np.int64],
        rows: RowAddressPairs,
        before: pa.RecordBatch,
        after: pa.RecordBatch,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The old values of rows that changed, then the new ones, of one change after the other."""
        if not rows.updated.all():
            keep = rows.updated | self._differing(rows, before, after)
            before, after = filter_rows(before, keep), filter_rows(after, keep)
            rows, numbers = rows.select(keep), numbers[keep]
        if not len(numbers):
            return
        sources = self._new.sources
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        for first, last in pairwise([*starts, len(numbers)]):
            number = int(numbers[first])
            change, pairs = self._changes[number], rows.select(slice(first, last))
            row_ids = system_array(pairs.row_ids)
            versions = constant_column(change.commit.version, len(pairs))
            if change.commit.has_lost_versions:
                updated_at = self._new.lineage(LAST_UPDATED_AT, pairs.after)
                versions = _versions(change.commit, updated_at)
            for change_type, batch in (
                (ChangeType.UPDATE_PREIMAGE, before),
                (ChangeType.UPDATE_POSTIMAGE, after),
            ):
                columns = batch.slice(first, last - first).columns
                yield number, _batch_of(sources, columns, row_ids, change, versions, change_type)

    def _differing(
        self, rows: RowAddressPairs, before: pa.RecordBatch, after: pa.RecordBatch
    ) -> NDArray[np.bool_]:
        both = BlobSides(self._old, self._new, rows.before, rows.after)
        return differing_rows(
            before,
            after,
            [source.shown for source in self._new.sources],
            both.in_one_file,
            both.read_bytes,
            self._task.batch_bytes,
        )


def _step(task: ChangeFeedTask, row_bytes: int) -> int:
    """Rows of a batch."""
    return max(1, min(task.batch_rows, task.batch_bytes // row_bytes))


def _update_sides(
    task: ChangeFeedTask, change: UpdateChanges, shared: SharedRows
) -> tuple[SideReader, SideReader]:
    """The old and the new one."""
    return (
        SideReader(task.sides[change.before], _old_fragments(change), shared),
        SideReader(task.sides[change.after], _new_fragments(change), shared),
    )


def _old_fragments(change: UpdateChanges) -> Iterator[Fragment]:
    return chain.from_iterable(kept.before for kept in change.rows)


def _new_fragments(change: UpdateChanges) -> Iterator[Fragment]:
    return (kept.after for kept in change.rows)


def _fragments_of(change: WholeFragmentChanges) -> Iterator[Fragment]:
    return (one.fragment for one in change.slices)


def _versions(commit: Commit, updated: NDArray[np.uint64]) -> pa.Array:
    """Return the version that changed each row, by lineage: a restored row keeps its old one."""
    inside = (updated > commit.since) & (updated <= commit.version)
    return system_array(np.where(inside, updated, np.uint64(commit.version)))


def _batch_of(
    sources: Sequence[ColumnSource],
    columns: Sequence[pa.Array],
    row_ids: pa.Array,
    change: RowChanges,
    versions: pa.Array,
    change_type: ChangeType | None = None,
) -> pa.RecordBatch:
    """Rows with the columns of the feed; ``change_type`` is that of the change, if it has one."""
    count, commit = len(row_ids), change.commit
    if isinstance(change, WholeFragmentChanges):
        change_type = change.change_type
    assert change_type is not None
    # The manifests of the versions between may be gone, and their times with them.
    unknown = plain_numbers(versions) != commit.version if commit.has_lost_versions else None
    times = plain_array(np.full(count, commit.timestamp_us, np.int64), unknown).view(_TIMESTAMP)
    kinds = pa.repeat(plain_scalar(change_type.value, pa.string()), count)
    added = [row_ids, kinds, versions, times]
    schema = pa.schema([*(source.shown.to_arrow() for source in sources), *CHANGE_FIELDS])
    return pa.RecordBatch.from_arrays([*columns, *added], schema=schema)


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """Settings to read columns from one version.

    ``sources``: source of each requested column; ``checks_text``: whether strings that are not
    UTF-8 are an error.
    """

    files: TableFiles
    sources: tuple[ColumnSource, ...]
    checks_text: bool = False


@dataclass(frozen=True, slots=True)
class BlobSides:
    """The blobs of some rows, old and new."""

    old: SideReader
    new: SideReader
    addresses_before: NDArray[np.uint64]
    addresses_after: NDArray[np.uint64]

    def in_one_file(self, column: int) -> NDArray[np.bool_]:
        """Return which rows have both blobs in the same file."""
        names: dict[object, int] = {}
        before = self.old.blob_files(column, self.addresses_before, names)
        after = self.new.blob_files(column, self.addresses_after, names)
        return before == after

    def read_bytes(self, column: int, rows: NDArray[np.intp]) -> tuple[pa.Array, pa.Array]:
        """Both, with the bytes."""
        return (
            self.old.take_bytes(column, self.addresses_before[rows]),
            self.new.take_bytes(column, self.addresses_after[rows]),
        )


class SideReader:
    """Reader of rows of one version by address, in any order.

    ``shared``: where rows of its files are read together with those of other sides.
    """

    def __init__(
        self, side: VersionFiles, fragments: Iterable[Fragment], shared: SharedRows
    ) -> None:
        self.sources = side.sources
        self._fields = fields_to_read(side.sources)
        self._with_bytes: dict[int, ColumnSource] = {}
        self._side, self._shared = side, shared
        self._fragments: dict[int, Fragment] = {}
        self._readers: dict[int, FragmentReader] = {}
        self._schema = pa.schema([source.shown.to_arrow() for source in side.sources])
        self.add(fragments)

    def can_add(self, fragments: Iterable[Fragment]) -> bool:
        """Return whether no fragment has other files here, as in another version."""
        return all(
            self._fragments.get(fragment.id, fragment).files == fragment.files
            for fragment in fragments
        )

    def add(self, fragments: Iterable[Fragment]) -> None:
        """Add fragments whose rows are read; those that are known have the same files."""
        for fragment in fragments:
            if fragment.id in self._fragments:
                continue
            # All rows that are read are live in their version, whichever are deleted in this one.
            fragment = replace(fragment, deletion_file=None)
            self._fragments[fragment.id] = fragment
            self._readers[fragment.id] = FragmentReader(
                self._side.files,
                fragment,
                stable_row_ids=True,
                checks_text=self._side.checks_text,
                shared=self._shared,
            )

    def average_row_bytes(self) -> int:
        """Bytes of one row, by one of the fragments."""
        if not self._fields:
            return 1
        return next(iter(self._readers.values())).average_row_bytes(self._fields)

    def prefetch(self, addresses: NDArray[np.uint64]) -> None:
        """Announce the rows of later ``take`` calls, some or all of them at a time."""
        for fragment_id, inside in group_by_fragment(addresses).items():
            self._readers[fragment_id].prefetch(self._fields, inside)

    def take(self, addresses: NDArray[np.uint64], most_bytes: int | None) -> pa.RecordBatch:
        """The requested columns of the rows, in the order of ``addresses``."""
        batch = self._take(self._fields, ROW_ADDRESS, addresses, most_bytes)
        columns = select_columns(batch.columns, self.sources, len(addresses))
        # Nulls stand for what a version did not have, also where the column allows none.
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def take_bytes(self, column: int, addresses: NDArray[np.uint64]) -> pa.Array:
        """Read one requested column of the rows, with the bytes of blobs."""
        source = self._with_bytes.setdefault(column, self.sources[column].with_blobs())
        if source.read is None:
            return source.column(None, len(addresses))
        batch = self._take((source.read,), ROW_ADDRESS, addresses)
        return source.column(batch.column(0), len(addresses))

    def blob_files(
        self, column: int, addresses: NDArray[np.uint64], names: dict[object, int]
    ) -> NDArray[np.int64]:
        """A number for each row, of the files that hold the blobs of a column."""
        read = self.sources[column].read
        ids = [] if read is None else [part.id for part in read.walk() if part.is_blob]
        fragments, inverse = np.unique(fragment_ids(addresses), return_inverse=True)
        numbers = []
        for fragment_id in fragments.tolist():
            held = tuple(
                (self._side.files.locate(file)[0].uri, file.path, field_id)
                for file in self._fragments[fragment_id].files
                for field_id in ids
                if field_id in file.fields
            )
            # What no file is known to hold is in none that another side has.
            numbers.append(names.setdefault(held or (id(self), fragment_id), len(names)))
        return np.array(numbers, dtype=np.int64)[inverse]

    def lineage(self, name: str, addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """A lineage column of the rows."""
        return np.asarray(self._take((), name, addresses).column(name))

    def _take(
        self,
        fields: Sequence[Field],
        system_column: str,
        addresses: NDArray[np.uint64],
        most_bytes: int | None = None,
    ) -> pa.RecordBatch:
        indices = None
        if (addresses[1:] <= addresses[:-1]).any():
            # A row may be asked for twice: versions that a restore brought back change it again.
            addresses, indices = np.unique(addresses, return_inverse=True)
        parts = []
        for fragment_id, inside in group_by_fragment(addresses).items():
            reader = self._readers[fragment_id]
            parts.append(reader.take(fields, (system_column,), inside, max_bytes=most_bytes))
            if most_bytes is not None:
                most_bytes -= sum(map(data_bytes, parts[-1].columns))
                if most_bytes < 0:
                    raise BatchTooLargeError
        batch = join_batches(parts)
        return batch if indices is None else take_rows(batch, indices)


def fields_to_read(sources: Sequence[ColumnSource]) -> tuple[Field, ...]:
    """The fields that files hold something of."""
    return tuple(source.read for source in sources if source.read is not None)


def select_columns(
    columns: Sequence[pa.Array], sources: Sequence[ColumnSource], count: int
) -> list[pa.Array]:
    """The requested columns, from those that were read, which come first in ``columns``."""
    arrays = iter(columns)
    return [
        source.column(None if source.read is None else next(arrays), count) for source in sources
    ]
