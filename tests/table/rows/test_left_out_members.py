"""Some members of structs are the same whether the other members are read or not.

Fragments that were written before a member came do not have it: whether a struct is null is read
from members that were not requested.
"""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from random_seeds import seeds
from table_access import read_changes, read_ours, write_table

from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop
LEAVES = [pa.int64(), pa.string(), pa.float32(), pa.list_(pa.int16()), pa.list_(pa.float32(), 3)]


class EvolvingStructs:
    """A table of nested structs that get members, and lose some, as rows come."""

    def __init__(self, path: str, seed: int, version: str) -> None:
        self.path, self.version = path, version
        self.rng, self.members = np.random.default_rng(seed), 0
        self.kind = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
        self.append()

    def happens(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def value(self, kind: pa.DataType) -> object:
        # Files of version 2.0 hold no null structs.
        if self.happens(0.3) and not (pa.types.is_struct(kind) and self.version == "2.0"):
            return None
        if pa.types.is_struct(kind):
            return {member.name: self.value(member.type) for member in kind}
        if pa.types.is_fixed_size_list(kind):
            return [1.0, 2.0, 3.0]
        number = int(self.rng.integers(5))
        return [number] * number if pa.types.is_list(kind) else pa.scalar(number).cast(kind).as_py()

    def append(self) -> None:
        rows = [self.value(self.kind) for _ in range(7)]
        # Lance reads no fragment of which it wants no column.
        table = pa.table({"id": list(range(7)), "s": pa.array(rows, self.kind)})
        write_table(self.path, table, merge_schema=True, file_version=self.version)

    def grow(self) -> None:
        self.kind = self._grown(self.kind)
        self.append()

    def _grown(self, kind: pa.DataType) -> pa.DataType:
        members, nested = list(kind), [n for n, m in enumerate(kind) if pa.types.is_struct(m.type)]
        if nested and self.happens(0.5):
            place = int(self.rng.choice(nested))
            members[place] = members[place].with_type(self._grown(members[place].type))
            return pa.struct(members)
        self.members += 1
        leaf = LEAVES[int(self.rng.integers(len(LEAVES)))]
        is_nested = self.happens(0.3) and self.version != "2.0"
        new = pa.struct([("d", leaf)]) if is_nested else leaf
        return pa.struct([*members, (f"m{self.members}", new)])

    def lose(self) -> None:
        if self.kind.num_fields > 1:
            name = self.kind.field(int(self.rng.integers(self.kind.num_fields))).name
            lance.dataset(self.path).drop_columns([f"s.{name}"])
            self.kind = pa.struct([member for member in self.kind if member.name != name])

    def compact(self) -> None:
        lance.dataset(self.path).optimize.compact_files()

    def step(self) -> None:
        steps = [self.append, self.grow, self.grow, self.lose, self.compact]
        steps[int(self.rng.integers(len(steps)))]()

    def cut(self, field: Field) -> Field:
        """Some members of a struct, at any depth, in any order."""
        if not field.children or not field.is_struct:
            return field
        count = 1 + int(self.rng.integers(len(field.children)))
        chosen = self.rng.permutation(len(field.children))[:count]
        return field.with_only([self.cut(field.children[place]) for place in chosen])


def only(value: object, field: Field) -> object:
    if not field.is_struct or not isinstance(value, dict):
        return value
    return {member.name: only(value[member.name], member) for member in field.children}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", seeds(60, in_ci=4))
def test_pruned_members_equal_whole_structs(tmp_path, seed, version):
    table = EvolvingStructs(str(tmp_path / "t"), seed, version)
    for _ in range(6):
        table.step()
    snapshot = Snapshot.open(Table(table.path))
    _, whole = snapshot.schema.fields
    rows = read_ours(table.path).column("s").to_pylist()
    assert rows == lance.dataset(table.path).to_table().column("s").to_pylist()
    feed = read_changes(table.path, 1, snapshot.version, "dropCarryovers")
    for _ in range(4):
        part = table.cut(whole)
        found = read_ours(table.path, schema=LanceSchema(fields=(part,))).column("s").to_pylist()
        assert found == [only(row, part) for row in rows]
        asked = {"shown": [part], "columns": [part]}
        changes = read_changes(table.path, 1, snapshot.version, "dropCarryovers", **asked)
        wanted = [only(row, part) for row in feed.column("s").to_pylist()]
        assert changes.column("s").to_pylist() == wanted
