"""Exact search of nearest rows, next to pylance's: python benchmarks/nearest.py [--rows 1000000].

The same table and queries for all: pylance compares one query after the other with every row, on
all cores; ``nearest`` sends all queries at once through Spark with two cores; beside them the
kernel alone on one core, and the bare products of BLAS that it cannot do without.
"""

from __future__ import annotations

import os

# Before numpy is imported, as Spark does for its tasks.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable

import lance
import numpy as np
import pyarrow as pa
from merge import session
from timing import print_table

from pyspark_lance import LanceTable
from pyspark_lance.table.nearest.exact_search import ExactSearch
from pyspark_lance.table.nearest.metric import Metric

K = 10
# So many queries are measured one by one; the others take as long.
MEASURED = 20


def make_table(path: str, vectors: np.ndarray) -> None:
    pieces = np.array_split(np.arange(len(vectors)), 8)
    for number, piece in enumerate(pieces):
        lists = pa.FixedSizeListArray.from_arrays(
            pa.array(vectors[piece].ravel()), vectors.shape[1]
        )
        rows = pa.table({"id": piece, "vector": lists})
        lance.write_dataset(
            rows, path, mode="append" if number else "create", enable_stable_row_ids=True,
            data_storage_version="2.1",
        )  # fmt: skip


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def products(vectors: np.ndarray, queries: np.ndarray) -> None:
    for first in range(0, len(vectors), 4096):
        queries @ vectors[first : first + 4096].T


def kernel(vectors: np.ndarray, queries: np.ndarray, metric: str) -> None:
    search = ExactSearch(queries, Metric(metric), K)
    ids = np.arange(len(vectors), dtype=np.uint64)
    for first in range(0, len(vectors), 32_768):
        part = slice(first, first + 32_768)
        search.add(vectors[part], ids[part], ids[part])
    search.found()


def pylance(path: str, queries: np.ndarray, metric: str) -> float:
    """Seconds for all queries, judged by the first of them."""
    dataset = lance.dataset(path)

    def ask() -> None:
        for query in queries[:MEASURED]:
            nearest = {"column": "vector", "q": query, "k": K, "metric": metric, "use_index": False}
            dataset.to_table(columns=["id", "_distance"], nearest=nearest)

    ask()
    return seconds(ask) * len(queries) / min(MEASURED, len(queries))


def main() -> int:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--queries", default="1,10,100,1000,10000")
    parser.add_argument("--metrics", default="l2,cosine")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((args.rows, args.width), dtype=np.float32)
    counts = [int(count) for count in args.queries.split(",")]
    queries = rng.standard_normal((max(counts), args.width), dtype=np.float32)
    spark = session()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t"
        make_table(path, vectors)
        table = LanceTable.forPath(spark, path)
        for metric in args.metrics.split(","):
            for count in counts:
                some = queries[:count]
                runs = 3 if count < 1000 else 1

                def ours(some: np.ndarray = some, metric: str = metric) -> None:
                    table.nearest(some, K, metric=metric, columns=["id"]).toArrow()

                if count < 1000:
                    ours()
                in_spark = seconds(ours, runs)
                theirs = pylance(path, some, metric)
                alone = seconds(lambda some=some, m=metric: kernel(vectors, some, m), runs)
                bare = seconds(lambda some=some: products(vectors, some), runs)
                rows.append(
                    (metric, f"{count:,}", f"{in_spark:.2f}", f"{theirs:.2f}",
                     f"{in_spark / theirs:.2f}", f"{1e3 * in_spark / count:.2f}",
                     f"{alone:.2f}", f"{bare:.2f}", f"{alone / bare:.2f}")
                )  # fmt: skip
    spark.stop()
    header = ("metric", "queries", "nearest s", "pylance s", "ratio", "ms per query",
              "kernel s", "BLAS s", "kernel / BLAS")  # fmt: skip
    print_table(f"{K} nearest of {args.rows:,} rows of {args.width} floats", header, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
