"""Field names of results: camelCase as in PySpark, with snake_case accepted as well.

The rule for all public names is in docs/api.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

from pyspark_lance.notebook_html import show_in_notebooks

_C = TypeVar("_C", bound=type)


def snake_case(name: str) -> str:
    """Convert ``numRows`` to ``num_rows``."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def also_snake_case(kind: _C) -> _C:
    """Make the fields of a frozen dataclass readable and settable in snake_case, too.

    The class also gets an HTML representation for notebooks, with its own field names.

    Examples:
        >>> from dataclasses import dataclass
        >>> @also_snake_case
        ... @dataclass(frozen=True, slots=True)
        ... class Counts:
        ...     numRows: int
        >>> Counts(num_rows=3), Counts(3).num_rows
        (Counts(numRows=3), 3)
    """
    properties = [name for name, member in vars(kind).items() if isinstance(member, property)]
    names = [*(field.name for field in fields(kind)), *properties]
    others = {snake_case(name): name for name in names if snake_case(name) != name}
    for other, name in others.items():
        setattr(kind, other, property(attrgetter(name), doc=f"``{name}``."))
    _take_names(kind, kind.__init__, others)  # type: ignore[misc]
    return show_in_notebooks(kind)


def _take_names(kind: type, make: Callable[..., None], others: dict[str, str]) -> None:
    @wraps(make)
    def make_by_any_name(self: Any, *args: Any, **given: Any) -> None:
        make(self, *args, **{others.get(name, name): value for name, value in given.items()})

    kind.__init__ = make_by_any_name  # type: ignore[misc]
