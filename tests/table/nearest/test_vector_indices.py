"""Vector indices of pylance: the same rows at the same distances as pylance gives by them."""

from __future__ import annotations

import shutil

import lance
import numpy as np
import pyarrow as pa
import pytest
from random_seeds import grid
from vector_tables import TYPES, WIDTH, assert_same, from_pylance, ours, queries_for, rows_of

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.sql.metadata_tables import index_rows
from pyspark_lance.table.index.index_status import index_status
from pyspark_lance.table.nearest import ivf_search
from pyspark_lance.table.nearest.ivf_search import SegmentTask
from pyspark_lance.table.nearest.vectors import Metric
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

KINDS = {
    "flat": ("IVF_FLAT", {}),
    "pq": ("IVF_PQ", {"num_sub_vectors": 4}),
    "pq of 4 bits": ("IVF_PQ", {"num_sub_vectors": 4, "num_bits": 4}),
    "sq": ("IVF_SQ", {}),
    "hnsw and flat": ("IVF_HNSW_FLAT", {}),
    "hnsw and pq": ("IVF_HNSW_PQ", {"num_sub_vectors": 4}),
    "hnsw and sq": ("IVF_HNSW_SQ", {}),
}


def make(path, kind, metric, *, column_type="float32", rows=2000, stable=True, partitions=5):
    rng = np.random.default_rng(len(kind) + len(metric))
    numbers = rng.normal(size=(rows, WIDTH)) + 0.3
    lance.write_dataset(
        rows_of(numbers, column_type), str(path), max_rows_per_file=700,
        enable_stable_row_ids=stable,
    )  # fmt: skip
    index, more = KINDS[kind]
    lance.dataset(str(path)).create_index(
        "v", index, metric=metric, num_partitions=partitions, name="by_v", **more
    )
    return numbers


@pytest.mark.parametrize(
    ("kind", "metric", "column_type"), grid(tuple(KINDS), ("l2", "cosine", "dot"), tuple(TYPES))
)
def test_index_search_equals_pylance(tmp_path, kind, metric, column_type):
    if kind.startswith("hnsw") and column_type != "float32":
        pytest.skip("one type of the graph suffices")
    numbers = make(tmp_path / "t", kind, metric, column_type=column_type)
    queries = queries_for(numbers, column_type)
    for nprobes in (1, 5):
        if kind.startswith("hnsw") and nprobes == 5:
            continue  # pylance follows the graph, and misses some
        plan, found = ours(tmp_path / "t", queries, 10, nprobes=nprobes)
        assert [type(task) for task in plan.tasks] == [SegmentTask]
        for number, query in enumerate(queries):
            if kind.startswith("hnsw"):
                best = from_pylance(tmp_path / "t", query, 10, nprobes=nprobes, ef=2000)
            else:
                best = from_pylance(tmp_path / "t", query, 10, nprobes=nprobes)
            assert_same(found, number, best)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("kind", ["pq", "sq"])
def test_refined_candidates_are_compared_by_vectors(tmp_path, kind, metric):
    numbers = make(tmp_path / "t", kind, metric)
    queries = queries_for(numbers)
    _, found = ours(tmp_path / "t", queries, 5, nprobes=2, refine_factor=4)
    for number, query in enumerate(queries):
        best = from_pylance(tmp_path / "t", query, 5, nprobes=2, refine_factor=4)
        assert_same(found, number, best, 1e-5)


