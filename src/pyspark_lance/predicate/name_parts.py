"""Parts of a SQL name; a separate module, so that writers import no other SQL code.  Pure."""

from __future__ import annotations

NameParts = tuple[str, ...]
"""A name with its qualifiers, without backquotes."""


def name_parts(text: str) -> NameParts:
    """Split a name at its dots; dots in backquotes do not count, and two backquotes are one."""
    parts, current, is_quoted = [], "", False
    index = 0
    while index < len(text):
        char = text[index]
        if is_quoted and text[index : index + 2] == "``":
            current += char
            index += 1
        elif char == "`":
            is_quoted = not is_quoted
        elif char == "." and not is_quoted:
            parts.append(current)
            current = ""
        else:
            current += char
        index += 1
    return (*parts, current)


def unquote(name: str) -> str:
    """Return the name without enclosing backquotes."""
    is_quoted = len(name) > 2 and name[0] == name[-1] == "`"
    parts = name_parts(name)
    return parts[0] if is_quoted and len(parts) == 1 else name
