import pickle

import numpy as np
import pytest
from format.row_id_strategies import u64_arrays
from hypothesis import given

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.u64_segment import EncodedU64Array
from pyspark_lance.proto import row_ids_pb2

Message = row_ids_pb2.EncodedU64Array


@given(values=u64_arrays())
def test_chosen_array_encoding_round_trips(values):
    encoded = EncodedU64Array.choose(values)
    again = EncodedU64Array.from_proto(Message.FromString(encoded.to_proto().SerializeToString()))
    assert again == encoded
    assert hash(again) == hash(encoded)
    assert again.to_array().tolist() == values.tolist()
    assert len(again) == len(values)


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([], 8),
        ([5], 2),
        ([2**64 - 1], 2),
        ([7, 7 + 65535], 2),
        ([7, 7 + 65536], 4),
        ([7, 7 + 2**32 - 1], 4),
        ([7, 7 + 2**32], 8),
    ],
)
def test_array_width_follows_value_spread(values, width):
    encoded = EncodedU64Array.choose(np.array(values, dtype=np.uint64))
    assert encoded.offsets.dtype.itemsize == width
    assert encoded.base == (min(values) if values and width < 8 else 0)


def test_offsets_are_little_endian():
    message = Message(u16_array=Message.U16Array(base=2, offsets=bytes.fromhex("010000000500")))
    assert EncodedU64Array.from_proto(message).to_array().tolist() == [3, 2, 7]
    message = Message(u32_array=Message.U32Array(base=1, offsets=bytes.fromhex("00010000")))
    assert EncodedU64Array.from_proto(message).to_array().tolist() == [257]
    message = Message(u64_array=Message.U64Array(values=bytes.fromhex("0100000000000080")))
    assert EncodedU64Array.from_proto(message).to_array().tolist() == [2**63 + 1]


@pytest.mark.parametrize(
    "message",
    [
        Message(),
        Message(u16_array=Message.U16Array(offsets=b"abc")),
        Message(u32_array=Message.U32Array(offsets=b"abcdef")),
        Message(u64_array=Message.U64Array(values=b"abcd")),
        Message(u16_array=Message.U16Array(base=2**64 - 1, offsets=b"\x01\x00")),
        Message(u32_array=Message.U32Array(base=2**64 - 2**31, offsets=b"\x00\x00\x00\x80")),
    ],
)
def test_invalid_array_messages_are_corrupt(message):
    with pytest.raises(CorruptFileError):
        EncodedU64Array.from_proto(message)


def test_encoded_arrays_are_read_only_copies():
    mine = np.array([1, 2], dtype="<u2")
    encoded = EncodedU64Array(10, mine)
    mine[0] = 9
    assert encoded.to_array().tolist() == [11, 12]
    for array in (encoded, pickle.loads(pickle.dumps(encoded))):
        assert array == encoded
        with pytest.raises(ValueError, match="read-only"):
            array.offsets[0] = 3
