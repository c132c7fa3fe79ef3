"""The histories of the tables of the set: random steps from a seed, and their model.

This reads and writes no files, so the expected results do not depend on any implementation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.model import TableModel, Values

FILE_ROWS = 3
BRANCH = "trial"


@dataclass(frozen=True)
class Write:
    """An append or overwrite, three rows per file."""

    rows: Sequence[Values]
    overwrites: bool = False  # Whether they replace all rows.
    stable_row_ids: bool | None = None  # Whether a new table has stable row ids.


@dataclass(frozen=True)
class Change:
    """A delete, an update or a merge."""

    addresses: Mapping[int, int]  # Addresses of updated and deleted rows, by row id.
    updated: Mapping[int, Values] = field(default_factory=dict)
    deleted: Sequence[int] = ()
    inserted: Sequence[Values] = ()


@dataclass(frozen=True)
class RewriteColumns:
    """An update by rewritten columns, by address."""

    updated: Mapping[int, Values]


@dataclass(frozen=True)
class Compact:
    """A compaction into one fragment."""


@dataclass(frozen=True)
class Restore:
    """A restore of an old version."""

    version: int


@dataclass(frozen=True)
class GiveRowIds:
    """Enable stable row ids."""


@dataclass(frozen=True)
class GoOnOnBranch:
    """A branch at a version, to which later steps write."""

    version: int


@dataclass(frozen=True)
class CleanUp:
    """A cleanup that retains some of the newest versions."""

    retain: int


Step = Write | Change | RewriteColumns | Compact | Restore | GiveRowIds | GoOnOnBranch | CleanUp

# Every operation once, after the steps that it needs, and before steps that show its effect.
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
    """The steps of one table, and its model.

    Args:
        name: One of ``HISTORIES``; any other is a random one.
        seed: The seed of the values and of the changed rows.
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
        """Return row ids of some, but not all rows, in random order."""
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
        """Append rows."""
        rows = self._new_rows()
        self.steps.append(Write(rows))
        self.model.append(files_of(rows))

    def overwrite(self) -> None:
        """Replace all rows."""
        rows = self._new_rows()
        self.steps.append(Write(rows, overwrites=True))
        self.model.overwrite(files_of(rows))

    def delete(self) -> None:
        """Delete some rows, but not all."""
        if len(self.model.rows) > 1:
            deleted = self._some()
            self.steps.append(Change(self._addresses(deleted), deleted=deleted))
            self.model.change({}, deleted)

    def update(self) -> None:
        """Update some rows."""
        updated = {row_id: self._other(row_id) for row_id in self._some()}
        self.steps.append(Change(self._addresses(list(updated)), updated))
        self.model.change(updated)

    def update_to_the_same(self) -> None:
        """Update some rows to their current values."""
        updated = {row_id: self.model.rows[row_id].values for row_id in self._some()}
        self.steps.append(Change(self._addresses(list(updated)), updated))
        self.model.change(updated)

    def merge(self) -> None:
        """Update, delete and insert some rows."""
        met = self._some()
        deleted = met[: len(met) // 3]
        updated = {row_id: self._other(row_id) for row_id in met[len(deleted) :]}
        inserted = self._new_rows()
        self.steps.append(Change(self._addresses(met), updated, deleted, inserted))
        self.model.change(updated, deleted, inserted)

    def rewrite_columns(self) -> None:
        """Update some rows in place."""
        updated = {row_id: self._other(row_id) for row_id in self._some()}
        by_address = {self.model.rows[row_id].address: new for row_id, new in updated.items()}
        self.steps.append(RewriteColumns(dict(sorted(by_address.items()))))
        self.model.rewrite_columns(updated)

    def compact(self) -> None:
        """Compact into one fragment, if there are several."""
        if len(self.model.fragments) > 1:
            self.steps.append(Compact())
            self.model.compact()

    def restore(self) -> None:
        """Restore a random older version."""
        older = [number for number in self.model.versions if number != self.model.version]
        if older:
            version = self._draw.choice(older)
            self.steps.append(Restore(version))
            self.model.restore(version)

    def give_row_ids(self) -> None:
        """Enable stable row ids in a table without them."""
        created = self.steps[0]
        assert isinstance(created, Write)
        self.steps.append(GiveRowIds())
        self.model.give_row_ids([len(file) for file in files_of(created.rows)])

    def go_on_on_branch(self) -> None:
        """Create a branch from the version before the newest."""
        version = self.model.version - 1
        self.steps.append(GoOnOnBranch(version))
        self.model.branch(version)
        self.branch = BRANCH

    def clean_up(self) -> None:
        """Clean up all but two versions."""
        self.steps.append(CleanUp(2))
        self.model.forget(self.model.version - 1)


def files_of(rows: Sequence[Values]) -> list[Sequence[Values]]:
    """Return the rows of each file of a write."""
    return [rows[start : start + FILE_ROWS] for start in range(0, len(rows), FILE_ROWS)]
