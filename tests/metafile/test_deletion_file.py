import random

import numpy as np
import pyarrow as pa
import pytest
from damage import bit_flips, splices, survive_every, truncations
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, DeletionVector
from pyspark_lance.metafile.deletion_file import (
    BITMAP_THRESHOLD,
    read_deletion_file,
    write_deletion_file,
)
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.memory_store import MemoryStore

ARROW, BITMAP = DeletionFileType.ARROW_ARRAY, DeletionFileType.BITMAP
FIELD = pa.field("row_id", pa.uint32(), nullable=False)


def write(offsets, fragment_id=3):
    store = MemoryStore("memory://t")
    file = write_deletion_file(store, fragment_id, 7, DeletionVector.of(offsets), id=2**64 - 1)
    return store, file


def read_bytes(data, count, *, kind=ARROW, rows=1000):
    store = MemoryStore("memory://t")
    file = DeletionFile(kind, 1, 5, count)
    store.put(deletion_path(0, file), data)
    return read_deletion_file(store, 0, file, rows)


def ipc(*batches, field=FIELD, compression=None, metadata=None):
    """An Arrow file; a batch is a list of offsets or an array."""
    schema = pa.schema([field], metadata=metadata)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for batch in batches:
            array = batch if isinstance(batch, pa.Array) else pa.array(batch, field.type)
            writer.write_batch(pa.record_batch([array], schema=schema))
    return sink.getvalue().to_pybytes()


@settings(max_examples=50)
@given(st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=200))
def test_deletion_file_round_trips(offsets):
    store, file = write(sorted(offsets))
    vector = read_deletion_file(store, 3, file, 2**32)
    assert vector.to_array().tolist() == sorted(offsets)
    assert file.num_deleted_rows == len(offsets)


@pytest.mark.parametrize(
    ("count", "kind"), [(1, ARROW), (BITMAP_THRESHOLD - 1, ARROW), (BITMAP_THRESHOLD, BITMAP)]
)
def test_deletion_file_encoding_follows_set_size(count, kind):
    offsets = random.Random(0).sample(range(100_000), count)
    store, file = write(offsets)
    assert file.file_type is kind
    name = f"_deletions/3-7-18446744073709551615.{'bin' if kind is BITMAP else 'arrow'}"
    assert [info.path for info in store.list("")] == [name]
    assert read_deletion_file(store, 3, file, 100_000).to_array().tolist() == sorted(offsets)


def test_arrow_deletion_files_are_sorted_compressed_and_required():
    store, file = write([5, 1, 3, *range(100, 1100)])
    data = bytes(store.get(deletion_path(3, file)))
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        assert reader.schema.equals(pa.schema([FIELD]), check_metadata=True)
        assert reader.num_record_batches == 1
        assert reader.get_batch(0).column(0).to_pylist() == [1, 3, 5, *range(100, 1100)]
    assert len(data) < 4 * 1003


def test_empty_deletion_set_is_refused():
    with pytest.raises(InvalidInputError, match="fragment 3"):
        write([])


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_arrow_files_of_any_form_are_read(compression):
    offsets = random.Random(1).sample(range(1000), 500)
    data = ipc(offsets, compression=compression, metadata={"k": "v"})
    assert read_bytes(data, 500).to_array().tolist() == sorted(offsets)
    assert read_bytes(ipc([7], compression=compression), 1).to_array().tolist() == [7]


def test_sliced_arrays_and_validity_buffers_are_read():
    sliced = pa.array([9, 1, 2, 3], pa.uint32()).slice(1, 2)
    assert read_bytes(ipc(sliced), 2).to_array().tolist() == [1, 2]
    values = pa.py_buffer(np.array([4, 5], np.uint32))
    valid = pa.Array.from_buffers(pa.uint32(), 2, [pa.py_buffer(b"\x03"), values])
    assert read_bytes(ipc(valid), 2).to_array().tolist() == [4, 5]


def test_bitmaps_with_run_containers_are_read():
    bitmap = BitMap(range(100, 900))
    bitmap.run_optimize()
    vector = read_bytes(bitmap.serialize(), 800, kind=BITMAP)
    assert vector.to_array().tolist() == list(range(100, 900))


def test_file_type_alone_selects_parser():
    bitmap = BitMap([1, 2]).serialize()
    assert len(read_bytes(bitmap, 2, kind=BITMAP)) == 2
    with pytest.raises(CorruptFileError):
        read_bytes(bitmap, 2, kind=ARROW)
    with pytest.raises(CorruptFileError):
        read_bytes(ipc([1, 2]), 2, kind=BITMAP)


