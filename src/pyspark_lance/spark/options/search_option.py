"""The option ``search`` of a read: a full-text query and what to find by it, as JSON.

With a vector it is a hybrid search.  ``search`` and ``hybrid_search`` of SQL are such reads, too,
with the names of their arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError

SCORE: Final = "_score"
TEXT_SCORE: Final = "_text_score"
DISTANCE: Final = "_distance"
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
    "vector": "vector",
    "queryvector": "vector",
    "vectorcolumn": "vector_column",
    "metric": "metric",
    "distancetype": "metric",
    "candidates": "candidates",
    "fusion": "fusion",
    "textweight": "text_weight",
    "vectorweight": "vector_weight",
    "hybrid": "hybrid",
}
_OF_HYBRID: Final = (
    "vector_column", "metric", "candidates", "fusion", "text_weight", "vector_weight",
)  # fmt: skip
_EXAMPLE: Final = 'as in {"query": "lazy dog", "column": "body", "k": 10, "operator": "and"}'
_EXAMPLE_OF_SQL: Final = "as in search('/data/t', 'lazy dog', 10, operator => 'and')"
_EXAMPLE_OF_HYBRID: Final = "as in hybrid_search('/data/t', 'lazy dog', array(0.5, 1.5), 10)"


@dataclass(frozen=True, slots=True)
class SearchOption:
    """Query of a search, and its parameters."""

    query: str  # Words, or JSON.
    k: int | None = 10  # How many rows; None for all.
    columns: tuple[str, ...] = ()  # Where; none for all columns with a full-text index.
    operator: str = "or"
    covered_only: bool = False
    vector: tuple[float, ...] | None = None  # None for a search by words only.
    vector_column: str | None = None  # None for the only one.
    metric: str | None = None  # None for that of the index, or ``l2``.
    candidates: int = 100  # Rows of each search that are ranked together.
    fusion: str | tuple[float, float] = "rrf"  # Or the weights of words and vector.

    @classmethod
    def parse(cls, text: str, *, of_sql: bool = False) -> SearchOption:
        """Parse the option; ``of_sql``: it holds the arguments of a function."""
        what, hint = ("search", _EXAMPLE_OF_SQL) if of_sql else ("the option search", _EXAMPLE)
        try:
            given = json.loads(text)
            if of_sql and isinstance(given, Mapping) and given.get("hybrid"):
                what, hint = "hybrid_search", _EXAMPLE_OF_HYBRID
            return cls._parse(given)
        except json.JSONDecodeError:
            raise InvalidInputError(f"{what} is no JSON object", hint=hint) from None
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"{what} {error}", hint=hint) from None

    @classmethod
    def _parse(cls, given: object) -> SearchOption:
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
        values |= _hybrid(values)
        return cls(query, columns=names, **values)


def _hybrid(values: dict[str, Any]) -> dict[str, Any]:
    """Take the values of a hybrid search out of ``values``, and return them checked."""
    is_hybrid = values.pop("hybrid", False)
    vector = values.pop("vector", None)
    given: dict[str, Any] = {name: values.pop(name) for name in _OF_HYBRID if name in values}
    if vector is None and not is_hybrid:
        if given:
            raise ValueError(f"has {next(iter(given))}, but no vector")
        return {}
    if not isinstance(vector, list) or not vector or not all(map(_is_number, vector)):
        raise ValueError("has no vector: it is one list of numbers without null")
    for name in ("vector_column", "metric"):
        if not isinstance(given.get(name, ""), str):
            raise ValueError(f"has a {name} that is not a string")
    candidates = given.get("candidates", 1)
    if not isinstance(candidates, int) or isinstance(candidates, bool) or candidates < 1:
        raise ValueError(f"has {candidates!r} candidates, which is no number of rows")
    if values.get("covered_only"):
        raise ValueError("has covered_only, which is of a search by words only")
    fusion = given.pop("fusion", "rrf")
    weights = [given.pop(name, None) for name in ("text_weight", "vector_weight")]
    if isinstance(fusion, Mapping):
        weights = [fusion.get("text"), fusion.get("vector")]
        fusion = "weights"
    if weights != [None, None]:
        if not all(map(_is_number, weights)):
            raise ValueError("has the weight of words or of the vector, but not of both")
        fusion = tuple(weights)
    return {"vector": tuple(map(float, vector)), "fusion": fusion, **given}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
