"""Check the types of arguments of public methods against their annotations.

An argument of another type would raise a Python error somewhere inside, or be misunderstood:
``columns="id"`` would be the columns ``i`` and ``d``.
"""

from __future__ import annotations

import inspect
import numbers
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame

from pyspark_lance.errors import InvalidInputError

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
