"""Data files written by pylance, and comparing what we read with what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore


def write_with_pylance(path: Path, column: pa.Array, version: str, metadata=None) -> bool:
    """One column named c; False if pylance refuses the type in that version."""
    from lance.file import LanceFileWriter

    schema = pa.schema([pa.field("c", column.type, metadata=metadata)])
    try:
        with LanceFileWriter(str(path), schema, version=version) as writer:
            writer.write_batch(pa.record_batch([column], schema=schema))
    except BaseException as error:  # a panic of pylance is a BaseException
        if isinstance(error, KeyboardInterrupt):
            raise
        return False
    return True


class OneColumn:
    """Our reader on a file of one column."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self.reader = DataFileReader.open(store, path)
        self.fields = self.reader.schema.fields
        self.columns = self.reader.embedded_columns()

    @classmethod
    def of_file(cls, path: Path) -> OneColumn:
        return cls(LocalStore(str(path.parent)), path.name)

    def scan(self, **options) -> list[pa.Array]:
        batches = self.reader.read_batches(self.fields, self.columns, **options)
        return [batch.column(0) for batch in batches]

    def read(self, start: int, end: int) -> pa.Array:
        return self.reader.read(self.fields, self.columns, start, end).column(0)

    def take(self, offsets) -> pa.Array:
        return self.reader.take(self.fields, self.columns, np.asarray(offsets)).column(0)


def plain(array: pa.Array) -> pa.Array:
    """Dictionaries as values: equal ones may be cut differently."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def assert_same_array(found: pa.Array, expected: pa.Array) -> None:
    found.validate(full=True)
    assert len(found) == len(expected)
    left, right = plain(found), plain(expected)
    if left.equals(right):
        return
    # Children below nulls may hold anything, and field names inside of lists may differ.
    assert left.to_pylist() == right.to_pylist()


def assert_all_ways_of_reading(file: OneColumn, expected: pa.Array, seed: int = 0) -> None:
    """A scan, ranges and scattered rows agree with the array."""
    rng = np.random.default_rng(seed)
    count = len(expected)
    assert file.reader.num_rows == count
    batches = file.scan(batch_rows=int(rng.integers(50, 5000)))
    batches = [pa.array(part) if not isinstance(part, pa.Array) else part for part in batches]
    position = 0
    for batch in batches:
        assert_same_array(batch, expected[position : position + len(batch)])
        position += len(batch)
    assert position == count
    for _ in range(3):
        start, end = sorted(rng.integers(0, count + 1, 2).tolist())
        assert_same_array(file.read(start, end), expected[start:end])
    for size in (1, min(count, 60)):
        offsets = rng.integers(0, count, size)
        assert_same_array(file.take(offsets), expected.take(pa.array(offsets)))
