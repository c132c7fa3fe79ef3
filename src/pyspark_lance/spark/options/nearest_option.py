"""The option ``nearest`` of a read: a vector search, in the JSON format of lance-spark.

The SQL function ``vector_search`` uses it too, with the names of its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError

DISTANCE: Final = "_distance"
QUERY_INDEX: Final = "query_index"
"""The number of the query vector, if there are several."""
# Names in lance-spark and pylance; case and _ are ignored.
_NAMES: Final = {
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
_EXAMPLE: Final = (
    'as in {"column": "vector", "key": [0.5, 1.5], "k": 10, "metric": "l2", '
    '"nprobes": 20, "refine_factor": 4, "use_index": true}'
)
_EXAMPLE_OF_SQL: Final = "as in vector_search('/data/t', array(0.5, 1.5), 10, nprobes => 20)"


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
            hint = error.hint or (_EXAMPLE_OF_SQL if of_sql else _EXAMPLE)
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
        own = _NAMES.get(plain)
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
