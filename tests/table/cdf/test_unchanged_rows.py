"""Streams and feeds whose last version was removed, and whose rows are those of a later one."""

from __future__ import annotations

import json
import random
import shutil

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from random_seeds import seeds
from row_changes import add_to
from table_access import (
    forget_transactions,
    read_batch,
    read_changes,
    read_ours,
    remove_versions,
    write_table,
)

from pyspark_lance.errors import CorruptFileError, LanceError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.table.cdf.change_feed import count_changes
from pyspark_lance.table.cdf.change_window import Bound, Deduplication, resolve_window
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import (
    BEGINNING,
    StreamLimits,
    StreamOffset,
    StreamSettings,
    Updates,
)
from pyspark_lance.table.cdf.unchanged_rows import last_changed_version
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.columns.change_columns import add_null_columns, drop_columns
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

ALL = StreamLimits()
NEWEST_ONLY = CleanupPolicy(retain_versions=1)


def append(path, first=0, count=3):
    ids = pa.array(range(first, first + count), pa.int64())
    write_table(path, pa.table({"id": ids, "n": pa.array([0] * count, pa.int64())}))


def newest(path):
    return Snapshot.open(Table(path)).version


def set_config(path):
    lance.dataset(path).update_config({"owner": str(newest(path))})


def compact_by_pylance(path):
    """Two versions: one reserves the fragments, the next moves the rows."""
    lance.dataset(path).optimize.compact_files()


def follow(path, updates=Updates.SHOWN, mode="dropCarryovers", **settings):
    settings = StreamSettings(updates=updates, mode=Deduplication(mode), **settings)
    return TableStream.of(Snapshot.open(Table(path)), settings)


def as_logged(offset):
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))


def caught_up(path, **settings):
    """The offset of a stream that has read everything."""
    return as_logged(follow(path, **settings).latest_offset(BEGINNING, ALL))


def rows_after(stream, start):
    """What the stream shows after an offset, and the offset that it reaches."""
    found = []
    while (end := as_logged(stream.latest_offset(start, ALL))) != start:
        found += read_batch(stream, start, end)
        start = end
    return found, start


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    append(path)
    append(path, 3)
    return path


# What is proven ------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", Updates)
@pytest.mark.parametrize("with_index", [False, True])
def test_stream_continues_after_versions_without_row_changes(path, updates, with_index):
    reached = caught_up(path, updates=updates)
    compact_by_pylance(path)
    if with_index:
        lance.dataset(path).create_scalar_index("id", "BTREE")
    assert newest(path) > reached.version + 1
    cleanup_old_versions(Table(path), NEWEST_ONLY)
    append(path, 6)
    rows, end = rows_after(follow(path, updates), reached)
    assert [row["id"] for row in rows] == [6, 7, 8]
    cleanup_old_versions(Table(path), NEWEST_ONLY)
    assert rows_after(follow(path, updates), end) == ([], end)


def test_stream_continues_after_repeated_maintenance(path):
    reached, expected = caught_up(path), 6
    for _ in range(3):
        for change in (compact, set_config):
            append(path, expected)
            rows, reached = rows_after(follow(path), reached)
            assert [row["id"] for row in rows] == list(range(expected, expected + 3))
            expected += 3
            set_config(path)
            change(Table(path) if change is compact else path)
            cleanup_old_versions(Table(path), NEWEST_ONLY)
            assert rows_after(follow(path), reached)[0] == []
        reached = rows_after(follow(path), reached)[1]


def test_caught_up_stream_keeps_row_counts_while_advancing(path):
    """Its new version has no rows of its own."""
    reached = caught_up(path)
    for _ in range(3):
        set_config(path)
        set_config(path)
        cleanup_old_versions(Table(path), NEWEST_ONLY)
        rows, end = rows_after(follow(path), reached)
        assert not rows and end.version == newest(path) > reached.version
        reached = end


def test_replayed_batch_needs_no_unchanged_versions(path):
    start = caught_up(path)
    compact(Table(path))
    append(path, 6)
    stream = follow(path)
    end = stream.latest_offset(start, ALL)
    before = read_batch(stream, start, end)
    cleanup_old_versions(Table(path), CleanupPolicy(retain_versions=2))
    assert read_batch(follow(path), start, end) == before != []
    middle = StreamOffset(start.version + 1)
    assert read_batch(follow(path), start, middle) == []


def test_unchanged_batch_is_empty_after_cleanup(path):
    start = caught_up(path)
    set_config(path)
    end = as_logged(follow(path).latest_offset(start, ALL))
    set_config(path)
    set_config(path)
    cleanup_old_versions(Table(path), NEWEST_ONLY)
    assert start.version < end.version < newest(path)
    assert read_batch(follow(path), start, end) == []


