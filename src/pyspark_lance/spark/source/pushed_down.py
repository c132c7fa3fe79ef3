"""Pushdown from the JVM plugin: conditions as typed JSON, a limit, a top N and a key of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_lance.predicate.conditions import Predicate


@dataclass(frozen=True, slots=True)
class PushedDown:
    """The pushdown of one scan, or of all scans of a DML statement."""

    filter: str | None = None  # A condition as JSON text; None for all rows.
    limit: int | None = None  # None for all rows.
    top: str | None = None  # A top N, as JSON text; None for all rows.
    key_columns: tuple[str, ...] = ()  # Each task has one value of these; empty for any.
    key_tasks: str | None = None  # The digest of the tasks whose keys Spark knows, if any.

    def predicate(self, schema: pa.Schema) -> Predicate | None:
        """Parse the condition on columns of ``schema``."""
        if self.filter is None:
            return None
        from pyspark_lance.predicate.json import predicate_from_json

        return predicate_from_json(self.filter, schema)


NOTHING_PUSHED = PushedDown()
