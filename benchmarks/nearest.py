"""Exact search of nearest rows, next to pylance's: python benchmarks/nearest.py [--rows 1000000].

The same table and queries for all: pylance compares one query after the other with every row, on
all cores; ``nearest`` sends all queries at once through Spark with two cores; beside them the
kernel alone on one core, and the bare products of BLAS that it cannot do without.

With --indices: vector indices that we make next to pylance's of the same parameters, each made in
a process of its own, ours as one executor would: processor seconds, memory, and how many of the
10 nearest rows pylance finds by them.
"""

from __future__ import annotations

import os

# Before numpy is imported, as Spark does for its tasks.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable

import lance
import numpy as np
import pyarrow as pa
from merge import memory, session
from timing import print_table

from pyspark_lance import LanceTable
from pyspark_lance.table.index_build.vector_indices import create_vector_index
from pyspark_lance.table.index_build.vector_request import VectorIndexRequest, parse_kind
from pyspark_lance.table.nearest.exact_search import ExactSearch
from pyspark_lance.table.nearest.metric import Metric
from pyspark_lance.table.version.table import Table

K = 10
KINDS = ("ivf_flat", "ivf_pq", "ivf_sq")
PROBES = (1, 8, 32)
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


def groups(rows: int, width: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors that lie in groups, as those of pictures and texts do, and queries like them."""
    rng = np.random.default_rng(1)
    middles = rng.standard_normal((rows // 500, width), dtype=np.float32)

    def some(count: int) -> np.ndarray:
        own = rng.standard_normal((count, width), dtype=np.float32) * np.float32(0.7)
        own += middles[rng.integers(len(middles), size=count)]
        return own

    return some(rows), some(queries)


def build(pipe: object, path: str, kind: str, metric: str, partitions: int, parts: int) -> None:
    """Makes an index, and sends processor seconds, seconds and peak memory."""
    ours = not kind.isupper()
    parts_of_pq = parts if kind.lower() == "ivf_pq" else None
    held, used, start = memory("VmRSS"), time.process_time(), time.perf_counter()
    if ours:
        request = VectorIndexRequest(
            "vector", parse_kind(kind), Metric(metric), partitions, parts_of_pq, seed=1
        )
        create_vector_index(Table(path), request)
    else:
        more = {"num_sub_vectors": parts} if parts_of_pq else {}
        lance.dataset(path).create_index(
            "vector", kind, metric=metric, num_partitions=partitions, **more
        )
    used, seconds_ = time.process_time() - used, time.perf_counter() - start
    pipe.send((used, seconds_, (memory("VmHWM") - held) / 1e6))


def recall(path: str, queries: np.ndarray, best: np.ndarray, **nearest: int) -> float:
    """The share of the nearest rows that pylance finds by the index."""
    dataset = lance.dataset(path)
    hits = 0
    for query, own in zip(queries, best, strict=True):
        asked = {"column": "vector", "q": query, "k": K, **nearest}
        found = dataset.to_table(columns=["id", "_distance"], nearest=asked)["id"]
        hits += len(np.intersect1d(found.to_numpy(), own))
    return hits / best.size


def indices(rows: int, width: int, metrics: list[str]) -> int:
    """Prints one table for each metric."""
    vectors, queries = groups(rows, width, 100)
    partitions, parts = max(1, rows // 4000), max(1, width // 8)
    with tempfile.TemporaryDirectory() as folder:
        plain = f"{folder}/plain"
        make_table(plain, vectors)
        for metric in metrics:
            search = ExactSearch(queries, Metric(metric), K)
            ids = np.arange(rows, dtype=np.uint64)
            search.add(vectors, ids, ids)
            best = search.found().row_id.reshape(-1, K)
            found = []
            for kind in KINDS:
                for name in (kind, kind.upper()):
                    path = f"{folder}/t"
                    shutil.copytree(plain, path)
                    ours, theirs = multiprocessing.get_context("spawn").Pipe(duplex=False)
                    work = multiprocessing.get_context("spawn").Process(
                        target=build, args=(theirs, path, name, metric, partitions, parts)
                    )
                    work.start()
                    used, took, peak = ours.recv()
                    work.join()
                    shares = [recall(path, queries, best, nprobes=probes) for probes in PROBES]
                    refined = recall(path, queries, best, nprobes=PROBES[-1], refine_factor=10)
                    found.append(
                        (kind if name == kind else "  pylance's", f"{used:.1f}", f"{took:.1f}",
                         f"{peak:.0f}", *(f"{share:.3f}" for share in shares), f"{refined:.3f}")
                    )  # fmt: skip
                    shutil.rmtree(path)
            header = ("index", "processor s", "seconds", "MB", *(f"{p} probes" for p in PROBES),
                      f"{PROBES[-1]}, refined")  # fmt: skip
            title = (
                f"{metric}: {rows:,} rows of {width} floats, {partitions} partitions, "
                f"{parts} sub-vectors; recall of {K} nearest"
            )
            print_table(title, header, found)
    return 0


def main() -> int:
    """Prints one table, or one for each metric."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--queries", default="1,10,100,1000,10000")
    parser.add_argument("--metrics", default="l2,cosine")
    parser.add_argument("--indices", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.indices:
        return indices(args.rows, args.width, args.metrics.split(","))
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
