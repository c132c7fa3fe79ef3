"""Encodings of 2.0 pages on their own: round trips, and those that no available writer makes."""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_lance.codec.v2_0.array_encoding import (
    encode_array,
    encode_list_offsets,
    make_decoder,
    make_list_decoder,
    parse_array_encoding,
)
from pyspark_lance.codec.v2_0.flat import BufferCollector, BufferSlice, bit_slice
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.proto import encodings_v2_0_pb2 as pb


class Buffers:
    """Page buffers in memory that count what is read."""

    def __init__(self, buffers) -> None:
        self.buffers = [
            bytes(memoryview(buffer).cast("B")) if memoryview(buffer).nbytes else b""
            for buffer in buffers
        ]
        self.bytes_read = 0

    def size(self, index: int) -> int:
        if index >= len(self.buffers):
            raise CorruptFileError(f"no buffer {index}")
        return len(self.buffers[index])

    def read(self, wanted: BufferSlice) -> pa.Buffer:
        assert 0 <= wanted.start <= wanted.end <= self.size(wanted.buffer)
        self.bytes_read += wanted.end - wanted.start
        return pa.py_buffer(self.buffers[wanted.buffer][wanted.start : wanted.end])


def flat(bits: int, index: int = 0, scheme: str = "") -> pb.ArrayEncoding:
    message = pb.Flat(bits_per_value=bits, buffer=pb.Buffer(buffer_index=index))
    if scheme:
        message.compression.scheme = scheme
    return pb.ArrayEncoding(flat=message)


def binary(adjustment: int = 0, scheme: str = "") -> pb.ArrayEncoding:
    return pb.ArrayEncoding(
        binary=pb.Binary(indices=flat(64, 0), bytes=flat(8, 1, scheme), null_adjustment=adjustment)
    )


def decode(encoding, kind, count, buffers, start=0, end=None) -> pa.Array:
    found = make_decoder(encoding, kind, count, Buffers(buffers)).decode(
        start, count if end is None else end
    )
    found.validate(full=True)
    return found


VALUES = st.one_of(
    st.tuples(st.just(pa.int32()), st.lists(st.none() | st.integers(-9, 9))),
    st.tuples(st.just(pa.bool_()), st.lists(st.none() | st.booleans())),
    st.tuples(st.just(pa.string()), st.lists(st.none() | st.text(max_size=4))),
    st.tuples(st.just(pa.large_string()), st.lists(st.none() | st.text(max_size=4))),
    st.tuples(st.just(pa.binary(3)), st.lists(st.none() | st.binary(min_size=3, max_size=3))),
    st.tuples(
        st.just(pa.dictionary(pa.int8(), pa.string())),
        st.lists(st.none() | st.sampled_from(["a", "b", ""])),
    ),
    st.tuples(
        st.just(pa.list_(pa.list_(pa.bool_(), 2), 3)),
        st.lists(
            st.none()
            | st.lists(
                st.none() | st.lists(st.none() | st.booleans(), min_size=2, max_size=2),
                min_size=3,
                max_size=3,
            )
        ),
    ),
)


@settings(max_examples=200)
@given(VALUES, st.data())
def test_any_range_of_any_array_decodes(typed, data):
    array = pa.array(typed[1], typed[0])
    array = array[data.draw(st.integers(0, len(array))) :]
    collector = BufferCollector()
    encoding = parse_array_encoding(encode_array(array, collector).SerializeToString())
    buffers = Buffers(collector.buffers)
    decoder = make_decoder(encoding, array.type, len(array), buffers)
    start = data.draw(st.integers(0, len(array)))
    end = data.draw(st.integers(start, len(array)))
    start -= start % 8 if decoder.has_bits else 0
    found = decoder.decode(start, end)
    found.validate(full=True)
    assert found.to_pylist() == array[start:end].to_pylist()
    known = sum(piece.end - piece.start for piece in decoder.slices(start, end))
    assert known <= sum(map(len, buffers.buffers))


@given(st.lists(st.none() | st.integers(0, 5)), st.data())
def test_any_range_of_list_offsets_decodes(lengths, data):
    lists = pa.array([None if n is None else [0] * n for n in lengths], pa.list_(pa.int8()))
    collector = BufferCollector()
    encoding = encode_list_offsets(lists, collector)
    decoder = make_list_decoder(encoding, len(lists), Buffers(collector.buffers))
    start = data.draw(st.integers(0, len(lists)))
    end = data.draw(st.integers(start, len(lists)))
    offsets, validity = decoder.decode(start, end)
    assert np.diff(offsets).tolist() == [n or 0 for n in lengths[start:end]]
    valid = [True] * (end - start) if validity is None else validity.tolist()
    assert valid == [n is not None for n in lengths[start:end]]
    if start < end:
        assert offsets[0] == sum(n or 0 for n in lengths[:start])


