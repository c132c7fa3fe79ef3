"""Parameters of methods are named as in PySpark, ``startingVersion``; older names stay valid."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


def also_spelled(**names: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Lets callers give parameters by other names, too: ``other="name"``."""

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def call(*args: _P.args, **given: _P.kwargs) -> _T:
            for other, name in names.items():
                if other in given:
                    if name in given:
                        raise TypeError(f"{name} is given twice, also as {other}")
                    given[name] = given.pop(other)
            return function(*args, **given)

        return call

    return decorate
