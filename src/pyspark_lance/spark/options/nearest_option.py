"""The option ``nearest`` of a read: what to look for, as the JSON that lance-spark takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError

DISTANCE: Final = "_distance"
# What lance-spark calls them, and pylance; case and _ do not matter.
_NAMES: Final = {
    "column": "column",
    "key": "key",
    "q": "key",
    "k": "k",
    "metric": "metric",
    "metrictype": "metric",
    "distancetype": "metric",
    "nprobes": "nprobes",
    "minimumnprobes": "minimum",
    "maximumnprobes": "nprobes",
    "refinefactor": "refine_factor",
    "useindex": "use_index",
    "ef": "ef",  # of graphs, which are not followed here
}


@dataclass(frozen=True, slots=True)
class NearestOption:
    """What to look for.

    Attributes:
        column: The column of vectors; None for the only one.
        metric: What is near; None for that of the index, or ``l2``.
        nprobes: Partitions of an index to look at; None for as many as it takes.
        refine_factor: So many times ``k`` rows of an index are compared by their vectors.
        use_index: Whether an index is used.
    """

    key: tuple[float, ...]
    column: str | None = None
    k: int = 10
    metric: str | None = None
    nprobes: int | None = None
    refine_factor: int | None = None
    use_index: bool = True

    @classmethod
    def parse(cls, text: str) -> NearestOption:
        """Reads the option."""
        given = _named(_object(text))
        minimum = given.pop("minimum", None)
        given.pop("ef", None)
        if given.get("nprobes") is None and minimum not in (None, 1):
            given["nprobes"] = minimum
        key = given.pop("key", None)
        if not isinstance(key, list) or not all(map(_is_number, key)):
            raise _wrong("has no vector: key is a list of numbers")
        if not isinstance(given.get("use_index", True), bool):
            raise _wrong("has a use_index that is neither true nor false")
        for name in ("column", "metric"):
            if not isinstance(given.get(name, ""), str):
                raise _wrong(f"has a {name} that is no text")
        return cls(tuple(map(float, key)), **given)


def _object(text: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise _wrong("is no JSON object")
    return given


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values that are given, by our names."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        own = _NAMES.get(name.replace("_", "").lower())
        if own is None:
            raise _wrong(f"has {name!r}, which it does not know")
        if value is not None:
            found[own] = value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"the option nearest {what}",
        hint='as in {"column": "vector", "key": [0.5, 1.5], "k": 10, "metric": "l2", '
        '"nprobes": 20, "refine_factor": 4, "use_index": true}',
    )
