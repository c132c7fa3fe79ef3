"""The options ``nearest`` and ``search`` of a read: vector and full-text searches, as JSON.

``nearest`` has the JSON format of lance-spark. ``search`` with a vector is a hybrid search, with
``near_duplicates`` one for texts that are nearly equal. The SQL functions ``vector_search``,
``search``, ``hybrid_search`` and ``near_duplicates`` use the same parsers, with the names of their
arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import LONG_NAME

DISTANCE: Final = "_distance"
QUERY_INDEX: Final = "query_index"
"""The number of the query vector, if there are several."""
# Names in lance-spark and pylance; case and _ are ignored.
_NEAREST_NAMES: Final = {
    "column": "column",
    "vectorcolumn": "column",
    "key": "key",
    "q": "key",
    "queryvector": "key",
    "k": "k",
    "limit": "k",
    "numresults": "k",
    "metric": "metric",
    "metrictype": "metric",
    "distancetype": "metric",
    "nprobes": "nprobes",
    "minimumnprobes": "minimum",
    "maximumnprobes": "nprobes",
    "refinefactor": "refine_factor",
    "useindex": "use_index",
    "bypassvectorindex": "bypass",
    "prefilter": "prefilter",
    "ef": "ef",  # for HNSW graphs, which the search does not use
}
# Options of other libraries, and what to use instead.
_ALTERNATIVES: Final = {
    "offset": "OFFSET of SQL, or offset of a DataFrame, skips rows",
    "lowerbound": "WHERE _distance >= … leaves rows out",
    "upperbound": "WHERE _distance < … leaves rows out",
    "distancerange": "WHERE _distance < … leaves rows out",
    "fastsearch": "refreshVectorIndices makes an index cover all rows",
}
_NEAREST_EXAMPLE: Final = (
    'as in {"column": "vector", "key": [0.5, 1.5], "k": 10, "metric": "l2", '
    '"nprobes": 20, "refine_factor": 4, "use_index": true}'
)
_SQL_NEAREST_EXAMPLE: Final = "as in vector_search('/data/t', array(0.5, 1.5), 10, nprobes => 20)"


@dataclass(frozen=True, slots=True)
class NearestOption:
    """A vector search."""

    key: tuple[float, ...] | tuple[tuple[float, ...], ...]  # The vector, or several.
    is_one: bool = True  # Whether there is one vector.
    column: str | None = None  # The column of vectors; None for the only one.
    k: int = 10
    metric: str | None = None  # None for that of the index, or ``l2``.
    nprobes: int | None = None  # Partitions of an index to search; None for as many as needed.
    # Compare this many times ``k`` rows of an index by their vectors.
    refine_factor: int | None = None
    use_index: bool = True  # Whether an index is used.

    @classmethod
    def parse(cls, text: str, *, of_sql: bool = False) -> NearestOption:
        """Read the option; ``of_sql``: it holds the arguments of ``vector_search``."""
        try:
            return cls._parse(text, of_sql=of_sql)
        except _WrongOptionError as error:
            what = "vector_search" if of_sql else "the option nearest"
            hint = error.hint or (_SQL_NEAREST_EXAMPLE if of_sql else _NEAREST_EXAMPLE)
            raise InvalidInputError(f"{what} {error.what}", hint=hint) from None

    @classmethod
    def _parse(cls, text: str, *, of_sql: bool) -> NearestOption:
        found = _resolve_names(_object(text))
        given = {name: value for name, (_, value) in found.items()}
        spelled = {name: spelling for name, (spelling, _) in found.items()}
        minimum = given.pop("minimum", None)
        given.pop("ef", None)
        if given.get("nprobes") is None and minimum not in (None, 1):
            given["nprobes"] = minimum
        for name in ("use_index", "bypass", "prefilter"):
            if not isinstance(given.get(name, True), bool):
                raise _WrongOptionError(f"has a {spelled[name]} that is neither true nor false")
        for name in ("column", "metric"):
            if not isinstance(given.get(name, ""), str):
                raise _WrongOptionError(f"has a {spelled[name]} that is not a string")
        if not given.pop("prefilter", True):
            raise _WrongOptionError("has prefilter = false, but filters count before a search")
        if given.pop("bypass", False):
            given["use_index"] = False
        key = given.pop("key", None)
        if _is_vector(key):
            return cls(tuple(map(float, key)), **given)
        if not isinstance(key, list) or not key or not all(map(_is_vector, key)):
            name, kind = ("query_vector", "array") if of_sql else ("key", "list")
            raise _WrongOptionError(
                f"has no vector: {spelled.get('key', name)} is one {kind} of numbers without null, "
                f"or one {kind} of such {kind}s"
            )
        return cls(tuple(tuple(map(float, one)) for one in key), is_one=False, **given)


def _object(text: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise _WrongOptionError("is no JSON object")
    return given


def _resolve_names(given: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the values and the names that the user gave them, by our names."""
    found: dict[str, tuple[str, Any]] = {}
    for name, value in given.items():
        plain = name.replace("_", "").lower()
        own = _NEAREST_NAMES.get(plain)
        if own is None:
            raise _WrongOptionError(
                f"has {name!r}, which it does not know", hint=_ALTERNATIVES.get(plain, "")
            )
        if value is not None:
            found[own] = name, value
    return found


