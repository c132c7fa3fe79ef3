"""Feeds and streams of tables with blobs, whose random changes a model knows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows, update_rows
from table_access import read_batch, read_changes, read_ours, write_table

from pyspark_lance.table.cdf.change_window import Bound
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import BEGINNING, StreamLimits, StreamSettings, Updates
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
SCHEMA = pa.schema([("id", pa.int64()), BLOB])
# Equal in size, so that only the bytes distinguish them.
VALUES = [b"one", b"two", b"", None, b"1" * 5000, b"2" * 5000]


class Blobs:
    """A table with blobs, and the blob of each row in each version, by row id."""

    def __init__(self, path: str, seed: int, file_version: str) -> None:
        self.path, self.table, self.next_id = path, Table(path), 0
        self.rng = np.random.default_rng(seed)
        self.file_version = file_version
        self.versions: list[dict[int, tuple]] = []
        self.append()

    def draw(self, most: int) -> int:
        return int(self.rng.integers(most))

    def append(self) -> None:
        count = 1 + self.draw(4)
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        rows = {"id": ids, "b": [VALUES[self.draw(6)] for _ in ids]}
        write_table(self.path, pa.table(rows, SCHEMA), max_rows_per_file=3,
                    file_version=None if self.versions else self.file_version)  # fmt: skip
        self.note({one: rows["b"][place] for place, one in enumerate(ids)})

    def update(self) -> None:
        value, rest = VALUES[self.draw(6)], self.draw(3)
        values = pa.array([value], BLOB.type)
        update_rows(
            self.path, f"id % 3 = {rest}", ["b"],
            lambda batch: {"b": values.take(pa.array([0] * batch.num_rows, pa.int32()))},
        )  # fmt: skip
        self.note({one: value for one in range(self.next_id) if one % 3 == rest})

    def delete(self) -> None:
        delete_rows(self.path, f"id % 5 = {self.draw(5)}")
        self.note({})

    def compact(self) -> None:
        compact(self.table)
        self.note({})

    def restore(self) -> None:
        version = 1 + self.draw(len(self.versions))
        restore(self.table, VersionSpec(version=version))
        if Snapshot.open(self.table).version > len(self.versions):  # it was not the newest
            self.versions.append(self.versions[version - 1])

    def note(self, changed: dict[int, bytes | None]) -> None:
        """Take down the newest version, if it is a new one; blobs are those that were written."""
        if Snapshot.open(self.table).version == len(self.versions):
            return
        known = dict((self.versions or [{}])[-1].values()) | changed
        rows = read_ours(self.path, system_columns=("_rowid",)).to_pylist()
        self.versions.append({row["_rowid"]: (row["id"], known[row["id"]]) for row in rows})
        assert Snapshot.open(self.table).version == len(self.versions)

    def step(self) -> None:
        [self.append, self.update, self.update, self.delete, self.compact, self.restore][
            self.draw(6)
        ]()


def expected(blobs: Blobs, start: int, end: int) -> list[tuple]:
    """Version, kind, row id and id of each change in the window."""
    found = []
    for version in range(start, end + 1):
        before = blobs.versions[version - 2] if version > 1 else {}
        after = blobs.versions[version - 1]
        found += [(version, "delete", row, before[row][0]) for row in before.keys() - after.keys()]
        found += [(version, "insert", row, after[row][0]) for row in after.keys() - before.keys()]
        for row in before.keys() & after.keys():
            if before[row] != after[row]:
                found += [(version, f"update_{one}image", row, after[row][0]) for one in
                          ("pre", "post")]  # fmt: skip
    return sorted(found)


NAMES = ("_commit_version", "_change_type", "_rowid", "id")


def streamed(blobs: Blobs, first: int) -> list[tuple]:
    settings = StreamSettings(starting=Bound(version=first), updates=Updates.SHOWN)
    stream = TableStream.of(Snapshot.open(blobs.table), settings)
    start, found = BEGINNING, []
    while True:
        end = stream.latest_offset(start, StreamLimits(rows=[None, 1, 3][blobs.draw(3)]))
        if end == start:
            return sorted(found)
        found += [tuple(row[name] for name in NAMES) for row in read_batch(stream, start, end)]
        start = end


def check(path: str, seed: int, steps: int) -> int:
    blobs = Blobs(path, seed, ("2.0", "2.1", "2.2")[seed % 3])
    for _ in range(steps):
        blobs.step()
    count, last = 0, len(blobs.versions)
    for start in range(1, last + 1):
        for end in range(start, last + 1):
            feed = read_changes(path, start, end, "dropCarryovers")
            shown = zip(*(feed[name].to_pylist() for name in NAMES), strict=True)
            assert sorted(shown) == expected(blobs, start, end), (start, end)
            count += 1
        assert streamed(blobs, start) == expected(blobs, start, last), start
    return count


@pytest.mark.parametrize("seed", range(3))
def test_feeds_and_streams_show_rows_with_changed_blobs(tmp_path, seed):
    assert check(str(tmp_path / "t"), seed, 6)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_feeds_and_streams_of_many_histories_with_blobs(tmp_path, block):
    seeds = range(100 + 15 * block, 115 + 15 * block)
    assert sum(check(str(tmp_path / str(seed)), seed, 12) for seed in seeds) > 300
