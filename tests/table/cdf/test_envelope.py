"""The layout of Debezium: one row for each change, with what was and what is."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to
from table_access import write_table

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.cdf.change_feed import ChangeRequest, plan_changes
from pyspark_lance.table.cdf.change_window import ChangeWindow, Deduplication
from pyspark_lance.table.cdf.envelope import Envelope, envelope_schema, wrap_batches
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ALL = ("id", "s", "b")


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    rows = {
        "id": [1, 2, 3, 4],
        "s": [{"a": 1}, None, {"a": None}, {"a": 4}],
        "b": [b"x", None, b"z", b""],
    }
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.uint32())])), blob])
    write_table(path, pa.table(rows, schema), max_rows_per_file=3)
    set_to(path, "id IN (2, 4)", id=20)
    delete_rows(path, "id = 1")
    return path


def changes(path, envelope, start=1, batch_rows=3, mode=Deduplication.DROP_CARRYOVERS):
    snapshot = Snapshot.open(Table(path))
    shown = logical_schema(snapshot.schema).fields
    request = ChangeRequest(
        window=ChangeWindow(start, snapshot.version), mode=mode, columns=shown,
        batch_rows=batch_rows,
    )  # fmt: skip
    for task in plan_changes(Table(path), shown, request):
        yield from wrap_batches(task.run(), pickle.loads(pickle.dumps(envelope)))


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("batch_rows", [1, 100])
def test_envelope_has_one_row_per_change(path, batch_rows):
    rows = rows_of(changes(path, Envelope("uri", ALL, ALL), batch_rows=batch_rows))
    brief = sorted(
        (row["source"]["version"], row["op"], row["source"]["rowId"],
         row["before"] and row["before"]["id"], row["after"] and row["after"]["id"])
        for row in rows
    )  # fmt: skip
    assert brief == [
        (1, "c", 0, None, 1), (1, "c", 1, None, 2), (1, "c", 2, None, 3), (1, "c", 3, None, 4),
        (2, "u", 1, 2, 20), (2, "u", 3, 4, 20),
        (3, "d", 0, 1, None),
    ]  # fmt: skip
    one = next(row for row in rows if row["source"]["rowId"] == 3 and row["op"] == "u")
    assert one["before"]["s"] == one["after"]["s"] == {"a": 4}
    assert one["source"]["table"] == "uri" and one["source"]["snapshot"] is False
    assert one["ts_ms"] == int(one["source"]["timestamp"].timestamp() * 1000)


def test_envelope_contains_only_requested_parts(path):
    (row,) = rows_of(changes(path, Envelope("uri", None, ("id",), is_snapshot=True), start=3))
    assert "before" not in row and row["after"] is None and row["op"] == "r"
    own = [field for field in Snapshot.open(Table(path)).schema.to_arrow() if field.name != "b"]
    schema = envelope_schema(own)
    for text, count in (
        ("op = 'u'", 2),
        ("after.id = 20 AND before.id = 4", 1),
        ("before IS NULL", 4),
        ("source.version > 2", 1),
    ):
        predicate = parse_predicate(text, schema)
        found = rows_of(changes(path, Envelope("uri", ALL, ALL, predicate)))
        assert len(found) == count, text


def test_envelope_supports_net_changes(path):
    set_to(path, "id = 20", id=30)
    rows = rows_of(changes(path, Envelope("uri", ALL, ALL), 2, mode=Deduplication.NET_CHANGES))
    found = {
        (row["op"], (row["before"] or {}).get("id"), (row["after"] or {}).get("id")) for row in rows
    }
    assert found == {("u", 2, 30), ("u", 4, 30), ("d", 1, None)} and len(rows) == 3


def test_preimages_without_postimages_are_corrupt(path):
    def halves():
        snapshot = Snapshot.open(Table(path))
        shown = logical_schema(snapshot.schema).fields
        window = ChangeWindow(2, 2)
        request = ChangeRequest(window=window, mode=Deduplication.NONE, columns=shown)
        for task in plan_changes(Table(path), shown, request):
            yield from list(task.run())[1:]

    with pytest.raises(CorruptFileError, match="old values without new ones"):
        list(wrap_batches(halves(), Envelope("uri", ALL, ALL)))
