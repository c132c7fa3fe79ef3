import pickle

import numpy as np
import pytest
from format.row_id_strategies import damaged
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, DeletionVector
from pyspark_lance.proto import table_pb2

offset_sets = st.sets(
    st.one_of(st.integers(0, 100), st.integers(65_530, 65_540), st.integers(0, 2**32 - 1)),
    max_size=40,
)


@given(chosen=offset_sets)
def test_deletion_vector_round_trips(chosen):
    vector = DeletionVector.of(list(chosen))
    again = DeletionVector.from_bitmap_bytes(vector.to_bitmap_bytes())
    assert again == vector == pickle.loads(pickle.dumps(vector))
    assert hash(again) == hash(vector)
    assert again.to_array().dtype == np.uint32
    assert again.to_array().tolist() == sorted(chosen)
    assert len(again) == len(chosen)
    assert again.is_empty == (not chosen)
    assert again.max_offset == max(chosen, default=None)


@given(one=offset_sets, two=offset_sets, start=st.integers(0, 70_000), length=st.integers(0, 200))
def test_operations_equal_python_sets(one, two, start, length):
    a, b = DeletionVector.of(list(one)), DeletionVector.of(list(two))
    assert a.union(b).to_array().tolist() == sorted(one | two)
    assert a.intersection(b).to_array().tolist() == sorted(one & two)
    assert a.difference(b).to_array().tolist() == sorted(one - two)
    assert a.intersects(b) == bool(one & two)
    window = range(start, start + length)
    assert a.keep_mask(start, start + length).tolist() == [o not in one for o in window]
    assert a.slice_array(start, start + length).tolist() == sorted(one & set(window))
    asked = np.array([*two, *two, *list(one)[:5]], dtype=np.uint32)
    assert a.contains_each(asked).tolist() == [o in one for o in asked.tolist()]
    assert all(offset in a for offset in one)


def test_bitmap_bytes_equal_reference_writer():
    assert DeletionVector.empty().to_bitmap_bytes().hex() == "3a30000000000000"
    encoded = bytes.fromhex("3a30000001000000000001001000000000000100")
    assert DeletionVector.from_bitmap_bytes(encoded).to_array().tolist() == [0, 1]
    assert DeletionVector.of([1, 0]).to_bitmap_bytes() == encoded


def test_run_containers_are_read():
    bitmap = BitMap(range(10_000))
    bitmap.run_optimize()
    assert len(DeletionVector.from_bitmap_bytes(bitmap.serialize())) == 10_000


@given(chosen=offset_sets, run_containers=st.booleans(), data=st.data())
def test_damaged_bitmaps_are_corrupt_or_valid_sets(chosen, run_containers, data):
    bitmap = BitMap(chosen)
    if run_containers:
        bitmap.add_range(500, 9_000)
        bitmap.run_optimize()
    try:
        vector = DeletionVector.from_bitmap_bytes(data.draw(damaged(bitmap.serialize())))
    except CorruptFileError:
        return
    found = vector.to_array().tolist()
    assert found == sorted(set(found))
    assert len(found) == len(vector)


def test_trailing_bytes_are_corrupt():
    with pytest.raises(CorruptFileError):
        DeletionVector.from_bitmap_bytes(DeletionVector.of([1]).to_bitmap_bytes() + b"\0")


@pytest.mark.parametrize("offsets", [[-1], [2**32], [0.5]])
def test_offsets_beyond_32_bits_are_refused(offsets):
    with pytest.raises(InvalidInputError):
        DeletionVector.of(offsets)


def test_deletion_vector_is_immutable():
    vector = DeletionVector.of([1])
    with pytest.raises(ValueError, match="read-only"):
        vector.to_array()[0] = 2
    assert not hasattr(vector.bitmap, "add")


@pytest.mark.parametrize(
    ("deletion_file", "suffix"),
    [
        (DeletionFile(DeletionFileType.ARROW_ARRAY, 3, 2**63, 12), "arrow"),
        (DeletionFile(DeletionFileType.BITMAP, 2**63 + 1, 1, 5000, 0), "bin"),
    ],
)
def test_deletion_files_round_trip_through_protobuf(deletion_file, suffix):
    data = deletion_file.to_proto().SerializeToString()
    assert DeletionFile.from_proto(table_pb2.DeletionFile.FromString(data)) == deletion_file
    assert deletion_file.suffix == suffix


def test_unknown_deletion_file_type_is_corrupt():
    with pytest.raises(CorruptFileError, match="type is 2"):
        DeletionFile.from_proto(table_pb2.DeletionFile(file_type=2))


@pytest.mark.parametrize("file_type", [0, 1, True, "BITMAP", None])
def test_deletion_file_requires_known_type(file_type):
    with pytest.raises(InvalidInputError, match="not a DeletionFileType"):
        DeletionFile(file_type, 1, 2, 3)