@pytest.mark.parametrize("kind", ["flat", "pq", "sq"])
def test_partitions_are_added_until_enough_rows(tmp_path, kind):
    numbers = make(tmp_path / "t", kind, "l2", partitions=60)
    queries = queries_for(numbers)
    # Few rows of each partition count: those that are looked at first have not enough.
    _, found = ours(tmp_path / "t", queries, 8, condition="id % 250 = 3")
    assert np.bincount(found.query).tolist() == [8] * len(queries)
    for k in (1500, 2500):
        _, found = ours(tmp_path / "t", queries, k)
        for number, query in enumerate(queries):
            assert np.count_nonzero(found.query == number) == min(k, 2001)
            assert from_pylance(tmp_path / "t", query, k).num_rows == min(k, 2001)
    _, found = ours(tmp_path / "t", queries, 1500, nprobes=1)
    assert len(found) == sum(
        from_pylance(tmp_path / "t", query, 1500, nprobes=1).num_rows for query in queries
    )


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("kind", ["flat", "pq", "sq"])
def test_index_search_is_correct_after_table_changes(tmp_path, kind, stable):
    path = tmp_path / "t"
    numbers = make(path, kind, "l2", stable=stable)
    rng = np.random.default_rng(2)
    queries = queries_for(numbers)

    def check(**more):
        plan, found = ours(path, queries, 8, nprobes=5)
        for number, query in enumerate(queries):
            assert_same(found, number, from_pylance(path, query, 8, nprobes=5))
        return {type(task).__name__ for task in plan.tasks}

    dataset = lance.dataset(str(path))
    dataset.delete("id % 3 = 0")
    assert check() == {"SegmentTask"}
    lance.write_dataset(
        rows_of(rng.normal(size=(300, WIDTH)), start=5000), str(path), mode="append"
    )
    assert check() == {"SegmentTask", "SearchTask"}
    lance.dataset(str(path)).update({"id": "id + 10000"}, where="id < 100")
    check()
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=0)
    check()
    lance.dataset(str(path)).optimize.compact_files()
    check()
    lance.dataset(str(path)).optimize.optimize_indices()
    check()
    best = ours(path, queries, 8, use_index=False)[1]
    if kind == "flat":
        found = ours(path, queries, 8, nprobes=5)[1]
        assert found.row_id.tolist() == best.row_id.tolist()


def test_other_metric_disables_index(tmp_path):
    numbers = make(tmp_path / "t", "pq", "l2")
    queries = queries_for(numbers)
    plan, _ = ours(tmp_path / "t", queries, 4, metric="cosine")
    assert not any(isinstance(task, SegmentTask) for task in plan.tasks)
    plan, _ = ours(tmp_path / "t", queries, 4, metric="l2")
    assert all(isinstance(task, SegmentTask) for task in plan.tasks)


@pytest.mark.parametrize("stable", [True, False])
def test_metric_comes_from_index_covering_live_fragments(tmp_path, stable):
    path = tmp_path / "t"
    numbers = make(path, "flat", "cosine", rows=40, stable=stable, partitions=1)
    queries = queries_for(numbers)

    def metric_of_both():
        plan, found = ours(path, queries, 5)
        for number, query in enumerate(queries):
            assert_same(found, number, from_pylance(path, query, 5))
        return plan.merge.metric

    assert metric_of_both() is Metric.COSINE
    # All rows are replaced, so that the only fragment that the index names is gone.
    rows = rows_of(np.random.default_rng(4).normal(size=(50, WIDTH)))
    builder = lance.dataset(str(path)).merge_insert("id").when_matched_update_all()
    builder.when_not_matched_insert_all().execute(rows)
    assert metric_of_both() is Metric.L2


def random_table(path, rng):
    """A table with an index of pylance, of whose rows some were changed or came later."""
    column_type, metric = str(rng.choice(list(TYPES))), str(rng.choice(["l2", "cosine", "dot"]))
    kind = str(rng.choice(["IVF_FLAT", "IVF_PQ", "IVF_SQ"]))
    numbers = rng.normal(size=(int(rng.choice([400, 1500])), WIDTH)) + 0.3
    lance.write_dataset(
        rows_of(numbers, column_type), path, max_rows_per_file=500,
        enable_stable_row_ids=bool(rng.integers(2)),
    )  # fmt: skip
    more = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
    lance.dataset(path).create_index(
        "v", kind, metric=metric, num_partitions=int(rng.choice([1, 4, 30])), **more
    )
    if rng.random() < 0.5:
        lance.dataset(path).delete("id % 5 = 1")
    if rng.random() < 0.3:
        new = rows_of(rng.normal(size=(30, WIDTH)), column_type, 5000)
        lance.write_dataset(new, path, mode="append")
    if rng.random() < 0.3:
        lance.dataset(path).update({"id": "id + 100000"}, where="id % 10 = 3")
    return queries_for(numbers, column_type)


