import pytest

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.fragment import ExternalFile
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.table.rows.lineage import read_sequence


@pytest.fixture
def store():
    store = MemoryStore("memory://t")
    store.put("rids.bin", b"xxsequence")
    return store


def test_sequence_is_read_from_its_range(store):
    assert read_sequence(store, ExternalFile("rids.bin", 2, 8)) == b"sequence"
    assert read_sequence(store, ExternalFile("rids.bin", 10, 0)) == b""


@pytest.mark.parametrize(
    "file",
    [
        ExternalFile("rids.bin", 2, 9),
        ExternalFile("rids.bin", 2**64 - 1, 2**64 - 1),
        ExternalFile("missing.bin", 0, 1),
        ExternalFile("../rids.bin", 0, 1),
        ExternalFile("", 0, 1),
    ],
)
def test_sequence_outside_file_error_names_range(store, file):
    with pytest.raises(CorruptFileError, match=f"bytes {file.offset}"):
        read_sequence(store, file)
