import uuid

import pytest
from damage import refuse_every, splices, survive_every, truncations
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.index_metadata import (
    FragmentDigest,
    IndexMetadata,
    ReuseGroup,
    ReuseVersion,
    current_coverage,
    indices_from_section,
    section_of_indices,
)
from pyspark_lance.format.wire import length_delimited, wire_fields
from pyspark_lance.proto import table_pb2

ID = uuid.UUID("cf0ae5d2-0000-4000-8000-000000007f03")


def message(**changes):
    fields = {
        "uuid": table_pb2.Uuid(uuid=ID.bytes),
        "fields": [3],
        "name": "id_idx",
        "dataset_version": 7,
        "fragment_bitmap": BitMap([0, 4]).serialize(),
        "index_details": table_pb2.AnyMessage(type_url="/lance.table.BTreeIndexDetails"),
        "index_version": 1,
        "created_at": 1_700_000_000_000,
        "files": [table_pb2.IndexFile(path="page_data.lance", size_bytes=10)],
    }
    return table_pb2.IndexMetadata(**(fields | changes))


def test_index_entry_is_decoded():
    entry = IndexMetadata.from_bytes(message(base_id=0).SerializeToString())
    assert entry.uuid == ID
    assert entry.name == "id_idx"
    assert entry.fields == (3,)
    assert entry.dataset_version == 7
    assert entry.fragment_bitmap == BitMap([0, 4])
    assert entry.details_type == "/lance.table.BTreeIndexDetails"
    assert entry.base_id == 0


def test_absent_coverage_differs_from_empty():
    for unknown in (b"", None):
        raw = message(fragment_bitmap=unknown).SerializeToString()
        assert IndexMetadata.from_bytes(raw).fragment_bitmap is None
    empty = message(fragment_bitmap=BitMap().serialize()).SerializeToString()
    assert IndexMetadata.from_bytes(empty).fragment_bitmap == BitMap()


@given(
    coverage=st.sets(st.integers(0, 2**32 - 1), max_size=20),
    before=st.binary(max_size=8),
    after=st.binary(max_size=8),
)
def test_new_coverage_preserves_other_bytes(coverage, before, after):
    unknown = length_delimited(60, before), length_delimited(61, after)
    raw = unknown[0] + message().SerializeToString() + unknown[1]
    changed = IndexMetadata.from_bytes(raw).with_fragment_bitmap(BitMap(coverage))
    assert changed.fragment_bitmap == BitMap(coverage)
    again = IndexMetadata.from_bytes(changed.raw)
    assert again == changed

    def others(data):
        return [data[field.start : field.end] for field in wire_fields(data) if field.number != 5]

    assert others(changed.raw) == others(raw)


def test_empty_coverage_is_written_as_empty_bitmap():
    entry = IndexMetadata.from_bytes(message().SerializeToString())
    emptied = entry.with_fragment_bitmap(BitMap())
    assert bytes.fromhex("2a08 3a30000000000000") in emptied.raw
    assert IndexMetadata.from_bytes(entry.with_fragment_bitmap(None).raw).fragment_bitmap is None


def test_coverage_is_added_if_absent():
    entry = IndexMetadata.from_bytes(message(fragment_bitmap=None).SerializeToString())
    added = entry.with_fragment_bitmap(BitMap([1]))
    assert added.raw == message(fragment_bitmap=BitMap([1]).serialize()).SerializeToString()


@pytest.mark.parametrize(
    ("covered", "now"), [([1, 2, 7], [5, 7]), ([1, 7], [7]), ([2], []), ([7], [7])]
)
def test_index_covers_what_all_of_its_fragments_became(covered, now):
    old, new = (tuple(FragmentDigest(n, 3, 0) for n in ids) for ids in ((1, 2), (5,)))
    versions = (ReuseVersion(1, (ReuseGroup(b"", old, new),)),)
    assert current_coverage(BitMap(covered), versions) == BitMap(now)


def test_index_section_round_trips_byte_for_byte():
    raws = [length_delimited(77, b"x") + message(name=name).SerializeToString() for name in "abc"]
    section = b"".join(length_delimited(1, raw) for raw in raws)
    entries = indices_from_section(section)
    assert [entry.name for entry in entries] == ["a", "b", "c"]
    assert section_of_indices(entries) == section
    assert indices_from_section(b"") == ()


def test_index_entry_without_valid_uuid_is_corrupt():
    for broken in (None, table_pb2.Uuid(uuid=b"short")):
        with pytest.raises(CorruptFileError, match="16"):
            IndexMetadata.from_bytes(message(uuid=broken).SerializeToString())


def test_damaged_index_sections_are_refused_or_read():
    section = section_of_indices([IndexMetadata.from_bytes(message().SerializeToString())])
    refuse_every((cut for cut in truncations(section) if cut), indices_from_section)
    assert survive_every(splices(section, 500), indices_from_section) > 100
