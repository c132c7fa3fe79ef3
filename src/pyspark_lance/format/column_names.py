"""Resolution of column names, and the four computed lineage columns.

A table may have columns that differ only by case; a name that matches several of them, and none
exactly, is an error.

The lineage columns are not stored like other columns: row ids come from a fragment's row-id
sequence, row addresses from the position, the two versions from runs. No I/O.

Source: docs/format/table-format.md, sections 0, 6.3, 7.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array

LONG_NAME: Final = 100
_MAX_SHOWN: Final = 20
# Columns computed by other readers of Lance -> how to compute them.
_OF_OTHERS: Final = {
    "_fragid": "_fragid is _rowaddr divided by 4294967296, in SQL shiftright(_rowaddr, 32)"
}


class Named(Protocol):
    """A field of Lance, of Arrow or of Spark."""

    @property
    def name(self) -> str:
        """Name of the field."""


_T = TypeVar("_T")
_Part = TypeVar("_Part", bound=Named)


class ColumnNames(Generic[_T]):
    """Values by name, such as the columns of a table."""

    def __init__(self, known: Mapping[str, _T]) -> None:
        self._known = known
        self._by_lower_case: dict[str, list[str]] = {}
        for name in known:
            self._by_lower_case.setdefault(name.lower(), []).append(name)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._known)

    def __contains__(self, name: str) -> bool:
        """Return whether the name matches at least one."""
        return name.lower() in self._by_lower_case

    def find_name(self, name: str) -> str | None:
        """Return the matching name as spelled; None if there is none.

        Raises:
            InvalidInputError: Several names match.
        """
        if name in self._known:
            return name
        matching = self._by_lower_case.get(name.lower(), ())
        if len(matching) > 1:
            raise _ambiguous_error(name, matching)
        return matching[0] if matching else None

    def get(self, name: str) -> _T | None:
        """Return the value of a name; None if there is none.

        Raises:
            InvalidInputError: Several names match.
        """
        known_name = self.find_name(name)
        return None if known_name is None else self._known[known_name]

    def __getitem__(self, name: str) -> _T:
        """Return the value of an existing name, as ``get`` does."""
        return self._known[self.find_name(name) or name]


def spellings(names: Iterable[str]) -> ColumnNames[str]:
    """Map names, case-insensitively, to themselves."""
    return ColumnNames({name: name for name in names})


def by_name(parts: Iterable[_Part]) -> ColumnNames[_Part]:
    """Fields by name."""
    return ColumnNames({part.name: part for part in parts})


def find_named(parts: Iterable[_Part], name: str) -> _Part | None:
    """Return the field with this name; None if there is none.

    Raises:
        InvalidInputError: Several names match.
    """
    return by_name(parts).get(name)


def match_names(given: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the known name of each given name that has one; no known name is used twice.

    If a name is spelled exactly as known, another one that differs by case is a separate name.

    Raises:
        InvalidInputError: A name matches several, or several match one.
    """
    given, names = tuple(given), spellings(known)
    exact = {name for name in given if names.find_name(name) == name}
    pairs: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in given:
        known_name = names.find_name(name)
        if known_name is None or (known_name in exact and known_name != name):
            continue
        if known_name in taken:
            raise _ambiguous_error(known_name, [taken[known_name], name])
        taken[known_name] = name
        pairs[name] = known_name
    return pairs


def sources_of(known: Iterable[str], given: Iterable[str]) -> dict[str, str]:
    """Return the inverse of ``match_names``: the given name of each known name that has one."""
    return {known_name: name for name, known_name in match_names(given, known).items()}


def same_order(left: Iterable[str], right: Iterable[str]) -> bool:
    """Return whether two sequences of names match one by one."""
    left, right = tuple(left), tuple(right)
    if len(left) != len(right):
        return False
    return left == right or [*match_names(left, right).items()] == [*zip(left, right, strict=True)]


def differ_by_case_error(one: str, other: str) -> InvalidInputError:
    """Return the error for new columns that a case-insensitive session cannot distinguish."""
    return InvalidInputError(
        f"the columns {one!r} and {other!r} differ by case only",
        hint="rename one of them, or set spark.sql.caseSensitive = true; a df.write without the "
        "plugin also needs the option caseSensitive = true",
    )


def _ambiguous_error(name: str, candidates: Iterable[str]) -> InvalidInputError:
    return InvalidInputError(
        f"{name!r} is ambiguous, it could be {', '.join(candidates)}",
        hint="spell it as one of them; where columns differ by case only, Spark needs "
        "spark.sql.caseSensitive = true",
    )


def external_system_column(name: str) -> str | None:
    """Return how a column added by other readers of Lance is computed; None for all other names."""
    return _OF_OTHERS.get(name.lower())


def name_hint(name: str, names: Sequence[str]) -> str:
    """Return a hint for an unknown name: the closest name, or else a list of names."""
    way = external_system_column(name)
    if way is not None:
        return way
    by_lower_case = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower()[:LONG_NAME], by_lower_case, n=1)
    shown = ", ".join(names[:_MAX_SHOWN]) + (", …" if len(names) > _MAX_SHOWN else "")
    return f"did you mean {by_lower_case[near[0]]!r}?" if near else f"there are: {shown}"


ROW_ID: Final = "_rowid"
ROW_ADDRESS: Final = "_rowaddr"
CREATED_AT: Final = "_row_created_at_version"
LAST_UPDATED_AT: Final = "_row_last_updated_at_version"

SYSTEM_COLUMNS: Final = (ROW_ID, ROW_ADDRESS, CREATED_AT, LAST_UPDATED_AT)
VERSION_COLUMNS: Final = (CREATED_AT, LAST_UPDATED_AT)


def system_field(name: str) -> pa.Field:
    """The Arrow field of a lineage column: uint64, never null."""
    return pa.field(name, pa.uint64(), nullable=False)


def parse_metadata_columns(text: str, *, stable_row_ids: bool) -> tuple[str, ...]:
    """Return the lineage columns that ``metadataColumns`` selects, in their fixed order.

    ``text``: ``all``, ``none`` or a comma list of names, case-insensitive.
    ``stable_row_ids``: whether the table has stable row ids; without them ``all`` omits the version
    columns, which would carry no information.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if words == ["all"]:
        return SYSTEM_COLUMNS if stable_row_ids else (ROW_ID, ROW_ADDRESS)
    if words in ([], ["none"]):
        return ()
    unknown = [word for word in words if word not in SYSTEM_COLUMNS]
    if unknown:
        raise InvalidInputError(
            f"metadataColumns names {unknown[0]!r}, which is not a lineage column",
            hint=external_system_column(unknown[0])
            or f"use all, none, or a comma list of {', '.join(SYSTEM_COLUMNS)}",
        )
    return tuple(name for name in SYSTEM_COLUMNS if name in words)


def check_version_columns(names: tuple[str, ...], *, stable_row_ids: bool, uri: str) -> None:
    """Reject the version columns on a table without row versions."""
    wanted = [name for name in names if name in VERSION_COLUMNS]
    if wanted and not stable_row_ids:
        raise InvalidInputError(
            f"{wanted[0]} needs stable row ids, which the rows of this table do not have",
            where=uri,
            hint="LanceTable.enableStableRowIds() assigns them",
        )


def constant_column(value: int, length: int) -> pa.Array:
    """Return ``length`` copies of the uint64 ``value``."""
    return plain_array(np.full(length, value, dtype=np.uint64))


def system_array(values: NDArray[np.uint64]) -> pa.Array:
    """Zero-copy uint64 Arrow array over ``values``."""
    return plain_array(np.asarray(values, np.uint64))
