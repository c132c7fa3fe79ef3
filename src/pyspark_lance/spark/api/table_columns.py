"""The methods of ``LanceTable`` that change columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.clustering import DEFAULT_ORDER, ClusterBy
from pyspark_lance.format.schema import primary_key
from pyspark_lance.predicate.name_parts import unquoted
from pyspark_lance.spark.api.cached_tables import refreshes_cached
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.expressions.column_expressions import Expression
from pyspark_lance.spark.jobs.column_jobs import (
    converted_column,
    declared_columns,
    expression_columns,
    has_nulls,
    joined_columns,
    stored_type,
)
from pyspark_lance.spark.options.spellings import COMMIT_OPTIONS, changes_table, checks_keywords
from pyspark_lance.spark.options.write_settings import commit_settings, options_of_change
from pyspark_lance.table.columns.change_columns import (
    ColumnResult,
    add_columns,
    add_null_columns,
    change_nullability,
    drop_columns,
    rename_column,
    set_metadata,
    widen_column,
)
from pyspark_lance.table.columns.cluster_by import set_cluster_by
from pyspark_lance.table.columns.primary_key import set_primary_key
from pyspark_lance.table.columns.schema_change import find_field
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec
from pyspark_lance.table.work.metadata_commits import MetadataResult


@checks_keywords
class TableColumns:
    """Adds, drops, renames and changes columns, each in one version.

    All methods take the options ``commitRetries``, ``commitTimeout``, ``userMetadata``,
    ``txnAppId`` and ``txnVersion``, as a write does.
    """

    _spark: SparkSession
    _table: Table
    _version_of: Callable[..., VersionSpec]

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    @refreshes_cached
    def addColumns(  # noqa: N802
        self, columns: str | StructType | Mapping[str, Expression] | DataFrame, **options: str
    ) -> ColumnResult:
        """Add columns at the end of the schema.

        Args:
            columns: ``"a int, b string"`` or a StructType: null columns, which write no data;
                ``{"a": "x * 2"}``: SQL strings or Columns over other columns of the same row; or
                a DataFrame with ``_rowid`` and the new columns, which is joined to the table
                (rows that it lacks get null).
            options: See the class.

        Raises:
            InvalidInputError: A name is in use, or a row would get two values.
            CommitConflictError: Another commit makes the change pointless.

        Examples:
            >>> table.addColumns({"double_price": "price * 2"}).version
            2
            >>> table.addColumns("note string").version
            3
        """
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        if isinstance(columns, str | StructType):
            schema = declared_columns(self._spark, columns)
            return add_null_columns(self._table, schema, settings)
        snapshot = self._latest()
        if isinstance(columns, Mapping):
            values = {unquoted(name): value for name, value in columns.items()}
            with typed_errors(lambda: snapshot.schema.names):
                schema, run = expression_columns(self._spark, snapshot, values)
        else:
            schema, run = joined_columns(self._spark, snapshot, columns)
        return add_columns(self._table, schema, run, settings)

    @changes_table(*COMMIT_OPTIONS)
    @refreshes_cached
    def dropColumns(self, *columns: str, **options: str) -> ColumnResult:  # noqa: N802
        """Drop columns, or fields of structs (``a.b``); writes no data.

        Args:
            columns: Names; names with special characters may be in backquotes.
            options: See the class.

        Raises:
            InvalidInputError: There is no such column, or none would be left.

        Examples:
            >>> table.dropColumns("price").version
            2
            >>> table.toDF().columns
            ['id', 'kind']
        """
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        for column in columns:
            if not isinstance(column, str):
                raise InvalidInputError(
                    f"{column!r} is not a column name",
                    hint="name them one by one: dropColumns('a', 'b')",
                )
        return drop_columns(self._table, columns, settings)

    @changes_table(*COMMIT_OPTIONS)
    @refreshes_cached
    def renameColumn(self, existing: str, new: str, **options: str) -> ColumnResult:  # noqa: N802
        """Rename a column, or a field of a struct; writes no data and keeps indices.

        Args:
            existing: ``a``, or ``a.b`` for a field of a struct; names with special characters may
                be in backquotes.
            new: The new name, without the path.
            options: See the class.

        Raises:
            InvalidInputError: There is no such column, or the name is in use.

        Examples:
            >>> _ = table.renameColumn("price", "amount")
            >>> table.toDF().columns
            ['id', 'kind', 'amount']
        """
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        return rename_column(self._table, existing, unquoted(new), settings)

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    @refreshes_cached
    def changeColumn(  # noqa: N802
        self,
        column: str,
        dataType: str | DataType | None = None,  # noqa: N803
        *,
        nullable: bool | None = None,
        comment: str | None = None,
        **options: str,
    ) -> ColumnResult:
        """Change the type, the nullability or the comment of a column.

        Args:
            column: ``a``, or ``a.b`` for a field of a struct.
            dataType: A type that can hold all values of the current one; the data is rewritten.
            nullable: Whether nulls are allowed.
            comment: Comment in the metadata of the column; '' removes it.
            options: See the class.

        Raises:
            InvalidInputError: Not exactly one of the three is given, or the change is not possible.

        Examples:
            >>> table.changeColumn("kind", comment="what happened").version
            2
        """
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        if sum(given is not None for given in (dataType, nullable, comment)) != 1:
            raise InvalidInputError(
                "changeColumn changes one of dataType, nullable and comment",
                hint="each change is one version; call it for each",
            )
        if comment is not None:
            changes = {column: {"comment": comment or None}}
            return set_metadata(self._table, columns=changes, settings=settings)
        if nullable is not None:
            return change_nullability(
                self._table,
                column,
                nullable=nullable,
                has_nulls=partial(has_nulls, self._spark),
                settings=settings,
            )
        snapshot = self._latest()
        name = find_field(snapshot.schema, column)[-1].name
        assert dataType is not None  # one of the three is given
        wanted = stored_type(self._spark, dataType, name)
        run = converted_column(self._spark, snapshot, name)
        return widen_column(self._table, column, wanted, run, settings)

    @changes_table(*COMMIT_OPTIONS)
    def setMetadata(  # noqa: N802
        self,
        schema: Mapping[str, str | None] | None = None,
        columns: Mapping[str, Mapping[str, str | None]] | None = None,
        **options: str,
    ) -> ColumnResult:
        """Set metadata of the schema, and of columns by their path; None removes a key.

        Examples:
            >>> table.setMetadata(schema={"owner": "web team"}).version
            2
        """
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        return set_metadata(self._table, schema=schema, columns=columns, settings=settings)

    @changes_table(*COMMIT_OPTIONS)
    @refreshes_cached
    def setPrimaryKey(self, *columns: str, **options: str) -> ColumnResult:  # noqa: N802
        """Declare the columns whose values name a row; once set, the key cannot be changed.

        The key is not enforced: no write checks for rows with the same key. But merges that match
        by all of its columns never insert a key twice, even if they run concurrently, here or in
        Lance; ``merge`` without a condition matches by it, and ``applyChanges`` without ``keys``.

        Args:
            columns: Columns that are not nullable and not nested, in the order of the key.
            options: See the class.

        Raises:
            InvalidInputError: The table has another key, or a column does not exist, is nested,
                is nullable or is named twice.

        Examples:
            >>> _ = table.changeColumn("id", nullable=False)
            >>> table.setPrimaryKey("id").version
            3
            >>> table.primaryKey()
            ['id']
        """
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        return set_primary_key(self._table, columns, settings)

    def primaryKey(self) -> list[str]:  # noqa: N802
        """Return the columns of the primary key, in its order; none if the table has no key.

        Examples:
            >>> table.primaryKey()
            []
        """
        return list(primary_key(Snapshot.open(self._table, self._version_of(None)).schema))

    @changes_table(*COMMIT_OPTIONS)
    @refreshes_cached
    def clusterBy(  # noqa: N802
        self, *columns: str, order: str = DEFAULT_ORDER, **options: str
    ) -> MetadataResult:
        """Choose the columns that the table is clustered by: ``compact()`` sorts rows by them.

        As with Delta's ``ALTER TABLE … CLUSTER BY``, no row moves now; later compactions of any
        session sort unsorted rows. Without columns, clustering ends.

        Args:
            columns: Names; a field of a struct is ``struct.field``. They may be renamed, but not
                dropped.
            order: ``"hilbert"`` and ``"zorder"`` cluster rows that are similar in all columns;
                ``"linear"`` sorts by the first column, then by the next.
            options: See the class.

        Raises:
            InvalidInputError: There is no such column or order, or a column is named twice.
            UnsupportedFeatureError: Values of a column have no order: lists, structs, JSON, blobs.

        Examples:
            >>> table.clusterBy("kind", "price").version
            2
            >>> table.clusteringColumns()
            ['kind', 'price']
            >>> table.compact().numRows
            3
            >>> _ = table.clusterBy()
        """
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        return set_cluster_by(self._table, columns, order, settings)

    def clusteringColumns(self) -> list[str]:  # noqa: N802
        """Return the columns that the table is clustered by; none if it is not.

        Examples:
            >>> table.clusteringColumns()
            []
        """
        by = ClusterBy.of(Snapshot.open(self._table, self._version_of(None)).manifest.config)
        return [] if by is None else list(by.columns)

    def _latest(self) -> Snapshot:
        return Snapshot.open(self._table)
