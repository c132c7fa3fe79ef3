"""Deletes rows that match a condition: row addresses become deletion files, in one commit.

Nothing but the columns of the condition is read.  When another commit changed the same rows, the
work is planned again on the newest version.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.commit.commit_loop import commit
from pyspark_lance.errors import RetryableCommitError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Delete
from pyspark_lance.format.row_address import group_by_fragment
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.deletion_file import write_deletion_file
from pyspark_lance.table.fragment_pruning import counted_fragments
from pyspark_lance.table.predicate import Predicate
from pyspark_lance.table.predicate_tree import TRUE
from pyspark_lance.table.scan import ScanRequest, plan_scan
from pyspark_lance.table.scan_task import run
from pyspark_lance.table.snapshot import Snapshot
from pyspark_lance.table.system_columns import ROW_ADDRESS
from pyspark_lance.table.time_travel import LATEST, VersionSpec

logger = logging.getLogger(__name__)

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What a delete did.

    Attributes:
        num_deleted_rows: Rows that matched.
        version: The version that was made; the current one when nothing matched.
    """

    num_deleted_rows: int
    version: int


def delete_where(
    uri: str,
    options: Mapping[str, str],
    condition: Callable[[Snapshot], Predicate],
    *,
    at: VersionSpec = LATEST,
    text: str = "",
    properties: Mapping[str, str] | None = None,
) -> DeleteResult:
    """Deletes the rows for which a condition holds; a delete that matches none makes no version.

    Args:
        uri: Root of the table.
        options: Storage options.
        condition: Makes the condition for the columns of a snapshot.
        at: The latest version, of the main line or of a branch.
        text: The condition for people; kept in the transaction.
        properties: Kept in the transaction.

    Raises:
        RetryableCommitError: Others kept changing the same rows.
        CommitConflictError: Another commit makes the delete pointless.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        snapshot = Snapshot.open(uri, options, at=at)
        affected = matching_rows(snapshot, condition(snapshot))
        count = sum(len(offsets) for offsets in affected.values())
        if count == 0:
            return DeleteResult(0, snapshot.version)
        operation = plan_delete(snapshot, affected, text)
        transaction = Transaction(
            read_version=snapshot.version,
            uuid=str(uuid.uuid4()),
            operation=operation,
            properties=dict(properties or {}),
        )
        try:
            result = commit(snapshot.store, transaction, affected_rows=affected)
        except RetryableCommitError:
            if attempt == _ATTEMPTS:
                raise
            logger.info("planning a delete again, attempt %d", attempt + 1)
            continue
        return DeleteResult(count, result.version)
    raise AssertionError("unreachable")


def matching_rows(snapshot: Snapshot, predicate: Predicate) -> dict[int, NDArray[np.uint32]]:
    """Offsets of the live rows for which ``predicate`` holds, by fragment."""
    if predicate == TRUE:
        live = {f.id: _live_rows(snapshot, f) for f in counted_fragments(snapshot)}
        return {fragment_id: offsets for fragment_id, offsets in live.items() if len(offsets)}
    request = ScanRequest(
        schema=LanceSchema(fields=(), metadata={}),
        system_columns=(ROW_ADDRESS,),
        predicate=predicate,
    )
    found = [
        np.asarray(batch.column(0).to_numpy(zero_copy_only=False), dtype=np.uint64)
        for task in plan_scan(snapshot, request)
        for batch in run(task)
    ]
    return group_by_fragment(np.concatenate(found)) if found else {}


def _live_rows(snapshot: Snapshot, fragment: Fragment) -> NDArray[np.uint32]:
    vector = snapshot.deletion_vector(fragment)
    if vector is None:
        return np.arange(fragment.physical_rows, dtype=np.uint32)
    return np.flatnonzero(vector.keep_mask(0, fragment.physical_rows)).astype(np.uint32)


def plan_delete(
    snapshot: Snapshot, affected: Mapping[int, NDArray[np.uint32]], text: str
) -> Delete:
    """Writes the deletion files and says which fragments change; commits nothing.

    Args:
        snapshot: The version that the rows were found in.
        affected: Offsets to delete, live rows all of them, by fragment.
        text: The condition for people.
    """
    updated: list[Fragment] = []
    emptied: list[int] = []
    for fragment in counted_fragments(snapshot):
        offsets = affected.get(fragment.id)
        if offsets is None or not len(offsets):
            continue
        before = snapshot.deletion_vector(fragment) or DeletionVector.empty()
        vector = before.union(DeletionVector.of(offsets))
        if len(vector) >= fragment.physical_rows:
            emptied.append(fragment.id)
            continue
        file = write_deletion_file(
            snapshot.store, fragment.id, snapshot.version, vector, id=secrets.randbits(64)
        )
        updated.append(replace(fragment, deletion_file=file))
    return Delete(tuple(updated), tuple(emptied), text)
