"""What a change of rows looks at, so that rows which others brought there make it plan again.

The isolation is that of a writer that reads: a change by condition, a merge and replaceWhere come
before or after any other of their kind, as a whole.  An append reads nothing, so the change can
be taken to have come before it, and it is no reason to plan again.

Only the fragments that others added are looked at, by the condition or the keys of the work; where
these are not known, or there are too many rows to look at on the driver, the work is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from pyspark_lance.commit.judge_newer import Reads
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.system_columns import ROW_ADDRESS, SYSTEM_COLUMNS
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.change.key_filter import KeyFilter, hash_keys, is_hashable
from pyspark_lance.table.change.row_change import ChangePlan
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_task import run
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

_MOST_ROWS = 4_000_000
"""Rows of others that are looked at; beyond this it is as cheap to plan again."""

EVERYTHING = Reads(lambda _file, fragments: bool(fragments))
"""For work of which nobody knows what it looked at."""


def matching_rows(
    plan: ChangePlan,
    predicate: Predicate | None,
    *,
    columns: Sequence[str] = (),
    system: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Rows of the version that a plan pins, by address.

    Args:
        plan: Pins the version.
        predicate: None for all rows.
        columns: Of the table.
        system: Lineage columns.
    """
    snapshot = plan.snapshot()
    request = ScanRequest(
        schema=project(snapshot.schema, columns),
        system_columns=tuple(name for name in SYSTEM_COLUMNS if name in system),
        predicate=predicate,
    )
    for task in plan_scan(snapshot, request):
        yield from run(task)


def reads_where(read: Snapshot, condition: str | None) -> Reads:
    """Rows of the table that was ``read`` for which the text is true; None for all rows."""
    if condition is None:
        return EVERYTHING
    return reads_by(
        read, lambda snapshot: parse_predicate(condition, predicate_schema(snapshot.schema))
    )


def reads_by(read: Snapshot, condition: Callable[[Snapshot], Predicate]) -> Reads:
    """Rows for which a condition is true, which is made for the columns of a snapshot."""

    def request(snapshot: Snapshot) -> ScanRequest:
        return ScanRequest(
            schema=LanceSchema(),
            system_columns=(ROW_ADDRESS,),
            predicate=condition(snapshot),
        )

    return Reads(_look(read, request, lambda batch: batch.num_rows > 0))


def reads_of_keys(read: Snapshot, columns: Sequence[str], keys: KeyFilter) -> Reads:
    """Rows whose keys a merge looked for.

    Args:
        read: The version that it was planned on.
        columns: Of the keys.
        keys: What it looked for.
    """

    def request(snapshot: Snapshot) -> ScanRequest:
        return ScanRequest(schema=project(snapshot.schema, tuple(dict.fromkeys(columns))))

    def may_match(batch: pa.RecordBatch) -> bool:
        parts = [batch.column(name) for name in columns]
        if not all(is_hashable(part.type) for part in parts):
            return batch.num_rows > 0
        return bool(keys.may_contain(hash_keys(parts)).any())

    return Reads(_look(read, request, may_match))


def _look(
    read: Snapshot,
    request: Callable[[Snapshot], ScanRequest],
    found: Callable[[pa.RecordBatch], bool],
) -> Callable[[ManifestFile, Sequence[Fragment]], bool]:
    """Scans some fragments of a newer version until a batch is what was looked for."""

    def meets(file: ManifestFile, fragments: Sequence[Fragment]) -> bool:
        if sum(fragment.physical_rows for fragment in fragments) > _MOST_ROWS:
            return True
        manifest = replace(file.manifest, fragments=tuple(fragments))
        files = TableFiles(read.table, manifest.base_paths)
        newer = Snapshot(read.table, read.store, replace(file, manifest=manifest), files)
        try:
            tasks = plan_scan(newer, request(newer))
        except InvalidInputError:
            return True  # the columns are not the same any more
        return any(found(batch) for task in tasks for batch in run(task))

    return meets
