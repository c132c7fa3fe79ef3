"""The option ``search`` of a read: a full-text query and what to find by it, as JSON.

``search`` of SQL is such a read, too, with the names of its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError

SCORE: Final = "_score"
_NAMES: Final = {
    "query": "query",
    "k": "k",
    "limit": "k",
    "numresults": "k",
    "column": "columns",
    "textcolumn": "columns",
    "operator": "operator",
    "coveredonly": "covered_only",
    "fastsearch": "covered_only",
    "prefilter": "prefilter",
}
_EXAMPLE: Final = 'as in {"query": "lazy dog", "column": "body", "k": 10, "operator": "and"}'
_EXAMPLE_OF_SQL: Final = "as in search('/data/t', 'lazy dog', 10, operator => 'and')"


@dataclass(frozen=True, slots=True)
class SearchOption:
    """What to look for."""

    query: str  # Words, or JSON.
    k: int | None = 10  # How many rows; None for all.
    columns: tuple[str, ...] = ()  # Where; none for all columns with a full-text index.
    operator: str = "or"
    covered_only: bool = False

    @classmethod
    def parse(cls, text: str, *, of_sql: bool = False) -> SearchOption:
        """Reads the option; ``of_sql``: it holds the arguments of the function."""
        what = "search" if of_sql else "the option search"
        try:
            return cls._parsed(json.loads(text))
        except (TypeError, ValueError) as error:
            hint = _EXAMPLE_OF_SQL if of_sql else _EXAMPLE
            raise InvalidInputError(f"{what} {error}", hint=hint) from None

    @classmethod
    def _parsed(cls, given: object) -> SearchOption:
        if not isinstance(given, Mapping):
            raise ValueError("is no JSON object")
        values: dict[str, Any] = {}
        for name, value in given.items():
            own = _NAMES.get(name.replace("_", "").lower())
            if own is None:
                raise ValueError(f"has {name!r}, which it does not know")
            values[own] = value
        query = values.pop("query", None)
        if isinstance(query, Mapping):
            query = json.dumps(query)
        if not isinstance(query, str):
            raise ValueError("has no query: words, or a query in JSON")
        if not values.pop("prefilter", True):
            raise ValueError("has prefilter = false, but filters count before a search")
        columns = values.pop("columns", ())
        names = (columns,) if isinstance(columns, str) else tuple(columns or ())
        if not all(isinstance(name, str) for name in names):
            raise ValueError("has a column that is not a string")
        return cls(query, columns=names, **values)
