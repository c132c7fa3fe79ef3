"""Merges: what happens to each pair of a source row and a target row, and to rows without a pair.

Clauses are tried in order, as Delta does it: the first whose condition is true applies; a
condition that is null does not apply; a row to which no clause applies stays as it is.  A target
row that two source rows match is an error, unless all that can happen to it is to be deleted
whatever the source says.

The rules are here; the join is Spark's (``spark/jobs/merge_job.py``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.schema import LanceSchema, primary_key
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.plain_values import python_rows
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.dml.commit_changes import RowChanges
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.dml.moved_rows import Clause
from pyspark_lance.table.dml.read_set import EVERYTHING, matching_rows, reads_of_keys
from pyspark_lance.table.dml.row_change import DmlPlan, RowAction
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.work.written_files import remove_files

_C = TypeVar("_C")
_V = TypeVar("_V")


class Match(enum.Enum):
    """Which rows a clause is about."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


@dataclass(frozen=True, slots=True)
class MergeClause(Generic[_C, _V]):
    """One clause of a merge; conditions and values are of whoever evaluates them."""

    match: Match  # The rows it is about.
    action: RowAction  # Update, delete or insert.
    condition: _C | None = None  # None is always true.
    # Column to value, for an update or an insert.
    values: Mapping[str, _V] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses a plain value."""
        check_enum(self.action, RowAction)


def check_clauses(clauses: Sequence[MergeClause[_C, _V]]) -> None:
    """Refuses clauses that make no sense together."""
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
    """Whether two source rows for one target row are an error."""
    matched = [clause for clause in clauses if clause.match is Match.MATCHED]
    only_delete = (
        len(matched) == 1 and matched[0].action is RowAction.DELETE and matched[0].condition is None
    )
    return bool(matched) and not only_delete


def counts_every_match(clauses: Sequence[MergeClause[_C, _V]]) -> bool:
    """Whether matches to which no clause applies count as well.

    As in Delta: a merge of WHEN MATCHED clauses alone looks only at the matches it uses.
    """
    others = any(clause.match is not Match.MATCHED for clause in clauses)
    return others and one_match_each(clauses)


def settles_matches(clauses: Sequence[MergeClause[_C, _V]]) -> bool:
    """Whether each row that matches is changed, so that nobody else may have taken it away."""
    matched = [clause for clause in clauses if clause.match is Match.MATCHED]
    return bool(matched) and matched[-1].condition is None


def settles_keys(clauses: Sequence[MergeClause[_C, _V]]) -> bool:
    """Whether it is all the same to the merge what others do to rows of other keys than its own.

    Each row of the source is inserted, or changes the row that it matches, or does nothing only
    because there is such a row.
    """
    ends = {clause.match: clause.condition for clause in clauses}
    return (
        Match.NOT_MATCHED in ends
        and Match.NOT_MATCHED_BY_SOURCE not in ends
        and all(condition is None for condition in ends.values())
    )


def promises_unique_keys(schema: LanceSchema, keys: Sequence[str]) -> bool:
    """Whether the table has an unenforced primary key, and ``keys`` hold all of it.

    Such a merge looks for a row before it inserts one, so two of them at once must not both
    insert the key.
    """
    primary = {field.name for field in schema.walk() if field.unenforced_primary_key}
    return bool(primary) and primary <= set(keys)


def table_clauses(
    clauses: Sequence[MergeClause[_C, _V]], columns: Sequence[Collection[str]]
) -> tuple[Clause, ...]:
    """The clauses as the stages of a change know them.

    Behind them comes one for matches to which no clause applies, if these count.

    ``clauses``: in order; ``columns``: of the table, to which each clause gives a value.
    """
    result = [
        Clause(clause.action, tuple(names)) for clause, names in zip(clauses, columns, strict=True)
    ]
    if counts_every_match(clauses):
        result.append(Clause(RowAction.KEEP))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """The keys of the source of a merge.

    ``columns``: of the target, to which they are compared.
    """

    columns: tuple[str, ...]
    key_filter: KeyFilter


def merge_reads(
    plan: DmlPlan, clauses: Sequence[MergeClause[_C, _V]], keys: Callable[[], SourceKeys | None]
) -> ReadSet:
    """The rows that a merge looks for: those with a key of the source, or all.

    ``clauses``: in order. ``keys``: called when others brought rows; None if the keys are not
    known.
    """
    if any(clause.match is Match.NOT_MATCHED_BY_SOURCE for clause in clauses):
        return EVERYTHING

    def looked_for() -> ReadSet:
        known = keys()
        if known is None:
            return EVERYTHING
        return reads_of_keys(plan.snapshot(), known.columns, known.key_filter)

    def meets(file: ManifestFile, fragments: Sequence[Fragment]) -> bool:
        return looked_for().meets(file, fragments)

    def misses(file: ManifestFile, changed: Set[int]) -> bool:
        return looked_for().misses(file, changed)

    return ReadSet(meets, misses)


def checked_merge(
    changes: RowChanges,
    reads: ReadSet,
    clauses: Sequence[MergeClause[_C, _V]],
    keys: Sequence[str],
    shown_keys: Sequence[str],
    *,
    matches_by: Collection[str] | None = None,
) -> RowChanges:
    """What the stages did for a merge, ready to be committed.

    ``reads``: of ``merge_reads``. ``clauses``: in order. ``keys``: columns that the condition
    names. ``matches_by``: columns whose equality is the whole condition; None if there is more to
    it. Raises InvalidInputError: two source rows match one target row; files of the attempt are
    removed.
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
            appends_too=inserts and promises_unique_keys(plan.schema, keys),
            losses_too=inserts and not settles_matches(clauses),
            keys_decide=by_key and settles_keys(clauses),
        ),
        notes_keys=True,
    )


def _ambiguous_match(changes: RowChanges, address: int, keys: Sequence[str]) -> InvalidInputError:
    """The error for a target row that two source rows match."""
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
