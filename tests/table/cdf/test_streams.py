"""A table as a stream: the batches together are the changes, each once, for any limits."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import time
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from local_changes import commit_rewritten, delete_rows
from random_seeds import seeds
from row_changes import add_to
from table_access import (
    all_columns,
    random_history_or_skip,
    read_batch,
    read_changes,
    read_ours,
    remove_versions,
    write_table,
)

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    SchemaMismatchError,
    TableReplacedError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.table.cdf.change_window import Bound, Deduplication
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import (
    BEGINNING,
    StreamLimits,
    StreamOffset,
    StreamSettings,
    Updates,
)
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.refs import create_branch, remove_branch
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_identity import TableIdentity

ALL = StreamLimits()
GONE = "delete", "update_preimage"


def follow(path, **settings):
    settings.setdefault("updates", Updates.SHOWN)
    return TableStream.of(Snapshot.open(Table(path)), StreamSettings(**settings))


def batches_of(stream, start=BEGINNING, limits=lambda: ALL):
    """Batches until nothing is new: (start, end, rows)."""
    found = []
    while (end := stream.latest_offset(start, limits())) != start:
        found.append((start, end, read_batch(stream, start, end)))
        start = end
    return found


def shown(rows):
    return sorted(map(repr, rows))


def together(batches):
    return shown(row for _, _, rows in batches for row in rows)


def feed(path, first, mode="dropCarryovers"):
    newest = Snapshot.open(Table(path)).version
    return read_changes(path, first, newest, mode).to_pylist()


def applied(batches):
    """What a table comes to that begins empty and follows: rows by row id."""
    replica = {}
    for _, _, found in batches:
        found.sort(key=lambda row: row["_commit_version"])
        for _, rows in itertools.groupby(found, key=lambda row: row["_commit_version"]):
            rows = list(rows)
            gone = {row["_rowid"] for row in rows if row["_change_type"] in GONE}
            replica = {row_id: row for row_id, row in replica.items() if row_id not in gone}
            come = {row["_rowid"]: row for row in rows if row["_change_type"] not in GONE}
            assert not replica.keys() & come.keys()
            replica |= come
    return {row_id: values_of(row) for row_id, row in replica.items()}


def rows_by_id(path):
    rows = read_ours(path, system_columns=("_rowid",)).to_pylist()
    return {row["_rowid"]: values_of(row) for row in rows}


def values_of(row):
    return repr({name: row[name] for name in sorted(row) if not name.startswith("_")})


def numbered(first, last, **more):
    ids = pa.array(range(first, last), pa.int64())
    return pa.table({"id": ids, "n": pa.array([0] * len(ids), pa.int64()), **more})


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Five versions: two appends, an update, a delete, an append."""
    path = str(tmp_path_factory.mktemp("original") / "t")
    write_table(path, numbered(0, 6))
    write_table(path, numbered(6, 13))
    add_to(path, "id IN (1, 2, 7, 8)", "n", 5)
    delete_rows(path, "id IN (3, 9)")
    write_table(path, numbered(20, 24))
    return path


@pytest.fixture
def path(original, tmp_path):
    """A table for one test alone."""
    return shutil.copytree(original, str(tmp_path / "t"))


@pytest.mark.interop
@pytest.mark.parametrize("seed", seeds(30, in_ci=1))
def test_batches_of_random_history_equal_feed(tmp_path, seed):
    path = str(tmp_path / "t")
    random_history_or_skip(path, seed, ["2.0", "2.1", "2.2"][seed % 3])
    rng = random.Random(seed)
    for mode in ("dropCarryovers", "none"):
        stream = follow(path, starting=Bound(version=0), mode=Deduplication(mode))

        def limits():
            return StreamLimits(
                rng.choice([None, 1, 3]), rng.choice([None, 1, 4, 30]),
                rng.choice([None, 1, 4096]),
            )  # fmt: skip

        batches = batches_of(stream, limits=limits)
        assert together(batches) == shown(feed(path, 0, mode))
        assert applied(batches) == rows_by_id(path)
        rng.shuffle(batches)
        for start, end, rows in batches[:10]:  # a replay
            assert shown(read_batch(stream, start, end)) == shown(rows)


