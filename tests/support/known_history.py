"""A table that changes at random, and what its versions are: rows, and which column is which."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pyarrow as pa
from local_changes import delete_rows, update_rows
from table_access import read_ours, write_table

from pyspark_lance.table.columns.change_columns import (
    add_columns,
    add_null_columns,
    compute_columns,
    copy_column,
    drop_columns,
    rename_column,
    widen_column,
)
from pyspark_lance.table.refs import create_branch
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

NAMES = ("x", "y", "z")


@dataclasses.dataclass(frozen=True)
class Version:
    """Columns: name -> which one it is. Rows: row id -> which one it is -> value."""

    columns: dict[str, int]
    rows: dict[int, dict[int, int | None]]

    def shown(self, columns: dict[str, int]) -> dict[int, tuple]:
        return {
            row: tuple(values.get(column) for column in columns.values())
            for row, values in self.rows.items()
        }


class History:
    """A table that changes at random, and what each of its versions is."""

    def __init__(self, path: str, seed: int) -> None:
        self.path, self.rng = path, np.random.default_rng(seed)
        self.table, self.next_id, self.next_column = Table(path), 0, 2
        self.first = 1
        self.columns = {"id": 0, "x": 1}
        self.versions: list[Version] = []
        self.append()

    def draw(self, most: int) -> int:
        return int(self.rng.integers(most))

    def chosen(self) -> str | None:
        names = [name for name in self.columns if name != "id"]
        return names[self.draw(len(names))] if names else None

    def append(self) -> None:
        schema = pa.schema([("id", pa.int64())])
        if self.versions:
            schema = Snapshot.open(self.table).schema.to_arrow()
        else:
            schema = pa.schema([("id", pa.int64()), ("x", pa.int16())])
        count = 1 + self.draw(4)
        data = {name: [self.draw(3) for _ in range(count)] for name in self.columns}
        data["id"] = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        write_table(self.path, pa.table(data, schema), max_rows_per_file=2)

    def add(self) -> None:
        name = NAMES[self.draw(len(NAMES))]
        if name in self.columns:
            return
        kind = pa.int16()
        if self.draw(2):
            add_null_columns(self.table, pa.schema([(name, kind)]))
        else:
            add_times(self.table, name, 1 + self.draw(3))
        self.columns[name] = self.next_column
        self.next_column += 1

    def drop(self) -> None:
        name = self.chosen()
        if name is not None:
            drop_columns(self.table, [name])
            del self.columns[name]

    def rename(self) -> None:
        old, new = self.chosen(), NAMES[self.draw(len(NAMES))]
        if old is not None and new not in self.columns:
            rename_column(self.table, old, new)
            self.columns = {new if n == old else n: c for n, c in self.columns.items()}

    def widen(self) -> None:
        name = self.chosen()
        schema = Snapshot.open(self.table).schema.to_arrow()
        if name is not None and schema.field(name).type == pa.int16():
            widen_column(self.table, name, pa.int32(), copy_column(name))

    def update(self) -> None:
        name = self.chosen()
        if name is None:
            return
        kind = Snapshot.open(self.table).schema.to_arrow().field(name).type
        number = self.draw(3)
        update_rows(
            self.path, f"id % 3 = {self.draw(3)}", [name],
            lambda batch: {name: pa.array([number] * batch.num_rows, kind)},
        )  # fmt: skip

    def delete(self) -> None:
        delete_rows(self.path, f"id % 4 = {self.draw(4)}")

    def restore(self) -> None:
        """One that is far back, and perhaps the same once more."""
        for _ in range(1 + self.draw(2)):
            there = len(self.versions) - self.first + 1
            version = self.first + self.draw(min(4, there))
            restore(self.table, VersionSpec(version=version))
            self.columns = dict(self.versions[version - 1].columns)
            self.note()

    def fork(self, name: str, version: int) -> History:
        """A branch, which has its first version in common with this line."""
        create_branch(self.table, name, VersionSpec(version=version))
        branch = copy.copy(self)
        branch.table = self.table.on_branch(name)
        branch.path, branch.first = branch.table.uri, version
        branch.versions = self.versions[:version]
        branch.columns = dict(self.versions[version - 1].columns)
        return branch

    def note(self) -> None:
        """Take down what the newest version is, if it is a new one."""
        if Snapshot.open(self.table).version == len(self.versions):
            return
        read = read_ours(self.path, system_columns=("_rowid",)).to_pylist()
        rows = {
            row["_rowid"]: {column: row[name] for name, column in self.columns.items()}
            for row in read
        }
        self.versions.append(Version(dict(self.columns), rows))
        assert Snapshot.open(self.table).version == len(self.versions)

    def change_rows(self) -> None:
        self.note()
        [self.append, self.update, self.delete][self.draw(3)]()
        self.note()

    def step(self) -> None:
        steps = [self.append, self.add, self.add, self.drop, self.drop, self.rename, self.widen,
                 self.update, self.delete, self.restore, self.restore, self.restore]  # fmt: skip
        self.note()
        steps[self.draw(len(steps))]()
        self.note()


def add_times(table: Table, name: str, factor: int) -> None:
    """A column that is the id so many times."""

    def values(batch: pa.RecordBatch) -> list[pa.Array]:
        return [pa.array([one * factor for one in batch["id"].to_pylist()], pa.int16())]

    add_columns(table, pa.schema([(name, pa.int16())]), compute_columns(["id"], values))


def expected(history: History, start: int, end: int) -> list[tuple]:
    """What the window shows, in the columns of its last version."""
    columns = history.versions[end - 1].columns
    found = []
    for version in range(start, end + 1):
        before = history.versions[version - 2].shown(columns) if version > 1 else {}
        after = history.versions[version - 1].shown(columns)
        found += [(version, "delete", row, *v) for row, v in before.items() if row not in after]
        found += [(version, "insert", row, *v) for row, v in after.items() if row not in before]
        for row in before.keys() & after.keys():
            if before[row] != after[row]:
                found.append((version, "update_preimage", row, *before[row]))
                found.append((version, "update_postimage", row, *after[row]))
    return sorted(found, key=repr)
