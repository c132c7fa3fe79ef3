"""Tables with a write-ahead log (MemWAL) of pylance: what is read, said and refused."""

from __future__ import annotations

import uuid

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import append, assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.history.history import detail
from pyspark_lance.table.unit_of_work import restore, set_properties
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=KEY)])


def rows(*ids):
    return pa.table({"id": ids}, schema=SCHEMA)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Two fragments of one row each, then a log with a third row."""
    path = str(tmp_path_factory.mktemp("log") / "t")
    for number in (1, 2):
        lance.write_dataset(rows(number), path, mode="append", enable_stable_row_ids=True)
    lance.dataset(path).initialize_mem_wal()
    with lance.dataset(path).mem_wal_writer(str(uuid.uuid4())) as writer:
        writer.put(rows(3))
    return path


def test_mem_wal_rows_are_only_reported(path):
    assert read_ours(path)["id"].to_pylist() == [1, 2]
    assert_same_rows(read_ours(path), read_pylance(path))
    (advice,) = detail(Table(path)).advice
    assert "write-ahead log" in advice
    before = detail(Table(path), VersionSpec(version=2)).advice
    assert not any("write-ahead log" in one for one in before)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: append(path, 5),
        lambda path: write_table(path, rows(7), overwrite=True),
        lambda path: delete_rows(path, "id = 1"),
        lambda path: compact(Table(path)),
        lambda path: restore(Table(path), VersionSpec(version=1)),
        lambda path: set_properties(Table(path), {"a": "b"}),
    ],
    ids=["append", "overwrite", "delete", "compact", "restore", "properties"],
)
def test_changes_are_refused_for_mem_wal_tables(change, path):
    before = lance.dataset(path).version
    with pytest.raises(UnsupportedFeatureError, match="MemWAL") as raised:
        change(path)
    assert "Lance 14.0.2" in raised.value.hint
    assert lance.dataset(path).version == before
