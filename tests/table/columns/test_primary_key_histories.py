"""A declared primary key is the same for this package and for pylance after any change."""

from __future__ import annotations

import random

import lance
import pyarrow as pa
import pytest
from local_changes import merge_rows
from row_changes import insert, matched_update
from table_access import write_table

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.schema import primary_key
from pyspark_lance.table.columns.change_columns import (
    change_nullability,
    drop_columns,
    rename_column,
    set_primary_key,
)
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

MARK = "lance-schema:unenforced-primary-key"


class KeyedTable:
    """A table, and the key and the columns that it must have; each step is by either side."""

    def __init__(self, path, rng):
        self.path, self.table, self.rng = path, Table(path), rng
        self.key, self.names = (), ["a", "b", "c"]
        self.history = {}
        columns = {"a": pa.int64(), "b": pa.string(), "c": pa.int32()}
        schema = pa.schema([pa.field(*one, nullable=False) for one in columns.items()])
        write_table(path, pa.table({"a": [1, 2], "b": ["x", "y"], "c": [3, 4]}, schema=schema))

    def step(self, ours):
        self.history[lance.dataset(self.path).version] = self.key, list(self.names)
        work = (self.declare, self.rename, self.drop, self.restore, self.overwrite, self.merge)
        self.rng.choice(work)(ours)

    def check(self):
        fields = lance.dataset(self.path).schema
        marks = {one.name: one.metadata or {} for one in fields}
        keys = [
            (int(of.get(f"{MARK}:position".encode(), b"9")), name)
            for name, of in marks.items()
            if MARK.encode() in of
        ]
        assert tuple(name for _, name in sorted(keys)) == self.key
        assert primary_key(Snapshot.open(self.table).schema) == self.key
        assert fields.names == self.names
        lance.dataset(self.path).validate()

    def declare(self, ours):
        key = tuple(self.rng.sample(self.names, self.rng.randint(1, len(self.names))))
        if ours and self.key not in ((), key):
            with pytest.raises(InvalidInputError, match="which cannot be changed"):
                set_primary_key(self.table, key)
        elif ours:
            set_primary_key(self.table, key)
            self.key = key
        elif not self.key:
            updates = {
                name: {MARK: "true", f"{MARK}:position": str(place)}
                for place, name in enumerate(key, 1)
            }
            lance.dataset(self.path).update_field_metadata(updates)
            self.key = key

    def rename(self, ours):
        place = self.rng.randrange(len(self.names))
        old, new = self.names[place], self.names[place] + "x"
        if ours:
            rename_column(self.table, old, new)
        else:
            lance.dataset(self.path).alter_columns({"path": old, "name": new})
        self.names[place] = new
        self.key = tuple(new if name == old else name for name in self.key)

    def drop(self, ours):
        if len(self.names) == 1:
            return
        name = self.rng.choice(self.names)
        if ours and name in self.key:
            with pytest.raises(InvalidInputError, match="part of the table's key"):
                drop_columns(self.table, [name])
            return
        drop_columns(self.table, [name]) if ours else lance.dataset(self.path).drop_columns([name])
        self.names.remove(name)
        self.key = tuple(one for one in self.key if one != name)

    def restore(self, ours):
        version = self.rng.choice(list(self.history))
        if ours:
            restore(self.table, VersionSpec(version=version))
        elif version != lance.dataset(self.path).version:
            lance.dataset(self.path, version=version).restore()
        self.key, names = self.history[version]
        self.names = list(names)

    def overwrite(self, ours):
        rows = lance.dataset(self.path).to_table()
        if ours:
            write_table(self.path, rows, overwrite=True)
        else:
            lance.write_dataset(rows, self.path, mode="overwrite")

    def merge(self, ours):
        if not self.key:
            return
        with pytest.raises(InvalidInputError, match="never null"):
            change_nullability(self.table, self.key[0], nullable=True, has_nulls=lambda *_: False)
        rows = lance.dataset(self.path).to_table().slice(0, 1)
        if ours:
            clauses = [matched_update(rows.column_names), insert(rows.column_names)]
            merge_rows(self.path, rows, list(self.key), clauses)
        else:
            merge = lance.dataset(self.path).merge_insert(list(self.key))
            merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)


@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(6, 300), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_histories_keep_primary_key(tmp_path, seeds):
    for seed in seeds:
        rng = random.Random(seed)
        table = KeyedTable(str(tmp_path / f"t{seed}"), rng)
        for _ in range(8):
            table.step(ours=rng.random() < 0.5)
            table.check()
