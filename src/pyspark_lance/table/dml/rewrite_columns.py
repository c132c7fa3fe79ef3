"""Rewrite some columns of fragments in place, without moving rows.

The changed columns of all physical rows of a fragment are written to a new file; in the old files
their field ids become tombstones. Row ids, addresses, deletion files and all other columns stay,
and only rows with changed values count as updated.

Source: docs/format/table-format.md, sections 7.2, 10.4.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.codec.array_assembly import join_batches
from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import CommitConflictError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.column_names import LAST_UPDATED_AT
from pyspark_lance.format.fragment import SPILLED, TOMBSTONE, DataFile, Fragment, new_data_file_name
from pyspark_lance.format.operation import Update
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import data_path
from pyspark_lance.table.dml.row_change import ChangeResult, DmlPlan
from pyspark_lance.table.rows.blob_bytes import with_blob_bytes
from pyspark_lance.table.rows.column_files import filler_row, rows_by_fragment
from pyspark_lance.table.rows.conform import conform_batch
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import FragmentLineage
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.unit_of_work import UnitOfWork, remove_files
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 16 << 20

Piece = tuple[NDArray[np.int64], pa.RecordBatch]
"""Ascending offsets in a fragment and their new values."""


@dataclass(frozen=True, slots=True)
class RewriteColumnsRequest:
    """Request to an executor to rewrite columns; picklable."""

    files: TableFiles
    read_version: int
    columns: LanceSchema  # The complete top-level columns to rewrite.
    file_version: str
    stable_row_ids: bool  # Whether the table has stable row ids.
    fragments: Mapping[int, Fragment]  # The affected fragments of the version, by id.

    def __post_init__(self) -> None:
        """Reject file versions whose columns cannot be rewritten."""
        if self.file_version == "0.1":
            raise UnsupportedFeatureError(
                "columns of data files of version 0.1 cannot be rewritten",
                where=self.files.table.uri,
            )


@dataclass(frozen=True, slots=True)
class RewrittenColumns:
    """The new file of a fragment.

    ``changed``: offsets of the rows with new values, a portable roaring bitmap.
    """

    fragment_id: int
    file: DataFile
    changed: bytes
    num_changed: int


def plan_rewrite(
    snapshot: Snapshot, names: Iterable[str], fragment_ids: Iterable[int] | None = None
) -> RewriteColumnsRequest:
    """Return the request with which executors rewrite top-level columns.

    ``fragment_ids``: the fragments that may be affected; None for all.
    """
    wanted = None if fragment_ids is None else set(fragment_ids)
    return RewriteColumnsRequest(
        files=snapshot.files,
        read_version=snapshot.version,
        columns=LanceSchema(snapshot.schema.select(tuple(names)).fields),
        file_version=snapshot.manifest.file_version,
        stable_row_ids=snapshot.uses_stable_row_ids,
        fragments={
            # Unread row id sequences would be most of the plan.
            fragment.id: replace(fragment, row_ids=None, created_at=None, last_updated_at=None)
            for fragment in counted_fragments(snapshot)
            if wanted is None or fragment.id in wanted
        },
    )


def rewrite_columns(
    request: RewriteColumnsRequest, batches: Iterable[pa.RecordBatch]
) -> Iterator[RewrittenColumns]:
    """Write the new files of fragments from a stream of new values.

    When anything fails, the files written by this call are removed.

    ``batches``: rows with their address (``_rowaddr``) and all of the request's columns, ascending
    by address; all changed rows of a fragment are in one call.
    """
    store = request.files.store_of(None)
    finished: list[RewrittenColumns] = []
    try:
        batches = with_blob_bytes(request.files.table, batches)
        for fragment_id, group in itertools.groupby(
            rows_by_fragment(batches), lambda part: part[0]
        ):
            fragment = request.fragments.get(fragment_id)
            if fragment is None:
                raise CommitConflictError(
                    f"fragment {fragment_id} is not in version {request.read_version}"
                )
            pieces = (
                (indices, conform_batch(values, request.columns.fields))
                for _, indices, values in group
            )
            finished.append(_rewrite_fragment(request, fragment, pieces))
    except BaseException:
        remove_files(store, paths_of(finished))
        raise
    yield from finished


def _rewrite_fragment(
    request: RewriteColumnsRequest, fragment: Fragment, pieces: Iterator[Piece]
) -> RewrittenColumns:
    fields = request.columns.fields
    schema = request.columns.to_arrow()
    reader = FragmentReader(request.files, fragment, stable_row_ids=False)
    new_values = _NewValues(fragment, pieces)
    vector = load_deletion_vector(request.files, fragment, stable_row_ids=request.stable_row_ids)
    deleted = np.empty(0, np.int64) if vector is None else vector.to_array().astype(np.int64)
    # A deleted row may contain a value that the column no longer allows.
    filler = filler_row(new_values.a_row, fields, request.file_version)
    path = data_path(new_data_file_name(uuid.uuid4().bytes))
    store = request.files.store_of(None)
    writer = DataFileWriter(store, path, request.columns, version=request.file_version)
    try:
        for first, old in reader.stream(
            fields,
            (),
            (0, fragment.physical_rows),
            batch_rows=_BATCH_ROWS,
            batch_bytes=_BATCH_BYTES,
        ):
            indices, values = new_values.up_to(first + old.num_rows)
            start, end = np.searchsorted(deleted, (first, first + old.num_rows))
            batch = pa.RecordBatch.from_arrays(old.columns, schema=schema)
            removed = deleted[start:end] - first
            for rows in _replace_values(batch, removed, filler, indices - first, values):
                writer.write(rows)
        changed = new_values.finish()
        file = writer.finish()
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            writer.abort()
        raise
    return RewrittenColumns(fragment.id, file, changed.serialize(), len(changed))


class _NewValues:
    """The new values of one fragment, consumed in row order."""

    def __init__(self, fragment: Fragment, pieces: Iterator[Piece]) -> None:
        self._fragment = fragment
        self._pieces = pieces
        first = next(pieces)
        self.a_row = first[1].slice(0, 1)
        self._buffered: Piece | None = first
        self._last = -1
        self._changed = BitMap()

    def up_to(self, end: int) -> tuple[NDArray[np.int64], pa.Table]:
        """Return offsets and values below ``end`` that were not consumed before."""
        indices: list[NDArray[np.int64]] = []
        values: list[pa.RecordBatch] = []
        while self._buffered is not None:
            buffered_positions, buffered_values = self._buffered
            count = int(np.searchsorted(buffered_positions, end))
            if count:
                self._check(buffered_positions[:count])
                indices.append(buffered_positions[:count])
                values.append(buffered_values.slice(0, count))
            if count < len(buffered_positions):
                self._buffered = (buffered_positions[count:], buffered_values.slice(count))
                break
            self._buffered = next(self._pieces, None)
        if not indices:
            return np.empty(0, dtype=np.int64), pa.Table.from_batches([self.a_row.slice(0, 0)])
        return np.concatenate(indices), pa.Table.from_batches(values)

    def _check(self, indices: NDArray[np.int64]) -> None:
        if int(indices[0]) <= self._last or (np.diff(indices) <= 0).any():
            raise InvalidInputError(
                f"rows of fragment {self._fragment.id} are repeated or out of order",
                hint="each row can get one new value",
            )
        self._last = int(indices[-1])
        self._changed |= BitMap(indices.astype(np.uint32))

    def finish(self) -> BitMap:
        """Return all consumed offsets; no value may be left."""
        if self._buffered is not None:
            raise InvalidInputError(
                f"row {int(self._buffered[0][0])} of fragment {self._fragment.id}, which has "
                f"{self._fragment.physical_rows} rows"
            )
        return self._changed


def _replace_values(
    old: pa.RecordBatch,
    deleted: NDArray[np.int64],
    filler: pa.RecordBatch,
    positions: NDArray[np.int64],
    values: pa.Table,
) -> Iterator[pa.RecordBatch]:
    """Return ``old`` with ``filler`` at ``deleted`` and ``values`` at ``positions``.

    Yields one batch, if old and new values fit into it.
    """
    if len(positions) == old.num_rows:
        yield from values.to_batches()
    elif not len(positions) and not len(deleted):
        yield old
    elif not len(positions) and len(deleted) == old.num_rows:
        yield take_rows(filler, np.zeros(old.num_rows, dtype=np.int64))
    else:
        try:
            rows = join_batches([old, filler, *values.to_batches()])
        except BatchTooLargeError:
            half = old.num_rows // 2
            index, removed = int(positions.searchsorted(half)), int(deleted.searchsorted(half))
            first, rest = old.slice(0, half), old.slice(half)
            yield from _replace_values(
                first, deleted[:removed], filler, positions[:index], values[:index]
            )
            deleted, positions = deleted[removed:] - half, positions[index:] - half
            yield from _replace_values(rest, deleted, filler, positions, values[index:])
            return
        indices = np.arange(old.num_rows, dtype=np.int64)
        indices[deleted] = old.num_rows
        indices[positions] = old.num_rows + 1 + np.arange(len(positions))
        yield take_rows(rows, indices)


# The commit --------------------------------------------------------------------------------


def column_update(
    fragments: Mapping[int, Fragment],
    schema: LanceSchema,
    columns: LanceSchema,
    rewritten: Iterable[RewrittenColumns],
) -> Update:
    """Return the operation that adds new files to fragments.

    ``fragments``: the affected fragments of the version that was read; a fragment that also loses
    rows has its new deletion file. ``rewritten``: one new file for each fragment.
    """
    by_fragment = {rewrite.fragment_id: rewrite for rewrite in rewritten}
    ids = frozenset(part.id for part in columns.walk())
    others = frozenset(part.id for part in schema.walk()) - ids
    updated = tuple(
        _with_new_file(fragments[fragment_id], ids, others, rewrite.file)
        for fragment_id, rewrite in sorted(by_fragment.items())
    )
    return Update(
        updated_fragments=updated,
        fields_modified=tuple(sorted(ids)),
        update_mode=1,
        updated_fragment_offset_bitmaps={
            i: rewrite.changed for i, rewrite in sorted(by_fragment.items())
        },
    )


def _with_new_file(
    fragment: Fragment, ids: frozenset[int], others: frozenset[int], file: DataFile
) -> Fragment:
    """Return the fragment with ``file`` replacing the fields ``ids`` of its other files.

    A file without fields of the remaining schema (``others``) is removed, even if it has dropped
    columns: Lance treats it as corrupt.
    """
    files = []
    for old in fragment.files:
        if any(field_id in others or field_id < TOMBSTONE for field_id in old.fields):
            fields = tuple(TOMBSTONE if field_id in ids else field_id for field_id in old.fields)
            files.append(replace(old, fields=fields))
    return replace(fragment, files=(*files, file))


def commit_rewrite(
    plan: DmlPlan,
    request: RewriteColumnsRequest,
    rewritten: Iterable[RewrittenColumns],
    work: UnitOfWork,
    *,
    reads: ReadSet | None = None,
) -> ChangeResult:
    """Commit new files of fragments as one version; commit nothing if there are none."""
    done = [rewrite for rewrite in rewritten if rewrite.num_changed]
    work.register_files(paths_of(done))
    if not done:
        return ChangeResult()
    snapshot = plan.snapshot()
    touched = {rewrite.fragment_id for rewrite in done}
    fragments = {
        fragment.id: _with_inline_versions(snapshot, fragment)
        for fragment in snapshot.manifest.fragments
        if fragment.id in touched
    }
    operation = column_update(fragments, snapshot.schema, request.columns, done)
    commit_request = work.propose(plan.base, operation, uuid=plan.transaction_uuid)
    result = work.commit(replace(commit_request, reads=reads))
    if result is None:
        return ChangeResult()
    return ChangeResult(result.version, numUpdatedRows=sum(rewrite.num_changed for rewrite in done))


def _with_inline_versions(snapshot: Snapshot, fragment: Fragment) -> Fragment:
    """Return the fragment with inline last-updated versions, which a commit can change."""
    if fragment.last_updated_at is not SPILLED:
        return fragment
    lineage = FragmentReader(snapshot.files, fragment, stable_row_ids=True).lineage
    assert isinstance(lineage, FragmentLineage)  # of one fragment
    versions = lineage.versions(LAST_UPDATED_AT)
    assert versions is not None  # they are in a hidden column
    return replace(fragment, last_updated_at=versions.to_bytes())


def paths_of(rewritten: Iterable[RewrittenColumns]) -> list[str]:
    """Return the paths of the new files."""
    return [data_path(rewrite.file.path) for rewrite in rewritten]
