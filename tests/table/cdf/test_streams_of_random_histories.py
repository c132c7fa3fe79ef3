"""Streams of random histories against a model: beginnings, commits passed over, new columns."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from known_history import History, expected
from table_access import read_batch

from pyspark_lance.errors import SchemaMismatchError, UnsupportedFeatureError
from pyspark_lance.table.cdf.change_window import Bound
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import BEGINNING, StreamLimits, StreamSettings, Updates
from pyspark_lance.table.columns.change_columns import add_null_columns, drop_columns
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

GONE = "delete", "update_preimage"


def follow(history, **settings):
    return TableStream.of(Snapshot.open(Table(history.path)), StreamSettings(**settings))


def rows_of(history, stream):
    """What the stream shows, by batches of random sizes, and whether it ended in a refusal."""
    start, found = BEGINNING, []
    names = ["_commit_version", "_change_type", "_rowid", *history.versions[-1].columns]
    while True:
        limits = StreamLimits(
            rows=[None, 1, 3][history.draw(3)], versions=[None, 1][history.draw(2)]
        )
        try:
            end = stream.latest_offset(start, limits)
        except UnsupportedFeatureError:
            return sorted(found, key=repr), True
        if end == start:
            return sorted(found, key=repr), False
        found += [tuple(row[name] for name in names) for row in read_batch(stream, start, end)]
        start = end


@pytest.mark.parametrize("seed", range(4))
def test_random_streams_begin_at_requested_version_and_time(tmp_path, seed):
    history = History(str(tmp_path / "t"), seed)
    for _ in range(5):
        history.step()
    last = len(history.versions)
    for version in range(1, last + 1):
        at = VersionSpec(version=version)
        time_ns = Snapshot.open(Table(history.path), at).manifest.timestamp_ns
        begins = [(Bound(version=version), version), (Bound(timestamp_ns=time_ns), version),
                  (Bound(timestamp_ns=time_ns + 1), version + 1)]  # fmt: skip
        for bound, first in begins:
            stream = follow(history, starting=bound, updates=Updates.SHOWN)
            shown, refused = rows_of(history, stream)
            assert not refused and shown == expected(history, first, last), (bound, first)


@pytest.mark.parametrize("seed", range(4))
def test_row_changes_are_refused_or_skipped_as_requested(tmp_path, seed):
    history = History(str(tmp_path / "t"), seed)
    for _ in range(6):
        history.change_rows()
    last = len(history.versions)
    for updates, first in itertools.product(
        [Updates.REFUSED, Updates.DELETES_IGNORED, Updates.SKIPPED], range(1, last + 1)
    ):
        wanted, is_refused = [], False
        for version in range(first, last + 1):
            changes = expected(history, version, version)
            before = history.versions[version - 2].rows if version > 1 else {}
            now = history.versions[version - 1].rows
            if not before.keys() <= now.keys():  # a delete
                is_refused = updates is Updates.REFUSED
            elif before.keys() == now.keys():  # an update, even with equal values
                is_refused = updates is not Updates.SKIPPED
            else:
                wanted += [row for row in expected(history, version, last) if row[0] == version]
                assert {row[1] for row in changes} == {"insert"}
            if is_refused:
                break
        stream = follow(history, starting=Bound(version=first), updates=updates)
        assert rows_of(history, stream) == (sorted(wanted, key=repr), is_refused), (updates, first)


@pytest.mark.parametrize("seed", range(6))
def test_restarted_stream_keeps_replica_correct_after_schema_changes(tmp_path, seed):
    history = History(str(tmp_path / "t"), seed)
    history.note()
    settings = {"starting": Bound(version=1), "updates": Updates.SHOWN}
    stream, columns, place = follow(history, **settings), history.columns, BEGINNING
    columns = dict(columns)
    replica = {}
    for _ in range(6):
        history.step()
        while True:
            try:
                end = stream.latest_offset(place, StreamLimits(versions=1 + history.draw(3)))
                if end == place:
                    break
                batch = read_batch(stream, place, end)
            except SchemaMismatchError:
                stream, columns = follow(history, **settings), dict(history.columns)
                continue
            place = end
            for row in batch:
                values = {column: row[name] for name, column in columns.items()}
                kept = replica.get(row["_rowid"], {})
                if row["_change_type"] in GONE:
                    assert values == {column: kept.get(column) for column in values}
                if row["_change_type"] == "delete":
                    del replica[row["_rowid"]]
                elif row["_change_type"] not in GONE:
                    replica[row["_rowid"]] = {**kept, **values}
        now = history.versions[-1]
        shown = {
            row: tuple(values.get(column) for column in now.columns.values())
            for row, values in replica.items()
        }
        assert shown == now.shown(now.columns)


def test_readded_column_is_different_in_every_batch(tmp_path):
    history = History(str(tmp_path / "t"), 1)
    history.note()
    history.append()
    history.note()
    drop_columns(history.table, ["x"])
    del history.columns["x"]
    history.note()
    add_null_columns(history.table, pa.schema([("x", pa.int16())]))
    history.columns["x"] = history.next_column
    history.note()
    for limits in (StreamLimits(), StreamLimits(versions=1), StreamLimits(rows=1)):
        stream = follow(history, starting=Bound(version=1), updates=Updates.SHOWN)
        start, rows = BEGINNING, []
        while (end := stream.latest_offset(start, limits)) != start:
            rows += read_batch(stream, start, end)
            start = end
        assert [row["x"] for row in rows] == [None] * history.next_id, limits
