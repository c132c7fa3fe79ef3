"""How objects show themselves in notebooks: short tables of HTML, in which every text is escaped.

What shows an object must neither fail nor keep a notebook waiting: whatever goes wrong, or takes
longer than ``MAX_SECONDS``, the plain text of the object is shown.
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
_LONGEST_TEXT: Final = 200
_MAX_ITEMS: Final = 8
_C = TypeVar("_C", bound=type)


def shown_in_notebooks(kind: _C) -> _C:
    """Gives a dataclass ``_repr_html_``: its fields as a table.

    Examples:
        >>> from dataclasses import dataclass
        >>> @shown_in_notebooks
        ... @dataclass(frozen=True)
        ... class Counts:
        ...     version: int
        >>> "<td>3</td>" in Counts(3)._repr_html_()
        True
    """

    def _repr_html_(self: Any) -> str:
        facts = {field.name: getattr(self, field.name) for field in fields(kind)}
        return html_or_text(lambda: facts_as_html(kind.__name__, facts), repr(self))

    kind._repr_html_ = _repr_html_  # type: ignore[attr-defined]
    return kind


def html_or_text(make: Callable[[], str], text: str, most_seconds: float = MAX_SECONDS) -> str:
    """What ``make`` returns; ``text`` with the reason if it fails or takes too long."""
    made: list[str] = []
    failed: list[str] = []

    def run() -> None:
        try:
            made.append(make())
        except Exception as error:  # noqa: BLE001 - showing an object never fails
            failed.append(str(error).partition("\n")[0] or type(error).__name__)

    worker = threading.Thread(target=run, name="pyspark-lance-html", daemon=True)
    worker.start()
    worker.join(most_seconds)
    if made:
        return made[0]
    reason = failed[0] if failed else f"the table did not answer within {most_seconds:g} seconds"
    return f"<pre>{escape(without_secrets(text))}</pre><p>{escape(without_secrets(reason))}</p>"


def facts_as_html(title: str, facts: Mapping[str, object]) -> str:
    """A table of names and values under a title; values that are None are left out."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td>{_shown(value)}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    return f"<table><caption><b>{escape(without_secrets(title))}</b></caption>{lines}</table>"


def rows_as_html(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a header."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{_shown(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def without_secrets(text: str) -> str:
    """A text in which URIs have no user, password, key or signature."""
    text = re.sub(r"://[^/@\s]*@", "://***@", text)
    return re.sub(r"(://[^\s?]*)\?[^\s'\"]*", r"\1?***", text)


def _shown(value: object) -> str:
    """A value, short and escaped."""
    if isinstance(value, Mapping):
        value = [f"{name} = {one}" for name, one in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        shown = [_shown(one) for one in list(value)[:_MAX_ITEMS]]
        more = [f"… {len(value) - _MAX_ITEMS} more"] if len(value) > _MAX_ITEMS else []
        return "<br>".join([*shown, *more])
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = without_secrets(str(value))
    return escape(text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…")
