"""Merge a DataFrame into a table: Spark joins; ``table/dml/merge.py`` has the rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_lance.commit.application_versions import (
    APPLICATION_PROPERTY,
    SOURCE_PROPERTY,
    VERSION_PROPERTY,
)
from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import (
    ROW_ADDRESS,
    ROW_ID,
    SYSTEM_COLUMNS,
    match_names,
    sources_of,
    spellings,
)
from pyspark_lance.format.schema import LanceSchema, primary_key
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.predicate.name_parts import name_parts
from pyspark_lance.spark.expressions.column_expressions import (
    Expression,
    names_in,
    node_of,
    reference,
)
from pyspark_lance.spark.expressions.expressions import (
    as_column,
    convert_to_stored,
    named_columns,
    quote_name,
    readable_columns,
    refuse_trailing_aliases,
    with_values,
)
from pyspark_lance.spark.jobs.merge_columns import MergeChanges, run_by_columns
from pyspark_lance.spark.jobs.plain_merge_plan import plain_merge
from pyspark_lance.spark.jobs.semi_join import (
    MIN_TARGET_ROWS,
    KeyPair,
    MergeCondition,
    SourceNames,
    parse_merge_condition,
    scan_of_keys,
    source_keys,
    usable_pairs,
)
from pyspark_lance.spark.jobs.update_job import (
    AssignedTargets,
    RepeatedRowError,
    SparkStages,
    assigned_columns,
    pinned_scan,
    struct_columns,
)
from pyspark_lance.spark.types.declared_columns import default_texts
from pyspark_lance.spark.types.spark_types import (
    as_any_blob,
    is_descriptor,
    same_type,
    spark_schema,
)
from pyspark_lance.spark.types.write_schema import stored_schema
from pyspark_lance.table.columns.change_columns import add_missing_columns
from pyspark_lance.table.dml.commit_changes import (
    PreparedCommit,
    RowChanges,
    prepare_commit,
    with_rewrite_choice,
)
from pyspark_lance.table.dml.deletions import FragmentDeletions
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.dml.merge import (
    Match,
    MergeClause,
    SourceKeys,
    check_merge,
    counts_unapplied_matches,
    merge_read_set,
    one_match_each,
    table_clauses,
)
from pyspark_lance.table.dml.moved_rows import CHANGED_ADDRESS, CHANGED_ROW_ID, CLAUSE, Clause
from pyspark_lance.table.dml.rewrite_columns import commit_rewrite
from pyspark_lance.table.dml.row_change import DmlPlan, RewriteMode, RowAction
from pyspark_lance.table.dml.run_changes import plain_pieces
from pyspark_lance.table.unit_of_work import CommitSettings
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

SparkClause = MergeClause[Expression, Expression]

# Assigns every column of the table that the source has.
ALL_COLUMNS: Mapping[str, Expression] = {"*": "*"}

DEFAULT_TARGET_ALIAS = "target"
_DEFAULT_SOURCE_ALIAS = "source"
_IN_SOURCE = "__lance_in_source"
_SOURCE_COLUMN = "__lance_source_"


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A merge as the user defined it."""

    source: DataFrame  # The rows to merge, with the alias that expressions use.
    condition: Expression
    clauses: tuple[SparkClause, ...]  # In order.
    alias: str
    rewrite: RewriteMode = RewriteMode.AUTO
    evolves: bool = False  # Whether columns that the table lacks are added.

    def __post_init__(self) -> None:
        """Check that the mode is an enum value."""
        check_enum(self.rewrite, RewriteMode)


@dataclass(frozen=True, slots=True)
class _SourceKeys:
    """The source, evaluated once, and its keys."""

    source: DataFrame
    pairs: tuple[KeyPair, ...]
    key_filter: KeyFilter

    def known(self) -> SourceKeys:
        """The keys without the source."""
        return SourceKeys(tuple(pair.target for pair in self.pairs), self.key_filter)


