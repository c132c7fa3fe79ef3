"""Files of columns of random types: ours and pylance's, whole, in ranges and by rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter
from random_columns import RandomColumns
from random_seeds import seeds
from same_text import has_same_text

from pyspark_lance.codec.row_selection import without_offset
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.local_store import LocalStore

pytestmark = pytest.mark.interop

COUNT = 12


def rows_at(array: pa.Array, rows: list[int]) -> pa.ChunkedArray:
    return pa.chunked_array([array.slice(row, 1) for row in rows], array.type)


def assert_ours_reads(folder, name: str, expected: pa.Array, columns: RandomColumns) -> None:
    reader = DataFileReader.open(LocalStore(str(folder)), name)
    fields, column_of = reader.schema.fields, reader.embedded_columns()
    count = len(expected)
    assert has_same_text(reader.read(fields, column_of, 0, count).column(0), expected)
    start, end = sorted(columns.rows(count + 1, 2).tolist())
    part = expected[start:end]
    assert has_same_text(reader.read(fields, column_of, start, end).column(0), part)
    batches = reader.read_batches(fields, column_of, ranges=[(start, end)], batch_rows=13)
    found = pa.chunked_array([batch.column(0) for batch in batches], part.type)
    assert has_same_text(found, part)
    if count:
        wanted = columns.rows(count)
        taken = reader.take(fields, column_of, wanted).column(0)
        assert has_same_text(taken, rows_at(expected, wanted.tolist()))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", seeds(24, in_ci=4))
def test_random_pylance_columns_are_read(tmp_path, version, seed):
    read = 0
    for number in range(COUNT):
        columns = RandomColumns(100 * seed + number, version)
        field, array = columns.column()
        # pylance cannot write some slices.
        array = without_offset(pa.concat_arrays([array, array[:0]]))
        try:
            with LanceFileWriter(
                str(tmp_path / "x"), pa.schema([field]), version=version
            ) as writer:
                writer.write_batch(pa.record_batch([array], schema=pa.schema([field])))
            from_pylance = LanceFileReader(str(tmp_path / "x")).read_all().to_table()["c"]
        except BaseException:  # noqa: BLE001 - a panic of pylance is one
            continue
        if has_same_text(from_pylance, array):
            assert_ours_reads(tmp_path, "x", array, columns)
            read += 1
    assert read >= COUNT // 2


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", seeds(24, in_ci=4))
def test_random_columns_round_trip_and_pylance_reads_them(tmp_path, version, seed):
    written = 0
    for number in range(COUNT):
        columns = RandomColumns(100 * seed + number + 50, version)
        field, array = columns.column()
        schema = LanceSchema.from_arrow(pa.schema([field]))
        try:
            writer = DataFileWriter(LocalStore(str(tmp_path)), "x", schema, version=version)
        except UnsupportedFeatureError:
            continue
        batch = pa.record_batch([array], schema=pa.schema([field]))
        try:
            for start in range(0, max(1, len(batch)), 97):
                writer.write(batch.slice(start, 97))
            writer.finish()
        except UnsupportedFeatureError:
            writer.abort()
            continue
        assert_ours_reads(tmp_path, "x", array, columns)
        reader = LanceFileReader(str(tmp_path / "x"))
        try:
            from_pylance = reader.read_all().to_table()["c"]
        except pa.ArrowInvalid as error:
            # Lance 14.0 reads no struct that may not be null inside of one that is.
            assert "Found unmasked nulls for non-nullable StructArray" in str(error)
            continue
        assert has_same_text(from_pylance, array)
        if len(array):
            wanted = np.unique(columns.rows(len(array))).tolist()
            taken = reader.take_rows(wanted).to_table()["c"]
            assert has_same_text(taken, rows_at(array, wanted))
        written += 1
    assert written >= COUNT // 2
