"""Checks of the arguments of public methods: names, with suggestions, and types.

Types are checked by the resolved annotations. An argument of another type would raise a Python
error deep inside, or be misinterpreted: ``columns="id"`` would be the columns ``i`` and ``d``.
"""

from __future__ import annotations

import inspect
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from pyspark.sql import Column, DataFrame

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options.option_table import normalize_name, option_named

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
    if "storageOptions" in usable:
        return f"options of the store are given as storageOptions={{{word!r}: …}}"
    return f"it takes {', '.join(usable)}" if usable else "it takes none"
