"""Exact search of nearest rows: the same rows and distances as pylance's, however it is cut up."""

from __future__ import annotations

import warnings

import lance
import numpy as np
import pyarrow as pa
import pytest
from random_seeds import grid, seeds

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.nearest.exact_search import (
    NOTHING_FOUND,
    ExactSearch,
    FoundRows,
    exact_distances,
    nearest_of,
)
from pyspark_lance.table.nearest.search_plan import (
    NearestRequest,
    VectorSearch,
    merge_matches,
    plan_nearest,
    read_found,
)
from pyspark_lance.table.nearest.vectors import (
    Metric,
    matrix_of,
    parse_queries,
    queries_in,
    vector_column,
)
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

TYPES = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}


def vectors(numbers: np.ndarray, kind: str, missing: np.ndarray | None = None) -> pa.Array:
    flat = pa.array(numbers.astype(kind).reshape(-1), TYPES[kind])
    mask = None if missing is None else pa.array(missing)
    return pa.FixedSizeListArray.from_arrays(flat, numbers.shape[1], mask=mask)


def nearest_here(path, queries, k, metric="l2", condition=None, columns=("id",), system=()):
    """As Spark has it done: each task alone, then their answers together, then the rows."""
    snapshot = Snapshot.open(Table(str(path)))
    column = vector_column(snapshot.schema, None)
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    request = NearestRequest(
        column, Metric.parse(metric), k, predicate, project(snapshot.schema, columns), system
    )
    plan = plan_nearest(snapshot, request)
    if isinstance(queries, pa.Array):
        asked = queries_in(queries, column, request.metric)
    else:
        asked, _ = parse_queries(queries, column, request.metric)
    found = merge_matches(
        plan.merge, [VectorSearch((task,), asked).run() for task in plan.tasks], asked
    )
    rows = [batch.to_pylist() for _, batch in read_found(plan.fetch, found)]
    return found, [row for part in rows for row in part]


