"""Delete, update and merge in this process: what Spark's jobs run, with Arrow in Spark's place.

Scanning and joining is done here; all else (the stages and their order, clauses, keys, what was
read, the commit) is the product's own code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from local_runner import LocalRunner

from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.dml import read_set
from pyspark_lance.table.dml.commit_changes import commit_changes, delete_everything
from pyspark_lance.table.dml.key_filter import KeyCollector, KeyFilter, is_hashable, same_hashes
from pyspark_lance.table.dml.merge import (
    Match,
    SourceKeys,
    check_clauses,
    check_merge,
    counts_unapplied_matches,
    merge_read_set,
    one_match_each,
    table_clauses,
)
from pyspark_lance.table.dml.moved_rows import (
    CHANGED_ADDRESS,
    CHANGED_ROW_ID,
    CLAUSE,
    Clause,
    as_changes,
)
from pyspark_lance.table.dml.plain_merge import PlainMerge
from pyspark_lance.table.dml.rewrite_columns import commit_rewrite
from pyspark_lance.table.dml.row_change import ChangeResult, ChangeSettings, RowAction, plan_change
from pyspark_lance.table.dml.run_changes import plain_pieces, run_changes, run_pieces
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.table import Table

SOURCE_PREFIX = "source."
_SOURCE_ROW = "__source_row"
_TARGET_ROW = "__target_row"


# Spark's part ------------------------------------------------------------------------------


def matching_rows(plan, condition, *, columns, system):
    """Rows of the pinned version for which a text is true, by address."""
    every = predicate_schema(plan.schema)
    predicate = None if condition is None else parse_predicate(condition, every)
    return read_set.matching_rows(plan, predicate, columns=columns, system=system)


def _again(attempt, uri, options, settings, environment):
    settings = settings or ChangeSettings()

    table = Table(uri, options or {})

    def planned(work):
        plan = plan_change(table, settings)
        return ChangeResult() if plan.is_done else commit_changes(attempt(plan), work)

    return UnitOfWork(table, settings, environment=environment).run(planned)


def commit_once(plan, changes):
    """Commit changes of rows that are not planned again."""
    return UnitOfWork(plan.table, plan.settings).once(partial(commit_changes, changes))


def commit_rewritten(plan, request, rewritten, **known):
    """Commit rewritten columns that are not planned again."""
    prepared = partial(commit_rewrite, plan, request, rewritten, **known)
    return UnitOfWork(plan.table, plan.settings).once(prepared)


# Delete and update -------------------------------------------------------------------------


def delete_rows(uri, condition=None, *, options=None, settings=None, environment=None):
    """Delete the rows for which ``condition`` is true; None deletes all."""

    def attempt(plan):
        if condition is None:
            return delete_everything(plan, "true")
        rows = matching_rows(plan, condition, columns=(), system=(ROW_ID, ROW_ADDRESS))
        changes = (as_changes(batch, 0) for batch in rows)
        return replace(
            run_changes(LocalRunner(), plan, (Clause(RowAction.DELETE),), [changes]),
            only_deletes=True,
            reads=read_set.condition_read_set(plan.snapshot(), condition),
            description=condition,
        )

    return _again(attempt, uri, options, settings, environment)


def update_rows(uri, condition, columns, values, *, options=None, settings=None, environment=None):
    """Give ``columns`` other values where ``condition``; ``values`` maps batches of whole rows."""

    def attempt(plan):
        names = tuple(field.name for field in project(plan.schema, tuple(columns)).fields)
        every = tuple(field.name for field in plan.schema.fields)
        rows = matching_rows(plan, condition, columns=every, system=(ROW_ID, ROW_ADDRESS))
        changes = (as_changes(batch, 0, values(batch)) for batch in rows)
        return replace(
            run_changes(LocalRunner(), plan, (Clause(RowAction.UPDATE, names),), [changes]),
            assigned=frozenset(names),
            reads=read_set.condition_read_set(plan.snapshot(), condition),
        )

    return _again(attempt, uri, options, settings, environment)


# Merge -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copied:
    """The value of the source's column of this name."""

    name: str

    def __call__(self, joined):
        return joined[SOURCE_PREFIX + self.name]


def update_all(columns):
    """Values that copy the source's columns of the same names."""
    return {name: Copied(name) for name in columns}


def merge_rows(
    uri, source, keys, clauses, *, options=None, settings=None, environment=None, buckets=0
):
    """Merge a table into the one at ``uri`` where all ``keys`` are equal; null equals nothing.

    Conditions and values of clauses see the joined rows: the columns of the target under their
    names, those of the source with ``SOURCE_PREFIX``, null on the side that has no row.

    Args:
        uri: Root of the table.
        source: The rows to merge.
        keys: Columns of both.
        clauses: ``MergeClause`` with functions of the joined rows.
        options: Storage options.
        settings: How to commit.
        environment: Clock, sleep, chance and commit handler.
        buckets: Where the merge is plain, both sides meet in so many buckets; with 0, all tasks
            know the rows of the target; with None, it goes through a join though it is plain.
    """
    check_clauses(clauses)

    def attempt(plan):
        if _usable(plan, source, keys):
            plan = replace(plan, row_keys=tuple(keys))
        plain = None if buckets is None else _plain_merge(plan, source, keys, clauses)
        done = (
            _joined_changes(plan, source, keys, clauses)
            if plain is None
            else _plain_changes(plan, plain, source, clauses, buckets)
        )
        looked_for = merge_read_set(plan, clauses, lambda: _source_keys(plan, source, keys))
        return check_merge(done, looked_for, clauses, keys, keys, matches_by=keys)

    return _again(attempt, uri, options, settings, environment)


