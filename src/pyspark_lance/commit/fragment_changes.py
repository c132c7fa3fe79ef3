"""Fragments and fields that an operation changes, and the metrics of an operation; pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.operation import (
    Append,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    Restore,
    Rewrite,
    Update,
)


def removed_fragment_ids(operation: Operation) -> frozenset[int]:
    """Return the existing fragments that a Delete or Update removes as a whole."""
    match operation:
        case Delete():
            return frozenset(operation.deleted_fragment_ids)
        case Update():
            return frozenset(operation.removed_fragment_ids)
        case _:
            return frozenset()


def changed_fragment_ids(operation: Operation) -> frozenset[int]:
    """Return the existing fragments that the operation changes, replaces or removes one by one.

    Not for operations that replace the whole list of fragments.
    """
    match operation:
        case Delete() | Update():
            updated = frozenset(fragment.id for fragment in operation.updated_fragments)
            return updated | removed_fragment_ids(operation)
        case Rewrite():
            return frozenset(
                fragment.id for group in operation.groups for fragment in group.old_fragments
            )
        case DataReplacement():
            return frozenset(group.fragment_id for group in operation.replacements)
        case _:
            return frozenset()


def _backing(fragment: Fragment) -> dict[int, tuple[str, int | None, int]]:
    """Return where each live field of the fragment is stored: path, base, column."""
    return {
        field: (file.path, file.base_id, column)
        for file in fragment.files
        for field, column in zip(
            file.fields, file.column_indices or (-1,) * len(file.fields), strict=False
        )
        if field >= 0
    }


def changed_fields(before: Fragment, after: Fragment) -> frozenset[int]:
    """Return the fields stored elsewhere than before, including added and removed ones."""
    if before.files == after.files:
        return frozenset()
    old, new = _backing(before), _backing(after)
    return frozenset(field for field in old.keys() | new.keys() if old.get(field) != new.get(field))


def reused_field_id(ours: Operation, theirs: Iterable[Operation]) -> int | None:
    """Return a field id that our data files use and that belongs to another column by now.

    The id of a dropped column may be given to the next added column.  Neither operation alone
    conflicts with an append; both together would put its values into the wrong column.  Updates
    never follow the Merge that adds a column.

    ``ours``: planned before all of ``theirs``; ``theirs``: in the order of their commits.
    """
    if not isinstance(ours, Append):
        return None
    written = {
        field for fragment in ours.fragments for file in fragment.files for field in file.fields
    }
    dropped: set[int] = set()
    for operation in theirs:
        if isinstance(operation, Merge | Project):
            present = {field.id for field in operation.schema.walk()}
            again = dropped & present
            if again:
                return min(again)
            dropped |= {field for field in written if field >= 0} - present
    return None


class FragmentsById(MutableMapping[int, Fragment]):
    """Mutable mapping of fragments by id; unchanged fragments are not decoded."""

    def __init__(self, fragments: Iterable[Fragment] = ()) -> None:
        self._before = Fragments.of(fragments)
        self._put: dict[int, Fragment] = {}
        self._gone: set[int] = set()

    def __getitem__(self, fragment_id: int) -> Fragment:
        put = self._put.get(fragment_id)
        if put is not None:
            return put
        index = None if fragment_id in self._gone else self._before.index_of(fragment_id)
        if index is None:
            raise KeyError(fragment_id)
        return self._before[index]

    def __contains__(self, fragment_id: object) -> bool:
        if fragment_id in self._put:
            return True
        is_gone = fragment_id in self._gone or not isinstance(fragment_id, int)
        return not is_gone and self._before.index_of(fragment_id) is not None  # type: ignore[arg-type]

    def __setitem__(self, fragment_id: int, fragment: Fragment) -> None:
        self._put[fragment_id] = fragment
        self._gone.discard(fragment_id)

    def __delitem__(self, fragment_id: int) -> None:
        if fragment_id not in self:
            raise KeyError(fragment_id)
        self._put.pop(fragment_id, None)
        self._gone.add(fragment_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self.fragments().ids.tolist())

    def __len__(self) -> int:
        return len(self.fragments())

    def fragments(self) -> Fragments:
        """Return all fragments in ascending order of their ids."""
        if not self._put and not self._gone:
            return self._before
        return self._before.changed(self._put.values(), self._gone)


def operation_metrics(operation: Operation) -> dict[str, int]:
    """Return the counts of an operation."""
    match operation:
        case Append() | Overwrite():
            return _count_added(operation.fragments)
        case Delete():
            return {
                "num_updated_fragments": len(operation.updated_fragments),
                "num_removed_fragments": len(operation.deleted_fragment_ids),
            }
        case Update():
            return _count_added(operation.new_fragments) | {
                "num_updated_fragments": len(operation.updated_fragments),
                "num_removed_fragments": len(operation.removed_fragment_ids),
            }
        case Rewrite():
            new = [fragment for group in operation.groups for fragment in group.new_fragments]
            old = sum(len(group.old_fragments) for group in operation.groups)
            return _count_added(new) | {"num_removed_fragments": old}
        case Merge():
            return {"num_fragments": len(operation.fragments)}
        case Restore():
            return {"restored_version": operation.version}
        case _:
            return {}


def _count_added(fragments: Sequence[Fragment]) -> dict[str, int]:
    return {
        "num_added_fragments": len(fragments),
        "num_added_rows": sum(fragment.physical_rows for fragment in fragments),
    }