NULLABLE = pa.field("row_id", pa.uint32())


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (ipc([1, 2], field=NULLABLE), "nullable"),
        (ipc([1, 2], field=pa.field("rowid", pa.uint32(), False)), "'rowid'"),
        (ipc([1, 2], field=pa.field("row_id", pa.int32(), False)), "uint32"),
        (ipc([1, 2], field=pa.field("row_id", pa.uint64(), False)), "uint32"),
        (ipc([1, 2], field=pa.field("row_id", pa.float32(), False)), "uint32"),
        (
            ipc(
                pa.array([1, 2]).dictionary_encode().cast(pa.dictionary(pa.int32(), pa.uint32())),
                field=pa.field("row_id", pa.dictionary(pa.int32(), pa.uint32()), False),
            ),
            "uint32",
        ),
        (ipc([1], [2]), "2 batches"),
        (ipc(), "0 batches"),
        (ipc([1, 1]), "1 different"),
        (ipc([1, 2, 3]), "3 values"),
        (ipc([1]), "1 values"),
        (ipc([1, 1000]), "row 1000"),
        (b"", "magic"),
        (b"ARROW1", "magic"),
        (b"ARROW1\0\0" + bytes(100) + b"ARROW1", "Arrow"),
    ],
)
def test_malformed_arrow_file_error_names_file(data, complaint):
    with pytest.raises(CorruptFileError, match=complaint) as caught:
        read_bytes(data, 2)
    assert caught.value.where == "memory://t/_deletions/0-1-5.arrow"


def test_nulls_are_refused_despite_required_schema():
    # pyarrow writes nulls into a column that is not nullable.
    with pytest.raises(CorruptFileError, match="1 nulls in a batch of 2 rows"):
        read_bytes(ipc(pa.array([1, None], pa.uint32())), 2)


def test_second_column_is_corrupt():
    two_columns = pa.BufferOutputStream()
    table = pa.table([[1], [2]], schema=pa.schema([FIELD, FIELD.with_name("x")]))
    with pa.ipc.new_file(two_columns, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(CorruptFileError, match="2 columns"):
        read_bytes(two_columns.getvalue().to_pybytes(), 1)


def test_bitmap_must_match_manifest():
    data = BitMap([1, 2]).serialize()
    with pytest.raises(CorruptFileError, match="the manifest says 3"):
        read_bytes(data, 3, kind=BITMAP)
    with pytest.raises(CorruptFileError, match="row 2 is deleted in a fragment of 2 rows"):
        read_bytes(data, 2, kind=BITMAP, rows=2)


def test_bitmap_of_four_billion_rows_is_not_expanded():
    full = BitMap()
    full.add_range(0, 2**32)
    full.run_optimize()
    with pytest.raises(CorruptFileError, match="4294967296 offsets"):
        read_bytes(full.serialize(), 10, kind=BITMAP)


def test_false_buffer_size_is_corrupt():
    data = ipc(list(range(500)), compression="zstd")
    size = (4 * 500).to_bytes(8, "little")
    assert data.count(size) == 1
    for claim in (2**40, 2**62, 4 * 500 + 65, 4 * 500 - 1, -2):
        huge = data.replace(size, claim.to_bytes(8, "little", signed=True))
        with pytest.raises(CorruptFileError, match="expand"):
            read_bytes(huge, 500)


def test_missing_deletion_file_raises_file_not_found():
    with pytest.raises(FileNotFoundError):
        read_deletion_file(MemoryStore(), 0, DeletionFile(ARROW, 1, 5, 2), 10)


@pytest.mark.parametrize(
    ("data", "count", "kind"),
    [
        (ipc([3, 1, 2]), 3, ARROW),
        (ipc(list(range(500)), compression="zstd"), 500, ARROW),
        (ipc(list(range(500)), compression="lz4"), 500, ARROW),
        (BitMap(range(0, 900, 3)).serialize(), 300, BITMAP),
    ],
    ids=["stored", "zstd", "lz4", "bitmap"],
)
def test_damaged_deletion_files_are_refused_or_read(data, count, kind):
    def read(damaged):
        read_bytes(damaged, count, kind=kind).to_array()

    cuts = list(truncations(data))
    assert survive_every(cuts, read) == len(cuts)
    assert survive_every(bit_flips(data, 600), read) > 50
    assert survive_every(splices(data, 600), read) > 200


@pytest.mark.interop
@pytest.mark.parametrize("count", [1, 3, 4999, 5000, 9000])
def test_pylance_reads_deletion_files(count, tmp_path):
    """A deletion file of pylance is replaced by ours; the rows that are left are the same."""
    import lance

    root = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(10_000)}), root)
    deleted = sorted(random.Random(count).sample(range(10_000), count))
    lance.dataset(root).delete(f"id in ({', '.join(map(str, deleted))})")
    (path,) = (tmp_path / "t.lance" / "_deletions").iterdir()
    fragment_id, read_version, file_id = map(int, path.stem.split("-"))
    path.unlink()

    from pyspark_lance.store.local_store import LocalStore

    store = LocalStore(root)
    vector = DeletionVector.of(deleted)
    file = write_deletion_file(store, fragment_id, read_version, vector, id=file_id)
    assert (tmp_path / "t.lance" / deletion_path(fragment_id, file)) == path
    left = lance.dataset(root, session=lance.Session()).to_table()["id"].to_pylist()
    assert left == sorted(set(range(10_000)) - set(deleted))


