"""Random histories of columns, members, blobs and restores: feeds agree with themselves and scans.

The changes since the beginning, applied one after the other, find each old value where they say
that it is, and end with the rows of the last version; those of each shorter window are among them.
"""

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import update_rows
from random_seeds import seeds
from table_access import forget_transactions, read_changes, read_ours, write_table

from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop
BLOB = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
KINDS = [pa.int32(), pa.int64(), pa.string()]


class History:
    """A table that changes at random."""

    def __init__(self, path, seed):
        self.path, self.rng, self.next_id = path, np.random.default_rng(seed), 0
        members = pa.struct([("a", pa.int64()), ("b", pa.int64())])
        self.append(pa.schema([("id", pa.int64()), ("x", pa.int64()), ("s", members), BLOB]))

    def number(self, most):
        return int(self.rng.integers(most))

    def value(self, kind):
        if pa.types.is_struct(kind):
            return {member.name: self.value(member.type) for member in kind}
        if pa.types.is_integer(kind):
            return self.number(5)
        return bytes([97 + self.number(3)]) if pa.types.is_large_binary(kind) else "abc"

    def append(self, schema=None):
        if schema is None:
            schema = Snapshot.open(Table(self.path)).schema.to_arrow()
            members = list(schema.field("s").type)
            name, kind = f"m{self.number(3)}", KINDS[self.number(3)]
            if self.number(2) and name not in [member.name for member in members]:
                place = schema.get_field_index("s")
                schema = schema.set(place, pa.field("s", pa.struct([*members, (name, kind)])))
        rows = {f.name: [self.value(f.type) for _ in range(5)] for f in schema}
        rows["id"] = list(range(self.next_id, self.next_id + 5))
        self.next_id += 5
        write_table(self.path, pa.table(rows, schema), merge_schema=True, max_rows_per_file=3)

    def drop_member(self):
        names = [one.name for one in lance.dataset(self.path).schema.field("s").type]
        if len(names) > 1:
            lance.dataset(self.path).drop_columns([f"s.{names[self.number(len(names))]}"])

    def rename(self):
        old = "x" if "x" in lance.dataset(self.path).schema.names else "y"
        new = "y" if old == "x" else "x"
        lance.dataset(self.path).alter_columns({"path": old, "name": new})

    def change_type(self):
        name = "x" if "x" in lance.dataset(self.path).schema.names else "y"
        kind = KINDS[self.number(2)]
        if lance.dataset(self.path).schema.field(name).type != kind:
            lance.dataset(self.path).alter_columns({"path": name, "data_type": kind})

    def replace_blobs(self):
        def values(batch):
            blobs = [self.value(pa.large_binary()) for _ in range(batch.num_rows)]
            return {"blob": pa.array(blobs, pa.large_binary())}

        update_rows(self.path, f"id % 3 = {self.number(3)}", ["blob"], values)

    def restore(self):
        version = 1 + self.number(Snapshot.open(Table(self.path)).version)
        lance.dataset(self.path, version=version).restore()

    def delete(self):
        lance.dataset(self.path).delete(f"id % 5 = {self.number(5)}")

    def empty(self):
        lance.dataset(self.path).delete("true")

    def compact(self):
        lance.dataset(self.path).optimize.compact_files()

    def step(self):
        steps = [
            self.append, self.append, self.drop_member, self.rename, self.change_type,
            self.replace_blobs, self.restore, self.delete, self.compact, self.empty,
        ]  # fmt: skip
        steps[self.number(len(steps))]()


def rows_of(table, names):
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def printable(value):
    """Where no member is known, fragments differ in whether they know that there is a struct."""
    return None if isinstance(value, dict) and set(value.values()) == {None} else value


@pytest.mark.parametrize("seed", seeds(40, in_ci=5))
def test_changes_lead_from_each_version_to_later_versions(tmp_path, seed):
    path = str(tmp_path / "t")
    history = History(path, seed)
    for _ in range(9):
        history.step()
    if seed % 2:
        forget_transactions(path, keep_files=True)
    last = Snapshot.open(Table(path))
    schema = logical_schema(last.schema, binary_blobs={"blob"})
    names = [field.name for field in schema.fields]
    asked = {"shown": schema.fields, "columns": schema.fields}
    keys = ["_commit_version", "_change_type", "_rowid"]

    def feed(start, mode):
        found = read_changes(path, start, last.version, mode, **asked)
        rows = rows_of(found, [*keys, *names])
        return [(row[:3], repr(tuple(map(printable, row[3:])))) for row in rows]

    every = feed(1, "dropCarryovers")
    states, state = {0: {}}, {}
    for version in range(1, last.version + 1):
        now = [(key, values) for key, values in every if key[0] == version]
        for (_, kind, row), values in now:
            if kind in ("delete", "update_preimage"):
                assert state.pop(row) == values
        for (_, kind, row), values in now:
            if kind in ("insert", "update_postimage"):
                assert state.setdefault(row, values) is values
        states[version] = dict(state)
    scanned = read_ours(path, schema=schema, system_columns=("_rowid",))
    rows = rows_of(scanned, ["_rowid", *names])
    assert state == {row[0]: repr(tuple(map(printable, row[1:]))) for row in rows}
    for start in range(2, last.version + 1):
        part = [one for one in every if one[0][0] >= start]
        assert sorted(feed(start, "dropCarryovers")) == sorted(part)
        net = feed(start, "netChanges")
        before, after = states[start - 1], state
        gone = {key[2]: v for key, v in net if key[1] in ("delete", "update_preimage")}
        come = {key[2]: v for key, v in net if key[1] in ("insert", "update_postimage")}
        assert gone == {row: v for row, v in before.items() if after.get(row) != v}
        assert come == {row: v for row, v in after.items() if before.get(row) != v}
