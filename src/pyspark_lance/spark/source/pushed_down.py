"""Pushdown from the JVM plugin, in hidden options whose names start with ``_lance.``.

The plugin pins the version and passes conditions as typed JSON, a limit, a top N and the key to
partition by.  Users never set these options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.table.version.table_identity import PinnedVersion

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

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PushedDown:
        """Read the hidden options."""
        limit = options.get(keys.LIMIT)
        return cls(
            filter=options.get(keys.FILTER),
            limit=None if limit is None else _whole(limit),
            top=options.get(keys.TOP),
            key_columns=tuple(json.loads(options.get(keys.KEY_COLUMNS, "[]"))),
            key_tasks=options.get(keys.KEY_TASKS),
        )

    def predicate(self, schema: pa.Schema) -> Predicate | None:
        """Parse the condition on columns of ``schema``."""
        if self.filter is None:
            return None
        from pyspark_lance.predicate.json import predicate_from_json

        return predicate_from_json(self.filter, schema)


NOTHING_PUSHED = PushedDown()


def pinned_version(options: Mapping[str, str]) -> PinnedVersion | None:
    """Return the version that the plugin pinned; None without the plugin."""
    root, version = options.get(keys.ROOT), options.get(keys.VERSION)
    if root is None or version is None:
        return None
    return PinnedVersion(root, _whole(version), options.get(keys.BASE, ""))


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInputError(f"a hidden option holds {text!r} instead of a number") from error
