"""Tables of vectors, and their nearest rows by this package and by pylance."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.nearest.ivf_search import metric_and_segments
from pyspark_lance.table.nearest.search_plan import (
    NearestRequest,
    VectorSearch,
    merge_matches,
    plan_nearest,
)
from pyspark_lance.table.nearest.vectors import parse_queries, vector_column
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

WIDTH = 16
TYPES = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}


def rows_of(numbers, kind="float32", start=0):
    lists = pa.FixedSizeListArray.from_arrays(
        pa.array(numbers.astype(kind).ravel(), TYPES[kind]), numbers.shape[1]
    )
    flawed = [None, [np.nan] * WIDTH, [0.0] * WIDTH]
    lists = pa.concat_arrays(
        [lists, pa.array(flawed, pa.list_(pa.float64(), WIDTH)).cast(lists.type)]
    )
    return pa.table({"id": np.arange(start, start + len(lists)), "v": lists})


def ours(path, queries, k, *, metric=None, condition=None, use_index=True, shown="id", **more):
    snapshot = Snapshot.open(path if isinstance(path, Table) else Table(str(path)))
    column = vector_column(snapshot.schema, None)
    kind, segments = metric_and_segments(snapshot, column, metric, use_index=use_index)
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    columns = project(snapshot.schema, [shown])
    request = NearestRequest(column, kind, k, predicate, columns, (), segments, **more)
    plan = plan_nearest(snapshot, request)
    asked, _ = parse_queries(queries, column, kind)
    return plan, merge_matches(
        plan.merge, [VectorSearch((one,), asked).run() for one in plan.tasks], asked
    )


def from_pylance(path, query, k, **nearest):
    dataset = lance.dataset(str(path), session=lance.Session())
    nearest = {"column": "v", "q": pa.array(query), "k": k, **nearest}
    return dataset.to_table(columns=["id", "_distance"], nearest=nearest, with_row_id=True)


def assert_same(found, number, other, tolerance=1e-4):
    mine = found.query == number
    expected = other["_distance"].to_numpy()
    assert np.count_nonzero(mine) == len(expected)
    scale = tolerance * (1 + np.abs(expected))
    assert (np.abs(found.distance[mine] - expected) <= scale).all()
    own, their = found.row_id[mine], other["_rowid"].to_numpy()
    for place in np.flatnonzero(own != their):
        near = np.abs(expected - found.distance[mine][place]) <= 2 * scale[place]
        assert near.sum() > 1 or place == len(own) - 1


def queries_for(numbers, column_type="float32"):
    rng = np.random.default_rng(11)
    return np.stack([numbers[5], rng.normal(size=WIDTH)]).astype(column_type)
