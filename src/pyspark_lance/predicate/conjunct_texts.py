"""Split a SQL condition into the texts of its conjuncts, and select those on one table.

A condition over two tables cannot be parsed against the schema of one.  Its conjuncts often can,
once the table name before the columns is removed.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.tokens import Token, identifier, tokenize


def split_conjuncts(text: str) -> tuple[str, ...]:
    """Return the texts joined by AND at the top of ``text``; the whole text if ambiguous."""
    tokens = _tokens(text)
    whole = (text,)
    starts, ends = [0], []
    depth = cases = betweens = 0
    for token in tokens:
        word = token.upper
        depth += (word == "(") - (word == ")")
        cases += (word == "CASE") - (word == "END" and cases > 0)
        if depth or cases:
            continue
        if word == "OR" or (word == "NOT" and token.position == _first(text, starts[-1])):
            return whole
        if word == "BETWEEN":
            betweens += 1
        elif word == "AND" and betweens:
            betweens -= 1
        elif word == "AND":
            ends.append(token.position)
            starts.append(token.position + len(token.text))
    if not tokens or depth or cases or betweens:
        return whole
    pairs = zip(starts, [*ends, len(text)], strict=True)
    return tuple(text[start:end].strip() for start, end in pairs)


def on_one_table(text: str, alias: str, names: Collection[str]) -> str | None:
    """Return ``text`` without the table name before its columns.

    Returns None if a column may belong to another table: it has one of ``names`` and no table name.
    """
    known = {name.lower() for name in names}
    tokens = _tokens(text)
    kept, end, has_alias = [], 0, False
    for place, token in enumerate(tokens):
        if token.kind not in ("word", "quoted") or _follows_dot(tokens, place):
            continue
        name = identifier(token).lower()
        if name == alias.lower() and tokens[place + 1].upper == ".":
            kept.append(text[end : token.position])
            end = tokens[place + 2].position
            has_alias = True
        elif name in known:
            return None
    return "".join([*kept, text[end:]]) if has_alias else None


def _tokens(text: str) -> list[Token]:
    try:
        return tokenize(text)
    except InvalidInputError:
        return []


def _follows_dot(tokens: Sequence[Token], place: int) -> bool:
    return place > 0 and tokens[place - 1].upper == "."


def _first(text: str, start: int) -> int:
    return start + len(text[start:]) - len(text[start:].lstrip())
