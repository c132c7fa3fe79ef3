"""Processor time of S3 requests by s3fs and by obstore: python benchmarks/s3_clients.py.

Each client has processes of its own against one S3 server (moto, in another process), in turns.
Seconds are those of the client's processor; the server's are in the time by the clock only, which
is therefore not shown. Memory is the highest of the process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import pyarrow as pa
from harness import SUPPORT, in_child, memory_mb, print_table, run, write

from pyspark_lance.store.object_store import ByteRange
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

CLIENTS = ("s3fs", "obstore")
MB = 1 << 20


class Stopwatch:
    """Milliseconds of the processor for each operation, by name."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, count: int = 1) -> Iterator[None]:
        """Measure a block that does the operation ``count`` times."""
        before = time.process_time()
        yield
        self.found[name] = 1000 * (time.process_time() - before) / count


def measure(uri: str, options: dict[str, str]) -> dict[str, float]:
    """Milliseconds of the processor for each operation, and the peak of memory in MB."""
    timed = Stopwatch()
    measure_requests(timed, uri, options)
    measure_tables(timed, Table(uri + "/table", options))
    return timed.found | {"peak of memory, MB": memory_mb("VmHWM")}


def measure_requests(timed: Stopwatch, uri: str, options: dict[str, str]) -> None:
    """Measure the methods of the store."""
    with timed("first request"):
        store = open_store(uri, options)
        store.put("one", bytes(500))
    with timed("small conditional put", 100):
        for number in range(100):
            store.put_if_absent(f"new/{number}", bytes(500))
    with timed("stat", 100):
        for _ in range(100):
            store.stat("one")
    with timed("listing of 100", 10):
        for _ in range(10):
            list(store.list("new"))
    content = bytes(64 * MB)
    with timed("write of 64 MB"), closing(store.open_output("large")) as output:
        for start in range(0, len(content), MB):
            output.write(content[start : start + MB])
    with timed("read of 64 MB"):
        store.get("large")
    with timed("range of 4 KB", 100):
        for number in range(100):
            store.get_range("large", number * 4096, number * 4096 + 4096)
    with timed("60 distant ranges at once", 10):
        for shift in range(10):
            starts = range(shift, 60 * MB, MB)
            store.get_ranges("large", [ByteRange(start, start + 4096) for start in starts])


def measure_tables(timed: Stopwatch, table: Table) -> None:
    """Measure small appends and a scan of their fragments."""
    rows = pa.table({"id": list(range(1000)), "text": [f"text {n}" for n in range(1000)]})

    append = partial(write, table.uri, rows, dict(table.storage))
    append()
    with timed("append of 1,000 rows", 20):
        for _ in range(20):
            append()
    with timed("scan of 21 fragments"):
        for task in plan_scan(Snapshot.open(table), ScanRequest()):
            for _ in task.run():
                pass


def main(*, rounds: int = 3) -> None:
    serve = "from s3_server import running_server; print(running_server().endpoint, flush=True)"
    program = f"import sys; sys.path.insert(0, {SUPPORT!r}); {serve}; sys.stdin.read()"
    server = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        from s3_server import S3Server

        reached = S3Server(server.stdout.readline().strip())
        found: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
        for _ in range(rounds):
            for client in CLIENTS:
                bucket = f"measured-{time.time_ns()}"
                reached.client().create_bucket(Bucket=bucket)
                options = reached.options | {"s3_client": client}
                found[client].append(in_child(measure, f"s3://{bucket}/measured", options))
    finally:
        server.kill()
    rows = []
    for name in found["s3fs"][0]:
        medians = [statistics.median(each[name] for each in found[one]) for one in CLIENTS]
        rows.append((name, *(f"{one:.1f}" for one in (*medians, medians[0] / medians[1]))))
    print_table("Milliseconds of the processor", ("operation", *CLIENTS, "ratio"), rows)


if __name__ == "__main__":
    run(main)
