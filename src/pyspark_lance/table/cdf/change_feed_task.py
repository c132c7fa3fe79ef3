"""Reads changed rows: the part of a change feed that runs on an executor.

A task carries all it needs; executors never read a manifest.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_bytes import data_bytes
from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.join_rows import join_batches
from pyspark_lance.codec.row_selection import filter_rows, take_rows
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import fragment_ids, group_by_fragment
from pyspark_lance.format.system_columns import (
    LAST_UPDATED_AT,
    ROW_ADDRESS,
    ROW_ID,
    constant_column,
    system_array,
    system_field,
)
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.plain_values import plain_array, plain_numbers, plain_scalar
from pyspark_lance.predicate.conditions import Predicate, matching
from pyspark_lance.table.cdf.blob_differences import differing_rows
from pyspark_lance.table.cdf.column_source import ColumnSource
from pyspark_lance.table.cdf.common_rows import RetainedRows, RowPlaces, in_steps, row_places
from pyspark_lance.table.rows.arrow_casts import arrow_cast
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.scan_task import ScanTask, run
from pyspark_lance.table.version.table_files import TableFiles

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"

# Rows may be larger than an average tells; this much more is tolerated.
_MAX_BATCHES: Final = 2
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class ChangeType(enum.StrEnum):
    """What happened to a row."""

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"


CHANGE_FIELDS: Final = (
    system_field(ROW_ID),
    pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    pa.field(COMMIT_VERSION, pa.uint64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, _TIMESTAMP),
)
"""The columns that a change feed adds to those of the table."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The step from one version that is known to the next."""

    version: int  # The version after the step.
    # The version before it; 0 for none. Between the two there may have been versions that are not
    # there any more.
    since: int
    timestamp_us: int  # When ``version`` was committed, UTC microseconds since 1970.

    @property
    def has_lost_versions(self) -> bool:
        """Whether versions between the two may be gone."""
        return self.version - self.since > 1


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """How columns are read from one version.

    ``sources``: where each wanted column comes from; ``checks_text``: whether strings that are not
    UTF-8 are an error.
    """

    files: TableFiles
    sources: tuple[ColumnSource, ...]
    checks_text: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """Names the ``VersionFiles`` of a task.

    ``compared``: whether all columns are read, to see if they differ, or only those returned.
    """

    version: int
    compared: bool


@dataclass(frozen=True, slots=True)
class WholeFragmentChanges:
    """Rows that were inserted or deleted.

    ``change_type``: ``INSERT`` or ``DELETE``.
    """

    change_type: ChangeType
    commit: Commit
    side: Side
    slices: tuple[ScanSplit, ...]

    def __post_init__(self) -> None:
        """Refuses a plain value."""
        check_enum(self.change_type, ChangeType)


@dataclass(frozen=True, slots=True)
class UpdateChanges:
    """Rows that both versions have."""

    commit: Commit  # The step that changed them.
    before: Side
    after: Side
    # Where they are. Those that lineage calls updated are, whatever their values; the others are
    # some only if their values differ.
    rows: tuple[RetainedRows, ...]


@dataclass(frozen=True, slots=True)
class ChangeFeedTask:
    """Some changes, and what to return of them."""

    sides: Mapping[Side, VersionFiles]  # How the versions are read that the changes name.
    # Columns of the table to return, as shown; the sides may have more, and structs with more
    # members.
    fields: tuple[Field, ...]
    predicate: Predicate | None  # Rows of the feed to return; None for all.
    batch_rows: int
    batch_bytes: int  # Bytes that a batch aims at.
    changes: tuple[
        WholeFragmentChanges | UpdateChanges, ...
    ]  # In the order in which they happened.


def run_changes(task: ChangeFeedTask) -> Iterator[pa.RecordBatch]:
    """The changes of ``task``: its fields as Lance stores them, then ``CHANGE_FIELDS``."""
    wanted = pa.schema([*(field.to_arrow() for field in task.fields), *CHANGE_FIELDS])
    for change in task.changes:
        parts = (
            _whole(task, change)
            if isinstance(change, WholeFragmentChanges)
            else _updates(task, change)
        )
        for batch in parts:
            if task.predicate is not None:
                batch = filter_rows(batch, matching(task.predicate, batch))
            if batch.num_rows:
                yield _cut_down(batch, wanted)