@pytest.mark.parametrize("rows", [*range(1, 20), 1000])
def test_row_limits_do_not_change_rows(path, rows):
    stream = follow(path, starting=Bound(version=1))
    batches = batches_of(stream, limits=lambda: StreamLimits(rows=rows))
    assert together(batches) == shown(feed(path, 1))
    # An update is one row that has two images.
    assert all(len(found) <= 2 * rows for _, _, found in batches)


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_row_limit_splits_update_of_several_fragments(tmp_path, rows):
    path = str(tmp_path / "t")
    write_table(path, numbered(0, 6))
    write_table(path, numbered(6, 13))
    plan = plan_change(Table(path))
    request = plan_rewrite(plan.snapshot(), ["n"])
    changed = read_ours(path, system_columns=("_rowaddr",)).select(["_rowaddr"])
    changed = changed.append_column("n", pa.array(range(1, 14), pa.int64()))
    commit_rewritten(plan, request, list(rewrite_columns(request, changed.to_batches())))
    stream = follow(path, starting=Bound(version=3))
    batches = batches_of(stream, limits=lambda: StreamLimits(rows=rows))
    assert [len(found) for _, _, found in batches[:-1]] == [2 * rows] * (12 // rows)
    assert together(batches) == shown(feed(path, 3))


@pytest.mark.parametrize("rows", [None, 1, 2, 5, 100])
def test_snapshot_and_later_batches_rebuild_table(path, rows):
    stream = follow(path)
    limits = StreamLimits(rows=rows)
    first = batches_of(stream, limits=lambda: limits)
    assert {row["_change_type"] for _, _, found in first for row in found} == {"insert"}
    assert {row["_commit_version"] for _, _, found in first for row in found} == {5}
    add_to(path, "id < 8", "n", 1)
    lance.dataset(path).optimize.compact_files()
    delete_rows(path, "id = 21")
    write_table(path, numbered(30, 31))
    rest = batches_of(stream, first[-1][1], lambda: limits)
    replica = {}
    for _, _, found in [*first, *rest]:
        for row in found:
            kind, row_id = row["_change_type"], row["_rowid"]
            if kind in ("delete", "update_preimage"):
                assert replica.pop(row_id) == (row["id"], row["n"])
            else:
                assert row_id not in replica
                replica[row_id] = row["id"], row["n"]
    now = read_ours(path, system_columns=("_rowid",)).to_pylist()
    assert replica == {row["_rowid"]: (row["id"], row["n"]) for row in now}


def test_snapshot_in_progress_stays_at_its_version(path):
    stream = follow(path)
    cut = stream.latest_offset(BEGINNING, StreamLimits(rows=4))
    assert cut == StreamOffset(-1, 4, 5)
    before = shown(read_batch(stream, BEGINNING, cut))
    delete_rows(path, "id < 30")
    lance.dataset(path).optimize.compact_files()
    assert shown(read_batch(stream, BEGINNING, cut)) == before
    end = stream.latest_offset(cut, ALL)
    assert end == StreamOffset(5)
    assert len(read_batch(stream, cut, end)) + len(before) == 15
    assert len(read_batch(stream, end, stream.latest_offset(end, ALL))) == 15  # deletes


def test_replayed_batch_is_unaffected_by_later_changes(path):
    stream = follow(path, starting=Bound(version=2))
    start = StreamOffset(2)
    end = stream.latest_offset(start, StreamLimits(rows=5))
    assert end == StreamOffset(3, 1, 4)
    before = shown(read_batch(stream, start, end))
    lance.dataset(path).optimize.compact_files()
    add_to(path, "id >= 0", "n", 9)
    remove_versions(path, [1])
    assert shown(read_batch(stream, start, end)) == before


def test_batches_are_limited_by_versions_and_bytes(path):
    stream = follow(path, starting=Bound(version=1))
    ends = [end for _, end, _ in batches_of(stream, limits=lambda: StreamLimits(versions=2))]
    assert ends == [StreamOffset(2), StreamOffset(4), StreamOffset(5)]
    assert len(batches_of(stream, limits=lambda: StreamLimits(num_bytes=1))) == 6 + 7 + 4 + 2 + 4


def test_latest_offset_respects_maximum_version(path):
    stream = follow(path, starting=Bound(version=1))
    end = stream.latest_offset(BEGINNING, ALL, 3)
    assert end == StreamOffset(3)
    assert stream.latest_offset(end, ALL, 3) == end
    assert stream.latest_offset(end, ALL) == StreamOffset(5)


def test_stream_begins_at_requested_position(path):
    assert batches_of(follow(path, begins_after_newest=True)) == [(BEGINNING, StreamOffset(5), [])]
    assert batches_of(follow(path, starting=Bound(version=9))) == []
    (batch,) = batches_of(follow(path, starting=Bound(version=5)))
    assert {row["_commit_version"] for row in batch[2]} == {5}
    at = Snapshot.open(Table(path)).manifest.timestamp_ns
    stream = follow(path, starting=Bound(timestamp_ns=at))
    (anchor, batch) = batches_of(stream)
    assert anchor == (BEGINNING, StreamOffset(4), []) and len(batch[2]) == 4
    soon = follow(path, starting=Bound(timestamp_ns=time.time_ns() + 10**15))
    assert batches_of(soon) == []


def test_start_time_before_oldest_version_is_refused(path):
    every = Bound(timestamp_ns=1)
    whole = [row for _, _, rows in batches_of(follow(path, starting=every)) for row in rows]
    assert {row["_commit_version"] for row in whole} == {1, 2, 3, 4, 5}
    oldest = Snapshot.open(Table(path), VersionSpec(version=3)).manifest.timestamp_ns
    remove_versions(path, [1, 2])
    for starting in (every, Bound(timestamp_ns=oldest)):
        with pytest.raises(VersionNotFoundError, match="before version 3, the oldest") as found:
            follow(path, starting=starting).latest_offset(BEGINNING, ALL)
        assert "startingVersion 4" in str(found.value)
        stream = follow(path, starting=starting, fails_on_data_loss=False)
        assert stream.beginning() == StreamOffset(3)
        (anchor, batch) = batches_of(stream)
        assert anchor == (BEGINNING, StreamOffset(3), [])
        assert batch[2] == [row for row in whole if row["_commit_version"] > 3]
    after = follow(path, starting=Bound(timestamp_ns=oldest + 1))
    assert after.beginning() == StreamOffset(3)


def test_net_changes_are_net_within_batch(path):
    add_to(path, "id = 1", "n", 1)
    add_to(path, "id = 1", "n", 1)
    stream = follow(path, starting=Bound(version=6), mode=Deduplication("netChanges"))
    ((_, _, rows),) = batches_of(stream)
    assert [(row["_change_type"], row["n"]) for row in rows] == [
        ("update_preimage", 5), ("update_postimage", 7),
    ]  # fmt: skip
    singly = batches_of(stream, limits=lambda: StreamLimits(versions=1))
    assert [len(rows) for _, _, rows in singly] == [2, 2]


def test_append_only_stream_handles_changed_rows_as_requested(path):
    def starting(version, updates):
        return follow(path, starting=Bound(version=version), updates=updates)

    refusing = starting(1, Updates.REFUSED)
    assert refusing.latest_offset(BEGINNING, ALL) == StreamOffset(2)
    with pytest.raises(UnsupportedFeatureError, match="version 3 changes rows") as found:
        refusing.latest_offset(StreamOffset(2), ALL)
    assert "skipChangeCommits" in str(found.value)
    with pytest.raises(UnsupportedFeatureError, match="version 4 deletes rows"):
        starting(4, Updates.REFUSED).latest_offset(StreamOffset(3), ALL)
    with pytest.raises(UnsupportedFeatureError, match="version 3"):
        starting(3, Updates.DELETES_IGNORED).latest_offset(StreamOffset(2), ALL)
    skipping = batches_of(starting(1, Updates.SKIPPED), limits=lambda: StreamLimits(rows=3))
    assert sorted(row["id"] for _, _, rows in skipping for row in rows) == [
        *range(13),
        *range(20, 24),
    ]
    ((_, _, rows),) = batches_of(starting(4, Updates.DELETES_IGNORED))
    assert [row["id"] for row in rows] == [20, 21, 22, 23]


def test_schema_change_ends_stream(path):
    old = follow(path, starting=Bound(version=5))
    write_table(path, numbered(30, 32))
    lance.dataset(path).add_columns({"twice": "n * 2"})
    write_table(path, numbered(40, 41, twice=pa.array([1], pa.int64())))
    ((_, end, rows),) = batches_of_until_error(old)
    assert end == StreamOffset(6) and "twice" not in rows[0]
    with pytest.raises(SchemaMismatchError, match="version 7 has other columns") as found:
        old.latest_offset(end, ALL)
    assert "start the query again" in str(found.value)
    with pytest.raises(SchemaMismatchError, match="version 8 has other columns"):
        old.plan_batch(end, StreamOffset(8), all_columns)  # Spark 4.1 looks no sooner
    new = follow(path, starting=Bound(version=5))
    caught_up = batches_of(new, end)
    assert {row["id"] for _, _, rows in caught_up for row in rows} >= {40}
    # What was logged before the columns changed can be read by the query that shows them.
    replay = read_batch(new, StreamOffset(4), end)
    assert [(row["id"], row["twice"]) for row in replay if row["id"] >= 30] == [
        (30, None), (31, None),
    ]  # fmt: skip


def batches_of_until_error(stream):
    found, start = [], BEGINNING
    while True:
        try:
            end = stream.latest_offset(start, ALL)
        except SchemaMismatchError:
            return found
        found.append((start, end, read_batch(stream, start, end)))
        start = end


def test_removed_unread_versions_raise_or_are_skipped(path, caplog):
    at = StreamOffset(2)
    remove_versions(path, [1, 2, 3])
    with pytest.raises(VersionNotFoundError, match="needs version 2") as found:
        follow(path).latest_offset(at, ALL)
    assert "failOnDataLoss" in str(found.value) and "version 4" in str(found.value)
    assert "begin with startingVersion 5, or 0, and a new checkpoint" in str(found.value)
    stream = follow(path, fails_on_data_loss=False)
    end = stream.latest_offset(at, ALL)
    assert "lost the changes of versions 3 to 4" in caplog.text
    assert [row["id"] for row in read_batch(stream, at, end)] == [20, 21, 22, 23]


def test_version_removed_half_read_raises_or_is_skipped(path):
    """Its rows that were shown are not shown again with those of the version after it."""
    half_read = StreamOffset(4, 2, 5)
    write_table(path, numbered(30, 32))
    write_table(path, numbered(40, 42))
    remove_versions(path, [5])
    with pytest.raises(VersionNotFoundError, match="needs version 5"):
        follow(path).latest_offset(half_read, ALL)
    stream = follow(path, fails_on_data_loss=False)
    end = stream.latest_offset(half_read, ALL)
    assert [row["id"] for row in read_batch(stream, half_read, end)] == [40, 41]


def test_late_manifest_in_gap_is_not_shown(path):
    """As the manifest of a writer that was overtaken, until it is rolled back."""
    manifest = Snapshot.open(Table(path), VersionSpec(version=3)).file.location.path
    content = Path(path, manifest).read_bytes()
    remove_versions(path, [3])
    whole = together(batches_of(follow(path), StreamOffset(2)))
    stream = follow(path)
    cut = stream.latest_offset(StreamOffset(2), StreamLimits(rows=1))
    assert cut == StreamOffset(2, 1, 4)
    first = [(StreamOffset(2), cut, read_batch(stream, StreamOffset(2), cut))]
    Path(path, manifest).write_bytes(content)
    assert together(first + batches_of(stream, cut)) == whole


def test_replayed_batch_of_removed_versions_is_empty(path):
    remove_versions(path, [1, 2, 3])
    stream = follow(path, fails_on_data_loss=False)
    assert read_batch(stream, StreamOffset(2), StreamOffset(3)) == []
    end = stream.latest_offset(StreamOffset(3), ALL)
    assert [row["id"] for row in read_batch(stream, StreamOffset(3), end)] == [20, 21, 22, 23]


def test_removed_intermediate_versions_lose_no_rows(path):
    before = shown(feed(path, 3, "netChanges"))
    remove_versions(path, [3, 4])
    stream = follow(path)
    rows = [row for _, _, found in batches_of(stream, StreamOffset(2)) for row in found]
    assert {row["id"] for row in rows} == {1, 2, 3, 7, 8, 9, 20, 21, 22, 23}
    assert len(rows) == len(before)


def test_offset_beyond_table_means_replaced_table(path, tmp_path):
    stream = follow(path)
    with pytest.raises(InvalidInputError, match="replaced by another one"):
        stream.latest_offset(StreamOffset(17), ALL)


def recreate(path, versions):
    """Drop the table and create another one at the path."""
    shutil.rmtree(path)
    for number in range(versions):
        write_table(path, numbered(100 + number, 101 + number))


def as_logged(offset):
    """An offset that a checkpoint kept."""
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize("versions", [5, 9])
def test_recreated_table_with_more_versions_is_refused(path, versions, rows, fails):
    settings = {"starting": Bound(version=0), "fails_on_data_loss": fails}
    before = follow(path, **settings)
    reached = as_logged(before.latest_offset(BEGINNING, StreamLimits(rows=rows)))
    end = before.latest_offset(reached, ALL)
    recreate(path, versions)
    for stream in (before, follow(path, **settings)):  # a running query, and its next run
        with pytest.raises(TableReplacedError, match="replaced by another one") as found:
            stream.latest_offset(reached, ALL)
        assert "new checkpoint" in found.value.hint
        for start, to in [(BEGINNING, reached), (reached, StreamOffset(5)), (StreamOffset(1), end)]:
            with pytest.raises(TableReplacedError, match="replaced by another one"):
                stream.plan_batch(start, to, all_columns)


def test_running_query_detects_replaced_table_without_identity(path):
    stream = follow(path)
    recreate(path, 6)
    with pytest.raises(TableReplacedError, match="replaced by another one"):
        stream.latest_offset(StreamOffset(2), ALL)


def test_first_version_identifies_table_after_cleanup(path):
    """Without version 1, the table counts as the same one, whose version was removed."""
    reached = as_logged(follow(path).latest_offset(BEGINNING, ALL))
    recreate(path, 7)
    remove_versions(path, [5])
    with pytest.raises(TableReplacedError, match="replaced by another one"):
        follow(path).latest_offset(reached, ALL)
    remove_versions(path, [1])
    with pytest.raises(VersionNotFoundError, match="needs version 5"):
        follow(path).latest_offset(reached, ALL)


def test_overwritten_and_restored_table_is_followed(path):
    stream = follow(path, starting=Bound(version=0))
    reached = as_logged(stream.latest_offset(BEGINNING, ALL))
    write_table(path, numbered(50, 53), overwrite=True)
    restore(Table(path), VersionSpec(version=2))
    remove_versions(path, [1])
    end = stream.latest_offset(reached, ALL)
    assert end == StreamOffset(7) and len(read_batch(stream, reached, end))
    # Version 1 is carried on after it was removed.
    assert end.identity.first == reached.identity.first != ""
    assert stream.latest_offset(as_logged(end), ALL).to_json() == end.to_json()


def test_old_offset_is_read_and_gets_identity(path):
    stream = follow(path)
    old = StreamOffset.from_json({"f": 1, "v": 3})
    assert old.identity is None and old.to_json() == {"f": 1, "v": 3}
    end = stream.latest_offset(old, ALL)
    first = Snapshot.open(Table(path), VersionSpec(version=1)).identity.stamp
    assert end.identity == TableIdentity.of(Snapshot.open(Table(path)).manifest, first)
    assert stream.latest_offset(StreamOffset(5), ALL).to_json() == {"f": 1, "v": 5}
    assert stream.newest_offset().to_json() == end.to_json()


def test_recreated_branch_is_refused(path):
    create_branch(Table(path), "work", VersionSpec(version=3))
    branch = Table(path).on_branch("work")
    stream = TableStream.of(Snapshot.open(branch), StreamSettings(updates=Updates.SHOWN))
    reached = as_logged(stream.latest_offset(BEGINNING, ALL))
    assert reached == StreamOffset(3)
    remove_branch(Table(path), "work")
    create_branch(Table(path), "work", VersionSpec(version=3))
    with pytest.raises(TableReplacedError, match="replaced by another one"):
        stream.latest_offset(reached, ALL)


_PLACES = [BEGINNING, StreamOffset(0), StreamOffset(2), StreamOffset(3, 1, 4), StreamOffset(5)]
_BEYOND = [
    StreamOffset(17), StreamOffset(2, 1, 17), StreamOffset(17, 1, 18), StreamOffset(-1, 3, 17),
    StreamOffset(5, 1, 6),
]  # fmt: skip


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("beyond", _BEYOND, ids=str)
@pytest.mark.parametrize("settings", [{}, {"begins_after_newest": True}, {"starting": Bound(2)}])
def test_offset_beyond_table_raises_for_any_setting(path, beyond, settings, fails):
    stream = follow(path, fails_on_data_loss=fails, **settings)
    for limits in (ALL, StreamLimits(rows=2)):
        with pytest.raises(InvalidInputError, match="replaced by another one"):
            stream.latest_offset(beyond, limits)
    batches = [(beyond, end) for end in _PLACES + _BEYOND] + [(start, beyond) for start in _PLACES]
    for start, end in batches:
        if start != end:
            with pytest.raises(InvalidInputError, match="replaced by another one"):
                stream.plan_batch(start, end, all_columns)


@pytest.mark.parametrize(
    "value", [{}, {"f": 2, "v": 1}, {"f": 1, "v": "1"}, {"f": 1, "v": 1, "i": 3}, {"f": 1, "v": -7},
     {"f": 1, "v": 1, "id": 5}]
)  # fmt: skip
def test_invalid_offsets_are_corrupt(value):
    with pytest.raises(CorruptFileError):
        StreamOffset.from_json(value)


def test_offsets_round_trip():
    for offset in (BEGINNING, StreamOffset(7), StreamOffset(7, 3, 8), StreamOffset(-1, 5, 2)):
        assert StreamOffset.from_json(offset.to_json()) == offset
    assert list(StreamOffset(7, 3, 8).to_json()) == ["f", "v", "i", "t"]


def test_net_change_batches_end_at_whole_versions(path):
    stream = follow(path, starting=Bound(version=1), mode=Deduplication("netChanges"))
    ends = [end for _, end, _ in batches_of(stream, limits=lambda: StreamLimits(rows=8))]
    # 6 inserts; 7; 4 updates, 2 deletes; 4 inserts
    assert ends == [StreamOffset(1), StreamOffset(2), StreamOffset(4), StreamOffset(5)]
    ends = [end for _, end, _ in batches_of(stream, limits=lambda: StreamLimits(num_bytes=1))]
    assert ends == [StreamOffset(version) for version in range(1, 6)]
    with pytest.raises(InvalidInputError, match="in the middle of version 3"):
        stream.latest_offset(StreamOffset(2, 1, 3), ALL)
    with pytest.raises(InvalidInputError, match="in the middle of version 3"):
        stream.plan_batch(StreamOffset(2), StreamOffset(2, 1, 3), all_columns)


def test_old_tagged_version_is_not_read_again(path):
    remove_versions(path, [2, 3])  # 1 stays
    stream = follow(path, fails_on_data_loss=False)
    for start in (StreamOffset(2), StreamOffset(3), StreamOffset(2, 1, 3)):
        end = stream.latest_offset(start, ALL)
        assert [row["id"] for row in read_batch(stream, start, end)] == [20, 21, 22, 23]
    with pytest.raises(VersionNotFoundError, match="needs version 2") as found:
        follow(path).latest_offset(StreamOffset(2), ALL)
    assert "after version 4" in str(found.value)


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"starting": Bound(version=3)}, {"begins_after_newest": True},
        {"starting": Bound(timestamp_ns=1)},
    ],
    ids=["snapshot", "version", "latest", "timestamp"],
)  # fmt: skip
@pytest.mark.parametrize("rows", [None, 4])
def test_crashed_first_batch_replays_as_logged(path, settings, rows):
    stream = follow(path, **settings)
    end = stream.latest_offset(BEGINNING, StreamLimits(rows=rows))
    before = read_batch(stream, BEGINNING, end)
    add_to(path, "id < 8", "n", 1)
    lance.dataset(path).optimize.compact_files()
    lance.dataset(path).tags.create("kept", 6)
    again = follow(path, **settings)
    assert shown(read_batch(again, BEGINNING, end)) == shown(before)
    later = [row for _, _, rows in batches_of(again, end) for row in rows]
    assert {row["_commit_version"] for row in later} >= {6}
    replayed = [(row["_commit_version"], row["_rowid"], row["_change_type"]) for row in before]
    all_of_them = [
        *replayed, *((row["_commit_version"], row["_rowid"], row["_change_type"]) for row in later)
    ]  # fmt: skip
    assert len(set(all_of_them)) == len(all_of_them)


