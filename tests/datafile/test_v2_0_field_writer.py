from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader
from v2_0_files import (
    as_sliced,
    leaf_arrays,
    nested_arrays,
    open_fields,
    same_values,
    with_nulls,
    write_fields,
)

from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.datafile.v2_0.field_writer import MAX_PAGE_BYTES, make_v2_0_field_writer
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.store.open_store import open_store

pytestmark = pytest.mark.interop


def assert_pylance_reads(folder, columns: dict[str, pa.Array]) -> None:
    """Whole columns, a range and single rows."""
    reader = LanceFileReader(str(folder / "x.lance"))
    count = len(next(iter(columns.values())))
    assert reader.metadata().num_rows == count
    if count == 0:
        assert reader.read_all().to_table().num_rows == 0
        return
    start = count // 3
    rows = sorted({0, count // 2, count - 1})
    whole = reader.read_all().to_table()
    part = reader.read_range(start, count - start).to_table()
    taken = reader.take_rows(rows).to_table()
    for name, expected in columns.items():
        assert whole.column(name).to_pylist() == expected.to_pylist(), name
        assert part.column(name).to_pylist() == expected[start:].to_pylist(), name
        assert taken.column(name).to_pylist() == [expected[row].as_py() for row in rows], name


def assert_written(folder, columns: dict[str, pa.Array], rows_per_write: int = 1 << 30) -> None:
    store = open_store(str(folder))
    write_fields(store, "x.lance", columns, rows_per_write=rows_per_write)
    assert_pylance_reads(folder, columns)
    _, readers = open_fields(store, "x.lance")
    for (name, expected), reader in zip(columns.items(), readers, strict=True):
        found = reader.read(0, len(expected))
        found.validate(full=True)
        assert same_values(found, expected), name


@pytest.mark.parametrize("count", [0, 1, 17, 700])
@pytest.mark.parametrize("share", [0, 0.2, 1])
def test_leaf_types_are_written(tmp_path, count, share):
    leaves = leaf_arrays(count)
    columns = {name: as_sliced(with_nulls(array, share)) for name, array in leaves.items()}
    assert_written(tmp_path, columns, rows_per_write=max(count // 3, 1))


@pytest.mark.parametrize("count", [0, 1, 17, 700])
@pytest.mark.parametrize("share", [0, 0.2, 1])
def test_nested_types_are_written(tmp_path, count, share):
    columns = {
        name: as_sliced(array if pa.types.is_struct(array.type) else with_nulls(array, share))
        for name, array in nested_arrays(count).items()
    }
    assert_written(tmp_path, columns, rows_per_write=max(count // 3, 1))


def test_columns_are_numbered_depth_first():
    schema = LanceSchema.from_arrow(
        pa.schema([("s", pa.struct([("l", pa.list_(pa.int32())), ("v", pa.list_(pa.int8(), 3))]))])
    )
    writer = make_v2_0_field_writer(schema.fields[0], PageSink(MemoryStore().open_output("x")), 4)
    assert writer.num_columns == 4
    assert writer.column_of == {0: 4, 1: 5, 2: 6, 3: 7}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.map_(pa.string(), pa.int32()), "a map cannot be written to a 2.0 file"),
        (pa.list_(pa.struct([("a", pa.int32())]), 2), "cannot be written to a 2.0 file"),
    ],
)
def test_unsupported_2_0_types_are_refused_by_name(kind, message):
    schema = LanceSchema.from_arrow(pa.schema([("s", pa.struct([("part", kind)]))]))
    sink = PageSink(MemoryStore().open_output("x"))
    with pytest.raises(UnsupportedFeatureError, match=message) as raised:
        make_v2_0_field_writer(schema.fields[0], sink)
    assert raised.value.where == "column s.part"
    assert sink.bytes_written == 0


def test_null_structs_are_refused_by_name():
    kind = pa.list_(pa.struct([("a", pa.int32())]))
    with pytest.raises(UnsupportedFeatureError, match="a null struct") as raised:
        write_fields(MemoryStore(), "x", {"c": pa.array([[{"a": 1}], [None]], kind)})
    assert raised.value.where == "column c.item"


def test_null_structs_below_null_lists_are_accepted(tmp_path):
    structs = pa.array([{"a": 1}, None, {"a": 2}], pa.struct([("a", pa.int32())]))
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), structs, mask=pa.array([False, True, False])
    )
    assert_written(tmp_path, {"c": lists})


def test_full_dictionary_with_nulls_is_refused():
    full = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 127], pa.int8()), pa.array(range(128), pa.int64())
    )
    with pytest.raises(UnsupportedFeatureError, match="no index left for null"):
        write_fields(MemoryStore(), "x", {"c": full})


@pytest.mark.parametrize("where", ["index", "item", "both"])
def test_dictionary_nulls_are_kept(tmp_path, where):
    indices = [0, 1, 2, 1, 0] if where == "item" else [0, None, 2, 1, None]
    items = ["a", "b", "c"] if where == "index" else ["a", None, "c"]
    array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(items))
    assert_written(tmp_path, {"c": array})


def test_differing_dictionaries_of_batches_are_written(tmp_path):
    arrays = [
        pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None], pa.int32()), pa.array([f"a{n}", f"b{n}"])
        )
        for n in range(4)
    ]
    store = open_store(str(tmp_path))
    schema = LanceSchema.from_arrow(pa.schema([("c", arrays[0].type)]))
    sink = PageSink(store.open_output("x.lance"))
    writer = make_v2_0_field_writer(schema.fields[0], sink)
    for array in arrays:
        writer.write(array)
        writer.write(pa.DictionaryArray.from_arrays(array.indices, pa.array([None, "z"])))
    writer.flush()
    sink.finish(schema, 24, "2.0", 1)
    expected = [v for n in range(4) for v in (f"a{n}", f"b{n}", None, None, "z", None)]
    _, (reader,) = open_fields(store, "x.lance")
    assert reader.read(0, 24).to_pylist() == expected
    found = LanceFileReader(str(tmp_path / "x.lance")).read_all().to_table().column("c")
    assert found.to_pylist() == expected