def test_feed_needs_no_version_before_compaction(path):
    before = read_changes(path, 1, 2, "none")
    compact(Table(path))
    append(path, 6)
    expected = read_changes(path, 3, 4, "dropCarryovers")
    cleanup_old_versions(Table(path), CleanupPolicy(retain_versions=2))
    assert read_changes(path, 3, 4, "dropCarryovers").equals(expected) and before.num_rows
    assert read_changes(path, 3, 3, "netChanges").num_rows == 0
    window = resolve_window(Table(path), Bound(version=2, is_exclusive=True), Bound())
    assert [one.numInsertedRows for one in count_changes(Table(path), window)] == [3]


def test_last_changed_version_precedes_maintenance(path):
    table, changed = Table(path), newest(path)
    set_config(path)
    compact_by_pylance(path)
    end = newest(path)
    assert end >= changed + 2
    assert last_changed_version(table, 0, end) == changed
    assert last_changed_version(table, changed, end) == changed
    assert last_changed_version(table, changed + 1, end) == changed + 1
    append(path, 100)
    for after in (0, newest(path) - 1):
        assert last_changed_version(table, after, newest(path)) == newest(path)
    assert last_changed_version(table, 0, end) == changed
    cleanup_old_versions(table, CleanupPolicy(retain_versions=1))
    assert last_changed_version(table, 0, end) == end  # unknown


def test_feed_without_deletes_needs_no_unchanged_versions(path):
    compact_by_pylance(path)
    set_config(path)
    append(path, 6)
    cleanup_old_versions(Table(path), CleanupPolicy(retain_versions=2))
    assert read_changes(path, 3, 6, "dropCarryovers")["id"].to_pylist() == [6, 7, 8]


# What is not proven --------------------------------------------------------------------------


def insert_and_delete(path):
    append(path, 10, 1)
    delete_rows(path, "id = 10")


def exchange_rows(path):
    delete_rows(path, "id = 1")
    append(path, 10, 1)


@pytest.mark.parametrize("compacts", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda path: append(path, 10, 1),
        lambda path: delete_rows(path, "id = 1"),
        lambda path: add_to(path, "id = 1", "n", 1),
        insert_and_delete,
        exchange_rows,
        lambda path: write_table(path, read_ours(path, system_columns=()), overwrite=True),
        lambda path: restore(Table(path), VersionSpec(version=1)),
        lambda path: drop_columns(Table(path), ["n"]),
        lambda path: add_null_columns(Table(path), pa.schema([("m", pa.int64())])),
    ],
    ids=["append", "delete", "update", "both", "exchange", "overwrite", "restore", "drop", "add"],
)
def test_removed_version_with_changes_raises(path, change, compacts):
    reached = caught_up(path)
    change(path)
    if compacts:
        compact(Table(path))
    set_config(path)
    set_config(path)
    cleanup_old_versions(Table(path), NEWEST_ONLY)
    with pytest.raises(VersionNotFoundError, match="needs version 2"):
        follow(path).latest_offset(reached, ALL)
    assert follow(path, fails_on_data_loss=False).latest_offset(reached, ALL).version > 2


def test_restore_exchanging_equally_many_rows_raises_after_cleanup(path):
    """The checkpoint is at a delete, which leaves no trace in the other rows."""
    delete_rows(path, "id = 1")
    reached = caught_up(path)
    assert reached.live is None
    restore(Table(path), VersionSpec(version=2))
    delete_rows(path, "id = 5")
    compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))
    set_config(path)
    cleanup_old_versions(Table(path), NEWEST_ONLY)
    with pytest.raises(VersionNotFoundError, match="needs version 3"):
        follow(path).latest_offset(reached, ALL)


def test_restore_undoing_update_raises_after_cleanup(path):
    """There are as many rows, and none is newer than the checkpoint."""
    add_to(path, "id >= 0", "n", 1)
    reached = caught_up(path)
    restore(Table(path), VersionSpec(version=2))
    set_config(path)
    cleanup_old_versions(Table(path), NEWEST_ONLY)
    with pytest.raises(VersionNotFoundError, match="needs version 3"):
        follow(path).latest_offset(reached, ALL)


def test_old_offset_has_no_row_counts(path):
    delete_rows(path, "id = 1")
    append(path, 6)
    old = StreamOffset.from_json({"f": 1, "v": 4})
    assert old.to_json() == {"f": 1, "v": 4} and caught_up(path).live is not None
    compact_by_pylance(path)
    cleanup_old_versions(Table(path), NEWEST_ONLY)
    with pytest.raises(VersionNotFoundError, match="needs version 4"):
        follow(path).latest_offset(old, ALL)


@pytest.mark.parametrize("text", ["", "1-2-3", "1-2-x-3", "1-2-3-4-5", "-1-2-3", "１-2-3-a"])
def test_invalid_row_counts_of_offset_are_corrupt(text):
    with pytest.raises(CorruptFileError):
        StreamOffset.from_json({"f": 1, "v": 2, "live": text})


