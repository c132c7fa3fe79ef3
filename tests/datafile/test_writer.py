from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from data_file_writing import as_dataset, assert_pylance_reads, page_bytes, write_table
from lance.file import LanceFileReader
from random_seeds import seeds
from random_tables import random_table
from same_text import assert_same_text, rows_at
from v2_0_files import as_sliced, leaf_arrays, nested_arrays, with_nulls

from pyspark_lance.datafile import writer as writer_module
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.memory_store import MemoryStore

pytestmark = pytest.mark.interop

VERSIONS = ("2.0", "2.1", "2.2")
NEW_VERSIONS = ("2.1", "2.2")


def is_not_in(version: str, kind: pa.DataType) -> bool:
    """Whether files of this version cannot hold the type when it has nulls."""
    return version == "2.0" and pa.types.is_struct(kind)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("share", [0, 0.2, 1])
@pytest.mark.parametrize("count", [1, 1023, 1025])
def test_pylance_reads_every_leaf_type(tmp_path, version, share, count):
    arrays = leaf_arrays(count)
    table = pa.table({name: with_nulls(array, share) for name, array in arrays.items()})
    write_table(tmp_path, table, version)
    assert_pylance_reads(tmp_path, table)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("share", [0, 0.2, 1])
@pytest.mark.parametrize("count", [1, 10, 1100])
def test_pylance_reads_every_nested_type(tmp_path, version, share, count):
    arrays = {
        name: array if is_not_in(version, array.type) else with_nulls(array, share)
        for name, array in nested_arrays(count).items()
    }
    write_table(tmp_path, pa.table(arrays), version)
    assert_pylance_reads(tmp_path, pa.table(arrays))


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_pylance_reads_many_small_pages(tmp_path, version):
    arrays = {**leaf_arrays(1100), **nested_arrays(1100)}
    table = pa.table({name: with_nulls(array, 0.1) for name, array in arrays.items()})
    write_table(tmp_path, table, version, batch_rows=400, pages=3000)
    assert_pylance_reads(tmp_path, table)


@pytest.mark.parametrize("version", VERSIONS)
def test_pylance_reads_sliced_arrays(tmp_path, version):
    arrays = {
        name: as_sliced(array if is_not_in(version, array.type) else with_nulls(array, 0.1))
        for name, array in {**leaf_arrays(90), **nested_arrays(90)}.items()
    }
    write_table(tmp_path, pa.table(arrays), version)
    assert_pylance_reads(tmp_path, pa.table(arrays))


@pytest.mark.parametrize("seed", seeds(120, in_ci=20))
def test_pylance_reads_random_tables(tmp_path, seed):
    rng = np.random.default_rng(seed)
    version = NEW_VERSIONS[seed % 2]
    rows = int(rng.choice([1, 2, 9, 100, 1024, 1500]))
    table = random_table(seed, rows, version)[seed % 3 :]
    pages = int(rng.choice([3000, 20_000, 8 << 20]))
    write_table(tmp_path, table, version, batch_rows=int(rng.choice([100, 700, 5000])), pages=pages)
    assert_pylance_reads(tmp_path, table, seed)


@pytest.mark.parametrize("version", VERSIONS)
def test_wide_values_round_trip(tmp_path, version):
    rng = np.random.default_rng(1)
    words = [None if n % 7 == 0 else "ab" * (n % 400) for n in range(900)]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(900 * 80)), 80)
    table = pa.table(
        {
            "text": pa.array(words),
            "binary": pa.array(words).cast(pa.large_binary()),
            "fixed": pa.array([rng.bytes(300) for _ in words], pa.binary(300)),
            "vector": with_nulls(vectors, 0.1),
            "lists": pa.array([words[n : n + n % 4] for n in range(900)]),
            "vectors": pa.ListArray.from_arrays(
                pa.array(np.arange(0, 901).clip(0, 899), pa.int32()), with_nulls(vectors, 0.3)
            ),
        }
    )
    write_table(tmp_path, table, version, batch_rows=400)
    assert_pylance_reads(tmp_path, table)


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_mostly_empty_lists_round_trip(tmp_path, version):
    sparse = [[1, None] if n % 50_000 == 7 else [None, []][n % 2] for n in range(80_000)]
    inner = [[[]] * 45_000 + [["x", None]] + [[]] * 45_000, None, [["y"]], [], [None]]
    table = pa.table({"c": pa.array(sparse, pa.list_(pa.int32()))})
    write_table(tmp_path, table, version)
    assert_pylance_reads(tmp_path, table)
    table = pa.table({"c": pa.array(inner, pa.list_(pa.list_(pa.string())))})
    write_table(tmp_path, table, version)
    assert_pylance_reads(tmp_path, table)


