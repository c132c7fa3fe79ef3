"""Compute new columns from existing ones in this process, fragment by fragment.

For small tables; Spark does the same on executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.field import Field
from pyspark_lance.predicate.conditions import all_of
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.columns.change_columns import RunColumns
from pyspark_lance.table.rows.column_files import ColumnFile, ColumnFilesRequest, write_column_files
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, project
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.time_travel import VersionSpec


def computed(
    names: Sequence[str],
    compute: Callable[[pa.RecordBatch], Sequence[pa.Array]],
    *,
    lineage: Sequence[str] = (),
) -> RunColumns:
    """Return a runner that applies ``compute`` to batches of the columns ``names``.

    ``compute``: returns the new columns of a batch, in order; ``lineage``: additional lineage
    columns to read.
    """

    def run_local(request: ColumnFilesRequest) -> Iterator[ColumnFile]:
        at = VersionSpec(version=request.read_version)
        snapshot = Snapshot.open(request.table, at)
        scan = ScanRequest(
            schema=project(snapshot.schema, names),
            system_columns=(ROW_ADDRESS, *lineage),
            fragments_per_task=1,
        )
        new = request.columns.to_arrow().names
        for task in plan_scan(snapshot, scan):
            slices = tuple(
                scan_split
                for scan_split in task.slices
                if scan_split.fragment.id in request.fragments
            )
            if slices:
                batches = (
                    pa.RecordBatch.from_arrays(
                        [batch.column(ROW_ADDRESS), *compute(batch)], names=[ROW_ADDRESS, *new]
                    )
                    for batch in replace(task, slices=slices).run()
                )
                yield from write_column_files(request, batches)

    return run_local


def copied(name: str) -> RunColumns:
    """Return a runner that copies the column ``name``."""
    return computed([name], lambda batch: [batch.column(0)])


def constants(values: Sequence[pa.Scalar]) -> RunColumns:
    """Return a runner for columns of constant values."""
    return computed([], lambda batch: [pa.repeat(value, batch.num_rows) for value in values])


def has_nulls(snapshot: Snapshot, fields: tuple[Field, ...]) -> bool:
    """Return whether a live row has a null in a column, or in a field of a non-null struct."""
    *parents, last = [f"`{field.name}`" for field in fields]
    path, terms = "", []
    for name in parents:
        path = f"{path}.{name}" if path else name
        terms.append(f"{path} IS NOT NULL")
    terms.append(f"{f'{path}.' if path else ''}{last} IS NULL")
    schema = project(snapshot.schema, [fields[0].name])
    arrow = schema.to_arrow()
    request = ScanRequest(
        schema=schema, predicate=all_of([parse_predicate(term, arrow) for term in terms])
    )
    return any(batch.num_rows for task in plan_scan(snapshot, request) for batch in task.run())
