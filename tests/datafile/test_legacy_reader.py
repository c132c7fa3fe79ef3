import lance
import numpy as np
import pyarrow as pa
import pytest
from damage import bit_flips, splices, survive_every, truncations
from legacy_tables import as_legacy_reads, legacy_columns
from same_text import assert_same_text

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

NAMES = sorted(legacy_columns(1))


def written_by_pylance(path, table, rows_per_group):
    dataset = lance.write_dataset(
        table, path, data_storage_version="legacy", max_rows_per_group=rows_per_group
    )
    snapshot = Snapshot.open(Table(path))
    (fragment,) = snapshot.manifest.fragments
    store, name = snapshot.files.locate(fragment.files[0])
    return dataset, DataFileReader.open(store, name), snapshot.schema.fields


@pytest.mark.parametrize(("count", "rows_per_group"), [(1, 10), (60, 7), (2500, 1024)])
def test_legacy_columns_equal_pylance(tmp_path, count, rows_per_group):
    for name, column in legacy_columns(count).items():
        table = pa.table({name: column})
        path = str(tmp_path / name)
        dataset, reader, fields = written_by_pylance(path, table, rows_per_group)
        assert (reader.version, reader.num_rows) == ("0.1", count)
        from_pylance = dataset.to_table()
        ours = pa.Table.from_batches(reader.read_batches(fields, {}, batch_rows=100))
        assert ours.schema.types == from_pylance.schema.types
        assert_same_text(ours, from_pylance)
        if "dictionary" not in name and not name.startswith("struct"):
            assert repr(ours.to_pylist()) == repr(as_legacy_reads(table.to_pylist())), name


@pytest.mark.parametrize("name", NAMES)
def test_legacy_ranges_equal_slices_of_whole_column(tmp_path, name):
    rng = np.random.default_rng(len(name))
    table = pa.table({name: legacy_columns(50)[name]})
    _, reader, fields = written_by_pylance(str(tmp_path), table, 9)
    whole = pa.Table.from_batches(reader.read_batches(fields, {}))
    for _ in range(5):
        start, end = sorted(rng.integers(0, 51, 2).tolist())
        found = reader.read(fields, {}, start, end)
        assert_same_text(found, whole.slice(start, end - start))
        rows = rng.integers(0, 50, 12)
        found = reader.take(fields, {}, rows)
        assert_same_text(found, whole.take(rows))
    ranges = [(3, 11), (17, 19), (40, 50)]
    parts = pa.Table.from_batches(reader.read_batches(fields, {}, ranges=ranges))
    expected = pa.concat_tables([whole.slice(a, b - a) for a, b in ranges])
    assert_same_text(parts, expected)


def test_legacy_empty_strings_of_nullable_columns_are_null(tmp_path):
    schema = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.string(), nullable=False)])
    table = pa.table({"a": ["", None, "x"], "b": ["", "", "x"]}, schema=schema)
    _, reader, fields = written_by_pylance(str(tmp_path), table, 10)
    batch = reader.read(fields, {}, 0, 3)
    assert batch.to_pydict() == {"a": [None, None, "x"], "b": ["", "", "x"]}


def test_legacy_reader_reads_only_wanted_children(tmp_path):
    table = pa.table({"struct": legacy_columns(20)["struct"]})
    _, reader, fields = written_by_pylance(str(tmp_path), table, 6)
    (field,) = fields
    narrowed = field.__class__(field.id, field.name, "struct", children=field.children[1:2])
    found = reader.read([narrowed], {}, 2, 15)
    expected = table.slice(2, 13)["struct"].combine_chunks().field("s").to_pylist()
    assert found.column(0).field("s").to_pylist() == as_legacy_reads(expected)


def test_damaged_files_raise_lance_errors_or_return_values(tmp_path):
    names = ["int64", "bool", "string", "dictionary", "list_struct", "vector", "null"]
    table = pa.table({name: legacy_columns(40)[name] for name in names})
    written_by_pylance(str(tmp_path), table, 15)
    (path,) = (tmp_path / "data").iterdir()
    whole = path.read_bytes()

    def read(data):
        store = MemoryStore()
        store.put("x", data)
        reader = DataFileReader.open(store, "x")
        if reader.num_rows > 1000:
            raise CorruptFileError("more rows than this test should read")
        for field in reader.schema.fields:
            for batch in reader.read_batches([field], {}):
                batch.validate(full=False)

    read(whole)
    refused = survive_every(truncations(whole, 200), read)
    assert refused == len(list(truncations(whole, 200)))
    damaged = [*bit_flips(whole, 500), *splices(whole, 500)]
    assert survive_every(damaged, read) > 100


def test_overlapping_legacy_pages_do_not_multiply_memory(tmp_path):
    table = pa.table({"s": ["x" * 100_000, *["y"] * 399]})
    written_by_pylance(str(tmp_path), table, 1)
    (path,) = (tmp_path / "data").iterdir()
    whole = path.read_bytes()
    store = MemoryStore()
    store.put("x", whole)
    entries = DataFileReader.open(store, "x")._file.metadata.pages.entries
    start = whole.index(entries.tobytes())
    same = np.repeat(entries[:, :1], 400, axis=1).tobytes()
    store.put("x", whole[:start] + same + whole[start + len(same) :])
    reader = DataFileReader.open(store, "x")
    # Reading one value again and again is within bounds; more than the file is not.
    reader.read(reader.schema.fields, {}, 0, 1)
    with pytest.raises(CorruptFileError, match=r"hold \d+ bytes, the file has"):
        reader.read(reader.schema.fields, {}, 0, 400)


def test_legacy_strings_outside_file_are_corrupt(tmp_path):
    table = pa.table({"s": ["x" * 10, "y"]})
    written_by_pylance(str(tmp_path), table, 10)
    (path,) = (tmp_path / "data").iterdir()
    whole = path.read_bytes()
    store = MemoryStore()
    store.put("x", whole)
    position = int(DataFileReader.open(store, "x")._file.metadata.pages.page(0, 0)[0])
    end = np.array([1 << 33], "<i8").tobytes()
    store.put("x", whole[: position + 16] + end + whole[position + 24 :])
    reader = DataFileReader.open(store, "x")
    with pytest.raises(CorruptFileError, match="of a file of"):
        reader.read(reader.schema.fields, {}, 0, 2)


def test_legacy_reader_ignores_size_of_manifest(tmp_path):
    # pylance 0.38 and later releases recorded the bytes of the pages only.
    store = MemoryStore()
    written_by_pylance(str(tmp_path), pa.table({"n": [1, 2, 3]}), 10)
    (path,) = (tmp_path / "data").iterdir()
    store.put("x", path.read_bytes())
    reader = DataFileReader.open(store, "x", size_bytes=24)
    assert reader.read(reader.schema.fields, {}, 0, 3).column(0).to_pylist() == [1, 2, 3]