def _source_keys(plan, source, keys):
    if not _usable(plan, source, keys):
        return None
    collected = KeyCollector()
    for batch in source.select(list(keys)).to_batches():
        collected.add(batch.columns)
    return SourceKeys(tuple(keys), collected.result() or KeyFilter.of([]))


def _usable(plan, source, keys):
    """As ``spark/jobs/semi_join.py``: whether both sides have hashes that can be compared."""
    types = {field.name: field.to_arrow().type for field in plan.schema.fields}
    pairs = [(source.schema.field(key).type, types[key]) for key in keys]
    return all(is_hashable(kind) and same_hashes(kind, other) for kind, other in pairs)


def _plain_merge(plan, source, keys, clauses):
    """As ``spark/jobs/plain_merge_plan.py``: the merge as a plain one, or None."""
    by_match = {clause.match: clause for clause in clauses}
    plain = all(
        clause.condition is None and all(isinstance(one, Copied) for one in clause.values.values())
        for clause in clauses
    )
    if not plain or Match.NOT_MATCHED_BY_SOURCE in by_match or not _usable(plan, source, keys):
        return None

    def places(clause):
        return {
            name: source.column_names.index(value.name) for name, value in clause.values.items()
        }

    matched, new = by_match.get(Match.MATCHED), by_match.get(Match.NOT_MATCHED)
    return PlainMerge(
        source_keys=tuple(source.column_names.index(key) for key in keys),
        target_keys=tuple(keys),
        matched=None if matched is None else matched.action,
        updates={} if matched is None else places(matched),
        inserts=None if new is None else places(new),
    )


def _plain_changes(plan, merge, source, clauses, buckets):
    """As ``spark/jobs/merge_job.py``, for plain merges."""
    runner = LocalRunner(max(1, buckets))
    pieces, is_small, _ = plain_pieces(
        runner, plan, merge, [source.to_batches()], may_broadcast=not buckets
    )
    one_each = one_match_each(clauses)
    return run_pieces(
        runner, plan, merge.clauses, pieces, one_match_each=one_each, is_small=is_small
    )


def choose_clauses(clauses, joined, match):
    """Number of the clause that applies to each row; -1 where none does."""
    chosen = np.full(joined.num_rows, -1, dtype=np.int32)
    for number, clause in enumerate(clauses):
        rows = np.flatnonzero((match == clause.match) & (chosen == -1))
        if clause.condition is not None and len(rows):
            holds = pc.fill_null(clause.condition(joined.take(pa.array(rows))), False)
            rows = rows[np.asarray(holds, dtype=bool)]
        chosen[rows] = number
    return chosen


def _joined_changes(plan, source, keys, clauses):
    """As ``spark/jobs/merge_job.py``, by a join."""
    joined, match = _joined(plan, source, keys)
    chosen = choose_clauses(clauses, joined, match)
    described = table_clauses(clauses, [clause.values for clause in clauses])
    if counts_unapplied_matches(clauses):
        chosen[(chosen == -1) & (match == Match.MATCHED)] = len(clauses)
    types = {field.name: field.to_arrow().type for field in plan.schema.fields}
    names = [name for name in types if any(name in clause.values for clause in clauses)]
    pieces, order = [], []
    for number in range(len(described)):
        places = np.flatnonzero(chosen == number)
        rows = joined.take(pa.array(places))
        values = clauses[number].values if number < len(clauses) else {}
        columns = {
            CLAUSE: pa.array(np.full(rows.num_rows, number, dtype=np.int32)),
            CHANGED_ROW_ID: rows[ROW_ID],
            CHANGED_ADDRESS: rows[ROW_ADDRESS],
        }
        for name in names:
            given = values.get(name)
            filled = pa.nulls(rows.num_rows, types[name]) if given is None else given(rows)
            columns[name] = filled if filled.type == types[name] else filled.cast(types[name])
        pieces.append(pa.table(columns))
        order.append(places)
    changes = pa.concat_tables(pieces).take(pa.array(np.argsort(np.concatenate(order))))
    one_each = one_match_each(clauses)
    batches = [changes.to_batches()]
    return run_changes(LocalRunner(), plan, described, batches, one_match_each=one_each)


def _joined(plan, source, keys):
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
    target_keys = target.select(list(keys)).cast(source.select(list(keys)).schema)
    left = target_keys.append_column(_TARGET_ROW, _numbers(target.num_rows))
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


def _numbers(count):
    return pa.array(np.arange(count, dtype=np.int64))


def _taken(column, places):
    """The values at ``places``; null for -1."""
    return column.take(pa.array(places, pa.int64(), mask=places < 0))
