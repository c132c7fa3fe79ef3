"""Estimates of the work of searches, by which small ones need no Spark job."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.index_build.column_indices import create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.nearest.ivf_search import metric_and_segments
from pyspark_lance.table.nearest.search_plan import (
    NearestRequest,
    SearchSize,
    estimate_nearest,
    plan_nearest,
)
from pyspark_lance.table.nearest.vectors import vector_column
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.text.near_duplicates import (
    NearDuplicatesRequest,
    estimate_near_duplicates,
    near_duplicates_column,
    plan_near_duplicates,
)
from pyspark_lance.table.text.queries import Match
from pyspark_lance.table.text.search_plan import SearchRequest, estimate_text_search, plan_search
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS, PER_FILE, WIDTH = 1000, 100, 8


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("sizes") / "t")
    rng = np.random.default_rng(1)
    vectors = pa.FixedSizeListArray.from_arrays(
        rng.standard_normal(ROWS * WIDTH).astype(np.float32), WIDTH
    )
    texts = [f"common rare{number % 100}" for number in range(ROWS)]
    table = pa.table({"id": np.arange(ROWS), "s": texts, "v": vectors})
    lance.write_dataset(table, path, max_rows_per_file=PER_FILE)
    create_index(Table(path), IndexRequest(("s",), "inverted"))
    lance.dataset(path).create_index("v", "IVF_FLAT", num_partitions=4)
    lance.write_dataset(table[:PER_FILE], path, mode="append")
    return path


def _predicate(snapshot, condition):
    return condition and parse_predicate(condition, predicate_schema(snapshot.schema))


def by_words(path, words, k=10, condition=None, columns=("id",)):
    snapshot = Snapshot.open(Table(path))
    shown = project(snapshot.schema, columns)
    request = SearchRequest(Match(words, "s"), k, _predicate(snapshot, condition), shown, ())
    return estimate_text_search(plan_search(snapshot, request))


def by_vector(path, num_queries=1, condition=None, *, use_index=True, **more):
    snapshot = Snapshot.open(Table(path))
    column = vector_column(snapshot.schema, None)
    metric, segments = metric_and_segments(snapshot, column, None, use_index=use_index)
    request = NearestRequest(
        column, metric, 10, _predicate(snapshot, condition), project(snapshot.schema, ("id",)),
        (), segments, **more,
    )  # fmt: skip
    return estimate_nearest(plan_nearest(snapshot, request), num_queries)


def test_size_of_text_search_follows_words(path):
    rare, common = by_words(path, "rare7"), by_words(path, "common")
    # 8 bytes for each document with the word, 1 for each other, 64 for each uncovered text.
    assert rare.num_bytes == 8 * 10 + ROWS + 64 * PER_FILE
    assert common.num_bytes == 8 * ROWS + ROWS + 64 * PER_FILE
    assert rare.num_fragments == 10 + 1
    assert by_words(path, "rare7", k=3).num_fragments == 3 + 1
    assert by_words(path, "rare7", k=None).num_fragments == 11 + 1
    assert by_words(path, "rare7", columns=()).num_fragments == 1
    with_condition = by_words(path, "rare7", condition="id % 2 = 0")
    assert with_condition.num_bytes >= rare.num_bytes + 64 * ROWS
    assert with_condition.num_fragments == rare.num_fragments + 10


def test_size_of_vector_search_follows_probes_and_queries(path):
    exact = by_vector(path, use_index=False)
    assert exact == SearchSize((ROWS + PER_FILE) * WIDTH * 4, 11 + 10)
    assert by_vector(path, 5, use_index=False).num_bytes == 5 * exact.num_bytes
    one = by_vector(path, nprobes=1).num_bytes
    assert PER_FILE * WIDTH * 4 < one < by_vector(path).num_bytes == exact.num_bytes
    narrowed = by_vector(path, nprobes=1, condition="id % 2 = 0")
    assert narrowed.num_bytes >= one + 64 * ROWS


def test_size_of_near_duplicates_follows_texts_to_sign(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table({"id": np.arange(100), "s": [f"some words {n}" for n in range(100)]})
    lance.write_dataset(table, path, max_rows_per_file=50)

    def size(condition=None):
        snapshot = Snapshot.open(Table(path))
        request = NearDuplicatesRequest(
            near_duplicates_column(snapshot, None), 1, None, _predicate(snapshot, condition),
            project(snapshot.schema, ("id",)), (),
        )  # fmt: skip
        return estimate_near_duplicates(plan_near_duplicates(snapshot, request))

    assert size() == SearchSize(100 << 12, 2 + 1)
    create_index(Table(path), IndexRequest(("s",), "minhash_lsh"))
    assert size() == SearchSize(1 << 20, 1)
    lance.write_dataset(table[:10], path, mode="append")
    assert size() == SearchSize((1 << 20) + (10 << 12), 1 + 1)
    assert size("id < 200").num_bytes >= size().num_bytes + 64 * 100


def test_searches_are_small_up_to_limits():
    assert SearchSize(16 << 20, 16).is_small
    assert not SearchSize((16 << 20) + 1, 1).is_small
    assert not SearchSize(1, 17).is_small
