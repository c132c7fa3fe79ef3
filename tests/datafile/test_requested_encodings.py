"""What a column's metadata ask for: pylance reads it, and chooses the same where it honours it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from data_file_writing import assert_pylance_reads, write_table
from lance.file import LanceFileWriter
from same_text import assert_same_text

from pyspark_lance.codec.encoding_tree import describe
from pyspark_lance.codec.structural.page_layout import parse_page_layout
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.store.open_store import open_store

pytestmark = pytest.mark.interop

RNG = np.random.default_rng(0)
COUNT = 3000
COLUMNS = {
    "small": pa.array(RNG.integers(0, 100, COUNT)),
    "runs": pa.array(np.repeat(RNG.integers(0, 1 << 40, COUNT // 20), 20)),
    "few": pa.array(RNG.choice(RNG.integers(0, 1 << 60, 50), COUNT)),
    "walk": pa.array(np.cumsum(RNG.standard_normal(COUNT)), mask=RNG.random(COUNT) < 0.1),
    "ids": pa.array([f"user-{n:x}-name" for n in RNG.integers(0, 1 << 40, COUNT)]),
    "words": pa.array([f"word-{n}" if n else None for n in RNG.integers(0, 20, COUNT)]),
    "long": pa.array([f"lorem ipsum {n} " * 20 for n in RNG.integers(0, 1 << 30, 150)]),
    "bytes": pa.array([RNG.bytes(9) for _ in range(COUNT)]),
    "decimals": pa.array(RNG.integers(0, 30, COUNT)).cast(pa.decimal128(30, 0)),
    "flags": pa.array(RNG.random(COUNT) < 0.5),
    "vectors": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(COUNT * 4.0)), 4),
    "long vectors": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40 * 400)), 400),
    "dictionary": pa.array([f"word-{n}" for n in RNG.integers(0, 20, COUNT)]).dictionary_encode(),
    "lists": pa.array([[f"item {n % 7}"] * (n % 4) for n in range(COUNT)]),
}
REQUESTS = [
    {"compression": "none"},
    {"compression": "zstd", "compression-level": "9"},
    {"compression": "lz4"},
    {"compression": "fsst"},
    {"structural-encoding": "miniblock"},
    {"structural-encoding": "fullzip"},
    {"structural-encoding": "fullzip", "compression": "zstd"},
    {"bss": "on"},
    {"bss": "on", "compression": "lz4"},
    {"bss": "auto", "compression": "zstd"},
    {"rle-threshold": "0.01"},
    {"rle-threshold": "1"},
    {"minichunk-size": "500"},
    {"minichunk-size": "32000"},
    {"dict-divisor": "1"},
    {"dict-divisor": "1000"},
    {"dict-size-ratio": "0.05"},
    {"dict-values-compression": "none"},
    {"dict-values-compression": "zstd", "dict-values-compression-level": "3"},
]


def marked(column: pa.Array, request: dict[str, str]) -> pa.Table:
    """The column with the request on its leaf."""
    metadata = {f"lance-encoding:{key}": value for key, value in request.items()}
    kind = column.type
    if pa.types.is_list(kind):
        kind, metadata = pa.list_(kind.value_field.with_metadata(metadata)), None
    return pa.table([column], schema=pa.schema([pa.field("c", kind, metadata=metadata)]))


def encoding_of(folder, path: str) -> str:
    """Of the only page of the only column."""
    reader = DataFileReader.open(open_store(str(folder)), path)
    (page,) = reader._file.metadata.column(0).pages
    layout = parse_page_layout(page.encoding_bytes)
    kind = layout.WhichOneof("layout")
    part = getattr(layout, kind)
    text = f"{kind} {describe(part.value_compression)}"
    if kind == "mini_block_layout" and part.HasField("dictionary"):
        text += f", items {describe(part.dictionary)}"
    return text


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: " ".join(map("=".join, one.items())))
def test_accepted_encodings_round_trip_and_pylance_reads_them(tmp_path, version, request_):
    written = 0
    for column in COLUMNS.values():
        table = marked(column, request_)
        try:
            write_table(tmp_path, table, version)
        except UnsupportedFeatureError as error:
            assert "lance-encoding:" in str(error)
            continue
        written += 1
        assert_pylance_reads(tmp_path, table)
        reader = DataFileReader.open(open_store(str(tmp_path)), "data/x.lance")
        fields, columns = reader.schema.fields, reader.embedded_columns()
        batches = reader.read_batches(fields, columns, batch_rows=700)
        assert_same_text(pa.Table.from_batches(batches), table)
    assert written >= 4 or version == "2.0" or (version == "2.1" and "zstd" in str(request_))


SAME = [
    ("small", {"compression": "none"}),
    ("small", {"compression": "zstd"}),
    ("small", {"compression": "zstd", "bss": "on"}),
    ("small", {"structural-encoding": "fullzip"}),
    ("runs", {"rle-threshold": "1"}),
    ("runs", {"rle-threshold": "0.01"}),
    ("ids", {"compression": "none"}),
    ("ids", {"compression": "lz4"}),
    ("ids", {"compression": "fsst"}),
    ("ids", {"structural-encoding": "fullzip"}),
    ("words", {"compression": "none"}),
    ("words", {"compression": "zstd"}),
    ("words", {"dict-divisor": "1000"}),
    ("words", {"dict-values-compression": "zstd"}),
    ("long", {"structural-encoding": "miniblock"}),
    ("long", {"compression": "zstd"}),
    ("long vectors", {"structural-encoding": "miniblock"}),
    ("decimals", {"compression": "lz4"}),
    ("dictionary", {"compression": "zstd"}),
    ("dictionary", {"compression": "none"}),
    ("bytes", {"compression": "fsst"}),
    ("flags", {"structural-encoding": "fullzip"}),
]


@pytest.mark.parametrize(("name", "request_"), SAME)
def test_requested_encoding_equals_pylance(tmp_path, name, request_):
    table = marked(COLUMNS[name], request_)
    version = "2.2" if "dict-values-compression" in request_ else "2.1"  # pylance: not before
    write_table(tmp_path, table, version)
    with LanceFileWriter(str(tmp_path / "theirs"), table.schema, version=version) as writer:
        writer.write_batch(table.to_batches()[0])
    assert encoding_of(tmp_path, "data/x.lance") == encoding_of(tmp_path, "theirs")


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_encoding_of_nested_column_applies_to_leaves(tmp_path, version):
    own = {"lance-encoding:compression": "none"}
    members = [
        pa.field("l", pa.list_(pa.string())),
        pa.field("n", pa.int64()),
        pa.field("p", pa.string(), metadata=own),
    ]
    asked = {"lance-encoding:compression": "fsst"}
    schema = pa.schema([pa.field("c", pa.struct(members), metadata=asked)])
    rows = [{"l": [f"user-{n}"], "n": n, "p": f"user-{n}"} for n in range(3000)]
    table = pa.table({"c": pa.array(rows, pa.struct(members))}, schema=schema)
    write_table(tmp_path, table, version)
    assert_pylance_reads(tmp_path, table)
    reader = DataFileReader.open(open_store(str(tmp_path)), "data/x.lance")
    assert reader.schema.to_arrow().field("c").metadata == {b"lance-encoding:compression": b"fsst"}
    if version != "2.0":
        pages = [reader._file.metadata.column(index).pages[0] for index in range(3)]
        found = [
            describe(parse_page_layout(page.encoding_bytes).mini_block_layout.value_compression)
            for page in pages
        ]
        assert found == ["fsst(variable)", "inline_bitpacking", "variable"]
    numbers = pa.schema([pa.field("c", pa.list_(pa.int64()), metadata=asked)])
    with pytest.raises(UnsupportedFeatureError, match=r"column c: .*fsst fits nothing in it"):
        write_table(tmp_path, pa.table({"c": pa.array([[1]])}).cast(numbers), version)
