"""Indices of kinds that only Lance builds: refused by name, and valid after changes of both."""

from __future__ import annotations

import json

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.indices import IndexConfig
from local_changes import delete_rows, matching_rows, update_rows

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.dml.read_set import condition_read_set
from pyspark_lance.table.dml.rewrite_columns import commit_rewrite, plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.index.index_status import index_status
from pyspark_lance.table.index_build.column_indices import (
    create_index,
    drop_index,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.index_build.vector_build import parse_kind, refresh_all_indices
from pyspark_lance.table.unit_of_work import CommitSettings, UnitOfWork, restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

SQUARE = "ST_GeomFromText('POLYGON((0 0, 0.4 0, 0.4 0.4, 0 0.4, 0 0))')"
# Conditions of Lance, by the index that answers them.
CONDITIONS = {
    "fm": ("contains(s, 'ord3')", "NOT contains(s, 'word1')", "contains(s, 'changed')"),
    "rt": (f"ST_Intersects(g, {SQUARE})",),
    "ja": ("json_get_int(j, 'age') = 3", "json_get_int(j, 'age') > 40"),
    "jn": ("json_get_string(j, 'name') = 'n3'",),
}


def rows_of(ids):
    ids = np.asarray(ids)
    numbers = np.random.default_rng(int(ids[0])).random((2, len(ids)))
    parts = [pa.field("x", pa.float64(), False), pa.field("y", pa.float64(), False)]
    points = pa.StructArray.from_arrays([pa.array(one) for one in numbers], fields=parts)
    documents = [json.dumps({"age": one % 50, "name": f"n{one % 7}"}) for one in ids.tolist()]
    extension = {"ARROW:extension:name": "geoarrow.point", "ARROW:extension:metadata": "{}"}
    return pa.table(
        [ids, points, pa.array(documents, pa.json_()), [f"word{one % 7} river" for one in ids]],
        schema=pa.schema(
            [
                ("id", pa.int64()),
                pa.field("g", points.type, metadata=extension),
                ("j", pa.json_()),
                ("s", pa.string()),
            ]
        ),
    )


def make(path, *, stable):
    """A table with an index of each kind that pylance can have there."""
    dataset = lance.write_dataset(
        rows_of(range(300)), path, max_rows_per_file=100, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("g", "RTREE", name="rt")
    dataset.create_scalar_index("s", IndexConfig("fm", {}), name="fm")
    paths = (
        {"jn": ("bitmap", "name")} if stable else {"ja": ("btree", "age"), "jn": ("bitmap", "name")}
    )
    for name, (kind, field) in paths.items():
        config = IndexConfig("json", {"target_index_type": kind, "path": field})
        dataset.create_scalar_index("j", config, name=name)


def names_of(path):
    return {one["name"] for one in lance.dataset(path).list_indices()}


def used_by_pylance(path):
    """Compare the answers of pylance with and without indices; return the names of those used."""
    dataset = lance.dataset(path, session=lance.Session())
    used = set()
    for name, conditions in CONDITIONS.items():
        for condition in conditions:
            with_index, without = (
                dataset.scanner(columns=["id"], filter=condition, use_scalar_index=use).to_table()
                for use in (True, False)
            )
            own = sorted(with_index["id"].to_pylist())
            assert own == sorted(without["id"].to_pylist()), condition
            if "ScalarIndexQuery" in dataset.scanner(filter=condition).explain_plan():
                used.add(name)
    assert not verify(Table(path), read_data=True).findings
    return used


def rewrite_in_place(path, condition):
    """Write other texts to a file of their own, as an update of one column does."""

    def attempt(work):
        plan = plan_change(Table(path))
        found = matching_rows(plan, condition, columns=("s",), system=(ROW_ADDRESS,))
        request = plan_rewrite(plan.snapshot(), ["s"])
        batches = [
            pa.RecordBatch.from_pydict(
                {ROW_ADDRESS: one[ROW_ADDRESS], "s": ["changed river"] * one.num_rows}
            )
            for one in found
            if one.num_rows
        ]
        done = list(rewrite_columns(request, batches))
        reads = condition_read_set(plan.snapshot(), condition)
        return commit_rewrite(plan, request, done, work, reads=reads)

    return UnitOfWork(Table(path), CommitSettings()).run(attempt)


@pytest.mark.parametrize("stable", [True, False])
def test_indices_of_lance_stay_valid_through_our_changes(tmp_path, stable):
    path = str(tmp_path / "t")
    make(path, stable=stable)
    every = names_of(path)
    assert used_by_pylance(path) == every
    delete_rows(path, "id % 10 = 3")
    assert used_by_pylance(path) == every
    update_rows(path, "id = 12", ["s"], lambda batch: {"s": pa.array(["changed"] * batch.num_rows)})
    assert used_by_pylance(path) == every
    rewrite_in_place(path, "id < 20")
    assert used_by_pylance(path) == every
    at = lance.dataset(path).version
    lance.write_dataset(rows_of(range(300, 350)), path, mode="append")
    compact(Table(path))
    used_by_pylance(path)
    assert names_of(path) == every
    for work in (refresh_all_indices, refresh_indices, optimize_indices):
        assert not work(Table(path)).names
    restore(Table(path), VersionSpec(version=at))
    assert used_by_pylance(path) == every
    lance.write_dataset(rows_of(range(400, 450)), path, mode="append")
    assert used_by_pylance(path) == every
    # pylance 14 cannot extend a bitmap of a JSON path that covers some rows.
    drop_index(Table(path), "jn")
    lance.dataset(path).optimize.optimize_indices()
    assert used_by_pylance(path) == names_of(path)
    lance.dataset(path).optimize.compact_files()
    delete_rows(path, "id % 10 = 4")
    used_by_pylance(path)


def test_unused_indices_are_listed_by_kind(tmp_path):
    path = str(tmp_path / "t")
    make(path, stable=False)
    states = {one.name: one for one in index_status(Snapshot.open(Table(path)))}
    kinds = {"rt": "rtree", "fm": "fm", "ja": "json", "jn": "json"}
    assert {name: state.kind for name, state in states.items()} == kinds
    for name, state in states.items():
        assert not state.is_used
        assert state.note == f"scans use no {kinds[name]} index"
    with pytest.raises(InvalidInputError, match="the index 'rt' is not one of the kinds btree"):
        refresh_indices(Table(path), "rt")
    assert drop_index(Table(path), "fm").version
    assert names_of(path) == {"rt", "ja", "jn"}


@pytest.mark.parametrize("kind", ["rtree", "fm", "json"])
def test_kinds_of_lance_alone_are_refused_by_name(tmp_path, kind):
    path = str(tmp_path / "t")
    lance.write_dataset(rows_of(range(10)), path)
    message = f"indices of the kind {kind} cannot be built here"
    with pytest.raises(UnsupportedFeatureError, match=message):
        create_index(Table(path), IndexRequest(("s",), kind))
    with pytest.raises(InvalidInputError, match=f"'{kind}' is not a kind of vector index"):
        parse_kind(kind)
    assert lance.dataset(path).version == 1
