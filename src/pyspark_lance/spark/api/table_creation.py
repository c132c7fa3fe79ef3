"""The methods of ``LanceTable`` that create tables, and check whether one exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self, overload

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_lance.errors import InvalidInputError, TableAlreadyExistsError, TableNotFoundError
from pyspark_lance.spark.api.table_builder import IfExists, LanceTableBuilder, NewTable
from pyspark_lance.spark.jobs.column_jobs import declared_columns
from pyspark_lance.spark.options.hadoop_settings import session_table
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.options.spellings import (
    COMMIT_OPTIONS,
    FILE_OPTIONS,
    check_option_names,
    checks_keywords,
    to_option_strings,
)
from pyspark_lance.spark.options.write_settings import session_options, write_settings
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.write.write_table import create_table

_OPTIONS_OF_CREATE = (
    *COMMIT_OPTIONS,
    *FILE_OPTIONS,
    "enableStableRowIds",
    "fileFormatVersion",
    "clusterBy",
)


@checks_keywords
class TableCreation:
    """Creates tables: directly from a schema, or with a builder, as in Delta."""

    if TYPE_CHECKING:

        def __init__(
            self,
            spark: SparkSession,
            path: str,
            storageOptions: Mapping[str, str] | None = None,  # noqa: N803
        ) -> None: ...

    @overload
    @classmethod
    def create(cls, spark: SparkSession) -> LanceTableBuilder[Self]: ...

    @overload
    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str,
        schema: str | StructType,
        *,
        ifNotExists: bool = ...,  # noqa: N803
        options: Mapping[str, object] | None = ...,
        storageOptions: Mapping[str, str] | None = ...,  # noqa: N803
    ) -> Self: ...

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str | None = None,
        schema: str | StructType | None = None,
        *,
        ifNotExists: bool = False,  # noqa: N803
        options: Mapping[str, object] | None = None,
        storageOptions: Mapping[str, str] | None = None,  # noqa: N803
    ) -> Self | LanceTableBuilder[Self]:
        """Create an empty table; with only a session, return a builder, as in Delta.

        Args:
            spark: The session.
            path: Root of the table; without path and schema, a builder is returned.
            schema: ``"id bigint not null, name string"`` or a StructType; ``NOT NULL`` is
                kept.
            ifNotExists: Keeps an existing table, whatever its schema.
            options: As for ``df.write``: ``enableStableRowIds``, ``fileFormatVersion``,
                ``<column>.fixed_size_list``, ``userMetadata``, …; options that do not apply to
                a new table are refused.
            storageOptions: As for ``forPath``.

        Raises:
            TableAlreadyExistsError: The table exists, and ``ifNotExists`` is false.
            InvalidInputError: An option does not apply here.

        Examples:
            >>> new = LanceTable.create(spark, f"{folder}/new", "id bigint NOT NULL, name string")
            >>> new.toDF().columns
            ['id', 'name']
        """
        if path is None and schema is None:
            return LanceTableBuilder(NewTable(spark, IfExists.FAIL), cls)
        if path is None or schema is None:
            raise InvalidInputError(
                f"create needs a {'path' if path is None else 'schema'}", path or ""
            )
        given = to_option_strings(options or {})
        plain = [name for name in given if "." not in name]
        check_option_names("create", plain, options=_OPTIONS_OF_CREATE, where=path)
        write = WriteOptions.parse({**given, **session_options(spark), "path": path})
        storage = {**write.table.storage, **to_option_strings(storageOptions or {})}
        if not (ifNotExists and cls.isLanceTable(spark, path, storage)):
            columns = declared_columns(spark, schema, write.column_types)
            try:
                table = session_table(spark, path, storage)
                create_table(table, columns, write_settings(write, overwrite=False))
            except TableAlreadyExistsError:
                if not ifNotExists:
                    raise
        return cls(spark, path, storage)

    @classmethod
    def isLanceTable(  # noqa: N802
        cls,
        spark: SparkSession,
        path: str,
        storageOptions: Mapping[str, str] | None = None,  # noqa: N803
    ) -> bool:
        """Return whether there is a Lance table at ``path``.

        Args:
            spark: The session.
            path: Root of the table, or of a branch.
            storageOptions: As for ``forPath``.

        Examples:
            >>> LanceTable.isLanceTable(spark, path)
            True
        """
        try:
            Snapshot.open(session_table(spark, path, storageOptions))
        except TableNotFoundError:
            return False
        return True

    @classmethod
    def createIfNotExists(cls, spark: SparkSession) -> LanceTableBuilder[Self]:  # noqa: N802
        """Return a builder that keeps an existing table, as in Delta.

        Args:
            spark: The session.

        Examples:
            >>> builder = LanceTable.createIfNotExists(spark).location(f"{folder}/built")
            >>> builder.addColumn("id", "bigint").execute().toDF().columns
            ['id']
        """
        return LanceTableBuilder(NewTable(spark, IfExists.KEEP), cls)

    @classmethod
    def createOrReplace(cls, spark: SparkSession) -> LanceTableBuilder[Self]:  # noqa: N802
        """Return a builder that replaces an existing table with one new version, as in Delta.

        Args:
            spark: The session.

        Examples:
            >>> builder = LanceTable.createOrReplace(spark).location(path)
            >>> builder.addColumn("id", "bigint").execute().toDF().columns
            ['id']
            >>> spark.read.format("lance").option("version", 1).load(path).count()
            3
        """
        return LanceTableBuilder(NewTable(spark, IfExists.REPLACE), cls)

    @classmethod
    def replace(cls, spark: SparkSession) -> LanceTableBuilder[Self]:
        """Return a builder like ``createOrReplace``, but the table must exist.

        Args:
            spark: The session.

        Examples:
            >>> builder = LanceTable.replace(spark).location(path)
            >>> builder.addColumn("id", "bigint").execute().toDF().columns
            ['id']
        """
        return LanceTableBuilder(NewTable(spark, IfExists.NEEDED), cls)
