"""Wrapper of public methods: the steps before and after their work.

Arguments are checked, errors of Spark and of a stopped session are converted, and tracebacks leave
out the frames of the package. A method that changes the table fails if the table is pinned to a
version, describes its jobs, and names the table in errors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pyspark_lance.errors import LanceError, shorten
from pyspark_lance.spark.api.argument_checks import MethodArguments
from pyspark_lance.spark.api.cached_tables import refresh_cached
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.sessions import check_session, describing_jobs
from pyspark_lance.table.dml.row_change import ChangeResult

_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)

COMMIT_OPTIONS: Final = (
    "commitRetries", "commitTimeout", "userMetadata", "txnAppId", "txnVersion",
)  # fmt: skip
"""The options of every commit."""
FILE_OPTIONS: Final = ("maxRowsPerFile", "maxBytesPerFile")
"""The limits of data files, for methods that write some."""

# What decorators note on a method for ``checks_calls``.
_CHANGE: Final = "_table_change"
_ALIASES: Final = "_parameter_aliases"


@dataclass(frozen=True, slots=True)
class TableChange:
    """Properties of a method that changes a table.

    Attributes:
        options: The ``**options`` that it accepts.
        runs_jobs: Whether it runs jobs itself; Spark's web UI shows them by its name.
        refreshes_cache: Whether Spark may have cached rows or columns that it changes.
    """

    options: tuple[str, ...]
    runs_jobs: bool
    refreshes_cache: bool


def changes_table(
    *options: str, runs_jobs: bool = True, refreshes_cache: bool = False
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Mark a method that changes the table, and declare the ``**options`` that it accepts."""
    return _mark(_CHANGE, TableChange(options, runs_jobs, refreshes_cache))


def parameter_aliases(**names: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Accept other names of parameters, too: ``other="name"``."""
    return _mark(_ALIASES, names)


def _mark(name: str, value: object) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    def decorate(method: Callable[_P, _T]) -> Callable[_P, _T]:
        setattr(method, name, value)
        return method

    return decorate


def accepted_options(method: Callable[..., object]) -> tuple[str, ...] | None:
    """Return the options that a method accepts; None for a method that only reads."""
    change: TableChange | None = getattr(method, _CHANGE, None)
    return None if change is None else change.options


def checks_calls(kind: _C) -> _C:
    """Wrap each public method of a class once: check arguments, and convert errors."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, classmethod):
            setattr(kind, name, classmethod(_checked(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, _checked(member))
    return kind


def _checked(method: Callable[_P, _T]) -> Callable[_P, _T]:
    change: TableChange | None = getattr(method, _CHANGE, None)
    aliases = getattr(method, _ALIASES, {})
    arguments = MethodArguments(method, accepted_options(method) or (), aliases)

    @wraps(method)
    def call(*args: _P.args, **given: _P.kwargs) -> _T:
        owner: Any = args[0] if args else None
        spark, table = getattr(owner, "_spark", None), getattr(owner, "_table", None)
        uri = "" if table is None else table.uri
        try:
            positional, named = arguments.check(args, given, uri)
        except (LanceError, TypeError) as error:
            shorten(error)
            raise
        try:
            # Methods with another result may need no session, since they run no job.
            needs_session = arguments.returns in (DataFrame, ChangeResult)
            with (
                check_session(spark, uri, needs_session=needs_session),
                nullcontext() if change is None else _changing(owner, method.__name__, change),
                typed_errors(),
            ):
                return method(*positional, **named)
        except (LanceError, PySparkException) as error:
            shorten(error)
            raise

    return call


@contextmanager
def _changing(owner: Any, method: str, change: TableChange) -> Iterator[None]:
    owner._check_newest(method)
    uri, spark = owner._table.uri, owner._spark
    described = describing_jobs(spark, method, uri) if change.runs_jobs else nullcontext()
    with naming_table(uri), described:
        yield
        if change.refreshes_cache:
            refresh_cached(spark, owner._table)


@contextmanager
def naming_table(uri: str) -> Iterator[None]:
    """Add the table to errors of this package without a location."""
    try:
        yield
    except LanceError as error:
        if not error.where:
            error.where = uri
            error.args = (error.what, uri, error.hint, *error.args[3:])
        raise
