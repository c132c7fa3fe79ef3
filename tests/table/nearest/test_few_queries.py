"""Single queries of an index: estimates choose candidates, exact distances decide."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from vector_tables import WIDTH, ours

from pyspark_lance.store.recently_used import RecentlyUsed
from pyspark_lance.table.index_build.vector_build import (
    VectorIndexRequest,
    create_vector_index,
    parse_kind,
)
from pyspark_lance.table.nearest import few_queries, live_rows
from pyspark_lance.table.nearest.ivf_search import SegmentTask, metric_and_segments
from pyspark_lance.table.nearest.vectors import Metric, level_squares, vector_column
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

K = 7


def make(path, numbers, kind="ivf_flat", metric="l2"):
    items = pa.array(numbers.ravel())
    rows = {
        "id": np.arange(len(numbers)),
        "v": pa.FixedSizeListArray.from_arrays(items, numbers.shape[1]),
    }
    lance.write_dataset(pa.table(rows), path, max_rows_per_file=400, enable_stable_row_ids=True)
    request = VectorIndexRequest("v", parse_kind(kind), Metric(metric), 6, seed=3)
    create_vector_index(Table(path), request)


def make_any(path, numbers, kind, num_bits=3):
    """Make an index as ``make`` does, or have pylance make an IVF_RQ."""
    make(path, numbers, kind="ivf_flat" if kind == "ivf_rq" else kind)
    if kind == "ivf_rq":
        more = {"num_partitions": 6, "num_bits": num_bits, "name": "v_idx", "replace": True}
        lance.dataset(path).create_index("v", "IVF_RQ", metric="l2", **more)


def random_numbers(rows=1200, column_type="float32", seed=5):
    return np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(column_type)


def assert_equal_to_scan(path, query, *, metric="l2", condition=None):
    """An index of whole vectors finds what a search without an index finds."""
    plan, found = ours(path, query, K, metric=metric, condition=condition, nprobes=6)
    assert {type(task) for task in plan.tasks} == {SegmentTask}
    _, expected = ours(path, query, K, metric=metric, condition=condition, use_index=False)
    assert found.row_id.tolist() == expected.row_id.tolist()
    assert found.distance.tolist() == expected.distance.tolist()
    assert found.address.tolist() == expected.address.tolist()


@pytest.mark.parametrize("metric", ["l2", "dot"])
@pytest.mark.parametrize("column_type", ["float16", "float32", "float64"])
def test_rows_far_from_origin_are_in_exact_order(tmp_path, metric, column_type):
    path = str(tmp_path / "t")
    numbers = (random_numbers() * 0.1 + 100).astype(column_type)
    make(path, numbers, metric=metric)
    for query in numbers[:5]:
        assert_equal_to_scan(path, query, metric=metric)


def test_single_cosine_queries_equal_many(tmp_path):
    path, numbers = str(tmp_path / "t"), random_numbers() * np.float32(0.1) + 100
    make(path, numbers, metric="cosine")
    _, many = ours(path, numbers[:40], K, nprobes=6)
    for number, query in enumerate(numbers[:5]):
        _, found = ours(path, query, K, nprobes=6)
        own = many.at(many.query == number)
        assert found.row_id.tolist() == own.row_id.tolist()
        assert found.distance.tolist() == own.distance.tolist()


@pytest.mark.parametrize("condition", [None, "id % 100 = 3", "id % 400 = 3", "id < 0"])
def test_candidates_grow_until_enough_are_live(tmp_path, condition):
    path, numbers = str(tmp_path / "t"), random_numbers()
    make(path, numbers)
    nearest = ours(path, numbers[3], 1000, nprobes=6)[1].row_id
    dead = ", ".join(map(str, nearest[nearest % 100 != 3].tolist()))
    lance.dataset(path).delete(f"id IN ({dead})")
    assert_equal_to_scan(path, numbers[3], condition=condition)


@pytest.mark.parametrize("kind", ["ivf_flat", "ivf_sq", "ivf_pq"])
def test_ties_are_broken_by_row_id_over_partitions(tmp_path, kind):
    path, numbers = str(tmp_path / "t"), np.repeat(random_numbers(300), 4, axis=0)
    numbers = np.random.default_rng(1).permutation(numbers)
    make(path, numbers, kind)
    _, found = ours(path, numbers[0], 10, nprobes=6)
    _, every = ours(path, numbers[0], 40, nprobes=6)
    assert found.row_id.tolist() == every.row_id[:10].tolist()
    assert np.lexsort((every.row_id, every.distance)).tolist() == list(range(len(every)))
    (equal,) = np.nonzero((numbers == numbers[0]).all(axis=1))
    assert found.row_id[:4].tolist() == equal.tolist()


@pytest.mark.parametrize("metric", ["l2", "dot"])
@pytest.mark.parametrize("scale", [1e17, 1e-25])
def test_numbers_beyond_products_are_compared_exactly(tmp_path, metric, scale):
    path, numbers = str(tmp_path / "t"), random_numbers()
    make(path, numbers, metric=metric)
    scaled = ", ".join(f"{number:e}" for number in (numbers[0] * scale).tolist())
    vector = f"arrow_cast([{scaled}], 'FixedSizeList({WIDTH}, Float32)')"
    lance.dataset(path).update({"v": vector}, where="id % 7 = 1")
    lance.dataset(path).optimize.optimize_indices()
    for query in (numbers[0], numbers[1], (numbers[0] * scale).astype(np.float32)):
        assert_equal_to_scan(path, query, metric=metric)


@pytest.mark.parametrize("kind", ["ivf_flat", "ivf_sq", "ivf_pq", "ivf_rq"])
def test_many_queries_after_deletes_equal_single_queries(tmp_path, kind):
    path, numbers = str(tmp_path / "t"), random_numbers()
    make_any(path, numbers, kind)
    lance.dataset(path).delete("id % 3 = 1")
    _, many = ours(path, numbers[:40], K, nprobes=6)
    for number in range(0, 40, 4):
        _, found = ours(path, numbers[number], K, nprobes=6)
        own = many.at(many.query == number)
        assert found.row_id.tolist() == own.row_id.tolist()
        assert np.allclose(found.distance, own.distance, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["ivf_flat", "ivf_pq"])
def test_pending_partitions_are_bounded(tmp_path, kind, monkeypatch):
    path, numbers = str(tmp_path / "t"), random_numbers()
    make(path, numbers, kind)
    _, together = ours(path, numbers[:4], K, nprobes=6)
    seen, search = [], few_queries.FewQueries.finish
    monkeypatch.setattr(few_queries, "_PENDING_ROWS", 500)

    def finish(self):
        seen.append(self._num_rows)
        return search(self)

    monkeypatch.setattr(few_queries.FewQueries, "finish", finish)
    _, found = ours(path, numbers[:4], K, nprobes=6)
    assert len(seen) > 3 and seen[-1] < 500
    assert found.row_id.tolist() == together.row_id.tolist()
    assert found.distance.tolist() == together.distance.tolist()


def segment_rows(path, *, is_cached=False):
    snapshot = Snapshot.open(Table(path))
    _, (segment,) = metric_and_segments(snapshot, vector_column(snapshot.schema, "v"), None)
    return segment, live_rows.SegmentRows(
        snapshot.files, segment, tuple(snapshot.manifest.fragments), stable_row_ids=True,
        is_cached=is_cached,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "num_bits"),
    [("ivf_flat", 0), ("ivf_sq", 0), ("ivf_pq", 0), *(("ivf_rq", bits) for bits in (1, 2, 5, 9))],
)
def test_partitions_read_together_equal_single_ones(tmp_path, kind, num_bits, monkeypatch):
    path = str(tmp_path / "t")
    make_any(path, random_numbers(), kind, num_bits)
    segment, rows = segment_rows(path)
    numbers = [0, 2, 3, 5]
    together = list(rows.partitions(numbers))
    monkeypatch.setattr(live_rows, "_NUMBERS_AT_ONCE", 1)
    single = list(rows.partitions(numbers))
    assert [len(one.row_ids) for one in together] == segment.lengths[numbers].tolist()
    for one, other in zip(together, single, strict=True):
        assert one.row_ids.tolist() == other.row_ids.tolist()
        assert one.row_ids.flags.owndata and (kind == "ivf_rq" or one.stored.flags.owndata)
        assert one.stored.flags.c_contiguous == other.stored.flags.c_contiguous
        assert np.array_equal(one.stored, other.stored)
        assert np.array_equal(one.squares, other.squares)
        if kind == "ivf_rq":
            names = ("signs", "numbers", "addends", "factors", "is_rounded")
            for name in names:
                mine = getattr(one.rabit, name)
                assert np.array_equal(mine, getattr(other.rabit, name))
                assert mine is None or owner(mine).nbytes < 2 * mine.nbytes


def owner(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@pytest.mark.parametrize("is_cached", [False, True])
def test_search_reads_partitions_once(tmp_path, is_cached, monkeypatch):
    path, numbers = str(tmp_path / "t"), random_numbers()
    make(path, numbers, "ivf_sq")
    read, reads = live_rows.SegmentRows._read_partitions, []
    monkeypatch.setattr(
        live_rows.SegmentRows, "_read_partitions",
        lambda self, some: reads.append(some) or read(self, some),
    )  # fmt: skip
    bytes_kept = 1 << 20 if is_cached else 0
    monkeypatch.setattr(live_rows, "_kept_partitions", RecentlyUsed(bytes_kept, lambda one: 9))
    _, first = ours(path, numbers[0], K, nprobes=3)
    _, again = ours(path, numbers[0], K, nprobes=3)
    assert [len(some) for some in reads] == ([3, 0] if is_cached else [3, 3])
    assert again.row_id.tolist() == first.row_id.tolist()
    _, more = ours(path, numbers[0], K, nprobes=6)
    assert len(reads[2]) == (3 if is_cached else 6)
    assert more.distance[0] == first.distance[0]


@pytest.mark.parametrize("width", [8, 129, 130, 1000])
def test_squares_of_levels_are_exact(width):
    levels = np.random.default_rng(3).integers(200, 256, (50, width), np.uint8)
    levels[7] = 255
    expected = (levels.astype(np.int64) ** 2).sum(axis=1)
    assert level_squares(levels).tolist() == expected.tolist()
