from __future__ import annotations

import struct

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from pyspark_lance.datafile import file_metadata
from pyspark_lance.datafile.file_metadata import (
    ARRAY_ENCODING_URL,
    COLUMN_ENCODING_URL,
    FOOTER_BYTES,
    PAGE_LAYOUT_URL,
    FileMetadata,
    Footer,
)
from pyspark_lance.datafile.page_sink import ALIGNMENT, PageSink
from pyspark_lance.errors import CorruptFileError, LanceError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.proto import encodings_v2_0_pb2, file_pb2
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.store.object_store import ByteRange
from pyspark_lance.store.open_store import open_store

SCHEMA = LanceSchema.from_arrow(
    pa.schema([("a", pa.int32()), ("b", pa.list_(pa.string()))], metadata={"key": "value"})
)


class CountingStore(MemoryStore):
    """Remembers what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[int] = []

    def get_tail(self, path, length):
        self.requests.append(length)
        return super().get_tail(path, length)

    def get_range(self, path, start, end):
        self.requests.append(end - start)
        return super().get_range(path, start, end)


def sample(store: MemoryStore, *, page: bytes = b"x" * 100, version: str = "2.1") -> None:
    sink = PageSink(store.open_output("x"))
    sink.write_page(0, [page, b""], PAGE_LAYOUT_URL, b"layout", num_rows=7)
    sink.write_page(2, [], ARRAY_ENCODING_URL, b"tree", num_rows=3)
    sink.write_page(0, [b"yy"], PAGE_LAYOUT_URL, b"layout2", num_rows=5, priority=7)
    assert sink.write_global_buffer(b"user data") == 1
    sink.set_column_encoding(2, COLUMN_ENCODING_URL, b"blob")
    size = sink.finish(SCHEMA, 12, version, 4)
    assert size == sink.bytes_written == store.size("x")


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_file_metadata_round_trips(version):
    store = MemoryStore()
    sample(store, version=version)
    metadata = FileMetadata.load(store, "x", store.size("x"))
    assert (metadata.version, metadata.num_rows, metadata.num_columns) == (version, 12, 4)
    assert metadata.schema == SCHEMA
    assert bytes(metadata.global_buffer(1)) == b"user data"
    first, second = metadata.column(0).pages
    assert [store.get_range("x", *place) for place in first.buffers] == [b"x" * 100, b""]
    assert (first.num_rows, first.encoding_type_url, first.encoding_bytes, first.priority) == (
        *(7, PAGE_LAYOUT_URL, b"layout"),
        0,
    )
    assert (second.num_rows, second.priority, second.num_bytes) == (5, 7, 2)
    assert metadata.column(0).num_rows == 12
    assert metadata.column(1).pages == ()
    assert metadata.column(1).encoding_bytes == (
        encodings_v2_0_pb2.ColumnEncoding(values=encodings_v2_0_pb2.Empty()).SerializeToString()
    )
    assert metadata.column(2).encoding_bytes == b"blob"


def test_buffers_start_aligned():
    store = MemoryStore()
    sample(store)
    metadata = FileMetadata.load(store, "x")
    content = bytes(store.get("x"))
    gbo = Footer.from_bytes(content, len(content)).gbo_table_position
    (descriptor,) = struct.unpack_from("<Q", content, gbo)
    starts = [place.start for page in metadata.column(0).pages for place in page.buffers]
    assert all(start % ALIGNMENT == 0 for start in [*starts, descriptor])


def test_aborted_sink_leaves_no_file():
    store = MemoryStore()
    sink = PageSink(store.open_output("x"))
    sink.write_page(0, [b"abc"], PAGE_LAYOUT_URL, b"", num_rows=1)
    sink.abort()
    assert not store.exists("x")


def test_metadata_load_takes_one_request():
    store = CountingStore()
    sample(store, page=b"x" * 1_000_000)
    metadata = FileMetadata.load(store, "x")
    for index in range(4):
        metadata.column(index)
    assert len(metadata.schema.fields) == 2
    assert len(store.requests) == 1


def test_metadata_beyond_tail_is_read_together(monkeypatch):
    monkeypatch.setattr(file_metadata, "TAIL_BYTES", FOOTER_BYTES)
    store = CountingStore()
    sample(store)
    metadata = FileMetadata.load(store, "x")
    for index in range(4):
        metadata.column(index)
    # Tail, two tables, descriptor, all columns.
    assert len(store.requests) == 5


def test_size_other_than_manifest_is_corrupt():
    store = MemoryStore()
    sample(store)
    with pytest.raises(CorruptFileError, match="the manifest says the file has 17 bytes"):
        FileMetadata.load(store, "x", 17)


def test_missing_columns_and_buffers_are_corrupt():
    store = MemoryStore()
    sample(store)
    metadata = FileMetadata.load(store, "x")
    with pytest.raises(CorruptFileError, match="column 4 is wanted, the file has 4"):
        metadata.column(4)
    with pytest.raises(CorruptFileError, match="global buffer 2"):
        metadata.global_buffer(2)


def with_column(message: file_pb2.ColumnMetadata, before: bytes = b"") -> MemoryStore:
    """A file with one column whose metadata are given."""
    store = MemoryStore()
    descriptor = file_pb2.FileDescriptor(length=1).SerializeToString()
    column = message.SerializeToString()
    position = len(before) + len(descriptor)
    tables = position + len(column)
    footer = Footer(position, tables, tables + 16, 1, 1, "2.1")
    store.put(
        "x",
        before
        + descriptor
        + column
        + struct.pack("<4Q", position, len(column), len(before), len(descriptor))
        + footer.to_bytes(),
    )
    return store


def test_indirect_encoding_is_read():
    encoding = file_pb2.AnyMessage(type_url="url", value=b"value").SerializeToString()
    message = file_pb2.ColumnMetadata()
    page = message.pages.add(length=1)
    page.encoding.indirect.buffer_location = 3
    page.encoding.indirect.buffer_length = len(encoding)
    metadata = FileMetadata.load(with_column(message, b"..." + encoding), "x")
    (found,) = metadata.column(0).pages
    assert (found.encoding_type_url, found.encoding_bytes) == ("url", b"value")


@pytest.mark.parametrize(
    ("offsets", "sizes"), [([0], []), ([1 << 63], [1]), ([0], [1 << 40]), ([1 << 20], [0])]
)
def test_buffers_outside_file_are_corrupt(offsets, sizes):
    message = file_pb2.ColumnMetadata()
    message.pages.add(buffer_offsets=offsets, buffer_sizes=sizes)
    with pytest.raises(CorruptFileError, match="page 0 of column 0"):
        FileMetadata.load(with_column(message), "x").column(0)


def test_truncated_metadata_is_corrupt():
    store = MemoryStore()
    sample(store)
    content = bytes(store.get("x"))
    for length in range(len(content)):
        store.put("cut", content[:length])
        with pytest.raises(CorruptFileError):
            FileMetadata.load(store, "cut")


def test_flipped_metadata_bytes_raise_only_lance_errors():
    store = MemoryStore()
    sample(store)
    content = bytes(store.get("x"))
    start = Footer.from_bytes(content, len(content)).column_metadata_position
    for position in range(start - 100, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        store.put("x", bytes(damaged))
        try:
            metadata = FileMetadata.load(store, "x")
            assert metadata.num_columns < 100
            for index in range(metadata.num_columns):
                metadata.column(index)
            assert metadata.schema
        except LanceError:
            pass


@pytest.mark.interop
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_metadata_of_pylance_files_is_read(tmp_path, version):
    table = pa.table({"a": [1, 2, 3], "b": [["x"], [], None]})
    with LanceFileWriter(str(tmp_path / "x.lance"), table.schema, version=version) as writer:
        writer.write_batch(table)
    metadata = FileMetadata.load(open_store(str(tmp_path)), "x.lance")
    expected = LanceFileReader(str(tmp_path / "x.lance")).metadata()
    assert metadata.version == version
    assert metadata.num_rows == 3
    assert metadata.num_columns == len(expected.columns)
    assert metadata.schema.to_arrow() == table.schema
    for index, column in enumerate(expected.columns):
        assert [list(page.buffers) for page in metadata.column(index).pages] == [
            [ByteRange(buffer.position, buffer.position + buffer.size) for buffer in page.buffers]
            for page in column.pages
        ]


@pytest.mark.interop
def test_embedded_schema_keeps_field_ids(tmp_path):
    dataset = lance.write_dataset(
        pa.table({"a": [1], "b": [["x"]]}), str(tmp_path), data_storage_version="2.1"
    )
    path = dataset.get_fragments()[0].metadata.files[0].path
    metadata = FileMetadata.load(open_store(str(tmp_path)), f"data/{path}")
    assert [field.id for field in metadata.schema.walk()] == [0, 1, 2]
