"""Run deletes, updates, merges and applied changes of ``LanceTable``; retry after conflicts."""

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
from pyspark_lance.spark.api.cached_tables import refresh_cached
from pyspark_lance.spark.api.public_methods import naming_table
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.expressions.expressions import quote_name, readable_columns
from pyspark_lance.spark.jobs.apply_job import apply_once, last_changes
from pyspark_lance.spark.jobs.merge_job import MergeRequest, add_columns_of_source, merge_once
from pyspark_lance.spark.options.write_settings import (
    change_settings,
    commit_settings,
    options_of_change,
)
from pyspark_lance.spark.sessions import check_session, describing_jobs
from pyspark_lance.table.dml.commit_changes import PreparedCommit, applied_version
from pyspark_lance.table.dml.row_change import ChangeResult, DmlPlan, plan_change
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.unit_of_work import UnitOfWork


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
        if last.newest is None:
            return ChangeResult()
        if by_version:
            numbered = {"txnAppId": application_of_source(source), "txnVersion": str(last.newest)}
            options, identity = {**options, **numbered}, last.source
        else:  # the number of a batch is not a version of the other table
            identity = SourceIdentity(first=last.source.first)

        def attempt(plan: DmlPlan) -> PreparedCommit:
            after = applied_version(plan.snapshot(), source) if by_version else 0
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
