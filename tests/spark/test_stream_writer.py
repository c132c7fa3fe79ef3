"""The sink's promises towards Spark, called as Spark calls it; no JVM."""

from __future__ import annotations

import os
import pickle
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import lance
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructField, StructType
from table_access import read_ours, write_table
from table_files import files_of, used_files

from pyspark_lance.errors import CommitConflictError, StorageError
from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.metafile.manifest_file import load_transaction
from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.spark.source.stream_writer import BATCH_PROPERTY, QUERY_PROPERTY
from pyspark_lance.table.cleanup.cleanup import (
    CleanupPolicy,
    cleanup_old_versions,
    find_orphan_files,
    remove_orphan_files,
)
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

SCHEMA = StructType([StructField("id", LongType())])

pytestmark = pytest.mark.interop


def run_batch(path, number, *ids, **options):
    """Spark makes one writer for the tasks, and another one for the commit."""
    writers = [
        LanceDataSource({"path": path, **options}).streamWriter(SCHEMA, overwrite=False)
        for _ in range(2)
    ]
    tasks = [[one] for one in ids] or [[]]
    parts = [pa.table([pa.array(part, pa.int64())], ["id"]).to_batches() for part in tasks]
    writers[1].commit([writers[0].write(iter(part)) for part in parts], number)


def test_named_query_is_identified_by_name(tmp_path):
    path = str(tmp_path / "t")
    run_batch(path, 0, 1, 2, streamingQueryId="feed")
    for number in range(5):
        write_table(path, pa.table({"id": [10 + number]}))
    run_batch(path, 0, 1, 2, streamingQueryId="feed")  # again, as after a crash
    assert lance.dataset(path).version == 6 and files_of(path) == used_files(path)
    run_batch(path, 1, 3, streamingQueryId="feed")
    newest = Snapshot.open(Table(path))
    properties = load_transaction(newest.store, newest.file).properties
    assert (properties[QUERY_PROPERTY], properties[BATCH_PROPERTY]) == ("feed", "1")
    run_batch(path, 0, 4, streamingQueryId="another")
    run_batch(path, 2, streamingQueryId="feed")  # nothing in it: no version
    assert lance.dataset(path).version == 8
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [1, 2, 3, 4, *range(10, 15)]


