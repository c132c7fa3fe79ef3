"""Random histories that pylance wrote, made again version by version by our own commits.

Two questions per version: does ``next_manifest`` arrive at the manifest that pylance wrote, and
does pylance, opening what our commit loop wrote, find the same rows with the same lineage?
"""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from commit_replay import check_replay, latest_pylance_version, question, read_pylance_version
from commit_tables import commit

from pyspark_lance.commit.apply_operation import CreateOptions
from pyspark_lance.store.local_store import LocalStore

pytestmark = pytest.mark.interop

LINEAGE = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]


class History:
    """A table, and random things to do to it."""

    def __init__(self, root: str, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.next_id = 0
        self.names = 0
        self.stable = self.random.random() < 0.75
        self.file_version = self.random.choice(["2.0", "2.1", "2.2"])
        lance.write_dataset(
            self.rows(self.random.randint(1, 40)),
            root,
            enable_stable_row_ids=self.stable,
            data_storage_version=self.file_version,
            enable_v2_manifest_paths=self.random.random() < 0.8,
            max_rows_per_file=self.random.randint(4, 20),
        )

    def table(self):
        return lance.dataset(self.root, session=lance.Session())

    def rows(self, count, ids=None):
        if ids is None:
            ids = list(range(self.next_id, self.next_id + count))
            self.next_id += count
        values = [self.random.randint(0, 9) for _ in ids]
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "a": pa.array([f"a{v}" for v in values], pa.string()),
                "b": pa.array(values, pa.int32()),
            }
        )

    def like_table(self, rows):
        """The columns that the table has (still) of ``rows``, in its types."""
        schema = self.table().schema
        return rows.select([n for n in rows.column_names if n in schema.names])

    def some_ids(self, count):
        return self.random.sample(range(max(self.next_id, 1)), min(count, max(self.next_id, 1)))

    # Each method makes one or more versions.

    def append(self):
        rows = self.like_table(self.rows(self.random.randint(1, 15)))
        per_file = self.random.randint(3, 20)
        lance.write_dataset(rows, self.root, mode="append", max_rows_per_file=per_file)

    def delete(self):
        ids = self.some_ids(self.random.choice([1, 3, 10]))
        self.table().delete(f"id in ({', '.join(map(str, ids))})")

    def delete_range(self):
        low = self.random.randint(0, self.next_id)
        self.table().delete(f"id >= {low} and id < {low + 12}")

    def update(self):
        ids = self.some_ids(self.random.choice([1, 4, 12]))
        self.table().update({"b": "b + 1"}, where=f"id in ({', '.join(map(str, ids))})")

    def merge_insert(self):
        ids = [*self.some_ids(4), self.next_id, self.next_id + 1]
        self.next_id += 2
        merge = self.table().merge_insert("id")
        if self.random.random() < 0.8:
            merge = merge.when_matched_update_all()
        if self.random.random() < 0.8:
            merge = merge.when_not_matched_insert_all()
        if self.random.random() < 0.2:
            merge = merge.when_not_matched_by_source_delete("id < 5")
        merge.when_not_matched_insert_all().execute(self.like_table(self.rows(0, ids)))

    def rewrite_columns(self):
        rows = self.like_table(self.rows(0, self.some_ids(3))).select(["id", "b"])
        merge = self.table().merge_insert("id").when_matched_update_all()
        merge.write_mode("rewrite_columns").execute(rows)

    def compact(self):
        target = self.random.choice([8, 20, 1000])
        threshold = self.random.choice([0.0, 0.1])
        self.table().optimize.compact_files(
            target_rows_per_fragment=target, materialize_deletions_threshold=threshold
        )

    def add_column(self):
        self.names += 1
        self.table().add_columns({f"c{self.names}": "id * 2"})

    def add_null_column(self):
        self.names += 1
        self.table().add_columns(pa.field(f"n{self.names}", pa.int32()))

    def extra_column(self):
        extra = [n for n in self.table().schema.names if n not in ("id", "a", "b")]
        return self.random.choice(extra) if extra else None

    def rename_column(self):
        column = self.extra_column()
        if column:
            self.names += 1
            self.table().alter_columns({"path": column, "name": f"r{self.names}"})

    def cast_column(self):
        column = self.extra_column()
        if column and pa.types.is_int64(self.table().schema.field(column).type):
            self.table().alter_columns({"path": column, "data_type": pa.int32()})

    def drop_column(self):
        column = self.extra_column()
        if column:
            self.table().drop_columns([column])

    def drop_indexed_column(self):
        if "a" in self.table().schema.names and self.random.random() < 0.3:
            self.table().drop_columns(["a"])

    def restore(self):
        version = self.random.randint(1, self.table().version)
        lance.dataset(self.root, version=version).restore()

    def overwrite(self):
        rows = self.rows(self.random.randint(0, 12))
        lance.write_dataset(rows, self.root, mode="overwrite", max_rows_per_file=7)

    def create_index(self):
        schema = self.table().schema
        column, kind = self.random.choice([("b", "BTREE"), ("a", "BITMAP"), ("id", "ZONEMAP")])
        if column in schema.names:
            self.table().create_scalar_index(column, kind, replace=True)

    def optimize_indices(self):
        self.table().optimize.optimize_indices()

    def config(self):
        key = f"k{self.random.randint(0, 3)}"
        if self.random.random() < 0.3 and key in self.table().config():
            self.table().delete_config_keys([key])
        else:
            self.table().update_config({key: str(self.random.random())})

    def metadata(self):
        kind = self.random.randint(0, 2)
        updates = {f"m{self.random.randint(0, 2)}": self.random.choice(["x", "y", None])}
        if kind == 0:
            self.table().update_metadata(updates)
        elif kind == 1:
            self.table().update_schema_metadata(updates)
        else:
            self.table().update_field_metadata({"id": updates})

    def tag(self):
        self.names += 1
        self.table().tags.create(f"t{self.names}", self.table().version)

    def step(self):
        steps = {
            self.append: 5, self.delete: 4, self.delete_range: 2, self.update: 4,
            self.merge_insert: 4, self.rewrite_columns: 2, self.compact: 4, self.add_column: 1,
            self.add_null_column: 1, self.rename_column: 1, self.cast_column: 1,
            self.drop_column: 1, self.drop_indexed_column: 1, self.restore: 1, self.overwrite: 1,
            self.create_index: 2, self.optimize_indices: 1, self.config: 1, self.metadata: 2,
            self.tag: 1,
        }  # fmt: skip
        chosen = self.random.choices(list(steps), list(steps.values()))[0]
        try:
            chosen()
        except OSError as error:
            # Lance refuses, say, to rename an indexed column; that is no version.
            assert "Invalid" in str(error) or "Not supported" in str(error), (chosen, error)
        return chosen.__name__


