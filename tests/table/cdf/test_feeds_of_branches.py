"""Random histories that fork: every window and every stream of every branch against a model."""

from __future__ import annotations

import numpy as np
import pytest
from known_history import History, expected
from table_access import read_batch, read_changes

from pyspark_lance.table.cdf.change_window import Bound
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import BEGINNING, StreamLimits, StreamSettings, Updates
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot


def feed_rows(line: History, start: int, end: int) -> list[tuple]:
    names = ["_commit_version", "_change_type", "_rowid", *line.versions[end - 1].columns]
    feed = read_changes(line.path, start, end, "dropCarryovers")
    return sorted(zip(*(feed[name].to_pylist() for name in names), strict=True), key=repr)


def streamed(line: History, first: int) -> list[tuple]:
    """What a stream from a version on shows, by batches of random sizes."""
    settings = StreamSettings(starting=Bound(version=first), updates=Updates.SHOWN)
    stream = TableStream.of(Snapshot.open(line.table), settings)
    names = ["_commit_version", "_change_type", "_rowid", *line.versions[-1].columns]
    start, found = BEGINNING, []
    while True:
        limits = StreamLimits(rows=[None, 1, 3][line.draw(3)], versions=[None, 1][line.draw(2)])
        end = stream.latest_offset(start, limits)
        if end == start:
            return sorted(found, key=repr)
        found += [tuple(row[name] for name in names) for row in read_batch(stream, start, end)]
        start = end


def grow(path: str, seed: int, steps: int) -> list[History]:
    """Lines of one table; what happens on one is between what happens on the others."""
    lines = [History(path, seed)]
    lines[0].note()
    rng = np.random.default_rng(seed)
    for number in range(steps):
        line = lines[rng.integers(len(lines))]
        if rng.integers(4) == 0 and len(lines) < 4:
            version = int(rng.integers(line.first, len(line.versions) + 1))
            lines.append(line.fork(f"b{number}", version))
        elif rng.integers(6) == 0:
            compact(line.table)
            line.note()
        else:
            line.step()
    return lines


def check(lines: list[History]) -> int:
    count = 0
    for line in lines:
        last = len(line.versions)
        for start in range(line.first + (line.first > 1), last + 1):
            for end in range(start, last + 1):
                assert feed_rows(line, start, end) == expected(line, start, end), (
                    line.path,
                    start,
                    end,
                )
                count += 1
            assert streamed(line, start) == expected(line, start, last), (line.path, start)
    return count


def check_seed(path: str, seed: int, steps: int) -> int:
    lines = grow(path, seed, steps)
    count = check(lines)
    # Other lines need what a cleanup of one line would remove.
    cleaned = lines[seed % len(lines)]
    cleanup_old_versions(cleaned.table, CleanupPolicy(retain_versions=1, delete_unverified=False))
    count += check([line for line in lines if line is not cleaned])
    for line in lines:
        assert not verify(line.table, read_data=True).findings
    return count


@pytest.mark.parametrize("seed", range(3))
def test_windows_of_branches_match_histories(tmp_path, seed):
    assert check_seed(str(tmp_path / "t"), seed, 8)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_every_window_of_every_branch_of_many_histories(tmp_path, block):
    seeds = range(100 + 10 * block, 110 + 10 * block)
    assert sum(check_seed(str(tmp_path / str(seed)), seed, 16) for seed in seeds) > 500
