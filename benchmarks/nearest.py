"""Exact search of nearest rows, next to pylance's: python benchmarks/nearest.py [--rows 1000000].

The same table and queries for all: pylance compares one query after the other with every row, on
all cores; ``nearest`` sends all queries at once through Spark with two cores; beside them the
kernel alone on one core, and the bare products of BLAS that it cannot do without.

With --targets: what has to be met, and whether it is: exact queries beside the products of BLAS on
as many cores and pylance, a query of an index, many at once, building, and recall over several
builds by either side, since both learn by chance.

With --indices: vector indices that we make next to pylance's of the same parameters, each made in
a process of its own, ours as one executor would: processor seconds, memory, and how many of the
10 nearest rows pylance finds by them. Then single queries of indices of all kinds, made by pylance:
processor milliseconds of both, in one process, with warm and cold caches, and recall; --searches
prints only these.
"""

from __future__ import annotations

import os

# Before numpy is imported, as Spark does for its tasks.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import multiprocessing
import shutil
import time
import warnings
from collections.abc import Callable
from functools import partial

import lance
import numpy as np
import pyarrow as pa
from harness import (
    cost_with_memory,
    fastest_of_each,
    in_child,
    print_table,
    run,
    scratch,
    start_session,
    timed,
    write_by_pylance,
)

from pyspark_lance import LanceTable
from pyspark_lance.store.recently_used import RecentlyUsed
from pyspark_lance.table.index_build.vector_build import (
    VectorIndexRequest,
    create_vector_index,
    parse_kind,
)
from pyspark_lance.table.nearest import live_rows
from pyspark_lance.table.nearest.exact_search import ExactSearch
from pyspark_lance.table.nearest.ivf_search import metric_and_segments
from pyspark_lance.table.nearest.search_plan import (
    NearestRequest,
    VectorSearch,
    merge_matches,
    plan_nearest,
    read_found,
)
from pyspark_lance.table.nearest.vectors import Metric, parse_queries, vector_column
from pyspark_lance.table.scan.plan_scan import project
from pyspark_lance.table.version.snapshot import Snapshot
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
        write_by_pylance(path, rows, mode="append" if number else "create")


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def products(vectors: np.ndarray, queries: np.ndarray) -> None:
    # Blocks of the size that the search takes, too.
    for first in range(0, len(vectors), 1024):
        queries @ vectors[first : first + 1024].T


def kernel(vectors: np.ndarray, queries: np.ndarray, metric: str) -> None:
    search = ExactSearch(queries, Metric(metric), K)
    ids = np.arange(len(vectors), dtype=np.uint64)
    for first in range(0, len(vectors), 32_768):
        part = slice(first, first + 32_768)
        search.add(vectors[part], ids[part], ids[part])
    search.result()


def pylance(path: str, queries: np.ndarray, metric: str) -> float:
    """Seconds for all queries, judged by the first of them."""
    dataset = lance.dataset(path)

    def ask() -> None:
        for query in queries[:MEASURED]:
            nearest = {"column": "vector", "q": query, "k": K, "metric": metric, "use_index": False}
            dataset.to_table(columns=["id", "_distance"], nearest=nearest)

    ask()
    return seconds(ask) * len(queries) / min(MEASURED, len(queries))


