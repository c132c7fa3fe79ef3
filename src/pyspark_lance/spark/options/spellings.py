"""Checks of keyword arguments: their names, with suggestions, and their types.

Check the types of arguments of public methods against their annotations. An argument of another
type would raise a Python error somewhere inside, or be misunderstood: ``columns="id"`` would be the
columns ``i`` and ``d``.

Parameters are named as in PySpark, ``startingVersion``; older names stay valid.  A method with
``**options`` declares which options it accepts, so that none is silently ignored.
"""

from __future__ import annotations

import inspect
import numbers
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from pyspark_lance.errors import InvalidInputError, LanceError, shorten
from pyspark_lance.spark.options.option_table import normalize_name, option_named
from pyspark_lance.spark.sessions import check_session, describing_jobs

Check = Callable[[object], bool]


def _is_bool(value: object) -> bool:
    return (
        isinstance(value, bool) or type(value).__name__ == "bool"
    )  # numpy.bool, without importing numpy


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not _is_bool(value)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not _is_bool(value)


def _each(is_item: Check) -> Check:
    """Check the items of a list; other iterables may have many, so theirs are not checked."""

    def check(value: object) -> bool:
        if isinstance(value, list | tuple | set | frozenset):
            return all(map(is_item, value))
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)

    return check


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value))


# By the words of an annotation: the check, and the description of valid values in errors.
_KINDS: dict[str, tuple[Check, str]] = {
    "None": (lambda value: value is None, ""),
    "bool": (_is_bool, "True or False"),
    "str": (_is_text, "a text"),
    "int": (_is_whole, "a whole number"),
    "float": (_is_number, "a number"),
    "datetime": (lambda value: isinstance(value, datetime), "a datetime"),
    "timedelta": (lambda value: isinstance(value, timedelta), "a timedelta"),
    "DataFrame": (lambda value: isinstance(value, DataFrame), "a DataFrame of Spark"),
    "Expression": (lambda value: isinstance(value, str | Column), "a SQL text or a Column"),
    "Sequence[str]": (_each(_is_text), "a list of texts"),
    "Sequence[int]": (_each(_is_whole), "a list of whole numbers"),
}


def argument_checks(function: Callable[..., object]) -> dict[str, tuple[tuple[Check, ...], str]]:
    """Return by parameter the checks of which one must pass, and a description of valid values.

    Parameters with other annotations are left out; the method itself checks them.
    """
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        kinds = _kinds(parameter.annotation)
        if not kinds or parameter.kind is parameter.VAR_KEYWORD:
            continue
        checks = tuple(check for check, _ in kinds)
        words = " or ".join(word for _, word in kinds if word)
        if parameter.kind is parameter.VAR_POSITIONAL:  # the annotation describes each item
            checks, words = tuple(map(_each, checks)), f"{words} each, one by one"
        found[parameter.name] = checks, words
    return found


def _kinds(annotation: object) -> list[tuple[Check, str]]:
    if not isinstance(annotation, str):  # no annotation, as of self
        return []
    kinds: list[tuple[Check, str]] = []
    for word in re.split(r" \| (?![^\[]*\])", annotation):  # not within brackets
        if word.startswith("Mapping["):
            kinds.append((_is_mapping, "a dict whose keys are texts"))
        elif word in _KINDS:
            kinds.append(_KINDS[word])
        else:
            return []
    return kinds


def checked_arguments(
    called: str,
    given: Mapping[str, object],
    checks: Mapping[str, tuple[tuple[Check, ...], str]],
    where: str,
) -> dict[str, object]:
    """Return the arguments of a method by name, with other integers, such as numpy's, as ``int``.

    ``checks``: the result of ``argument_checks``. Raises InvalidInputError: an argument has a type
    that the method does not take.
    """
    for name, value in given.items():
        if name in checks and not _passes(value, checks[name][0]):
            shown = repr(value) if len(repr(value)) <= 100 else f"a {type(value).__name__}"
            raise InvalidInputError(
                f"the argument {name} of {called} cannot be {shown}",
                where,
                f"give {checks[name][1]}{_suggest_argument(value, checks, given)}",
            )
    return {name: _whole(value) if name in checks else value for name, value in given.items()}


def _passes(value: object, checks: tuple[Check, ...]) -> bool:
    return any(check(value) for check in checks)


def _suggest_argument(
    value: object, checks: Mapping[str, tuple[tuple[Check, ...], str]], given: Mapping[str, object]
) -> str:
    """Suggest another argument for a misplaced value, such as a dict of values."""
    if not isinstance(value, Mapping):  # too many arguments take strings and numbers
        return ""
    others = (name for name in checks if given.get(name) is None)
    other = next((name for name in others if _passes(value, checks[name][0])), None)
    return f"; a dict is given as {other}={{…}}" if other else ""


def _whole(value: object) -> object:
    if type(value) is list:
        return [_plain(item) for item in value]
    return tuple(map(_plain, value)) if type(value) is tuple else _plain(value)


def _plain(value: object) -> object:
    return operator.index(value) if _is_whole(value) else value  # type: ignore[arg-type]


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
