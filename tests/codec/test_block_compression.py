"""Buffers that are compressed one by one are decompressed together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive import block_compression
from pyspark_lance.codec.compressive.block_compression import (
    LZ4,
    NONE,
    ZSTD,
    decompress_each,
    decompress_first_buffers,
)
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError

CODECS = {LZ4: ("lz4_raw", 4), ZSTD: ("zstd", 8)}
TEXTS = [b"some text " * 20, b"", b"x", bytes(range(256)) * 3, b"some more text"]


def stored(scheme: int, text: bytes, *, announced: int | None = None) -> bytes:
    """A buffer as it is in a file."""
    if scheme == NONE:
        return text
    name, prefix = CODECS[scheme]
    length = len(text) if announced is None else announced
    return length.to_bytes(prefix, "little") + pa.compress(text, codec=name, asbytes=True)


def places(buffers: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The buffers with gaps between them, where they start, and their sizes."""
    sizes = np.array([len(buffer) for buffer in buffers], np.int64)
    starts = np.cumsum(sizes + 3) - sizes
    return np.frombuffer(b"".join(b"gap" + buffer for buffer in buffers), np.uint8), starts, sizes


def decompressed(scheme: int, buffers: list[bytes]) -> list[bytes]:
    plain, lengths = decompress_each(scheme, *places(buffers))
    ends = np.cumsum(lengths).tolist()
    assert len(plain) == (ends[-1] if ends else 0)
    return [plain[end - n : end].tobytes() for n, end in zip(lengths, ends, strict=True)]


@given(st.sampled_from([NONE, LZ4, ZSTD]), st.lists(st.binary(max_size=200), max_size=8))
def test_block_compression_round_trips(scheme, texts):
    assert decompressed(scheme, [stored(scheme, text) for text in texts]) == texts


def test_zstd_frames_without_length_decompress_among_others():
    bare = pa.compress(TEXTS[0], codec="zstd", asbytes=True)
    buffers = [stored(ZSTD, TEXTS[2]), bare, stored(ZSTD, TEXTS[3])]
    assert decompressed(ZSTD, buffers) == [TEXTS[2], TEXTS[0], TEXTS[3]]


def test_large_frames_are_not_joined(monkeypatch):
    texts = [b"a" * (1 << 16), b"b" * ((1 << 16) + 1), b"c"]
    monkeypatch.setattr(block_compression, "_decompress_frames", None)
    assert decompressed(ZSTD, [stored(ZSTD, text) for text in texts]) == texts


def test_small_frames_are_joined(monkeypatch):
    monkeypatch.setattr(block_compression, "_one_by_one", None)
    for texts in (TEXTS, TEXTS * 300):
        assert decompressed(ZSTD, [stored(ZSTD, text) for text in texts]) == texts


@pytest.mark.parametrize("announced", [0, 10, 199, 201, 1 << 17])
def test_wrong_announced_length_is_corrupt_or_decompressed_singly(announced):
    buffers = [stored(ZSTD, TEXTS[0], announced=announced), stored(ZSTD, TEXTS[3])]
    try:
        found = decompressed(ZSTD, buffers)
    except CorruptFileError:
        return
    assert found[1] == TEXTS[3]


@pytest.mark.parametrize("scheme", [LZ4, ZSTD])
@pytest.mark.parametrize("announced", [(1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_impossible_length_is_corrupt_before_allocation(scheme, announced):
    buffers = [stored(scheme, b"text", announced=announced), stored(scheme, b"more")]
    with pytest.raises(CorruptFileError, match="cannot hold"):
        decompressed(scheme, buffers)


@pytest.mark.parametrize("scheme", [LZ4, ZSTD])
def test_damaged_buffers_are_corrupt(scheme):
    whole = [stored(scheme, text) for text in TEXTS]
    with pytest.raises(CorruptFileError, match="no length"):
        decompressed(scheme, [*whole, b"\x05"])
    with pytest.raises(CorruptFileError):
        decompressed(scheme, [*whole, stored(scheme, bytes(range(100)))[:30]])
    damaged = bytearray(stored(scheme, TEXTS[0]))
    damaged[CODECS[scheme][1] :] = b"\xff" * (len(damaged) - CODECS[scheme][1])
    with pytest.raises(CorruptFileError):
        decompressed(scheme, [bytes(damaged), *whole])


def test_unknown_scheme_error_names_number():
    with pytest.raises(UnsupportedFeatureError, match="7"):
        decompressed(7, [b"some", b"bytes"])


@pytest.mark.parametrize("scheme", [LZ4, ZSTD])
@pytest.mark.parametrize("texts", [TEXTS, [b"12345678", b"1234567812345678"], [b"12"], []])
def test_chunks_start_aligned_once_decompressed(scheme, texts):
    data, starts, sizes = places([stored(scheme, text) for text in texts])
    others = (starts - 3, np.full(len(starts), 3))
    chunks = ChunkBuffers(
        data, np.ones(len(texts), np.int64), (starts, others[0]), (sizes, others[1])
    )
    found = decompress_first_buffers(chunks, scheme)
    assert not (found.starts[0] % 8).any()
    for index, text in enumerate(texts):
        first, size = int(found.starts[0][index]), int(found.sizes[0][index])
        assert found.data[first : first + size].tobytes() == text
        second = int(found.starts[1][index])
        assert found.data[second : second + 3].tobytes() == b"gap"


def test_unsized_frame_stops_at_memory_limit(monkeypatch):
    """A frame of some kilobytes that holds 256 MiB, and does not say so."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(64):
            stream.write(bytes(1 << 22))
    frame = np.frombuffer(sink.getvalue(), np.uint8)
    assert len(frame) < 1 << 16
    monkeypatch.setattr(block_compression, "MAX_BUFFER_BYTES", 1 << 25)
    before = pa.total_allocated_bytes()
    most = []
    real = block_compression.require

    def watching(condition, what):
        most.append(pa.total_allocated_bytes() - before)
        real(condition, what)

    monkeypatch.setattr(block_compression, "require", watching)
    with pytest.raises(CorruptFileError, match="longer than it can be"):
        block_compression.decompress(ZSTD, frame)
    assert len(most) > 4
    assert max(most) < 2 << 25
    monkeypatch.setattr(block_compression, "MAX_BUFFER_BYTES", 1 << 28)
    assert len(block_compression.decompress(ZSTD, frame)) == 1 << 28
