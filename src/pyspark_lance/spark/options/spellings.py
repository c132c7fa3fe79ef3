"""Checks of keyword arguments: errors of unknown keywords suggest similar ones.

Parameters are named as in PySpark, ``startingVersion``; older names stay valid.  A method with
``**options`` declares which options it accepts, so that none is silently ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyspark.errors import PySparkException

from pyspark_lance.errors import InvalidInputError, LanceError, shorten
from pyspark_lance.spark.job_descriptions import describing_jobs
from pyspark_lance.spark.options.argument_types import argument_checks, checked_arguments
from pyspark_lance.spark.options.option_table import normalize_name, option_named
from pyspark_lance.spark.stopped_sessions import check_session

_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)

COMMIT_OPTIONS = ("commitRetries", "commitTimeout", "userMetadata", "txnAppId", "txnVersion")
"""The options of every commit."""
FILE_OPTIONS = ("maxRowsPerFile", "maxBytesPerFile")
"""The limits of data files, for methods that write some."""

# Errors that only Spark jobs raise.
_OF_JOBS = ("DataFrame", "ChangeResult")
# Attributes of functions, which ``wraps`` copies.
_OPTIONS, _OTHER_NAMES = "_options_accepted", "_other_names"


def parameter_aliases(**names: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Accept other names of parameters, too: ``other="name"``."""

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def call(*args: _P.args, **given: _P.kwargs) -> _T:
            for other, name in names.items():
                if other in given:
                    if name in given:
                        raise TypeError(f"{name} is given twice, also as {other}")
                    given[name] = given.pop(other)
            return function(*args, **given)

        setattr(call, _OTHER_NAMES, tuple(names))
        return call

    return decorate


def changes_table(
    *options: str, runs_jobs: bool = True
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Mark a method that writes to the table, and declare the ``**options`` that it accepts.

    The method fails on a table that is pinned to one version, which ``_check_newest`` checks.
    Spark's web UI shows its jobs by its name; ``runs_jobs``: whether it runs jobs itself.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def call(*args: _P.args, **given: _P.kwargs) -> _T:
            table: Any = args[0]
            table._check_newest(function.__name__)
            uri, method = table._table.uri, function.__name__
            described = describing_jobs(table._spark, method, uri) if runs_jobs else nullcontext()
            with naming_table(uri), described:
                return function(*args, **given)

        setattr(call, _OPTIONS, options)
        return call

    return decorate


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


def accepted_options(function: Callable[..., object]) -> tuple[str, ...] | None:
    """Return the options that a method accepts; None for a method that only reads."""
    accepted: tuple[str, ...] | None = getattr(function, _OPTIONS, None)
    return accepted


def checks_keywords(kind: _C) -> _C:
    """Check keywords and argument types of the public methods of a class.

    Errors of unknown keywords suggest similar ones.  Integers of numpy become ``int``.  Methods
    accept the ``**options`` that ``changes_table`` declares.  Tracebacks leave out the frames of
    the package, and errors of a stopped session say so.
    """
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, classmethod):
            setattr(kind, name, classmethod(_checked(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, _checked(member))
    return kind


def _checked(function: Callable[_P, _T]) -> Callable[_P, _T]:
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    open_ended = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    names = [parameter.name for parameter in parameters if parameter.kind not in open_ended]
    kind, _, own_name = function.__qualname__.rpartition(".")
    called = kind if own_name == "__init__" else own_name
    options = accepted_options(function) or ()
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
        options = ()
    others = frozenset(getattr(function, _OTHER_NAMES, ()))
    known = {*names, *others}
    checks = argument_checks(function)
    needs_session = signature.return_annotation in _OF_JOBS

    def checked(args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        table = getattr(args[0], "_table", None) if args else None
        where = "" if table is None else table.uri
        if not known.issuperset(given):
            shown = [name for name in names if name not in ("self", "cls", "spark")]
            check_option_names(called, given.keys() - known, shown, options, where=where)
        try:
            bound = signature.bind(*args, **given)
        except TypeError as error:
            if others.isdisjoint(given):  # too many or too few
                raise TypeError(f"{called}: {error}") from None
            return args, given
        bound.arguments.update(checked_arguments(called, bound.arguments, checks, where))
        return bound.args, bound.kwargs

    @wraps(function)
    def call(*args: _P.args, **given: _P.kwargs) -> _T:
        try:
            positional, named = checked(args, given)
        except (LanceError, TypeError) as error:
            shorten(error)
            raise
        try:
            with check_session(args[0] if args else None, needs_session=needs_session):
                return function(*positional, **named)
        except (LanceError, PySparkException) as error:
            shorten(error)
            raise

    return call


def check_option_names(
    call: str,
    words: Iterable[str],
    names: Iterable[str] = (),
    options: Iterable[str] = (),
    *,
    where: str = "",
) -> None:
    """Raise an error for a word that is none of the names and options in any spelling.

    ``where``: the table, if one is known.
    """
    accepted = set(options)
    for word in sorted(words):
        option = option_named(word)
        if option is not None and option in accepted:
            continue
        what = f"{call} takes no argument {word!r}"
        raise InvalidInputError(what, where, _instead(word, [*names, *sorted(accepted)]))


def _instead(word: str, usable: list[str]) -> str:
    by_plain = {normalize_name(name): name for name in usable}
    near = get_close_matches(normalize_name(word), by_plain, n=1, cutoff=0.75)
    if near:
        return f"did you mean {by_plain[near[0]]}?"
    if "storageOptions" in usable:
        return f"options of the store are given as storageOptions={{{word!r}: …}}"
    return f"it takes {', '.join(usable)}" if usable else "it takes none"


def to_option_strings(given: Mapping[str, object]) -> dict[str, str]:
    """Convert options to the strings of the data source; leave out those that are None."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
        if value is not None
    }
