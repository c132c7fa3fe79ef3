"""Random histories of a table with indices of texts: after each step searches find what is there.

What they must find is computed from the rows themselves; the table is verified after each step.
"""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from indexed_texts import INDICES, WORDS, assert_searches_find_rows, build_index, text_of
from local_changes import delete_rows, update_rows
from random_seeds import grid
from table_access import write_table

from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.index_build.column_indices import refresh_indices
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

STEPS = 14
COMPACTED = {"target_rows_per_fragment": 100, "materialize_deletions_threshold": 0.0}


class TextHistory:
    """A table of texts, and what may happen to it."""

    def __init__(self, path, rng, *, stable):
        self.table, self.path, self.rng = Table(path), path, rng
        self.next_id = 0
        write_table(path, self.rows(12), max_rows_per_file=5, enable_stable_row_ids=stable)

    def rows(self, count):
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        texts = pa.array(map(text_of, ids), pa.string())
        return pa.table({"id": pa.array(ids, pa.int64()), "n": [0] * count, "s": texts})

    def some_rows(self):
        return f"id % {self.rng.integers(2, 6)} = {self.rng.integers(0, 2)}"

    def build_index(self):
        build_index(self.table, str(self.rng.choice(list(INDICES))))

    def append(self):
        write_table(self.path, self.rows(int(self.rng.integers(1, 6))), max_rows_per_file=4)

    def overwrite(self):
        write_table(self.path, self.rows(8), max_rows_per_file=3, overwrite=True)

    def delete(self):
        delete_rows(self.path, self.some_rows())

    def update_texts(self):
        word = str(self.rng.choice(WORDS))

        def values(batch):
            return {"s": pa.array([f"{word} {WORDS[0]}"] * batch.num_rows, pa.string())}

        update_rows(self.path, self.some_rows(), ["s"], values)

    def update_others(self):
        def values(batch):
            return {"n": pa.array([1] * batch.num_rows, pa.int64())}

        update_rows(self.path, self.some_rows(), ["n"], values)

    def compact(self):
        compact(self.table, CompactionRequest(**COMPACTED))

    def refresh(self):
        refresh_indices(self.table)

    def join_segments(self):
        refresh_indices(self.table, joins_segments=True)

    def restore(self):
        version = Snapshot.open(self.table).version
        restore(self.table, VersionSpec(version=int(self.rng.integers(1, version + 1))))

    def delete_by_pylance(self):
        lance.dataset(self.path, session=lance.Session()).delete(self.some_rows())

    def compact_by_pylance(self):
        lance.dataset(self.path, session=lance.Session()).optimize.compact_files()


STEPS_OF_HISTORIES = (
    TextHistory.build_index,
    TextHistory.build_index,
    TextHistory.append,
    TextHistory.append,
    TextHistory.overwrite,
    TextHistory.delete,
    TextHistory.update_texts,
    TextHistory.update_others,
    TextHistory.compact,
    TextHistory.refresh,
    TextHistory.refresh,
    TextHistory.join_segments,
    TextHistory.restore,
    TextHistory.delete_by_pylance,
    TextHistory.compact_by_pylance,
)


@pytest.mark.parametrize(("seed", "stable"), grid(range(200), [True, False], step=101))
def test_searches_find_rows_after_each_step(tmp_path, seed, stable):
    rng = np.random.default_rng([seed, stable])
    history = TextHistory(str(tmp_path / "t"), rng, stable=stable)
    done = []
    for number in rng.integers(0, len(STEPS_OF_HISTORIES), STEPS).tolist():
        step = STEPS_OF_HISTORIES[number]
        done.append(step.__name__)
        step(history)
        assert verify(history.table).errors == (), done
        try:
            assert_searches_find_rows(history.table)
        except AssertionError as error:
            raise AssertionError(f"after {done}: {error}") from error
