"""Strings that are stored as dictionaries, read as dictionaries: the same rows as strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from column_cases import column_cases, with_nulls
from data_file_writing import without_dictionaries, write_table
from lance.file import LanceFileWriter
from random_seeds import grid

from pyspark_lance.codec import array_assembly
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.store.open_store import open_store

ROWS = 20_000
# Every process looks for tests; only the one that runs them needs all rows.
CASES = [
    name
    for name, array in column_cases(400).items()
    if "string" in name and not array.type.num_fields and len(array) == 400
]


def batches_of(folder, *, keep: bool, **limits) -> list[pa.RecordBatch]:
    reader = DataFileReader.open(open_store(str(folder)), "data/x.lance")
    fields, columns = reader.schema.fields, reader.embedded_columns()
    return list(reader.read_batches(fields, columns, keep_dictionaries=keep, **limits))


def kinds_of(batches: list[pa.RecordBatch], name: str) -> list[pa.DataType]:
    return [batch.schema.field(name).type for batch in batches]


def is_dictionary(batches: list[pa.RecordBatch], name: str) -> list[bool]:
    return [pa.types.is_dictionary(kind) for kind in kinds_of(batches, name)]


@pytest.mark.parametrize("writer", ["ours", "pylance"])
@pytest.mark.parametrize(("name", "version", "nulls"), grid(CASES, ("2.0", "2.1", "2.2"), (0, 0.3)))
def test_kept_dictionaries_hold_same_rows(tmp_path, name, nulls, version, writer):
    content = pa.table({"c": with_nulls(column_cases(ROWS)[name], nulls)})
    if writer == "ours":
        write_table(tmp_path, content, version)
    else:
        (tmp_path / "data").mkdir()
        path = str(tmp_path / "data" / "x.lance")
        with LanceFileWriter(path, content.schema, version=version) as file:
            file.write_batch(content)
    plain = batches_of(tmp_path, keep=False)
    assert set(kinds_of(plain, "c")) == {content.schema.field("c").type}
    ranges = [(3, 700), (701, 702), (9000, 19_990)]
    for limits in ({}, {"batch_rows": 777, "batch_bytes": 4096}, {"ranges": ranges}):
        kept = batches_of(tmp_path, keep=True, **limits)
        others = batches_of(tmp_path, keep=False, **limits) if limits else plain
        expected = pa.Table.from_batches(others)
        assert without_dictionaries(kept, expected.schema).equals(expected)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_repeated_strings_become_dictionaries_in_every_batch(tmp_path, version):
    numbers = np.arange(ROWS)
    content = pa.table(
        {
            "few": [f"number {n % 50}" for n in numbers],
            "same": ["the same text"] * ROWS,
            "some_null": [None if n % 3 else f"number {n % 50}" for n in numbers],
            "large": pa.array([f"number {n % 50}" for n in numbers], pa.large_string()),
            "distinct": [f"number {n}" for n in numbers],
            "n": numbers % 4,
            "list": [[f"number {n % 50}"] for n in numbers],
            "struct": [{"x": f"number {n % 50}"} for n in numbers],
        }
    )
    write_table(tmp_path, content, version)
    kept = batches_of(tmp_path, keep=True, batch_rows=3000)
    for name in ("few", "same", "some_null", "large"):
        assert all(is_dictionary(kept, name)), name
    for name in ("distinct", "n", "list", "struct"):
        assert set(kinds_of(kept, name)) == {content.schema.field(name).type}
    assert {kind.value_type for kind in kinds_of(kept, "large")} == {pa.large_string()}
    assert without_dictionaries(kept, content.schema).equals(content)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_batches_differ_if_some_pages_have_dictionaries(tmp_path, version):
    texts = [f"number {n % 50}" if n < 10_000 else f"number {n}" for n in range(ROWS)]
    content = pa.table({"c": texts, "few": [f"number {n % 9}" for n in range(ROWS)]})
    write_table(tmp_path, content, version, batch_rows=1000, pages=20_000)
    kept = batches_of(tmp_path, keep=True, batch_rows=500, batch_bytes=16_384)
    assert set(is_dictionary(kept, "c")) == {True, False}
    assert all(is_dictionary(kept, "few"))
    assert without_dictionaries(kept, content.schema).equals(content)
    # In one window its arrays differ, in a batch they do not.
    together = batches_of(tmp_path, keep=True)
    assert set(kinds_of(together, "c")) == {pa.string()}
    assert without_dictionaries(together, content.schema).equals(content)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("limit", ["_LONGEST_ITEM", "_MAX_BYTES", "_MAX_ITEMS"])
def test_large_dictionaries_are_not_kept(tmp_path, monkeypatch, version, limit):
    rng = np.random.default_rng(5)
    chosen = rng.integers(0, 4500 if limit == "_MAX_ITEMS" else 40, 40_000)
    texts = [f"a number of some length: {n}" for n in chosen.tolist()]
    if limit == "_MAX_BYTES":
        for place in rng.integers(0, 40_000, 3000).tolist():
            texts[place] = f"{rng.integers(0, 2000):x<900}"
    elif limit == "_LONGEST_ITEM":
        texts[17] = texts[30_000] = "x" * 1100
    content = pa.table({"c": texts})
    write_table(tmp_path, content, version)
    assert not any(is_dictionary(batches_of(tmp_path, keep=True), "c"))
    monkeypatch.setattr(array_assembly, limit, 1 << 30)
    assert any(is_dictionary(batches_of(tmp_path, keep=True), "c"))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_stored_dictionary_keeps_its_type(tmp_path, version):
    kind = pa.dictionary(pa.int16(), pa.string())
    texts = pa.array([f"number {n % 50}" for n in range(ROWS)]).dictionary_encode().cast(kind)
    write_table(tmp_path, pa.table({"c": texts}), version)
    assert set(kinds_of(batches_of(tmp_path, keep=True), "c")) == {kind}
