"""What arguments of public methods may be, told by their annotations: a text, a number, a list.

An argument of another type would end in an error of Python's somewhere inside, or be taken for
something else: ``columns="id"`` would be the columns ``i`` and ``d``.
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
    return isinstance(value, bool) or type(value).__name__ == "bool"  # numpy's, without numpy


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
    """Of lists and the like; items of other iterables are not looked at, since they may be many."""

    def check(value: object) -> bool:
        if isinstance(value, list | tuple | set | frozenset):
            return all(map(is_item, value))
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)

    return check


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value))


# By the words of an annotation: the check, and how an error calls what passes.
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
    """By parameter: the checks of which one must pass, and what may be given, in words.

    Parameters are left out whose annotations name something else, which the method itself looks at.
    """
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        kinds = _kinds(parameter.annotation)
        if not kinds or parameter.kind is parameter.VAR_KEYWORD:
            continue
        checks = tuple(check for check, _ in kinds)
        words = " or ".join(word for _, word in kinds if word)
        if parameter.kind is parameter.VAR_POSITIONAL:  # the annotation is of each of them
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
    """The arguments of a method, by name; whole numbers of other kinds, as numpy's, as ``int``.

    ``checks``: What ``argument_checks`` found. Raises InvalidInputError: one is of another type
    than the method takes.
    """
    for name, value in given.items():
        if name in checks and not _passes(value, checks[name][0]):
            shown = repr(value) if len(repr(value)) <= 100 else f"a {type(value).__name__}"
            raise InvalidInputError(
                f"the argument {name} of {called} cannot be {shown}",
                where,
                f"give {checks[name][1]}{_meant(value, checks, given)}",
            )
    return {name: _whole(value) if name in checks else value for name, value in given.items()}


def _passes(value: object, checks: tuple[Check, ...]) -> bool:
    return any(check(value) for check in checks)


def _meant(
    value: object, checks: Mapping[str, tuple[tuple[Check, ...], str]], given: Mapping[str, object]
) -> str:
    """What a value is for that stands in the place of another, such as a dict of values."""
    if not isinstance(value, Mapping):  # texts and numbers are for too much
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
