"""Many ranges at once: the same bytes, values and errors as by the protobuf library."""

from __future__ import annotations

import numpy as np
import pytest
from format.row_id_strategies import damaged
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format import row_id_sequence, version_sequence
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.u64_segment import MAX_ROWS, RangeSegment
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.format.wire import Ranges, decode_ranges, encode_ranges
from pyspark_lance.proto import row_ids_pb2

NUMBERS = st.one_of(
    st.sampled_from([0, 1, 9, 10, 16, 127, 128, 2**14, 2**21 - 1, 2**32, 2**63, 2**64 - 1]),
    st.integers(0, 2**64 - 1),
)
COUNTS = st.one_of(st.integers(0, 300), st.just(MAX_ROWS))
RANGES = st.lists(st.tuples(NUMBERS, COUNTS, NUMBERS), min_size=1, max_size=20).map(
    lambda found: [(low, min(low + count, 2**64 - 1), version) for low, count, version in found]
)


def columns(ranges, *, versions):
    starts, ends, numbers = np.array(ranges, dtype=np.uint64).T
    return Ranges(starts, ends, numbers if versions else None)


def message_of(ranges, *, versions):
    if versions:
        message = row_ids_pb2.RowDatasetVersionSequence()
        segments = [message.runs.add(version=version).span for _, _, version in ranges]
    else:
        message = row_ids_pb2.RowIdSequence()
        segments = [message.segments.add() for _ in ranges]
    for segment, (start, end, _) in zip(segments, ranges, strict=True):
        segment.range.SetInParent()
        segment.range.start, segment.range.end = start, end
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize("versions", [False, True])
@given(ranges=RANGES)
def test_range_messages_equal_protobuf_library(versions, ranges):
    data = message_of(ranges, versions=versions)
    assert encode_ranges(columns(ranges, versions=versions)) == data
    found = decode_ranges(data, versions=versions)
    assert found.starts.tolist() == [start for start, _, _ in ranges]
    assert found.ends.tolist() == [end for _, end, _ in ranges]
    if versions:
        assert found.versions.tolist() == [version for _, _, version in ranges]


def outcome(kind, data):
    try:
        return kind.from_bytes(data)
    except CorruptFileError as error:
        return str(error)


@pytest.mark.parametrize("versions", [False, True])
@given(ranges=RANGES, data=st.data())
def test_damaged_ranges_decode_like_protobuf_library(versions, ranges, data):
    broken = data.draw(damaged(message_of(ranges, versions=versions)))
    kind = RowDatasetVersionSequence if versions else RowIdSequence
    module = version_sequence if versions else row_id_sequence
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WORTHWHILE_BYTES", 1)
        fast = outcome(kind, broken)
        patch.setattr(module, "WORTHWHILE_BYTES", 1 << 40)
        assert fast == outcome(kind, broken)


@pytest.mark.parametrize("versions", [False, True])
@given(data=st.binary(min_size=1, max_size=40))
@example(data=bytes.fromhex("0a080a040a0210021001"))
@example(data=bytes.fromhex("0a090a050a038a00021001"))  # a tag of two bytes
@example(data=bytes.fromhex("0a040a020a80"))
def test_arbitrary_bytes_decode_only_as_ranges(versions, data):
    found = decode_ranges(data, versions=versions)
    if found is not None:
        kind = row_ids_pb2.RowDatasetVersionSequence if versions else row_ids_pb2.RowIdSequence
        parsed = kind.FromString(data)
        spans = [run.span for run in parsed.runs] if versions else parsed.segments
        assert all(span.WhichOneof("segment") == "range" for span in spans)
        assert [(span.range.start, span.range.end) for span in spans] == list(
            zip(found.starts.tolist(), found.ends.tolist(), strict=True)
        )


@pytest.mark.parametrize("count", [1, 15, 16, 17, 4000])
def test_sequences_of_any_length_keep_their_bytes(count):
    ranges = [(3 * row, 3 * row + 1 + row % 2, 1 + row % 700) for row in range(count)]
    ids = RowIdSequence(tuple(RangeSegment(start, end) for start, end, _ in ranges))
    assert ids.to_bytes() == message_of(ranges, versions=False)
    assert RowIdSequence.from_bytes(ids.to_bytes()) == ids
    lengths = [end - start for start, end, _ in ranges]
    ends = np.cumsum(lengths).tolist()
    versions = np.array([version for _, _, version in ranges], np.uint64)
    runs = RowDatasetVersionSequence(np.array(ends), versions)
    spans = [(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    expected = [(*span, version) for span, (_, _, version) in zip(spans, ranges, strict=True)]
    assert runs.to_bytes() == message_of(expected, versions=True)
    assert RowDatasetVersionSequence.from_bytes(runs.to_bytes()) == runs
