"""Damaged 2.0 files give our errors and nothing else, and never much memory."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pylance_files import OneColumn, write_with_pylance
from v2_0_files import leaf_arrays, nested_arrays, open_fields, with_nulls, write_fields

from pyspark_lance.datafile.file_metadata import FileMetadata
from pyspark_lance.errors import CorruptFileError, LanceError
from pyspark_lance.format.field import Field
from pyspark_lance.store.memory_store import MemoryStore

COUNT = 120
LEAVES = ("int32", "bool", "string", "string_few", "vector_item_nulls", "dictionary_string")
NESTED = ("list_string", "list_struct", "list_list_null", "struct")


def columns() -> dict[str, pa.Array]:
    leaves = {name: with_nulls(leaf_arrays(COUNT)[name], 0.2) for name in LEAVES}
    return leaves | {name: nested_arrays(COUNT)[name] for name in NESTED}


def stored() -> bytes:
    store = MemoryStore()
    write_fields(store, "x", columns())
    return bytes(store.get("x"))


WHOLE = stored()


def read_everything(content: bytes) -> None:
    """Read all columns, each on its own; what comes back must be sound in itself."""
    store = MemoryStore()
    store.put("x", content)
    _, readers = open_fields(store, "x")
    failure = None
    for reader in readers:
        try:
            for start, end in ((0, COUNT), (50, 61)):
                reader.byte_ranges(start, end)
                reader.read(start, end).validate()
            assert reader.average_row_bytes() >= 1
        except LanceError as error:
            failure = error
    if failure is not None:
        raise failure


def test_whole_2_0_file_is_read():
    read_everything(WHOLE)


@settings(max_examples=200)
@given(st.integers(0, len(WHOLE) - 1))
def test_truncated_2_0_file_is_corrupt(length):
    with pytest.raises(CorruptFileError):
        read_everything(WHOLE[:length])


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_raise_only_lance_errors(seed):
    rng = random.Random(seed)
    metadata_start = FileMetadata("x", len(WHOLE), *parsed()).footer.column_metadata_position
    refused = 0
    for _ in range(60):
        content = bytearray(WHOLE)
        # Most flips go where the structure is.
        low = metadata_start if rng.random() < 0.8 else 0
        for _ in range(rng.choice((1, 1, 3))):
            content[rng.randrange(low, len(content))] ^= 1 << rng.randrange(8)
        try:
            read_everything(bytes(content))
        except LanceError:
            refused += 1
    assert refused > 5


def parsed():
    from pyspark_lance.datafile.file_metadata import Footer

    view = memoryview(WHOLE)
    return Footer.from_bytes(view, len(view)), lambda start, end: view[start:end]


def test_corrupt_page_error_names_bytes_and_column():
    store = MemoryStore()
    write_fields(store, "x", {"c": pa.array(["one", "two", "three"])})
    content = bytearray(store.get("x"))
    content[0] = 200  # the end of the first string
    store.put("x", bytes(content))
    _, (reader,) = open_fields(store, "x")
    with pytest.raises(CorruptFileError) as raised:
        reader.read(0, 3)
    assert raised.value.where == "memory://store/x bytes 0..75 (column 0, page 0)"


@pytest.mark.interop
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_blobs_of_non_binary_type_are_refused(tmp_path, version):
    path = tmp_path / "x.lance"
    blobs = pa.array([b"a", b"bc", None], pa.large_binary())
    assert write_with_pylance(path, blobs, version, {"lance-encoding:blob": "true"})
    file = OneColumn.of_file(path)
    file.fields = [Field(file.fields[0].id, "c", "int32")]
    with pytest.raises(LanceError):
        file.read(0, 3)
