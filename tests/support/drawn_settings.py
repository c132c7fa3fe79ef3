"""Settings of sessions that must not change what a query returns, drawn at random; shrinking"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

# The first value of each is Spark's own.  Tables of tests are so small that their rows are read
# where a scan is planned; with 0 bytes the rows come from tasks, which are pickled.
CHOICES = {
    "spark.sql.lance.smallScanBytes": ["512k", "0"],
    "spark.sql.session.timeZone": ["UTC", "America/Los_Angeles", "Asia/Kathmandu"],
    "spark.sql.ansi.enabled": ["true", "false"],
    "spark.sql.caseSensitive": ["false", "true"],
    "spark.sql.adaptive.enabled": ["true", "false"],
    "spark.sql.sources.v2.bucketing.enabled": ["true", "false"],
    "spark.sql.codegen.wholeStage": ["true", "false"],
}


def drawn(rng: random.Random) -> dict[str, str]:
    """A value for each setting."""
    return {key: rng.choice(values) for key, values in CHOICES.items()}


def simpler_settings(given: dict[str, str]) -> list[dict[str, str]]:
    """The settings with one of them as Spark has it."""
    return [given | {key: values[0]} for key, values in CHOICES.items() if given[key] != values[0]]


# A condition is a text, or a tuple of ``AND``, ``OR``, ``NOT`` or ``IS NULL`` and its terms.
Condition = str | tuple[Any, ...]


def sql_of(condition: Condition) -> str:
    """The text of a condition."""
    if isinstance(condition, str):
        return condition
    word, *terms = condition
    texts = list(map(sql_of, terms))
    if word == "IS NULL":
        return f"({texts[0]}) IS NULL"
    return f"NOT ({texts[0]})" if word == "NOT" else f"({f' {word} '.join(texts)})"


def simpler_conditions(condition: Condition) -> list[Condition]:
    """Conditions with one part less, the smallest first."""
    if isinstance(condition, str):
        return []
    word, *terms = condition
    found: list[Condition] = [*terms]
    if len(terms) > 2:
        found += [(word, *terms[:n], *terms[n + 1 :]) for n in range(len(terms))]
    for place, term in enumerate(terms):
        found += [
            (word, *terms[:place], one, *terms[place + 1 :]) for one in simpler_conditions(term)
        ]
    return found


def smallest(
    case: Any, simpler: Callable[[Any], Sequence[Any]], fails: Callable[[Any], bool]
) -> Any:
    """A case that fails and of which no simpler one does."""
    while True:
        smaller = next((one for one in simpler(case) if fails(one)), None)
        if smaller is None:
            return case
        case = smaller
