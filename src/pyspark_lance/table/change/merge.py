"""Merges: what happens to each pair of a source row and a target row, and to rows without a pair.

Clauses are tried in order, as Delta does it: the first whose condition is true applies; a
condition that is null does not apply; a row to which no clause applies stays as it is.  A target
row that two source rows match is an error, unless all that can happen to it is to be deleted
whatever the source says.

The rules are here.  The join is Spark's (``spark/jobs/merge_job.py``), or Arrow's for a merge in
this very process.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.commit.judge_newer import Reads
from pyspark_lance.commit.retries import Environment, Retries
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.change.commit_changes import RowChanges, commit_changes, remove_files
from pyspark_lance.table.change.delete import matching_rows, run_changes
from pyspark_lance.table.change.moved_rows import CHANGED_ADDRESS, CHANGED_ROW_ID, CLAUSE, Clause
from pyspark_lance.table.change.plan_again import plan_again_on_conflict
from pyspark_lance.table.change.reads import EVERYTHING, reads_of_keys
from pyspark_lance.table.change.row_change import (
    ChangePlan,
    ChangeResult,
    ChangeSettings,
    RowAction,
    plan_change,
)

_C = TypeVar("_C")
_V = TypeVar("_V")


class Match(enum.Enum):
    """Which rows a clause is about."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


@dataclass(frozen=True, slots=True)
class MergeClause(Generic[_C, _V]):
    """One clause of a merge; conditions and values are of whoever evaluates them.

    Attributes:
        match: The rows it is about.
        action: Update, delete or insert.
        condition: None is always true.
        values: Column to value, for an update or an insert.
    """

    match: Match
    action: RowAction
    condition: _C | None = None
    values: Mapping[str, _V] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses a plain value."""
        check_enum(self.action, RowAction)


def check_clauses(clauses: Sequence[MergeClause[_C, _V]]) -> None:
    """Refuses clauses that make no sense together.

    Raises:
        InvalidInputError: No clause, or one behind another that takes all rows.
    """
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


def looks_at_everything(clauses: Sequence[MergeClause[_C, _V]]) -> bool:
    """Whether target rows without a key of the source matter as well."""
    return any(clause.match is Match.NOT_MATCHED_BY_SOURCE for clause in clauses)


def promises_unique_keys(schema: LanceSchema, keys: Sequence[str]) -> bool:
    """Whether the table has an unenforced primary key, and ``keys`` hold all of it.

    Such a merge looks for a row before it inserts one, so two of them at once must not both
    insert the key.
    """
    primary = {field.name for field in schema.walk() if field.unenforced_primary_key}
    return bool(primary) and primary <= set(keys)


def ambiguous_match(
    plan: ChangePlan, changes: RowChanges, keys: Sequence[str]
) -> InvalidInputError:
    """The error for a target row that two source rows match; removes the files of the attempt."""
    address = changes.repeated
    names = [one.name for one in plan.schema.fields if one.name in keys]
    rows = matching_rows(
        plan, f"{ROW_ADDRESS} = {address}", columns=names, system=(ROW_ID, ROW_ADDRESS)
    )
    found: dict[str, object] = next((batch.slice(0, 1).to_pylist()[0] for batch in rows), {})
    remove_files(changes)
    shown = ", ".join(f"{name} = {found[name]!r}" for name in (*names, ROW_ID) if name in found)
    return InvalidInputError(
        f"more than one source row matches the target row with {shown}",
        where=plan.uri,
        hint="make the source unique on the merge keys, for example with dropDuplicates",
    )


# In this process ----------------------------------------------------------------------------

Condition = Callable[[pa.Table], pa.Array]
"""True, false or null for each row of the joined table (see ``merge_rows``)."""
Value = Callable[[pa.Table], pa.Array]
"""The value of a column for each row of the joined table."""

SOURCE_PREFIX = "source."
_SOURCE_ROW = "__source_row"
_TARGET_ROW = "__target_row"
_PLACE = "__place"


def merge_rows(
    uri: str,
    source: pa.Table,
    keys: Sequence[str],
    clauses: Sequence[MergeClause[Condition, Value]],
    *,
    options: Mapping[str, str] | None = None,
    settings: ChangeSettings | None = None,
    environment: Environment | None = None,
) -> ChangeResult:
    """Merges ``source`` into the table where all ``keys`` are equal; null equals nothing.

    Conditions and values see the joined rows: the columns of the target under their names, those
    of the source with ``SOURCE_PREFIX``, null on the side that has no row.

    Raises:
        InvalidInputError: Two source rows match one target row; clauses that make no sense.
        SchemaMismatchError: A value does not fit its column.
        RetryableCommitError: Other commits were in the way too often.
    """
    check_clauses(clauses)
    settings = settings or ChangeSettings()

    def attempt(left: Retries) -> ChangeResult:
        plan = plan_change(uri, options or {}, settings)
        if plan.is_done:
            return ChangeResult()
        changes = _merged(plan, source, keys, clauses)
        if changes.repeated is not None:
            raise ambiguous_match(plan, changes, keys)
        return commit_changes(
            replace(
                changes,
                assigned=frozenset(one.name for one in plan.schema.fields),
                reads=_reads(plan, source, keys, clauses, inserts=changes.num_inserted_rows > 0),
            ),
            left,
        )

    return plan_again_on_conflict(
        attempt, retries=settings.retries, timeout_s=settings.timeout_s, environment=environment
    )


def _reads(
    plan: ChangePlan,
    source: pa.Table,
    keys: Sequence[str],
    clauses: Sequence[MergeClause[Condition, Value]],
    *,
    inserts: bool,
) -> Reads:
    """The rows that the merge would have found: those with a key of the source, or all."""
    if looks_at_everything(clauses):
        return EVERYTHING
    wanted = source.select(list(keys)).combine_chunks()

    def may_match(batch: pa.RecordBatch) -> bool:
        rows = pa.Table.from_batches([batch]).cast(wanted.schema)
        return bool(rows.join(wanted, list(keys), join_type="left semi").num_rows)

    unique = inserts and promises_unique_keys(plan.schema, keys)
    return reads_of_keys(plan.snapshot(), keys, may_match, appends_too=unique)


def update_all(columns: Sequence[str]) -> dict[str, Value]:
    """Values that copy the source's columns of the same names."""
    return {name: _copied(name) for name in columns}