def commit_again(source: str, target: str) -> None:
    """Make all versions of ``source`` in ``target`` with our own commits."""
    for folder in ("data", "_deletions", "_indices"):
        if (Path(source) / folder).exists():
            shutil.copytree(Path(source) / folder, Path(target) / folder)
    store = LocalStore(target)
    for version in range(1, latest_pylance_version(source) + 1):
        theirs = read_pylance_version(source, version)
        manifest = theirs.state.manifest
        create = CreateOptions(manifest.uses_stable_row_ids, manifest.data_storage_version)
        result = commit(store, question(theirs), create=create if version == 1 else None)
        assert result.version == version


def rows_with_lineage(root: str, version: int) -> list[dict]:
    table = lance.dataset(root, version=version, session=lance.Session())
    return table.to_table(columns=[*table.schema.names, *LINEAGE]).to_pylist()


@pytest.mark.parametrize("seed", range(12))
def test_replayed_commits_equal_pylance(tmp_path, seed):
    warnings.simplefilter("ignore", FutureWarning)
    root, copy = str(tmp_path / "pylance.lance"), str(tmp_path / "ours.lance")
    history = History(root, seed)
    steps = [history.step() for _ in range(25)]
    last = latest_pylance_version(root)
    for version in range(1, last + 1):
        try:
            check_replay(root, version)
        except Exception as error:
            raise AssertionError(f"version {version} of {steps}") from error

    commit_again(root, copy)
    for version in {1, *range(2, last, 4), last}:
        assert rows_with_lineage(copy, version) == rows_with_lineage(root, version)
    ours, theirs = (lance.dataset(r, session=lance.Session()) for r in (copy, root))
    ours.validate()
    for value in (0, 3, 7):
        for column in {"a", "b"} & set(theirs.schema.names):
            where = f"{column} = " + (f"'a{value}'" if column == "a" else str(value))
            found = ours.to_table(filter=where, columns=["id"])["id"].to_pylist()
            expected = theirs.to_table(filter=where, columns=["id"], use_scalar_index=False)
            assert sorted(found) == sorted(expected["id"].to_pylist()), (where, steps)
