"""Writers commit through a store that fails: python tests/proofs/storage_faults.py.

Several writers append rows to one table, all through a proxy in front of an S3 server (moto, or
versitygw) that makes some requests fail: refused for a while, cut before or after the server took
them, answered by half, or not at all.  A writer whose commit fails does it again under the same
transaction key.  In the end every row must be there exactly once, and every commit must have made
exactly one version.

The seed fixes which requests fail, by the order of their arrival; the writers race for that order.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import subprocess
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cloud_servers import running_versitygw
from s3_server import S3Server, running_server
from store_proxy import ANY_TROUBLE, StoreProxy, Trouble, running_proxy

from pyspark_lance.commit.application_versions import APPLICATION_PROPERTY, VERSION_PROPERTY
from pyspark_lance.errors import RetryableCommitError, StorageError
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])
# A request that gets no answer costs its time-out, so there are fewer of these.
WEIGHTS = {trouble: 1 if trouble is Trouble.STALLED else 4 for trouble in ANY_TROUBLE}
MAX_TRIES = 100


@dataclass
class Outcome:
    """What was done, and what is there.

    Attributes:
        commits: Commits that writers reported, or found later.
        requests: Requests that the proxy saw.
        troubles: Of these, how many met which trouble.
        again: How often a commit was done again, by the error that it failed with.
        lost: Rows that were committed and are not there.
        doubled: Rows that are there more than once, or that no writer wrote.
        versions: Versions of the table, but the first.
    """

    commits: int
    requests: int
    troubles: dict[str, int]
    again: dict[str, int]
    lost: int
    doubled: int
    versions: int
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether nothing is lost and nothing doubled."""
        return not self.lost and not self.doubled and self.versions == self.commits


def write(table: Table, writer: int, numbers: range) -> collections.Counter[str]:
    """Commit one row for each number; return the errors that were met."""
    errors: collections.Counter[str] = collections.Counter()
    for number in numbers:
        row = pa.table({"writer": [writer], "number": [number]}, schema=SCHEMA)
        for _ in range(MAX_TRIES):
            try:
                commit_row(table, row, f"writer-{writer}", number)
                break
            except (StorageError, RetryableCommitError) as error:
                errors[type(error).__name__] += 1
        else:
            raise AssertionError(f"row {number} of writer {writer} failed {MAX_TRIES} times")
    return errors


def commit_row(table: Table, row: pa.Table, application: str, number: int) -> None:
    """One append under a transaction key."""
    key = {APPLICATION_PROPERTY: application, VERSION_PROPERTY: str(number)}
    settings = WriteSettings(properties=key)
    plan = plan_write(table, row.schema, settings, existing=open_existing(table))
    if not plan.is_done:
        commit_write(plan, write_fragments(plan.request, row.to_batches()))


def commit_through_faults(
    server: S3Server,
    executor: Executor,
    *,
    writers: int,
    commits: int,
    rate: float,
    seed: int,
    time_out: str = "5s",
) -> Outcome:
    """Run the writers, then looks without faults.

    Args:
        server: A running S3 server.
        executor: Runs each writer.
        writers: How many.
        commits: Of all writers together.
        rate: Share of requests that fail.
        seed: Of the schedule of failures.
        time_out: How long writers wait for an answer.
    """
    uri = f"s3://{server.new_bucket()}/table"
    direct = Table(uri, server.options)
    nothing = SCHEMA.empty_table()
    plan = plan_write(direct, SCHEMA, WriteSettings(), existing=None)
    commit_write(plan, write_fragments(plan.request, nothing.to_batches()))
    rng = random.Random(seed)

    def fault(request: object) -> Trouble | None:
        if rng.random() >= rate:
            return None
        return rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]

    start = time.perf_counter()
    shares = [range(commits * w // writers, commits * (w + 1) // writers) for w in range(writers)]
    with running_proxy(server.endpoint) as proxy:
        proxy.faults = fault
        options = {**server.options, "aws_endpoint": proxy.endpoint, "read_timeout": time_out}
        again = sum(
            executor.map(write, [Table(uri, options)] * writers, range(writers), shares),
            collections.Counter(),
        )
        return _outcome(direct, shares, proxy, again, time.perf_counter() - start)


def _outcome(
    table: Table,
    shares: list[range],
    proxy: StoreProxy,
    again: collections.Counter[str],
    seconds: float,
) -> Outcome:
    snapshot = Snapshot.open(table)
    errors = verify(table).errors
    assert not errors, errors
    batches = [b for task in plan_scan(snapshot, ScanRequest()) for b in task.run()]
    rows = [(row["writer"], row["number"]) for batch in batches for row in batch.to_pylist()]
    there = collections.Counter(rows)
    wanted = {(writer, number) for writer, share in enumerate(shares) for number in share}
    troubles = collections.Counter(r.trouble.name for r in proxy.requests if r.trouble)
    return Outcome(
        commits=len(wanted),
        requests=len(proxy.requests),
        troubles=dict(sorted(troubles.items())),
        again=dict(again),
        lost=len(wanted - there.keys()),
        doubled=len(rows) - len(wanted & there.keys()),
        versions=len(list_versions(snapshot.store)) - 1,
        seconds=seconds,
    )


def main() -> int:
    """Print the counts; 1 if a row is lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=("moto", "versitygw"), default="moto")
    arguments = parser.parse_args()
    server = running_server() if arguments.server == "moto" else running_versitygw()
    if server is None:
        print("versitygw is not built: see tests/support/cloud_servers.py")
        return 0
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    with ProcessPoolExecutor(arguments.writers, mp_context=get_context("spawn")) as executor:
        outcome = commit_through_faults(
            server,
            executor,
            writers=arguments.writers,
            commits=arguments.commits,
            rate=arguments.rate,
            seed=arguments.seed,
        )
    print(f"seed {arguments.seed}, revision {revision}")
    print(
        f"{outcome.commits} commits of {arguments.writers} writers in {outcome.seconds:.0f} s, "
        f"{outcome.versions} versions"
    )
    print(f"{outcome.requests} requests; failed: {outcome.troubles}")
    print(f"done again after: {outcome.again}")
    print(f"{outcome.lost} rows lost, {outcome.doubled} doubled")
    return 0 if outcome.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