def merge_once(spark: SparkSession, plan: DmlPlan, merge: MergeRequest) -> PreparedCommit:
    """Run one attempt, except its commit."""
    source = _alias_source(merge)
    merge = _with_defaults(merge, source, plan.schema)
    condition = parse_merge_condition(merge.condition, merge.alias, plan.schema)
    keys = usable_pairs(plan, source, condition.pairs)
    plan = replace(plan, row_keys=tuple(pair.target for pair in keys))
    changes = _plain_changes(spark, plan, merge, source, condition)
    if changes is None:
        changes = _plan_join(spark, plan, merge, source, condition)
    in_condition = named_columns([merge.condition], readable_columns(plan.schema))
    reads = _reads(plan, merge, source, condition, changes.keys)
    try:
        choice, written = run_by_columns(plan, merge.rewrite, changes)
        if not isinstance(written, MergeChanges):
            return with_rewrite_choice(partial(commit_rewrite, plan, *written, reads=reads), choice)
        done = written.move_rows(plan, one_match_each=one_match_each(merge.clauses))
    except RepeatedRowError as error:
        choice = None
        done = RowChanges(
            plan, (FragmentDeletions(error.address >> 32, 0, repeated=error.address),)
        )
    shown = _without_qualifiers(merge.condition, in_condition)
    by = [pair.target for pair in condition.pairs]
    is_all = condition.is_whole and condition.target_filter is None
    merged = check_merge(
        done, reads, merge.clauses, in_condition, shown, matches_by=by if is_all else None
    )
    work = prepare_commit(merged)
    return work if choice is None else with_rewrite_choice(work, choice)


def _reads(
    plan: DmlPlan,
    merge: MergeRequest,
    source: DataFrame,
    condition: MergeCondition,
    keys: SourceKeys | None,
) -> ReadSet:
    """Return the read set of the merge: rows with a key of the source, or all."""

    def look() -> SourceKeys | None:
        """Return the keys; for small tables they were not computed before."""
        pairs = usable_pairs(plan, source, condition.pairs)
        key_filter = source_keys(source, pairs) if pairs else None
        if key_filter is None:
            return None
        return SourceKeys(tuple(pair.target for pair in pairs), key_filter)

    return merge_read_set(plan, merge.clauses, lambda: keys or look())


def _plain_changes(
    spark: SparkSession,
    plan: DmlPlan,
    merge: MergeRequest,
    source: DataFrame,
    condition: MergeCondition,
) -> MergeChanges | None:
    """Plan the changes without a join, if the merge is plain and the target large."""
    if plan.snapshot().num_rows() < MIN_TARGET_ROWS:
        return None
    plain = plain_merge(
        spark, plan, source, condition, merge.alias, merge.clauses, every=ALL_COLUMNS
    )
    if plain is None:
        return None
    pieces, is_small, key_filter = plain_pieces(
        SparkStages(spark), plan, *plain, condition.target_filter
    )
    return MergeChanges(
        plain[0].clauses,
        pieces,
        is_packed=True,
        unchanged=plain[0].unchanged,
        is_small=is_small,
        keys=None if key_filter is None else SourceKeys(plain[0].target_keys, key_filter),
    )


def _plan_join(
    spark: SparkSession,
    plan: DmlPlan,
    merge: MergeRequest,
    source: DataFrame,
    condition: MergeCondition,
) -> MergeChanges:
    """Plan the changes with a join of Spark."""
    given = source
    keys = _keys_of_source(plan, merge, source, condition)
    if keys is not None:
        source = keys.source
    source = _with_marks(source, plan.schema)
    clauses = tuple(_expand_all_columns(clause, source, plan.schema) for clause in merge.clauses)
    names = readable_columns(plan.schema)
    texts: list[Expression] = [merge.condition]
    for clause in clauses:
        texts += [*clause.values.values(), *_conditions(clause)]
        if clause.action is RowAction.UPDATE:
            texts += map(quote_name, struct_columns(clause.values, plan.schema))
    only_updates = all(clause.action is RowAction.UPDATE for clause in clauses)
    by_columns = only_updates and merge.rewrite is not RewriteMode.ROWS
    if by_columns:
        # A row keeps the value of a column that its clause does not set.
        texts += map(quote_name, _columns_of_some(clauses, plan.schema))
    join_type = _join_type(clauses)
    # Unmatched rows are unchanged, unless a clause applies to them.
    narrowed = condition.target_filter if join_type in ("inner", "left_outer") else None
    target = _target(spark, plan, named_columns(texts, names), merge.alias, keys, narrowed)
    joined = source.join(target, as_column(merge.condition), join_type)
    refuse_trailing_aliases(joined, texts)
    described, changes = _changes(joined, clauses, plan.schema, merge.alias, keep=by_columns)
    asks = by_columns or bool(primary_key(plan.schema))
    unchanged = _unchanged_keys(plan, merge, given, condition) if asks else frozenset()
    return MergeChanges(
        tuple(replace(clause, same=unchanged) for clause in described),
        changes,
        is_packed=False,
        unchanged=unchanged,
        keys=None if keys is None else keys.known(),
    )


