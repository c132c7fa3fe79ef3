"""Writers, a compactor, a cleaner, readers and a follower, concurrently on one table.

    python tests/proofs/soak.py --minutes 10
    python tests/proofs/soak.py --commits 60

Six writers, each a process, count in rows of their own and in one that they share, change pairs of
rows together, and append, change and delete batches.  In every version that a reader sees, the
shared row is the sum of the others, the rows of a pair are equal, and a batch is there as a whole
with one value or not at all.  In the end the counters are what the writers reported, and the
replica of the follower, made of the change feed alone, is the table by value and by row id.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(one) for one in (_TESTS / "support", _TESTS, _TESTS.parent)]

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from local_changes import delete_rows, update_rows
from proofs.proof_report import Report, arguments
from row_changes import upsert
from table_access import read_changes, read_ours, write_table

from pyspark_lance.errors import MissingFileError, RetryableCommitError, VersionNotFoundError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.refs import consumers_of, register_consumer
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

WRITERS, READERS = 6, 2
SHARED, LEFT, RIGHT, FIRST_BATCH = 100, 200, 300, 1_000_000
BATCH_ROWS = 7
PATIENT = ChangeSettings(retries=1000, timeout_s=600.0)
OLD_S, YOUNG_S = 20.0, 2.0


def is_over(path: str) -> bool:
    """Whether the first process said so."""
    return os.path.exists(f"{path}.over")


def rows(ids: range, n: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())})


def make(path: str) -> None:
    """Counters, both sides of the pairs and the shared row, in fragments of their own."""
    firsts = (0, LEFT, RIGHT)
    parts = [rows(range(first, first + WRITERS), 0) for first in firsts]
    together = pa.concat_tables([*parts, rows(range(SHARED, SHARED + 1), 0)])
    write_table(path, together, max_rows_per_file=WRITERS)


# Writers -----------------------------------------------------------------------------------


class Writer:
    """One writer, and the results of its commits.

    Attributes:
        counts: Commits by name.
        batches: Value of every batch of its own that is there, by its first id.
    """

    def __init__(self, path: str, number: int, seed: int) -> None:
        self._path, self._number = path, number
        self._rng = random.Random(f"{seed} {number}")
        self._next = FIRST_BATCH * (number + 1)
        self.counts: Counter[str] = Counter()
        self.batches: dict[int, int] = {}

    def run(self) -> tuple[Counter[str], dict[int, int]]:
        """Until it is over."""
        while not is_over(self._path):
            work = self._rng.choice([self.count, self.count, self.pair, self.append])
            if self.batches:
                work = self._rng.choice([work, work, self.change, self.delete])
            work()
            self.counts[work.__name__] += 1
        return self.counts, self.batches

    def count(self) -> None:
        self._add_one((self._number, SHARED))

    def pair(self) -> None:
        self._add_one((LEFT + self._number, RIGHT + self._number))

    def _add_one(self, ids: tuple[int, int]) -> None:
        def plus(batch):
            return {"n": pc.add(batch["n"], 1)}

        done = update_rows(self._path, f"id IN {ids}", ["n"], plus, settings=PATIENT)
        assert done.num_updated_rows == 2, done

    def append(self) -> None:
        first, value = self._next, self._rng.randrange(100)
        self._next += BATCH_ROWS
        batch = rows(range(first, first + BATCH_ROWS), value)
        write_table(self._path, batch, retries=1000, timeout_s=600.0)
        self.batches[first] = value

    def change(self) -> None:
        first, value = self._rng.choice(sorted(self.batches)), self._rng.randrange(100)
        done = upsert(self._path, rows(range(first, first + BATCH_ROWS), value), settings=PATIENT)
        assert (done.num_updated_rows, done.num_inserted_rows) == (BATCH_ROWS, 0), done
        self.batches[first] = value

    def delete(self) -> None:
        first = self._rng.choice(sorted(self.batches))
        condition = f"id >= {first} AND id < {first + BATCH_ROWS}"
        done = delete_rows(self._path, condition, settings=PATIENT)
        assert done.num_deleted_rows == BATCH_ROWS, done
        del self.batches[first]


def write(path: str, number: int, seed: int) -> tuple[Counter[str], dict[int, int]]:
    return Writer(path, number, seed).run()


# Other processes ---------------------------------------------------------------------------


def keep_compact(path: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    while not is_over(path):
        try:
            options = {"target_rows_per_fragment": 60, "materialize_deletions_threshold": 0.0}
            counts["compactions"] += (
                compact(Table(path), CompactionRequest(**options)).version is not None
            )
        except RetryableCommitError:
            counts["compactions that gave way"] += 1
    return counts


def keep_clean(path: str, age_s: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    while not is_over(path):
        policy = CleanupPolicy(older_than_s=age_s, error_if_tagged=False)
        result = cleanup_old_versions(Table(path), policy)
        counts["versions cleaned up"] += len(result.versions)
        counts["files cleaned up"] += result.num_files
    return counts


def keep_reading(path: str, seed: int) -> Counter[str]:
    """Read the newest version, and every third time an older one."""
    counts: Counter[str] = Counter()
    rng, last = random.Random(seed), 0
    while not is_over(path):
        at = LATEST
        if rng.random() < 0.3 and last > 5:
            at = VersionSpec(version=last - rng.randint(1, 5))
        try:
            version = Snapshot.open(Table(path), at).version
            found = read_ours(path, VersionSpec(version=version))
        except (VersionNotFoundError, MissingFileError):
            counts["versions that were gone"] += 1
            continue
        check_version(found, version)
        assert at != LATEST or version >= last, (version, last)
        last = max(last, version)
        counts["versions read"] += 1
    return counts


def check_version(found: pa.Table, version: int) -> None:
    """What holds in every version."""
    ids, values = found["id"].to_numpy(), found["n"].to_numpy()
    assert len(np.unique(ids)) == len(ids), f"version {version} has an id twice"
    assert len(np.unique(found[ROW_ID].to_numpy())) == len(ids), f"{version}: a row id twice"

    def values_of(first: int) -> np.ndarray:
        chosen = np.flatnonzero((ids >= first) & (ids < first + WRITERS))
        return values[chosen[np.argsort(ids[chosen])]]

    shared = values[ids == SHARED]
    assert values_of(0).sum() == shared.sum(), f"version {version}: {values_of(0)}, {shared}"
    assert (values_of(LEFT) == values_of(RIGHT)).all(), f"version {version}: pairs differ"
    rest = ids >= FIRST_BATCH
    batch = (ids[rest] - ids[rest] % FIRST_BATCH) + (ids[rest] % FIRST_BATCH) // BATCH_ROWS
    order = np.argsort(batch, kind="stable")
    _, starts, sizes = np.unique(batch[order], return_index=True, return_counts=True)
    assert (sizes == BATCH_ROWS).all(), f"version {version}: parts of batches"
    for_each = values[rest][order].reshape(len(starts), BATCH_ROWS)
    assert (for_each == for_each[:, :1]).all(), f"version {version}: batches of two values"


def follow(path: str, replica: dict[int, tuple[int, int]], version: int) -> tuple[dict, int]:
    """Apply net changes until it is over, and those that are left then."""
    batches = 0
    while True:
        was_over = is_over(path)
        newest = Snapshot.open(Table(path)).version
        if newest > version:
            changes = read_changes(path, version + 1, newest, "netChanges")
            apply(replica, changes)
            version, batches = newest, batches + 1
            register_consumer(Table(path), "follower", version)
        elif was_over:
            return replica, batches


def apply(replica: dict[int, tuple[int, int]], changes: pa.Table) -> None:
    kinds = changes["_change_type"].to_pylist()
    columns = [changes[name].to_pylist() for name in (ROW_ID, "id", "n")]
    for kind, row_id, key, n in zip(kinds, *columns, strict=True):
        if kind == "delete":
            del replica[row_id]
        elif kind == "insert":
            assert row_id not in replica, f"row id {row_id} is inserted twice"
            replica[row_id] = (key, n)
        elif kind == "update_postimage":
            assert row_id in replica, f"row id {row_id} is updated and not there"
            replica[row_id] = (key, n)


# All of them -------------------------------------------------------------------------------


def contents(path: str) -> tuple[dict[int, tuple[int, int]], int]:
    """Value of every row by its row id; the version."""
    version = Snapshot.open(Table(path)).version
    found = read_ours(path, VersionSpec(version=version))
    columns = [found[name].to_pylist() for name in (ROW_ID, "id", "n")]
    return {row_id: (key, n) for row_id, key, n in zip(*columns, strict=True)}, version


def prove(until: Callable[[int, float], bool], seed: int, age_s: float) -> Report:
    """Run until a version and a number of seconds are enough."""
    report = Report("soak", seed)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="pyspark-lance-soak-", dir=memory))
    try:
        _prove(str(folder / "t"), until, seed, age_s, report)
    except Exception as error:  # noqa: BLE001
        report.anomalies.append(f"{type(error).__name__}: {error}")
    finally:
        Path(f"{folder / 't'}.over").touch()
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _prove(
    path: str, until: Callable[[int, float], bool], seed: int, age_s: float, report: Report
) -> None:
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(WRITERS + READERS + 3, mp_context=fork) as pool:
        pool.submit(os.getpid).result()  # all processes begin here, before there are threads
        make(path)
        first, version = contents(path)
        register_consumer(Table(path), "follower", version)
        started = time.monotonic()
        writers = [pool.submit(write, path, number, seed) for number in range(WRITERS)]
        others = [pool.submit(keep_compact, path), pool.submit(keep_clean, path, age_s)]
        others += [pool.submit(keep_reading, path, seed + number) for number in range(READERS)]
        follower = pool.submit(follow, path, first, version)
        try:
            while not until(Snapshot.open(Table(path)).version, time.monotonic() - started):
                broken = [one for one in (*writers, *others, follower) if one.done()]
                if broken:
                    broken[0].result()
                check_version(read_ours(path), 0)
        finally:
            Path(f"{path}.over").touch()
        replica, batches = follower.result()
        for one in others:
            report.counts.update(one.result())
        outcomes = [one.result() for one in writers]
    # The writers and the compactor may have finished after the follower looked last.
    left, newest = contents(path)
    _apply_rest(path, replica, newest)
    report.counts["versions"] = newest
    report.counts["batches of changes applied"] = batches
    for name in ("count", "pair", "append", "change", "delete"):
        report.counts[f"commits: {name}"] = sum(counts[name] for counts, _ in outcomes)
    assert replica == left, "the replica is not the table"
    _check_counters(sorted(left.values()), outcomes)
    errors = verify(Table(path), read_data=True).errors
    assert errors == (), errors


def _apply_rest(path: str, replica: dict[int, tuple[int, int]], newest: int) -> None:
    (follower,) = consumers_of(Table(path))
    if follower.version < newest:
        apply(replica, read_changes(path, follower.version + 1, newest, "netChanges"))


def _check_counters(rows_left: list[tuple[int, int]], outcomes: list) -> None:
    """The table must be what the writers reported."""
    expected = {SHARED: sum(counts["count"] for counts, _ in outcomes)}
    for number, (counts, batches) in enumerate(outcomes):
        expected[number] = counts["count"]
        expected[LEFT + number] = expected[RIGHT + number] = counts["pair"]
        for first, value in batches.items():
            expected |= dict.fromkeys(range(first, first + BATCH_ROWS), value)
    assert dict(rows_left) == expected, "the counters differ from the reports of the writers"
    assert len(rows_left) == len(expected), "an id is there twice"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--commits", type=int, help="stop at this version instead")
    given = parser.parse_args()
    if given.commits is not None:
        return prove(lambda version, _: version >= given.commits, given.seed, YOUNG_S).show()
    return prove(lambda _, seconds: seconds >= 60 * given.minutes, given.seed, OLD_S).show()


if __name__ == "__main__":
    sys.exit(main())