CONDITIONS = ["", "id < 40", "id % 3 = 0", "id > 100000", "id < 0", "id = 7", "id < 1200"]


@pytest.mark.parametrize(
    "seed", [*range(25), *(pytest.param(n, marks=pytest.mark.slow) for n in range(25, 400))]
)
def test_filtered_and_refined_search_equals_pylance(tmp_path, seed):
    rng, path = np.random.default_rng(seed), str(tmp_path / "t")
    queries = random_table(path, rng)
    k, condition = int(rng.choice([1, 5, 11, 60])), str(rng.choice(CONDITIONS))
    more = {}
    if rng.random() < 0.5:
        more["nprobes"] = int(rng.choice([1, 4, 30]))
    if rng.random() < 0.4:
        more["refine_factor"] = int(rng.choice([1, 5]))
    plan, found = ours(path, queries, k, condition=condition or None, **more)
    assert condition in ("id > 100000", "id < 0") or isinstance(plan.tasks[0], SegmentTask)
    for number, query in enumerate(queries):
        nearest = {"column": "v", "q": pa.array(query), "k": k, **more}
        neighbours = lance.dataset(path).to_table(
            columns=["id", "_distance"], nearest=nearest, filter=condition or None,
            prefilter=True, with_row_id=True,
        )  # fmt: skip
        if "nprobes" in more:
            assert_same(found, number, neighbours)
        else:
            assert_as_near(found.distance[found.query == number], neighbours)


def assert_as_near(mine, neighbours, tolerance=1e-4):
    """As many rows, none of them further away: pylance loses some where few of them match."""
    expected = neighbours["_distance"].to_numpy()
    assert len(mine) == len(expected)
    assert (mine - expected <= tolerance * (1 + np.abs(expected))).all()


@pytest.mark.parametrize(("metric", "k"), grid(("l2", "cosine", "dot"), (1, 10, 60, 150)))
def test_default_nprobes_equal_pylance(tmp_path, metric, k):
    numbers = make(tmp_path / "t", "flat", metric, rows=3000, partitions=100)
    queries = np.concatenate([queries_for(numbers), numbers[7:10].astype("f4")])
    _, found = ours(tmp_path / "t", queries, k)
    for number, query in enumerate(queries):
        assert_same(found, number, from_pylance(tmp_path / "t", query, k))


def test_damaged_or_missing_vector_index_is_not_used(tmp_path):
    numbers = make(tmp_path / "t", "pq", "l2")
    queries = queries_for(numbers)
    exact = ours(tmp_path / "t", queries, 4, use_index=False)[1]
    (file,) = (tmp_path / "t" / "_indices").rglob("index.idx")
    content = file.read_bytes()
    for damaged in (content[:-60] + b"\xff" * 60, content[:100], None):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        # Another version, of which nothing is known yet.
        lance.dataset(str(tmp_path / "t")).update_config({"seen": str(damaged is None)})
        plan, found = ours(tmp_path / "t", queries, 4)
        assert not any(isinstance(task, SegmentTask) for task in plan.tasks)
        assert found.row_id.tolist() == exact.row_id.tolist()


def test_vector_index_status_describes_purpose(tmp_path):
    make(tmp_path / "t", "pq", "l2")
    (facts,) = index_status(Snapshot.open(Table(str(tmp_path / "t"))))
    assert (facts.kind, facts.columns, facts.is_used) == ("vector", ("v",), False)
    assert facts.note == "it is for nearest; scans use no vector index"


def notes(path):
    return [row[-1] for row in index_rows(Table(str(path)))]


def test_unusable_vector_index_gives_reason(tmp_path):
    path = tmp_path / "t"
    numbers = make(path, "flat", "l2")
    queries = queries_for(numbers)
    exact = ours(path, queries, 4, use_index=False)[1]

    def check(note):
        plan, found = ours(path, queries, 4)
        assert not any(isinstance(task, SegmentTask) for task in plan.tasks)
        assert found.row_id.tolist() == exact.row_id.tolist()
        assert notes(path) == [note]

    assert notes(path) == ["it is for nearest; scans use no vector index"]
    shutil.rmtree(path / "_indices")
    lance.dataset(str(path)).update_config({"seen": "true"})
    check("nearest does not use it: its files are missing")


