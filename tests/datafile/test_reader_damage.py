"""Damaged 2.1 and 2.2 files give our errors and nothing else, and never much memory."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from column_cases import column_cases, with_nulls
from damage import survive_every, truncations
from pylance_files import OneColumn, write_with_pylance
from random_seeds import grid

from pyspark_lance.datafile.file_metadata import FileMetadata
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.proto import encodings_v2_1_pb2, file_pb2
from pyspark_lance.store.memory_store import MemoryStore

pytestmark = pytest.mark.interop

COUNT = 1500
PREFIX = "lance-encoding:"
CASES = {
    "int64_small": {},
    "int64_runs": {},
    "int64_few": {},
    "bool": {},
    "string_many": {},
    "string_few": {},
    "string_300": {},
    "string_constant": {},
    "binary": {"compression": "zstd"},
    "float64": {"compression": "lz4", "bss": "on"},
    "vector_item_nulls": {},
    "vector_768_item_nulls": {},
    "list_string": {},
    "list_string_300": {},
    "list_struct_list": {},
    "dictionary_int8": {},
    "list_empty": {},
    "large_binary": {"blob": "true"},
}


def write(tmp_path, name: str, version: str) -> bytes:
    column = with_nulls(column_cases(COUNT)[name], 0.1)
    metadata = {PREFIX + key: value for key, value in CASES[name].items()}
    path = tmp_path / "x.lance"
    assert write_with_pylance(path, column, version, metadata)
    return path.read_bytes()


def read_everything(content: bytes) -> None:
    """Read the column in several ways; what comes back must be sound in itself."""
    store = MemoryStore()
    store.put("x", content)
    file = OneColumn(store, "x")
    if not file.fields:  # what flipped bits can make of a schema
        return
    count = file.reader.num_rows
    if count > 10 * COUNT:
        count = COUNT
    for part in file.scan(ranges=[(0, count)]):
        part.validate()
    file.read(count // 2, min(count // 2 + 3, count)).validate()
    file.take(np.arange(0, count, 97)).validate()


@pytest.mark.parametrize(("version", "name"), grid(("2.1", "2.2"), tuple(CASES)))
def test_flipped_bytes_raise_only_lance_errors(tmp_path, version, name):
    content = write(tmp_path, name, version)
    read_everything(content)
    rng = random.Random(name + version)
    store = MemoryStore()
    store.put("x", content)
    metadata = FileMetadata.load(store, "x")
    page = metadata.column(0).pages[0]
    # Metadata words, dictionary, index, page descriptions: where the structure is.
    places = [range(r.start, r.end) for r in page.buffers if r.num_bytes > 0]
    places = [part if len(part) < 4000 else range(part.start, part.start + 64) for part in places]
    places += [range(metadata.footer.column_metadata_position, len(content))] * 2

    def damaged():
        for _ in range(60):
            copy = bytearray(content)
            part = rng.choice([*places, range(len(content))])
            for _ in range(rng.choice((1, 1, 3))):
                copy[rng.choice(part)] ^= 1 << rng.randrange(8)
            yield bytes(copy)

    assert survive_every(damaged(), read_everything) > 3


@pytest.mark.parametrize("name", ["string_many", "list_struct_list", "string_300"])
def test_truncated_file_is_corrupt(tmp_path, name):
    for part in truncations(write(tmp_path, name, "2.1"), at_most=40):
        with pytest.raises(CorruptFileError):
            read_everything(part)


def with_page(content: bytes, change) -> bytes:
    """The file after ``change(layout, page)`` of the first page's description."""
    store = MemoryStore()
    store.put("x", content)
    metadata = FileMetadata.load(store, "x")
    footer = metadata.footer
    start, end = footer.column_metadata_position, footer.cmo_table_position
    column = file_pb2.ColumnMetadata.FromString(content[start:end])
    page = column.pages[0]
    message = file_pb2.AnyMessage.FromString(page.encoding.direct.encoding)
    layout = encodings_v2_1_pb2.PageLayout.FromString(message.value)
    change(layout, page, message)
    message.value = layout.SerializeToString()
    page.encoding.direct.encoding = message.SerializeToString()
    # The changed message is put at the end of the file's data by its own table entry.
    changed = column.SerializeToString()
    head, tail = content[:start], bytearray(content[end:])
    shift = len(changed) - (end - start)
    tail[0:16] = np.array([start, len(changed)], "<u8").tobytes()
    for position in (-32, -24):
        old = int.from_bytes(tail[position : position + 8], "little")
        tail[position : position + 8] = (old + shift).to_bytes(8, "little")
    return head + changed + bytes(tail)


def message_of(content: bytes) -> str:
    with pytest.raises(LanceError) as caught:
        read_everything(content)
    return str(caught.value)


def test_unknown_page_type_error_names_type_and_page(tmp_path):
    def change(layout, page, message):
        message.type_url = "/lance.encodings23.PlanarLayout"

    content = with_page(write(tmp_path, "int64_small", "2.1"), change)
    with pytest.raises(UnsupportedFeatureError, match=r"encodings23.PlanarLayout") as caught:
        read_everything(content)
    assert "column 0 (c) page 0" in str(caught.value)


def test_unknown_layouts_and_encodings_are_refused_by_name(tmp_path):
    content = write(tmp_path, "int64_small", "2.1")

    def sparse(layout, page, message):
        layout.sparse_layout = b""

    def delta(layout, page, message):
        layout.mini_block_layout.value_compression.delta = b""

    def out_of_line(layout, page, message):
        part = layout.mini_block_layout.value_compression.out_of_line_bitpacking
        part.values.flat.bits_per_value = 3

    assert "sparse_layout" in message_of(with_page(content, sparse))
    assert "delta" in message_of(with_page(content, delta))
    assert "out_of_line_bitpacking" in message_of(with_page(content, out_of_line))


HUGE = 1 << 60


@pytest.mark.parametrize("name", ["int64_small", "string_few", "list_string", "vector_item_nulls"])
def test_impossible_counts_are_corrupt_before_allocation(tmp_path, name):
    def items(layout, page, message):
        layout.mini_block_layout.num_items = HUGE

    def rows(layout, page, message):
        page.length = HUGE

    def dictionary(layout, page, message):
        layout.mini_block_layout.dictionary.flat.bits_per_value = 64
        layout.mini_block_layout.num_dictionary_items = HUGE

    def buffers(layout, page, message):
        layout.mini_block_layout.num_buffers = HUGE

    def width(layout, page, message):
        layout.mini_block_layout.value_compression.flat.bits_per_value = HUGE

    def dimension(layout, page, message):
        part = layout.mini_block_layout.value_compression.fixed_size_list
        part.items_per_value = HUGE
        part.values.flat.bits_per_value = 64

    content = write(tmp_path, name, "2.1")
    tracemalloc.start()
    try:
        for change in (items, rows, dictionary, buffers, width, dimension):
            assert "LANCE_CORRUPT_FILE" in message_of(with_page(content, change))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_errors_name_file_column_and_page(tmp_path):
    def change(layout, page, message):
        layout.mini_block_layout.num_items = 7

    text = message_of(with_page(write(tmp_path, "int64_small", "2.1"), change))
    assert "x bytes 0.." in text
    assert "column 0 (c) page 0" in text
