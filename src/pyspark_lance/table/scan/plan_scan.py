"""Plan the tasks of a scan request on a snapshot, packed to about equal cost.

Fragments are pruned with the manifest (lineage runs, row ids, addresses) and indices. A Spark task
has an overhead of about 50 ms, so small fragments share a task, and large ones are split by rows.
Change feeds are packed in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import (
    SYSTEM_COLUMNS,
    by_name,
    check_version_columns,
    name_hint,
)
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.conditions import Predicate, columns_of
from pyspark_lance.predicate.tree import all_of
from pyspark_lance.table.rows.scan_split import ScanSplit, Slices
from pyspark_lance.table.scan.column_widths import read_share
from pyspark_lance.table.scan.fragment_pruning import prune_splits
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot

# As Spark's file sources: the maximum bytes of a partition, and the cost of opening a file.
_MAX_TASK_BYTES: Final = 128 << 20
_MIN_TASK_BYTES: Final = 4 << 20
OPEN_COST_BYTES: Final = 256 << 10
# A task may exceed its target cost by this factor.
_TOLERANCE: Final = 1.1
# Split points are multiples of this, the largest mini-block chunk.
_SPLIT_ROWS: Final = 4096

_W = TypeVar("_W")


def pack_by_cost(
    costs: NDArray[np.float64],
    work: Sequence[_W],
    split: Callable[[_W, int], Sequence[_W]],
    parallelism: int,
    kinds: NDArray[np.int64] | None = None,
) -> list[Sequence[_W]]:
    """Group adjacent pieces of work into tasks; keep their order.

    ``costs``: bytes to read for each piece, shape (len(work),); ``split``: divides a piece of work
    into at most n pieces of about equal cost; ``parallelism``: tasks that can run at once;
    ``kinds``: a number for each piece, shape (len(work),); a task has pieces of one kind.
    """
    kinds = np.zeros(len(work), np.int64) if kinds is None else kinds
    target = _task_bytes(float(costs.sum()), parallelism)
    counts = np.rint(costs / target)
    if (counts > 1).any():
        pieces = [
            split(whole, int(count)) if count > 1 else (whole,)
            for whole, count in zip(work, counts.tolist(), strict=True)
        ]
        lengths = [len(some) for some in pieces]
        costs = np.repeat(costs / np.maximum(lengths, 1), lengths)
        kinds = np.repeat(kinds, lengths)
        work = [piece for some in pieces for piece in some]
    # Costs before each piece, and where the kind changes.
    before = np.concatenate((np.zeros(1), np.cumsum(costs)))
    changes = np.append(np.flatnonzero(np.diff(kinds)) + 1, len(work))
    tasks, first = [], 0
    while first < len(work):
        filled = np.searchsorted(before, before[first] + target * _TOLERANCE, side="right") - 1
        other = changes[np.searchsorted(changes, first, side="right")]
        last = int(min(max(filled, first + 1), other))
        tasks.append(work[first:last])
        first = last
    return tasks


def slice_costs(slices: Slices, share: float) -> NDArray[np.float64]:
    """Return the bytes to read for each split, plus the cost of opening the fragment.

    ``share``: the fraction of a row's bytes that is read.
    """
    columns = slices.fragments.columns
    read = slices.num_rows / np.maximum(1, columns.physical_rows)
    return columns.num_bytes * share * read + OPEN_COST_BYTES


def split_slice(scan_split: ScanSplit, count: int) -> list[ScanSplit]:
    """Divide ``scan_split`` into ``count`` pieces, or fewer if it is small."""
    if scan_split.offsets is not None:
        step = max(1, -(-len(scan_split.offsets) // count))
        pieces = (
            scan_split.offsets.part(at, at + step) for at in range(0, len(scan_split.offsets), step)
        )
        return [
            ScanSplit(scan_split.fragment, scan_split.start, scan_split.end, piece)
            for piece in pieces
        ]
    rows = -(-(scan_split.end - scan_split.start) // count)
    step = -(-rows // _SPLIT_ROWS) * _SPLIT_ROWS
    return [
        ScanSplit(scan_split.fragment, start, min(start + step, scan_split.end))
        for start in range(scan_split.start, scan_split.end, step)
    ]


def _task_bytes(total: float, parallelism: int) -> float:
    """Return the target cost of a task."""
    return min(_MAX_TASK_BYTES, max(_MIN_TASK_BYTES, total / parallelism))


DEFAULT_BATCH_ROWS = 65_536
DEFAULT_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The columns and rows to read, and how to read them."""

    # Columns to return: the table's schema, or some of its columns and sub-fields. None means all.
    schema: LanceSchema | None = None
    system_columns: tuple[str, ...] = ()
    predicate: Predicate | None = None  # Rows to return; None means all.
    # Used for pruning only; it is never evaluated on rows.
    narrowed_by: Predicate | None = None
    fragments_per_task: int | None = None  # Fixed packing; None packs by bytes.
    splits_fragments: bool = True  # Whether several tasks may read one fragment.
    batch_rows: int = DEFAULT_BATCH_ROWS
    batch_bytes: int = DEFAULT_BATCH_BYTES  # Target bytes of a batch.
    # Tasks that can run in parallel; small tables are split into as many.
    parallelism: int = os.cpu_count() or 1
    # Whether batches may have dictionaries of strings instead of strings.
    keep_dictionaries: bool = False
    checks_text: bool = False  # Whether strings that are not UTF-8 are an error.

    def __post_init__(self) -> None:
        """Reject sizes that are not positive."""
        for name in ("fragments_per_task", "batch_rows", "batch_bytes", "parallelism"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{name} must be positive, not {value}")


def project(schema: LanceSchema, names: Sequence[str]) -> LanceSchema:
    """Return the schema with only the top-level columns ``names``, in that order."""
    fields = by_name(schema.fields)
    chosen = []
    for name in names:
        field = fields.get(name)
        if field is None:
            hint = name_hint(name, [field.name for field in schema.fields])
            raise InvalidInputError(f"there is no column {name!r}", hint=hint)
        if field in chosen:
            raise InvalidInputError(f"the column {name!r} is named twice")
        chosen.append(field)
    return LanceSchema(fields=tuple(chosen), metadata=schema.metadata)


def predicate_schema(schema: LanceSchema) -> pa.Schema:
    """Return the columns of predicates: the table's columns, as shown, and the lineage columns."""
    fields = [field.to_arrow() for field in logical_schema(schema).fields]
    fields += [pa.field(name, pa.uint64(), nullable=False) for name in SYSTEM_COLUMNS]
    return pa.schema(fields)


def plan_scan(snapshot: Snapshot, request: ScanRequest) -> tuple[ScanTask, ...]:
    """Return the tasks that read ``request``, without opening data files."""
    return scan_tasks(snapshot, request, plan_splits(snapshot, request))


def plan_splits(snapshot: Snapshot, request: ScanRequest) -> Slices:
    """Return the splits that may contain rows of ``request``."""
    conditions = [one for one in (request.predicate, request.narrowed_by) if one is not None]
    return prune_splits(snapshot, all_of(conditions))


def scan_tasks(
    snapshot: Snapshot, request: ScanRequest, slices: Slices, kinds: NDArray[np.int64] | None = None
) -> tuple[ScanTask, ...]:
    """Return the tasks that read ``request`` from some splits.

    ``kinds``: a number for each split, shape (len(slices),), ascending; a task has splits of one
    kind.
    """
    schema = snapshot.schema if request.schema is None else request.schema
    named = columns_of(request.predicate) if request.predicate is not None else frozenset()
    stable = snapshot.uses_stable_row_ids
    lineage = tuple(n for n in SYSTEM_COLUMNS if n in named or n in request.system_columns)
    check_version_columns(lineage, stable_row_ids=stable, uri=snapshot.uri)
    returned = {field.name: field for field in schema.fields}
    filter_fields = tuple(
        field
        for field in logical_schema(snapshot.schema).fields
        if field.name in named and returned.get(field.name) != field
    )
    if stable:
        slices = slices.select_lineage(lineage)
    weight = read_share(snapshot, (*schema.fields, *filter_fields))
    groups = (
        _pack_by_count(slices, request.fragments_per_task)
        if request.fragments_per_task is not None
        else pack_by_cost(
            slice_costs(slices, weight),
            slices,
            split_slice if request.splits_fragments else _keep_whole,
            request.parallelism,
            kinds,
        )
    )
    return tuple(
        ScanTask(
            files=snapshot.files,
            fields=schema.fields,
            filter_fields=filter_fields,
            system_columns=request.system_columns,
            predicate=request.predicate,
            stable_row_ids=stable,
            batch_rows=request.batch_rows,
            batch_bytes=request.batch_bytes,
            slices=group,
            keep_dictionaries=request.keep_dictionaries,
            checks_text=request.checks_text,
        )
        for group in groups
    )


def _keep_whole(split: ScanSplit, count: int) -> Sequence[ScanSplit]:
    return (split,)


def _pack_by_count(slices: Slices, count: int) -> list[Sequence[ScanSplit]]:
    return [slices[first : first + count] for first in range(0, len(slices), count)]
