"""A model of a table as a dict of rows, which computes expected results without reading files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Values = tuple[int | None, int | None, str | None]
"""Values of the columns ``key``, ``n`` and ``s``."""

Answer = dict[str, Any]
"""A JSON object: lists, dicts, numbers and strings."""

CHANGE_KINDS = ("insert", "update_preimage", "update_postimage", "delete")

_FRAGMENT = 1 << 32


@dataclass(frozen=True)
class Row:
    """One row of one version."""

    values: Values
    address: int  # Fragment × 2³² + offset.
    created: int  # Version that inserted it.
    updated: int  # Version that inserted or last changed it.


class TableModel:
    """Rows by row id in every version; each method but ``forget`` adds one version or more.

    The placement of rows is up to the writer; the model follows this package: changed rows of one
    version go into one new fragment, by address, followed by new rows.
    """

    def __init__(self) -> None:
        self.versions: dict[int, dict[int, Row]] = {}
        # Versions without stable row ids.
        self.without_ids: set[int] = set()
        self.version = 0
        self.rows: dict[int, Row] = {}
        self.next_row_id = 0
        self.next_fragment = 0
        self._counters: dict[int, tuple[int, int]] = {}

    def _commit(self, rows: Mapping[int, Row]) -> None:
        self.rows = dict(rows)
        self.versions[self.version] = self.rows
        self._counters[self.version] = self.next_row_id, self.next_fragment

    def _inserted(self, files: Sequence[Sequence[Values]]) -> dict[int, Row]:
        rows = {}
        for file in files:
            for offset, values in enumerate(file):
                address = self.next_fragment * _FRAGMENT + offset
                rows[self.next_row_id] = Row(values, address, self.version, self.version)
                self.next_row_id += 1
            self.next_fragment += 1
        return rows

    def append(self, files: Sequence[Sequence[Values]]) -> None:
        """Append rows; each file is a separate fragment."""
        self.version += 1
        self._commit({**self.rows, **self._inserted(files)})

    def overwrite(self, files: Sequence[Sequence[Values]]) -> None:
        """Replace all rows."""
        self.version += 1
        self._commit(self._inserted(files))

    def change(
        self,
        updated: Mapping[int, Values],
        deleted: Sequence[int] = (),
        inserted: Sequence[Values] = (),
    ) -> None:
        """Apply a delete, an update or a merge: updated rows move."""
        self.version += 1
        rows = {
            row_id: row
            for row_id, row in self.rows.items()
            if row_id not in updated and row_id not in deleted
        }
        first = self.next_fragment * _FRAGMENT
        moved = sorted(updated, key=lambda row_id: self.rows[row_id].address)
        for offset, row_id in enumerate(moved):
            created = self.rows[row_id].created
            rows[row_id] = Row(updated[row_id], first + offset, created, self.version)
        for offset, values in enumerate(inserted, len(moved)):
            rows[self.next_row_id] = Row(values, first + offset, self.version, self.version)
            self.next_row_id += 1
        self.next_fragment += bool(updated or inserted)
        self._commit(rows)

    def rewrite_columns(self, updated: Mapping[int, Values]) -> None:
        """Update rows in place, by rewriting columns."""
        self.version += 1
        rows = dict(self.rows)
        for row_id, values in updated.items():
            rows[row_id] = replace(rows[row_id], values=values, updated=self.version)
        self._commit(rows)

    def compact(self) -> None:
        """Move all rows into one fragment."""
        self.version += 1
        moved = sorted(self.rows, key=lambda row_id: self.rows[row_id].address)
        first = self.next_fragment * _FRAGMENT
        self.next_fragment += 1
        places = {row_id: first + offset for offset, row_id in enumerate(moved)}
        self._commit(
            {row_id: replace(row, address=places[row_id]) for row_id, row in self.rows.items()}
        )

    def restore(self, version: int) -> None:
        """Restore an old version; ids that were assigned since are not reused."""
        self.version += 1
        self._commit(self.versions[version])

    def give_row_ids(self, sizes: Sequence[int]) -> None:
        """Enable stable row ids: assign one to each physical row, including deleted ones.

        Args:
            sizes: Physical rows of each fragment; ids count from 0. Empty fragments are removed.
        """
        self.without_ids = set(self.versions)
        self.version += 1
        left = [size if number in self.fragments else 0 for number, size in enumerate(sizes)]
        starts = [sum(left[:number]) for number in range(len(left))]
        rows = {}
        for row in self.rows.values():
            row_id = starts[row.address // _FRAGMENT] + row.address % _FRAGMENT
            rows[row_id] = replace(row, created=self.version, updated=self.version)
        self.next_row_id = sum(left)
        self._commit(rows)

    def branch(self, version: int) -> None:
        """Continue after an old version; the branch has no other earlier version."""
        self.version = version
        self.versions = {version: self.versions[version]}
        self.next_row_id, self.next_fragment = self._counters[version]
        self._commit(self.versions[version])

    def forget(self, before: int) -> None:
        """Clean up the versions before one."""
        self.versions = {number: rows for number, rows in self.versions.items() if number >= before}

    @property
    def fragments(self) -> set[int]:
        """Return the fragments with rows in the newest version."""
        return {row.address // _FRAGMENT for row in self.rows.values()}

    # Responses ---------------------------------------------------------------------------------

    def answer_rows(self, version: int) -> Answer:
        """Return id, address, created, last updated and values of each row, by row id."""
        if version not in self.versions:
            return {"error": "not found"}
        rows = self.versions[version].items()
        return {
            "rows": [
                [row_id, row.address, row.created, row.updated, list(row.values)]
                for row_id, row in sorted(rows)
            ]
        }

    def answer_changes(self, start: int, end: int) -> Answer:
        """Return version, row id and values of each change, by kind of change."""
        if end not in self.versions or (start > 1 and start - 1 not in self.versions):
            return {"error": "not found"}
        if set(range(start - 1, end + 1)) & self.without_ids:
            return {"error": "unsupported"}
        found: dict[str, list[list[Any]]] = {kind: [] for kind in CHANGE_KINDS}
        for version in range(start, end + 1):
            before, after = self.versions.get(version - 1, {}), self.versions[version]
            for kind, row_id, values in _differences(before, after):
                found[kind].append([version, row_id, list(values)])
        return {"changes": {kind: sorted(found[kind]) for kind in CHANGE_KINDS}}


def _differences(
    before: Mapping[int, Row], after: Mapping[int, Row]
) -> Iterator[tuple[str, int, Values]]:
    for row_id, row in before.items():
        if row_id not in after:
            yield "delete", row_id, row.values
        elif after[row_id].values != row.values:
            yield "update_preimage", row_id, row.values
            yield "update_postimage", row_id, after[row_id].values
    for row_id, row in after.items():
        if row_id not in before:
            yield "insert", row_id, row.values