def _columns_of_some(clauses: Sequence[SparkClause], schema: LanceSchema) -> list[str]:
    """Return the columns that some, but not all clauses set."""
    targets = AssignedTargets(schema)
    sets = [{targets.of(key)[0] for key in clause.values} for clause in clauses]
    every: set[str] = set().union(*sets)
    return sorted(name for name in every if not all(name in columns for columns in sets))


def _unchanged_keys(
    plan: DmlPlan, merge: MergeRequest, source: DataFrame, condition: MergeCondition
) -> frozenset[str]:
    """Return the keys that are only assigned the value that they match."""
    sources = sources_of((field.name for field in plan.schema.fields), source.columns)
    names = spellings(source.columns)
    targets = AssignedTargets(plan.schema)

    def keeps(clause: SparkClause, pair: KeyPair) -> bool:
        if clause.values is ALL_COLUMNS:
            *qualifiers, name = pair.source
            is_plain = len(qualifiers) < 2 and not any(one in names for one in qualifiers)
            own = sources.get(pair.target)
            return own is None or (is_plain and names.find_name(name) == own)
        values = [
            value for key, value in clause.values.items() if targets.of(key)[0] == pair.target
        ]
        return all(reference(node_of(value)) == pair.source for value in values)

    pairs = usable_pairs(plan, source, condition.pairs)
    return frozenset(
        pair.target for pair in pairs if all(keeps(clause, pair) for clause in merge.clauses)
    )


def _without_qualifiers(condition: Expression, keys: Sequence[str]) -> list[str]:
    """Return the keys without those that are only a qualifier before a dot."""
    ends = names_in([condition]).ends
    return [name for name in keys if name.lower() in ends]


def _conditions(clause: SparkClause) -> list[Expression]:
    return [] if clause.condition is None else [clause.condition]


# The two sides ------------------------------------------------------------------------------


def _alias_source(merge: MergeRequest) -> DataFrame:
    """Return the source, with the alias ``source`` if expressions use it and it has none."""
    texts: list[Expression] = [merge.condition]
    for clause in merge.clauses:
        texts += [*clause.values.values(), *_conditions(clause)]
    if _DEFAULT_SOURCE_ALIAS not in names_in(texts).qualifiers:
        return merge.source
    if SourceNames(merge.source).has_alias(_DEFAULT_SOURCE_ALIAS):
        return merge.source
    return merge.source.alias(_DEFAULT_SOURCE_ALIAS)


def _with_marks(source: DataFrame, schema: LanceSchema) -> DataFrame:
    """Add a marker column to the source, and copies of its columns with reserved names."""
    source_names = sources_of((field.name for field in schema.fields), source.columns)
    again = (
        f"{quote_name(source_names[field.name])} AS {_SOURCE_COLUMN}{number}"
        for number, field in enumerate(schema.fields)
        if field.name in source_names
    )
    return source.selectExpr("*", f"TRUE AS {_IN_SOURCE}", *again)


def _keys_of_source(
    plan: DmlPlan, merge: MergeRequest, source: DataFrame, condition: MergeCondition
) -> _SourceKeys | None:
    """Collect the keys of the source, if that is worthwhile before reading the target."""
    matches = {clause.match for clause in merge.clauses}
    too_small = plan.snapshot().num_rows() < MIN_TARGET_ROWS
    if Match.NOT_MATCHED_BY_SOURCE in matches or too_small:
        return None
    pairs = usable_pairs(plan, source, condition.pairs)
    if not pairs:
        return None
    # The keys and the join must see the same rows, even if the source is not deterministic.
    source = source.localCheckpoint()
    key_filter = source_keys(source, pairs)
    return None if key_filter is None else _SourceKeys(source, pairs, key_filter)


def _target(
    spark: SparkSession,
    plan: DmlPlan,
    named: Sequence[str],
    alias: str,
    keys: _SourceKeys | None,
    condition: str | None,
) -> DataFrame:
    columns = [*(n for n in named if n not in (ROW_ID, ROW_ADDRESS)), ROW_ID, ROW_ADDRESS]
    rows = (
        pinned_scan(spark, plan, columns, condition)
        if keys is None
        else scan_of_keys(spark, plan, columns, keys.pairs, keys.key_filter, condition)
    )
    system = {CHANGED_ROW_ID: ROW_ID, CHANGED_ADDRESS: ROW_ADDRESS}
    return with_values(rows, {name: quote_name(name) for name in named} | system).alias(alias)