def test_values_below_nulls_are_not_stored():
    secret = b"secret!!"
    valid = pa.py_buffer(b"\x05")
    fixed = pa.Array.from_buffers(pa.int64(), 3, [valid, pa.py_buffer(secret * 3)])
    offsets = pa.py_buffer(np.array([0, 0, 8, 8], np.int32))
    text = pa.Array.from_buffers(pa.string(), 3, [valid, offsets, pa.py_buffer(secret)])
    flat = pa.Array.from_buffers(
        pa.int64(), 3, [None, pa.py_buffer(b"visible." + secret + b"12345678")]
    )
    vector = pa.Array.from_buffers(pa.list_(pa.int64(), 1), 3, [valid], children=[flat])
    lists = pa.Array.from_buffers(
        pa.list_(pa.int64()),
        3,
        [valid, pa.py_buffer(np.array([0, 1, 2, 3], np.int32))],
        children=[flat],
    )
    for array in (text, vector, lists):
        store = MemoryStore()
        write_fields(store, "x", {"c": array})
        assert secret not in bytes(store.get("x"))
        _, (reader,) = open_fields(store, "x")
        assert reader.read(0, 3).equals(array)
    store = MemoryStore()
    write_fields(store, "x", {"c": fixed})
    assert bytes(store.get("x")).count(secret) == 2


def test_pages_have_limited_size(tmp_path):
    rng = np.random.default_rng(1)
    count = 6_000_000
    offsets = np.linspace(0, count, 400_001).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(rng.integers(0, 1 << 60, count)))
    store = open_store(str(tmp_path))
    write_fields(store, "x.lance", {"c": lists}, rows_per_write=150_000)
    file, (reader,) = open_fields(store, "x.lance")
    sizes = [page.num_bytes for page in file.metadata.column(1).pages]
    assert len(sizes) >= 3
    assert max(sizes) <= MAX_PAGE_BYTES
    assert min(sizes[:-1]) > 4 * 1024 * 1024
    assert reader.read(123_456, 323_456).equals(lists[123_456:323_456])


def test_repeated_strings_are_stored_once():
    store = MemoryStore()
    write_fields(store, "x", {"c": pa.array(["category one", None, "category two"] * 10_000)})
    assert store.size("x") < 31_500
    _, (reader,) = open_fields(store, "x")
    assert reader.read(2, 5).to_pylist() == ["category two", "category one", None]


def test_pylance_scans_filters_and_appends_to_our_2_0_file(tmp_path):
    root = str(tmp_path / "t")
    columns = {"id": pa.array(range(300))} | nested_arrays(300)
    table = pa.table(columns)
    dataset = lance.write_dataset(table.slice(0, 1), root, data_storage_version="2.0")
    template = dataset.get_fragments()[0].metadata
    write_fields(open_store(root), "data/ours.lance", columns)
    data_file = template.files[0]
    ours = lance.fragment.DataFile(
        "ours.lance", list(data_file.fields), list(data_file.column_indices), 2, 0
    )
    fragment = lance.FragmentMetadata(id=0, files=[ours], physical_rows=300)
    lance.LanceDataset.commit(root, lance.LanceOperation.Overwrite(table.schema, [fragment]))
    lance.write_dataset(table, root, mode="append")
    found = lance.dataset(root)
    assert found.count_rows() == 600
    assert found.to_table(filter="id >= 290").num_rows == 20
    assert found.to_table().slice(0, 300).to_pylist() == table.to_pylist()
    assert found.take([7, 299]).to_pylist() == table.take([7, 299]).to_pylist()


def leaf_type() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy]]:
    small = st.integers(-100, 100)
    return st.sampled_from(
        [
            (pa.int16(), small),
            (pa.bool_(), st.booleans()),
            (pa.string(), st.text(max_size=5)),
            (pa.large_binary(), st.binary(max_size=5)),
            (pa.dictionary(pa.int16(), pa.string()), st.sampled_from(["x", "yy", ""])),
            (pa.list_(pa.float32(), 2), st.lists(st.none() | small, min_size=2, max_size=2)),
        ]
    )


def nest(inner):
    def wrap(pair):
        kind, values = pair
        # Structs cannot be null in 2.0.
        items = values if pa.types.is_struct(kind) else st.none() | values
        lists = st.lists(items, max_size=4)
        structs = st.fixed_dictionaries({"p": items, "q": st.integers(0, 9)})
        return st.sampled_from(
            [
                (pa.list_(kind), lists),
                (pa.large_list(kind), lists),
                (pa.struct([("p", kind), ("q", pa.uint8())]), structs),
            ]
        )

    return inner.flatmap(wrap)


@settings(max_examples=60)
@given(st.data())
def test_any_nested_column_round_trips(data):
    kind, values = data.draw(st.recursive(leaf_type(), nest, max_leaves=3))
    items = values if pa.types.is_struct(kind) else st.none() | values
    array = pa.array(data.draw(st.lists(items, max_size=30)), kind)
    cut = data.draw(st.integers(0, len(array)))
    array = array[cut:]
    store = MemoryStore()
    write_fields(store, "x", {"c": array}, rows_per_write=data.draw(st.integers(1, 10)))
    _, (reader,) = open_fields(store, "x")
    start = data.draw(st.integers(0, len(array)))
    end = data.draw(st.integers(start, len(array)))
    found = reader.read(start, end)
    found.validate(full=True)
    assert found.to_pylist() == array[start:end].to_pylist()
