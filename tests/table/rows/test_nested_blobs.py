"""Blobs inside of structs and lists: as pylance writes them, and as we do."""

import lance
import numpy as np
import pyarrow as pa
import pytest
from blob_tables import (
    BLOB_ITEM,
    LISTS,
    OF_OURS,
    OF_PYLANCE,
    PAIR,
    RNG,
    STRUCTS,
    nested_bytes,
    nested_table,
    pylance_nested_bytes,
)
from table_access import read_ours, write_table

from pyspark_lance.datafile import blob_records
from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(("version", "name"), OF_PYLANCE)
def test_nested_pylance_blobs_are_read(tmp_path, version, name):
    path, table = str(tmp_path), nested_table(name, version)
    lance.write_dataset(table, path, data_storage_version=version)
    assert nested_bytes(path) == table["c"].to_pylist()
    shown = read_ours(
        path, schema=logical_schema(Snapshot.open(Table(path)).schema), system_columns=()
    )
    if version != "2.0":  # there, pylance shows nulls as they are stored
        assert shown["c"].to_pylist() == lance.dataset(path).to_table()["c"].to_pylist()


@pytest.mark.parametrize(("version", "name"), OF_OURS)
def test_nested_blobs_round_trip_and_pylance_reads_them(tmp_path, monkeypatch, version, name):
    monkeypatch.setattr(blob_records, "PAGE_ROWS", 23)
    path, table = str(tmp_path), nested_table(name, version, 80)
    expected = table["c"].to_pylist()
    write_table(path, table.slice(7), file_version=version)
    assert nested_bytes(path) == expected[7:]
    dataset = lance.dataset(path)
    dataset.validate()
    assert pylance_nested_bytes(path) == expected[7:]
    if version != "2.2" or name in STRUCTS:
        # pylance cannot take rows without items from lists of the second kind, its own neither.
        whole, rows = dataset.to_table()["c"], [70, 3, 3, 41]
        assert dataset.take(rows)["c"].to_pylist() == whole.take(rows).to_pylist()
    # Appended by both, and moved by pylance.
    write_table(path, table.slice(0, 9))
    if (version, name) in OF_PYLANCE:
        lance.write_dataset(table.take([5, 6, 7]), path, mode="append")
        expected = [*expected[7:], *expected[:9], *expected[5:8]]
        lance.dataset(path).delete("id = 20")
        del expected[13]
        lance.dataset(path).optimize.compact_files()
        assert nested_bytes(path) == pylance_nested_bytes(path) == expected


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("rows", [[], [None], [{"i": 1, "b": None}] * 3, [{"i": None, "b": b""}]])
def test_columns_without_blobs_round_trip(tmp_path, version, rows):
    rows = [{"i": 2, "b": None} if row is None and version == "2.0" else row for row in rows]
    table = pa.table({"c": pa.array(rows, PAIR)})
    write_table(str(tmp_path), table, file_version=version)
    if rows:
        assert nested_bytes(str(tmp_path)) == rows
    assert pylance_nested_bytes(str(tmp_path)) == rows


def test_lists_without_items_round_trip(tmp_path):
    for version in ("2.0", "2.2"):
        path = str(tmp_path / version)
        for rows in ([[], None, []], [None], [[None, None], []]):
            table = pa.table({"c": pa.array(rows, LISTS["list"])})
            write_table(path, table, file_version=version)
        expected = [[], None, [], None, [None, None], []]
        assert nested_bytes(path) == pylance_nested_bytes(path) == expected


def test_external_references_in_lists_are_read(tmp_path):
    (tmp_path / "o.bin").write_bytes(b"0123456789")
    uri = f"file://{tmp_path}/o.bin"
    blobs = [lance.Blob.from_uri(uri), b"x", None, lance.Blob.from_uri(uri, position=2, size=3)]
    items = lance.blob_array(blobs)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 4], pa.int32()), items, type=pa.list_(lance.blob_field("item"))
    )
    expected = [[b"0123456789", b"x"], [], [None, b"234"]]
    write_table(str(tmp_path / "ours"), pa.table({"c": lists}), file_version="2.2")
    options = {"data_storage_version": "2.2", "allow_external_blob_outside_bases": True}
    lance.write_dataset(pa.table({"c": lists}), str(tmp_path / "theirs"), **options)
    for name in ("ours", "theirs"):
        storage = {"storage.allowed_base_paths": str(tmp_path)}
        assert nested_bytes(str(tmp_path / name), storage=storage) == expected
        assert pylance_nested_bytes(str(tmp_path / name)) == expected


