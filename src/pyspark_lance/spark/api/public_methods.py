"""Wrapper of public methods: the steps before and after their work.

Arguments are checked, errors of Spark and of a stopped session are converted, and tracebacks leave
out the frames of the package. A method that changes the table fails if the table is pinned to a
version, describes its jobs, and names the table in errors.

An unknown name of an argument gets a suggestion, and types are checked by the resolved annotations.
An argument of another type would raise a Python error deep inside, or be misinterpreted:
``columns="id"`` would be the columns ``i`` and ``d``.
"""

from __future__ import annotations

import inspect
import numbers
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property, wraps
from types import NoneType, UnionType
from typing import Any, Final, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from pyspark_lance.errors import InvalidInputError, LanceError, shorten
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.options.option_table import normalize_name, option_named
from pyspark_lance.spark.sessions import check_session, describing_jobs, refresh_cached
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
            setattr(kind, name, classmethod(_with_checks(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, _with_checks(member))
    return kind


def _with_checks(method: Callable[_P, _T]) -> Callable[_P, _T]:
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


Check = Callable[[object], bool]
_OPEN_ENDED: Final = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _is_bool(value: object) -> bool:
    # By its name, numpy.bool is found without importing numpy.
    return isinstance(value, bool) or type(value).__name__ == "bool"


def _is_integer(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not _is_bool(value)


def _is_instance(kind: type) -> Check:
    return lambda value: isinstance(value, kind)


def _each(is_item: Check) -> Check:
    """Return a check of the items of a list; those of other iterables may be many."""

    def check(value: object) -> bool:
        if isinstance(value, list | tuple | set | frozenset):
            return all(map(is_item, value))
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)

    return check


# The check of each type, and the description of valid values in errors.
_CHECKS: Final[dict[object, tuple[Check, str]]] = {
    NoneType: (_is_instance(NoneType), ""),
    bool: (_is_bool, "True or False"),
    str: (_is_instance(str), "a text"),
    int: (_is_integer, "a whole number"),
    float: (lambda value: isinstance(value, numbers.Real) and not _is_bool(value), "a number"),
    datetime: (_is_instance(datetime), "a datetime"),
    timedelta: (_is_instance(timedelta), "a timedelta"),
    DataFrame: (_is_instance(DataFrame), "a DataFrame of Spark"),
    Column: (_is_instance(Column), "a Column"),
    Sequence[str]: (_each(_is_instance(str)), "a list of texts"),
    Sequence[int]: (_each(_is_integer), "a list of whole numbers"),
    Mapping: (
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
        "a dict whose keys are texts",
    ),
}


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """The values that a parameter accepts.

    Attributes:
        checks: A value must pass one of them.
        description: The valid values, in errors.
    """

    checks: tuple[Check, ...]
    description: str

    def accepts(self, value: object) -> bool:
        """Return whether the parameter accepts a value."""
        return any(check(value) for check in self.checks)


def _argument_type(annotation: object, *, is_variadic: bool) -> ArgumentType | None:
    """Return the type of a parameter; None for types that the method itself checks."""
    is_union = get_origin(annotation) in (Union, UnionType)
    kinds = get_args(annotation) if is_union else (annotation,)
    found = [_CHECKS.get(Mapping if get_origin(kind) is Mapping else kind) for kind in kinds]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    checks = tuple(check for check, _ in known)
    description = " or ".join(words for _, words in known if words)
    if Column in kinds:  # a text is an expression there
        description = description.replace("a text", "a SQL text")
    if is_variadic:  # the annotation describes each item
        return ArgumentType(tuple(map(_each, checks)), f"{description} each, one by one")
    return ArgumentType(checks, description)


class MethodArguments:
    """The parameters of a public method, to check the arguments of its calls.

    Args:
        method: The method as it is defined, with ``self`` or ``cls``.
        options: The ``**options`` that it accepts.
        aliases: Other names of parameters.
    """

    def __init__(
        self, method: Callable[..., Any], options: Sequence[str], aliases: Mapping[str, str]
    ) -> None:
        self._method = method
        self._options = options
        self._aliases = aliases
        self._signature = inspect.signature(method)
        parameters = self._signature.parameters.values()
        self._names = [one.name for one in parameters if one.kind not in _OPEN_ENDED]
        self._known = {*self._names, *aliases}
        kind, _, name = method.__qualname__.rpartition(".")
        self._called = kind if name == "__init__" else name

    @cached_property
    def returns(self) -> object:
        """The annotation of the result."""
        return self._hints.get("return")

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Resolved at the first call: all at once would slow down the import.
        return get_type_hints(self._method)

    @cached_property
    def _types(self) -> dict[str, ArgumentType]:
        found = {
            name: _argument_type(
                self._hints[name], is_variadic=parameter.kind is parameter.VAR_POSITIONAL
            )
            for name, parameter in self._signature.parameters.items()
            if name in self._hints and parameter.kind is not parameter.VAR_KEYWORD
        }
        return {name: kind for name, kind in found.items() if kind is not None}

    def check(
        self, args: tuple[Any, ...], given: dict[str, Any], where: str
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return checked arguments: by the names of parameters, other integers as ``int``.

        ``where``: the table, in errors.

        Raises:
            InvalidInputError: There is no such argument, or it has a type that is not accepted.
            TypeError: There are too many arguments or too few.
        """
        unknown = given.keys() - self._known
        if unknown:
            shown = [name for name in self._names if name not in ("self", "cls", "spark")]
            check_argument_names(self._called, unknown, shown, self._options, where=where)
        for alias in self._aliases.keys() & given.keys():
            name = self._aliases[alias]
            if name in given:
                raise TypeError(f"{name} is given twice, also as {alias}")
            given[name] = given.pop(alias)
        try:
            bound = self._signature.bind(*args, **given)
        except TypeError as error:
            raise TypeError(f"{self._called}: {error}") from None
        for name, value in bound.arguments.items():
            kind = self._types.get(name)
            if kind is None:
                continue
            if not kind.accepts(value):
                shown_value = repr(value)
                if len(shown_value) > 100:
                    shown_value = f"a {type(value).__name__}"
                raise InvalidInputError(
                    f"the argument {name} of {self._called} cannot be {shown_value}",
                    where,
                    f"give {kind.description}{self._suggest_argument(value, bound.arguments)}",
                )
            bound.arguments[name] = _with_plain_integers(value)
        return bound.args, bound.kwargs

    def _suggest_argument(self, value: object, given: Mapping[str, object]) -> str:
        """Suggest another argument for a misplaced value, such as a dict of values."""
        if not isinstance(value, Mapping):  # too many arguments accept strings and numbers
            return ""
        for name, kind in self._types.items():
            if given.get(name) is None and kind.accepts(value):
                return f"; a dict is given as {name}={{…}}"
        return ""


def _with_plain_integers(value: object) -> object:
    if type(value) is list:
        return [_plain_integer(item) for item in value]
    if type(value) is tuple:
        return tuple(map(_plain_integer, value))
    return _plain_integer(value)


def _plain_integer(value: object) -> object:
    return operator.index(value) if _is_integer(value) else value  # type: ignore[arg-type]


def check_argument_names(
    call: str,
    given: Iterable[str],
    names: Iterable[str] = (),
    options: Iterable[str] = (),
    *,
    where: str = "",
) -> None:
    """Check that each of the given names is one of the options, in any spelling.

    ``names``: the other parameters, for suggestions. ``where``: the table, if one is known.

    Raises:
        InvalidInputError: There is no such argument.
    """
    accepted = set(options)
    for word in sorted(given):
        option = option_named(word)
        if option is not None and option in accepted:
            continue
        what = f"{call} takes no argument {word!r}"
        raise InvalidInputError(what, where, _suggest_name(word, [*names, *sorted(accepted)]))


def _suggest_name(word: str, usable: list[str]) -> str:
    by_plain = {normalize_name(name): name for name in usable}
    near = get_close_matches(normalize_name(word), by_plain, n=1, cutoff=0.75)
    if near:
        return f"did you mean {by_plain[near[0]]}?"
    if "options" in usable:
        return (
            f"options of the table are given as options={{{word!r}: …}}, those of its store as "
            "storageOptions"
        )
    if "storageOptions" in usable:
        return f"options of the store are given as storageOptions={{{word!r}: …}}"
    return f"it takes {', '.join(usable)}" if usable else "it takes none"
