"""Sets of rows of a fragment, and how little of them plans carry."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_changes import set_to
from table_access import write_table

from pyspark_lance.format.deletion_vector import NO_OFFSETS, WINDOW_ROWS, DeletionVector, OffsetSet
from pyspark_lance.table.cdf.change_feed import ChangeRequest, plan_changes
from pyspark_lance.table.cdf.change_window import ChangeWindow, Deduplication
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

OFFSETS = st.sets(st.integers(0, 300)).map(lambda some: np.array(sorted(some), dtype=np.uint32))


@given(OFFSETS, OFFSETS, st.integers(0, 310), st.integers(0, 310))
def test_offset_set_equals_array_sets(one, other, first, last):
    ours, others = OffsetSet.of(one), OffsetSet.of(other)
    assert ours.to_array().tolist() == one.tolist()
    assert ours.part(first, last).to_array().tolist() == one[first:last].tolist()
    assert ours.both(others).to_array().tolist() == np.intersect1d(one, other).tolist()
    assert ours.without(others).to_array().tolist() == np.setdiff1d(one, other).tolist()
    assert ours.contains_each(other).tolist() == np.isin(other, one).tolist()
    assert pickle.loads(pickle.dumps(ours)) == ours
    rest = ours.complement(301)
    rest_of = [] if rest is None else rest.to_array().tolist()
    assert rest_of == np.setdiff1d(np.arange(301), one).tolist()
    live = OffsetSet.live(301, DeletionVector.of(one))
    assert live.to_array().tolist() == rest_of


def test_windows_cover_offset_set_in_order():
    rows = np.flatnonzero(np.arange(5 * WINDOW_ROWS) % 3).astype(np.uint32)
    windows = list(OffsetSet.of(rows).windows())
    assert max(map(len, windows)) == WINDOW_ROWS
    assert np.array_equal(np.concatenate(windows), rows)
    assert list(NO_OFFSETS.windows()) == []


def test_set_of_runs_has_constant_size():
    few, many = (len(pickle.dumps(OffsetSet.of(np.arange(n)))) for n in (10_000, 3_000_000))
    assert many < few + 1000


@pytest.mark.parametrize("mode", list(Deduplication))
def test_plan_of_many_changed_runs_is_small(tmp_path, mode):
    path = str(tmp_path / "t")
    rows = 300_000
    table = pa.table({"id": np.arange(rows), "x": np.zeros(rows)})
    write_table(path, table, max_rows_per_file=100_000)
    set_to(path, "id >= 20000 and id < 280000", x=1.0)
    snapshot = Snapshot.open(Table(path))
    request = ChangeRequest(ChangeWindow(2, 2), mode, snapshot.schema.fields, parallelism=4)
    tasks = plan_changes(Table(path), snapshot.schema.fields, request)
    pickles = [pickle.dumps(task) for task in tasks]
    assert sum(map(len, pickles)) < 30_000
    read = pa.Table.from_batches(batch for one in pickles for batch in pickle.loads(one).run())
    assert read.num_rows == 2 * 260_000
    of_kind = read.group_by(["_change_type", "x"]).aggregate([("id", "sum")]).to_pylist()
    total = sum(range(20_000, 280_000))
    assert sorted((one["_change_type"], one["x"], one["id_sum"]) for one in of_kind) == [
        ("update_postimage", 1.0, total),
        ("update_preimage", 0.0, total),
    ]
