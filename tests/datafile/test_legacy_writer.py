import struct

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.fragment import DataFile as PylanceDataFile
from lance.fragment import FragmentMetadata
from legacy_tables import as_legacy_reads, legacy_columns

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.v0_1 import writer as legacy_writer
from pyspark_lance.datafile.v0_1.statistics import above, text_above, text_prefix
from pyspark_lance.datafile.v0_1.writer import LegacyFileWriter
from pyspark_lance.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.store.open_store import open_store

pytestmark = pytest.mark.interop


def without_empty_strings(array):
    """The column as 0.1 files can hold it in a nullable field."""
    return pa.array(as_legacy_reads(array.to_pylist()), array.type)


def columns(count):
    every = legacy_columns(count)
    plain = {n: a for n, a in every.items() if "dictionary" not in n and not n.startswith("struct")}
    plain["struct"] = pa.StructArray.from_arrays(
        [every["int64"], every["string"], every["list_string"]], ["n", "s", "l"]
    )
    return {name: without_empty_strings(a) if strings(a.type) else a for name, a in plain.items()}


def strings(kind):
    return "string" in str(kind) or "binary" in str(kind)


def write(folder, table, batch_rows=1000):
    schema = LanceSchema.from_arrow(table.schema)
    writer = LegacyFileWriter(open_store(str(folder)), "data/x.lance", schema)
    for batch in table.to_batches(max_chunksize=batch_rows):
        writer.write(batch)
    return writer.finish(), schema


def opened_by_pylance(folder, table, file):
    entry = PylanceDataFile(
        path="x.lance", fields=list(file.fields), column_indices=[],
        file_major_version=0, file_minor_version=2, file_size_bytes=file.size_bytes,
    )  # fmt: skip
    fragment = FragmentMetadata(id=0, files=[entry], physical_rows=len(table))
    operation = lance.LanceOperation.Overwrite(table.schema, [fragment])
    return lance.LanceDataset.commit(str(folder), operation)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(legacy_writer, "GROUP_ROWS", 70)


@pytest.mark.parametrize("count", [1, 70, 333])
def test_legacy_files_round_trip_and_pylance_reads_them(tmp_path, count):
    for name, column in columns(count).items():
        folder = tmp_path / name
        folder.mkdir()
        table = (
            pa.table({name: column.slice(1), "id": np.arange(count - 1)})
            if count > 1
            else (pa.table({name: column, "id": np.arange(count)}))
        )
        file, schema = write(folder, table, batch_rows=33)
        assert file.size_bytes == (folder / "data/x.lance").stat().st_size
        reader = DataFileReader.open(open_store(str(folder)), "data/x.lance")
        ours = pa.Table.from_batches(reader.read_batches(schema.fields, {}))
        assert repr(ours.to_pylist()) == repr(table.to_pylist()), name
        from_pylance = opened_by_pylance(folder, table, file)
        assert repr(from_pylance.to_table().to_pylist()) == repr(table.to_pylist()), name
        rows = [count // 2 - 1, 0] if count > 2 else [0]
        if name == "bits":
            continue  # pylance fails to take them, also from its own files
        expected = [table.to_pylist()[row] for row in rows]
        assert repr(from_pylance.take(rows).to_pylist()) == repr(expected), name
        assert from_pylance.count_rows("id >= 100") == max(0, len(table) - 100)


def test_pylance_prunes_groups_by_our_statistics(tmp_path):
    count = 300
    table = pa.table(
        {
            "n": np.arange(count), "s": [f"w{i:03}" for i in range(count)],
            "f": np.arange(count) / 2, "t": [{"x": i} for i in range(count)],
            "d": pa.array(np.arange(count)).cast(pa.decimal128(25, 1)),
            "day": pa.array(np.arange(count).astype(np.int32)).cast(pa.date32()),
            "u": pa.array(np.arange(count).astype(np.uint8)) if count < 256 else
            pa.array((np.arange(count) // 2).astype(np.uint8)),
        }
    )  # fmt: skip
    file, _ = write(tmp_path, table)
    dataset = opened_by_pylance(tmp_path, table, file)
    conditions = {
        "n < 40": 40, "s >= 'w250'": 50, "f = 12.5": 1, "t.x < 10": 10, "u < 5": 10,
        "d > 290": 9, "day < date '1970-02-01'": 31, "NOT n < 250 AND f > 130": 39,
    }  # fmt: skip
    for condition, expected in conditions.items():
        assert dataset.to_table(filter=condition).num_rows == expected, condition
    # Wrong statistics show which readers use them.
    content = (tmp_path / "data/x.lance").read_bytes()
    ends = np.minimum(np.arange(70, 371, 70), 300) - 1
    assert content.count(ends.astype("<i8").tobytes()) == 2
    lies = content.replace(
        ends.astype("<i8").tobytes(), (np.arange(5) * 70).astype("<i8").tobytes()
    )
    (tmp_path / "data/x.lance").write_bytes(lies)
    dataset = lance.dataset(str(tmp_path))
    assert dataset.to_table(filter="n > 100").num_rows == 199 - 39
    assert dataset.scanner(filter="n > 100", use_stats=False).to_table().num_rows == 199


NULLS = {
    "int": pa.array([1, None]), "bool": pa.array([True, None]), "float": pa.array([0.5, None]),
    "list": pa.array([[1], None]), "item": pa.array([[1], [None]]),
    "struct": pa.array([{"a": 1}, None]), "member": pa.array([{"a": 1}, {"a": None}]),
    "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
    "vector_item": pa.array([[1.0, None]], pa.list_(pa.float32(), 2)),
    "empty": pa.array(["", "x"]), "empty_item": pa.array([["x", ""]]),
    "empty_bytes": pa.array([b""], pa.large_binary()),
}  # fmt: skip
NAMED = {"item": "item.item", "member": "member.a", "empty_item": "empty_item.item"}


@pytest.mark.parametrize("name", NULLS)
def test_unrepresentable_nulls_error_names_column(tmp_path, name):
    table = pa.table({"fine": pa.nulls(len(NULLS[name])), name: NULLS[name]})
    with pytest.raises(UnsupportedFeatureError, match=rf"column {NAMED.get(name, name)}: .*0\.1"):
        write(tmp_path, table)


def test_legacy_writer_keeps_null_and_empty_strings(tmp_path):
    schema = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.binary(), nullable=False)])
    table = pa.table({"a": ["x", None, None], "b": [b"", b"", b"y"]}, schema=schema)
    file, _ = write(tmp_path, table)
    assert opened_by_pylance(tmp_path, table, file).to_table().equals(table)