def batches_with_dictionaries(size: int, rows: int) -> pa.Table:
    """Two batches with other values in their dictionaries."""
    indices = pa.array(np.arange(rows) % size, pa.int8())
    batches = [
        pa.DictionaryArray.from_arrays(indices, pa.array([f"{batch} {n}" for n in range(size)]))
        for batch in range(2)
    ]
    return pa.table({"c": pa.chunked_array(batches)})


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_dictionaries_of_several_batches_are_joined(tmp_path, version):
    table = batches_with_dictionaries(60, 300)
    write_table(tmp_path, table, version)
    assert_pylance_reads(tmp_path, table)


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_unjoinable_dictionaries_get_separate_pages(tmp_path, version):
    # Twice 128 values are too many for one dictionary with indices of type int8.
    table = batches_with_dictionaries(128, 300)
    write_table(tmp_path, table, version)
    reader = LanceFileReader(str(tmp_path / "data" / "x.lance"))
    for start in (0, 300):
        found = reader.read_range(start, 300, batch_size=300).to_table()
        assert found.column(0).to_pylist() == table.column(0)[start : start + 300].to_pylist()


@pytest.mark.parametrize("version", ["2.2"])
@pytest.mark.parametrize("pages", [500, 8 << 20])
def test_fixed_size_lists_of_structs_round_trip(tmp_path, version, pages):
    struct = pa.struct([("a", pa.int32()), ("b", pa.string())])
    rows = [
        None if n % 5 == 0 else [{"a": n, "b": "x" * (n % 300)}, None, {"a": None, "b": None}]
        for n in range(1000)
    ]
    table = pa.table({"c": pa.array(rows, pa.list_(struct, 3))})
    write_table(tmp_path, table, version, batch_rows=300, pages=pages)
    assert_pylance_reads(tmp_path, table)


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_required_columns_round_trip(tmp_path, version):
    def required(name, kind):
        return pa.field(name, kind, nullable=False)

    struct = pa.struct([required("a", pa.int32()), pa.field("b", pa.string())])
    lists = pa.list_(required("item", struct))
    rows = range(1500)
    schema = pa.schema(
        [
            required("number", pa.int64()),
            required("lists", lists),
            pa.field("structs", struct),
            pa.field("inner", pa.list_(required("item", pa.list_(required("item", pa.int8()))))),
        ]
    )
    item = {"a": 1, "b": None}
    table = pa.table(
        [
            pa.array(rows),
            pa.array([[item] * (n % 3) for n in rows], lists),
            pa.array([None if n % 4 == 0 else item for n in rows], struct),
            pa.array([None if n % 4 == 0 else [[n % 9] * (n % 3)] for n in rows], schema.types[3]),
        ],
        schema=schema,
    )
    write_table(tmp_path, table, version, batch_rows=300, pages=2000)
    assert_pylance_reads(tmp_path, table)


@pytest.mark.parametrize("version", NEW_VERSIONS)
@pytest.mark.parametrize("scheme", ["zstd", "lz4", "none"])
def test_requested_compression_round_trips(tmp_path, version, scheme):
    arrays = {**leaf_arrays(1500), "list": pa.array([[f"text {n}"] * (n % 3) for n in range(1500)])}
    metadata = {"lance-encoding:compression": scheme}
    fields = [pa.field(name, array.type, metadata=metadata) for name, array in arrays.items()]
    arrays = [with_nulls(array, 0.1) for array in arrays.values()]
    table = pa.table(arrays, schema=pa.schema(fields))
    write_table(tmp_path, table, version)
    assert_pylance_reads(tmp_path, table)


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_file_round_trips(tmp_path, version):
    schema = pa.schema({"a": pa.int32(), "b": pa.list_(pa.string())})
    for table in (schema.empty_table(), pa.table([pa.array([], t) for t in schema.types], schema)):
        assert write_table(tmp_path, table, version).size_bytes > 0
        assert_pylance_reads(tmp_path, table)