def _join_type(clauses: Sequence[SparkClause]) -> str:
    """Return the join type; the source is on the left."""
    matches = {clause.match for clause in clauses}
    if Match.NOT_MATCHED in matches:
        return "full_outer" if Match.NOT_MATCHED_BY_SOURCE in matches else "left_outer"
    return "right_outer" if Match.NOT_MATCHED_BY_SOURCE in matches else "inner"


def _expand_all_columns(clause: SparkClause, source: DataFrame, schema: LanceSchema) -> SparkClause:
    """Replace ``ALL_COLUMNS`` in a clause by the columns of the source."""
    if clause.values is not ALL_COLUMNS:
        return clause
    present = set(source.columns)
    values: dict[str, Expression] = {
        field.name: f"{_SOURCE_COLUMN}{number}"
        for number, field in enumerate(schema.fields)
        if f"{_SOURCE_COLUMN}{number}" in present
    }
    if not values:
        raise InvalidInputError("the source has no column of the table")
    return replace(clause, values=values)


def _with_defaults(merge: MergeRequest, source: DataFrame, schema: LanceSchema) -> MergeRequest:
    """Add default values of columns that an insert clause does not set."""
    texts = default_texts(schema)
    given = sources_of((field.name for field in schema.fields), source.columns)
    targets = AssignedTargets(schema)

    def filled(clause: SparkClause) -> SparkClause:
        if clause.values is ALL_COLUMNS:
            missing = {name: text for name, text in texts.items() if name not in given}
            if not missing:
                return clause
            clause = _expand_all_columns(clause, _with_marks(source, schema), schema)
        else:
            named = {targets.of(key)[0] for key in clause.values}
            missing = {name: text for name, text in texts.items() if name not in named}
        defaults = {quote_name(name): text for name, text in missing.items()}
        return replace(clause, values={**clause.values, **defaults})

    clauses = tuple(
        filled(clause) if clause.action is RowAction.INSERT else clause for clause in merge.clauses
    )
    return replace(merge, clauses=clauses)


# The change of each row -------------------------------------------------------------------


def _changes(
    joined: DataFrame,
    clauses: Sequence[SparkClause],
    schema: LanceSchema,
    alias: str,
    *,
    keep: bool,
) -> tuple[tuple[Clause, ...], DataFrame]:
    """Return the clauses for tasks, and one row for each changed row.

    With ``keep``, columns that a row's clause does not set keep their value.
    """
    in_source, in_target = sf.col(_IN_SOURCE).isNotNull(), sf.col(CHANGED_ADDRESS).isNotNull()
    matches = {
        Match.MATCHED: in_source & in_target,
        Match.NOT_MATCHED: ~in_target,
        Match.NOT_MATCHED_BY_SOURCE: ~in_source,
    }
    steps = []
    for number, clause in enumerate(clauses):
        applies = matches[clause.match]
        if clause.condition is not None:
            applies = applies & as_column(clause.condition)
        steps.append((applies, sf.lit(number)))
    assigned = []
    for clause in clauses:
        columns = (
            assigned_columns(
                clause.values, schema, alias if clause.action is RowAction.UPDATE else None
            )
            if clause.action in (RowAction.UPDATE, RowAction.INSERT)
            else {}
        )
        assigned.append(convert_to_stored(joined, columns, schema))
    blobs = {field.name for field in schema.fields if any(part.is_blob for part in field.walk())}
    assigned = _blobs_of_one_type(joined, assigned, blobs)
    if counts_unapplied_matches(clauses):
        steps.append((matches[Match.MATCHED], sf.lit(len(clauses))))
    first, *others = steps
    chosen = reduce(lambda chain, step: chain.when(*step), others, sf.when(*first))
    rows = joined.withColumn(CLAUSE, chosen).where(sf.col(CLAUSE).isNotNull())
    names = [field.name for field in schema.fields if any(field.name in v for v in assigned)]
    # Column rewrites exclude columns with blobs, so their current values are not needed.
    values = {
        name: _value_of(name, assigned, alias if keep and name not in blobs else None)
        for name in names
    }
    changed_row = {name: name for name in (CLAUSE, CHANGED_ROW_ID, CHANGED_ADDRESS)}
    return table_clauses(clauses, assigned), with_values(rows, {**changed_row, **values})