def _copied(name: str) -> Value:
    return lambda joined: joined[SOURCE_PREFIX + name]


def choose_clauses(
    clauses: Sequence[MergeClause[Condition, Value]], joined: pa.Table, match: NDArray[np.object_]
) -> NDArray[np.int32]:
    """Number of the clause that applies to each row; -1 where none does.

    Args:
        clauses: In order.
        joined: The rows.
        match: Of each row, same length.
    """
    chosen = np.full(joined.num_rows, -1, dtype=np.int32)
    for number, clause in enumerate(clauses):
        rows = np.flatnonzero((match == clause.match) & (chosen == -1))
        if clause.condition is not None and len(rows):
            holds = pc.fill_null(clause.condition(joined.take(pa.array(rows))), False)
            rows = rows[np.asarray(holds, dtype=bool)]
        chosen[rows] = number
    return chosen


def _merged(
    plan: ChangePlan,
    source: pa.Table,
    keys: Sequence[str],
    clauses: Sequence[MergeClause[Condition, Value]],
) -> RowChanges:
    joined, match = _joined(plan, source, keys)
    chosen = choose_clauses(clauses, joined, match)
    described = [Clause(clause.action, tuple(clause.values)) for clause in clauses]
    if counts_every_match(clauses):
        described.append(Clause(RowAction.KEEP))
        chosen[(chosen == -1) & (match == Match.MATCHED)] = len(clauses)
    types = {field.name: field.to_arrow().type for field in plan.schema.fields}
    names = [name for name in types if any(name in clause.values for clause in clauses)]
    pieces = []
    for number in range(len(described)):
        places = np.flatnonzero(chosen == number)
        rows = joined.take(pa.array(places))
        values = clauses[number].values if number < len(clauses) else {}
        columns = {
            CLAUSE: pa.array(np.full(rows.num_rows, number, dtype=np.int32)),
            CHANGED_ROW_ID: rows[ROW_ID],
            CHANGED_ADDRESS: rows[ROW_ADDRESS],
            _PLACE: pa.array(places),
        }
        for name in names:
            given = values.get(name)
            filled = pa.nulls(rows.num_rows, types[name]) if given is None else given(rows)
            columns[name] = filled if filled.type == types[name] else filled.cast(types[name])
        pieces.append(pa.table(columns))
    changes = pa.concat_tables(pieces)
    # Inserts have no address, and null sorts last; they keep the order of the source.
    changes = changes.sort_by([(CHANGED_ADDRESS, "ascending"), (_PLACE, "ascending")])
    return run_changes(
        plan, described, changes.to_batches(), one_match_each=one_match_each(clauses)
    )


def _joined(
    plan: ChangePlan, source: pa.Table, keys: Sequence[str]
) -> tuple[pa.Table, NDArray[np.object_]]:
    """All pairs, then source rows and target rows without one; and which row is what."""
    every = tuple(one.name for one in plan.schema.fields)
    batches = list(matching_rows(plan, None, columns=every, system=(ROW_ID, ROW_ADDRESS)))
    fields = [one.to_arrow().with_nullable(True) for one in plan.schema.fields]
    fields += [pa.field(name, pa.uint64()) for name in (ROW_ID, ROW_ADDRESS)]
    schema = pa.schema(fields)
    target = pa.Table.from_batches(
        [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches], schema
    )
    right = source.select(list(keys)).append_column(_SOURCE_ROW, _numbers(source.num_rows))
    left = target.select(list(keys)).append_column(_TARGET_ROW, _numbers(target.num_rows))
    pairs = left.join(right, list(keys), join_type="inner")
    of_source, of_target = pairs[_SOURCE_ROW].to_numpy(), pairs[_TARGET_ROW].to_numpy()
    new = np.setdiff1d(np.arange(source.num_rows), of_source)
    alone = np.setdiff1d(np.arange(target.num_rows), of_target)
    by_source = np.argsort(of_source, kind="stable")
    of_source, of_target = of_source[by_source], of_target[by_source]
    sizes = (len(pairs), len(new), len(alone))
    match = np.repeat(
        np.array([Match.MATCHED, Match.NOT_MATCHED, Match.NOT_MATCHED_BY_SOURCE], object), sizes
    )
    place_in_source = np.concatenate([of_source, new, np.full(len(alone), -1)])
    place_in_target = np.concatenate([of_target, np.full(len(new), -1), alone])
    columns = {name: _taken(target[name], place_in_target) for name in target.column_names}
    for name in source.column_names:
        columns[SOURCE_PREFIX + name] = _taken(source[name], place_in_source)
    return pa.table(columns), match


def _numbers(count: int) -> pa.Array:
    return pa.array(np.arange(count, dtype=np.int64))


def _taken(column: pa.ChunkedArray, places: NDArray[np.int64]) -> pa.ChunkedArray:
    """The values at ``places``; null for -1."""
    return column.take(pa.array(places, pa.int64(), mask=places < 0))