def test_ambiguous_blob_error_names_path(tmp_path):
    kind = pa.list_(pa.field("b", lance.blob_field("b").type.storage_type))
    both = pa.array([[{"data": b"x", "uri": "file:///o"}]], kind)
    schema = pa.schema([pa.field("c", pa.list_(lance.blob_field("b")))])
    table = pa.table({"c": both.cast(schema.field("c").type)})
    with pytest.raises(InvalidInputError, match=r"c\.b.*either bytes or a URI"):
        write_table(str(tmp_path), table, file_version="2.2")


@pytest.mark.parametrize(
    ("version", "kind", "path"),
    [
        ("2.1", LISTS["list"], "c"),
        ("2.1", LISTS["struct_list"], r"c\.l"),
        ("2.2", pa.map_(pa.string(), BLOB_ITEM), "c"),
        ("2.2", pa.list_(PAIR, 2), "c"),
        ("2.2", pa.list_(BLOB_ITEM, 2), "c"),
    ],
)
def test_blobs_unsupported_by_pylance_error_names_column(tmp_path, version, kind, path):
    table = pa.table({"c": pa.nulls(2, kind)})
    with pytest.raises(UnsupportedFeatureError, match=rf"column {path}: "):
        write_table(str(tmp_path), table, file_version=version)


def test_added_blob_column_uses_blob_version_of_table(tmp_path):
    path = str(tmp_path)
    write_table(path, pa.table({"id": [1]}), file_version="2.2")
    new = pa.table({"id": [2], "c": pa.array([[{"i": 1, "b": b"new"}]], LISTS["list_struct"])})
    write_table(path, new, merge_schema=True)
    field = next(f for f in Snapshot.open(Table(path)).schema.walk() if f.name == "b")
    assert field.is_blob_v2
    assert nested_bytes(path) == pylance_nested_bytes(path) == [None, [{"i": 1, "b": b"new"}]]


@pytest.fixture(params=["2.0", "2.1", "2.2"])
def small_blobs(request, tmp_path):
    """A table of blobs in structs, its only file, and that file's bytes: most are no blob's."""
    rows = [{"i": n, "b": RNG.bytes(n % 5 + 1)} for n in range(30)]
    path = str(tmp_path)
    write_table(path, pa.table({"c": pa.array(rows, PAIR)}), file_version=request.param)
    (file,) = tmp_path.glob("data/*.lance")
    return path, file, file.read_bytes()


def test_nested_blob_records_outside_file_are_corrupt(small_blobs):
    path, file, content = small_blobs
    schema = logical_schema(Snapshot.open(Table(path)).schema)
    shown = read_ours(path, schema=schema, system_columns=())["c"].to_pylist()
    stored = [int(row["b"]["position"]).to_bytes(8, "little") for row in shown]
    # Elsewhere in the file the same bytes may mean something else.
    found = [one for one in stored if content.count(one) == 1]
    assert len(found) > 15
    for one in found:
        for outside in (len(content), 1 << 40, (1 << 64) - 64):
            file.write_bytes(content.replace(one, outside.to_bytes(8, "little")))
            with pytest.raises(CorruptFileError, match=r"blob.* outside of the"):
                nested_bytes(path)


def test_damaged_nested_blobs_are_refused_or_locally_wrong(small_blobs):
    path, file, content = small_blobs
    whole = nested_bytes(path)
    rng = np.random.default_rng(3)
    refused, hit = 0, 3
    for _ in range(150):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=hit):
            damaged[place] = int(rng.integers(256))
        file.write_bytes(damaged)
        try:
            rows = nested_bytes(path)
        except (CorruptFileError, UnsupportedFeatureError):
            refused += 1
        else:
            assert len(rows) == len(whole)
            assert sum(a != b for a, b in zip(rows, whole, strict=True)) <= hit
    assert refused > 50
