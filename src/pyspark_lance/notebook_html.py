"""HTML representations of objects in notebooks: short tables with escaped text.

A representation must neither fail nor block a notebook: after an error, or after ``MAX_SECONDS``,
the notebook shows the plain text of the object.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from html import escape
from typing import Any, Final, TypeVar

MAX_SECONDS: Final = 2.0
_MAX_TEXT: Final = 200
_MAX_ITEMS: Final = 8
_C = TypeVar("_C", bound=type)


def show_in_notebooks(kind: _C) -> _C:
    """Add ``_repr_html_`` to a dataclass: a table of its fields.

    Examples:
        >>> from dataclasses import dataclass
        >>> @show_in_notebooks
        ... @dataclass(frozen=True)
        ... class Counts:
        ...     version: int
        >>> "<td>3</td>" in Counts(3)._repr_html_()
        True
    """

    def _repr_html_(self: Any) -> str:
        facts = {field.name: getattr(self, field.name) for field in fields(kind)}
        return html_or_text(lambda: details_as_html(kind.__name__, facts), repr(self))

    kind._repr_html_ = _repr_html_  # type: ignore[attr-defined]
    return kind


def html_or_text(make: Callable[[], str], text: str, max_seconds: float = MAX_SECONDS) -> str:
    """Return the result of ``make``; ``text`` with the reason if it fails or takes too long."""
    made: list[str] = []
    failed: list[str] = []

    def run() -> None:
        try:
            made.append(make())
        except Exception as error:  # noqa: BLE001 - showing an object never fails
            failed.append(str(error).partition("\n")[0] or type(error).__name__)

    worker = threading.Thread(target=run, name="pyspark-lance-html", daemon=True)
    worker.start()
    worker.join(max_seconds)
    if made:
        return made[0]
    reason = failed[0] if failed else f"the table did not respond within {max_seconds:g} seconds"
    return f"<pre>{escape(without_secrets(text))}</pre><p>{escape(without_secrets(reason))}</p>"


def details_as_html(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of names and values under a title, without those that are None."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td>{_format_value(value)}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    return f"<table><caption><b>{escape(without_secrets(title))}</b></caption>{lines}</table>"


def rows_as_html(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a header."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{_format_value(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def without_secrets(text: str) -> str:
    """Remove users, passwords, keys and signatures from the URIs in a text."""
    text = re.sub(r"://[^/@\s]*@", "://***@", text)
    return re.sub(r"(://[^\s?]*)\?[^\s'\"]*", r"\1?***", text)


def _format_value(value: object) -> str:
    """Return a short, escaped text of a value."""
    if isinstance(value, Mapping):
        value = [f"{name} = {one}" for name, one in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        shown = [_format_value(one) for one in list(value)[:_MAX_ITEMS]]
        more = [f"… {len(value) - _MAX_ITEMS} more"] if len(value) > _MAX_ITEMS else []
        return "<br>".join([*shown, *more]) if value else "none"
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = without_secrets(str(value))
    return escape(text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…")