def _blobs_of_one_type(
    joined: DataFrame, assigned: list[dict[str, Expression]], blobs: Collection[str]
) -> list[dict[str, Expression]]:
    """Return the values of each clause; those of a blob column are all bytes or all descriptors."""
    for name in blobs:
        given = {f"v{i}": values[name] for i, values in enumerate(assigned) if name in values}
        if len(given) < 2:
            continue
        kinds = {one.name: one.dataType for one in with_values(joined, given).schema.fields}
        first, *others = kinds.values()
        if all(same_type(first, other) for other in others):
            continue
        if not all(is_descriptor(kind) or isinstance(kind, BinaryType) for kind in kinds.values()):
            raise InvalidInputError(
                f"some clauses set blobs within {name!r} to bytes, others to descriptors",
                hint="read the source with the option blobColumns",
            )
        assigned = [
            {**values, name: as_any_blob(as_column(values[name]), kinds[f"v{i}"])}
            if name in values
            else values
            for i, values in enumerate(assigned)
        ]
    return assigned


def _value_of(
    name: str, assigned: Sequence[Mapping[str, Expression]], alias: str | None
) -> Expression:
    """Return the value of a column by the clause that applies.

    If the clause does not set the column, it is the value in the table ``alias``, or null.
    """
    steps = [(number, values[name]) for number, values in enumerate(assigned) if name in values]
    is_set_by_all = len(steps) == len(assigned)
    texts = [value for _, value in steps if isinstance(value, str)]
    if is_set_by_all and len(texts) == len(steps) and len(set(texts)) == 1:
        return texts[0]
    kept = None if alias is None or is_set_by_all else quote_name(alias, name)
    if len(texts) == len(steps):
        # A value may end in a comment.
        when_clauses = " ".join(
            f"WHEN {CLAUSE} = {number} THEN {value}\n" for number, value in steps
        )
        return f"CASE {when_clauses} {'' if kept is None else f'ELSE {kept} '}END"
    (number, value), *others = steps
    chosen = sf.when(sf.col(CLAUSE) == number, as_column(value))
    for number, value in others:
        chosen = chosen.when(sf.col(CLAUSE) == number, as_column(value))
    return chosen if kept is None else chosen.otherwise(sf.col(kept))


# These identify an idempotent merge, which is a separate commit from the new columns.
_OF_MERGE = (APPLICATION_PROPERTY, VERSION_PROPERTY, SOURCE_PROPERTY)


def add_columns_of_source(table: Table, merge: MergeRequest, settings: CommitSettings) -> None:
    """Add columns that the merge assigns and the table lacks, null in every row.

    These are, for ``whenMatchedUpdateAll`` and ``whenNotMatchedInsertAll``, all columns of the
    source and fields of structs, and for other clauses the source columns that they set by name.
    """
    schema = Snapshot.open(table).schema
    missing = _missing(merge, schema)
    if missing.fields:
        properties = {k: v for k, v in settings.properties.items() if k not in _OF_MERGE}
        columns = stored_schema(
            missing, {}, existing=None, overwrite=False, case_sensitive=settings.case_sensitive
        )
        add_missing_columns(table, columns, replace(settings, properties=properties))


def _missing(merge: MergeRequest, schema: LanceSchema) -> StructType:
    source = StructType(
        [field for field in merge.source.schema.fields if field.name.lower() not in SYSTEM_COLUMNS]
    )
    if not any(clause.values is ALL_COLUMNS for clause in merge.clauses):
        keys = [name_parts(key) for clause in merge.clauses for key in clause.values]
        own = spellings(source.names)
        named = {own.find_name(key[0]) for key in keys if len(key) == 1}
        source = StructType([field for field in source.fields if field.name in named])
    return _besides(source, spark_schema(schema, ()))


def _besides(given: StructType, known: StructType) -> StructType:
    """Return the columns, and fields of structs, of ``given`` that ``known`` lacks."""
    pairs = match_names(given.names, known.names)
    fields = []
    for field in given.fields:
        kind = known[pairs[field.name]].dataType if field.name in pairs else None
        if kind is None:
            fields.append(StructField(field.name, field.dataType, nullable=True))
        elif isinstance(kind, StructType) and isinstance(field.dataType, StructType):
            members = _besides(field.dataType, kind)
            if members.fields:
                fields.append(StructField(pairs[field.name], members, nullable=True))
    return StructType(fields)