def test_index_awaiting_deferred_remap_is_not_used(tmp_path):
    path = tmp_path / "t"
    queries = queries_for(make(path, "flat", "l2", stable=False))
    lance.dataset(str(path)).optimize.compact_files(defer_index_remap=True)
    plan, found = ours(path, queries, 4)
    assert not any(isinstance(task, SegmentTask) for task in plan.tasks)
    assert found.row_id.tolist() == ours(path, queries, 4, use_index=False)[1].row_id.tolist()
    assert notes(path) == [
        "nearest does not use it: a compaction with deferIndexRemap moved its rows"
    ]


@pytest.mark.parametrize(("kind", "metric"), [("flat", "l2"), ("pq", "cosine"), ("flat", "dot")])
def test_default_nprobes_over_segments_match_pylance(tmp_path, kind, metric):
    """Lance counts the rows of all segments, and stops as soon as tasks of its own find enough."""
    path = tmp_path / "t"
    numbers = make(path, kind, metric, rows=2500, partitions=100)
    rng = np.random.default_rng(3)
    for start, rows in ((5000, 300), (6000, 40)):
        new = rows_of(rng.normal(size=(rows, WIDTH)) + 0.3, start=start)
        lance.write_dataset(new, str(path), mode="append")
        lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=0)
    queries = np.concatenate([queries_for(numbers), numbers[7:9].astype("f4")])
    for k in (1, 150):
        plan, found = ours(path, queries, k)
        assert [type(task) for task in plan.tasks] == [SegmentTask] * 3
        for number, query in enumerate(queries):
            neighbours = from_pylance(path, query, k)
            assert_as_near(found.distance[found.query == number], neighbours)


@pytest.mark.parametrize(
    ("kind", "metric"), grid(("flat", "pq", "pq of 4 bits", "sq"), ("l2", "cosine", "dot"))
)
def test_batched_queries_equal_single_queries(tmp_path, kind, metric, monkeypatch):
    numbers = make(tmp_path / "t", kind, metric)
    many = numbers[:90].astype(np.float32)
    # Several blocks of queries, and of distances.
    monkeypatch.setattr(ivf_search, "_QUERIES_AT_ONCE", 40)
    monkeypatch.setattr(ivf_search, "_DISTANCES", 5000)
    _, together = ours(tmp_path / "t", many, 5, nprobes=2)
    monkeypatch.setattr(ivf_search, "_SMALL_QUERY_COUNT", 1000)
    _, alone = ours(tmp_path / "t", many, 5, nprobes=2)
    assert together.query.tolist() == alone.query.tolist()
    assert np.allclose(together.distance, alone.distance, rtol=1e-5, atol=1e-5)
    for number in range(0, 90, 9):
        assert_same(together, number, from_pylance(tmp_path / "t", many[number], 5, nprobes=2))


def test_queries_exceeding_ordering_batch_are_answered(tmp_path):
    numbers = make(tmp_path / "t", "flat", "l2")
    many = numbers[np.arange(4500) % 900].astype(np.float32)
    _, found = ours(tmp_path / "t", many, 1)
    assert found.row_id.tolist() == (np.arange(4500) % 900).tolist()
    assert found.query.tolist() == list(range(4500))


@pytest.mark.parametrize("flawed", [{"nprobes": 0}, {"refine_factor": 0}, {"nprobes": 1.5}])
def test_nprobes_and_refine_factor_must_be_positive_integers(tmp_path, flawed):
    make(tmp_path / "t", "flat", "l2", rows=300, partitions=1)
    with pytest.raises(
        InvalidInputError, match=f"{next(iter(flawed))} must be a number, at least 1"
    ):
        ours(tmp_path / "t", [0.5] * WIDTH, 4, **flawed)
