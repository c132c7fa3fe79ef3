"""Machine-readable conflicts: the reason, both operations and the fragments; pure, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark_lance.commit.fragment_changes import changed_fragment_ids
from pyspark_lance.errors import Conflict, ConflictReason
from pyspark_lance.format.operation import (
    Append,
    Clone,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    Restore,
    Rewrite,
    Update,
    UpdateBases,
    UpdateConfig,
)

# The concurrent operation decides, except for work on indices, which conflicts by values.
_BY_THEIRS: Mapping[type[Operation], ConflictReason] = MappingProxyType(
    {
        Append: ConflictReason.CONCURRENT_APPEND,
        Delete: ConflictReason.CONCURRENT_ROW_CHANGE,
        Update: ConflictReason.CONCURRENT_ROW_CHANGE,
        DataReplacement: ConflictReason.CONCURRENT_ROW_CHANGE,
        Rewrite: ConflictReason.CONCURRENT_REWRITE,
        CreateIndex: ConflictReason.INDEX_CHANGED,
        Merge: ConflictReason.METADATA_CHANGED,
        Project: ConflictReason.METADATA_CHANGED,
        UpdateConfig: ConflictReason.METADATA_CHANGED,
        UpdateBases: ConflictReason.METADATA_CHANGED,
        Overwrite: ConflictReason.TABLE_REPLACED,
        Restore: ConflictReason.TABLE_REPLACED,
        Clone: ConflictReason.TABLE_REPLACED,
    }
)


def conflict_of(ours: Operation, theirs: Operation, version: int) -> Conflict:
    """Return the conflict of two operations that cannot both be committed.

    ``theirs``: committed since ours was planned.
    """
    reason = _BY_THEIRS.get(type(theirs), ConflictReason.UNKNOWN_OPERATION)
    if _inserts_keys(ours) and isinstance(theirs, Update) and theirs.new_fragments:
        reason = ConflictReason.CONCURRENT_APPEND
    return Conflict(
        reason,
        type(ours).__name__,
        type(theirs).__name__,
        version,
        tuple(sorted(changed_fragment_ids(ours) & changed_fragment_ids(theirs))),
    )


def _inserts_keys(operation: Operation) -> bool:
    return isinstance(operation, Update) and operation.inserted_rows is not None
