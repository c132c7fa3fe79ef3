"""A table as a dict of rows: what every history must come out as."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Row:
    """One row: its values and when it was made and last changed."""

    values: dict[str, object]
    created: int
    updated: int


@dataclass
class ReferenceTable:
    """Rows by row id; every effective change makes one version."""

    version: int = 0
    next_row_id: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    history: dict[int, dict[int, Row]] = field(default_factory=dict)

    def _next_version(self) -> int:
        self.version += 1
        return self.version

    def commit(self) -> None:
        """Remembers the version that was made."""
        self.history[self.version] = copy.deepcopy(self.rows)

    def _insert(self, values: list[dict[str, object]]) -> None:
        for one in values:
            self.rows[self.next_row_id] = Row(dict(one), self.version, self.version)
            self.next_row_id += 1

    def append(self, values: list[dict[str, object]]) -> None:
        if values or self.version == 0:
            self._next_version()
            self._insert(values)
            self.commit()

    def overwrite(self, values: list[dict[str, object]]) -> None:
        self._next_version()
        self.rows = {}
        self._insert(values)
        self.commit()

    def delete(self, condition: Callable[[dict[str, object]], bool]) -> int:
        gone = [key for key, row in self.rows.items() if condition(row.values)]
        if gone:
            self._next_version()
            for key in gone:
                del self.rows[key]
            self.commit()
        return len(gone)

    def update(self, condition, change) -> int:
        hit = [row for row in self.rows.values() if condition(row.values)]
        if hit:
            self._next_version()
            for row in hit:
                row.values.update(change(row.values))
                row.updated = self.version
            self.commit()
        return len(hit)

    def restore(self, version: int) -> None:
        self._next_version()
        self.rows = copy.deepcopy(self.history[version])
        self.commit()

    def same_rows(self, version: int) -> None:
        """Somebody made versions that change no row."""
        for number in range(self.version + 1, version + 1):
            self.version = number
            self.commit()

    def merge(self, source, key, clauses) -> tuple[int, int, int] | str:
        """Counts of inserted, updated and deleted rows, or ``ambiguous``.

        Args:
            source: Rows.
            key: The column to match on.
            clauses: (match, action, condition(target, source), columns); first that applies.
        """
        matched_clauses = [c for c in clauses if c[0] == "matched"]
        unconditional_delete = len(matched_clauses) == 1 and matched_clauses[0][1:3] == (
            "delete",
            None,
        )
        only_matched = len(matched_clauses) == len(clauses)
        met: dict[int, int] = {}
        plan: list[tuple[str, int | None, dict | None, list]] = []
        matched_rows = set()
        for new in source:
            pairs = [
                row_id
                for row_id, row in self.rows.items()
                if new[key] is not None and row.values[key] == new[key]
            ]
            matched_rows.update(pairs)
            for row_id in pairs or [None]:
                match = "not matched" if row_id is None else "matched"
                old = None if row_id is None else self.rows[row_id].values
                clause = _first(clauses, match, old, new)
                if row_id is not None and (clause is not None or not only_matched):
                    met[row_id] = met.get(row_id, 0) + 1
                if clause is not None:
                    plan.append((clause[1], row_id, new, clause[3]))
        if matched_clauses and not unconditional_delete and any(n > 1 for n in met.values()):
            return "ambiguous"
        for row_id, row in self.rows.items():
            if row_id not in matched_rows:
                clause = _first(clauses, "not matched by source", row.values, None)
                if clause is not None:
                    plan.append((clause[1], row_id, None, clause[3]))
        return self._carry_out(plan)

    def _carry_out(self, plan) -> tuple[int, int, int]:
        if not plan:
            return (0, 0, 0)
        self._next_version()
        deleted = {row_id for action, row_id, _, _ in plan if action == "delete"}
        updated = 0
        for action, row_id, new, columns in plan:
            if action == "update":
                row = self.rows[row_id]
                row.values.update({name: new[name] for name in columns})
                row.updated = self.version
                updated += 1
        for row_id in deleted:
            del self.rows[row_id]
        inserted = [
            {**dict.fromkeys(("id", "n", "s")), **{name: new[name] for name in columns}}
            for action, _, new, columns in plan
            if action == "insert"
        ]
        self._insert(inserted)
        self.commit()
        return (len(inserted), updated, len(deleted))


def _first(clauses, match, old, new):
    """The first clause that applies; a condition that is null does not."""
    for clause in clauses:
        if clause[0] == match and (clause[2] is None or clause[2](old, new) is True):
            return clause
    return None
