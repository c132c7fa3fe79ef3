"""MERGE: rules for each pair of source and target row, and for rows without a pair.

Clauses are evaluated in order, as in Delta: the first whose condition is true applies; a null
condition does not apply; a row without an applicable clause stays unchanged. A target row that two
source rows match is an error, unless the only clause is an unconditional delete.

The join runs in Spark (``spark/jobs/merge_job.py``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Generic, TypeVar

from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.schema import LanceSchema, primary_key
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.plain_values import python_rows
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.dml.commit_changes import RowChanges
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.dml.moved_rows import Clause
from pyspark_lance.table.dml.read_set import EVERYTHING, key_read_set, matching_rows
from pyspark_lance.table.dml.row_change import DmlPlan, RowAction
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.unit_of_work import remove_files

_C = TypeVar("_C")
_V = TypeVar("_V")


class Match(enum.Enum):
    """Rows that a clause applies to."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


@dataclass(frozen=True, slots=True)
class MergeClause(Generic[_C, _V]):
    """One clause of a merge, generic over the types of conditions and values."""

    match: Match  # The rows it applies to.
    action: RowAction  # Update, delete or insert.
    condition: _C | None = None  # None is always true.
    # Column to value, for an update or an insert.
    values: Mapping[str, _V] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject a plain value."""
        check_enum(self.action, RowAction)


def check_clauses(clauses: Sequence[MergeClause[_C, _V]]) -> None:
    """Reject invalid combinations of clauses."""
    if not clauses:
        raise InvalidInputError(
            "a merge needs at least one clause", hint="add whenMatchedUpdateAll() or another one"
        )
    for match in Match:
        group = [clause for clause in clauses if clause.match is match]
        for clause in group[:-1]:
            if clause.condition is None:
                raise InvalidInputError(
                    f"only the last {match.value} clause may be without a condition"
                )


def one_match_each(clauses: Sequence[MergeClause[_C, _V]]) -> bool:
    """Return whether two source rows that match one target row are an error."""
    matched = [clause for clause in clauses if clause.match is Match.MATCHED]
    only_delete = (
        len(matched) == 1 and matched[0].action is RowAction.DELETE and matched[0].condition is None
    )
    return bool(matched) and not only_delete


def counts_unapplied_matches(clauses: Sequence[MergeClause[_C, _V]]) -> bool:
    """Return whether matches without an applicable clause count as matches, too.

    As in Delta, a merge with only WHEN MATCHED clauses counts only applied matches.
    """
    others = any(clause.match is not Match.MATCHED for clause in clauses)
    return others and one_match_each(clauses)


def changes_every_match(clauses: Sequence[MergeClause[_C, _V]]) -> bool:
    """Return whether each matched row is changed, so that concurrent deletes conflict."""
    matched = [clause for clause in clauses if clause.match is Match.MATCHED]
    return bool(matched) and matched[-1].condition is None


def depends_only_on_keys(clauses: Sequence[MergeClause[_C, _V]]) -> bool:
    """Return whether the merge is independent of concurrent changes to rows with other keys.

    Each row of the source is inserted, or changes the row that it matches, or does nothing only
    because there is such a row.
    """
    ends = {clause.match: clause.condition for clause in clauses}
    return (
        Match.NOT_MATCHED in ends
        and Match.NOT_MATCHED_BY_SOURCE not in ends
        and all(condition is None for condition in ends.values())
    )


def merges_on_primary_key(schema: LanceSchema, keys: Sequence[str]) -> bool:
    """Return whether the table has an unenforced primary key, and ``keys`` include all of it.

    Such a merge looks up a key before inserting it, so two concurrent merges must not both insert
    it.
    """
    primary = {field.name for field in schema.walk() if field.unenforced_primary_key}
    return bool(primary) and primary <= set(keys)


def table_clauses(
    clauses: Sequence[MergeClause[_C, _V]], columns: Sequence[Collection[str]]
) -> tuple[Clause, ...]:
    """Convert the clauses for the DML stages.

    A last clause is appended for matches without an applicable clause, if these count.

    ``clauses``: in order; ``columns``: the table columns that each clause assigns.
    """
    result = [
        Clause(clause.action, tuple(names)) for clause, names in zip(clauses, columns, strict=True)
    ]
    if counts_unapplied_matches(clauses):
        result.append(Clause(RowAction.KEEP))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """The source keys of a merge. ``columns``: the target columns that they are compared to."""

    columns: tuple[str, ...]
    key_filter: KeyFilter


def merge_read_set(
    plan: DmlPlan, clauses: Sequence[MergeClause[_C, _V]], keys: Callable[[], SourceKeys | None]
) -> ReadSet:
    """Return the read set of a merge: rows with a source key, or all rows.

    ``clauses``: in order. ``keys``: called when concurrent commits added rows; None if the keys are
    not known.
    """
    if any(clause.match is Match.NOT_MATCHED_BY_SOURCE for clause in clauses):
        return EVERYTHING

    @cache
    def read_set() -> ReadSet:
        known = keys()
        if known is None:
            return EVERYTHING
        return key_read_set(plan.snapshot(), known.columns, known.key_filter)

    def meets(file: ManifestFile, fragments: Sequence[Fragment]) -> bool:
        return read_set().meets(file, fragments)

    def misses(file: ManifestFile, changed: Set[int]) -> bool:
        return read_set().misses(file, changed)

    def excludes(transaction: Transaction) -> bool:
        return read_set().excludes(transaction)

    return ReadSet(meets, misses, excludes=excludes)


def check_merge(
    changes: RowChanges,
    reads: ReadSet,
    clauses: Sequence[MergeClause[_C, _V]],
    keys: Sequence[str],
    shown_keys: Sequence[str],
    *,
    matches_by: Collection[str] | None = None,
) -> RowChanges:
    """Check the stage results of a merge and prepare them for the commit.

    ``reads``: of ``merge_read_set``. ``clauses``: in order. ``keys``: columns that the condition
    names. ``matches_by``: columns whose equality is the whole condition; None if the condition has
    other terms. Raises InvalidInputError: two source rows match one target row; files of the
    attempt are removed.
    """
    plan = changes.plan
    if changes.repeated is not None:
        raise _ambiguous_match(changes, changes.repeated, shown_keys)
    inserts = changes.num_inserted_rows > 0
    by_key = matches_by is not None and set(matches_by) == set(primary_key(plan.schema))
    return replace(
        changes,
        assigned=frozenset(field.name for field in plan.schema.fields),
        reads=replace(
            reads,
            appends_too=inserts and merges_on_primary_key(plan.schema, keys),
            losses_too=inserts and not changes_every_match(clauses),
            keys_decide=by_key and depends_only_on_keys(clauses),
        ),
        stores_keys=True,
    )


def _ambiguous_match(changes: RowChanges, address: int, keys: Sequence[str]) -> InvalidInputError:
    """Return the error for a target row that two source rows match."""
    plan = changes.plan
    names = [field.name for field in plan.schema.fields if field.name in keys]
    where = parse_predicate(f"{ROW_ADDRESS} = {address}", predicate_schema(plan.schema))
    rows = matching_rows(plan, where, columns=names, system=(ROW_ID, ROW_ADDRESS))
    row: dict[str, object] = next((python_rows(batch.slice(0, 1))[0] for batch in rows), {})
    remove_files(plan.table.store(), changes.files)
    shown = ", ".join(f"{name} = {row[name]!r}" for name in (*names, ROW_ID) if name in row)
    return InvalidInputError(
        f"more than one source row matches the target row with {shown}",
        where=plan.table.uri,
        hint="make the source unique on the merge keys, for example with dropDuplicates",
    )
