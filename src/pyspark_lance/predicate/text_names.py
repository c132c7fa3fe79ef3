"""Names in a SQL text, and recognition of texts that are a single name or an equation of two.

For texts over several tables, and in Spark's full SQL, of which only a part is parsed. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark_lance.predicate.name_parts import NameParts
from pyspark_lance.predicate.tokens import Token, identifier, tokenize_all

_CONSTANTS = ("TRUE", "FALSE", "NULL")
# Keywords followed by a name that is not an alias.
_BEFORE_OPERANDS = {
    "AND", "AS", "BETWEEN", "DISTINCT", "DIV", "ELSE", "ESCAPE", "FROM", "ILIKE", "IN", "IS",
    "LIKE", "NOT", "OR", "REGEXP", "RLIKE", "THEN", "WHEN",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MentionedNames:
    """Names in lower case, perhaps some that only look like names.

    ``qualifiers``: those before a dot; ``may_be_any``: the text may refer to other names, too.
    """

    qualifiers: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    may_be_any: bool = False

    def __or__(self, other: MentionedNames) -> MentionedNames:
        return MentionedNames(
            self.qualifiers | other.qualifiers,
            self.ends | other.ends,
            self.may_be_any or other.may_be_any,
        )

    @classmethod
    def of(cls, parts: NameParts) -> MentionedNames:
        """Return the names in one reference."""
        lower = [part.lower() for part in parts]
        return cls(frozenset(lower[:-1]), frozenset(lower[-1:]))


def find_names(text: str) -> MentionedNames:
    """Return the names in ``text``."""
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
    return MentionedNames(frozenset(qualifiers), frozenset(ends), hides)


def _hides_names(token: Token, before: str) -> bool:
    """Return True for a star argument, an open quote or comment, or a name with a digit first."""
    if token.text == "*":
        return before in ("(", ",", ".")
    return token.kind == "bad" and (token.text[0] in "'\"`/" or token.text.isdigit())


def _name(token: Token) -> str | None:
    if token.kind in ("word", "quoted"):
        return identifier(token)
    if token.kind == "string" and token.text[0] == '"':
        return token.text[1:-1].replace('""', '"')  # its meaning depends on the session
    return None


def trailing_name(text: str) -> str | None:
    """Return the name at the end of ``text`` if it may be an alias without ``AS``, else None.

    After an operand a name is an alias, unless it belongs to it, as ``DAY`` to ``INTERVAL 1 DAY``.
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
    """Return the parts of ``text`` if it is a name, else None."""
    tokens = tokenize_all(text)
    return _reference(tokens[:-1])


def equation(text: str) -> tuple[NameParts, NameParts] | None:
    """Return the two names that ``text`` equates; None if it is something else."""
    tokens = tokenize_all(text)[:-1]
    signs = [index for index, token in enumerate(tokens) if token.text in ("=", "==")]
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
