"""SQL text without comments; patterns do not match within strings and quoted names.  Pure.

This follows the lexer of Spark: strings with escapes and doubled quotes, raw strings, names in
backticks, dollar-quoted text, nested bracketed comments, and hints, which are not comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PIECE = re.compile(
    r"(?P<line>--(?:\\\n|[^\r\n])*\r?\n?)"
    r"|(?P<bracket>/\*(?!\+))"
    r"|(?P<hint>\*/)"
    r"|(?<!\w)[rR](?:'[^']*'|\"[^\"]*\")"
    r"|'(?:[^'\\]|\\.|'')*'"
    r'|"(?:[^"\\]|\\.|"")*"'
    r"|`(?:[^`]|``)*`"
    r"|\$(?P<tag>[A-Za-z]*)\$(?:.*?\$(?P=tag)\$|.*)",
    re.DOTALL,
)
_BRACKET = re.compile(r"/\*(?!\+)|\*/")
# A private-use character, which no pattern matches.
_HIDDEN = "\ue000"


class SqlText(str):
    """A text, and a masked text of the same length in which quoted parts are hidden."""

    __slots__ = ("masked",)
    masked: str

    @classmethod
    def parse(cls, text: str) -> SqlText:
        """Return ``text`` with a space for each comment."""
        pieces = [
            (" ", " ") if is_comment else (piece, piece[0] + _HIDDEN * (len(piece) - 2) + piece[-1])
            if is_quoted
            else (piece, piece)
            for piece, is_comment, is_quoted in _pieces(text)
        ]  # fmt: skip
        return cls._of("".join(one for one, _ in pieces), "".join(seen for _, seen in pieces))

    @classmethod
    def _of(cls, plain: str, masked: str) -> SqlText:
        text = cls(plain)
        text.masked = masked
        return text

    def part(self, start: int, end: int) -> SqlText:
        """Return the characters from ``start`` to before ``end``, without white space around."""
        seen = self.masked[start:end]
        start += len(seen) - len(seen.lstrip())
        end = start + len(seen.strip())
        return self._of(self[start:end], self.masked[start:end])

    def statement(self) -> SqlText:
        """Return the text without surrounding white space and trailing semicolons."""
        return self.part(0, len(self.masked.rstrip().rstrip("; \t\r\n")))

    def fullmatch(self, pattern: re.Pattern[str]) -> dict[str, SqlText] | None:
        """Return the named groups of a match, empty where they have none; None without a match."""
        return self._groups(pattern.fullmatch(self.masked))

    def search(self, pattern: re.Pattern[str]) -> dict[str, SqlText] | None:
        """Return the named groups of the first match; None without a match."""
        return self._groups(pattern.search(self.masked))

    def _groups(self, match: re.Match[str] | None) -> dict[str, SqlText] | None:
        if match is None:
            return None
        spans = {name: match.span(name) for name in match.re.groupindex}
        return {name: self.part(max(start, 0), max(end, 0)) for name, (start, end) in spans.items()}

    def split_commas(self) -> list[SqlText]:
        """Return the parts between commas."""
        ends = [one.start() for one in re.finditer(",", self.masked)] + [len(self)]
        starts = [0] + [end + 1 for end in ends[:-1]]
        return [self.part(start, end) for start, end in zip(starts, ends, strict=True)]


def _pieces(text: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield each part of a text, whether it is a comment, and whether it is quoted."""
    start = 0
    while (found := _PIECE.search(text, start)) is not None:
        is_bracket = found["bracket"] is not None
        end = _end_of_comment(text, found.end()) if is_bracket else found.end()
        is_comment = is_bracket or found["line"] is not None
        if found.start() > start:
            yield text[start : found.start()], False, False
        yield text[found.start() : end], is_comment, not is_comment and found["hint"] is None
        start = end
    if start < len(text):
        yield text[start:], False, False


def _end_of_comment(text: str, start: int) -> int:
    """Return the end of a bracketed comment, with nested ones, that began before ``start``."""
    depth = 1
    for found in _BRACKET.finditer(text, start):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return len(text)
