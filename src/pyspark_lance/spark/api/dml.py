"""Deletes, updates, merges and applied changes of ``LanceTable``; retries after conflicts.

The builders of merges and compactions have the names of Delta Lake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from pyspark_lance.commit.application_versions import (
    APPLICATION_PROPERTY,
    SOURCE_PROPERTY,
    SourceIdentity,
    application_of_source,
)
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.format.schema import primary_key
from pyspark_lance.spark.api.public_methods import checks_calls, naming_table
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.api.unsupported_attributes import UnsupportedAttributes
from pyspark_lance.spark.expressions.column_expressions import Expression
from pyspark_lance.spark.expressions.expressions import as_expression, quote_name, readable_columns
from pyspark_lance.spark.jobs.apply_job import apply_once, last_changes
from pyspark_lance.spark.jobs.merge_job import (
    ALL_COLUMNS,
    MergeRequest,
    SparkClause,
    add_columns_of_source,
    merge_once,
)
from pyspark_lance.spark.options.write_settings import (
    change_settings,
    commit_settings,
    options_of_change,
)
from pyspark_lance.spark.sessions import check_session, describing_jobs, refresh_cached
from pyspark_lance.table.compaction.compact import CompactionResult
from pyspark_lance.table.dml.commit_changes import PreparedCommit, applied_version
from pyspark_lance.table.dml.merge import Match, MergeClause, check_clauses
from pyspark_lance.table.dml.row_change import (
    ChangeResult,
    DmlPlan,
    RewriteMode,
    RowAction,
    adds_or_removes_rows,
    plan_change,
)
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of the rows of a table.

    Attributes:
        spark: The session.
        table: The table.
        alias: Name of the table in conditions.
    """

    spark: SparkSession
    table: Table
    alias: str

    def run(
        self,
        attempt: Callable[[DmlPlan], PreparedCommit],
        options: Mapping[str, str],
        *,
        source: DataFrame | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> ChangeResult:
        """Plan on the newest version, run and commit; retry after conflicts.

        ``source``: its columns may be in conditions, too. ``properties``: to add to those of the
        commit.
        """
        settings = change_settings(options_of_change(options, self.table, self.spark))
        if properties:
            settings = replace(settings, properties={**settings.properties, **properties})

        def plan_and_run(work: UnitOfWork) -> ChangeResult:
            plan = plan_change(self.table, settings)
            if plan.is_done:
                return ChangeResult()

            def columns() -> list[str]:
                return [*readable_columns(plan.schema), *(source.columns if source else ())]

            with naming_table(self.table.uri), typed_errors(columns, self.alias):
                return attempt(plan)(work)

        result = UnitOfWork(self.table, settings).run(plan_and_run)
        refresh_cached(self.spark, self.table)
        return result

    def merge(self, merge: MergeRequest, options: Mapping[str, str]) -> ChangeResult:
        """Run a merge whose clauses are complete."""
        uri = self.table.uri
        with (
            check_session(self.spark, uri, needs_session=True),
            describing_jobs(self.spark, "merge", uri),
        ):
            if merge.evolves:
                given = options_of_change(options, self.table, self.spark)
                add_columns_of_source(self.table, merge, commit_settings(given))
            return self.run(
                lambda plan: merge_once(self.spark, plan, merge), options, source=merge.source
            )

    def apply(
        self, changes: DataFrame, keys: Mapping[str, str], source: str, options: Mapping[str, str]
    ) -> ChangeResult:
        """Apply changes of another table; see ``LanceTable.applyChanges``.

        ``keys``: column of the table -> column of the changes.
        """
        given = options_of_change(options, self.table, self.spark).properties
        by_version = APPLICATION_PROPERTY not in given
        last = last_changes(changes, keys)
        if last.newest is None and not by_version:
            return ChangeResult()
        number = 0
        if by_version:
            is_empty = last.newest is None
            before = applied_version(Snapshot.open(self.table), source) if is_empty else 0
            number = last.reached(before)
            # The commit of no changes, too, refuses a replaced source.
            if not number:
                return ChangeResult()
            numbered = {"txnAppId": application_of_source(source), "txnVersion": str(number)}
            options, identity = {**options, **numbered}, last.source_at(number)
        else:  # the number of a batch is not a version of the other table
            identity = SourceIdentity(first=last.source.first)

        def attempt(plan: DmlPlan) -> PreparedCommit:
            after = applied_version(plan.snapshot(), source) if by_version else 0
            if last.newest is None and last.reached(after) != number:
                return lambda work: ChangeResult()  # restored since
            return apply_once(self.spark, plan, last, self.alias, after)

        return self.run(attempt, options, properties={SOURCE_PROPERTY: identity.to_text()})

    def resolve_keys(
        self, keys: str | Sequence[str] | None, row_id_column: str | None
    ) -> dict[str, str]:
        """Map key columns of the table to columns of changes; by default the primary key.

        Raises:
            InvalidInputError: There is no key, or there are both kinds.
        """
        if keys is None and row_id_column is None:
            keys = primary_key(Snapshot.open(self.table).schema)
        names = [keys] if isinstance(keys, str) else list(keys or ())
        if bool(names) == (row_id_column is not None):
            raise InvalidInputError(
                "applyChanges needs keys or rowIdColumn, or a table with a primary key",
                hint='keys=["id"], or the column that keeps the row ids of the other table',
            )
        if row_id_column is not None:
            return {row_id_column: ROW_ID}
        return dict(zip(names, names, strict=True))

    def primary_key_condition(self, key: Sequence[str], where: str) -> str:
        """Return the condition that source and target rows have the same primary key.

        Raises:
            InvalidInputError: The table has no primary key.
        """
        if not key:
            raise InvalidInputError(
                "a merge without a condition matches by the primary key, and the table has none",
                where,
                'give a condition, as "target.id = source.id", or setPrimaryKey("id") once',
            )
        return " AND ".join(
            f"{quote_name(self.alias, name)} = source.{quote_name(name)}" for name in key
        )


@checks_calls
class LanceMergeBuilder(UnsupportedAttributes):
    """The builder of a merge; ``execute()`` runs it.

    For each row the first clause that applies is used, in the order in which they were added.
    Every method returns a new builder.

    Args:
        merge: The merge so far.
        run: Runs the merge.

    Examples:
        >>> source = spark.createDataFrame([(3,)], "id bigint")
        >>> merge = table.merge(source, "target.id = source.id")
        >>> merge.whenMatchedDelete().execute().numDeletedRows
        1
    """

    def __init__(self, merge: MergeRequest, run: Callable[[MergeRequest], ChangeResult]) -> None:
        self._merge = merge
        self._run = run

    def __repr__(self) -> str:
        count = len(self._merge.clauses)
        return f"LanceMergeBuilder({count} clause{'s' * (count != 1)}, not run: call execute())"

    def whenMatchedUpdate(  # noqa: N802
        self,
        condition: Expression | None = None,
        set: Mapping[str, object] | None = None,  # noqa: A002
    ) -> LanceMergeBuilder:
        """Update columns of matched target rows.

        Args:
            condition: Additional condition, over both sides.
            set: Maps columns to values; the other columns keep theirs.

        Examples:
            >>> source = spark.createDataFrame([(3, 9.5)], "id bigint, price double")
            >>> merge = table.merge(source, "target.id = source.id")
            >>> merge.whenMatchedUpdate(set={"price": "source.price"}).execute().numUpdatedRows
            1
        """
        return self._with(Match.MATCHED, RowAction.UPDATE, condition, _require_values(set, "set"))

    def whenMatchedUpdateAll(self, condition: Expression | None = None) -> LanceMergeBuilder:  # noqa: N802
        """Update matched target rows from the source; columns that it lacks keep their values.

        Examples:
            >>> source = spark.createDataFrame([(3, "view", 9.5)], table.toDF().schema)
            >>> merge = table.merge(source, "target.id = source.id")
            >>> merge.whenMatchedUpdateAll().execute().numUpdatedRows
            1
        """
        return self._with(Match.MATCHED, RowAction.UPDATE, condition, ALL_COLUMNS)

    def whenMatchedDelete(self, condition: Expression | None = None) -> LanceMergeBuilder:  # noqa: N802
        """Delete matched target rows.

        Examples:
            >>> source = spark.createDataFrame([(3,), (2,)], "id bigint")
            >>> merge = table.merge(source, "target.id = source.id")
            >>> merge.whenMatchedDelete("target.price > 2").execute().numDeletedRows
            1
        """
        return self._with(Match.MATCHED, RowAction.DELETE, condition, {})

    def whenNotMatchedInsert(  # noqa: N802
        self, condition: Expression | None = None, values: Mapping[str, object] | None = None
    ) -> LanceMergeBuilder:
        """Insert a row for each source row without a match.

        Args:
            condition: Additional condition, over the source.
            values: Maps columns to values; the other columns are null.

        Examples:
            >>> source = spark.createDataFrame([(9,)], "id bigint")
            >>> merge = table.merge(source, "target.id = source.id")
            >>> insert = merge.whenNotMatchedInsert(values={"id": "source.id", "kind": "'new'"})
            >>> insert.execute().numInsertedRows
            1
        """
        given = _require_values(values, "values")
        return self._with(Match.NOT_MATCHED, RowAction.INSERT, condition, given)

    def whenNotMatchedInsertAll(self, condition: Expression | None = None) -> LanceMergeBuilder:  # noqa: N802
        """Insert source rows without a match; columns that the source lacks are null.

        Examples:
            >>> source = spark.createDataFrame([(9,)], "id bigint")
            >>> merge = table.merge(source, "target.id = source.id")
            >>> merge.whenNotMatchedInsertAll().execute().numInsertedRows
            1
        """
        return self._with(Match.NOT_MATCHED, RowAction.INSERT, condition, ALL_COLUMNS)

    def whenNotMatchedBySourceUpdate(  # noqa: N802
        self,
        condition: Expression | None = None,
        set: Mapping[str, object] | None = None,  # noqa: A002
    ) -> LanceMergeBuilder:
        """Update columns of target rows without a match; expressions are over the target.

        Examples:
            >>> source = spark.createDataFrame([(1,)], "id bigint")
            >>> merge = table.merge(source, "target.id = source.id")
            >>> late = merge.whenNotMatchedBySourceUpdate(set={"kind": "'gone'"})
            >>> late.execute().numUpdatedRows
            2
        """
        values = _require_values(set, "set")
        return self._with(Match.NOT_MATCHED_BY_SOURCE, RowAction.UPDATE, condition, values)

    def whenNotMatchedBySourceDelete(  # noqa: N802
        self, condition: Expression | None = None
    ) -> LanceMergeBuilder:
        """Delete target rows without a match.

        Examples:
            >>> source = spark.createDataFrame([(1,)], "id bigint")
            >>> merge = table.merge(source, "target.id = source.id")
            >>> merge.whenNotMatchedBySourceDelete().execute().numDeletedRows
            2
        """
        return self._with(Match.NOT_MATCHED_BY_SOURCE, RowAction.DELETE, condition, {})

    def withSchemaEvolution(self) -> LanceMergeBuilder:  # noqa: N802
        """Add columns of the source that the table lacks; they are null in rows without a value.

        They are added before the merge, as a version of its own: for ``whenMatchedUpdateAll`` and
        ``whenNotMatchedInsertAll`` all of them, including fields of structs; for other clauses
        those that they set under their own name. No column changes its type.

        Examples:
            >>> source = spark.createDataFrame([(3, "red")], "id bigint, colour string")
            >>> merge = table.merge(source, "target.id = source.id").withSchemaEvolution()
            >>> merge.whenMatchedUpdateAll().execute().numUpdatedRows
            1
        """
        return LanceMergeBuilder(replace(self._merge, evolves=True), self._run)

    def execute(self) -> ChangeResult:
        """Run the merge: one version, or none if nothing changes.

        Raises:
            InvalidInputError: Two source rows match one target row, or the clauses are invalid.
            RetryableCommitError: Other commits conflicted with this one too often.
            CommitConflictError: Another commit makes the merge pointless.

        Examples:
            >>> source = spark.createDataFrame([(8,)], "id bigint")
            >>> merge = table.merge(source, "target.id = source.id").whenMatchedDelete()
            >>> merge.execute()  # nothing to do, so no version
            ChangeResult(version=None, numInsertedRows=0, numUpdatedRows=0, numDeletedRows=0)
        """
        check_clauses(self._merge.clauses)
        return self._run(self._merge)

    def _with(
        self,
        match: Match,
        action: RowAction,
        condition: Expression | None,
        values: Mapping[str, Expression],
    ) -> LanceMergeBuilder:
        if self._merge.rewrite is RewriteMode.COLUMNS and action is not RowAction.UPDATE:
            raise adds_or_removes_rows()
        clause: SparkClause = MergeClause(match, action, condition, values)
        merge = replace(self._merge, clauses=(*self._merge.clauses, clause))
        return LanceMergeBuilder(merge, self._run)


def _require_values(values: Mapping[str, object] | None, name: str) -> Mapping[str, Expression]:
    if not values:
        raise InvalidInputError(f"{name} needs at least one column")
    return {key: as_expression(value) for key, value in values.items()}


@checks_calls
class LanceOptimizeBuilder(UnsupportedAttributes):
    """The result of ``optimize()``; ``executeCompaction()`` or ``executeZOrderBy()`` runs it.

    Args:
        compact: Compacts the table.

    Examples:
        >>> table.optimize().executeCompaction().numRows
        0
    """

    def __init__(self, compact: Callable[..., CompactionResult]) -> None:
        self._compact = compact

    def __repr__(self) -> str:
        return "LanceOptimizeBuilder(not run: call executeCompaction() or executeZOrderBy())"

    def executeCompaction(self) -> CompactionResult:  # noqa: N802
        """Run ``LanceTable.compact()``, which rewrites the fragments that need it.

        Rows of a table that is clustered are sorted, as in Delta.

        Examples:
            >>> table.toDF().write.format("lance").mode("append").save(path)
            >>> table.optimize().executeCompaction().numRows
            6
        """
        return self._compact()

    def executeZOrderBy(self, *columns: str) -> CompactionResult:  # noqa: N802
        """Run ``LanceTable.compact(clusterBy=columns, order="zorder")``, which sorts the rows.

        Args:
            columns: Names.

        Examples:
            >>> table.optimize().executeZOrderBy("id").numRows
            3
        """
        return self._compact(clusterBy=columns, order="zorder")
