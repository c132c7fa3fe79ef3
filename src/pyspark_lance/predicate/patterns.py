"""LIKE and RLIKE patterns of Spark, translated to substring searches or RE2 syntax.

Spark's RLIKE is a Java regular expression.  Constructs with another meaning in RE2, or without an
equivalent, are refused.  Pure functions.
"""

from __future__ import annotations

import re

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError


def like_pieces(pattern: str, escape: str = "\\") -> list[str | None]:
    """Split a LIKE pattern into literal texts, ``None`` for ``%`` and ``""`` for ``_``."""
    pieces: list[str | None] = []
    text: list[str] = []

    def end_text() -> None:
        if text:
            pieces.append("".join(text))
            text.clear()

    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None or following not in ("_", "%", escape):
                raise InvalidInputError(
                    f"the LIKE pattern {pattern!r} has its escape character {escape!r} before "
                    f"{'its end' if following is None else repr(following)}",
                    hint=f"{escape!r} may stand only before '_', '%' or itself; double it",
                )
            text.append(following)
        elif character in "%_":
            end_text()
            pieces.append(None if character == "%" else "")
        else:
            text.append(character)
    end_text()
    return pieces


def like_regex(pieces: list[str | None]) -> str:
    """Return the RE2 pattern that is equivalent to the LIKE pattern."""
    parts = [".*" if piece is None else re2_quote(piece) or "." for piece in pieces]
    return rf"\A(?s:{''.join(parts)})\z"


def re2_quote(text: str) -> str:
    """Return ``text`` as an RE2 pattern that matches only itself."""
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in text)


# Java's line terminators; RE2 only supports \n.
_NOT_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_LINE_END = r"(?:(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z)"
_SPACE = r"\t\n\x{b}\f\r "
_TOKEN = re.compile(
    r"""(?P<escape>\\[dDwWtnrf.\\^$|?*+(){}\[\]/\-"'\#&@!%_:;,<>=~`])
      | (?P<space>\\[sS])
      | (?P<class>\[(?:\^)?(?:\\[dDwWsStnrf.\\^$|?*+(){}\[\]/\-"'\#&@!%_:;,<>=~`]|[^\[\]\\&])+\])
      | (?P<group>\((?:\?:)?)(?!\?)
      | (?P<quantifier>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)(?![*+?{])
      | (?P<other>[.$^|)])
      | (?P<plain>[^\\\[\](){}*+?.^$|])
    """,
    re.VERBOSE | re.DOTALL,
)


def rlike_regex(pattern: str) -> str:
    r"""Return the RE2 pattern that is equivalent to the Java pattern ``pattern``.

    Raises:
        UnsupportedFeatureError: A construct without the same meaning in RE2: look-around,
            back-references, possessive quantifiers, flags, ``\b``, nested classes, ….
    """
    translated, position = [], 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            raise UnsupportedFeatureError(
                f"the regular expression {pattern!r} uses {pattern[position : position + 4]!r} at "
                f"position {position}, which is not supported here",
                hint="use plain classes, groups, alternatives and quantifiers; or filter in Spark",
            )
        translated.append(_translate(token))
        position = token.end()
    result = "".join(translated)
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidInputError(
            f"the regular expression {pattern!r} is invalid: {error}"
        ) from error
    return result


def required_text(pattern: str) -> str:
    """The longest text that all strings contain in which ``pattern`` is found; "" if unknown."""
    runs, run, depth = [""], "", 0
    for token in _TOKEN.finditer(pattern):
        text, kind = token.group(), token.lastgroup
        if kind == "other" and text == "|" and depth == 0:
            return ""
        depth += (kind == "group") - (text == ")")
        if kind == "quantifier" and not depth:
            is_optional = text[0] in "*?" or text.startswith("{0")
            runs.append(run[:-1] if is_optional else run)
            run = ""
        elif depth or kind not in ("plain", "escape") or (kind == "escape" and text[1].isalnum()):
            runs.append(run)
            run = ""
        else:
            run += text[-1]
    return max(*runs, run, key=len)


def _translate(token: re.Match[str]) -> str:
    text = token.group()
    match token.lastgroup:
        case "other":
            return {".": _NOT_LINE_END, "$": _LINE_END, "^": r"\A"}.get(text, text)
        case "space":
            return f"[{_SPACE}]" if text == r"\s" else f"[^{_SPACE}]"
        case "class":
            if r"\S" in text:
                raise UnsupportedFeatureError(
                    rf"the class {text!r} of a regular expression contains \S", hint="spell it out"
                )
            return text.replace(r"\s", _SPACE)
        case "escape":
            return text if text[1].isalnum() else re2_quote(text[1])
        case "plain":
            return re2_quote(text)
        case _:
            return text