@given(st.binary(min_size=1, max_size=20), st.data())
def test_bit_slice_cuts_bitmap(content, data):
    offset = data.draw(st.integers(0, len(content) * 8))
    length = data.draw(st.integers(0, len(content) * 8 - offset))
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
    found = bit_slice(pa.py_buffer(content), offset, length)
    assert len(found) == -(-length // 8)
    expected = bits[offset : offset + length]
    assert np.unpackbits(found, count=length, bitorder="little").tolist() == expected.tolist()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


NUMBERS = np.arange(100, dtype="<i8")


@pytest.mark.parametrize(
    ("scheme", "stored"),
    [
        ("none", NUMBERS.tobytes()),
        ("zstd", len(NUMBERS.tobytes()).to_bytes(8, "little") + zstd(NUMBERS.tobytes())),
        ("zstd", zstd(NUMBERS.tobytes())),
        (
            "lz4",
            len(NUMBERS.tobytes()).to_bytes(4, "little")
            + pa.compress(NUMBERS.tobytes(), codec="lz4_raw", asbytes=True),
        ),
    ],
    ids=["none", "zstd with length", "bare zstd frame", "lz4"],
)
def test_compressed_buffer_decodes(scheme, stored):
    found = decode(flat(64, 0, scheme), pa.int64(), 100, [stored], 10, 90)
    assert found.to_pylist() == list(range(10, 90))


def test_compressed_buffer_is_read_once():
    buffers = Buffers([zstd(NUMBERS.tobytes())])
    decoder = make_decoder(flat(64, 0, "zstd"), pa.int64(), 100, buffers)
    for start in range(0, 100, 10):
        assert decoder.decode(start, start + 10).to_pylist() == list(range(start, start + 10))
    assert buffers.bytes_read == len(buffers.buffers[0])
    assert decoder.slices(0, 10) == []


def test_short_compressed_buffer_is_corrupt():
    with pytest.raises(CorruptFileError, match="holds 800 bytes, 808 are wanted"):
        decode(flat(64, 0, "zstd"), pa.int64(), 101, [zstd(NUMBERS.tobytes())])


def test_strings_of_one_length_need_no_offsets():
    encoding = pb.ArrayEncoding(fixed_size_binary=pb.FixedSizeBinary(bytes=flat(8), byte_width=3))
    found = decode(encoding, pa.string(), 4, [b"onetwosixten"], 1, 3)
    assert found.to_pylist() == ["two", "six"]


@pytest.mark.parametrize("signed", [False, True])
def test_bit_stream_is_widened(signed):
    values = [3, -4, 1, 0, -1, 2, 3, -2, 1, -4] if signed else [3, 7, 0, 5, 1, 2, 6, 4, 7, 1]
    bits = [[value >> bit & 1 for bit in range(3)] for value in values]
    stored = np.packbits(np.array(bits).reshape(-1), bitorder="little").tobytes()
    message = pb.Bitpacked(
        compressed_bits_per_value=3, uncompressed_bits_per_value=16, signed=signed
    )
    message.buffer.SetInParent()
    encoding = pb.ArrayEncoding(bitpacked=message)
    assert decode(encoding, pa.int16(), 10, [stored]).to_pylist() == values
    assert decode(encoding, pa.int16(), 10, [stored], 8, 10).to_pylist() == values[8:]


def test_fastlanes_blocks_are_unpacked():
    values = np.arange(2500) % 32
    padded = np.concatenate([values, np.zeros(572, np.int64)]).reshape(3, 1024)
    order = [0, 4, 2, 6, 1, 5, 3, 7]
    blocks = np.zeros((3, 5, 32), np.uint32)
    for row in range(32):
        lanes = padded[:, order[row // 8] * 16 + row % 8 * 128 + np.arange(32)].astype(np.uint64)
        word, shift = divmod(row * 5, 32)
        blocks[:, word] |= (lanes << np.uint64(shift)).astype(np.uint32)
        if shift + 5 > 32:
            blocks[:, word + 1] |= (lanes >> np.uint64(32 - shift)).astype(np.uint32)
    message = pb.BitpackedForNonNeg(compressed_bits_per_value=5, uncompressed_bits_per_value=32)
    message.buffer.SetInParent()
    encoding = pb.ArrayEncoding(bitpacked_for_non_neg=message)
    for start, end in ((0, 2500), (1000, 1030), (2047, 2048), (2400, 2500), (5, 5)):
        found = decode(encoding, pa.int32(), 2500, [blocks.tobytes()], start, end)
        assert found.to_pylist() == values[start:end].tolist()


def test_packed_struct_is_split_into_children():
    kind = pa.struct([("a", pa.int16()), ("b", pa.list_(pa.int8(), 2))])
    items = pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=2, items=flat(8)))
    encoding = pb.ArrayEncoding(packed_struct=pb.PackedStruct(inner=[flat(16), items]))
    found = decode(encoding, kind, 3, [bytes([1, 0, 5, 6, 2, 0, 7, 8, 3, 0, 9, 10])], 1, 3)
    assert found.to_pylist() == [{"a": 2, "b": [7, 8]}, {"a": 3, "b": [9, 10]}]


def test_outer_and_string_nulls_are_combined():
    ends = np.array([1, 2 + 3, 2], "<u8")
    values = binary(3)
    nullable = pb.Nullable(some_nulls=pb.Nullable.SomeNulls(validity=flat(1, 2), values=values))
    encoding = pb.ArrayEncoding(nullable=nullable)
    found = decode(encoding, pa.string(), 3, [ends.tobytes(), b"xy", b"\x03"])
    assert found.to_pylist() == ["x", None, None]


@pytest.mark.parametrize(
    ("encoding", "kind", "count", "buffers"),
    [
        (flat(64), pa.int32(), 1, [bytes(8)]),
        (flat(32), pa.string(), 1, [bytes(8)]),
        (flat(32, 1), pa.int32(), 1, [bytes(8)]),
        (flat(32), pa.int32(), 3, [bytes(11)]),
        (flat(32), pa.int32(), 1 << 60, [bytes(11)]),
        (binary(5), pa.int32(), 1, [bytes(8), b""]),
        (binary(5), pa.string(), 2, [bytes(15), b""]),
        (binary(5), pa.string(), 2, [np.array([3, 2], "<u8"), b"abcd"]),
        (binary(5), pa.string(), 2, [np.array([3, 5], "<u8"), b"abcd"]),
        (binary(9), pa.string(), 2, [np.array([3, 5], "<u8"), b"abcd"]),
        (binary(0), pa.string(), 2, [np.array([1, 1 << 63], "<u8"), b"abcd"]),
        (binary(0, "zstd"), pa.string(), 1, [np.array([9], "<u8"), zstd(b"abc")]),
        (binary(0, "lz4"), pa.string(), 1, [np.array([9], "<u8"), b"\xff\xff\xff\xffabc"]),
        (
            pb.ArrayEncoding(
                dictionary=pb.Dictionary(indices=flat(8, 2), items=binary(), num_dictionary_items=1)
            ),
            *(pa.string(), 2),
            [np.array([1], "<u8"), b"a", b"\1\2"],
        ),
        (
            pb.ArrayEncoding(
                dictionary=pb.Dictionary(indices=flat(8, 2), items=binary(), num_dictionary_items=1)
            ),
            *(pa.dictionary(pa.int8(), pa.string()), 2),
            [np.array([1], "<u8"), b"a", b"\0\xff"],
        ),
        (
            pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=3, items=flat(8))),
            *(pa.list_(pa.int8(), 2), 1),
            [b"abc"],
        ),
        (
            pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Empty())),
            *(pa.list_(pa.int64(), 1 << 30), 1000, []),
        ),
        (pb.ArrayEncoding(nullable=pb.Nullable()), pa.int32(), 1, []),
    ],
)
def test_contradictory_encodings_are_corrupt(encoding, kind, count, buffers):
    with pytest.raises(CorruptFileError):
        decode(encoding, kind, count, buffers)


