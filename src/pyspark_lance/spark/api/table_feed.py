"""The methods of ``LanceTable`` that apply changes of other tables and register consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, TimestampType

from pyspark_lance.commit.application_versions import (
    APPLICATION_PROPERTY,
    SOURCE_PROPERTY,
    SourceIdentity,
    applied_changes,
)
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.format.schema import primary_key
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.jobs.apply_job import apply_once, last_changes
from pyspark_lance.spark.options.spellings import (
    COMMIT_OPTIONS,
    FILE_OPTIONS,
    changes_table,
    checks_keywords,
)
from pyspark_lance.spark.options.write_settings import options_of_change
from pyspark_lance.spark.sql.metadata_tables import columns, rows_to_dataframe
from pyspark_lance.table.dml.applied_changes import applied_version
from pyspark_lance.table.dml.commit_changes import PreparedCommit
from pyspark_lance.table.dml.row_change import ChangeResult, DmlPlan
from pyspark_lance.table.refs.tags import (
    Consumer,
    consumers_of,
    register_consumer,
    unregister_consumer,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec

_DEFAULT_SOURCE = "source"
_CONSUMERS = columns(
    name=StringType(), version=LongType(), lag=LongType(), updatedAt=TimestampType()
)


@checks_keywords
class TableFeed:
    """Applies changes of another table, and keeps versions for consumers of this one."""

    _spark: SparkSession
    _table: Table
    _alias: str
    _version_of: Callable[..., VersionSpec]
    _number_of: Callable[..., int | None]
    _change: Callable[..., ChangeResult]

    @changes_table(*COMMIT_OPTIONS, *FILE_OPTIONS)
    def applyChanges(  # noqa: N802
        self,
        changes: DataFrame,
        keys: str | Sequence[str] | None = None,
        *,
        rowIdColumn: str | None = None,  # noqa: N803
        source: str = _DEFAULT_SOURCE,
        **options: str,
    ) -> ChangeResult:
        """Apply changes of another table: inserts, updates and deletes in one version.

        The last change of a row wins. The newest version among the changes is committed with the
        rows (see ``appliedVersion``), and changes up to it are skipped if they are applied again.
        With ``txnAppId`` and ``txnVersion``, as in ``foreachBatch``, that pair decides instead.

        Args:
            changes: From ``changes()`` or ``readChangeFeed``, of a batch or a stream. Columns that
                the table lacks are an error; columns that only the table has keep their values.
            keys: Key columns, in both tables; those of this table's primary key if neither these
                nor ``rowIdColumn`` are given. Do not filter out pre-images: they are needed for
                rows whose key changed.
            rowIdColumn: Instead of ``keys``: the column of this table that stores the ``_rowid``
                of the other one.
            source: Name of the other table, if this one applies changes of several.
            options: As for ``delete``.

        Raises:
            InvalidInputError: A key is null, or the table lacks a column.
            RetryableCommitError: Other commits conflicted with this one too often.
            TableReplacedError: The other table was dropped and created again since the changes that
                were applied last.

        Examples:
            >>> copy = LanceTable.create(spark, f"{folder}/copy", table.toDF().schema)
            >>> copy.applyChanges(table.changes(copy.appliedVersion() + 1), "id")
            ChangeResult(version=2, numInsertedRows=3, numUpdatedRows=0, numDeletedRows=0)
            >>> _ = table.delete("id = 3")
            >>> copy.applyChanges(table.changes(copy.appliedVersion() + 1), "id").numDeletedRows
            1
        """
        if keys is None and rowIdColumn is None:
            keys = primary_key(Snapshot.open(self._table).schema)
        pairs = _key_pairs(keys, rowIdColumn)
        given = options_of_change(options, self._table, self._spark).properties
        by_version = APPLICATION_PROPERTY not in given
        with typed_errors():
            last = last_changes(changes, pairs)
        if last.newest is None:
            return ChangeResult()
        if by_version:
            numbered = {"txnAppId": applied_changes(source), "txnVersion": str(last.newest)}
            options = {**options, **numbered}
            came_from = last.source
        else:  # the number of a batch is not a version of the other table
            came_from = SourceIdentity(first=last.source.first)

        def attempt(plan: DmlPlan) -> PreparedCommit:
            after = applied_version(plan.snapshot(), source) if by_version else 0
            return apply_once(self._spark, plan, last, self._alias, after)

        return self._change(attempt, options, properties={SOURCE_PROPERTY: came_from.to_text()})

    def appliedVersion(self, source: str = _DEFAULT_SOURCE) -> int:  # noqa: N802
        """Return the version of the other table up to which changes were applied; 0 for none.

        Args:
            source: As given to ``applyChanges``.

        Examples:
            >>> copy = LanceTable.create(spark, f"{folder}/copy", table.toDF().schema)
            >>> _ = copy.applyChanges(table.changes(1), "id")
            >>> copy.appliedVersion()
            1
        """
        return applied_version(Snapshot.open(self._table, self._version_of(None)), source)

    # Consumers -------------------------------------------------------------------------------

    @changes_table()
    def registerConsumer(  # noqa: N802
        self,
        name: str,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> Consumer:
        """Register a consumer, or move one, so that cleanups keep versions that it has not read.

        No cleanup removes the given version or a later one until the consumer advances. A stream
        with the option ``consumer`` advances its own.

        Args:
            name: Letters, digits, ``.``, ``_``, ``-``.
            version: The last version that it has read; None for the newest.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            VersionNotFoundError: There is no such version.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> table.registerConsumer("mirror", 1).lag
            1
            >>> table.registerConsumer("mirror").lag
            0
        """
        return register_consumer(self._table, name, self._number_of(version, tag, timestamp))

    @changes_table()
    def unregisterConsumer(self, name: str) -> None:  # noqa: N802
        """Remove a consumer; cleanups no longer keep versions for it.

        Raises:
            VersionNotFoundError: There is no such consumer.

        Examples:
            >>> _ = table.registerConsumer("mirror")
            >>> table.unregisterConsumer("mirror")
            >>> table.consumers().count()
            0
        """
        unregister_consumer(self._table, name)

    def consumers(self) -> DataFrame:
        """Return the consumers: the last version that each has read, and how many it lags behind.

        Examples:
            >>> _ = table.registerConsumer("mirror")
            >>> table.consumers().select("name", "version", "lag").collect()
            [Row(name='mirror', version=1, lag=0)]
        """
        rows = [
            (consumer.name, consumer.version, consumer.lag, consumer.updatedAt)
            for consumer in consumers_of(self._table)
        ]
        return rows_to_dataframe(self._spark, rows, _CONSUMERS)


def _key_pairs(keys: str | Sequence[str] | None, row_id_column: str | None) -> dict[str, str]:
    """Map key columns of the target table to columns of the changes."""
    names = [keys] if isinstance(keys, str) else list(keys or ())
    if bool(names) == (row_id_column is not None):
        raise InvalidInputError(
            "applyChanges needs keys or rowIdColumn, or a table with a primary key",
            hint='keys=["id"], or the column that keeps the row ids of the other table',
        )
    return (
        dict(zip(names, names, strict=True)) if row_id_column is None else {row_id_column: ROW_ID}
    )
