import os
import pickle

import fsspec
import lance
import numpy as np
import pyarrow as pa
import pytest
from blob_tables import BLOB, VALUES, blob_table, pylance_blobs
from table_access import read_ours, write_table

from pyspark_lance.datafile import blob_records
from pyspark_lance.datafile.blob_values import sidecar_path
from pyspark_lance.errors import (
    CorruptFileError,
    LanceError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def read_blobs(path, *, binary=True, **request):
    schema = logical_schema(Snapshot.open(Table(path)).schema, binary_blobs={"b"} if binary else ())
    return read_ours(path, schema=schema, system_columns=(), **request)


def allowing(folder):
    """Storage options with which blobs in a folder outside of the table are read."""
    return {"storage.allowed_base_paths": str(folder)}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_pylance_blobs_are_read_as_bytes_and_descriptors(tmp_path, version):
    path = str(tmp_path)
    dataset = lance.write_dataset(blob_table(), path, data_storage_version=version)
    assert read_blobs(path)["b"].to_pylist() == VALUES
    ours = read_blobs(path, binary=False)["b"]
    from_pylance = dataset.to_table()["b"]
    assert [f.name for f in ours.type] == [f.name for f in from_pylance.type]
    expected = from_pylance.to_pylist()
    if version == "2.0":
        expected[2] = None  # pylance shows how it stores a null
    assert ours.to_pylist() == expected
    offsets = np.array([1, 3, 5], np.uint32)
    request = {"predicate": parse_predicate("id IN (1, 3, 5)", predicate_schema(ours_schema(path)))}
    assert read_blobs(path, **request)["b"].to_pylist() == [VALUES[i] for i in offsets]


def ours_schema(path):
    return Snapshot.open(Table(path)).schema


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_descriptors_need_no_blob_bytes(tmp_path, version):
    path = str(tmp_path)
    lance.write_dataset(blob_table(), path, data_storage_version=version)
    for sidecar in tmp_path.glob("data/*/*.blob"):
        sidecar.unlink()
    assert read_blobs(path, binary=False)["b"].to_pylist()[3]["size"] == 200_000
    predicate = parse_predicate("b.size > 1000", predicate_schema(ours_schema(path)))
    found = read_blobs(path, binary=False, predicate=predicate)
    assert found["id"].to_pylist() == [3, 4, 6]
    if version == "2.2":
        with pytest.raises(CorruptFileError, match="holds blobs is missing"):
            read_blobs(path)


def test_external_blobs_are_read_by_uri(tmp_path):
    outside = tmp_path / "outside" / "sub"
    outside.mkdir(parents=True)
    content = bytes(range(100))
    (outside / "o.bin").write_bytes(content)
    uri = f"file://{outside}/o.bin"
    blobs = [
        lance.Blob.from_uri(uri), lance.Blob.from_uri(uri, position=5, size=7), b"inline", None,
        lance.Blob.empty(), lance.Blob.from_uri(uri, position=0, size=3),
    ]  # fmt: skip
    table = pa.table({"b": lance.blob_array(blobs)}, schema=pa.schema([lance.blob_field("b")]))
    expected = [content, content[5:12], b"inline", None, b"", content[:3]]
    base = lance.DatasetBasePath(str(tmp_path / "outside"), name="ext", is_dataset_root=False)
    for name, options in {
        "anywhere": {"allow_external_blob_outside_bases": True},
        "base": {"initial_bases": [base]},
    }.items():
        path = str(tmp_path / name)
        lance.write_dataset(table, path, data_storage_version="2.2", **options)
        with pytest.raises(UnsupportedFeatureError, match="outside of the table"):
            read_blobs(path)
        storage = allowing(tmp_path / "outside")
        assert read_blobs(path, storage=storage)["b"].to_pylist() == expected
        raw = read_ours(path, system_columns=())["b"].to_pylist()
        assert raw[1] == {
            "data": None, "position": 5, "size": 7,
            "uri": uri if name == "anywhere" else f"{tmp_path}/outside/sub/o.bin",
        }  # fmt: skip
        assert raw[2]["data"] == b"inline"
        assert raw[3] is None
    (outside / "o.bin").unlink()
    with pytest.raises(CorruptFileError, match="holds blobs is missing"):
        read_blobs(path, storage=storage)


def test_base_path_of_manifest_grants_no_access(tmp_path):
    """``/etc`` may be one; only the folder of a table is taken for what it says to be."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "secret.bin").write_bytes(b"secret")
    blobs = [lance.Blob.from_uri(f"file://{folder}/secret.bin")]
    table = pa.table({"b": lance.blob_array(blobs)}, schema=pa.schema([lance.blob_field("b")]))
    base = lance.DatasetBasePath(str(folder), is_dataset_root=False)
    path = str(tmp_path / "t")
    lance.write_dataset(table, path, data_storage_version="2.2", initial_bases=[base])
    with pytest.raises(UnsupportedFeatureError, match="allowed_base_paths"):
        read_blobs(path)
    assert read_blobs(path, storage=allowing(folder))["b"].to_pylist() == [b"secret"]
    write_table(str(folder), pa.table({"id": [1]}))
    assert read_blobs(path)["b"].to_pylist() == [b"secret"]


def test_external_file_of_deleted_row_may_be_missing(tmp_path):
    path, files = str(tmp_path / "t"), [tmp_path / f"{i}.bin" for i in range(4)]
    for file in files:
        file.write_bytes(file.name.encode())
    blobs = [lance.Blob.from_uri(f"file://{file}") for file in files]
    table = pa.table(
        {"id": range(4), "b": lance.blob_array(blobs)},
        schema=pa.schema([("id", pa.int64()), lance.blob_field("b")]),
    )
    lance.write_dataset(
        table, path, data_storage_version="2.2", allow_external_blob_outside_bases=True
    )
    files[1].unlink()
    storage = allowing(tmp_path)
    with pytest.raises(CorruptFileError, match="holds blobs is missing"):
        read_blobs(path, storage=storage)
    # Rows that a condition leaves out are not fetched either.
    predicate = parse_predicate("id != 1", predicate_schema(ours_schema(path)))
    expected = [b"0.bin", b"2.bin", b"3.bin"]
    assert read_blobs(path, storage=storage, predicate=predicate)["b"].to_pylist() == expected
    lance.dataset(path).delete("id = 1")
    assert read_blobs(path, storage=storage)["b"].to_pylist() == expected


def test_external_blob_names_may_be_url_escaped(tmp_path):
    outside = tmp_path / "a folder"
    outside.mkdir()
    file = outside / "ö %20 #.bin"
    file.write_bytes(b"0123456789")
    table = pa.table(
        {"b": lance.blob_array([lance.Blob.from_uri(file.as_uri(), position=2, size=3)])},
        schema=pa.schema([lance.blob_field("b")]),
    )
    base = lance.DatasetBasePath(str(outside), name="ext", is_dataset_root=False)
    for name, options in {
        "anywhere": {"allow_external_blob_outside_bases": True},
        "base": {"initial_bases": [base]},
    }.items():
        path = str(tmp_path / name)
        lance.write_dataset(table, path, data_storage_version="2.2", **options)
        assert (
            read_blobs(path, storage=allowing(outside))["b"].to_pylist()
            == pylance_blobs(path)
            == [b"234"]
        )


def test_external_blobs_are_read_from_fsspec_stores():
    folder = "memory://external_blobs"
    fsspec.filesystem("memory").pipe("/external_blobs/out/o b.bin", b"0123456789")
    uris = [f"{folder}/out/o%20b.bin", f"{folder}/out/o b.bin"]
    blobs = [lance.Blob.from_uri(uris[0]), lance.Blob.from_uri(uris[1], position=2, size=3)]
    table = pa.table({"b": lance.blob_array(blobs)}, schema=pa.schema([lance.blob_field("b")]))
    write_table(f"{folder}/t", table, file_version="2.2")
    storage = allowing(f"{folder}/out")
    assert read_blobs(f"{folder}/t", storage=storage)["b"].to_pylist() == [b"0123456789", b"234"]


BLOB_PLACES = [
    "file:///etc/passwd", "/etc/passwd", "file:{place}/secret.txt", "{place}/t/../secret.txt",
    "file://{place}/t/%2e%2e/secret.txt", "file://{place}/table_of_others/x.bin",
    "http://127.0.0.1:1/latest/meta-data", "s3://bucket/x", "memory://x", "FILE:///etc/passwd",
    "simplecache::file:///etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("place", BLOB_PLACES)
def test_blobs_outside_table_are_refused(tmp_path, place):
    """Neither by the driver nor by a task that an executor unpickles."""
    (tmp_path / "secret.txt").write_bytes(b"secret")
    path = str(tmp_path / "t")
    blobs = [lance.Blob.from_uri(place.format(place=tmp_path))]
    table = pa.table({"b": lance.blob_array(blobs)}, schema=pa.schema([lance.blob_field("b")]))
    write_table(path, table, file_version="2.2")
    schema = logical_schema(Snapshot.open(Table(path)).schema, binary_blobs={"b"})
    tasks = pickle.loads(
        pickle.dumps(plan_scan(Snapshot.open(Table(path)), ScanRequest(schema=schema)))
    )
    with pytest.raises((UnsupportedFeatureError, CorruptFileError)) as error:
        [batch for task in tasks for batch in task.run()]
    assert "outside of the table" in str(error.value)
    assert "storage.allowed_base_paths" in str(error.value)


def test_blobs_below_table_need_no_option(tmp_path):
    path = str(tmp_path / "t")
    (tmp_path / "t" / "media").mkdir(parents=True)
    (tmp_path / "t" / "media" / "o.bin").write_bytes(b"0123456789")
    blobs = [lance.Blob.from_uri(f"file://{path}/media/o.bin")]
    table = pa.table({"b": lance.blob_array(blobs)}, schema=pa.schema([lance.blob_field("b")]))
    write_table(path, table, file_version="2.2")
    assert read_blobs(path)["b"].to_pylist() == [b"0123456789"]


def test_sidecar_name_encodes_blob_number_bits():
    assert sidecar_path("data/x.lance", 2) == "data/x/01" + "0" * 30 + ".blob"


def test_damaged_descriptors_are_corrupt_and_bounded(tmp_path):
    path = str(tmp_path)
    values = [os.urandom(100) for _ in range(3)]
    lance.write_dataset(blob_table(values), path, data_storage_version="2.1")
    (file,) = tmp_path.glob("data/*.lance")
    content = file.read_bytes()
    places = b"".join(int(i * 128).to_bytes(8, "little") + b"\x64" + bytes(7) for i in range(3))
    assert content.count(places) == 1
    for size in (1 << 20, 1 << 62, (1 << 64) - 1):
        wrong = places[:8] + size.to_bytes(8, "little") + places[16:]
        file.write_bytes(content.replace(places, wrong))
        with pytest.raises(LanceError):
            read_blobs(path)


def test_batches_of_large_blobs_have_few_rows(tmp_path):
    path = str(tmp_path)
    values = [bytes(1 << 20) for _ in range(40)]
    for version in ("2.1", "2.2"):
        lance.write_dataset(
            blob_table(values), path, data_storage_version=version, mode="overwrite"
        )
        table = read_blobs(path)
        assert max(len(chunk) for chunk in table["b"].chunks) <= 16


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("values", [VALUES, VALUES[:2], [None, None], [b"x"] * 3000 + [None]])
def test_written_blobs_round_trip_and_pylance_reads_them(tmp_path, version, values):
    path = str(tmp_path)
    table = blob_table(values)
    write_table(path, table, file_version=version)
    assert read_blobs(path)["b"].to_pylist() == values
    assert pylance_blobs(path) == values
    dataset = lance.dataset(path)
    dataset.validate()
    kind = dataset.schema.field("b").type
    assert str(kind).startswith("extension<lance.blob.v2") == (version == "2.2")
    # Appended by both; a binary column of any kind will do.
    plain = pa.table({"b": pa.array(values, pa.binary()), "id": range(len(values))})
    write_table(path, plain)
    lance.write_dataset(table, path, mode="append")
    assert pylance_blobs(path) == 3 * values
    assert read_blobs(path)["b"].to_pylist() == 3 * values
    lance.dataset(path).delete("id = 0")
    assert read_blobs(path)["b"].to_pylist() == 3 * values[1:]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_written_blobs_survive_pylance_compaction(tmp_path, version):
    path = str(tmp_path)
    for _ in range(3):
        write_table(path, blob_table([b"one", None, b"", bytes(70_000)]), file_version=version)
    lance.dataset(path).optimize.compact_files()
    assert lance.dataset(path).count_rows() == 12
    assert read_blobs(path)["b"].to_pylist() == 3 * [b"one", None, b"", bytes(70_000)]


def test_pylance_blob_references_can_be_rewritten(tmp_path):
    uri = f"file://{tmp_path}/o.bin"
    (tmp_path / "o.bin").write_bytes(b"0123456789")
    blobs = [lance.Blob.from_uri(uri), lance.Blob.from_uri(uri, position=2, size=3), b"x", None]
    schema = pa.schema([lance.blob_field("b")])
    table = pa.table({"b": lance.blob_array(blobs)}, schema=schema)
    path = str(tmp_path / "t")
    write_table(path, table)
    found = read_blobs(path, storage=allowing(tmp_path))["b"].to_pylist()
    assert found == [b"0123456789", b"234", b"x", None]
    assert pylance_blobs(path) == [b"0123456789", b"234", b"x", None]
    raw = read_ours(path, system_columns=())
    write_table(path, raw)
    assert pylance_blobs(path) == 2 * [b"0123456789", b"234", b"x", None]


def test_blob_column_with_many_pages_round_trips(tmp_path, monkeypatch):
    monkeypatch.setattr(blob_records, "PAGE_ROWS", 7)
    for version in ("2.0", "2.1", "2.2"):
        path = str(tmp_path / version)
        values = [None if i % 5 == 0 else bytes([i]) * (i % 4) for i in range(50)]
        write_table(path, blob_table(values), file_version=version)
        assert read_blobs(path)["b"].to_pylist() == values
        assert pylance_blobs(path) == values


def test_unwritable_blobs_error_names_column(tmp_path):
    schema = pa.schema([pa.field("b", pa.string(), metadata=BLOB)])
    with pytest.raises(UnsupportedFeatureError, match=r"column b: blobs of type string"):
        write_table(str(tmp_path / "text"), pa.table({"b": ["x"]}, schema=schema))
    path = str(tmp_path / "t")
    write_table(path, blob_table([b"x"]), file_version="2.2")
    with pytest.raises(SchemaMismatchError, match="'b'"):
        write_table(path, pa.table({"id": [1], "b": ["text"]}))
    descriptors = read_blobs(path, binary=False)
    with pytest.raises(SchemaMismatchError, match="'b'"):
        write_table(path, descriptors)
    assert lance.dataset(path).count_rows() == 1
