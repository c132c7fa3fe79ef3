"""What our writer writes our reader reads, in every version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data_file_writing import write_table
from random_seeds import seeds
from random_tables import random_table
from same_text import assert_same_text, rows_at
from v2_0_files import leaf_arrays, nested_arrays, with_nulls

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.open_store import open_store

VERSIONS = ("2.0", "2.1", "2.2")


def assert_we_read(folder: Path, table: pa.Table, file: DataFile, seed: int = 0) -> None:
    reader = DataFileReader.open(open_store(str(folder)), "data/x.lance")
    columns = dict(zip(file.fields, file.column_indices, strict=True))
    fields = LanceSchema.from_arrow(table.schema).fields
    batches = list(reader.read_batches(fields, columns, batch_rows=333))
    schema = pa.schema([field.to_arrow() for field in fields])
    assert_same_text(pa.Table.from_batches(batches, schema), table)
    if len(table):
        rows = np.random.default_rng(seed).integers(0, len(table), 20)
        assert_same_text(reader.take(fields, columns, rows), rows_at(table, rows.tolist()))


@pytest.mark.parametrize("seed", seeds(180, in_ci=30))
def test_random_tables_round_trip(tmp_path, seed):
    rng = np.random.default_rng(seed)
    version = VERSIONS[seed % 3]
    table = random_table(seed, int(rng.choice([0, 1, 2, 9, 100, 1025])), version)
    batch_rows, pages = int(rng.choice([100, 700, 5000])), int(rng.choice([3000, 20_000, 8 << 20]))
    file = write_table(tmp_path, table, version, batch_rows=batch_rows, pages=pages)
    assert_we_read(tmp_path, table, file, seed)


@pytest.mark.parametrize("version", VERSIONS[1:])
@pytest.mark.parametrize("count", [1, 1023, 1024, 4097])
def test_every_type_round_trips(tmp_path, version, count):
    arrays = {**leaf_arrays(count), **nested_arrays(count)}
    table = pa.table({name: with_nulls(array, 0.1) for name, array in arrays.items()})
    assert_we_read(tmp_path, table, write_table(tmp_path, table, version))


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_columns_of_several_pages_round_trip(tmp_path, version):
    rng = np.random.default_rng(4)
    table = pa.table(
        {
            "runs": np.repeat(rng.integers(0, 50, 3000), 20),
            "packed": rng.integers(0, 1 << 20, 60_000),
            "few": rng.integers(-3, 3, 60_000).astype(float),
            "text": pa.array([f"row {n}" for n in range(60_000)]),
        }
    )
    file = write_table(tmp_path, table, version, batch_rows=10_000, pages=100_000)
    assert_we_read(tmp_path, table, file)


@pytest.mark.parametrize("version", VERSIONS)
def test_extension_types_are_stored_as_storage_type(tmp_path, version):
    values = [bytes([n]) * 16 for n in range(9)]
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    lists = pa.ListArray.from_arrays(pa.array(range(9), pa.int32()), uuids)
    table = pa.table({"u": uuids[:8], "l": lists})
    file = write_table(tmp_path, table, version)
    plain = pa.table({"u": pa.array(values[:8], pa.binary(16)), "l": [[v] for v in values[:8]]})
    reader = DataFileReader.open(open_store(str(tmp_path)), "data/x.lance")
    columns = dict(zip(file.fields, file.column_indices, strict=True))
    fields = LanceSchema.from_arrow(table.schema).fields
    found = pa.Table.from_batches(reader.read_batches(fields, columns))
    assert found.to_pylist() == plain.to_pylist()