def _cut_down(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns of ``wanted``; structs that were read in full lose members."""
    columns = []
    for field in wanted:
        column = batch.column(field.name)
        columns.append(column if column.type.equals(field.type) else arrow_cast(column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _whole(task: ChangeFeedTask, change: WholeFragmentChanges) -> Iterator[pa.RecordBatch]:
    system: tuple[str, ...] = (ROW_ID,)
    if change.commit.has_lost_versions and change.change_type is ChangeType.INSERT:
        system = (ROW_ID, LAST_UPDATED_AT)
    side = task.sides[change.side]
    scan = ScanTask(
        files=side.files,
        fields=_fields_to_read(side.sources),
        filter_fields=(),
        system_columns=system,
        predicate=None,
        stable_row_ids=True,
        batch_rows=task.batch_rows,
        batch_bytes=task.batch_bytes,
        slices=change.slices,
        checks_text=side.checks_text,
    )
    for batch in run(scan):
        count = batch.num_rows
        columns = _as_wanted(batch.columns, side.sources, count)
        versions = (
            _versions(change.commit, np.asarray(batch.column(LAST_UPDATED_AT)))
            if len(system) > 1
            else constant_column(change.commit.version, count)
        )
        yield _batch_of(
            side.sources, columns, batch.column(ROW_ID), change.change_type, versions, change.commit
        )


def _updates(task: ChangeFeedTask, change: UpdateChanges) -> Iterator[pa.RecordBatch]:
    """Old values, then new ones, some rows at a time."""
    sides = task.sides[change.before], task.sides[change.after]
    old = _SideReader(sides[0], chain.from_iterable(kept.before for kept in change.rows))
    new = _SideReader(sides[1], (kept.after for kept in change.rows))
    row_bytes = max(new.average_row_bytes(), old.average_row_bytes())
    step = max(1, min(task.batch_rows, task.batch_bytes // row_bytes))
    places = row_places(change.rows, sides[0].files, sides[1].files)
    for many in in_steps(places, step):
        first = 0
        while first < len(many):
            rows = many.chosen(slice(first, first + step))
            most_bytes = _MAX_BATCHES * task.batch_bytes if len(rows) > 1 else None
            try:
                before = old.take(rows.before, most_bytes)
                after = new.take(rows.after, most_bytes)
            except BatchTooLargeError:
                step = len(rows) // 2
                continue
            first += len(rows)
            if not rows.updated.all():
                both = _Sides(old, new, rows.before, rows.after)
                keep = rows.updated | differing_rows(
                    before,
                    after,
                    [source.shown for source in new.sources],
                    both.in_one_file,
                    both.read_bytes,
                    task.batch_bytes,
                )
                if not keep.any():
                    continue
                before, after = filter_rows(before, keep), filter_rows(after, keep)
                rows = rows.chosen(keep)
            yield from _pairs(change, rows, before, after, new)


def _pairs(
    change: UpdateChanges,
    rows: RowPlaces,
    before: pa.RecordBatch,
    after: pa.RecordBatch,
    new: _SideReader,
) -> Iterator[pa.RecordBatch]:
    """The old values of rows, then the new ones."""
    row_ids = system_array(rows.row_ids)
    versions = constant_column(change.commit.version, len(rows))
    if change.commit.has_lost_versions:
        versions = _versions(change.commit, new.last_updated(rows.after))
    for change_type, batch in (
        (ChangeType.UPDATE_PREIMAGE, before),
        (ChangeType.UPDATE_POSTIMAGE, after),
    ):
        yield _batch_of(new.sources, batch.columns, row_ids, change_type, versions, change.commit)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The blobs of some rows, old and new."""

    old: _SideReader
    new: _SideReader
    addresses_before: NDArray[np.uint64]
    addresses_after: NDArray[np.uint64]

    def in_one_file(self, column: int) -> NDArray[np.bool_]:
        """Of which rows both are in the same file."""
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


class _SideReader:
    """Reads rows of one version by address, in any order."""

    def __init__(self, side: VersionFiles, fragments: Iterable[Fragment]) -> None:
        self.sources = side.sources
        self._fields = _fields_to_read(side.sources)
        self._with_bytes: dict[int, ColumnSource] = {}
        self._files = side.files
        self._fragments = {fragment.id: fragment for fragment in fragments}
        self._readers = {
            fragment.id: FragmentReader(
                side.files, fragment, stable_row_ids=True, checks_text=side.checks_text
            )
            for fragment in self._fragments.values()
        }
        self._schema = pa.schema([source.shown.to_arrow() for source in side.sources])

    def average_row_bytes(self) -> int:
        """Bytes of one row, by one of the fragments."""
        if not self._fields:
            return 1
        return next(iter(self._readers.values())).average_row_bytes(self._fields)

    def take(self, addresses: NDArray[np.uint64], most_bytes: int | None) -> pa.RecordBatch:
        """The wanted columns of the rows, in the order of ``addresses``."""
        batch = self._take(self._fields, ROW_ADDRESS, addresses, most_bytes)
        columns = _as_wanted(batch.columns, self.sources, len(addresses))
        # Nulls stand for what a version did not have, also where the column allows none.
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def take_bytes(self, column: int, addresses: NDArray[np.uint64]) -> pa.Array:
        """One wanted column of the rows, with the bytes of blobs."""
        source = self._with_bytes.setdefault(column, self.sources[column].with_blobs())
        if source.read is None:
            return source.column(None, len(addresses))
        batch = self._take((source.read,), ROW_ADDRESS, addresses)
        return source.column(batch.column(0), len(addresses))

    def blob_files(
        self, column: int, addresses: NDArray[np.uint64], names: dict[object, int]
    ) -> NDArray[np.int64]:
        """A number for each row, of the files that hold the blobs of a wanted column."""
        read = self.sources[column].read
        ids = [] if read is None else [part.id for part in read.walk() if part.is_blob]
        fragments, inverse = np.unique(fragment_ids(addresses), return_inverse=True)
        numbers = []
        for fragment_id in fragments.tolist():
            held = tuple(
                (self._files.locate(file)[0].uri, file.path, field_id)
                for file in self._fragments[fragment_id].files
                for field_id in ids
                if field_id in file.fields
            )
            # What no file is known to hold is in none that another side has.
            numbers.append(names.setdefault(held or (id(self), fragment_id), len(names)))
        return np.array(numbers, dtype=np.int64)[inverse]

    def last_updated(self, addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The version that last updated each row."""
        batch = self._take((), LAST_UPDATED_AT, addresses)
        return np.asarray(batch.column(LAST_UPDATED_AT))

    def _take(
        self,
        fields: Sequence[Field],
        system_column: str,
        addresses: NDArray[np.uint64],
        most_bytes: int | None = None,
    ) -> pa.RecordBatch:
        parts = []
        for fragment_id, inside in group_by_fragment(addresses).items():
            reader = self._readers[fragment_id]
            parts.append(reader.take(fields, (system_column,), inside, max_bytes=most_bytes))
            if most_bytes is not None:
                most_bytes -= sum(map(data_bytes, parts[-1].columns))
                if most_bytes < 0:
                    raise BatchTooLargeError
        batch = join_batches(parts)
        order = np.argsort(addresses, kind="stable")
        if (order[1:] < order[:-1]).any():
            place = np.empty(len(order), dtype=np.int64)
            place[order] = np.arange(len(order))
            batch = take_rows(batch, place)
        return batch


def _fields_to_read(sources: Sequence[ColumnSource]) -> tuple[Field, ...]:
    return tuple(source.read for source in sources if source.read is not None)


def _as_wanted(
    columns: Sequence[pa.Array], sources: Sequence[ColumnSource], count: int
) -> list[pa.Array]:
    """The wanted columns, from those that were read, which come first in ``columns``."""
    arrays = iter(columns)
    return [
        source.column(None if source.read is None else next(arrays), count) for source in sources
    ]


def _versions(commit: Commit, updated: NDArray[np.uint64]) -> pa.Array:
    """When each row changed, as far as its lineage knows: a restored row keeps its old one."""
    inside = (updated > commit.since) & (updated <= commit.version)
    return system_array(np.where(inside, updated, np.uint64(commit.version)))


def _batch_of(
    sources: Sequence[ColumnSource],
    columns: Sequence[pa.Array],
    row_ids: pa.Array,
    change_type: ChangeType,
    versions: pa.Array,
    commit: Commit,
) -> pa.RecordBatch:
    count = len(row_ids)
    # The manifests of the versions between may be gone, and their times with them.
    unknown = plain_numbers(versions) != commit.version if commit.has_lost_versions else None
    times = plain_array(np.full(count, commit.timestamp_us, np.int64), unknown).view(_TIMESTAMP)
    kinds = pa.repeat(plain_scalar(change_type.value, pa.string()), count)
    added = [row_ids, kinds, versions, times]
    schema = pa.schema([*(source.shown.to_arrow() for source in sources), *CHANGE_FIELDS])
    return pa.RecordBatch.from_arrays([*columns, *added], schema=schema)
