"""The clauses of a merge, one call after the other, as in Delta.

The builder of a compaction, with the names of Delta Lake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.api.public_methods import checks_calls
from pyspark_lance.spark.api.unsupported_attributes import UnsupportedAttributes
from pyspark_lance.spark.expressions.column_expressions import Expression
from pyspark_lance.spark.expressions.expressions import as_expression
from pyspark_lance.spark.jobs.merge_job import ALL_COLUMNS, MergeRequest, SparkClause
from pyspark_lance.table.compaction.compact import CompactionResult
from pyspark_lance.table.dml.merge import Match, MergeClause, check_clauses
from pyspark_lance.table.dml.row_change import (
    ChangeResult,
    RewriteMode,
    RowAction,
    adds_or_removes_rows,
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
