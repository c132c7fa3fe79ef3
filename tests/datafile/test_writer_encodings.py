"""Files with encodings that were asked for, or that a size calls for, are read by both readers."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from data_file_writing import assert_pylance_reads, write_table
from lance.file import LanceFileReader, LanceFileWriter
from same_text import assert_same_text, rows_at
from v2_0_files import leaf_arrays, with_nulls

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.store.open_store import open_store

pytestmark = pytest.mark.interop

NEW_VERSIONS = ("2.1", "2.2")
RNG = np.random.default_rng(5)
WORDS = np.array(["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dög", ""])


def texts(count: int, words: int) -> pa.Array:
    return pa.array([" ".join(RNG.choice(WORDS, words)) + str(n) for n in range(count)])


def asking(arrays: dict[str, pa.Array], **keys: str) -> pa.Table:
    """A table whose columns all ask for the same."""
    metadata = {f"lance-encoding:{key.replace('_', '-')}": value for key, value in keys.items()}
    fields = [pa.field(name, array.type, metadata=metadata) for name, array in arrays.items()]
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


def assert_both_read(folder, table: pa.Table, version: str, **options) -> int:
    """Return the size of the file."""
    size = write_table(folder, table, version, **options).size_bytes
    assert_pylance_reads(folder, table)
    reader = DataFileReader.open(open_store(str(folder)), "data/x.lance")
    fields, columns = reader.schema.fields, reader.embedded_columns()
    batches = list(reader.read_batches(fields, columns))
    assert_same_text(pa.Table.from_batches(batches), table)
    rows = RNG.integers(0, len(table), 30)
    assert_same_text(reader.take(fields, columns, rows), rows_at(table, rows.tolist()))
    return size


def string_columns(count: int) -> dict[str, pa.Array]:
    text = texts(count, 6)
    nulls = with_nulls(text, 0.2)
    lists = [None if n % 11 == 0 else text[n : n + n % 4].to_pylist() for n in range(count)]
    return {
        "text": text,
        "nulls": nulls,
        "large": nulls.cast(pa.large_string()),
        "binary": nulls.cast(pa.binary()),
        "mixed": with_nulls(pa.array(["", "x", "\x00", "é" * 100] * (count // 4)), 0.1),
        "wide": with_nulls(texts(count, 60), 0.1),
        "lists": pa.array(lists, pa.list_(pa.string())),
        "wide_lists": pa.array(
            [[], None, ["w" * 300, None], ["", "v" * 10]] * (count // 4), pa.list_(pa.string())
        ),
        "struct": pa.StructArray.from_arrays(
            [nulls], ["s"], mask=pa.array(np.arange(count) % 5 == 1)
        ),
    }


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_text_is_compressed_and_round_trips(tmp_path, version):
    table = pa.table(string_columns(2000))
    size = assert_both_read(tmp_path, table, version, batch_rows=900, pages=60_000)
    assert size < 0.7 * table.nbytes


@pytest.mark.parametrize("version", NEW_VERSIONS)
@pytest.mark.parametrize("scheme", ["fsst", "zstd", "lz4", "none"])
@pytest.mark.parametrize("structure", ["", "fullzip", "miniblock"])
def test_requested_string_compression_round_trips(tmp_path, version, scheme, structure):
    keys = {"compression": scheme} | ({"structural_encoding": structure} if structure else {})
    columns = string_columns(600)
    children = {name: array for name, array in columns.items() if pa.types.is_nested(array.type)}
    table = asking({name: a for name, a in columns.items() if name not in children}, **keys)
    for name, array in children.items():
        metadata = table.schema.field(0).metadata
        child = array.type.field(0).with_metadata(metadata)
        kind = pa.list_(child) if pa.types.is_list(array.type) else pa.struct([child])
        table = table.append_column(pa.field(name, kind), array.cast(kind))
    assert_both_read(tmp_path, table, version)


@pytest.mark.parametrize("scheme", ["fsst", "zstd", "lz4", "none"])
def test_requested_2_0_compression_round_trips(tmp_path, scheme):
    strings = {
        name: array
        for name, array in string_columns(600).items()
        if not pa.types.is_nested(array.type) and not (scheme == "fsst" and name == "large")
    }
    size = assert_both_read(tmp_path, asking(strings, compression=scheme), "2.0")
    if scheme != "none":
        assert size < 0.75 * assert_both_read(tmp_path, pa.table(strings), "2.0")
    if scheme != "fsst":
        leaves = {name: with_nulls(array, 0.2) for name, array in leaf_arrays(1500).items()}
        lists = pa.array([[n, None] if n % 3 else None for n in range(1500)])
        metadata = {"lance-encoding:compression": scheme}
        kind = pa.list_(pa.field("item", pa.int64(), metadata=metadata))
        table = asking(leaves, compression=scheme)
        table = table.append_column("lists", lists.cast(kind))
        assert_both_read(tmp_path, table, "2.0", batch_rows=700)


def test_fsst_with_large_offsets_is_refused_in_2_0(tmp_path):
    table = asking({"c": pa.array(["x"], pa.large_string())}, compression="fsst")
    with pytest.raises(UnsupportedFeatureError, match="fsst"):
        write_table(tmp_path, table, "2.0")


@pytest.mark.parametrize("version", NEW_VERSIONS)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_huge_values_are_compressed_individually(tmp_path, version, kind):
    huge = [f"{n} lorem ipsum dolor " * 3000 for n in range(12)]
    values = pa.array([huge[0], None, "", *huge[1:], "short", None]).cast(kind)
    table = pa.table({"c": values, "l": [[v] for v in values]})
    assert assert_both_read(tmp_path, table, version) < table.nbytes / 10


@pytest.mark.parametrize("version", NEW_VERSIONS)
@pytest.mark.parametrize("scheme", ["", "zstd", "lz4"])
@pytest.mark.parametrize("share", [0, 0.3])
def test_byte_stream_split_numbers_round_trip(tmp_path, version, scheme, share):
    arrays = {
        name: with_nulls(array, share)
        for name, array in leaf_arrays(2500).items()
        if not pa.types.is_nested(array.type)
        and (pa.types.is_primitive(array.type) or pa.types.is_decimal(array.type))
        and array.type.bit_width in (32, 64)
    }
    assert len(arrays) > 6
    keys = {"bss": "on"} | ({"compression": scheme} if scheme else {})
    assert_both_read(tmp_path, asking(arrays, **keys), version)


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_file_sizes_are_near_pylance(tmp_path, version):
    hexadecimal = pa.array([RNG.bytes(16).hex() for _ in range(8000)])
    urls = pa.array(
        [f"https://example.org/p/{n}?q={n * n}" for n in RNG.integers(0, 1 << 30, 8000)]
    )
    columns = {
        "ids": pa.array([f"user-{n}" for n in RNG.integers(0, 1 << 40, 20_000)]),
        "text": texts(8000, 9),
        "hexadecimal": hexadecimal,
        "urls": urls,
        "wide": texts(1500, 70),
        "zeros": pa.array([f"{n:0400}" for n in range(1500)]),
        "huge": pa.array(["".join(texts(300, 30).to_pylist()) for _ in range(5)]),
        "binary": urls.cast(pa.binary()),
    }
    for name, array in columns.items():
        table = pa.table({"c": array})
        ours = write_table(tmp_path, table, version).size_bytes
        path = tmp_path / "theirs.lance"
        with LanceFileWriter(str(path), table.schema, version=version) as writer:
            writer.write_batch(table.to_batches()[0])
        assert ours <= 1.25 * path.stat().st_size, name


CONSTANTS = {
    "int": pa.array([7] * 3000),
    "nan": pa.array([float("nan")] * 3000),
    "flags": pa.array([True] * 3000),
    "no_flags": pa.array([False] * 3001)[1:],
    "decimal": pa.array([Decimal("1234567890123456.78")] * 3000, pa.decimal128(38, 2)),
    "fixed": pa.array([b"0123456789abcdef" * 2] * 3000, pa.binary(32)),
    "fixed_wide": pa.array([b"x" * 33] * 3000, pa.binary(33)),
    "timestamp": pa.array([5] * 3000, pa.timestamp("us", "UTC")),
    "string": pa.array(["the only one"] * 3000),
    "empty": pa.array([""] * 3000),
    "binary": pa.array([b"\x00" * 300] * 3000, pa.large_binary()),
    "struct": pa.array([{"a": 1, "b": "x"}] * 3000),
}


def test_constant_columns_take_no_space(tmp_path):
    table = pa.table(CONSTANTS)
    assert assert_both_read(tmp_path, table, "2.2", batch_rows=700) < 6000
    reader = DataFileReader.open(open_store(str(tmp_path)), "data/x.lance")
    buffers = [
        buffer
        for n in range(13)
        for page in reader._file.metadata.column(n).pages
        for buffer in page.buffers
    ]
    assert len(buffers) == 5
    assert_both_read(tmp_path, table, "2.1")


def test_almost_constant_columns_round_trip(tmp_path):
    table = pa.table(
        {
            name: pa.concat_arrays([array, array[:1], pa.nulls(1, array.type), array])
            for name, array in CONSTANTS.items()
        }
        | {"last": pa.array([1] * 6001 + [2]), "text": pa.array(["a"] * 6001 + ["b"])}
    )
    assert_both_read(tmp_path, table, "2.2")


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("count", [4, 3000])
def test_v1_blobs_round_trip(tmp_path, version, count):
    values = [b"abc", None, b"", b"x" * 5000] * (count // 4)
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table([pa.array(values, pa.large_binary())], schema=pa.schema([field]))
    write_table(tmp_path, table, version)
    path = str(tmp_path / "data" / "x.lance")
    assert LanceFileReader(path).read_all().to_table()["b"].to_pylist() == values
    reader = DataFileReader.open(open_store(str(tmp_path)), "data/x.lance")
    fields, columns = reader.schema.fields, reader.embedded_columns()
    found = pa.Table.from_batches(reader.read_batches(fields, columns))
    assert found["b"].to_pylist() == values
