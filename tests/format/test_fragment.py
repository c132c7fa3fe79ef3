import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.fragment import (
    SPILLED,
    DataFile,
    ExternalFile,
    Fragment,
    fragments_from_protos,
)
from pyspark_lance.proto import table_pb2

sources = st.one_of(
    st.none(),
    st.just(SPILLED),
    st.binary(max_size=20),
    st.builds(
        ExternalFile, st.text(max_size=5), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)
    ),
)
files = st.builds(
    DataFile,
    st.sampled_from(["a.lance", "b.lance"]),
    st.just((0, 1)),
    st.just((0, 1)),
    st.just(2),
    st.just(1),
    st.integers(0, 2**40),
    st.none() | st.integers(0, 3),
)
fragments = st.builds(
    Fragment,
    st.integers(0, 2**32 - 1),
    st.lists(files, max_size=3).map(tuple),
    st.integers(10, 2**32),
    st.none()
    | st.builds(
        DeletionFile,
        st.sampled_from(DeletionFileType),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.integers(0, 10),
        st.none() | st.integers(0, 3),
    ),
    sources,
    sources,
    sources,
)


@given(st.lists(fragments, max_size=3))
def test_fragments_round_trip_through_protobuf(made):
    messages = [
        table_pb2.DataFragment.FromString(fragment.to_proto().SerializeToString())
        for fragment in made
    ]
    assert fragments_from_protos(messages) == tuple(made)


@given(fragments)
def test_fragments_pickle(fragment):
    again = pickle.loads(pickle.dumps(fragment))
    assert again == fragment
    assert (again.row_ids is SPILLED) == (fragment.row_ids is SPILLED)


def test_empty_inline_sequence_differs_from_absent():
    message = table_pb2.DataFragment(physical_rows=1)
    message.inline_row_ids = b""
    assert Fragment.from_proto(message).row_ids == b""
    assert Fragment.from_proto(message).to_proto().HasField("inline_row_ids")
    assert Fragment.from_proto(message).created_at is None


def test_sequences_are_stored_in_separate_fields():
    fragment = Fragment(0, (), 1, None, b"ids", b"created", b"updated")
    message = fragment.to_proto()
    assert message.inline_row_ids == b"ids"
    assert message.inline_created_at_versions == b"created"
    assert message.inline_last_updated_at_versions == b"updated"
    spilled = Fragment(0, (), 1, None, SPILLED, SPILLED, None).to_proto()
    assert spilled.HasField("column_row_ids")
    assert spilled.HasField("column_created_at_versions")
    assert not spilled.HasField("column_last_updated_at_versions")


def test_live_rows_exclude_deleted_rows():
    deletion = DeletionFile(DeletionFileType.BITMAP, 1, 2, 3)
    fragment = Fragment(0, (), 10, deletion)
    assert (fragment.num_deleted_rows, fragment.num_rows) == (3, 7)
    assert Fragment(0, (), 10).num_rows == 10


def test_equal_field_lists_are_shared():
    message = Fragment(0, (DataFile("a", (3, 4, 5), (0, 1, 2), 2, 1),), 1).to_proto()
    first, second = fragments_from_protos([message, message])
    assert first.files[0].fields is second.files[0].fields
    assert first.files[0].column_indices is second.files[0].column_indices


def test_overlays_are_refused_by_fragment():
    message = table_pb2.DataFragment(id=7, physical_rows=1, overlays=[b""])
    with pytest.raises(UnsupportedFeatureError, match="fragment 7 has data overlay"):
        Fragment.from_proto(message)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (table_pb2.DataFragment(id=2**32, physical_rows=1), "32 bits"),
        (table_pb2.DataFragment(physical_rows=2**33), "2\\*\\*32"),
        (
            table_pb2.DataFragment(
                physical_rows=2, deletion_file=table_pb2.DeletionFile(file_type=9)
            ),
            "type",
        ),
    ],
)
def test_contradictory_fragments_are_corrupt(message, complaint):
    with pytest.raises(CorruptFileError, match=complaint):
        Fragment.from_proto(message)
