"""The parts of a name as SQL writes it; apart, so that writers import no more of SQL.  Pure."""

from __future__ import annotations

NameParts = tuple[str, ...]
"""A name and what qualifies it, without backquotes."""


def name_parts(text: str) -> NameParts:
    """The parts of a name with dots; in backquotes dots are dots, and two backquotes are one."""
    parts, current, is_quoted = [], "", False
    place = 0
    while place < len(text):
        char = text[place]
        if is_quoted and text[place : place + 2] == "``":
            current += char
            place += 1
        elif char == "`":
            is_quoted = not is_quoted
        elif char == "." and not is_quoted:
            parts.append(current)
            current = ""
        else:
            current += char
        place += 1
    return (*parts, current)


def unquoted(name: str) -> str:
    """The name that is written in backquotes; any other as it is."""
    is_quoted = len(name) > 2 and name[0] == name[-1] == "`"
    parts = name_parts(name)
    return parts[0] if is_quoted and len(parts) == 1 else name
