"""The builder of a compaction, with the names of Delta Lake."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_lance.spark.api.public_methods import checks_calls
from pyspark_lance.spark.api.unsupported_attributes import UnsupportedAttributes
from pyspark_lance.table.compaction.compact import CompactionResult


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