@pytest.mark.parametrize("version", VERSIONS)
def test_pylance_uses_dataset_of_our_files(tmp_path, version):
    import lance

    table = random_table(5, 1000, version)
    dataset = as_dataset(tmp_path, table, write_table(tmp_path, table, version))
    dataset.validate()
    assert dataset.data_storage_version == version
    assert_same_text(dataset.to_table(), table)
    assert_same_text(dataset.to_table(filter="id >= 990"), table[990:])
    assert_same_text(dataset.take([7, 900, 3]), rows_at(table, [7, 900, 3]))
    lance.write_dataset(table[:10], str(tmp_path), mode="append")
    dataset = lance.dataset(str(tmp_path))
    assert dataset.optimize.compact_files().fragments_removed == 2
    assert_same_text(dataset.to_table(), pa.concat_tables([table, table[:10]]))


def test_data_file_lists_leaf_fields_and_columns(tmp_path):
    struct = pa.struct([("c", pa.list_(pa.int32())), ("d", pa.int32())])
    table = pa.table({"f": pa.array([{"c": [1], "d": 2}], struct), "g": pa.array([1])})
    found = write_table(tmp_path, table, "2.1")
    assert found.path == "x.lance"
    assert (found.fields, found.column_indices) == ((2, 3, 4), (0, 1, 2))
    assert found.file_version == "2.1"
    assert found.size_bytes == (tmp_path / "data" / "x.lance").stat().st_size
    found = write_table(tmp_path, table, "2.0")
    assert (found.fields, found.column_indices) == ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4))
    assert found.file_version == "2.0"


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_buffered_bytes_are_bounded(version):
    store = MemoryStore()
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int64(), "b": pa.string()}))
    batch = pa.record_batch([np.arange(4000), pa.array(["text"] * 4000)], ["a", "b"])
    with page_bytes(50_000):
        writer = DataFileWriter(store, "data/x.lance", schema, version=version)
        for _ in range(50):
            writer.write(batch)
            waiting = writer.bytes_written - writer._sink.bytes_written
            assert waiting <= 2 * 100_000


def test_one_huge_batch_becomes_pages_of_bounded_size(tmp_path):
    from pyspark_lance.datafile.file_metadata import FileMetadata
    from pyspark_lance.store.open_store import open_store

    table = pa.table({"c": pa.array(np.random.default_rng(0).random(50_000))})
    write_table(tmp_path, table, "2.1", pages=40_000)
    pages = FileMetadata.load(open_store(str(tmp_path)), "data/x.lance").column(0).pages
    assert sum(page.num_rows for page in pages) == 50_000
    assert max(page.num_bytes for page in pages) < 90_000
    starts = np.cumsum([0] + [page.num_rows for page in pages])[:-1]
    assert [page.priority for page in pages] == starts.tolist()


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        (pa.map_(pa.string(), pa.int32()), "2.1"),
        (pa.list_(pa.map_(pa.string(), pa.int32())), "2.0"),
        (pa.list_(pa.struct([("a", pa.int32())]), 3), "2.1"),
        (pa.list_(pa.list_(pa.struct([("a", pa.int32())]), 3)), "2.2"),
        (pa.dictionary(pa.int8(), pa.decimal128(9, 1)), "2.1"),
        (pa.struct([]), "2.1"),
    ],
)
def test_unsupported_type_error_names_column(kind, version):
    store = MemoryStore()
    schema = LanceSchema.from_arrow(pa.schema({"fine": pa.int8(), "column": kind}))
    with pytest.raises(UnsupportedFeatureError, match="column column"):
        DataFileWriter(store, "data/x.lance", schema, version=version)
    assert not list(store.list(""))


def test_unknown_version_is_refused():
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int8()}))
    with pytest.raises(UnsupportedFeatureError, match=r"2\.3"):
        DataFileWriter(MemoryStore(), "data/x.lance", schema, version="2.3")


