"""Indices of pylance answer as a scan without them does, after histories of our own changes."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from indexed_tables import check, check_used, make_indices, some_rows
from local_changes import delete_rows, merge_rows
from row_changes import delete_by_source, insert, matched_delete, matched_update, set_to
from table_access import write_table

from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_with_every_kind_of_index(tmp_path, seed):
    rng = np.random.default_rng(seed)
    path = str(tmp_path / "t")
    stable = seed != 2
    table = some_rows(rng, range(300))
    write_table(path, table, max_rows_per_file=80, enable_stable_row_ids=stable)
    make_indices(path)
    check(path)
    for step in range(7):
        low = int(rng.integers(0, 300))
        between = f"id >= {low} AND id < {low + 25}"
        source = some_rows(rng, rng.choice(400, 12, replace=False))
        names = source.column_names
        match (step + seed) % 7:
            case 0:
                set_to(path, between, kind="k2", name="a changed name")
            case 1:
                delete_rows(path, between)
            case 2:
                merge_rows(path, source, ["id"], [matched_update(names), insert(names)])
            case 3:
                part = source.select(["id", "kind", "tags"])
                merge_rows(path, part, ["id"], [matched_update(["kind", "tags"])])
            case 4:
                everywhere = [
                    matched_delete(),
                    delete_by_source(lambda t: pa.compute.less(t["id"], 20)),
                ]
                merge_rows(path, source, ["id"], everywhere)
            case 5:
                lance.dataset(path).optimize.compact_files(target_rows_per_fragment=200)
                lance.dataset(path).optimize.optimize_indices()
            case 6:
                compact(Table(path), CompactionRequest(target_rows_per_fragment=150))
        check(path)


@pytest.mark.parametrize("stable", [True, False])
def test_stale_index_rows_displace_no_results(tmp_path, stable):
    """The index goes on to answer for some fragments, of which later some rows are deleted."""
    path = str(tmp_path / "t")
    table = some_rows(np.random.default_rng(3), range(300))
    write_table(path, table, max_rows_per_file=60, enable_stable_row_ids=stable)
    make_indices(path)
    query = {"column": "vector", "q": np.zeros(4, np.float32), "nprobes": 2}

    def check_few():
        check(path)
        for k in (3, 20):
            with_index, best = (
                lance.dataset(path).to_table(
                    columns=["id", "_distance"], nearest=query | {"k": k, "use_index": use}
                )
                for use in (True, False)
            )
            assert with_index["id"].to_pylist() == best["id"].to_pylist()

    delete_rows(path, "id < 120 AND id % 2 = 0")
    # Only fragments 0 and 1 have so few rows left.
    compact(Table(path), CompactionRequest(target_rows_per_fragment=60))
    live = {fragment.id for fragment in Snapshot.open(Table(path)).manifest.fragments}
    assert live == {2, 3, 4, 5}
    check_few()
    delete_rows(path, "id % 50 = 0")
    check_few()
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=1000)
    check(path)


def test_row_id_indices_are_used_after_compaction(tmp_path):
    rng = np.random.default_rng(7)
    path = str(tmp_path / "t")
    write_table(path, some_rows(rng, range(300)), max_rows_per_file=80)
    make_indices(path)
    delete_rows(path, "id >= 20 AND id < 50")
    assert (
        compact(Table(path), CompactionRequest(target_rows_per_fragment=150)).fragments_added == 1
    )
    check(path)
    snapshot = Snapshot.open(Table(path))
    (now,) = {fragment.id for fragment in snapshot.manifest.fragments}
    covers = {index.name: now in index.fragment_bitmap for index in snapshot.indices}
    assert covers == {
        "id_idx": True,  # its addresses are remapped
        "kind_idx": True,
        "tags_idx": True,
        "name_idx": True,
        "text_idx": True,
        "vector_idx": True,
    }
    check_used(path)
