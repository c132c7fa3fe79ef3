"""Create tables: directly from a schema, or with a builder, as in Delta."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from pyspark_lance.errors import (
    InvalidInputError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.spark.api.public_methods import (
    COMMIT_OPTIONS,
    FILE_OPTIONS,
    check_argument_names,
    checks_calls,
)
from pyspark_lance.spark.api.unsupported_attributes import UnsupportedAttributes
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.spark.jobs.column_jobs import declared_columns, parse_schema
from pyspark_lance.spark.options.hadoop_settings import session_table
from pyspark_lance.spark.options.option_table import check_properties, to_option_strings
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.options.write_settings import session_options, write_settings
from pyspark_lance.spark.sessions import refresh_cached
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import plan_write
from pyspark_lance.table.write.write_table import commit_write, create_table

_T = TypeVar("_T")


class IfExists(Enum):
    """The treatment of an existing table."""

    FAIL = "create"
    KEEP = "createIfNotExists"
    REPLACE = "createOrReplace"
    NEEDED = "replace"
    """The table is replaced, and must exist."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """The definition of a table in a builder.

    Attributes:
        spark: The session.
        if_exists: What happens to an existing table.
        path: Root of the table; empty until it is set.
        fields: Its columns.
        properties: Its properties.
        cluster_by: The columns that it is clustered by.
    """

    spark: SparkSession
    if_exists: IfExists
    path: str = ""
    fields: tuple[StructField, ...] = ()
    properties: Mapping[str, str] | None = None
    cluster_by: tuple[str, ...] = ()


@checks_calls
class LanceTableBuilder(UnsupportedAttributes, Generic[_T]):
    """The builder of a table, as in Delta; ``execute()`` creates it, in one version.

    Every method returns a new builder.

    Args:
        new: The table as described so far.
        opened: Creates the object for the table, from the session and the path.

    Examples:
        >>> builder = LanceTable.createIfNotExists(spark).location(f"{folder}/built")
        >>> builder = builder.addColumn("id", "bigint", nullable=False).addColumn("name", "string")
        >>> builder.execute().toDF().columns
        ['id', 'name']
    """

    def __init__(self, new: NewTable, opened: Callable[[SparkSession, str], _T]) -> None:
        self._new = new
        self._opened = opened

    def __repr__(self) -> str:
        return f"LanceTableBuilder({self._new.path!r}, not run: call execute())"

    def location(self, location: str) -> LanceTableBuilder[_T]:
        """Set the path of the table.

        Examples:
            >>> _ = LanceTable.create(spark).location(f"{folder}/built")
        """
        return self._with(path=location)

    def addColumn(  # noqa: N802
        self,
        colName: str,  # noqa: N803
        dataType: str | DataType,  # noqa: N803
        nullable: bool = True,
        generatedAlwaysAs: object = None,  # noqa: N803
        generatedByDefaultAs: object = None,  # noqa: N803
        comment: str | None = None,
    ) -> LanceTableBuilder[_T]:
        """Add a column at the end.

        Args:
            colName: Its name.
            dataType: Its type, as in ``CREATE TABLE`` or as an object.
            nullable: Whether it may be null.
            generatedAlwaysAs: An error: generated columns are not supported.
            generatedByDefaultAs: An error, too.
            comment: Comment of the column.

        Raises:
            UnsupportedFeatureError: A generated column.

        Examples:
            >>> _ = LanceTable.create(spark).addColumn("id", "bigint", comment="the key")
        """
        if generatedAlwaysAs is not None or generatedByDefaultAs is not None:
            raise UnsupportedFeatureError(
                f"the column {colName} cannot be a generated column: Lance has none",
                hint="compute it when rows are written, df.withColumn(…), or afterwards: "
                "LanceTable.addColumns({'name': 'expression'}); _rowid numbers rows",
            )
        kind = dataType
        if isinstance(kind, str):
            kind = parse_schema(self._new.spark, f"{quote_name(colName)} {kind}").fields[0].dataType
        notes = {} if comment is None else {"comment": comment}
        return self._with(
            fields=(*self._new.fields, StructField(colName, kind, nullable, metadata=notes))
        )

    def addColumns(self, cols: StructType | Sequence[StructField]) -> LanceTableBuilder[_T]:  # noqa: N802
        """Add the columns of a schema.

        Examples:
            >>> _ = LanceTable.create(spark).addColumns(table.toDF().schema)
        """
        return self._with(fields=(*self._new.fields, *cols))

    def property(self, key: str, value: str) -> LanceTableBuilder[_T]:
        """Set a property of the table.

        Examples:
            >>> _ = LanceTable.create(spark).property("owner", "web team")
        """
        return self._with(properties={**(self._new.properties or {}), key: value})

    def clusterBy(self, *cols: str) -> LanceTableBuilder[_T]:  # noqa: N802
        """Set the columns that the table is clustered by: ``compact()`` sorts rows by them.

        Examples:
            >>> _ = LanceTable.create(spark).clusterBy("id")
        """
        return self._with(cluster_by=cols)

    def comment(self, comment: str) -> LanceTableBuilder[_T]:
        """Set the property ``comment``, which ``DESCRIBE TABLE EXTENDED`` shows.

        Examples:
            >>> _ = LanceTable.create(spark).comment("what visitors did")
        """
        return self.property("comment", comment)

    def execute(self) -> _T:
        """Create the table.

        Raises:
            TableAlreadyExistsError: The table exists, and the builder is one of ``create``.
            TableNotFoundError: There is no table, and the builder is one of ``replace``.
            InvalidInputError: ``location`` or columns are missing.

        Examples:
            >>> builder = LanceTable.create(spark).location(f"{folder}/built")
            >>> builder.addColumn("id", "bigint").execute().toDF().count()
            0
        """
        for what, given in (("location", self._new.path), ("column", self._new.fields)):
            if not given:
                call = "location(path)" if what == "location" else "addColumn(name, type)"
                raise InvalidInputError(f"a new table needs a {what}", self._new.path, call)
        create_table_from_builder(self._new)
        return self._opened(self._new.spark, self._new.path)

    def _with(self, **known: object) -> LanceTableBuilder[_T]:
        new = replace(self._new, **known)  # type: ignore[arg-type]
        return LanceTableBuilder(new, self._opened)


def create_table_from_builder(new: NewTable) -> None:
    """Create or replace a table as defined by a builder.

    Raises:
        TableAlreadyExistsError: The table exists, and is neither kept nor replaced.
        TableNotFoundError: There is no table to replace.
    """
    table, properties = session_table(new.spark, new.path), dict(new.properties or {})
    existing = Snapshot.open(table) if new.if_exists is IfExists.NEEDED else open_existing(table)
    if existing is not None and new.if_exists is IfExists.KEEP:
        return
    check_properties(properties, [field.name for field in new.fields], new.path)
    columns = declared_columns(new.spark, StructType(list(new.fields)))
    options = {**session_options(new.spark), "path": new.path, "overwriteSchema": "true"}
    write = WriteOptions.parse(options)
    write = replace(write, table_properties=properties, cluster_by=new.cluster_by)
    if existing is None or new.if_exists is IfExists.FAIL:
        with _suppress_existing(new.if_exists is IfExists.KEEP):
            create_table(table, columns, write_settings(write, overwrite=False))
        return
    settings = write_settings(write, overwrite=True)
    commit_write(plan_write(table, columns, settings, existing=existing), ())
    refresh_cached(new.spark, table)


def _suppress_existing(kept: bool) -> AbstractContextManager[None]:
    """Ignore that another writer created the table concurrently, if an existing table is kept."""
    return suppress(TableAlreadyExistsError) if kept else nullcontext()


_OPTIONS_OF_CREATE = (
    *COMMIT_OPTIONS,
    *FILE_OPTIONS,
    "enableStableRowIds",
    "fileFormatVersion",
    "clusterBy",
)


def create_empty_table(
    spark: SparkSession,
    path: str,
    schema: str | StructType,
    *,
    options: Mapping[str, object],
    storage_options: Mapping[str, str],
    if_not_exists: bool,
) -> dict[str, str]:
    """Create a table, and return its storage options; see ``LanceTable.create``."""
    given = to_option_strings(options)
    plain = [name for name in given if "." not in name]
    check_argument_names("create", plain, options=_OPTIONS_OF_CREATE, where=path)
    write = WriteOptions.parse({**given, **session_options(spark), "path": path})
    storage = {**write.table.storage, **to_option_strings(storage_options)}
    table = session_table(spark, path, storage)
    if not (if_not_exists and table_exists(table)):
        columns = declared_columns(spark, schema, write.column_types)
        with _suppress_existing(if_not_exists):
            create_table(table, columns, write_settings(write, overwrite=False))
    return storage


def table_exists(table: Table) -> bool:
    """Return whether there is a Lance table."""
    try:
        Snapshot.open(table)
    except TableNotFoundError:
        return False
    return True
