"""What happens to the tables of the set: steps, drawn from a seed, and what the model says of them.

Nothing is read or written here, so the expected answers depend on no implementation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_lance.conformance.model import TableModel, Values

FILE_ROWS = 3
BRANCH = "trial"


@dataclass(frozen=True)
class Write:
    """New rows, three to a file."""

    rows: Sequence[Values]
    overwrites: bool = False  # Whether they take the place of all others.
    stable_row_ids: bool | None = None  # Whether the rows of a new table have ids of their own.


@dataclass(frozen=True)
class Change:
    """A delete, an update or a merge."""

    addresses: Mapping[int, int]  # Where the rows are that are updated or deleted, by row id.
    updated: Mapping[int, Values] = field(default_factory=dict)
    deleted: Sequence[int] = ()
    inserted: Sequence[Values] = ()


@dataclass(frozen=True)
class RewriteColumns:
    """New values beside the old ones, by address."""

    updated: Mapping[int, Values]


@dataclass(frozen=True)
class Compact:
    """All fragments become one."""


@dataclass(frozen=True)
class Restore:
    """An old version once more."""

    version: int


@dataclass(frozen=True)
class GiveRowIds:
    """Row ids for a table without them."""


@dataclass(frozen=True)
class GoOnOnBranch:
    """A branch at a version; what comes after is written there."""

    version: int


@dataclass(frozen=True)
class CleanUp:
    """The newest versions stay, so many."""

    retain: int


Step = Write | Change | RewriteColumns | Compact | Restore | GiveRowIds | GoOnOnBranch | CleanUp

# Every operation once, with what it needs before it and what shows its traces behind it.
HISTORIES: Mapping[str, Sequence[str]] = {
    "append": ("append", "append"),
    "delete": ("delete", "append", "delete"),
    "update": ("update", "update"),
    "same-values": ("update_to_the_same", "update"),
    "merge": ("merge", "merge"),
    "overwrite": ("update", "overwrite", "append"),
    "restore": ("update", "delete", "append", "restore", "append"),
    "compaction": ("delete", "update", "compact", "update"),
    "column-rewrite": ("rewrite_columns", "delete", "rewrite_columns"),
    "branch": ("update", "append", "go_on_on_branch", "update", "append"),
    "cleanup": ("update", "append", "delete", "clean_up", "update"),
    "migration": ("give_row_ids", "update", "append"),
}
_DRAWN = (
    "append", "delete", "update", "update_to_the_same", "merge", "overwrite", "restore",
    "compact", "rewrite_columns",
)  # fmt: skip
_LONGEST = 7


class History:
    """The steps of one table, and the model of it.

    Args:
        name: One of ``HISTORIES``; any other is a random one.
        seed: Where the values and the rows that change come from.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._draw = random.Random(f"{name} {seed}")
        self.model = TableModel()
        self.branch: str | None = None
        self.steps: list[Step] = []
        self._next_key = 0
        self._create(stable_row_ids=name != "migration")
        if name == "migration":
            self.delete()
        for step in HISTORIES.get(name) or self._random_steps():
            getattr(self, step)()

    def _random_steps(self) -> Sequence[str]:
        return [self._draw.choice(_DRAWN) for _ in range(_LONGEST)]

    def _new_rows(self, least: int = 1) -> list[Values]:
        rows: list[Values] = []
        for _ in range(self._draw.randint(least, 5)):
            rows.append((self._next_key, self._number(), self._draw.choice(("a", "b", "é", None))))
            self._next_key += 1
        return rows

    def _number(self) -> int | None:
        return self._draw.choice((None, *range(-3, 4)))

    def _some(self) -> list[int]:
        """Row ids of a part of the rows, in an order by chance; all of them are too many."""
        every = sorted(self.model.rows)
        return self._draw.sample(every, self._draw.randint(1, max(1, len(every) * 2 // 3)))

    def _other(self, row_id: int) -> Values:
        key, number, text = self.model.rows[row_id].values
        return key, (number or 0) + self._draw.randint(1, 3), text

    def _addresses(self, row_ids: Sequence[int]) -> dict[int, int]:
        return {row_id: self.model.rows[row_id].address for row_id in row_ids}

    # Steps -------------------------------------------------------------------------------------

    def _create(self, *, stable_row_ids: bool) -> None:
        rows = self._new_rows(least=4)
        self.steps.append(Write(rows, stable_row_ids=stable_row_ids))
        self.model.append(files_of(rows))

    def append(self) -> None:
        """Rows behind the others."""
        rows = self._new_rows()
        self.steps.append(Write(rows))
        self.model.append(files_of(rows))

    def overwrite(self) -> None:
        """Rows in the place of the others."""
        rows = self._new_rows()
        self.steps.append(Write(rows, overwrites=True))
        self.model.overwrite(files_of(rows))

    def delete(self) -> None:
        """Some rows go; one at least stays."""
        if len(self.model.rows) > 1:
            deleted = self._some()
            self.steps.append(Change(self._addresses(deleted), deleted=deleted))
            self.model.change({}, deleted)

    def update(self) -> None:
        """Some rows get other values."""
        updated = {row_id: self._other(row_id) for row_id in self._some()}
        self.steps.append(Change(self._addresses(list(updated)), updated))
        self.model.change(updated)

    def update_to_the_same(self) -> None:
        """Some rows are written once more as they are."""
        updated = {row_id: self.model.rows[row_id].values for row_id in self._some()}
        self.steps.append(Change(self._addresses(list(updated)), updated))
        self.model.change(updated)

    def merge(self) -> None:
        """Some rows change, some go, some come."""
        met = self._some()
        deleted = met[: len(met) // 3]
        updated = {row_id: self._other(row_id) for row_id in met[len(deleted) :]}
        inserted = self._new_rows()
        self.steps.append(Change(self._addresses(met), updated, deleted, inserted))
        self.model.change(updated, deleted, inserted)

    def rewrite_columns(self) -> None:
        """Some rows get other values where they are."""
        updated = {row_id: self._other(row_id) for row_id in self._some()}
        by_address = {self.model.rows[row_id].address: new for row_id, new in updated.items()}
        self.steps.append(RewriteColumns(dict(sorted(by_address.items()))))
        self.model.rewrite_columns(updated)

    def compact(self) -> None:
        """One fragment, if there are several."""
        if len(self.model.fragments) > 1:
            self.steps.append(Compact())
            self.model.compact()

    def restore(self) -> None:
        """Any older version."""
        older = [number for number in self.model.versions if number != self.model.version]
        if older:
            version = self._draw.choice(older)
            self.steps.append(Restore(version))
            self.model.restore(version)

    def give_row_ids(self) -> None:
        """Of a table that was made without them."""
        created = self.steps[0]
        assert isinstance(created, Write)
        self.steps.append(GiveRowIds())
        self.model.give_row_ids([len(file) for file in files_of(created.rows)])

    def go_on_on_branch(self) -> None:
        """From the version before the newest."""
        version = self.model.version - 1
        self.steps.append(GoOnOnBranch(version))
        self.model.branch(version)
        self.branch = BRANCH

    def clean_up(self) -> None:
        """Two versions stay."""
        self.steps.append(CleanUp(2))
        self.model.forget(self.model.version - 1)


def files_of(rows: Sequence[Values]) -> list[Sequence[Values]]:
    """The rows of each file that a write makes."""
    return [rows[start : start + FILE_ROWS] for start in range(0, len(rows), FILE_ROWS)]