@pytest.mark.parametrize(
    "encoding",
    [
        pb.ArrayEncoding(),
        pb.ArrayEncoding(constant=pb.Constant(value=b"x")),
        pb.ArrayEncoding(struct=pb.Empty()),
        flat(32, 0, "brotli"),
    ],
)
def test_unknown_encodings_are_refused(encoding):
    with pytest.raises(UnsupportedFeatureError):
        decode(encoding, pa.int32(), 1, [bytes(4)])


@settings(max_examples=300)
@given(st.data())
def test_damaged_pages_raise_only_lance_errors(data):
    array = pa.array(["one", None, "two", "three"] * 30)
    array = data.draw(
        st.sampled_from(
            [
                array,
                array.dictionary_encode(),
                pa.array([[1, None], None, [3, 4]] * 9, pa.list_(pa.int16(), 2)),
                pa.array([f"text {n}" for n in range(30)]),
            ]
        )
    )
    collector = BufferCollector()
    tree = bytearray(encode_array(array, collector).SerializeToString())
    contents = [bytearray(buffer) for buffer in Buffers(collector.buffers).buffers]
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.sampled_from([tree, *filter(None, contents)]))
        position = data.draw(st.integers(0, len(target) - 1))
        target[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(LanceError):
        encoding = parse_array_encoding(bytes(tree))
        decoder = make_decoder(encoding, array.type, len(array), Buffers(contents))
        decoder.decode(8, len(array)).validate()
        assert decoder.decode(0, 0).type == array.type
