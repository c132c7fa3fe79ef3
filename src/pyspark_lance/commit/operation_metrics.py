"""Counts of the fragments that an operation adds, updates and removes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import (
    Append,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Restore,
    Rewrite,
    Update,
)


def operation_metrics(operation: Operation) -> dict[str, int]:
    """Return the counts of an operation."""
    match operation:
        case Append() | Overwrite():
            return _added(operation.fragments)
        case Delete():
            return {
                "num_updated_fragments": len(operation.updated_fragments),
                "num_removed_fragments": len(operation.deleted_fragment_ids),
            }
        case Update():
            return _added(operation.new_fragments) | {
                "num_updated_fragments": len(operation.updated_fragments),
                "num_removed_fragments": len(operation.removed_fragment_ids),
            }
        case Rewrite():
            new = [fragment for group in operation.groups for fragment in group.new_fragments]
            old = sum(len(group.old_fragments) for group in operation.groups)
            return _added(new) | {"num_removed_fragments": old}
        case Merge():
            return {"num_fragments": len(operation.fragments)}
        case Restore():
            return {"restored_version": operation.version}
        case _:
            return {}


def _added(fragments: Sequence[Fragment]) -> dict[str, int]:
    return {
        "num_added_fragments": len(fragments),
        "num_added_rows": sum(fragment.physical_rows for fragment in fragments),
    }
