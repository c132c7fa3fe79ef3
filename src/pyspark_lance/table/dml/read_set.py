"""The read set of a DML statement: after concurrent changes to it, plan the statement again.

Statements that read (DELETE and UPDATE by condition, MERGE, replaceWhere) are serializable with
each other. An append reads nothing, so the statement is ordered before it and need not plan again.
A merge that inserts missing keys also checks rows that were removed concurrently.

Only fragments that were added or changed concurrently are checked against the condition or the
keys. If these are not known, or there are too many rows to check on the driver, the statement is
planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

import pyarrow as pa

from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.commit.fragment_changes import changed_fields
from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.column_names import ROW_ADDRESS, SYSTEM_COLUMNS
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.predicate.conditions import Predicate, columns_of
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.dml.key_cache import remember_row_keys, rows_with_keys
from pyspark_lance.table.dml.key_filter import KeyFilter, is_hashable
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

_MAX_ROWS = 4_000_000
"""Maximum concurrent rows to check; for more, planning again is as cheap."""

EVERYTHING = ReadSet(lambda _file, fragments: bool(fragments), lambda _file, changed: bool(changed))
"""The read set of a statement whose reads are unknown."""


def matching_rows(
    plan: DmlPlan,
    predicate: Predicate | None,
    *,
    columns: Sequence[str] = (),
    system: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the matching rows of the pinned version, ordered by address.

    ``predicate``: None for all rows.
    """
    snapshot = plan.snapshot()
    request = ScanRequest(
        schema=project(snapshot.schema, columns),
        system_columns=tuple(name for name in SYSTEM_COLUMNS if name in system),
        predicate=predicate,
    )
    for task in plan_scan(snapshot, request):
        yield from task.run()


def condition_read_set(read: Snapshot, condition: str | None) -> ReadSet:
    """Return the read set of a SQL condition on the snapshot ``read``; None for all rows."""
    if condition is None:
        return EVERYTHING
    return predicate_read_set(
        read, lambda snapshot: parse_predicate(condition, predicate_schema(snapshot.schema))
    )


def predicate_read_set(read: Snapshot, condition: Callable[[Snapshot], Predicate]) -> ReadSet:
    """Return the read set of a predicate that is bound to each snapshot."""

    def request(snapshot: Snapshot) -> ScanRequest:
        return ScanRequest(
            schema=LanceSchema(), system_columns=(ROW_ADDRESS,), predicate=condition(snapshot)
        )

    return _reads_of(read, request, ScanTask.run)


def key_read_set(read: Snapshot, columns: Sequence[str], keys: KeyFilter) -> ReadSet:
    """Return the read set of the keys that a merge looked up."""

    def request(snapshot: Snapshot) -> ScanRequest:
        schema = project(snapshot.schema, tuple(dict.fromkeys(columns)))
        return ScanRequest(schema=schema, system_columns=(ROW_ADDRESS,))

    def may_match(task: ScanTask) -> Iterator[pa.RecordBatch]:
        if all(is_hashable(field.to_arrow().type) for field in task.fields):
            return rows_with_keys(task, columns, keys)
        return task.run()

    def excludes(transaction: Transaction) -> bool:
        hashes = remember_row_keys(read.table, read.schema, columns, transaction)
        return hashes is not None and not keys.may_contain(hashes).any()

    return replace(_reads_of(read, request, may_match), excludes=excludes)


def _reads_of(
    read: Snapshot,
    request: Callable[[Snapshot], ScanRequest],
    rows_of: Callable[[ScanTask], Iterator[pa.RecordBatch]],
) -> ReadSet:
    """Return the read set of a scan whose rows ``rows_of`` filters."""

    def finds(tasks: Iterable[ScanTask]) -> bool:
        return any(batch.num_rows for task in tasks for batch in rows_of(task))

    def meets(file: ManifestFile, fragments: Sequence[Fragment]) -> bool:
        if sum(fragment.physical_rows for fragment in fragments) > _MAX_ROWS:
            return True
        newer = _with_fragments(read, file, fragments)
        try:
            tasks = plan_scan(newer, request(newer))
        except InvalidInputError:
            return True  # the columns have changed
        return finds(tasks)

    def misses(file: ManifestFile, changed: Set[int]) -> bool:
        requested = request(read)
        latest = _with_fragments(read, file, file.manifest.fragments)
        lost = _removed_rows(read, latest, changed, _fields_of(read, requested))
        if sum(map(len, lost.values())) > _MAX_ROWS:
            return True
        there = [fragment for fragment in read.manifest.fragments if lost.get(fragment.id)]
        older = _with_fragments(read, read.file, there)
        try:
            tasks = plan_scan(older, requested)
            return finds(_only_rows(task, lost) for task in tasks)
        except CorruptFileError:
            return True  # the files of that version may be cleaned up

    return ReadSet(meets, misses)


def _with_fragments(read: Snapshot, file: ManifestFile, fragments: Sequence[Fragment]) -> Snapshot:
    """Return a snapshot with some of its fragments."""
    manifest = replace(file.manifest, fragments=Fragments.of(fragments))
    files = TableFiles(read.table, manifest.base_paths)
    return Snapshot(read.table, read.store, replace(file, manifest=manifest), files)


def _fields_of(snapshot: Snapshot, request: ScanRequest) -> Set[int]:
    """Return the ids of all fields that a scan reads."""
    names = set() if request.predicate is None else set(columns_of(request.predicate))
    names |= {field.name for field in (request.schema or snapshot.schema).fields}
    return {
        part.id for field in snapshot.schema.fields if field.name in names for part in field.walk()
    }


def _removed_rows(
    read: Snapshot, latest: Snapshot, changed: Set[int], fields: Set[int]
) -> dict[int, OffsetSet]:
    """Return fragment id -> rows that were removed, or whose values of some fields were rewritten.

    ``changed``: fragment ids; those that did not exist before are skipped.
    """
    after = {fragment.id: fragment for fragment in latest.manifest.fragments}
    lost = {}
    for old in read.manifest.fragments:
        if old.id not in changed:
            continue
        rows = OffsetSet.live(old.physical_rows, read.deletion_vector(old))
        new = after.get(old.id)
        if new is not None and not changed_fields(old, new) & fields:
            rows = rows.without(OffsetSet.live(new.physical_rows, latest.deletion_vector(new)))
        lost[old.id] = rows
    return lost


def _only_rows(task: ScanTask, rows: Mapping[int, OffsetSet]) -> ScanTask:
    """Restrict the task to some rows of its fragments."""
    slices = []
    for scan_split in task.slices:
        wanted = rows[scan_split.fragment.id].both(
            OffsetSet.between(scan_split.start, scan_split.end)
        )
        wanted = wanted if scan_split.offsets is None else wanted.both(scan_split.offsets)
        if wanted:
            slices.append(replace(scan_split, offsets=wanted))
    return replace(task, slices=tuple(slices))
