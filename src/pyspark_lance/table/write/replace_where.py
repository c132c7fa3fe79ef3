"""replaceWhere: the rows that match a condition give way to new ones, in one version.

The new rows must match the condition, too, so that running the same write twice leaves the same
rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.errors import InvalidInputError, SchemaMismatchError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Update
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.system_columns import ROW_ADDRESS
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.predicate.conditions import Predicate, columns_of, evaluate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.tree import TRUE
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.change.commit_changes import delete_everything
from pyspark_lance.table.change.deletions import (
    FragmentLoss,
    TouchedRows,
    add_touched,
    touched_rows,
    write_deletions,
)
from pyspark_lance.table.change.row_change import ChangePlan
from pyspark_lance.table.rows.conform import conform_batch
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import run
from pyspark_lance.table.version.snapshot import Snapshot


def parse_condition(text: str, columns: LanceSchema) -> Predicate:
    """The condition over columns that both the table and the data have.

    Raises:
        InvalidInputError: It is no condition, or names another column.
    """
    predicate = parse_predicate(text, columns.to_arrow())
    missing = columns_of(predicate) - set(columns.names)
    if missing:
        raise InvalidInputError(
            f"replaceWhere names {min(missing)!r}; it can only name columns that the data have"
        )
    return predicate


def matching_only(
    batches: Iterable[pa.RecordBatch], predicate: Predicate, text: str, columns: LanceSchema
) -> Iterator[pa.RecordBatch]:
    """The batches, in the table's types, unless a row does not match.

    Raises:
        SchemaMismatchError: A row for which the condition is false or unknown.
    """
    for given in batches:
        batch = conform_batch(given, columns.fields)
        matches = pc.fill_null(evaluate(predicate, batch), False)
        if not pc.all(matches, min_count=0).as_py():
            count = batch.num_rows - int(pc.sum(matches).as_py() or 0)
            raise SchemaMismatchError(
                f"{count} of {batch.num_rows} rows of a batch do not match replaceWhere: {text}",
                hint="filter the data by the same condition before they are written",
            )
        yield batch


def delete_matching(plan: ChangePlan, predicate: Predicate) -> tuple[FragmentLoss, ...]:
    """Writes deletion files for the rows of the pinned version that match; commits nothing."""
    if predicate == TRUE:
        return delete_everything(plan, "true").losses
    snapshot = plan.snapshot()
    request = ScanRequest(schema=LanceSchema(), system_columns=(ROW_ADDRESS,), predicate=predicate)
    touched: dict[int, TouchedRows] = {}
    for task in plan_scan(snapshot, request):
        for batch in run(task):
            addresses = batch.column(0).to_numpy(zero_copy_only=False).astype(np.uint64)
            rows = touched_rows(addresses, np.ones(len(addresses), dtype=np.bool_))
            add_touched(touched, rows.values())
    losses = write_deletions(plan, touched.values(), one_match_each=False)
    return tuple(sorted(losses, key=lambda loss: loss.fragment_id))


def replacement(
    snapshot: Snapshot, lost: Iterable[FragmentLoss], files: tuple[Fragment, ...]
) -> Update:
    """One operation that removes the rows that fragments lost and adds those of ``files``."""
    fragments = {fragment.id: fragment for fragment in snapshot.manifest.fragments}
    return Update(
        removed_fragment_ids=tuple(one.fragment_id for one in lost if one.deletion_file is None),
        updated_fragments=tuple(
            replace(fragments[one.fragment_id], deletion_file=one.deletion_file)
            for one in lost
            if one.deletion_file is not None
        ),
        new_fragments=files,
        # As Lance's merge_insert: every column of the new rows has new values.
        fields_for_preserving_frag_bitmap=tuple(
            sorted(field.id for field in snapshot.schema.walk())
        ),
    )


def remove_deletion_files(store: ObjectStore, lost: Iterable[FragmentLoss]) -> None:
    """Removes deletion files that no version refers to; best effort."""
    for one in lost:
        if one.deletion_file is not None:
            with contextlib.suppress(Exception):  # cleanup finds it later
                store.delete(deletion_path(one.fragment_id, one.deletion_file))
