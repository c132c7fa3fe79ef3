"""Random histories of column changes, by both writers alternately, against a model of the rows.

Many of the columns differ by case only.
"""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from local_changes import commit_rewritten
from row_changes import upsert
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.table.columns.change_columns import (
    add_columns,
    add_null_columns,
    compute_columns,
    copy_column,
    drop_columns,
    rename_column,
    widen_column,
)
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.unit_of_work import CommitSettings
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

NAMES = ("a", "A", "b", "B", "ab", "aB", "c")
SETTINGS = CommitSettings(case_sensitive=True)


class History:
    """A table, and what its rows should be: id -> column -> value."""

    def __init__(self, path, seed):
        self.path, self.rng = path, np.random.default_rng(seed)
        self.next_id, self.columns, self.rows = 0, ["a", "b"], {}
        version = str(self.rng.choice(["2.0", "2.1", "2.2"]))
        self.append(file_version=version, max_rows_per_file=int(self.rng.integers(2, 9)))

    def new_rows(self, count, columns):
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        data = {"id": ids}
        for name in columns:
            values = self.rng.integers(0, 100, count).tolist()
            data[name] = [None if value % 10 == 9 else value for value in values]
        for row in range(count):
            known = {name: data[name][row] for name in columns}
            self.rows[ids[row]] = {name: known.get(name) for name in self.columns}
        types = [("id", pa.int64()), *((name, pa.int16()) for name in columns)]
        table = pa.table(data, schema=pa.schema(types))
        return table.select(self.rng.permutation(table.column_names).tolist())

    def some(self, names):
        return [name for name in names if self.rng.random() < 0.6]

    def free_name(self):
        free = [name for name in NAMES if name not in self.columns]
        return str(self.rng.choice(free)) if free else None

    # Ours ------------------------------------------------------------------------------------

    def append(self, **settings):
        write_table(
            self.path, self.new_rows(int(self.rng.integers(1, 20)), self.columns), **settings
        )

    def append_merging(self):
        new = self.some(name for name in NAMES if name not in self.columns)
        # Without its twin beside it, a name of other case is that of the twin.
        lowered = {name.lower() for name in new}
        old = [n for n in self.columns if n.lower() in lowered or self.rng.random() < 0.6]
        for row in self.rows.values():
            row.update(dict.fromkeys(new))
        self.columns += new
        write_table(self.path, self.new_rows(5, [*new, *old]), merge_schema=True)

    def replace(self):
        low = int(self.rng.integers(0, self.next_id + 1))
        self.rows = {i: row for i, row in self.rows.items() if i < low}
        self.next_id = max(self.next_id, low)
        table = self.new_rows(int(self.rng.integers(0, 6)), self.columns)
        write_table(self.path, table, overwrite=True, replace_where=f"id >= {low}")

    def add_null(self):
        name = self.free_name()
        if name:
            add_null_columns(Table(self.path), pa.schema([(name, pa.int16())]), SETTINGS)
            self.added(name, lambda row_id: None)

    def add_computed(self):
        name = self.free_name()
        if name:
            run = compute_columns(
                ["id"], lambda batch: [pc.add(batch.column("id"), 1).cast(pa.int16())]
            )
            add_columns(Table(self.path), pa.schema([(name, pa.int16())]), run, SETTINGS)
            self.added(name, lambda row_id: row_id + 1)

    def added(self, name, value):
        self.columns.append(name)
        for row_id, row in self.rows.items():
            row[name] = value(row_id)

    def drop(self):
        name = str(self.rng.choice(self.columns))
        drop_columns(Table(self.path), [name])
        self.dropped(name)

    def dropped(self, name):
        self.columns.remove(name)
        for row in self.rows.values():
            del row[name]

    def rename(self):
        name, new = str(self.rng.choice(self.columns)), self.free_name()
        if new:
            rename_column(Table(self.path), name, new, SETTINGS)
            self.columns[self.columns.index(name)] = new
            for row in self.rows.values():
                row[new] = row.pop(name)

    def widen(self):
        name = str(self.rng.choice(self.columns))
        kind = Snapshot.open(Table(self.path)).schema.field(name).to_arrow().type
        wider = {pa.int16(): pa.int32(), pa.int32(): pa.int64()}.get(kind)
        if wider is not None:
            widen_column(Table(self.path), name, wider, copy_column(name))

    def rewrite(self):
        names = self.some(self.columns) or self.columns[:1]
        chosen = sorted(self.some(self.rows))
        plan = plan_change(Table(self.path))
        found = read_ours(self.path, system_columns=("_rowaddr",)).sort_by("_rowaddr")
        found = found.filter(pc.is_in(found["id"], pa.array(chosen, pa.int64())))
        data = {"_rowaddr": found["_rowaddr"]}
        for name in names:
            values = self.rng.integers(100, 200, found.num_rows).tolist()
            data[name] = pa.array(values, pa.int16())
            for row_id, value in zip(found["id"].to_pylist(), values, strict=True):
                self.rows[row_id][name] = value
        request = plan_rewrite(plan.snapshot(), names)
        batches = pa.table(data).to_batches(max_chunksize=3)
        commit_rewritten(plan, request, list(rewrite_columns(request, batches)))

    def merge(self):
        old = [int(one) for one in self.rng.permutation(list(self.rows))[:3]]
        kept = {row_id: dict(self.rows[row_id]) for row_id in old}
        columns = self.some(self.columns) or self.columns[:1]
        source = self.new_rows(len(old) + 2, columns)
        first = self.next_id - source.num_rows
        for new, row_id in zip(range(first, first + len(old)), old, strict=True):
            values = self.rows.pop(new)
            self.rows[row_id] = {**kept[row_id], **{name: values[name] for name in columns}}
        ids = pa.array([*old, first + len(old), first + len(old) + 1], pa.int64())
        at = pc.sort_indices(source["id"])
        source = source.take(at).set_column(source.column_names.index("id"), "id", ids)
        upsert(self.path, source)

    # pylance ----------------------------------------------------------------------------------

    def their_update(self):
        name, low = str(self.rng.choice(self.columns)), int(self.rng.integers(0, self.next_id + 1))
        lance.dataset(self.path).update({name: "7"}, where=f"id >= {low}")
        for row_id, row in self.rows.items():
            if row_id >= low:
                row[name] = 7

    def their_rewrite(self):
        name, row_id = str(self.rng.choice(self.columns)), int(self.rng.choice(list(self.rows)))
        kind = lance.dataset(self.path).schema.field(name).type
        one = pa.table({"id": pa.array([row_id], pa.int64()), name: pa.array([8], kind)})
        merge = lance.dataset(self.path).merge_insert("id").when_matched_update_all()
        merge.write_mode("rewrite_columns").execute(one)
        self.rows[row_id][name] = 8

    def their_delete(self):
        rest = int(self.rng.integers(0, 4))
        lance.dataset(self.path).delete(f"id % 4 = {rest}")
        self.rows = {i: row for i, row in self.rows.items() if i % 4 != rest}

    def their_compaction(self):
        lance.dataset(self.path).optimize.compact_files(target_rows_per_fragment=12)

    def their_columns(self):
        name = self.free_name()
        if name:
            lance.dataset(self.path).add_columns({name: "cast(id + 2 as smallint)"})
            self.added(name, lambda row_id: row_id + 2)
        elif len(self.columns) > 1:
            lance.dataset(self.path).drop_columns([self.columns[0]])
            self.dropped(self.columns[0])

    def step(self):
        steps = [
            self.append, self.append_merging, self.replace, self.add_null, self.add_computed,
            self.rename, self.widen, self.rewrite, self.rewrite, self.merge, self.their_update,
            self.their_compaction, self.their_columns,
        ]  # fmt: skip
        if len(self.columns) > 1:
            steps.append(self.drop)
        if len(self.rows) > 8:
            steps.append(self.their_delete)
            if len(self.columns) > 1:  # Lance takes all columns of a row for a rewrite of rows
                steps.append(self.their_rewrite)
        steps[int(self.rng.integers(len(steps)))]()

    def check(self):
        table = read_ours(self.path)
        assert table.column_names[:-4] == Snapshot.open(Table(self.path)).schema.to_arrow().names
        assert set(table.column_names[:-4]) == {"id", *self.columns}
        found = {row["id"]: {n: row[n] for n in self.columns} for row in table.to_pylist()}
        assert found == self.rows
        lance.dataset(self.path).validate()
        assert_same_rows(table, read_pylance(self.path))


@pytest.mark.parametrize("seed", range(6))
def test_random_column_history_matches_model(tmp_path, seed):
    history = History(str(tmp_path / "t.lance"), seed)
    for _ in range(12):
        history.step()
        history.check()
