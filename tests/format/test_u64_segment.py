import numpy as np
import pytest
from format.row_id_strategies import u64_arrays
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.u64_segment import (
    ArraySegment,
    EncodedU64Array,
    RangeSegment,
    RangeWithBitmapSegment,
    RangeWithHolesSegment,
    SortedArraySegment,
    choose_segment,
    segment_from_proto,
)
from pyspark_lance.proto import row_ids_pb2

Message = row_ids_pb2.U64Segment


def numbers(*values: int) -> EncodedU64Array:
    return EncodedU64Array.choose(np.array(values, dtype=np.uint64))


def every_shape_of(values: np.ndarray) -> list:
    """All segments that can hold ``values``, not only the one that would be chosen."""
    shapes = [ArraySegment(EncodedU64Array.choose(values)), choose_segment(values)]
    if not len(values) or not (values[1:] > values[:-1]).all():
        return shapes
    shapes.append(SortedArraySegment(EncodedU64Array.choose(values)))
    first, last = int(values[0]), int(values[-1])
    if last < 2**64 - 10 and last - first < 10_000:
        present = set(values.tolist())
        # Wider than needed on purpose: readers must not rely on tight bounds.
        start, end = max(0, first - 3), last + 4
        gone = [value for value in range(start, end) if value not in present]
        shapes.append(RangeWithHolesSegment(start, end, numbers(*gone)))
        bits = np.array([value in present for value in range(start, end)])
        bitmap = np.packbits(bits, bitorder="little").tobytes()
        shapes.append(RangeWithBitmapSegment(start, end, bitmap))
    return shapes


@given(values=u64_arrays(), data=st.data())
def test_segments_of_every_shape_equal_array_model(values, data):
    start = data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(start, len(values)))
    wanted = st.lists(st.integers(0, max(0, len(values) - 1)), max_size=8 if len(values) else 0)
    positions = np.array(data.draw(wanted), dtype=np.int64)
    for segment in every_shape_of(values):
        again = segment_from_proto(Message.FromString(segment.to_proto().SerializeToString()))
        assert again == segment
        assert hash(again) == hash(segment)
        assert len(again) == len(values)
        assert again.to_array().dtype == np.uint64
        assert again.to_array().tolist() == values.tolist()
        assert again.slice(start, end).to_array().tolist() == values[start:end].tolist()
        assert again.take(positions).tolist() == values[positions].tolist()
        expected = (int(values.min()), int(values.max())) if len(values) else None
        assert again.bounds() == expected


@pytest.mark.parametrize(
    ("values", "encoded"),
    [
        ([], "0a00"),
        ([3, 4], "0a0408031005"),
        ([v for v in range(100) if v != 50], "120c10641a080a0608321202" + "0000"),
        ([v for v in range(100) if v not in (5, 7, 9)], "121010641a0c0a0a08051206000002000400"),
        (
            [v for v in range(100) if v not in (10, 20, 30, 40)],
            "1a1110641a0dfffbefbffffeffffffffffff0f",
        ),
        ([v for v in range(99) if v % 2 == 0], "1a1110631a0d55555555555555555555555505"),
        ([0, 1, 69999], "2210120e120c00000000010000006f110100"),
        ([3, 2, 7], "2a0c0a0a08021206010000000500"),
    ],
)
def test_chosen_segments_equal_reference_writer(values, encoded):
    """Taken from the manifests that Lance wrote for these ids."""
    segment = choose_segment(np.array(values, dtype=np.uint64))
    assert segment.to_proto().SerializeToString().hex() == encoded


def test_segment_shape_changes_between_strides_16_and_17():
    sixteenth, seventeenth = (np.arange(0, 1000, step, dtype=np.uint64) for step in (16, 17))
    assert isinstance(choose_segment(sixteenth), RangeWithBitmapSegment)
    assert isinstance(choose_segment(seventeenth), SortedArraySegment)


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        # One hole of 4 bytes, or 32 bits.
        ([*range(7), *range(8, 32)], RangeWithHolesSegment),
        # Two numbers of 2 bytes, or 32 bits.
        ([5, 36], RangeWithBitmapSegment),
        ([5, 37], SortedArraySegment),
        # One hole of 4 bytes, 24 bits, or two numbers of 2 bytes.
        ([5, 7], RangeWithBitmapSegment),
    ],
)
def test_equal_sizes_choose_earlier_shape(values, shape):
    assert isinstance(choose_segment(np.array(values, np.uint64)), shape)


def test_largest_number_is_not_stored_as_range():
    values = np.array([2**64 - 2, 2**64 - 1], dtype=np.uint64)
    segment = choose_segment(values)
    assert isinstance(segment, SortedArraySegment)
    assert segment.to_array().tolist() == values.tolist()


def test_bits_count_from_least_significant():
    assert RangeWithBitmapSegment(1, 9, b"\xe1").to_array().tolist() == [1, 6, 7, 8]


@pytest.mark.parametrize(
    "message",
    [
        Message(),
        Message(range=Message.Range(start=5, end=4)),
        Message(range=Message.Range(start=0, end=2**60)),
        Message(range_with_bitmap=Message.RangeWithBitmap(start=9, end=1, bitmap=b"")),
        Message(range_with_bitmap=Message.RangeWithBitmap(start=1, end=9, bitmap=b"")),
        Message(range_with_bitmap=Message.RangeWithBitmap(start=1, end=9, bitmap=b"\x01\x00")),
        Message(range_with_bitmap=Message.RangeWithBitmap(start=1, end=8, bitmap=b"\x81")),
        Message(range_with_bitmap=Message.RangeWithBitmap(start=0, end=2**63, bitmap=b"\x81")),
        Message(
            range_with_holes=Message.RangeWithHoles(start=5, end=9, holes=numbers(4).to_proto())
        ),
        Message(
            range_with_holes=Message.RangeWithHoles(start=5, end=9, holes=numbers(9).to_proto())
        ),
        Message(
            range_with_holes=Message.RangeWithHoles(start=5, end=9, holes=numbers(7, 6).to_proto())
        ),
        Message(
            range_with_holes=Message.RangeWithHoles(start=5, end=9, holes=numbers(6, 6).to_proto())
        ),
        Message(range_with_holes=Message.RangeWithHoles(end=2**60, holes=numbers(6).to_proto())),
        Message(sorted_array=numbers(2, 1).to_proto()),
        Message(array=row_ids_pb2.EncodedU64Array()),
    ],
)
def test_invalid_segments_are_corrupt(message):
    # The shape must be there in the bytes, too, or the case would test another one.
    with pytest.raises(CorruptFileError):
        segment_from_proto(Message.FromString(message.SerializeToString()))


@pytest.mark.parametrize("positions", [(-1, 2), (2, 1), (0, 5)])
def test_slices_outside_segment_are_refused(positions):
    for segment in (RangeSegment(0, 4), ArraySegment(numbers(3, 2, 7, 1))):
        with pytest.raises(InvalidInputError):
            segment.slice(*positions)