def test_unsupported_encoding_is_refused_without_leftovers():
    store = MemoryStore()
    field = pa.field("c", pa.int32(), metadata={"lance-encoding:compression": "fsst"})
    with pytest.raises(UnsupportedFeatureError, match="fsst"):
        DataFileWriter(
            store, "data/x.lance", LanceSchema.from_arrow(pa.schema([field])), version="2.1"
        )
    assert not list(store.list(""))


@pytest.mark.parametrize("version", VERSIONS)
def test_mismatched_batches_are_refused(version):
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int32()}))
    writer = DataFileWriter(MemoryStore(), "data/x.lance", schema, version=version)
    with pytest.raises(SchemaMismatchError, match="columns"):
        writer.write(pa.record_batch([pa.array([1], pa.int32())], ["b"]))
    with pytest.raises(SchemaMismatchError, match="int64"):
        writer.write(pa.record_batch([pa.array([1], pa.int64())], ["a"]))


def test_aborted_writer_leaves_no_file():
    store = MemoryStore()
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int32()}))
    writer = DataFileWriter(store, "data/x.lance", schema, version="2.1")
    writer.write(pa.record_batch([pa.array([1], pa.int32())], ["a"]))
    writer.abort()
    writer.abort()
    assert not list(store.list(""))
    with pytest.raises(InvalidInputError):
        writer.finish()


@pytest.mark.parametrize("version", NEW_VERSIONS)
def test_equal_data_give_equal_bytes(tmp_path, version):
    table = random_table(3, 500, version)
    write_table(tmp_path, table, version)
    first = (tmp_path / "data" / "x.lance").read_bytes()
    write_table(tmp_path, table, version)
    assert (tmp_path / "data" / "x.lance").read_bytes() == first


def test_format_example_has_documented_bytes(tmp_path):
    kind = pa.list_(pa.field("item", pa.int32(), nullable=False))
    schema = pa.schema([pa.field("c", kind, nullable=False)])
    table = pa.table([pa.array([[1, 2], [], [3]], kind)], schema=schema)
    write_table(tmp_path, table, "2.1")
    content = (tmp_path / "data" / "x.lance").read_bytes()
    assert content[:2].hex() == "4000"
    chunk = "0400080008000c00 0100000001000100 0000000001000000 0100000002000000 03000000"
    assert content[64:100] == bytes.fromhex(chunk)
    assert content[128:144] == bytes([3, *bytes(15)])
    layout = "0a1c0a040a02081012040a0208101a040a02082032020105380140014803"
    assert bytes.fromhex(layout) in content


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_file_removed_after_open_error_names_path(version):
    store = MemoryStore()
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.float64()}))
    writer = DataFileWriter(store, "data/x.lance", schema, version=version)
    # Larger than what the opening reads.
    writer.write(pa.record_batch([np.random.default_rng(0).random(100_000)], ["a"]))
    writer.finish()
    reader = DataFileReader.open(store, "data/x.lance")
    store.delete("data/x.lance")
    with pytest.raises(CorruptFileError, match="went away while it was read") as caught:
        reader.read(schema.fields, {0: 0}, 0, 100_000)
    assert "data/x.lance" in caught.value.where


@pytest.mark.parametrize("version", VERSIONS)
def test_column_that_waits_for_page_keeps_no_batch(version, monkeypatch):
    monkeypatch.setattr(writer_module, "_MAX_REFERENCED", 4 << 20)
    schema = pa.schema({"n": pa.int64(), "wide": pa.binary()})

    def batch():
        """All columns are in one allocation, as those that Spark sends."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write(pa.record_batch([[1], [b"x" * (1 << 20)]], schema=schema))
        return pa.ipc.open_stream(sink.getvalue()).read_next_batch()

    writer = DataFileWriter(
        MemoryStore(), "data/x.lance", LanceSchema.from_arrow(schema), version=version
    )
    before = pa.total_allocated_bytes()
    for _ in range(60):
        writer.write(batch())
    grown = pa.total_allocated_bytes() - before
    writer.finish()
    assert grown < 30 << 20
