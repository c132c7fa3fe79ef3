import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.fragment import TOMBSTONE, DataFile, new_data_file_name
from pyspark_lance.proto import table_pb2

ids = st.integers(-5, 2**31 - 1)


@given(
    pairs=st.lists(st.tuples(ids, st.integers(-1, 1000)), max_size=6),
    size=st.integers(0, 2**64 - 1),
    base_id=st.none() | st.integers(0, 2**32 - 1),
)
def test_data_file_round_trips_through_protobuf(pairs, size, base_id):
    file = DataFile(
        "0101.lance",
        tuple(field for field, _ in pairs),
        tuple(column for _, column in pairs),
        2,
        1,
        size,
        base_id,
    )
    data = file.to_proto().SerializeToString()
    assert DataFile.from_proto(table_pb2.DataFile.FromString(data)) == file


def test_base_id_zero_differs_from_absent_base():
    with_base = DataFile("x", (0,), (0,), 2, 1, base_id=0).to_proto()
    without = DataFile("x", (0,), (0,), 2, 1).to_proto()
    assert with_base.HasField("base_id")
    assert not without.HasField("base_id")


@pytest.mark.parametrize(
    ("major", "minor", "version"),
    [(0, 2, "0.1"), (0, 3, "2.0"), (2, 0, "2.0"), (2, 1, "2.1"), (2, 2, "2.2"), (2, 3, "2.3")],
)
def test_file_versions_have_lance_names(major, minor, version):
    assert DataFile("x", (0,), (0,), major, minor).file_version == version


def test_field_and_column_counts_must_match():
    legacy = table_pb2.DataFile(path="x", fields=[0, TOMBSTONE], file_minor_version=2)
    assert DataFile.from_proto(legacy).column_indices == ()
    with pytest.raises(CorruptFileError, match="2 fields and 1 columns"):
        DataFile.from_proto(table_pb2.DataFile(path="x", fields=[0, 1], column_indices=[0]))


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x.lance", "a/../../x", "a\0b"])
def test_paths_outside_data_folder_are_corrupt(path):
    with pytest.raises(CorruptFileError, match="path"):
        DataFile.from_proto(table_pb2.DataFile(path=path))


@pytest.mark.parametrize("path", ["a..b.lance", "sub/x.lance", "..x"])
def test_unusual_paths_are_accepted(path):
    assert DataFile.from_proto(table_pb2.DataFile(path=path)).path == path


def test_new_file_names_encode_uuid():
    name = new_data_file_name(uuid.UUID("e3000000-0000-4000-8000-0000000000ff").bytes)
    assert re.fullmatch(r"[01]{24}[0-9a-f]{26}\.lance", name)
    assert name.startswith("11100011" + "00000000" * 2)
    assert name.endswith("00400080000000000000ff.lance")
