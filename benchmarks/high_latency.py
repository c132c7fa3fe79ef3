"""What the distance of a store costs, against pylance: python benchmarks/high_latency.py.

An S3 server (moto) on loopback behind a proxy that holds every request for 50 ms; both readers go
through it one after the other.  *Requests* are what the proxy saw; *rounds* how many of these were
made one after another, which is what a distant store charges.  Tables are written before, without
delay; nothing is kept from the reads before, except connections.  Our tasks run in two processes at
a time, as Spark runs them on two cores; pylance reads with as many threads as it likes.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import boto3
import lance
import numpy as np
import pyarrow as pa
from harness import memory_mb, print_table, run, write
from store_proxy import running_proxy

from pyspark_lance.metafile.manifest_file import encode_manifest
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

DELAY_S = 0.05
BUCKET = "distant"
MB = 1 << 20
CORES = 2
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}


# ---- the server and the proxy, each in a process of its own


def serve(connection: multiprocessing.connection.Connection) -> None:
    """Run moto until the parent is gone."""
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    connection.send(f"http://{host}:{port}")
    connection.recv()


def relay(connection: multiprocessing.connection.Connection, upstream: str) -> None:
    """Run the proxy: take a delay, and send and forget the requests since the last one."""
    with running_proxy(upstream) as proxy:
        proxy.keeps_objects = True
        connection.send(proxy.endpoint)
        while (delay_s := connection.recv()) is not None:
            connection.send((list(proxy.requests), proxy.sequential_rounds()))
            proxy.requests.clear()
            proxy.delay_s = delay_s


@dataclass
class Distance:
    """The way to the store, and the processes that run tasks."""

    options: dict[str, str]
    client: object
    _proxy: multiprocessing.connection.Connection
    workers: Executor

    def observed(self, delay_s: float, action: Callable[[], object]) -> Observation:
        """Run the action with this delay of each request."""
        snapshots._cache.clear()
        gc.collect()
        self._set(delay_s)
        start = time.perf_counter()
        value = action()
        seconds = time.perf_counter() - start
        requests, rounds = self._set(0.0)
        return Observation(value, requests, rounds, seconds)

    def _set(self, delay_s: float) -> tuple[list, int]:
        self._proxy.send(delay_s)
        return self._proxy.recv()


@dataclass
class Observation:
    """What an action cost."""

    value: object
    requests: list
    rounds: int
    seconds: float


@contextmanager
def distance() -> Iterator[Distance]:
    """A new server and a proxy."""
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    try:
        upstream = ()
        for target in (serve, relay):
            ours, child = context.Pipe()
            process = context.Process(target=target, args=(child, *upstream), daemon=True)
            process.start()
            pipes.append(ours)
            children.append(process)
            upstream = (ours.recv(),)
        endpoint = upstream[0]
        options = {**KEYS, "aws_endpoint": endpoint, "allow_http": "true"}
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        with ProcessPoolExecutor(CORES, mp_context=context) as workers:
            yield Distance(options, client, pipes[1], workers)
    finally:
        for child in children:
            child.terminate()


# ---- what is measured


def rows_of(task: ScanTask) -> int:
    """How many rows a task yields."""
    return sum(batch.num_rows for batch in task.run())


def grown_by(task: ScanTask) -> float:
    """MB by which a task raises the highest point of the memory of this process."""
    next(task.files.table.store().list("_versions", first=1))  # connects
    before = memory_mb("VmHWM")
    rows_of(task)
    return memory_mb("VmHWM") - before


class Case:
    """One row: a table, and the same work by both. Makes its table when it is made."""

    name = ""

    def __init__(self, place: Distance, scale: float) -> None:
        self.place = place
        self.scale = scale
        self.uri = f"s3://{BUCKET}/{type(self).__name__}"
        self.make()

    def make(self) -> None:
        """Write the table."""

    def ours(self) -> object:
        """The work by this package."""
        raise NotImplementedError

    def theirs(self) -> object:
        """The same by pylance."""
        raise NotImplementedError

    def dataset(self) -> lance.LanceDataset:
        """The table as pylance opens it."""
        return lance.dataset(self.uri, storage_options=self.place.options)

    def write(self, table: pa.Table, **options: object) -> None:
        """Write rows by pylance, as most tables are."""
        lance.write_dataset(
            table,
            self.uri,
            storage_options=self.place.options,
            enable_stable_row_ids=True,
            data_storage_version="2.1",
            **options,
        )

    def scan(self, condition: str | None = None) -> int:
        """Rows of a scan by this package."""
        return sum(self.place.workers.map(rows_of, self.tasks(condition)))

    def tasks(self, condition: str | None = None) -> list[ScanTask]:
        """The tasks of a scan by this package."""
        snapshot = Snapshot.open(Table(self.uri, self.place.options))
        predicate = (
            parse_predicate(condition, predicate_schema(snapshot.schema)) if condition else None
        )
        return plan_scan(snapshot, ScanRequest(predicate=predicate, parallelism=CORES))

    def scan_by_pylance(self, condition: str | None = None) -> int:
        """Rows of a scan by pylance."""
        scanner = self.dataset().scanner(filter=condition)
        return sum(batch.num_rows for batch in scanner.to_batches())


def rows(count: int, start: int = 0) -> pa.Table:
    """Rows of six columns."""
    rng = np.random.default_rng(start)
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "x": rng.random(count),
            "y": rng.random(count),
            "small": rng.integers(0, 1000, count, dtype=np.int32),
            "name": [f"user-{i * 7919 % 1000003:06x}" for i in range(start, start + count)],
            "flag": rng.random(count) < 0.5,
        }
    )


class SmallFragments(Case):
    name = "200 fragments of 20 rows"

    def make(self) -> None:
        self.write(rows(4000), max_rows_per_file=20)

    def ours(self) -> object:
        return self.scan()

    def theirs(self) -> object:
        return self.scan_by_pylance()


class Append(Case):
    name = "an append of 100 rows"

    def make(self) -> None:
        self.write(rows(100))
        self.ours()  # the self-test of conditional puts is made once in a process

    def ours(self) -> object:
        return write(self.uri, rows(100), self.place.options)

    def theirs(self) -> object:
        return self.write(rows(100), mode="append")


class Commit(Case):
    name = "a commit of rows that are written"

    def make(self) -> None:
        self.write(rows(100))
        self.prepare()
        self.ours()
        self.prepare()

    def prepare(self) -> None:
        table, more = Table(self.uri, self.place.options), rows(100)
        self.plan = plan_write(table, more.schema, WriteSettings(), existing=open_existing(table))
        self.fragments = list(write_fragments(self.plan.request, more.to_batches()))
        dataset = self.dataset()
        self.version = dataset.version
        self.theirs_written = lance.fragment.write_fragments(
            more, self.uri, storage_options=self.place.options, data_storage_version="2.1"
        )

    def ours(self) -> object:
        commit_write(self.plan, self.fragments)
        return None

    def theirs(self) -> object:
        lance.LanceDataset.commit(
            self.uri,
            lance.LanceOperation.Append(self.theirs_written),
            read_version=self.version,
            storage_options=self.place.options,
        )
        return None


class LookupByRowId(Case):
    name = "lookup by row id"

    def make(self) -> None:
        self.write(rows(400_000), max_rows_per_file=100_000)

    def ours(self) -> object:
        return self.scan("_rowid = 234567")

    def theirs(self) -> object:
        return self.scan_by_pylance("_rowid = 234567")


class LookupByKey(LookupByRowId):
    name = "lookup by a filter on a key"

    def ours(self) -> object:
        return self.scan("id = 234567")

    def theirs(self) -> object:
        return self.scan_by_pylance("id = 234567")


class Files(Case):
    megabytes = 16

    @property
    def name(self) -> str:
        """What it reads."""
        return f"full scan of 20 files of {self.size} MB"

    @property
    def size(self) -> int:
        """Of each file, in MB."""
        return max(1, int(self.megabytes * self.scale))

    def make(self) -> None:
        per_file = self.size * MB // 80
        rng = np.random.default_rng(1)
        for _ in range(20):
            table = pa.table({f"f{i}": rng.standard_normal(per_file) for i in range(10)})
            self.write(table, mode="append")

    def ours(self) -> object:
        return self.scan()

    def theirs(self) -> object:
        return self.scan_by_pylance()


class LargeFiles(Files):
    megabytes = 64


class Newest(Case):
    name = "opening the newest of 10,000 versions"

    def make(self) -> None:
        self.write(rows(10))
        store = Table(self.uri, self.place.options).store()
        snapshot = Snapshot.open(Table(self.uri, self.place.options))
        key = self.uri.removeprefix(f"s3://{BUCKET}/")

        def put(version: int) -> None:
            manifest = replace(snapshot.manifest, version=version)
            content = encode_manifest(manifest, snapshot.indices, snapshot.file.transaction())
            path = manifest_path(version, NamingScheme.V2)
            self.place.client.put_object(Bucket=BUCKET, Key=f"{key}/{path}", Body=content)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(put, range(2, 10_001)))
        assert next(store.list("_versions")).path == manifest_path(10_000, NamingScheme.V2)

    def ours(self) -> object:
        return Snapshot.open(Table(self.uri, self.place.options)).version

    def theirs(self) -> object:
        return self.dataset().version


class Planning(Case):
    name = "planning a scan of 1,000 fragments"

    def make(self) -> None:
        table, some = Table(self.uri, self.place.options), rows(10)
        plan = plan_write(table, some.schema, WriteSettings(), existing=None)
        (fragment,) = write_fragments(plan.request, some.to_batches())
        key = self.uri.removeprefix(f"s3://{BUCKET}/")
        (file,) = fragment.files
        copies = []
        for _ in range(1000):
            path = f"{uuid.uuid4().hex}.lance"
            copies.append(replace(fragment, files=(replace(file, path=path),)))
        commit_write(plan, copies)
        # Without the data files: opening one fails.
        self.place.client.delete_object(Bucket=BUCKET, Key=f"{key}/data/{file.path}")

    def ours(self) -> object:
        snapshot = Snapshot.open(Table(self.uri, self.place.options))
        tasks = plan_scan(snapshot, ScanRequest(fragments_per_task=1))
        return len(tasks)

    def theirs(self) -> object:
        return len(self.dataset().get_fragments())


CASES = (
    SmallFragments,
    Append,
    Commit,
    LookupByRowId,
    LookupByKey,
    Files,
    LargeFiles,
    Newest,
    Planning,
)


def measured(case: Case, repeats: int) -> tuple[str, ...]:
    """One row of the table: the faster of the runs of each."""
    kept = []
    for who in ("ours", "theirs"):
        best = None
        for turn in range(repeats):
            if turn and isinstance(case, Commit):
                case.prepare()
            seen = case.place.observed(DELAY_S, getattr(case, who))
            best = seen if best is None or seen.seconds < best.seconds else best
        kept.append(best)
    ours, theirs = kept
    assert ours.value == theirs.value, (ours.value, theirs.value)
    return (
        case.name,
        len(ours.requests), len(theirs.requests), ours.rounds, theirs.rounds,
        ours.seconds, theirs.seconds, ours.seconds / theirs.seconds,
    )  # fmt: skip


def bandwidth(case: Files) -> tuple[str, ...]:
    """How much of the speed without delay is left with it, and the memory of a task."""
    seconds = [
        min(case.place.observed(delay, case.ours).seconds for _ in range(2))
        for delay in (0.0, DELAY_S)
    ]
    return (
        case.name,
        *(f"{20 * case.size / s:.0f}" for s in seconds),
        f"{seconds[0] / seconds[1]:.2f}",
        *memory(case),
    )


def memory(case: Files) -> tuple[str, str]:
    """MB that the first task reads, and those by which a process grows that runs it alone."""
    task = case.tasks()[0]
    stored = sum(file.size_bytes for part in task.slices for file in part.fragment.files)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
        seen = case.place.observed(DELAY_S, lambda: alone.submit(grown_by, task).result())
    return f"{stored / MB:.0f}", f"{seen.value:.0f}"


def show_requests(case: Case) -> None:
    """Print begin and end of each request, to find out what waits for what."""
    for who in ("ours", "theirs"):
        seen = case.place.observed(DELAY_S, getattr(case, who))
        start = min(request.start for request in seen.requests)
        print(f"\n{case.name}, {who}: {seen.seconds:.2f} s")
        for request in seen.requests[:60]:
            print(
                f"{request.start - start:7.3f} {(request.end or 0) - start:7.3f} "
                f"{request.method} {request.path[:110]} {request.byte_range}"
            )
        if isinstance(case, Commit):
            case.prepare()


def main(
    *,
    cases: tuple = tuple(case.__name__ for case in CASES),
    scale: float = 1.0,
    repeats: int = 2,
    requests: bool = False,
) -> None:
    lines, speeds = [], []
    with distance() as place:
        for kind in (kind for kind in CASES if kind.__name__ in cases):
            case = kind(place, scale)
            if requests:
                show_requests(case)
            lines.append(measured(case, repeats))
            print(lines[-1], file=sys.stderr, flush=True)
            if isinstance(case, Files):
                speeds.append(bandwidth(case))
    header = " | requests | pylance | rounds | pylance | seconds | pylance | ours / pylance"
    print_table(f"{DELAY_S * 1000:.0f} ms for each request", header, lines)
    if speeds:
        header = " | MB/s without delay | MB/s with 50 ms | share | a task's MB | grown MB"
        print_table("A full scan by this package", header, speeds)


if __name__ == "__main__":
    run(main)