def test_restore_is_shown_as_deletes_and_inserts(path):
    stream = follow(path, starting=Bound(version=6))
    restore(Table(path), VersionSpec(version=2))
    ((_, end, rows),) = batches_of(stream)
    kinds = sorted((row["_change_type"], row["id"]) for row in rows)
    assert [one for one in kinds if one[0] == "delete"] == [("delete", i) for i in range(20, 24)]
    assert [one for one in kinds if one[0] == "insert"] == [("insert", 3), ("insert", 9)]
    assert [i for kind, i in kinds if kind == "update_postimage"] == [1, 2, 7, 8]
    assert {row["n"] for row in rows if row["_change_type"] == "update_postimage"} == {0}
    write_table(path, numbered(50, 51))
    assert [row["id"] for _, _, rows in batches_of(stream, end) for row in rows] == [50]


@pytest.mark.parametrize("shows", [Updates.SHOWN, Updates.REFUSED])
def test_renamed_or_dropped_columns_end_stream(path, shows):
    write_table(path, numbered(30, 31), overwrite=True)
    stream = follow(path, updates=shows, starting=Bound(version=7))
    write_table(path, numbered(40, 42))
    end = stream.latest_offset(BEGINNING, ALL)
    lance.dataset(path).alter_columns({"path": "n", "name": "m"})
    with pytest.raises(SchemaMismatchError, match="version 8 has other columns"):
        stream.latest_offset(end, ALL)
    renamed = follow(path, updates=shows, starting=Bound(version=7))
    assert [set(row) >= {"id", "m"} for row in read_batch(renamed, BEGINNING, end)] == [True, True]
    after = renamed.latest_offset(end, ALL)
    assert after == StreamOffset(8) and read_batch(renamed, end, after) == []
    write_table(path, numbered(50, 51).rename_columns(["id", "m"]))
    lance.dataset(path).drop_columns(["m"])
    upto = renamed.latest_offset(after, ALL)
    assert [row["m"] for row in read_batch(renamed, after, upto)] == [0]
    with pytest.raises(SchemaMismatchError, match="version 10 has other columns"):
        renamed.latest_offset(upto, ALL)
    dropped = follow(path, updates=shows, starting=Bound(version=7))
    assert "m" not in read_batch(dropped, BEGINNING, end)[0]
    assert dropped.latest_offset(upto, ALL) == StreamOffset(10)


def test_branch_is_followed_separately(path):
    create_branch(Table(path), "dev")
    table = Table(path, branch="dev")
    settings = StreamSettings(updates=Updates.SHOWN)
    stream = TableStream.of(Snapshot.open(table), settings)
    end = stream.latest_offset(BEGINNING, ALL)
    assert len(read_batch(stream, BEGINNING, end)) == 15
    write_table(path, numbered(60, 61))
    assert stream.latest_offset(end, ALL) == end
    add_to(table.uri, "id = 20", "n", 1)
    ((_, _, rows),) = batches_of(stream, end)
    assert [row["n"] for row in rows] == [0, 1]


def test_stream_beginning_is_available(path):
    def beginning(**settings):
        return follow(path, **settings).beginning()

    at = Snapshot.open(Table(path)).manifest.timestamp_ns
    assert beginning() == BEGINNING
    assert beginning(begins_after_newest=True) == StreamOffset(5)
    assert beginning(starting=Bound(version=5)) == StreamOffset(4)
    assert beginning(starting=Bound(version=7)) == BEGINNING
    assert beginning(starting=Bound(timestamp_ns=at)) == StreamOffset(4)
    assert beginning(starting=Bound(timestamp_ns=at + 1)) == BEGINNING
