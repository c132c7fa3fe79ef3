"""Writing data files by our writer and reading them by pylance."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader
from lance.fragment import DataFile as PylanceDataFile
from lance.fragment import FragmentMetadata
from same_text import assert_same_text, rows_at

from pyspark_lance.datafile.v2_1 import field_writer as v2_1_field_writer
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.open_store import open_store


@contextmanager
def page_bytes(size: int):
    """Pages of 2.1 and 2.2 files are cut at ``size`` instead of megabytes."""
    before = v2_1_field_writer.PAGE_BYTES, v2_1_field_writer.MAX_PAGE_BYTES
    v2_1_field_writer.PAGE_BYTES, v2_1_field_writer.MAX_PAGE_BYTES = size, 2 * size
    try:
        yield
    finally:
        v2_1_field_writer.PAGE_BYTES, v2_1_field_writer.MAX_PAGE_BYTES = before


def write_table(
    folder: Path, table: pa.Table, version: str, *, batch_rows: int = 1 << 30, pages: int = 8 << 20
) -> DataFile:
    """Writes ``data/x.lance`` below ``folder``."""
    schema = LanceSchema.from_arrow(table.schema)
    with page_bytes(pages):
        writer = DataFileWriter(open_store(str(folder)), "data/x.lance", schema, version=version)
        for batch in table.to_batches(max_chunksize=batch_rows):
            writer.write(batch)
        return writer.finish()


def assert_pylance_reads(folder: Path, table: pa.Table, seed: int = 0) -> None:
    """All rows, ranges and single rows of ``data/x.lance``."""
    path = str(folder / "data" / "x.lance")
    count = len(table)
    reader = LanceFileReader(path)
    assert_same_text(reader.read_all(batch_size=1 << 20).to_table(), table)
    rng = np.random.default_rng(seed)
    if count == 0:
        return
    for _ in range(2):
        start, end = sorted(rng.integers(0, count + 1, 2).tolist())
        if start < end:
            part = LanceFileReader(path).read_range(start, end - start, batch_size=100).to_table()
            assert_same_text(part, table.slice(start, end - start))
    rows = np.unique(rng.integers(0, count, 20)).tolist()
    taken = LanceFileReader(path).take_rows(rows).to_table()
    assert_same_text(taken, rows_at(table, rows))


def without_dictionaries(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """All rows of batches, whose columns are of these types or dictionaries of them."""
    for one in batches:
        for found, kind in zip(one.schema.types, schema.types, strict=True):
            assert kind in (found, found.value_type if pa.types.is_dictionary(found) else found)
    return pa.concat_tables(
        [schema.empty_table(), *(pa.Table.from_batches([one]).cast(schema) for one in batches)]
    )


def as_dataset(folder: Path, table: pa.Table, data_file: DataFile) -> lance.LanceDataset:
    """A pylance dataset whose only file is ours."""
    fragment = FragmentMetadata(
        id=0,
        files=[
            PylanceDataFile(
                path=data_file.path,
                fields=list(data_file.fields),
                column_indices=list(data_file.column_indices),
                file_major_version=data_file.major_version,
                file_minor_version=data_file.minor_version,
                file_size_bytes=data_file.size_bytes,
            )
        ],
        physical_rows=len(table),
    )
    operation = lance.LanceOperation.Overwrite(table.schema, [fragment])
    return lance.LanceDataset.commit(str(folder), operation)
