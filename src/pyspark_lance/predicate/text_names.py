"""Which names a SQL text mentions, and whether it is nothing but a name or an equation of two.

For texts over several tables, and in all of Spark's SQL, of which we parse only a part. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark_lance.predicate.name_parts import NameParts
from pyspark_lance.predicate.tokens import Token, identifier, tokenize_all

_CONSTANTS = ("TRUE", "FALSE", "NULL")
# Words that a name may follow that is no alias.
_BEFORE_OPERANDS = {
    "AND", "AS", "BETWEEN", "DISTINCT", "DIV", "ELSE", "ESCAPE", "FROM", "ILIKE", "IN", "IS",
    "LIKE", "NOT", "OR", "REGEXP", "RLIKE", "THEN", "WHEN",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mentioned:
    """Names in lower case, perhaps some that only look like names.

    ``qualifiers``: those before a dot; ``may_be_any``: other names may be meant, too.
    """

    qualifiers: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    may_be_any: bool = False

    def __or__(self, other: Mentioned) -> Mentioned:
        return Mentioned(
            self.qualifiers | other.qualifiers,
            self.ends | other.ends,
            self.may_be_any or other.may_be_any,
        )

    @classmethod
    def of(cls, parts: NameParts) -> Mentioned:
        """What one reference mentions."""
        lower = [part.lower() for part in parts]
        return cls(frozenset(lower[:-1]), frozenset(lower[-1:]))


def mentioned(text: str) -> Mentioned:
    """The names in ``text``."""
    qualifiers: set[str] = set()
    ends: set[str] = set()
    hides = False
    tokens = tokenize_all(text)
    before = "("
    for token, after in pairwise(tokens):
        hides = hides or _hides_names(token, before)
        name = _name(token)
        if name is not None:
            (qualifiers if after.text == "." else ends).add(name.lower())
        before = token.text
    return Mentioned(frozenset(qualifiers), frozenset(ends), hides)


def _hides_names(token: Token, before: str) -> bool:
    """A star as an argument, an open quote or comment, or a name that starts with a digit."""
    if token.text == "*":
        return before in ("(", ",", ".")
    return token.kind == "bad" and (token.text[0] in "'\"`/" or token.text.isdigit())


def _name(token: Token) -> str | None:
    if token.kind in ("word", "quoted"):
        return identifier(token)
    if token.kind == "string" and token.text[0] == '"':
        return token.text[1:-1].replace('""', '"')  # what it is depends on the session
    return None


def trailing_name(text: str) -> str | None:
    """The name at the end of ``text`` if it may be an alias without ``AS``; None if it is none.

    Behind an operand a name is one, unless it belongs to it, as ``DAY`` to ``INTERVAL 1 DAY``.
    """
    tokens = tokenize_all(text)[-3:-1]
    if len(tokens) < 2 or tokens[1].kind not in ("word", "quoted"):
        return None
    before = tokens[0]
    is_operand = (
        before.upper not in _BEFORE_OPERANDS
        if before.kind == "word"
        else before.kind != "operator" or before.text == ")"
    )
    return tokens[1].text if is_operand else None


def reference(text: str) -> NameParts | None:
    """The parts of the name that ``text`` is; None if it is something else."""
    tokens = tokenize_all(text)
    return _reference(tokens[:-1])


def equation(text: str) -> tuple[NameParts, NameParts] | None:
    """The two names of which ``text`` demands that they be equal; None if it is something else."""
    tokens = tokenize_all(text)[:-1]
    signs = [place for place, token in enumerate(tokens) if token.text in ("=", "==")]
    if len(signs) != 1:
        return None
    left, right = _reference(tokens[: signs[0]]), _reference(tokens[signs[0] + 1 :])
    return None if left is None or right is None else (left, right)


def _reference(tokens: Sequence[Token]) -> NameParts | None:
    names, dots = tokens[::2], tokens[1::2]
    if len(tokens) % 2 == 0 or any(dot.text != "." for dot in dots):
        return None
    if any(token.kind not in ("word", "quoted") for token in names):
        return None
    if len(names) == 1 and names[0].upper in _CONSTANTS:
        return None
    return tuple(identifier(token) for token in names)
