"""IVF_RQ indices of pylance: the rows and distances of pylance, through changes of the table."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from random_seeds import grid
from vector_tables import TYPES, WIDTH, assert_same, from_pylance, ours, rows_of

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.spark.sql.metadata_tables import index_rows
from pyspark_lance.table.index_build.vector_build import parse_kind, refresh_all_indices
from pyspark_lance.table.nearest.rabit import parse_code
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table

METRICS = ("l2", "cosine", "dot")
STORAGE = {
    "rotation_type": "fast", "query_estimator": "raw_query", "packed": True, "code_dim": 16,
    "num_bits": 1, "fast_rotation_signs": [0] * 8,
}  # fmt: skip
COLUMNS = ("_rowid", "_rabit_codes", "__add_factors", "__scale_factors", "__error_factors")


def make(path, metric, num_bits, *, width=WIDTH, column_type="float32", rows=1600, stable=True,
         partitions=5):  # fmt: skip
    """Return the vectors of a table with an IVF_RQ index, which has nulls and a NaN."""
    numbers = np.random.default_rng(num_bits + width).normal(size=(rows, width)) + 0.3
    if width == WIDTH:
        table = rows_of(numbers, column_type)
    else:
        items = pa.array(numbers.astype(column_type).ravel(), TYPES[column_type])
        lists = pa.FixedSizeListArray.from_arrays(items, width)
        table = pa.table({"id": np.arange(rows), "v": lists})
    lance.write_dataset(table, path, max_rows_per_file=700, enable_stable_row_ids=stable)
    add_index(path, metric, num_bits, partitions)
    return numbers


def add_index(path, metric, num_bits, partitions=5):
    lance.dataset(path).create_index(
        "v", "IVF_RQ", metric=metric, num_partitions=partitions, name="by_v",
        num_bits=num_bits, replace=True,
    )  # fmt: skip


def queries_of(numbers, column_type="float32"):
    rng = np.random.default_rng(11)
    return np.stack([numbers[5], *rng.normal(size=(3, numbers.shape[1]))]).astype(column_type)


def assert_same_as_pylance(path, queries, k, *, condition=None, tolerance=2e-4, **more):
    """The same rows at the same distances.

    By its bounds of distances pylance leaves out a few of the nearest rows, and has others instead.
    """
    plan, found = ours(path, queries, k, condition=condition, **more)
    for number, query in enumerate(queries):
        if condition is None:
            expected = from_pylance(path, query, k, **more)
        else:
            expected = lance.dataset(path, session=lance.Session()).to_table(
                columns=["id", "_distance"], with_row_id=True, filter=condition, prefilter=True,
                nearest={"column": "v", "q": pa.array(query), "k": k, **more},
            )  # fmt: skip
        mine = found.query == number
        own = dict(zip(found.row_id[mine].tolist(), found.distance[mine].tolist(), strict=True))
        their = dict(
            zip(expected["_rowid"].to_pylist(), expected["_distance"].to_pylist(), strict=True)
        )
        assert len(own) == len(their)
        worst = max(own.values(), default=0.0)
        for row, distance in their.items():
            # Sums of numbers as large as the largest distance are rounded.
            scale = tolerance * (1 + abs(distance)) + 1e-6 * worst
            assert (
                distance >= worst - scale if row not in own else abs(own[row] - distance) <= scale
            )
        missed = len(own.keys() - their.keys())
        assert missed <= 0.2 * len(own) + 1
    return {type(task).__name__ for task in plan.tasks}


@pytest.mark.parametrize(
    ("metric", "num_bits", "column_type"), grid(METRICS, tuple(range(1, 10)), tuple(TYPES))
)
def test_rabit_search_equals_pylance(tmp_path, metric, num_bits, column_type):
    path = str(tmp_path / "t")
    numbers = make(path, metric, num_bits, column_type=column_type)
    for nprobes in (1, 3, 5):
        tasks = assert_same_as_pylance(
            path, queries_of(numbers, column_type), 10, nprobes=nprobes,
            tolerance=2e-3 if column_type == "float16" else 2e-4,
        )  # fmt: skip
        assert tasks == {"SegmentTask"}


@pytest.mark.parametrize(
    ("width", "num_bits", "metric"),
    [(8, 2, "l2"), (24, 5, "dot"), (72, 7, "cosine"), (200, 3, "l2"), (1536, 1, "l2"),
     (136, 6, "l2"), (128, 9, "dot")],
)  # fmt: skip
def test_rabit_search_of_other_widths_equals_pylance(tmp_path, width, num_bits, metric):
    path = str(tmp_path / "t")
    numbers = make(path, metric, num_bits, width=width, rows=500, partitions=3)
    assert_same_as_pylance(path, queries_of(numbers), 10, nprobes=2)


@pytest.mark.parametrize("metric", METRICS)
def test_refined_rabit_distances_are_exact(tmp_path, metric):
    path = str(tmp_path / "t")
    numbers = make(path, metric, 3)
    queries = queries_of(numbers)
    _, found = ours(path, queries, 5, nprobes=5, refine_factor=6)
    for number, query in enumerate(queries):
        best = from_pylance(path, query, 5, nprobes=5, refine_factor=6)
        assert_same(found, number, best, 1e-5)


@pytest.mark.parametrize("num_bits", [1, 4])
@pytest.mark.parametrize("condition", ["id % 3 = 0", "id < 12", "id % 250 = 3", "id < 0"])
def test_filtered_rabit_search_equals_pylance(tmp_path, num_bits, condition):
    path = str(tmp_path / "t")
    numbers = make(path, "l2", num_bits)
    assert_same_as_pylance(path, queries_of(numbers), 8, condition=condition, nprobes=5)


def test_default_nprobes_of_rabit_equal_pylance(tmp_path):
    path = str(tmp_path / "t")
    numbers = make(path, "l2", 5, rows=3000, partitions=60)
    for k in (1, 20, 1000):
        assert_same_as_pylance(path, queries_of(numbers), k)


@pytest.mark.parametrize(
    ("stable", "metric", "num_bits"), grid((True, False), ("cosine", "l2", "dot"), (1, 5))
)
def test_rabit_search_is_correct_after_table_changes(tmp_path, stable, metric, num_bits):
    path = str(tmp_path / "t")
    numbers = make(path, metric, num_bits, stable=stable)
    queries, rng = queries_of(numbers), np.random.default_rng(2)

    def check():
        return assert_same_as_pylance(path, queries, 8, nprobes=5)

    lance.dataset(path).delete("id % 3 = 0")
    assert check() == {"SegmentTask"}
    new = rows_of(rng.normal(size=(300, WIDTH)), start=5000)
    lance.write_dataset(new, path, mode="append")
    assert check() == {"SegmentTask", "SearchTask"}
    lance.dataset(path).update({"id": "id + 10000"}, where="id < 100")
    check()
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    assert check() == {"SegmentTask"}
    lance.dataset(path).optimize.compact_files()
    check()
    lance.dataset(path).optimize.optimize_indices()
    assert check() == {"SegmentTask"}
    assert not verify(Table(path), read_data=True).findings


def test_refresh_leaves_rabit_index_to_pylance(tmp_path):
    path = str(tmp_path / "t")
    numbers = make(path, "l2", 1)
    lance.write_dataset(rows_of(numbers[:40], start=5000), path, mode="append")
    for joins_segments in (False, True):
        assert not refresh_all_indices(Table(path), joins_segments=joins_segments).names
    assert assert_same_as_pylance(path, queries_of(numbers), 8, nprobes=5) == {
        "SegmentTask", "SearchTask",
    }  # fmt: skip
    lance.dataset(path).optimize.optimize_indices()
    assert assert_same_as_pylance(path, queries_of(numbers), 8, nprobes=5) == {"SegmentTask"}


@pytest.mark.parametrize(("metric", "num_bits"), [("cosine", 3), ("dot", 1), ("dot", 9), ("l2", 5)])
def test_batched_rabit_queries_equal_single_queries(tmp_path, metric, num_bits):
    path = str(tmp_path / "t")
    numbers = make(path, metric, num_bits)
    many = numbers[:40].astype(np.float32)
    _, together = ours(path, many, 5, nprobes=2)
    for number in range(40):
        _, alone = ours(path, many[[number]], 5, nprobes=2)
        own = together.at(together.query == number)
        assert own.row_id.tolist() == alone.row_id.tolist()
        assert np.allclose(own.distance, alone.distance, atol=1e-5)


def test_zero_query_finds_rows_as_pylance(tmp_path):
    path = str(tmp_path / "t")
    make(path, "l2", 2)
    assert_same_as_pylance(path, np.zeros((1, WIDTH), np.float32), 8, nprobes=5)


@pytest.mark.parametrize(
    ("flawed", "message"),
    [
        ({"rotation_type": "matrix"}, "rotation_type matrix"),
        ({"query_estimator": "residual_query"}, "query_estimator residual_query"),
        ({"packed": False}, "packed False"),
        ({"code_dim": 32}, "code_dim 32"),
        ({"num_bits": 10}, "10 bits"),
        ({"fast_rotation_signs": [0] * 4}, "1 bits"),
        ({"num_bits": 3}, "without __add_factors_ex"),
    ],
)
def test_other_rabit_layouts_are_refused_by_name(flawed, message):
    assert parse_code(STORAGE, COLUMNS, 16).num_bits == 1
    with pytest.raises(UnsupportedFeatureError, match=message):
        parse_code({**STORAGE, **flawed}, COLUMNS, 16)


def test_rabit_index_is_listed_as_used_by_nearest(tmp_path):
    path = str(tmp_path / "t")
    make(path, "l2", 1)
    (row,) = index_rows(Table(path))
    assert row[-1] == "it is for nearest; scans use no vector index"


def test_rabit_index_cannot_be_built(tmp_path):
    with pytest.raises(InvalidInputError, match="'ivf_rq' is not a kind of vector index"):
        parse_kind("ivf_rq")
