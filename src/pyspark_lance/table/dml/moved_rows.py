"""Write updated rows, with their row ids, and then inserted rows to new fragments.

Columns that are not assigned are read from the old fragment, so only assigned columns pass through
Spark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import join_batches
from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.row_selection import filter_rows, take_rows
from pyspark_lance.codec.shred import data_bytes
from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.commit.fragment_changes import FragmentsById
from pyspark_lance.errors import CommitConflictError, InvalidInputError, SchemaMismatchError
from pyspark_lance.format.column_names import CREATED_AT, ROW_ADDRESS, ROW_ID
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.logical_view import moving_rows_schema
from pyspark_lance.format.row_address import fragment_ids, offsets
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.dml.deletions import MatchedRows, add_touched, touched_rows
from pyspark_lance.table.dml.key_filter import NewKeys, RowKeys, stored_key
from pyspark_lance.table.dml.row_change import DmlPlan, RowAction
from pyspark_lance.table.rows.blob_bytes import BlobBytes
from pyspark_lance.table.rows.conform import conform_array, conform_batch
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.spilled_lineage import spill_lineage
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.unit_of_work import remove_files
from pyspark_lance.table.version.snapshot import Snapshot

# Columns of a batch of changes, in addition to those of the table.
CLAUSE = "__lance_clause"
CHANGED_ROW_ID = "__lance_rowid"
CHANGED_ADDRESS = "__lance_rowaddr"
# Prefix for a column that is assigned in some rows only: the table column whose value the row
# keeps, or null where the column is assigned.
KEEPS = "__lance_keeps_"

_Complete = Callable[[pa.RecordBatch, Collection[str]], pa.RecordBatch]
"""Completes rows of changes whose clause assigns only some columns."""

# Open fragment readers; batches are sorted by address, so a small number suffices.
_OPEN_FRAGMENTS = 8
# Maximum bytes of unassigned columns that are read at once.
_MAX_KEPT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Clause:
    """The action for rows that a clause applies to."""

    action: RowAction  # Update, insert, delete or keep.
    # Assigned columns; an update keeps the remaining ones, an insert leaves them null.
    columns: tuple[str, ...] = ()
    same: frozenset[str] = frozenset()  # Those of ``columns`` whose values certainly do not change.

    def __post_init__(self) -> None:
        """Reject a plain value."""
        check_enum(self.action, RowAction)


def as_changes(
    batch: pa.RecordBatch, clause: int, values: Mapping[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Convert rows of a scan with row ids and addresses to changes of one clause."""
    columns = {
        CLAUSE: plain_array(np.full(batch.num_rows, clause, dtype=np.int32)),
        CHANGED_ROW_ID: batch.column(ROW_ID),
        CHANGED_ADDRESS: batch.column(ROW_ADDRESS),
        **(values or {}),
    }
    return pa.RecordBatch.from_pydict(columns)


@dataclass(frozen=True, slots=True)
class WrittenChanges:
    """The result of one task."""

    # New fragments with updated and inserted rows; updated rows keep their row ids.
    fragments: tuple[Fragment, ...]
    touched: tuple[MatchedRows, ...]  # Matched rows of each fragment.
    num_inserted_rows: int
    num_updated_rows: int
    new_keys: bytes = b""  # ``NewKeys.to_bytes`` of inserted rows and of rows with a changed key.
    row_keys: bytes | None = None  # ``RowKeys.to_bytes`` of all rows.


def write_changes(
    plan: DmlPlan, clauses: Sequence[Clause], batches: Iterable[pa.RecordBatch]
) -> WrittenChanges:
    """Write the data files of one task and return which rows are removed.

    ``batches``: ``CLAUSE`` (position in ``clauses``), ``CHANGED_ROW_ID``, ``CHANGED_ADDRESS`` (null
    for inserts), every column that some clause assigns, and ``KEEPS`` of some of them. Inserts come
    last; the order of updates is kept, so sorting by address is best.
    """
    task = _Task(plan, tuple(clauses))
    if not any(clause.action in (RowAction.UPDATE, RowAction.INSERT) for clause in clauses):
        for batch in batches:
            task.note(batch)
        return task.result(())
    request = replace(plan.write_request(), schema=_moved_schema(plan))
    fragments = write_fragments(request, task.new_rows(batches))
    try:
        return task.result(spill_lineage(request, task.with_lineage(fragments)))
    except BaseException:
        remove_files(request.table.store(), files_of(fragments))
        raise