def test_feed_since_timestamp_needs_all_versions(path):
    moment = Snapshot.open(Table(path)).manifest.timestamp_ns
    append(path, 6)
    compact(Table(path))
    append(path, 9)
    remove_versions(path, [2, 3])
    with pytest.raises(VersionNotFoundError):
        resolve_window(Table(path), Bound(timestamp_ns=moment), Bound())


def test_feed_with_deletes_needs_removed_version(path):
    delete_rows(path, "id = 1")
    append(path, 6)
    compact_by_pylance(path)
    cleanup_old_versions(Table(path), NEWEST_ONLY)
    with pytest.raises(VersionNotFoundError, match="need version 4"):
        read_changes(path, 5, newest(path), "dropCarryovers")


# Random histories ----------------------------------------------------------------------------


class History:
    """A table that changes at random; few rows and values, so that numbers agree by chance."""

    def __init__(self, path, rng):
        self.path, self.rng, self.next_id = path, rng, 0
        self.is_restored = self.has_other_columns = False
        self.append()

    def append(self):
        append(self.path, self.next_id, 1 + self.rng.randrange(3))
        self.next_id += 3

    def delete(self):
        delete_rows(self.path, f"id % 4 = {self.rng.randrange(4)}")

    def update(self):
        add_to(self.path, f"id % 3 = {self.rng.randrange(3)}", "n", 1)

    def update_by_pylance(self):
        lance.dataset(self.path).update({"n": "n + 1"}, where=f"id % 5 = {self.rng.randrange(5)}")

    def compact(self):
        compact(Table(self.path), CompactionRequest(materialize_deletions_threshold=0.0))

    def compact_by_pylance(self):
        compact_by_pylance(self.path)

    def set_config(self):
        set_config(self.path)

    def restore(self):
        versions = [one.version for one in list_versions(Table(self.path).store())]
        restore(Table(self.path), VersionSpec(version=self.rng.choice(versions[-6:])))
        self.is_restored = True

    def change_columns(self):
        self.has_other_columns = True
        names = Snapshot.open(Table(self.path)).schema.to_arrow().names
        if "m" in names:
            drop_columns(Table(self.path), ["m"])
        else:
            add_null_columns(Table(self.path), pa.schema([("m", pa.int64())]))

    def steps(self, most):
        """Steps that change rows are rarer than others; two of three histories have no restore."""
        quiet = [self.compact, self.compact_by_pylance, self.set_config] * 3
        others = [self.append, self.delete, self.update, self.update_by_pylance]
        if self.rng.randrange(3) == 0:
            others += [self.restore, self.restore, self.change_columns]
        for _ in range(self.rng.randrange(1, most)):
            self.rng.choice(quiet + others)()


def outcome(read):
    """What a reader gets: rows, or the kind of its error."""
    try:
        return read()
    except LanceError as error:
        return type(error)


def shown(rows):
    return sorted(map(repr, rows))


@pytest.mark.interop
@pytest.mark.parametrize("seed", seeds(400, in_ci=12))
def test_readers_after_cleanup_equal_readers_with_kept_version(tmp_path, seed):
    """A reader shows what it shows of a table that kept the version that it has read, or fails.

    Without a restore, nothing was changed by the versions that it did not see.
    """
    rng = random.Random(seed)
    history = History(str(tmp_path / "t"), rng)
    history.steps(6)
    updates, mode = rng.choice(list(Updates)), rng.choice(list(Deduplication)).value
    reached = caught_up(history.path, updates=updates, mode=mode)
    history.steps(6)
    oldest_left = newest(history.path)
    history.steps(3)
    if rng.randrange(4) == 0:
        forget_transactions(history.path, keep_files=True)
    last = newest(history.path)
    whole = shutil.copytree(history.path, str(tmp_path / "whole"))
    policy = CleanupPolicy(before_version=oldest_left)
    removed = cleanup_old_versions(Table(history.path), policy).versions
    kept = shutil.copytree(whole, str(tmp_path / "kept"))
    remove_versions(kept, set(removed) - {reached.version})

    def stream(path):
        return shown(rows_after(follow(path, updates, mode), reached)[0])

    def feed(path):
        return shown(read_changes(path, reached.version + 1, last, mode).to_pylist())

    def counts(path):
        window = resolve_window(Table(path), Bound(version=reached.version + 1), Bound())
        found = count_changes(Table(path), window)
        if history.has_other_columns:  # rows that got a column count as updated where it is known
            found = [(one.version, one.numInsertedRows, one.numDeletedRows) for one in found]
            found = [one for one in found if any(one[1:])]
        return found

    for read in (stream, feed, counts):
        if read is not stream and reached.version == last:
            continue
        found = outcome(lambda read=read: read(history.path))
        if found is VersionNotFoundError:
            assert reached.version in removed
            continue
        assert found == outcome(lambda read=read: read(kept)), read.__name__
        if reached.version in removed and not history.is_restored:
            unseen = read_changes(whole, reached.version + 1, oldest_left, "none")
            assert unseen.num_rows == 0, read.__name__