def test_batch_committed_by_other_writer_is_recognised(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": [0]}))
    properties = {QUERY_PROPERTY: "feed", BATCH_PROPERTY: "7"}
    write_table(path, pa.table({"id": [1]}), properties=properties)
    write_table(path, pa.table({"id": [2]}))
    for number, expected in ((7, 3), (6, 3), (8, 4), (8, 4)):
        run_batch(path, number, 10 + number, streamingQueryId="feed")
        assert lance.dataset(path).version == expected and files_of(path) == used_files(path)
    run_batch(path, 5, 100, streamingQueryId="another")
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [0, 1, 2, 18, 100]


def test_files_of_dead_executor_are_orphans(tmp_path):
    path = str(tmp_path / "t")
    run_batch(path, 0, 1, streamingQueryId="feed")
    options = {"path": path, "streamingQueryId": "feed"}
    writer = LanceDataSource(options).streamWriter(SCHEMA, overwrite=False)
    part = pa.table([pa.array([2], pa.int64())], ["id"]).to_batches()
    before = files_of(path)
    writer.write(iter(part))  # it dies before Spark has the answer, and the task runs once more
    (lost,) = files_of(path) - before
    writer.commit([writer.write(iter(part))], 1)
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [1, 2]
    assert [file.path for file in find_orphan_files(Table(path))] == [lost]
    assert remove_orphan_files(Table(path)) == []  # young: it may be of a write under way
    removed = remove_orphan_files(Table(path), older_than_s=0, force=True)
    assert [file.path for file in removed] == [lost] and files_of(path) == used_files(path)
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [1, 2]


def test_cleanup_removes_old_files_of_dead_executors(tmp_path):
    path = str(tmp_path / "t")
    run_batch(path, 0, 1, streamingQueryId="feed")
    options = {"path": path, "streamingQueryId": "feed"}
    writer = LanceDataSource(options).streamWriter(SCHEMA, overwrite=False)
    before = files_of(path)
    writer.write(iter(pa.table([pa.array([2], pa.int64())], ["id"]).to_batches()))
    (lost,) = files_of(path) - before
    long_ago = time.time() - 2 * SAFE_AGE_S
    os.utime(tmp_path / "t" / lost, (long_ago, long_ago))
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
    assert files_of(path) == used_files(path)


def test_batch_without_query_is_not_committed(tmp_path):
    with pytest.raises(StorageError, match="did not report the query"):
        run_batch(str(tmp_path / "t"), 0, 1)


COUNTS = StructType([StructField("id", LongType()), StructField("n", LongType())])


def sent(value):
    """As it arrives in another process."""
    return pickle.loads(cloudpickle.dumps(value))


@dataclass
class Query:
    """A query whose process may be killed at any time, and its batches as Spark's log has them.

    Attributes:
        name: Its id.
        is_complete: Its batches are the counts of all numbers so far, and replace the rows.
        number: Of the batch that is next, or that runs again.
        numbers: Of that batch, once it is logged.
        counts: Of all numbers before that batch.
        is_there: Whether the batch is in the table already.
    """

    name: str
    is_complete: bool
    number: int = 0
    numbers: list[int] | None = None
    counts: Counter[int] = field(default_factory=Counter)
    is_there: bool = False

    def rows(self) -> list[tuple[int, int]]:
        """What the batch writes."""
        assert self.numbers is not None
        if self.is_complete:
            return sorted((self.counts + Counter(self.numbers)).items())
        return [(number, self.number) for number in self.numbers]

    def finish(self) -> None:
        """Spark notes that the batch is done."""
        assert self.numbers is not None
        self.counts += Counter(self.numbers)
        self.number, self.numbers, self.is_there = self.number + 1, None, False


class Sinks:
    """Queries and batch writers of one table, and the rows that it must hold.

    Args:
        path: Root of the table.
        seed: Of all that is random.
    """

    def __init__(self, path: str, seed: int) -> None:
        self.path, self.rng = path, random.Random(seed)
        self.rows: list[tuple[int, int]] = []
        self.seen: Counter[str] = Counter()
        self.replaced = 0
        self.queries = [Query(f"query {n}", self.rng.random() < 0.5) for n in range(3)]

    def step(self, busy: tuple[Query, ...] = ()) -> None:
        """A batch, or the part of it that comes before a kill; or another writer's work."""
        free = [query for query in self.queries if query not in busy]
        if self.rng.random() < 0.2 and self.rows:
            self._others()
        elif free:
            self._batch(self.rng.choice(free), busy)

    def _batch(self, query: Query, busy: tuple[Query, ...]) -> None:
        if query.numbers is None:
            numbers = (self.rng.randrange(5) for _ in range(self.rng.choice([0, 1, 6])))
            query.numbers = list(numbers)
        options = {"path": self.path, "streamingQueryId": query.name}
        source = LanceDataSource(options)
        writer = sent(source.streamWriter(COUNTS, overwrite=query.is_complete))
        messages = [sent(writer.write(iter(part))) for part in self._parts(query.rows())]
        if self.rng.random() < 0.2:
            self.seen["killed before the commit"] += 1
            return
        replaced = self.replaced
        while self.rng.random() < 0.3:
            self.step((*busy, query))
        committer = sent(source.streamWriter(COUNTS, overwrite=query.is_complete))
        try:
            committer.commit(messages, query.number)
        except CommitConflictError:
            # Rows that follow nothing any more: the query ends, and its batch runs again.
            assert self.replaced > replaced and not query.is_there
            self.seen["ended by a conflict"] += 1
            return
        self.seen["run again"] += query.is_there
        if not query.is_there:
            kept = [] if query.is_complete else self.rows
            self.replaced += query.is_complete
            self.rows = [*kept, *query.rows()]
            query.is_there = True
        if self.rng.random() < 0.3:
            self.seen["killed after the commit"] += 1
            return
        query.finish()

    def _parts(self, rows: list[tuple[int, int]]) -> list[list[pa.RecordBatch]]:
        table = pa.Table.from_pylist(
            [{"id": one, "n": n} for one, n in rows],
            pa.schema([("id", pa.int64()), ("n", pa.int64())]),
        )
        cut = self.rng.randint(0, len(table))
        return [table[:cut].to_batches(), table[cut:].to_batches()]

    def _others(self) -> None:
        kind = self.rng.choice(["append", "overwrite", "compact", "cleanup"])
        self.seen[kind] += 1
        if kind in ("append", "overwrite"):
            write_table(self.path, pa.table({"id": [77], "n": [1]}), overwrite=kind == "overwrite")
            self.rows = [*(self.rows if kind == "append" else []), (77, 1)]
            self.replaced += kind == "overwrite"
        elif kind == "compact":
            compact(Table(self.path))
        else:
            cleanup_old_versions(Table(self.path), CleanupPolicy(older_than_s=0))


@pytest.mark.parametrize("seed", range(int(os.environ.get("PYSPARK_LANCE_SINKS", "4"))))
def test_killed_queries_sharing_table_lose_and_repeat_nothing(tmp_path, seed):
    path = str(tmp_path / "t")
    sinks = Sinks(path, seed)
    for _ in range(25):
        sinks.step()
        if os.path.exists(f"{path}/_versions"):
            found = read_ours(path, system_columns=()).to_pylist()
            assert sorted(map(tuple, map(dict.values, found))) == sorted(sinks.rows), sinks.seen
    assert seed > 12 or (sinks.seen["run again"] and sinks.seen["killed before the commit"])
    from_pylance = lance.dataset(path).to_table().to_pylist()
    assert sorted(map(tuple, map(dict.values, from_pylance))) == sorted(sinks.rows)