@pytest.mark.parametrize(
    "kind",
    [pa.map_(pa.string(), pa.int32()), pa.dictionary(pa.int32(), pa.string()), pa.struct([]),
     pa.list_(pa.dictionary(pa.int8(), pa.string()))],
)  # fmt: skip
def test_unsupported_0_1_type_error_names_column(kind):
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int32(), "wrong": kind}))
    with pytest.raises(UnsupportedFeatureError, match="column wrong"):
        LegacyFileWriter(MemoryStore(), "data/x.lance", schema)


def test_legacy_files_without_rows_or_statistics_are_read(tmp_path):
    table = pa.table({"a": pa.array([], pa.int32())})
    file, _ = write(tmp_path, table)
    assert opened_by_pylance(tmp_path, table, file).to_table().num_rows == 0
    folder = tmp_path / "half"
    folder.mkdir()
    table = pa.table({"a": pa.array(np.ones(5, np.float16))})
    file, _ = write(folder, table)
    assert opened_by_pylance(folder, table, file).to_table().equals(table)
    reader = DataFileReader.open(open_store(str(folder)), "data/x.lance")
    assert reader.page_statistics([0]) == {}


def test_legacy_writer_refuses_wrong_columns_and_reuse(tmp_path):
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int32()}))
    store = open_store(str(tmp_path))
    writer = LegacyFileWriter(store, "data/x.lance", schema)
    with pytest.raises(SchemaMismatchError):
        writer.write(pa.record_batch({"b": pa.array([1], pa.int32())}))
    writer.abort()
    assert not store.exists("data/x.lance")
    with pytest.raises(InvalidInputError):
        writer.finish()


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=80))
def test_text_bounds_are_short_and_enclose_text(text):
    low, high = text_prefix(text), text_above(text)
    assert low <= text
    assert len(low.encode()) <= 64
    assert high is None or (high >= text and len(high.encode()) <= 64 + 4)
    binary = above(text.encode())
    assert binary is None or (binary >= text.encode() and len(binary) <= 64)


def test_text_without_short_upper_bound_has_none():
    assert text_above("\U0010ffff" * 40) is None
    assert above(b"\xff" * 65) is None
    assert text_above("\ud7ff" * 40) == "\ud7ff" * 20 + "\ue000"
    assert struct.calcsize("<QHH4s") == 16
