"""Text queries, as dataclasses, and as the JSON that Lance writes them in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.typed_values import check_enum

_EXAMPLE: Final = 'as in {"match": {"column": "body", "terms": "lazy dog", "operator": "and"}}'


class Operator(StrEnum):
    """Combination of the words of a query: any or all."""

    OR = "or"  # One of them.
    AND = "and"  # All of them.

    @classmethod
    def parse(cls, text: object) -> Operator:
        """Parse ``or`` or ``and``, case-insensitively."""
        if isinstance(text, str) and text.lower() in list(cls):
            return cls(text.lower())
        raise InvalidInputError(f"the operator {text!r} of a query", hint="choose 'or' or 'and'")


@dataclass(frozen=True, slots=True)
class Match:
    """Rows with words of a text.

    Attributes:
        terms: The words.
        column: Where to look for them; None for all columns with a full-text index.
        operator: ``or`` or ``and``.
        fuzziness: How many characters of each word may differ; None for 0 to 2 by its length.
        prefix_length: How many characters at the beginning may not.
        max_expansions: How many words of the index are looked for at most.
        boost: Factor of scores.
    """

    terms: str
    column: str | None = None
    operator: Operator = Operator.OR
    fuzziness: int | None = 0
    prefix_length: int = 0
    max_expansions: int = 50
    boost: float = 1.0

    def __post_init__(self) -> None:
        """Check types and bounds."""
        check_enum(self.operator, Operator)
        _check_text(self.terms, self.column)
        if self.fuzziness is not None:
            _check_count("fuzziness", self.fuzziness, 0)
        _check_count("prefix_length", self.prefix_length, 0)
        _check_count("max_expansions", self.max_expansions, 1)
        _check_number("boost", self.boost)


@dataclass(frozen=True, slots=True)
class Phrase:
    """Rows with consecutive words.

    Attributes:
        terms: The words.
        column: Where to look for them; None for all columns with a full-text index.
        slop: How many other words may be between two of them.
    """

    terms: str
    column: str | None = None
    slop: int = 0

    def __post_init__(self) -> None:
        """Check types and bounds."""
        _check_text(self.terms, self.column)
        _check_count("slop", self.slop, 0)


@dataclass(frozen=True, slots=True)
class MultiMatch:
    """Rows that one of several queries finds, each with the highest of its scores."""

    queries: tuple[Match | Phrase, ...]

    def __post_init__(self) -> None:
        """Check that there is at least one query."""
        if not self.queries:
            raise InvalidInputError("a multi_match query of no queries", hint=_EXAMPLE)


@dataclass(frozen=True, slots=True)
class Boost:
    """Rows that ``positive`` finds, with lower scores where ``negative`` finds them, too.

    Attributes:
        positive: Which rows.
        negative: Which of them to lower.
        negative_boost: How much of the score of ``negative`` is subtracted.
    """

    positive: TextQuery
    negative: TextQuery
    negative_boost: float = 0.5

    def __post_init__(self) -> None:
        """Check types."""
        _check_queries((self.positive, self.negative))
        _check_number("negative_boost", self.negative_boost)


@dataclass(frozen=True, slots=True)
class Boolean:
    """Rows that all of ``must`` find, none of ``must_not``; scores of ``should`` are added.

    Without ``must`` it is rows that one of ``should`` finds.
    """

    must: tuple[TextQuery, ...] = ()
    should: tuple[TextQuery, ...] = ()
    must_not: tuple[TextQuery, ...] = ()

    def __post_init__(self) -> None:
        """Check types, and that ``must`` or ``should`` has a query."""
        for name in ("must", "should", "must_not"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _check_queries((*self.must, *self.should, *self.must_not))
        if not self.must and not self.should:
            raise InvalidInputError(
                "a boolean query without must and should", hint="must_not only removes rows"
            )


TextQuery = Match | Phrase | MultiMatch | Boost | Boolean


def parse_query(
    given: object, columns: Sequence[str] = (), operator: object = Operator.OR
) -> TextQuery:
    """A query from words, from Lance's JSON, or as it is.

    Words in double quotes are a phrase. ``columns``: where to look for words, and where a query
    names no column; none for all columns with a full-text index. ``operator``: for words.

    Raises:
        InvalidInputError: It cannot be read.
    """
    chosen = Operator.parse(operator)
    if isinstance(given, str) and not given.lstrip().startswith("{"):
        found: TextQuery = _of_words(given, chosen)
    elif isinstance(given, str):
        found = _parse_query(_object(given))
    elif isinstance(given, Mapping):
        found = _parse_query(given)
    elif isinstance(given, TextQuery):
        found = given
    else:
        raise InvalidInputError(
            f"a query of type {type(given).__name__}", hint=f"give words, or JSON {_EXAMPLE}"
        )
    return with_columns(found, columns) if columns else found


def with_columns(query: TextQuery, columns: Sequence[str]) -> TextQuery:
    """The query with these columns where it names none."""

    def leaf(one: Match | Phrase) -> TextQuery:
        if one.column is not None:
            return one
        named = tuple(replace(one, column=column) for column in columns)
        return named[0] if len(named) == 1 else MultiMatch(named)

    return transform_query(query, leaf)


def transform_query(query: TextQuery, leaf: Callable[[Match | Phrase], TextQuery]) -> TextQuery:
    """The query with each match and phrase replaced; those of a multi-match stay together."""
    if isinstance(query, Match | Phrase):
        return leaf(query)
    if isinstance(query, MultiMatch):
        parts: list[Match | Phrase] = []
        for one in query.queries:
            found = leaf(one)
            parts += found.queries if isinstance(found, MultiMatch) else [found]  # type: ignore[list-item]
        return MultiMatch(tuple(parts))
    if isinstance(query, Boost):
        positive, negative = (
            transform_query(query.positive, leaf),
            transform_query(query.negative, leaf),
        )
        return Boost(positive, negative, query.negative_boost)
    return Boolean(
        tuple(transform_query(one, leaf) for one in query.must),
        tuple(transform_query(one, leaf) for one in query.should),
        tuple(transform_query(one, leaf) for one in query.must_not),
    )


def leaves_of(query: TextQuery) -> list[Match | Phrase]:
    """The matches and phrases of a query, in its order."""
    found: list[Match | Phrase] = []

    def leaf(one: Match | Phrase) -> TextQuery:
        found.append(one)
        return one

    transform_query(query, leaf)
    return found


def _of_words(text: str, operator: Operator) -> Match | Phrase:
    words = text.strip()
    if len(words) > 2 and words.startswith('"') and words.endswith('"'):
        return Phrase(words[1:-1])
    return Match(text, operator=operator)


def _object(text: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"a query that is no JSON: {error}", hint=_EXAMPLE) from None
    if not isinstance(given, dict):
        raise InvalidInputError("a query that is no JSON object", hint=_EXAMPLE)
    return given


def _parse_query(given: Any) -> TextQuery:
    if not isinstance(given, Mapping) or len(given) != 1:
        raise InvalidInputError("a query has one kind", hint=_EXAMPLE)
    ((kind, content),) = given.items()
    if kind not in _KINDS or not isinstance(content, Mapping):
        raise InvalidInputError(
            f"no query of kind {kind!r}", hint=f"known: {', '.join(_KINDS)}; {_EXAMPLE}"
        )
    read, names = _KINDS[kind]
    for name in content:
        if name not in names:
            raise InvalidInputError(
                f"a {kind} query has no {name!r}", hint=f"known: {', '.join(names)}"
            )
    return read(content)


def _match(given: Mapping[str, Any]) -> Match:
    values = dict(given)
    if values.get("fuzziness") == "auto":
        values["fuzziness"] = None
    values["operator"] = Operator.parse(values.get("operator", Operator.OR))
    return Match(values.pop("terms", None), **values)


def _phrase(given: Mapping[str, Any]) -> Phrase:
    values = dict(given)
    return Phrase(values.pop("terms", None), **values)


def _multi_match(given: Mapping[str, Any]) -> MultiMatch:
    return MultiMatch(tuple(map(_match, _list(given, "match_queries"))))


def _boost(given: Mapping[str, Any]) -> Boost:
    amount = given.get("negative_boost")
    found = Boost(_parse_query(given.get("positive")), _parse_query(given.get("negative")))
    return found if amount is None else replace(found, negative_boost=amount)


def _boolean(given: Mapping[str, Any]) -> Boolean:
    parts = {name: tuple(map(_parse_query, _list(given, name))) for name in given}
    return Boolean(**parts)


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    found = given.get(name)
    if not isinstance(found, list):
        raise InvalidInputError(f"{name} of a query is no list", hint=_EXAMPLE)
    return found


_MATCH_NAMES: Final = (
    "column", "terms", "operator", "fuzziness", "prefix_length", "max_expansions", "boost"
)  # fmt: skip
_KINDS: Final[dict[str, tuple[Callable[[Mapping[str, Any]], TextQuery], tuple[str, ...]]]] = {
    "match": (_match, _MATCH_NAMES),
    "phrase": (_phrase, ("column", "terms", "slop")),
    "multi_match": (_multi_match, ("match_queries",)),
    "boost": (_boost, ("positive", "negative", "negative_boost")),
    "boolean": (_boolean, ("must", "should", "must_not")),
}


def _check_text(terms: object, column: object) -> None:
    if not isinstance(terms, str):
        raise InvalidInputError("a query has no words", hint=_EXAMPLE)
    try:
        terms.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"the words of a query are not Unicode at position {error.start}",
            hint="a half of a surrogate pair is no character",
        ) from None
    if column is not None and not isinstance(column, str):
        raise InvalidInputError(f"the column of a query is a name, not {column!r}")


def _check_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(f"{name} must be a number, at least {least}, not {value!r}")


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInputError(f"{name} must be a number, not {value!r}")


def _check_queries(given: Sequence[object]) -> None:
    for one in given:
        if not isinstance(one, TextQuery):
            raise InvalidInputError(f"a part of a query is {type(one).__name__}", hint=_EXAMPLE)