def test_local_deletion_file_is_cached_until_replaced(tmp_path, monkeypatch):
    store, reads = LocalStore(str(tmp_path)), []
    tail = LocalStore.get_tail
    monkeypatch.setattr(
        LocalStore, "get_tail", lambda self, *wanted: reads.append(wanted) or tail(self, *wanted)
    )
    file = DeletionFile(ARROW, 7, 9, 2)
    store.put(deletion_path(3, file), ipc([1, 5]))
    for opened in (store, LocalStore(str(tmp_path))):
        assert read_deletion_file(opened, 3, file, 100).to_array().tolist() == [1, 5]
    assert len(reads) == 1
    with pytest.raises(CorruptFileError, match="row 5 is deleted in a fragment of 4 rows"):
        read_deletion_file(store, 3, file, 4)
    write_deletion_file(store, 3, 7, DeletionVector.of([2, 6]), id=9)
    assert read_deletion_file(store, 3, file, 100).to_array().tolist() == [2, 6]
    assert len(reads) == 2
    with pytest.raises(CorruptFileError, match="row 6 is deleted in a fragment of 4 rows"):
        read_deletion_file(store, 3, file, 4)
    store.delete(deletion_path(3, file))
    with pytest.raises(FileNotFoundError):
        read_deletion_file(store, 3, file, 100)


class PlacedStore(MemoryStore):
    """What is read of it may be kept, as of an object store; counts reads."""

    def __init__(self, place):
        super().__init__("s3://bucket/t")
        self.cache_key, self.reads = place, 0

    def get(self, path):
        self.reads += 1
        return super().get(path)


def test_remote_deletion_file_is_cached_per_credentials():
    mine, other = PlacedStore(("here", "me")), PlacedStore(("here", "you"))
    file = DeletionFile(ARROW, 7, 11, 2)
    for store, offsets in ((mine, [1, 5]), (other, [2, 6])):
        store.put(deletion_path(3, file), ipc(offsets))
        for _ in range(2):
            assert read_deletion_file(store, 3, file, 100).to_array().tolist() == offsets
        assert store.reads == 1
    with pytest.raises(CorruptFileError, match="row 5 is deleted in a fragment of 4 rows"):
        read_deletion_file(mine, 3, file, 4)
    mine.put(deletion_path(3, file), b"damaged")
    assert read_deletion_file(mine, 3, file, 100).to_array().tolist() == [1, 5]
    with pytest.raises(CorruptFileError):
        read_deletion_file(mine, 3, file, 100, may_be_known=False)


def test_written_deletion_file_is_cached():
    store = PlacedStore(("here", "writer"))
    file = write_deletion_file(store, 3, 7, DeletionVector.of([2, 6]), id=12)
    assert read_deletion_file(store, 3, file, 100).to_array().tolist() == [2, 6]
    assert store.reads == 0


def test_local_deletion_files_of_any_size_round_trip(tmp_path):
    store = LocalStore(str(tmp_path))
    for number, count in enumerate((1, 4999, 20_000, 60_000)):
        offsets = np.arange(count, dtype=np.uint32) * 17
        file = write_deletion_file(store, number, 1, DeletionVector.of(offsets), id=number + 1)
        found = read_deletion_file(LocalStore(str(tmp_path)), number, file, 17 * 60_000)
        assert found.to_array().tolist() == offsets.tolist()
    assert store.size(deletion_path(number, file)) > 1 << 16
