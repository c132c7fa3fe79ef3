"""Tables made without rows, also by several writers at once."""

from __future__ import annotations

import threading

import lance
import pyarrow as pa
import pytest
from table_access import append
from table_invariants import check_invariants

from pyspark_lance.errors import InvalidInputError, TableAlreadyExistsError, UnsupportedFeatureError
from pyspark_lance.table.cleanup.cleanup import find_orphan_files
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, create_table

pytestmark = pytest.mark.interop

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def test_created_table_accepts_rows_of_both_writers(tmp_path):
    path = str(tmp_path / "t")
    assert create_table(Table(path), COLUMNS, WriteSettings()).version == 1
    check_invariants(path)
    assert lance.dataset(path).schema == COLUMNS
    append(path, 0)
    rows = pa.table({"id": [7], "name": ["x"]}, schema=COLUMNS)
    lance.write_dataset(rows, path, mode="append")
    check_invariants(path)
    assert lance.dataset(path).to_table(with_row_id=True)["_rowid"].to_pylist() == [0, 1, 2, 3]


def test_concurrent_creates_have_one_winner(tmp_path):
    path = str(tmp_path / "t")
    barrier, outcomes = threading.Barrier(6), []

    def create(number):
        barrier.wait()
        try:
            columns = pa.schema([(f"c{number}", pa.int64())])
            outcomes.append((number, create_table(Table(path), columns, WriteSettings()).version))
        except TableAlreadyExistsError:
            outcomes.append((number, None))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (number for number, version in outcomes if version == 1)
    assert len(outcomes) == 6
    assert lance.dataset(path).version == 1
    assert lance.dataset(path).schema.names == [f"c{winner}"]
    assert find_orphan_files(Table(path)) == []


@pytest.mark.parametrize("path", ["file", "file/t", "file/a/t"])
def test_path_through_file_is_refused_during_planning(tmp_path, path):
    (tmp_path / "file").write_text("1")
    with pytest.raises(InvalidInputError, match="/file is a file, and a table is a folder"):
        append(str(tmp_path / path), 0)
    assert (tmp_path / "file").read_text() == "1"


def test_unsupported_type_creates_no_table(tmp_path):
    columns = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(UnsupportedFeatureError, match="m"):
        create_table(Table(str(tmp_path / "t")), columns, WriteSettings(file_version="2.0"))
    assert not (tmp_path / "t").exists()