def groups(rows: int, width: int, queries: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Vectors that lie in groups, as those of pictures and texts do, and queries like them."""
    rng = np.random.default_rng(seed)
    middles = rng.standard_normal((rows // 500, width), dtype=np.float32)

    def some(count: int) -> np.ndarray:
        own = rng.standard_normal((count, width), dtype=np.float32) * np.float32(0.7)
        own += middles[rng.integers(len(middles), size=count)]
        return own

    return some(rows), some(queries)


def build(path: str, kind: str, metric: str, partitions: int, parts: int) -> tuple[float, ...]:
    """Make an index; return processor seconds, seconds and the growth of memory in MB."""
    parts_of_pq = parts if kind.lower() == "ivf_pq" else None
    if kind.isupper():
        more = {"num_sub_vectors": parts} if parts_of_pq else {}
        make = lance.dataset(path).create_index
        work = partial(make, "vector", kind, metric=metric, num_partitions=partitions, **more)
    else:
        request = VectorIndexRequest(
            "vector", parse_kind(kind), Metric(metric), partitions, parts_of_pq, seed=1
        )
        work = partial(create_vector_index, Table(path), request)
    cost, grown, _ = cost_with_memory(work)
    return cost.processor, cost.clock, grown


def recall(path: str, queries: np.ndarray, best: np.ndarray, **nearest: int) -> float:
    """The share of the nearest rows that pylance finds by the index."""
    dataset = lance.dataset(path)
    hits = 0
    for query, own in zip(queries, best, strict=True):
        asked = {"column": "vector", "q": query, "k": K, **nearest}
        found = dataset.to_table(columns=["id", "_distance"], nearest=asked)["id"]
        hits += len(np.intersect1d(found.to_numpy(), own))
    return hits / best.size


SEARCHED_KINDS = (
    "IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ",
)  # fmt: skip
REPEATS = 7
# Queries that find cold caches, each in a table that is opened again.
COLD = 10


def search_ours(snapshot: Snapshot, query: np.ndarray) -> list[int]:
    """Search one query by an index, as a task of Spark does."""
    column = vector_column(snapshot.schema, "vector")
    metric, segments = metric_and_segments(snapshot, column, None)
    asked, _ = parse_queries(query, column, metric)
    columns = project(snapshot.schema, ["id"])
    request = NearestRequest(column, metric, K, None, columns, (), segments)
    plan = plan_nearest(snapshot, request)
    parts = [VectorSearch((task,), asked).run() for task in plan.tasks]
    found = merge_matches(plan.merge, parts, asked)
    return [one for _, rows in read_found(plan.fetch, found) for one in rows.column(0).to_pylist()]


def search_theirs(dataset: lance.LanceDataset, query: np.ndarray) -> list[int]:
    nearest = {"column": "vector", "q": query, "k": K}
    return dataset.to_table(columns=["id", "_distance"], nearest=nearest)["id"].to_pylist()


def time_single_queries(
    path: str, queries: np.ndarray, best: np.ndarray
) -> dict[str, tuple[float, ...]]:
    """Return milliseconds of warm and cold queries, and recall, of both."""
    engines = {
        "ours": (lambda: Snapshot.open(Table(path)), search_ours),
        "pylance": (lambda: lance.dataset(path, session=lance.Session()), search_theirs),
    }
    found = {}
    opened = {name: engine[0]() for name, engine in engines.items()}
    works = [
        lambda known=opened[name], search=engine[1]: [search(known, one) for one in queries]
        for name, engine in engines.items()
    ]
    warm = fastest_of_each(works, REPEATS)
    for (name, (opens, search)), cost in zip(engines.items(), warm, strict=True):
        kept, live_rows._kept_partitions = live_rows._kept_partitions, RecentlyUsed(0, lambda _: 1)
        cold = [
            timed(lambda query=query, opens=opens, search=search: search(opens(), query))[
                0
            ].processor
            for query in queries[:COLD]
        ]
        live_rows._kept_partitions = kept
        hits = sum(
            len(np.intersect1d(search(opened[name], query), own))
            for query, own in zip(queries, best, strict=True)
        )
        found[name] = (1e3 * cost.processor / len(queries), 1e3 * float(np.median(cold)),
                       hits / best.size)  # fmt: skip
    return found


def print_searches(
    rows: int, width: int, metric: str, plain: str, queries: np.ndarray, best: np.ndarray
) -> None:
    """Print what single queries of each kind of index take, each in a process of its own."""
    partitions, parts = max(1, rows // 4000), max(1, width // 8)
    path, found = f"{plain}-searched", []
    for kind in SEARCHED_KINDS:
        shutil.copytree(plain, path)
        more = {"num_sub_vectors": parts} if kind.endswith("PQ") else {}
        make = lance.dataset(path).create_index
        make("vector", kind, metric=metric, num_partitions=partitions, **more)
        of = in_child(time_single_queries, path, queries, best)
        (warm, cold, share), (warm_theirs, cold_theirs, share_theirs) = of["ours"], of["pylance"]
        found.append(
            (kind, warm, warm_theirs, warm / warm_theirs, cold, cold_theirs, cold / cold_theirs,
             f"{share:.3f}", f"{share_theirs:.3f}")
        )  # fmt: skip
        shutil.rmtree(path)
    header = ("index", "warm", "pylance's", "ratio", "cold", "pylance's", "ratio", "recall",
              "pylance's")  # fmt: skip
    title = (
        f"{metric}: processor ms of a query, {rows:,} rows of {width} floats, "
        f"{partitions} partitions, the default number of probes"
    )
    print_table(title, header, found)


def print_indices(rows: int, width: int, metrics: tuple, *, builds: bool) -> None:
    """Print two tables for each metric: builds, unless they are left out, and single queries."""
    vectors, queries = groups(rows, width, 100)
    partitions, parts = max(1, rows // 4000), max(1, width // 8)
    with scratch() as folder:
        plain = f"{folder}/plain"
        make_table(plain, vectors)
        for metric in metrics:
            search = ExactSearch(queries, Metric(metric), K)
            ids = np.arange(rows, dtype=np.uint64)
            search.add(vectors, ids, ids)
            best = search.result().row_id.reshape(-1, K)
            found = []
            for kind in KINDS if builds else ():
                for name in (kind, kind.upper()):
                    path = f"{folder}/t"
                    shutil.copytree(plain, path)
                    used, took, peak = in_child(build, path, name, metric, partitions, parts)
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
            if builds:
                print_table(title, header, found)
            print_searches(rows, width, metric, plain, queries, best)


# Targets -------------------------------------------------------------------------------------

CORES = 2
BUILDS = 5
RECALL_ROWS = 50_000


def products_of_part(pipe: object, path: str, number: int, queries: np.ndarray) -> None:
    """The products of one core's part of the vectors, again and again, and what each time takes."""
    vectors = np.load(path, mmap_mode="r")[number::CORES].copy()
    products(vectors[:4096], queries)
    for _ in range(3):
        pipe.recv()
        products(vectors, queries)
        pipe.send(None)


def bare_on_all_cores(path: str, queries: np.ndarray) -> float:
    """Seconds of the products alone, each core having its part of the rows."""
    context, pipes = multiprocessing.get_context("spawn"), []
    for number in range(CORES):
        ours, theirs = context.Pipe()
        work = context.Process(target=products_of_part, args=(theirs, path, number, queries))
        work.start()
        pipes.append(ours)

    def together() -> None:
        for pipe in pipes:
            pipe.send(None)
        for pipe in pipes:
            pipe.recv()

    return seconds(together)


def recall_rows(folder: str, width: int) -> list[tuple[str, ...]]:
    """For each kind the mean recall of builds by us and by pylance, at equal probes."""
    found = []
    means: dict[tuple[str, int], list[float]] = {}
    for seed in range(BUILDS):
        vectors, queries = groups(RECALL_ROWS, width, 100, seed)
        plain = f"{folder}/recall{seed}"
        make_table(plain, vectors)
        search = ExactSearch(queries, Metric.L2, K)
        ids = np.arange(RECALL_ROWS, dtype=np.uint64)
        search.add(vectors, ids, ids)
        best = search.result().row_id.reshape(-1, K)
        for kind in KINDS:
            for name in (kind, kind.upper()):
                path = f"{folder}/recall"
                shutil.copytree(plain, path)
                in_child(build, path, name, "l2", 32, width // 8)
                for probes in (1, 8):
                    share = recall(path, queries, best, nprobes=probes)
                    means.setdefault((name, probes), []).append(share)
                shutil.rmtree(path)
    for kind in KINDS:
        for probes in (1, 8):
            own, other = np.array(means[kind, probes]), np.array(means[kind.upper(), probes])
            differs = own.mean() - other.mean()
            found.append(
                (f"recall of {kind}, {probes} probes, mean of {BUILDS} builds, ours - pylance's",
                 "-0.02 to 0.02", f"{own.mean():.3f} - {other.mean():.3f} = {differs:+.3f}",
                 f"{own.std():.3f} and {other.std():.3f} from build to build")
            )  # fmt: skip
    return found


def print_targets(rows: int, width: int) -> None:
    """Print what has to be met."""
    vectors, queries = groups(rows, width, 10_000)
    partitions, parts = max(1, rows // 4000), width // 8
    spark, found = start_session({"spark.driver.memory": "3g"}), []
    with scratch() as folder:
        path = f"{folder}/t"
        np.save(f"{folder}/vectors.npy", vectors)
        make_table(path, vectors)
        table = LanceTable.forPath(spark, path)
        some = queries[:1000]

        def ask(given: np.ndarray, **more: object) -> Callable[[], object]:
            return lambda: table.nearest(given, K, columns=["id"], **more).toArrow()

        ask(some[:3])()
        own, bare = seconds(ask(some)), bare_on_all_cores(f"{folder}/vectors.npy", some)
        theirs = pylance(path, some, "l2")
        found.append(("1,000 exact queries / products of BLAS", "<= 1.5", f"{own / bare:.2f}",
                      f"{own:.2f} s, {bare:.2f} s, {CORES} cores"))  # fmt: skip
        found.append(("1,000 exact queries / pylance", "<= 1.2", f"{own / theirs:.3f}",
                      f"{own:.2f} s, {theirs:.1f} s"))  # fmt: skip
        made = {}
        for name in ("ivf_pq", "IVF_PQ"):
            copy = f"{folder}/{name}"
            shutil.copytree(path, copy)
            made[name] = in_child(build, copy, name, "l2", partitions, parts)
        (used, _, peak), (used_theirs, _, peak_theirs) = made["ivf_pq"], made["IVF_PQ"]
        found.append(("processor time of an IVF_PQ / pylance's", "<= 2",
                      f"{used / used_theirs:.2f}",
                      f"{used:.1f} s, {used_theirs:.1f} s"))  # fmt: skip
        found.append(("memory of a process that makes it, MB", "<= 1000", f"{peak:.0f}",
                      f"pylance {peak_theirs:.0f}"))  # fmt: skip
        table = LanceTable.forPath(spark, f"{folder}/ivf_pq")
        dataset = lance.dataset(f"{folder}/ivf_pq")

        def by_pylance() -> None:
            for query in queries[:MEASURED]:
                nearest = {"column": "vector", "q": query, "k": K, "nprobes": 8}
                dataset.to_table(columns=["id", "_distance"], nearest=nearest)

        def one_by_one() -> None:
            for query in queries[:MEASURED]:
                ask(query, nprobes=8)()

        def nothing() -> None:
            for _ in range(MEASURED):
                one_row = spark.range(0, 1, 1, 1)
                one_row.mapInArrow(lambda rows: rows, "id bigint").toArrow()

        for work in (by_pylance, one_by_one, nothing):
            work()
        one, other, task = (seconds(work) / MEASURED for work in (one_by_one, by_pylance, nothing))
        found.append(("one query of the IVF_PQ, ms", f"<= 2 x {1e3 * other:.1f} + {1e3 * task:.0f}",
                      f"{1e3 * one:.0f}", "8 probes; pylance's, and a task of Spark"))  # fmt: skip
        many = seconds(ask(queries, nprobes=8), 1) / len(queries)
        found.append(("one by one / 10,000 queries at once, each", ">= 5", f"{one / many:.0f}",
                      f"{1e3 * one:.0f} ms, {1e3 * many:.2f} ms"))  # fmt: skip
        spark.stop()
        found += recall_rows(folder, width)
    title = f"targets: {K} nearest of {rows:,} rows of {width} floats, l2"
    print_table(title, ("what", "target", "found", "of"), found)


def main(
    *,
    rows: int = 1_000_000,
    width: int = 128,
    queries: tuple = (1, 10, 100, 1000, 10000),
    metrics: tuple = ("l2", "cosine"),
    indices: bool = False,
    searches: bool = False,
    targets: bool = False,
) -> None:
    warnings.simplefilter("ignore")
    if targets:
        print_targets(rows, width)
    elif indices or searches:
        print_indices(rows, width, metrics, builds=indices)
    else:
        print_exact(rows, width, queries, metrics)


def print_exact(rows: int, width: int, counts: tuple, metrics: tuple) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((rows, width), dtype=np.float32)
    queries = rng.standard_normal((max(counts), width), dtype=np.float32)
    spark = start_session({"spark.driver.memory": "3g"})
    found = []
    with scratch() as folder:
        path = f"{folder}/t"
        make_table(path, vectors)
        table = LanceTable.forPath(spark, path)
        for metric in metrics:
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
                found.append(
                    (metric, f"{count:,}", f"{in_spark:.2f}", f"{theirs:.2f}",
                     f"{in_spark / theirs:.2f}", f"{1e3 * in_spark / count:.2f}",
                     f"{alone:.2f}", f"{bare:.2f}", f"{alone / bare:.2f}")
                )  # fmt: skip
    spark.stop()
    header = ("metric", "queries", "nearest s", "pylance s", "ratio", "ms per query",
              "kernel s", "BLAS s", "kernel / BLAS")  # fmt: skip
    print_table(f"{K} nearest of {rows:,} rows of {width} floats", header, found)


if __name__ == "__main__":
    run(main)
