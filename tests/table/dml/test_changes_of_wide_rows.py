"""Rows that move take every kind of column along: nested, dictionaries, vectors, blobs, JSON."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from random_tables import random_table
from row_changes import set_to, upsert
from table_access import assert_same_rows, read_ours, read_pylance, write_table

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("seed", range(12))
def test_columns_of_every_type_move_unchanged(tmp_path, seed):
    path = str(tmp_path / "t")
    version = ["2.0", "2.1", "2.2"][seed % 3]
    table = random_table(seed, 60, version, columns=8)
    write_table(path, table, file_version=version, max_rows_per_file=25)
    expected = read_ours(path).sort_by("id").select(table.column_names)
    set_to(path, "id % 4 = 1", id=None) if seed == 3 else set_to(path, "id >= 50", id=7)
    moved = read_ours(path)
    assert_same_rows(moved, read_pylance(path))
    moved = moved.sort_by("_rowid").select(table.column_names[1:])
    assert repr(moved.to_pylist()) == repr(expected.select(table.column_names[1:]).to_pylist())
    again = read_ours(path).slice(0, 9).select(table.column_names)
    upsert(path, again.set_column(0, "id", pa.array(range(1000, 1009))))
    assert_same_rows(read_ours(path), read_pylance(path))
    assert lance.dataset(path).count_rows() == 69


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_move_with_their_bytes(tmp_path, version):
    path = str(tmp_path / "t")
    blobs = [b"a" * 10, None, b"ccc" * 100_000, b""]
    if version == "2.2":
        schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("b")])
        table = pa.table([pa.array(range(4)), lance.blob_array(blobs)], schema=schema)
    else:
        blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        schema = pa.schema([pa.field("id", pa.int64()), blob])
        table = pa.table({"id": range(4), "b": blobs}, schema=schema)
    lance.write_dataset(table, path, data_storage_version=version, enable_stable_row_ids=True)
    set_to(path, "id < 3", id=9)
    dataset = lance.dataset(path)
    for row_id in (0, 2, 3):
        (found,) = dataset.take_blobs("b", ids=[row_id])
        assert found.readall() == blobs[row_id]
    assert [file.readall() for file in dataset.take_blobs("b", ids=[1]) if file] in ([], [b""])
