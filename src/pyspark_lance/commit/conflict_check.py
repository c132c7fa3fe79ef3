"""Check a commit against all transactions committed since it was planned.

Operations are compared pair by pair (``conflict.py``); here the pairs are combined, and compared
with the read set of the work.  Rows that concurrent commits inserted or updated, and that the work
would have changed or counted, make it plan again.  Appends read nothing, so they can be ordered
before the work and conflict only if keys are unique.  Rows deleted concurrently conflict only if
the work inserts rows that it does not find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pyspark_lance.commit.conflict import (
    Resolution,
    check_conflict,
    may_insert_same_keys,
    rewrites_columns,
)
from pyspark_lance.commit.fragment_changes import changed_fragment_ids, reused_field_id
from pyspark_lance.errors import CommitConflictError, Conflict, ConflictReason, RetryableCommitError
from pyspark_lance.format.fragment import Fragment
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
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import ManifestFile

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


REDO = "run the operation again on the newest version"


@dataclass(frozen=True, slots=True)
class ReadSet:
    """Rows and columns that the work read before it chose rows to change or insert."""

    # Called with the newest version and some of its fragments: whether one of their rows is in the
    # read set.
    meets: Callable[[ManifestFile, Sequence[Fragment]], bool]
    # Called with the newest version and ids of concurrently changed fragments: whether a row of the
    # read set may have been removed from them.
    misses: Callable[[ManifestFile, Set[int]], bool]
    appends_too: bool = False
    losses_too: bool = False  # Whether concurrently deleted rows conflict as well.
    # Called with a concurrent transaction: whether what it records proves that none of the rows it
    # wrote is in the read set.
    excludes: Callable[[Transaction], bool] = lambda _: False
    # Updates that record their inserted keys are only checked if a key may be in the read set.
    keys_decide: bool = False


@dataclass(slots=True)
class ConflictChecks:
    """Checks of one operation against all newer transactions, each of them once.

    Rows that a transaction added or removed, and later ones moved, are found where these put them.
    """

    operation: Operation
    uri: str  # Of the table.
    knows_rows: bool  # Whether the work knows which rows it changes.
    reads: ReadSet | None
    common: set[int] = field(default_factory=set)  # Fragments to be compared row by row.
    _version: int = 0  # The last version that was checked.

    def check(
        self, newer: Sequence[tuple[int, Transaction]], load: Callable[[], ManifestFile]
    ) -> set[int]:
        """Return the fragments in which both sides changed rows, to be compared row by row.

        ``newer``: all (version, transaction) since it was planned, ascending; ``load``: loads the
        last of them, if rows have to be read.
        """
        unchecked = [(version, theirs) for version, theirs in newer if version > self._version]
        if not unchecked:
            return self.common
        # With a read set, concurrently inserted rows are compared by key instead of assumed equal.
        operation, reads = self.operation, self.reads
        judged = without_keys(operation) if reads is not None else operation
        common = _check_changed_fragments(judged, unchecked, self.uri, self.knows_rows)
        every = [theirs.operation for _, theirs in newer]
        last = [theirs for _, theirs in unchecked]
        reused = reused_field_id(operation, every)
        if reused is not None:
            what = f"field id {reused} was assigned to another column since the data were written"
            raise RetryableCommitError(what, self.uri, REDO, ConflictReason.METADATA_CHANGED)
        if reads is not None:
            # Rows that were compacted are in other fragments, whose ids are unknown here.
            was_compacted = any(isinstance(one, Rewrite) for one in every)
            _check_reads(reads, operation, last, load, self.uri, was_compacted)
        self.common |= common & changed_fragment_ids(operation)
        self._version = newer[-1][0]
        return self.common


def _check_changed_fragments(
    judged: Operation, newer: Sequence[tuple[int, Transaction]], uri: str, knows_rows: bool
) -> set[int]:
    """Return the fragments in which compatible transactions changed rows; else raise."""
    common: set[int] = set()
    for version, theirs in newer:
        conflict_check = check_conflict(judged, theirs.operation)
        where = f"version {version} of {uri}"
        match conflict_check.resolution:
            case Resolution.COMPATIBLE | Resolution.REBASE if theirs.has_unknown_fields:
                what = "a concurrent commit by newer software has an unknown effect"
                conflict = conflict_of(judged, theirs.operation, version)
                unknown = replace(conflict, reason=ConflictReason.UNKNOWN_OPERATION)
                raise RetryableCommitError(what, where, REDO, unknown)
            case Resolution.COMPATIBLE:
                continue
            case Resolution.REBASE if knows_rows:
                common |= changed_fragment_ids(theirs.operation)
            case Resolution.REBASE | Resolution.RETRY:
                conflict = conflict_of(judged, theirs.operation, version)
                raise RetryableCommitError(conflict_check.reason, where, REDO, conflict)
            case Resolution.INCOMPATIBLE:
                conflict = conflict_of(judged, theirs.operation, version)
                raise CommitConflictError(conflict_check.reason, where, conflict=conflict)
    return common


def _check_reads(
    reads: ReadSet,
    ours: Operation,
    theirs: Sequence[Transaction],
    load: Callable[[], ManifestFile],
    uri: str,
    was_compacted: bool,
) -> None:
    """Raise if concurrent commits added or removed rows in the read set."""
    if reads.losses_too:
        operations = [transaction.operation for transaction in theirs]
        _check_losses(reads, ours, operations, load, uri, was_compacted)
    files, in_place = _rows_with_values(reads, ours, theirs)
    if not files and not in_place:
        return
    latest = load()
    known: set[str] = set()
    fragments = []
    for fragment in latest.manifest.fragments:
        names = {file.path for file in fragment.files} & files
        known |= names
        if names or fragment.id in in_place:
            fragments.append(fragment)
    # Rows that were moved again since are in other fragments, whose ids are unknown here.
    if files - known or reads.meets(latest, fragments):
        brought = tuple(sorted(fragment.id for fragment in fragments))
        name = type(ours).__name__
        raise RetryableCommitError(
            "a concurrent commit added rows that this operation would have matched",
            uri,
            REDO,
            Conflict(ConflictReason.CONCURRENT_APPEND, name, fragments=brought),
        )


def _check_losses(
    reads: ReadSet,
    ours: Operation,
    theirs: Sequence[Operation],
    load: Callable[[], ManifestFile],
    uri: str,
    was_compacted: bool,
) -> None:
    """Raise if concurrent commits removed rows in the read set."""
    changed: set[int] = set()
    for operation in theirs:
        if isinstance(operation, Delete | Update | DataReplacement):
            changed |= changed_fragment_ids(operation)
    if changed and (was_compacted or reads.misses(load(), changed)):
        name = type(ours).__name__
        raise RetryableCommitError(
            "a concurrent commit deleted rows that this operation had matched",
            uri,
            REDO,
            Conflict(ConflictReason.CONCURRENT_DELETE_READ, name, fragments=tuple(sorted(changed))),
        )


def without_keys(operation: Operation) -> Operation:
    """Return the operation without its recorded keys."""
    return replace(operation, inserted_rows=None) if isinstance(operation, Update) else operation


def _rows_with_values(
    reads: ReadSet, ours: Operation, theirs: Sequence[Transaction]
) -> tuple[set[str], set[int]]:
    """Return first data files of new fragments, and ids of fragments updated in place."""
    added: list[Fragment] = []
    in_place: set[int] = set()
    for transaction in theirs:
        operation = transaction.operation
        match operation:
            case Append() if reads.appends_too:
                added += operation.fragments
            case Update():
                others = reads.keys_decide and _are_keys_disjoint(ours, operation)
                if operation.new_fragments and not others and not reads.excludes(transaction):
                    added += operation.new_fragments
                if rewrites_columns(operation):
                    in_place |= {fragment.id for fragment in operation.updated_fragments}
            case DataReplacement():
                in_place |= changed_fragment_ids(operation)
            case _:
                pass
    return {fragment.files[0].path for fragment in added if fragment.files}, in_place


def _are_keys_disjoint(ours: Operation, theirs: Update) -> bool:
    """Return whether the rows inserted by theirs and by ours surely have different keys."""
    if not isinstance(ours, Update) or ours.inserted_rows is None:
        return False
    return not may_insert_same_keys(ours, theirs)