def _moved_schema(plan: DmlPlan) -> LanceSchema:
    """Return the schema of moved rows; blobs that are separate objects are not copied."""
    return moving_rows_schema(plan.schema) if plan.schema.manages_blobs else plan.schema


class _Task:
    """One pass over batches of changes."""

    def __init__(self, plan: DmlPlan, clauses: tuple[Clause, ...]) -> None:
        self._clauses = clauses
        self._actions = np.array([clause.action for clause in clauses], dtype=np.int8)
        self._fields = _moved_schema(plan).fields
        self._blobs = BlobBytes(plan.table)
        self._spills = plan.inline_lineage_bytes is not None
        self._rows = _RowSource(plan)
        self._touched: dict[int, MatchedRows] = {}
        self._row_ids: list[NDArray[np.uint64]] = []
        self._created: list[NDArray[np.uint64]] = []
        self._num_inserted = 0
        self._num_updated = 0
        key = stored_key(plan.schema)
        self._new_keys = NewKeys(key)
        moves = [clause for clause in clauses if clause.action is RowAction.UPDATE]
        changes_keys = any(set(key) & set(clause.columns) - clause.same for clause in moves)
        self._moved_keys = self._new_keys if changes_keys else NewKeys(())
        self._row_keys = RowKeys(plan.row_keys)
        self._most_rows = 1 << 16

    def note(self, batch: pa.RecordBatch) -> NDArray[np.int8]:
        """Record which rows of a batch are removed; return the action of each row."""
        clause = _integers(batch, CLAUSE).astype(np.int64)
        actions = self._actions[clause]
        known = actions != RowAction.INSERT
        if known.any():
            addresses = _integers(
                filter_rows(batch.select([CHANGED_ADDRESS]), known), CHANGED_ADDRESS
            )
            removed = actions[known] != RowAction.KEEP
            add_touched(self._touched, touched_rows(addresses, removed).values())
        return actions

    def new_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        """Yield complete rows to write, updated ones first; None ends a fragment."""
        for batch in batches:
            if not batch.num_rows:
                continue
            actions = self.note(batch)
            moved = np.flatnonzero(actions == RowAction.UPDATE)
            if len(moved):
                if self._num_inserted:
                    raise AssertionError("rows that move come before rows that are inserted")
                self._num_updated += len(moved)
                for part, rows in self._in_parts(_rows_at(batch, moved), self._update_rows):
                    if self._rows.stable:
                        self._row_ids.append(_integers(part, CHANGED_ROW_ID))
                        addresses = _integers(part, CHANGED_ADDRESS)
                        self._created.append(self._rows.created_at(addresses))
                    self._moved_keys.add(rows)
                    self._row_keys.add(rows)
                    yield rows
            inserted = np.flatnonzero(actions == RowAction.INSERT)
            if len(inserted):
                if self._spills and self._rows.stable and not self._num_inserted:
                    # The ids of inserted rows are assigned by the commit, so a hidden column cannot
                    # store them.
                    yield None
                self._num_inserted += len(inserted)
                for _, rows in self._in_parts(_rows_at(batch, inserted), self._insert_rows):
                    self._new_keys.add(rows)
                    self._row_keys.add(rows)
                    yield rows

    def result(self, fragments: tuple[Fragment, ...]) -> WrittenChanges:
        """Return the result; ``fragments`` contain the rows of ``new_rows``."""
        touched = tuple(self._touched.values())
        return WrittenChanges(
            fragments,
            touched,
            self._num_inserted,
            self._num_updated,
            self._new_keys.to_bytes(),
            self._row_keys.to_bytes(),
        )

    def with_lineage(self, fragments: tuple[Fragment, ...]) -> tuple[Fragment, ...]:
        """Return the fragments with the lineage of the moved rows."""
        if not self._rows.stable or not self._row_ids:
            return fragments
        ids, created = np.concatenate(self._row_ids), np.concatenate(self._created)
        return with_lineage(fragments, ids, created)

    def _in_parts(
        self, batch: pa.RecordBatch, complete: _Complete
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield changes and the resulting rows, in parts that fit into memory."""
        for part in self._blobs.of(batch):
            yield from self._in_small_parts(part, complete)

    def _in_small_parts(
        self, batch: pa.RecordBatch, complete: _Complete
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, self._most_rows)
            try:
                rows = self._by_clause(part, complete)
            except BatchTooLargeError:
                if part.num_rows == 1:
                    raise
                self._most_rows = part.num_rows // 2
                continue
            yield part, rows
            start += part.num_rows

    def _by_clause(self, batch: pa.RecordBatch, complete: _Complete) -> pa.RecordBatch:
        """Apply ``complete`` to the rows of each clause; keep the order of the rows."""
        clause = _integers(batch, CLAUSE).astype(np.int64)
        return _by_group(
            batch, clause, lambda rows, first: complete(rows, self._clauses[clause[first]].columns)
        )

    def _update_rows(self, batch: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
        sources = [name for name in columns if KEEPS + name in batch.schema.names]
        if not sources:
            return self._with_kept(batch, columns, {})
        kept = {name: batch.column(KEEPS + name) for name in sources}
        codes = [pc.fill_null(one.dictionary_encode().indices, -1) for one in kept.values()]
        _, pattern = np.unique(np.stack(codes), axis=1, return_inverse=True)

        def complete(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
            own = {name: one[first].as_py() for name, one in kept.items() if one[first].is_valid}
            return self._with_kept(rows, set(columns) - own.keys(), own)

        return _by_group(batch, pattern.reshape(-1), complete)

    def _with_kept(
        self, batch: pa.RecordBatch, columns: Collection[str], sources: Mapping[str, str]
    ) -> pa.RecordBatch:
        """Return complete rows: assigned ``columns``, and stored values for all other columns.

        ``sources``: columns that are assigned the stored value of another column.
        """
        values = _conform_columns(self._fields, batch, columns)
        fields = {field.name: field for field in self._fields}
        others = [name for name in fields if name not in columns]
        read = dict.fromkeys(sources.get(name, name) for name in others)
        if read:
            most = _MAX_KEPT_BYTES if batch.num_rows > 1 else None
            wanted = tuple(fields[name] for name in read)
            kept = self._rows.take(wanted, (), _integers(batch, CHANGED_ADDRESS), most)
            rows = dict(zip(read, kept.columns, strict=True))
            for name in others:
                target = fields[name].to_arrow().type
                values[name] = conform_array(rows[sources.get(name, name)], target, name)
        return _assemble(self._fields, values)

    def _insert_rows(self, batch: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
        return inserted_rows(self._fields, batch, columns)


def _by_group(
    batch: pa.RecordBatch,
    group: NDArray[np.int64],
    complete: Callable[[pa.RecordBatch, int], pa.RecordBatch],
) -> pa.RecordBatch:
    """Apply ``complete`` to the rows of each group, keeping the order of all rows.

    ``group``: a number for each row. ``complete``: also receives the position of the first row.
    """
    groups = [np.flatnonzero(group == number) for number in np.unique(group)]
    pieces = [complete(_rows_at(batch, rows), int(rows[0])) for rows in groups]
    if len(pieces) == 1:
        return pieces[0]
    order = np.argsort(np.concatenate(groups), kind="stable")
    return take_rows(join_batches(pieces), order)


def inserted_rows(
    fields: Sequence[Field], batch: pa.RecordBatch, columns: Collection[str]
) -> pa.RecordBatch:
    """Return complete new rows: ``columns`` of the batch, null in all other columns.

    ``batch``: has at least ``columns``.
    """
    values = _conform_columns(fields, batch, columns)
    for field in fields:
        if field.name not in values:
            if not field.nullable:
                raise SchemaMismatchError(
                    f"an inserted row lacks the column {field.name!r}, which must not be null"
                )
            values[field.name] = pa.nulls(batch.num_rows, field.to_arrow().type)
    return _assemble(fields, values)


def _conform_columns(
    fields: Sequence[Field], batch: pa.RecordBatch, columns: Collection[str]
) -> dict[str, pa.Array]:
    chosen = [field for field in fields if field.name in columns]
    conformed = conform_batch(batch, chosen)
    return {field.name: conformed.column(i) for i, field in enumerate(chosen)}


def _assemble(fields: Sequence[Field], values: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [values[field.name] for field in fields],
        schema=pa.schema([field.to_arrow() for field in fields]),
    )


class _RowSource:
    """Reader of rows of the pinned version by address."""

    def __init__(self, plan: DmlPlan) -> None:
        self._plan = plan
        self.stable = plan.stable_row_ids
        self._snapshot: Snapshot | None = None
        self._fragments = FragmentsById()
        self._open: OrderedDict[int, FragmentReader] = OrderedDict()

    def created_at(self, addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the versions that created the rows, same shape."""
        return _integers(self.take((), (CREATED_AT,), addresses), CREATED_AT)

    def take(
        self,
        fields: Sequence[Field],
        system: Sequence[str],
        addresses: NDArray[np.uint64],
        max_bytes: int | None = None,
    ) -> pa.RecordBatch:
        """Read columns of the rows at ``addresses``, in that order; addresses may repeat."""
        wanted, index = np.unique(addresses, return_inverse=True)
        owners = fragment_ids(wanted)
        starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
        pieces = []
        for rows in np.split(np.arange(len(wanted)), starts[1:]):
            reader = self._reader(int(owners[rows[0]]))
            piece = reader.take(fields, system, offsets(wanted[rows]), max_bytes=max_bytes)
            if max_bytes is not None:
                max_bytes -= sum(map(data_bytes, piece.columns))
                if max_bytes < 0:
                    raise BatchTooLargeError
            pieces.append(piece)
        rows = join_batches(pieces)
        if len(index) == len(wanted) and bool((index[1:] > index[:-1]).all()):
            return rows
        return _rows_at(rows, index)

    def _reader(self, fragment_id: int) -> FragmentReader:
        reader = self._open.get(fragment_id)
        if reader is None:
            if self._snapshot is None:
                self._snapshot = self._plan.snapshot()
                self._fragments = FragmentsById(counted_fragments(self._snapshot))
            fragment = self._fragments.get(fragment_id)
            if fragment is None:
                raise CommitConflictError(
                    f"fragment {fragment_id} is not in version {self._plan.read_version}",
                    self._plan.table.uri,
                )
            reader = FragmentReader(self._snapshot.files, fragment, stable_row_ids=self.stable)
            self._open[fragment_id] = reader
            if len(self._open) > _OPEN_FRAGMENTS:
                self._open.popitem(last=False)
        return reader


def with_lineage(
    fragments: Sequence[Fragment], row_ids: NDArray[np.uint64], created_at: NDArray[np.uint64]
) -> tuple[Fragment, ...]:
    """Return ``fragments`` whose first rows keep their ids and created-at versions.

    ``fragments``: in the order in which they were written. ``row_ids``: of the moved rows; the rows
    after them are new. ``created_at``: of the same rows.
    """
    done, start = [], 0
    for fragment in fragments:
        end = start + fragment.physical_rows
        ids = row_ids[start:end]
        if len(ids):
            created = RowDatasetVersionSequence.from_array(created_at[start:end])
            fragment = replace(
                fragment,
                row_ids=RowIdSequence.from_array(ids).to_bytes(),
                created_at=created.to_bytes(),
            )
        done.append(fragment)
        start = end
    return tuple(done)


def _rows_at(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    if len(rows) == batch.num_rows and bool((rows == np.arange(len(rows))).all()):
        return batch
    return take_rows(batch, rows)


def _integers(batch: pa.RecordBatch, name: str) -> NDArray[np.uint64]:
    column = batch.column(name)
    if column.null_count:
        raise InvalidInputError(f"the column {name} of a change holds nulls")
    if column.type != pa.uint64():
        column = pc.cast(column, pa.uint64())
    return plain_numbers(column)