def _is_vector(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _WrongOptionError(ValueError):
    """An invalid value; the caller adds whether it is of the option or the SQL function."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what, self.hint = what, hint


SCORE: Final = "_score"
TEXT_SCORE: Final = "_text_score"
_SEARCH_NAMES: Final = {
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
    "nearduplicates": "near_duplicates",
    "maxdistance": "max_distance",
}
_OF_HYBRID: Final = (
    "vector_column", "metric", "candidates", "fusion", "text_weight", "vector_weight",
)  # fmt: skip
_SEARCH_EXAMPLE: Final = 'as in {"query": "lazy dog", "column": "body", "k": 10, "operator": "and"}'
_SQL_SEARCH_EXAMPLE: Final = "as in search('/data/t', 'lazy dog', 10, operator => 'and')"
_NEAR_DUPLICATES_EXAMPLE: Final = (
    "as in near_duplicates('/data/t', 'a quick brown fox', 10, max_distance => 0.3)"
)
_HYBRID_SEARCH_EXAMPLE: Final = "as in hybrid_search('/data/t', 'lazy dog', array(0.5, 1.5), 10)"


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
    near_duplicates: bool = False  # Whether rows have nearly the text ``query``.
    max_distance: float | None = None  # Of near-duplicates; None for any.

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The result columns after those of the table."""
        if self.near_duplicates:
            return (DISTANCE,)
        return (SCORE,) if self.vector is None else (SCORE, TEXT_SCORE, DISTANCE)

    @classmethod
    def parse(cls, text: str, *, of_sql: bool = False) -> SearchOption:
        """Parse the option; ``of_sql``: it holds the arguments of a function."""
        what, hint = (
            ("search", _SQL_SEARCH_EXAMPLE) if of_sql else ("the option search", _SEARCH_EXAMPLE)
        )
        try:
            given = json.loads(text)
            if of_sql and isinstance(given, Mapping) and given.get("hybrid"):
                what, hint = "hybrid_search", _HYBRID_SEARCH_EXAMPLE
            if of_sql and isinstance(given, Mapping) and given.get("near_duplicates"):
                what, hint = "near_duplicates", _NEAR_DUPLICATES_EXAMPLE
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
            own = _SEARCH_NAMES.get(name.replace("_", "").lower())
            if own is None:
                near = get_close_matches(name.lower()[:LONG_NAME], _SEARCH_NAMES, n=1)
                guess = f": did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"has {name!r}, which it does not know{guess}")
            values[own] = value
        if not values.pop("prefilter", True):
            raise ValueError("has prefilter = false, but filters count before a search")
        if values.get("near_duplicates"):
            return cls(**_near_duplicates(values))
        values.pop("near_duplicates", None)
        if "max_distance" in values:
            raise ValueError("has max_distance, which is of near_duplicates only")
        query = values.pop("query", None)
        if isinstance(query, Mapping):
            query = json.dumps(query)
        if not isinstance(query, str):
            raise ValueError("has no query: words, or a query in JSON")
        columns = values.pop("columns", ())
        names = (columns,) if isinstance(columns, str) else tuple(columns or ())
        if not all(isinstance(name, str) for name in names):
            raise ValueError("has a column that is not a string")
        values |= _hybrid(values)
        return cls(query, columns=names, **values)


def _near_duplicates(values: dict[str, Any]) -> dict[str, Any]:
    """Return the checked values of a search for near-duplicates."""
    for name in values:
        if name not in ("near_duplicates", "query", "k", "columns", "max_distance"):
            raise ValueError(f"has {name}, which is not of near_duplicates")
    if not isinstance(values.get("query"), str):
        raise ValueError("has no query: a text")
    columns = values.pop("columns", None)
    names = columns if isinstance(columns, list) else [columns] if columns is not None else []
    if len(names) > 1 or not all(isinstance(name, str) for name in names):
        raise ValueError("has no single column of texts")
    most = values.get("max_distance")
    if most is not None and not _is_number(most):
        raise ValueError(f"has a max_distance {most!r}, which is no number")
    return {**values, "columns": tuple(names)}


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