def nearest_by_pylance(path, query, k, metric, condition=None):
    """Pylance's answer by comparing with every row; it warns of its own future."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lance.dataset(str(path)).to_table(
            columns=["id", "_distance"],
            nearest={"column": "v", "q": query, "k": k, "metric": metric, "use_index": False},
            filter=condition,
            prefilter=True,
            with_row_id=True,
        )


def assert_same_answer(found, rows, number, from_pylance, tolerance=1e-5):
    """The same rows at the same distances; rows that differ by rounding may change places."""
    mine = found.query == number
    distances = found.distance[mine]
    pylance_distances = from_pylance["_distance"].to_numpy()
    assert len(distances) == len(pylance_distances)
    scale = tolerance * (1 + np.abs(pylance_distances))
    finite = np.isfinite(pylance_distances)
    assert np.array_equal(np.isfinite(distances), finite)
    assert (np.abs(distances - pylance_distances)[finite] <= scale[finite]).all()
    ids = np.array([row["id"] for row, own in zip(rows, mine, strict=True) if own])
    # Differences are within rounding of the last distance or of a neighbour in the list.
    for place in np.flatnonzero(ids != from_pylance["id"].to_numpy()):
        near = np.abs(pylance_distances - distances[place]) <= 2 * scale[place]
        assert near.sum() > 1 or place == len(ids) - 1


def make_table(path, rng, kind, *, rows, width, missing=True, version="2.1", stable=True):
    numbers = rng.normal(size=(rows, width))
    gone = rng.random(rows) < 0.1 if missing else None
    if missing:
        numbers[rng.random(rows) < 0.05, 0] = np.nan
        numbers[rng.random(rows) < 0.05] = 0
    data = {
        "id": np.arange(rows) * 3,
        "v": vectors(numbers, kind, gone),
        "word": [f"word {one % 7}" for one in range(rows)],
    }
    lance.write_dataset(
        pa.table(data), str(path), max_rows_per_file=max(1, rows // 3),
        data_storage_version=version, enable_stable_row_ids=stable,
    )  # fmt: skip
    return numbers


@pytest.mark.interop
@pytest.mark.parametrize(("kind", "metric", "seed"), grid(tuple(TYPES), list(Metric), range(4)))
def test_nearest_rows_equal_pylance(tmp_path, kind, metric, seed):
    rng = np.random.default_rng([seed, len(kind), len(metric)])
    width, rows = int(rng.choice([1, 3, 16, 100])), int(rng.choice([5, 300, 2000]))
    path = tmp_path / "t"
    version = str(rng.choice(["2.0", "2.1", "2.2"]))
    make_table(path, rng, kind, rows=rows, width=width, version=version, stable=seed % 2 == 0)
    dataset = lance.dataset(str(path))
    dataset.delete(f"id % {int(rng.integers(2, 6))} = 0")
    if seed > 1:
        dataset.update({"word": "'other'"}, where=f"id > {rows}")
    condition = str(rng.choice(["", "word = 'word 3' OR id < 200", "id < 0"])) or None
    k = int(rng.choice([1, 4, rows + 10]))
    queries = rng.normal(size=(3, width)).astype(kind).astype(np.float64)
    found, read = nearest_here(path, queries, k, metric, condition)
    assert set(found.query.tolist()) <= {0, 1, 2}
    for number, query in enumerate(queries):
        from_pylance = nearest_by_pylance(path, query.astype(kind), k, metric, condition)
        assert_same_answer(found, read, number, from_pylance)


@pytest.mark.interop
@pytest.mark.parametrize("metric", list(Metric))
def test_infinite_numbers_rank_like_pylance(tmp_path, metric):
    inf, huge = np.inf, 1e30
    numbers = np.array([[1, 0], [0, 0], [np.nan, 0], [inf, 0], [-inf, 1], [2, 3], [inf, -inf]])
    rows = pa.table({"id": range(len(numbers)), "v": vectors(numbers, "float32")})
    lance.write_dataset(rows, tmp_path / "t")
    queries = [[1, 1], [2, 1], [1, -1], [huge, 1]]
    if metric is Metric.COSINE:
        queries.pop()  # its square overflows in pylance, which says 1 of all rows
    found, read = nearest_here(tmp_path / "t", queries, 10, metric)
    for number, query in enumerate(queries):
        from_pylance = nearest_by_pylance(tmp_path / "t", query, 10, metric)
        assert [row["id"] for row, n in zip(read, found.query, strict=True) if n == number] == (
            from_pylance["id"].to_pylist()
        )
        mine = found.distance[found.query == number]
        assert mine == pytest.approx(from_pylance["_distance"].to_numpy(), rel=1e-6)


def test_infinite_queries_are_equally_far_from_all_rows():
    """Also of later blocks, without warnings."""
    search = ExactSearch(np.full((1, 2), np.inf, np.float32), Metric.L2, 2)
    for first in (0, 500):
        ids = np.arange(first, first + 500, dtype=np.uint64)
        search.add(np.ones((500, 2), np.float32), ids, ids)
    found = search.result()
    assert found.row_id.tolist() == [0, 1]
    assert np.isinf(found.distance).all()


@pytest.mark.interop
def test_equally_near_rows_are_ordered_by_row_id(tmp_path):
    numbers = np.zeros((900, 4))
    numbers[100] = 1
    rows = pa.table({"id": range(900), "v": vectors(numbers, "float32")})
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=200)
    found, read = nearest_here(tmp_path / "t", [[0, 0, 0, 0], [1, 1, 1, 1]], 5)
    ids = [row["id"] for row in read]
    assert ids == [0, 1, 2, 3, 4, 100, 0, 1, 2, 3]
    assert ids[:5] == nearest_by_pylance(tmp_path / "t", [0.0] * 4, 5, "l2")["id"].to_pylist()
    assert found.ranks().tolist() == [1, 2, 3, 4, 5] * 2


def brute(queries, rows, metric, k):
    """Every distance, in the plainest way."""
    queries, numbers = queries.astype(np.float64), rows.astype(np.float64)
    with np.errstate(all="ignore"):
        if metric is Metric.L2:
            every = ((queries[:, None] - numbers[None]) ** 2).sum(-1)
        else:
            every = queries @ numbers.T
            if metric is Metric.COSINE:
                every = every / np.linalg.norm(queries, axis=1)[:, None]
                every = every / np.linalg.norm(numbers, axis=1)
            every = 1 - every
        every = every.astype(np.float32)
    for number, distances in enumerate(every):
        known = np.flatnonzero(~np.isnan(distances))
        best = known[np.lexsort((known, distances[known]))][:k]
        yield number, distances[best]


@pytest.mark.parametrize("seed", seeds(120, in_ci=9))
def test_search_bounds_exclude_no_nearest_row(seed):
    rng = np.random.default_rng(seed)
    width, rows = int(rng.choice([1, 2, 8, 64])), int(rng.integers(0, 5000))
    metric, kind = list(Metric)[seed % 3], ["f2", "f4", "f8"][seed // 3 % 3]
    k, count = int(rng.choice([1, 10, 100, 6000])), int(rng.choice([1, 2, 70]))
    scale = float(rng.choice([1, 1e-3, 100, 1 if kind == "f2" else 1e20]))
    offset = float(rng.choice([0, 5, 1000]))
    whole = rng.random() < 0.3  # many equal distances

    def some(size):
        if whole:
            return rng.integers(1, 4, size).astype(kind)
        with np.errstate(over="ignore"):
            return (rng.normal(size=size) * scale + offset * scale).astype(kind)

    numbers, queries = some((rows, width)), some((count, width))
    queries[~np.isfinite(queries)] = 1
    queries[~queries.any(axis=1)] = 1
    if rows:
        numbers[rng.integers(0, rows, 3), 0] = np.nan
        numbers[rng.integers(0, rows, 3), 0] = np.inf
        numbers[rng.integers(0, rows, 3)] = 0
    search_in_parts = ExactSearch(queries, metric, k)
    for part in np.array_split(rng.permutation(rows), 4):
        ids = part.astype(np.uint64)
        search_in_parts.add(numbers[part], ids, ids)
    found = search_in_parts.result()
    for number, expected in brute(queries, numbers, metric, k):
        mine = found.distance[found.query == number]
        assert len(mine) == len(expected)
        assert mine == pytest.approx(expected, rel=1e-6, abs=1e-6)
    pairs = list(zip(found.query.tolist(), found.row_id.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)


def test_vectors_distant_from_zero_are_distinguished():
    """Their products differ by less than single precision distinguishes."""
    numbers = (1000 + np.arange(5000)[:, None] * [1e-2, 0, 0, 0]).astype(np.float32)
    found = ExactSearch(numbers[4000:4001], Metric.L2, 3)
    ids = np.arange(5000, dtype=np.uint64)
    found.add(numbers, ids, ids)
    assert found.result().row_id.tolist()[0] == 4000
    assert sorted(found.result().row_id.tolist()) == [3999, 4000, 4001]


@pytest.mark.parametrize("metric", list(Metric))
def test_distances_below_single_precision_are_distinguished(metric):
    """They differ by less than what rounding adds to the products of two blocks."""
    rng = np.random.default_rng(1)
    numbers = (1000 + rng.normal(size=(20_000, 256)) * 1e-2).astype(np.float32)
    queries = numbers[:20]
    found = ExactSearch(queries, metric, 5)
    ids = np.arange(20_000, dtype=np.uint64)
    found.add(numbers, ids, ids)
    every = np.stack(
        [exact_distances(np.tile(q, (20_000, 1)), numbers, metric) for q in queries.astype("f8")]
    )
    best = [np.lexsort((ids, distances))[:5] for distances in every]
    assert found.result().row_id.tolist() == np.concatenate(best).tolist()


def test_queries_exceeding_one_block_are_answered():
    rng = np.random.default_rng(5)
    numbers = rng.normal(size=(6000, 6)).astype(np.float32)
    ids = np.arange(6000, dtype=np.uint64)
    found = ExactSearch(numbers[:2500], Metric.L2, 1)
    found.add(numbers, ids, ids)
    assert found.result().row_id.tolist() == list(range(2500))
    assert not found.result().distance.any()


def test_worst_row_order_uses_bounded_memory():
    """Each row is nearer than all before it."""
    numbers = np.linspace(9, 0, 20_000)[:, None].repeat(4, axis=1)
    ids = np.arange(20_000, dtype=np.uint64)
    found = ExactSearch(np.zeros((100, 4)), Metric.L2, 2)
    for first in range(0, 20_000, 1000):
        part = slice(first, first + 1000)
        found.add(numbers[part], ids[part], ids[part])
        assert found._num_waiting < 100_000
    assert found.result().row_id.tolist() == [19_999, 19_998] * 100


def test_equal_rows_are_compared_only_as_needed():
    numbers = np.random.default_rng(2).normal(size=(30_000, 8)).astype(np.float32)
    numbers[1000:25_000] = numbers[7]
    order = np.random.default_rng(3).permutation(30_000)
    found = ExactSearch(np.tile(numbers[7], (500, 1)), Metric.L2, 3)
    for part in np.array_split(order, 6):
        found.add(numbers[part], part.astype(np.uint64), part.astype(np.uint64))
    assert found.result().row_id.tolist() == [7, 1000, 1001] * 500
    assert found.num_computed < 500 * 30_000 / 100


def test_best_equal_rows_of_block_are_found():
    found = ExactSearch(np.ones((500, 8)), Metric.L2, 3)
    ids = np.arange(3000, dtype=np.uint64)
    found.add(np.ones((3000, 8), np.float32), ids, ids)
    assert found.result().row_id.tolist() == [0, 1, 2] * 500


def test_partial_results_merge_by_distance():
    def part(query, distance, row_id):
        return FoundRows(
            np.array(query),
            np.array(distance, "f4"),
            np.array(row_id, "u8"),
            np.array(row_id, "u8"),
        )

    one = part([0, 0, 1], [0.5, 2, 7], [9, 1, 3])
    other = part([0, 1], [0.5, -np.inf], [4, 5])
    best = nearest_of([one, NOTHING_FOUND, other], 2)
    assert best.query.tolist() == [0, 0, 1, 1]
    assert best.row_id.tolist() == [4, 9, 5, 3]
    assert best.ranks().tolist() == [1, 2, 1, 2]
    assert not len(nearest_of([], 3))


def test_empty_table_plans_no_tasks(tmp_path):
    rows = pa.table({"id": [1], "v": vectors(np.ones((1, 2)), "float32")})
    lance.write_dataset(rows, tmp_path / "t").delete("true")
    found, read = nearest_here(tmp_path / "t", [1, 1], 3)
    assert not len(found)
    assert not read


def test_nearest_rows_are_found_after_changes(tmp_path):
    rng = np.random.default_rng(8)
    numbers = make_table(tmp_path / "t", rng, "float32", rows=60, width=3, missing=False)
    dataset = lance.dataset(str(tmp_path / "t"))
    dataset.update({"word": "'moved'"}, where="id = 30")
    dataset.delete("id = 33")
    found, read = nearest_here(
        tmp_path / "t", numbers[10], 60, columns=("word", "v", "id"),
        system=("_rowid", "_row_last_updated_at_version"),
    )  # fmt: skip
    assert len(found) == 59
    assert read[0]["word"] == "moved"
    assert read[0]["_row_last_updated_at_version"] == 2
    assert [row["_rowid"] for row in read] == found.row_id.tolist()
    assert [row["id"] // 3 for row in read] == found.row_id.tolist()
    for row in read:
        assert row["v"] == numbers[row["id"] // 3].astype(np.float32).tolist()


def test_sliced_vectors_with_nulls_are_converted():
    child = pa.array([1, 2, None, 4, 5, 6, 7, 8, 9, 10], pa.float32())
    lists = pa.FixedSizeListArray.from_arrays(
        child, 2, mask=pa.array([False, False, False, True, False])
    )
    numbers, valid = matrix_of(lists.slice(1))
    assert valid.tolist() == [False, True, False, True]
    assert numbers[valid].tolist() == [[5, 6], [9, 10]]
    numbers, valid = matrix_of(lists.slice(4))
    assert valid is None
    assert numbers.tolist() == [[9, 10]]


@pytest.fixture
def schema(tmp_path):
    def make(**columns):
        lance.write_dataset(pa.table(columns), tmp_path / "s", mode="overwrite")
        return Snapshot.open(Table(str(tmp_path / "s"))).schema

    return make


def test_vector_column_is_only_one_or_named(schema):
    two = vectors(np.ones((1, 2)), "float32")
    one = schema(id=[1], Vec=two)
    assert vector_column(one, None).name == "Vec"
    assert vector_column(one, "vec").name == "Vec"
    with pytest.raises(InvalidInputError, match=r"(?s)no column 'w'.*vectors: Vec"):
        vector_column(one, "w")
    with pytest.raises(InvalidInputError, match=r"(?s)'id' \(bigint\) holds no vectors"):
        vector_column(one, "id")
    both = schema(a=two, b=two)
    with pytest.raises(InvalidInputError, match=r"(?s)several columns of vectors.*a, b"):
        vector_column(both, None)
    lists = pa.array([[1.0, 2.0]])
    codes = pa.FixedSizeListArray.from_arrays(pa.array([1, 2], pa.uint8()), 2)
    none = schema(a=lists, b=codes)
    with pytest.raises(InvalidInputError, match=r"(?s)no column of vectors.*fixed_size_list"):
        vector_column(none, None)


def test_invalid_queries_are_refused_or_excluded(schema):
    column = vector_column(schema(v=vectors(np.ones((1, 2)), "float16")), None)
    asked, is_one = parse_queries([1, 70000], column, Metric.L2)
    assert is_one
    assert asked.vectors.dtype == np.float16  # as Lance compares them
    assert asked.vectors.tolist() == [[1, np.inf]]
    for flawed, metric in [([[1, 1], [np.nan, 1]], Metric.L2), ([[1, 1], [0, 0]], Metric.COSINE)]:
        with pytest.raises(InvalidInputError, match="query 1 "):
            parse_queries(flawed, column, metric)
    for no_vectors in ["ab", [[1, 2], [3]], [], [[]], 5, [[[1, 2]]], None, [None, 1]]:
        with pytest.raises(InvalidInputError):
            parse_queries(no_vectors, column, Metric.L2)
    with pytest.raises(InvalidInputError, match="a query has length 3, but"):
        parse_queries([1, 2, 3], column, Metric.L2)
    lists = pa.array([[9, 9], [1, 2], None, [None, 1], [np.nan, 1], [3, 4], [0, 0]]).slice(1)
    assert queries_in(lists, column, Metric.L2).numbers.tolist() == [0, 4, 5]
    assert queries_in(lists, column, Metric.COSINE).numbers.tolist() == [0, 4]
    assert queries_in(lists, column, Metric.L2).vectors.tolist() == [[1, 2], [3, 4], [0, 0]]
    fixed = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4, 5, 6]), 2).slice(1)
    assert queries_in(fixed, column, Metric.DOT).vectors.tolist() == [[3, 4], [5, 6]]
    with pytest.raises(InvalidInputError, match="a query has length 1"):
        queries_in(pa.array([[1, 2], [1]]), column, Metric.L2)


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True, None])
def test_k_must_be_positive_integer(schema, k):
    own = schema(v=vectors(np.ones((1, 2)), "float32"))
    with pytest.raises(InvalidInputError, match="k, the number of rows to find"):
        NearestRequest(own.fields[0], Metric.L2, k, None, own, ())


def test_metrics_ignore_case():
    assert Metric.parse("L2") is Metric.L2
    assert Metric.parse("Cosine") is Metric.COSINE
    assert Metric.parse("euclidean") is Metric.L2
    for unknown in ("hamming", "", None):
        with pytest.raises(InvalidInputError, match=r"(?s)not a vector metric.*l2, cosine, dot"):
            Metric.parse(unknown)
