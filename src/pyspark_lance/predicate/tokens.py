"""Tokenizer of SQL conditions, and the conjuncts of a condition as texts. Pure, no I/O.

A condition over two tables cannot be parsed against the schema of one. Its conjuncts often can,
once the table name before the columns is removed: ``id = 5`` of ``t.id = 5 AND s.x > 0``.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.tree import Literal
from pyspark_lance.predicate.values import decimal_literal, integer_literal, literal

MAX_NESTING = 50
"""Maximum nesting depth of a condition."""
MAX_PARENTHESES = 2 * MAX_NESTING
"""Maximum number of open parentheses, of any purpose."""


@dataclass(slots=True)
class Token:
    """A token of the text."""

    # ``word``, ``quoted`` (in backquotes), ``string``, ``number``, ``operator``, ``end``, or
    # ``integers``: a whole list of plain integers behind IN, which may be very long.
    kind: str
    text: str  # As written; keywords compare by ``upper``.
    position: int  # Index of its first character.

    @property
    def upper(self) -> str:
        """The text of a word in upper case, and of an operator as it is; empty for other tokens."""
        return self.text.upper() if self.kind in ("word", "operator") else ""


# Possessive quantifiers (``*+``) avoid backtracking, so a long literal takes no extra memory.
# A group that may fail after its first character is not repeated possessively: Python before
# 3.11.5 continues where it failed.
# An unterminated quote or comment extends to the end, so that it is scanned once.
_TOKEN = re.compile(
    r"""(?P<integers>(?<=\bin)\s*\((?!  # nothing else than integers with commas between them
          [\d\s,-]*?(?:,\s*[,)]|\d\s+-?\d|\d-|-(?!\d)|\d{39}))\s*-?\d[\d\s,-]*+\))
      | (?P<space>\s++|--[^\n]*+|/\*(?s:.*?)\*/)
      | (?P<string>[rR]'[^']*+'|[rR]"[^"]*+"
          |'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'|"[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+")
      | (?P<number>(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?(?:[bB][dD]|[lLsSyYfFdD])?(?!\w))
      | (?P<word>[^\W\d]\w*+)
      | (?P<quoted>`[^`]*+(?:``[^`]*+)*+`)
      | (?P<operator><=>|<>|!=|<=|>=|==|\|\||::|/(?!\*)|[-+*%(),.=<>!])
      | (?P<bad>['"`/].*+|.)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def tokenize(text: str) -> list[Token]:
    """Return all tokens of ``text``, ended by one of kind ``end``."""
    tokens, depth = [], 0
    for token in _tokens_of(text):
        if token.kind == "bad":
            raise error_at(text, token.position, _bad_character(token.text[0]))
        if token.kind == "operator" and token.text in "()":
            depth += 1 if token.text == "(" else -1
            if depth > MAX_PARENTHESES:
                raise nesting_error(text, token.position)
        tokens.append(token)
    return tokens


def tokenize_all(text: str) -> list[Token]:
    """Return all tokens as ``tokenize`` does, including those of kind ``bad``.

    Such a token is a character that starts no token, or the rest of the text from an unterminated
    quote or ``/*`` on.
    """
    return list(_tokens_of(text))


def _tokens_of(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        if match.lastgroup is not None and match.lastgroup != "space":
            yield Token(match.lastgroup, match.group(), match.start())
    yield Token("end", "", len(text))


def _bad_character(character: str) -> str:
    if character in "'\"`":
        return f"the {character} is never closed"
    if character == "/":
        return "the /* is never closed"
    if character.isdigit():
        return "this is not a number (write names that start with a digit in `backquotes`)"
    return f"{character!r} is not a valid token"


def nesting_error(text: str, position: int) -> InvalidInputError:
    """Return the error for a condition that is nested too deep."""
    return error_at(
        text,
        position,
        f"the condition is nested more than {MAX_NESTING} levels deep",
        "write long lists with IN, and long chains of AND or OR without parentheses",
    )


def error_at(text: str, position: int, what: str, hint: str = "") -> InvalidInputError:
    """Return an error about ``text`` that shows the position."""
    before, after = text[max(position - 40, 0) : position], text[position : position + 40]
    shown = (
        f"{'…' if position > 40 else ''}{before}▶{after}{'…' if position + 40 < len(text) else ''}"
    )
    return InvalidInputError(
        f"the condition has an error at position {position}: {what}",
        where=shown,
        hint=hint or "leave what is not supported here to Spark: df.where(…)",
    )


def identifier(token: Token) -> str:
    """Return the name in a word or a quoted identifier."""
    if token.kind == "quoted":
        return token.text[1:-1].replace("``", "`")
    return token.text


_INTEGER_TYPES = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
_FLOAT_TYPES = {"F": pa.float32(), "D": pa.float64()}


def number_literal(text: str) -> Literal:
    """Return the constant of a number token, such as ``5``, ``-5L``, ``5.50`` or ``2BD``."""
    word = text.upper()
    if word.endswith("BD"):
        return decimal_literal(decimal.Decimal(word[:-2]))
    kind = _FLOAT_TYPES.get(word[-1])
    if kind is not None:
        value = float(word[:-1])
        if kind == pa.float32() and abs(value) > 3.4028235677973366e38:
            raise InvalidInputError(f"{text} does not fit float")
        return literal(value, kind)
    kind = _INTEGER_TYPES.get(word[-1])
    if kind is not None:
        number = word[:-1]
        if not number.lstrip("-").isdigit():
            raise InvalidInputError(f"{text} is not an integer")
        if not -(2 ** (kind.bit_width - 1)) <= int(number) < 2 ** (kind.bit_width - 1):
            raise InvalidInputError(f"{text} does not fit {kind}")
        return literal(int(number), kind)
    if "E" in word:
        return literal(float(word), pa.float64())
    if "." in word:
        return decimal_literal(decimal.Decimal(word))
    if len(word) > 40:
        raise InvalidInputError(f"the number {text[:40]}… has more than 38 digits")
    return integer_literal(int(word))


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPE = re.compile(
    r"""\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))|(''|"")""", re.DOTALL
)


def string_value(text: str) -> str:
    """Return the text of a string token, with Spark's escapes."""
    if text[0] in "rR":
        return text[2:-1]
    quote, inner = text[0], text[1:-1]
    if "\\" not in inner:
        return inner.replace(quote * 2, quote)
    # Java strings are UTF-16, so two escapes may make one character.
    encoded = _ESCAPE.sub(lambda escape: _unescape(escape, quote), inner).encode(
        "utf-16", "surrogatepass"
    )
    try:
        return encoded.decode("utf-16")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"the string {text} contains half a surrogate pair") from error


def _unescape(escape: re.Match[str], quote: str) -> str:
    four, eight, octal, other, doubled = escape.groups()
    if doubled:
        return quote if doubled[0] == quote else escape.group()
    if four or eight:
        code = int(four or eight, 16)
        if code > 0x10FFFF:
            raise InvalidInputError(f"{escape.group()} is not a character")
        return chr(code)
    if octal:
        return chr(int(octal, 8))
    # \% and \_ stay as they are: LIKE interprets them.
    return escape.group() if other in "%_" else _ESCAPES.get(other, other)


def split_conjuncts(text: str) -> tuple[str, ...]:
    """Return the texts joined by AND at the top of ``text``; the whole text if ambiguous."""
    tokens = _tokens(text)
    whole = (text,)
    starts, ends = [0], []
    depth = cases = open_betweens = 0
    for token in tokens:
        word = token.upper
        depth += (word == "(") - (word == ")")
        cases += (word == "CASE") - (word == "END" and cases > 0)
        if depth or cases:
            continue
        if word == "OR" or (word == "NOT" and token.position == _first(text, starts[-1])):
            return whole
        if word == "BETWEEN":
            open_betweens += 1
        elif word == "AND" and open_betweens:
            open_betweens -= 1
        elif word == "AND":
            ends.append(token.position)
            starts.append(token.position + len(token.text))
    if not tokens or depth or cases or open_betweens:
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
    for index, token in enumerate(tokens):
        if token.kind not in ("word", "quoted") or _follows_dot(tokens, index):
            continue
        name = identifier(token).lower()
        if name == alias.lower() and tokens[index + 1].upper == ".":
            kept.append(text[end : token.position])
            end = tokens[index + 2].position
            has_alias = True
        elif name in known:
            return None
    return "".join([*kept, text[end:]]) if has_alias else None


def _tokens(text: str) -> list[Token]:
    try:
        return tokenize(text)
    except InvalidInputError:
        return []


def _follows_dot(tokens: Sequence[Token], index: int) -> bool:
    return index > 0 and tokens[index - 1].upper == "."


def _first(text: str, start: int) -> int:
    return start + len(text[start:]) - len(text[start:].lstrip())
