"""LanceTable: a table as an object, in the style PySpark users know from Delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from pyspark_lance.errors import InvalidInputError, TableNotFoundError
from pyspark_lance.table.snapshot import Snapshot
from pyspark_lance.table.system_columns import ROW_ID


class LanceTable:
    """One Lance table.

    Args:
        spark: The session (classic or Connect).
        path: Root of the table.
        storage_options: As ``storage.*`` of the data source, without the prefix.
    """

    def __init__(
        self, spark: SparkSession, path: str, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self._spark = spark
        self._path = path
        self._storage = dict(storage_options or {})

    def __repr__(self) -> str:
        return f"LanceTable({self._path!r})"

    @classmethod
    def forPath(cls, spark: SparkSession, path: str, **storage_options: str) -> LanceTable:  # noqa: N802
        """The table at ``path``.

        Raises:
            TableNotFoundError: There is none.
        """
        Snapshot.open(path, storage_options)
        return cls(spark, path, storage_options)

    @classmethod
    def isLanceTable(cls, spark: SparkSession, path: str, **storage_options: str) -> bool:  # noqa: N802
        """Whether there is a Lance table at ``path``."""
        try:
            Snapshot.open(path, storage_options)
        except TableNotFoundError:
            return False
        return True

    def toDF(self) -> DataFrame:  # noqa: N802
        """The latest version as a DataFrame, without lineage columns."""
        return self.scan()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        *,
        metadata_columns: str | Sequence[str] = "none",
        version: int | None = None,
    ) -> DataFrame:
        """Some columns of the rows that match a condition, both applied before rows leave Python.

        Args:
            columns: Names, lineage columns among them; None for all of the table's.
            filter: SQL condition over the table's and the lineage columns.
            metadata_columns: Lineage columns besides: ``all``, ``none`` or names.
            version: Version to read; None for the latest.
        """
        options = {f"storage.{name}": value for name, value in self._storage.items()}
        if columns is not None:
            if not columns:
                raise InvalidInputError("a scan needs at least one column")
            options["columns"] = ",".join(f"`{name}`" for name in columns)
        if filter is not None:
            options["filter"] = filter
        if version is not None:
            options["version"] = str(version)
        options["metadataColumns"] = (
            metadata_columns if isinstance(metadata_columns, str) else ",".join(metadata_columns)
        )
        return self._spark.read.format("lance").options(**options).load(self._path)

    def take(self, rowIds: Sequence[int], columns: Sequence[str] | None = None) -> DataFrame:  # noqa: N803
        """The rows with these row ids; ids that no row has are left out.

        The cost follows the number of ids, not the size of the table.
        """
        ids = sorted({int(row_id) for row_id in rowIds})
        condition = f"{ROW_ID} IN ({', '.join(map(str, ids))})" if ids else "false"
        return self.scan(columns, condition, metadata_columns=ROW_ID)
