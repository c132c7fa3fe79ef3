"""Show a ``LanceError`` to the user as one message without a traceback.

Spark sends the traceback of a Python worker to the driver as text, unless an environment variable
is set when the task fails.  The worker exits after the error, so the variable affects nothing else.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from pyspark_lance.errors import FULL_TRACEBACK, LanceError, shorten

_P = ParamSpec("_P")
_R = TypeVar("_R")
_HIDE = "SPARK_HIDE_TRACEBACK"


def clean_errors(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a method that Spark calls in a worker."""

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except LanceError as error:
            _hide(error)
            raise

    return wrapper


def clean_iterator(function: Callable[_P, Iterator[_R]]) -> Callable[_P, Iterator[_R]]:
    """Decorate a generator method that Spark calls in a worker."""

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_R]:
        try:
            yield from function(*args, **kwargs)
        except LanceError as error:
            _hide(error)
            raise

    return wrapper


def _hide(error: LanceError) -> None:
    if not os.environ.get(FULL_TRACEBACK):
        os.environ[_HIDE] = "1"
        error.__cause__, error.__suppress_context__ = None, True
        shorten(error)
