"""Which column a name means: the one spelled so, otherwise the only one whatever its case.

The one rule for all look-ups of columns and of members of structs. A table may have columns that
differ by case only; a name that fits several of them, and is spelled as none, is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from pyspark_lance.errors import InvalidInputError

LONG_NAME: Final = 100
_MAX_SHOWN: Final = 20
# Columns that other readers of Lance compute -> how.
_OF_OTHERS: Final = {
    "_fragid": "_fragid is _rowaddr divided by 4294967296, in SQL shiftright(_rowaddr, 32)"
}


class Named(Protocol):
    """A field of Lance, of Arrow or of Spark."""

    @property
    def name(self) -> str:
        """What it is called."""


_T = TypeVar("_T")
_Part = TypeVar("_Part", bound=Named)


class ColumnNames(Generic[_T]):
    """What is known by name, such as the columns of a table."""

    def __init__(self, known: Mapping[str, _T]) -> None:
        self._known = known
        self._alike: dict[str, list[str]] = {}
        for name in known:
            self._alike.setdefault(name.lower(), []).append(name)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._known)

    def __contains__(self, name: str) -> bool:
        """Whether the name fits at least one."""
        return name.lower() in self._alike

    def spelled(self, name: str) -> str | None:
        """The one that the name means, as it is spelled; None if there is none.

        Raises InvalidInputError: it may be several.
        """
        if name in self._known:
            return name
        alike = self._alike.get(name.lower(), ())
        if len(alike) > 1:
            raise _ambiguous(name, alike)
        return alike[0] if alike else None

    def get(self, name: str) -> _T | None:
        """What the name means; None if there is nothing of the name.

        Raises InvalidInputError: it may be several.
        """
        spelled = self.spelled(name)
        return None if spelled is None else self._known[spelled]

    def __getitem__(self, name: str) -> _T:
        """As ``get``, of a name that is there."""
        return self._known[self.spelled(name) or name]


def spellings(names: Iterable[str]) -> ColumnNames[str]:
    """Names by whatever case."""
    return ColumnNames({name: name for name in names})


def by_name(parts: Iterable[_Part]) -> ColumnNames[_Part]:
    """Fields by name."""
    return ColumnNames({part.name: part for part in parts})


def named(parts: Iterable[_Part], name: str) -> _Part | None:
    """The one of this name; None if there is none.

    Raises InvalidInputError: it may be several.
    """
    return by_name(parts).get(name)


def matched(given: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """For each of the given names that is known, the known one; no known one is taken twice.

    Beside one that is spelled as it is known, another that differs by case is a name of its own.
    Raises InvalidInputError: a name may be several, or several may be one.
    """
    given, names = tuple(given), spellings(known)
    exact = {name for name in given if names.spelled(name) == name}
    pairs: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in given:
        spelled = names.spelled(name)
        if spelled is None or (spelled in exact and spelled != name):
            continue
        if spelled in taken:
            raise _ambiguous(spelled, [taken[spelled], name])
        taken[spelled] = name
        pairs[name] = spelled
    return pairs


def sources_of(known: Iterable[str], given: Iterable[str]) -> dict[str, str]:
    """As ``matched``, the other way round: for each known name that is given, the given one."""
    return {spelled: name for name, spelled in matched(given, known).items()}


def same_order(left: Iterable[str], right: Iterable[str]) -> bool:
    """Whether names mean the same, one by one."""
    left, right = tuple(left), tuple(right)
    if len(left) != len(right):
        return False
    return left == right or [*matched(left, right).items()] == [*zip(left, right, strict=True)]


def differ_by_case(one: str, other: str) -> InvalidInputError:
    """The error of new columns that a session, in which case does not matter, cannot tell apart."""
    return InvalidInputError(
        f"the columns {one!r} and {other!r} differ by case only",
        hint="rename one of them, or set spark.sql.caseSensitive = true; a df.write without the "
        "plugin also needs the option caseSensitive = true",
    )


def _ambiguous(name: str, spelled: Iterable[str]) -> InvalidInputError:
    return InvalidInputError(
        f"{name!r} is ambiguous, it could be {', '.join(spelled)}",
        hint="spell it as one of them; where columns differ by case only, Spark needs "
        "spark.sql.caseSensitive = true",
    )


def column_of_others(name: str) -> str | None:
    """How a column is computed that other readers of Lance add; None for all other names."""
    return _OF_OTHERS.get(name.lower())


def near_names(name: str, names: Sequence[str]) -> str:
    """A hint for a name that is none of some: what was meant, or else which there are."""
    way = column_of_others(name)
    if way is not None:
        return way
    spelled_as = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower()[:LONG_NAME], spelled_as, n=1)
    shown = ", ".join(names[:_MAX_SHOWN]) + (", …" if len(names) > _MAX_SHOWN else "")
    return f"did you mean {spelled_as[near[0]]!r}?" if near else f"there are: {shown}"
