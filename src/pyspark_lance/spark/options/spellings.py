"""What methods may be called with: unknown keywords are errors that name the nearest.

Parameters are named as in PySpark, ``startingVersion``; older names stay valid.  A method with
``**options`` says which ones it heeds, since an option that is passed over in silence is a promise
that nobody keeps.
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
from pyspark_lance.spark.options.option_table import option_named, plain_word
from pyspark_lance.spark.stopped_sessions import check_session

_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)

COMMIT_OPTIONS = ("commitRetries", "commitTimeout", "userMetadata", "txnAppId", "txnVersion")
"""What every commit heeds."""
FILE_OPTIONS = ("maxRowsPerFile", "maxBytesPerFile")
"""The limits of data files, where some are written."""

# What only comes of a job.
_OF_JOBS = ("DataFrame", "ChangeResult")
# Attributes of functions, which ``wraps`` hands on.
_OPTIONS, _OTHER_NAMES = "_options_accepted", "_other_names"


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

        setattr(call, _OTHER_NAMES, tuple(names))
        return call

    return decorate


def changes_table(
    *options: str, runs_jobs: bool = True
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Marks a method of a table that writes, and names the ``**options`` that it heeds.

    It is refused where the table is held at one version: ``_check_newest`` of the object decides.
    Its jobs have its name in Spark's web page; ``runs_jobs``: whether it runs some itself.
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
    """Adds the table to errors of ours that do not say where they come from."""
    try:
        yield
    except LanceError as error:
        if not error.where:
            error.where = uri
            error.args = (error.what, uri, error.hint, *error.args[3:])
        raise


def accepted_options(function: Callable[..., object]) -> tuple[str, ...] | None:
    """The options that a method which changes a table heeds; None for one that only reads."""
    accepted: tuple[str, ...] | None = getattr(function, _OPTIONS, None)
    return accepted


def checks_keywords(kind: _C) -> _C:
    """Makes the public methods of a class name the nearest where they are given unknown keywords.

    Arguments of other types than the annotated ones are refused, too, and whole numbers of numpy
    become plain ones.  Methods take as many ``**options`` as ``changes_table`` names.  Errors come
    without the frames of the package, and say so where a session was stopped.
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
            check_words(called, given.keys() - known, shown, options, where=where)
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


def check_words(
    call: str,
    words: Iterable[str],
    names: Iterable[str] = (),
    options: Iterable[str] = (),
    *,
    where: str = "",
) -> None:
    """Refuses words that are none of the options, in whatever spelling.

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
    by_plain = {plain_word(name): name for name in usable}
    near = get_close_matches(plain_word(word), by_plain, n=1, cutoff=0.75)
    if near:
        return f"did you mean {by_plain[near[0]]}?"
    if "storageOptions" in usable:
        return f"options of the store are given as storageOptions={{{word!r}: …}}"
    return f"it takes {', '.join(usable)}" if usable else "it takes none"


def option_texts(given: Mapping[str, object]) -> dict[str, str]:
    """Options as the data source is given them; those that are None are not given."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
        if value is not None
    }
