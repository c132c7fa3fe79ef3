"""Rewrite the live rows of one bin of fragments into new fragments, on an executor.

Rows keep their values, order, row ids and both versions. Rows are streamed to the writer, so memory
is bounded by one batch and the open pages, independent of the size of the bin.

Source: docs/format/table-format.md, sections 6.4, 7.3, 10.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.fragment_reuse import addresses_of_live_rows
from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.system_columns import CREATED_AT, LAST_UPDATED_AT
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import DEFAULT_VERSION, FragmentLineage
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.rows.spilled_lineage import spill_lineage
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest, write_fragments
from pyspark_lance.table.scan.coalesced_fragments import CoalesceLimits
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_ROWS
from pyspark_lance.table.scan.scan_task import ScanTask, run
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table_files import TableFiles
from pyspark_lance.table.work.written_files import remove_files

SMALL_FOR_COMPACTION: Final = CoalesceLimits(rows=DEFAULT_BATCH_ROWS, file_bytes=1 << 20)
"""Large requests: the whole file is needed, and latency does not matter."""


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """One bin and all that is needed to rewrite it; picklable.

    ``stable_row_ids``: whether rows keep their ids; ``records_addresses``: whether the addresses of
    moved rows are recorded for a fragment reuse index.
    """

    files: TableFiles
    fragments: tuple[Fragment, ...]
    request: WriteFragmentsRequest
    stable_row_ids: bool
    records_addresses: bool = False

    @property
    def num_rows(self) -> int:
        """Live rows of the bin."""
        return sum(fragment.num_rows for fragment in self.fragments)


def rewrite_bin(task: CompactionTask) -> RewriteGroup:
    """Write the new files of one bin, without a commit.

    On failure, the files written by this call are removed. Return the old fragments, and the new
    ones with id 0 and the lineage of their rows.
    """
    # Deletion vectors are shared by the rows and their lineage.
    deleted = _Deleted(task)
    new = write_fragments(task.request, _live_rows(task, deleted))
    try:
        num_written = sum(fragment.physical_rows for fragment in new)
        if num_written != task.num_rows:
            raise CorruptFileError(
                f"fragments of {task.num_rows} live rows gave {num_written} rows",
                f"{task.files.table.uri}, fragment {task.fragments[0].id} and those after it",
            )
        if task.stable_row_ids:
            new = spill_lineage(task.request, with_lineage(new, _lineage_of(task, deleted)))
    except BaseException:
        remove_files(task.request.table.store(), files_of(new))
        raise
    addresses = None
    if task.records_addresses:
        vectors = [deleted(fragment) for fragment in task.fragments]
        addresses = addresses_of_live_rows(task.fragments, vectors)
    return RewriteGroup(task.fragments, new, addresses)


class _Deleted:
    """A lazy cache of the deletion vectors of a bin."""

    def __init__(self, task: CompactionTask) -> None:
        self._task = task
        self._known: dict[int, DeletionVector | None] = {}

    def __call__(self, fragment: Fragment) -> DeletionVector | None:
        if fragment.id not in self._known:
            self._known[fragment.id] = load_deletion_vector(
                self._task.files, fragment, stable_row_ids=self._task.stable_row_ids
            )
        return self._known[fragment.id]


def _live_rows(task: CompactionTask, deleted: _Deleted) -> Iterator[pa.RecordBatch]:
    scan = ScanTask(
        files=task.files,
        fields=task.request.schema.fields,
        filter_fields=(),
        system_columns=(),
        predicate=None,
        stable_row_ids=task.stable_row_ids,
        batch_rows=DEFAULT_BATCH_ROWS,
        batch_bytes=DEFAULT_BATCH_BYTES,
        slices=tuple(ScanSplit(fragment, 0, fragment.physical_rows) for fragment in task.fragments),
        small=SMALL_FOR_COMPACTION,
        checks_text=True,
    )
    return run(scan, deleted)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Ids and versions of rows, in their order."""

    row_ids: RowIdSequence
    created_at: RowDatasetVersionSequence
    last_updated_at: RowDatasetVersionSequence

    def write_to(self, fragment: Fragment, start: int) -> Fragment:
        """Return the fragment with the lineage of the rows from ``start`` on."""
        end = start + fragment.physical_rows
        return replace(
            fragment,
            row_ids=self.row_ids.slice(start, end).to_bytes(),
            created_at=self.created_at.slice(start, end).to_bytes(),
            last_updated_at=self.last_updated_at.slice(start, end).to_bytes(),
        )


def with_lineage(fragments: Sequence[Fragment], lineage: Lineage) -> tuple[Fragment, ...]:
    """Return the fragments with the lineage of all of their rows."""
    done, start = [], 0
    for fragment in fragments:
        done.append(lineage.write_to(fragment, start))
        start += fragment.physical_rows
    return tuple(done)


def _lineage_of(task: CompactionTask, deleted: _Deleted) -> Lineage:
    parts = [_live_lineage(task, fragment, deleted(fragment)) for fragment in task.fragments]
    return Lineage(
        RowIdSequence.concat(part.row_ids for part in parts),
        RowDatasetVersionSequence.concat(part.created_at for part in parts),
        RowDatasetVersionSequence.concat(part.last_updated_at for part in parts),
    )


def _live_lineage(
    task: CompactionTask, fragment: Fragment, deleted: DeletionVector | None
) -> Lineage:
    """Return the lineage of one fragment, with explicit default versions."""
    lineage = FragmentReader(task.files, fragment, stable_row_ids=True).lineage
    assert isinstance(lineage, FragmentLineage)
    row_ids = lineage.row_ids()
    created = lineage.versions(CREATED_AT)
    if created is None:
        created = RowDatasetVersionSequence.constant(fragment.physical_rows, DEFAULT_VERSION)
    updated = lineage.versions(LAST_UPDATED_AT)
    if updated is None:
        updated = created
    if deleted is None:
        return Lineage(row_ids, created, updated)
    return Lineage(row_ids.without(deleted), created.without(deleted), updated.without(deleted))
