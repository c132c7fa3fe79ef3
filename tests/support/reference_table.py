"""A table as a dict of rows: what every history must come out as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Row:
    """One row: its values and when it was made and last changed."""

    values: Mapping[str, object]
    created: int
    updated: int


@dataclass
class ReferenceTable:
    """Rows by row id; every effective change makes one version.

    Attributes:
        columns: Name to type (of any kind; the model keeps it and never looks).
        history: Of each version, the columns and the rows.
        identities: Of each column, a number that it keeps when its name or type changes.
        identity_history: The same of each version.
    """

    columns: dict[str, object] = field(default_factory=dict)
    version: int = 0
    next_row_id: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    history: dict[int, tuple[dict[str, object], dict[int, Row]]] = field(default_factory=dict)
    identities: dict[str, int] = field(default_factory=dict)
    identity_history: dict[int, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next_identity = 0
        for name in self.columns:
            self._identify(name)

    def _identify(self, name: str) -> None:
        self._next_identity += 1
        self.identities[name] = self._next_identity

    def _next_version(self) -> int:
        self.version += 1
        return self.version

    def _commit(self) -> None:
        """Remember the version that was made."""
        self.history[self.version] = (dict(self.columns), dict(self.rows))
        self.identity_history[self.version] = dict(self.identities)

    def _insert(self, values: list[dict[str, object]]) -> None:
        for one in values:
            every = {name: one.get(name) for name in self.columns}
            self.rows[self.next_row_id] = Row(every, self.version, self.version)
            self.next_row_id += 1

    def _update(self, row_id: int, change: Mapping[str, object]) -> None:
        row = self.rows[row_id]
        self.rows[row_id] = Row({**row.values, **change}, row.created, self.version)

    def matching(self, condition: Callable[[Mapping[str, object]], bool]) -> list[int]:
        """Ids of the rows for which the condition holds."""
        return [row_id for row_id, row in self.rows.items() if condition(row.values)]

    # Rows ------------------------------------------------------------------------------------

    def migrate(self, version: int, physical_rows: int, rows: Mapping[int, Mapping]) -> None:
        """Begin with a table whose rows got ids: one for each that lies there, deleted or not."""
        self.version = version
        self.next_row_id = physical_rows
        self.rows = {row_id: Row(values, version, version) for row_id, values in rows.items()}
        self._commit()

    def append(self, values: list[dict[str, object]]) -> None:
        if values or self.version == 0:
            self._next_version()
            self._insert(values)
            self._commit()

    def overwrite(self, values, columns: Mapping[str, object] | None = None) -> None:
        self._next_version()
        self.rows = {}
        self.columns = dict(self.columns if columns is None else columns)
        self.identities = {name: self.identities.get(name) for name in self.columns}
        for name in self.columns:
            if self.identities[name] is None:
                self._identify(name)
        self._insert(values)
        self._commit()

    def replace_where(self, condition, values) -> None:
        gone = self.matching(condition)
        if gone or values:
            self._next_version()
            for row_id in gone:
                del self.rows[row_id]
            self._insert(values)
            self._commit()

    def delete(self, condition) -> int:
        gone = self.matching(condition)
        if gone:
            self._next_version()
            for row_id in gone:
                del self.rows[row_id]
            self._commit()
        return len(gone)

    def update(self, condition, change) -> int:
        hit = self.matching(condition)
        if hit:
            self._next_version()
            for row_id in hit:
                self._update(row_id, change(self.rows[row_id].values))
            self._commit()
        return len(hit)

    def merge(self, source, key, clauses) -> tuple[int, int, int] | str:
        """Counts of inserted, updated and deleted rows, or ``ambiguous``.

        Args:
            source: Rows.
            key: The column to match on.
            clauses: (match, action, condition(target, source), values); first that applies.
                Values are the columns to take from the source, or constants by column.
        """
        matched_clauses = [c for c in clauses if c[0] == "matched"]
        unconditional_delete = len(matched_clauses) == 1 and matched_clauses[0][1:3] == (
            "delete",
            None,
        )
        only_matched = len(matched_clauses) == len(clauses)
        met: dict[int, int] = {}
        plan: list[tuple[str, int | None, dict[str, object]]] = []
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
                    plan.append((clause[1], row_id, _values(clause[3], new)))
        if matched_clauses and not unconditional_delete and any(n > 1 for n in met.values()):
            return "ambiguous"
        for row_id, row in self.rows.items():
            if row_id not in matched_rows:
                clause = _first(clauses, "not matched by source", row.values, None)
                if clause is not None:
                    plan.append((clause[1], row_id, _values(clause[3], {})))
        return self._carry_out(plan)

    def _carry_out(self, plan) -> tuple[int, int, int]:
        if not plan:
            return (0, 0, 0)
        self._next_version()
        deleted = {row_id for action, row_id, _ in plan if action == "delete"}
        updated = [(row_id, values) for action, row_id, values in plan if action == "update"]
        for row_id, values in updated:
            self._update(row_id, values)
        for row_id in deleted:
            del self.rows[row_id]
        inserted = [values for action, _, values in plan if action == "insert"]
        self._insert(inserted)
        self._commit()
        return (len(inserted), len(updated), len(deleted))

    # Columns ---------------------------------------------------------------------------------

    def add_column(self, name: str, kind: object, value=None) -> None:
        """A new column: of nulls, which touches no row, or with values, which touches all."""
        self._next_version()
        self.columns[name] = kind
        self._identify(name)
        for row_id, row in self.rows.items():
            if value is None:
                self.rows[row_id] = replace(row, values={**row.values, name: None})
            else:
                self._update(row_id, {name: value(row.values)})
        self._commit()

    def append_with_column(self, name: str, kind: object, values) -> None:
        """Rows with a column that the table lacks, in one version."""
        self.add_column(name, kind)
        self._insert(values)
        self._commit()

    def drop_column(self, name: str) -> None:
        self._next_version()
        del self.columns[name], self.identities[name]
        for row_id, row in self.rows.items():
            rest = {key: value for key, value in row.values.items() if key != name}
            self.rows[row_id] = replace(row, values=rest)
        self._commit()

    def rename_column(self, name: str, new: str) -> None:
        self._next_version()
        self.columns = {new if key == name else key: kind for key, kind in self.columns.items()}
        self.identities[new] = self.identities.pop(name)
        for row_id, row in self.rows.items():
            values = {new if key == name else key: value for key, value in row.values.items()}
            self.rows[row_id] = replace(row, values=values)
        self._commit()

    def widen_column(self, name: str, kind: object, written: set[int]) -> None:
        """Another type: the rows of which values are written count as updated."""
        self._next_version()
        self.columns[name] = kind
        for row_id in written:
            self._update(row_id, {})
        self._commit()

    # Versions --------------------------------------------------------------------------------

    def restore(self, version: int) -> None:
        self._next_version()
        columns, rows = self.history[version]
        self.columns, self.rows = dict(columns), dict(rows)
        self.identities = dict(self.identity_history[version])
        self._commit()

    def same_rows(self, version: int) -> None:
        """Another writer made versions that change no row."""
        for number in range(self.version + 1, version + 1):
            self.version = number
            self._commit()

    # Changes ---------------------------------------------------------------------------------

    def changes(self, start: int, end: int, mode: str) -> list[tuple]:
        """What a change feed of the versions must hold: (type, row id, version, values), sorted.

        Values are those of the columns at ``end``; net changes are without versions.
        """
        found = []
        if mode == "netChanges":
            before, after = self._shown(start - 1, end), self._shown(end, end)
            return sorted(_differences(before, after, stamps=False), key=repr)
        for version in range(start, end + 1):
            before, after = self._shown(version - 1, end), self._shown(version, end)
            for kind, row_id, values in _differences(before, after, stamps=mode == "none"):
                found.append((kind, row_id, version, values))
        return sorted(found, key=repr)

    def _shown(self, version: int, end: int) -> dict[int, tuple[Row, tuple]]:
        """The rows of a version, with their values in the columns at ``end``."""
        if version not in self.history:
            return {}
        name_of = {number: name for name, number in self.identity_history[version].items()}
        names = [name_of.get(self.identity_history[end][name]) for name in self.history[end][0]]
        return {
            row_id: (row, tuple(row.values[n] if n else None for n in names))
            for row_id, row in self.history[version][1].items()
        }


def _differences(before, after, *, stamps):
    """Changes of single rows."""
    for row_id, (_, values) in before.items():
        if row_id not in after:
            yield "delete", row_id, values
    for row_id, (row, values) in after.items():
        if row_id not in before:
            yield "insert", row_id, values
            continue
        old, old_values = before[row_id]
        stamped = (old.created, old.updated) != (row.created, row.updated)
        if old_values != values or (stamps and stamped):
            yield "update_preimage", row_id, old_values
            yield "update_postimage", row_id, values


def _values(values, new) -> dict[str, object]:
    if isinstance(values, Mapping):
        return dict(values)
    return {name: new[name] for name in values}


def _first(clauses, match, old, new):
    """The first clause that applies; a condition that is null does not."""
    for clause in clauses:
        if clause[0] == match and (clause[2] is None or clause[2](old, new) is True):
            return clause
    return None
