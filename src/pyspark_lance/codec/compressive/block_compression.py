"""General compression by zstd or lz4, of whole buffers and of mini-block chunks.

Source: docs/format/file-format.md, sections 3.1 and 6.4.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.chunk_buffers import (
    ChunkBuffer,
    ChunkBuffers,
    Segments,
    ValueChunks,
    round_up,
)
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    ValueDecoder,
)
from pyspark_lance.codec.decode_memory import require_decode_memory
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.values import VariableWidthValues
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

NONE, LZ4, ZSTD = 0, 1, 2
SCHEME_NAMES = {NONE: "none", LZ4: "lz4", ZSTD: "zstd"}
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# What the formats can reach at best: a zstd block of 128 KiB takes at least 4 bytes; a byte of
# lz4 stands for at most 255. More is a damaged length.
_ZSTD_BLOCK = 1 << 17
_LZ4_RATIO = 255
MAX_BUFFER_BYTES = (1 << 31) - 1
_ZSTD_MAGIC_WORD = np.uint32(int.from_bytes(_ZSTD_MAGIC, "little"))
# To decompress as much takes zstd far longer than to be set up for it.
_SMALL_FRAME = 1 << 16
_TOLERATED_BYTES = 1 << 12
# Of a frame that does not announce its length, at a time.
_PIECE_BYTES = 1 << 22


def decompress(
    scheme: int, compressed: NDArray[np.uint8], values_bytes: int | None = None
) -> NDArray[np.uint8]:
    """The plain bytes of a buffer.

    ``scheme``: ``BufferCompression.scheme`` of the page's description. ``compressed``: zstd: a u64
    length and a frame, or a bare frame by old writers; lz4: a u32 length and a raw block.
    ``values_bytes``: how many bytes the values of the page take, where their number implies it: a
    buffer that claims many more is refused before it is decompressed.
    """
    if scheme == NONE:
        return compressed
    if scheme == LZ4:
        return _decompress_lz4(compressed, _most_bytes(values_bytes))
    if scheme == ZSTD:
        return _decompress_zstd(compressed, _most_bytes(values_bytes))
    return reject_unsupported(f"compression scheme {scheme}")


def _most_bytes(values_bytes: int | None) -> int:
    """Bytes that a buffer may have; some more than values take are tolerated."""
    if values_bytes is None:
        return MAX_BUFFER_BYTES
    return min(2 * values_bytes + _TOLERATED_BYTES, MAX_BUFFER_BYTES)


def _decompress_lz4(compressed: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    require(len(compressed) >= 4, "an lz4 buffer has no length")
    length = int(compressed[:4].view("<u4")[0])
    block = compressed[4:]
    bound = min(_LZ4_RATIO * (len(block) + 1), most)
    require(length <= bound, f"an lz4 buffer cannot hold {length} bytes")
    return _run_codec("lz4_raw", block, length)


def _decompress_zstd(compressed: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    if compressed[:4].tobytes() == _ZSTD_MAGIC:
        return _decompress_bare_frame(compressed, most)
    require(len(compressed) >= 8, "a zstd buffer has no length")
    length = int(compressed[:8].view("<u8")[0])
    frame = compressed[8:]
    bound = _ZSTD_BLOCK * (len(frame) // 4 + 1)
    require(length <= min(bound, most), f"a zstd buffer cannot hold {length} bytes")
    return _run_codec("zstd", frame, length)


def _run_codec(name: str, block: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    if length == 0:
        return block[:0]
    try:
        plain = pa.Codec(name).decompress(pa.py_buffer(np.ascontiguousarray(block)), length)
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(f"a {name} buffer cannot be decompressed: {error}") from error
    return np.frombuffer(plain, np.uint8)


def _decompress_bare_frame(frame: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    """A frame without a length before it; it need not announce one itself."""
    source = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(frame)), "zstd")
    bound = min(_ZSTD_BLOCK * (len(frame) // 4 + 1), most)
    pieces, total = [], 0
    try:
        # Arrow allocates what is asked for, and a frame gives up to 32,768 times its size.
        while piece := source.read(min(bound + 1, _PIECE_BYTES)):
            total += len(piece)
            require(total <= bound, "a zstd frame is longer than it can be")
            pieces.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(f"a zstd frame cannot be decompressed: {error}") from error
    return np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), np.uint8)


def decompress_each(
    scheme: int, data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decompress many buffers, each compressed by itself.

    ``scheme``: ``BufferCompression.scheme`` of the page's description. ``starts``: start of each;
    ascending. ``sizes``: compressed bytes of each. Returns the concatenated plain bytes, and their
    number for each buffer.
    """
    if scheme not in (LZ4, ZSTD) or len(starts) < 2:
        return _one_by_one(scheme, data, starts, sizes)
    name, is_zstd = SCHEME_NAMES[scheme], scheme == ZSTD
    kind = np.dtype("<u8" if is_zstd else "<u4")
    require(int(sizes.min()) >= kind.itemsize, f"a {name} buffer has no length")
    announced = gather(data, starts, np.full(len(starts), kind.itemsize)).view(kind)
    if is_zstd and (announced.astype(np.uint32) == _ZSTD_MAGIC_WORD).any():
        return _one_by_one(scheme, data, starts, sizes)  # a bare frame
    starts, sizes = starts + kind.itemsize, sizes - kind.itemsize
    bounds = _ZSTD_BLOCK * (sizes // 4 + 1) if is_zstd else _LZ4_RATIO * (sizes + 1)
    bounds = np.minimum(bounds, MAX_BUFFER_BYTES).astype(np.uint64)
    require(bool((announced <= bounds).all()), f"a {name} buffer cannot hold its length")
    lengths = announced.astype(np.int64)
    require_decode_memory(int(lengths.sum()))
    if not is_zstd:
        return _decompress_blocks(data, starts, sizes, lengths), lengths
    plain = None
    if int(lengths.max()) <= _SMALL_FRAME:
        plain = _decompress_frames(gather(data, starts, sizes), int(lengths.sum()))
    if plain is None:
        return _one_by_one(scheme, data, starts - kind.itemsize, sizes + kind.itemsize)
    return plain, lengths


def _one_by_one(
    scheme: int, data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    ends = (starts + sizes).tolist()
    pieces = []
    total = 0
    for start, end in zip(starts.tolist(), ends, strict=True):
        pieces.append(decompress(scheme, data[start:end]))
        total += len(pieces[-1])
        if len(sizes) > 1:  # fewer rows would not make one buffer smaller
            require_decode_memory(total)
        require(total <= 16 * MAX_BUFFER_BYTES, "compressed values hold more than 32 GiB")
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    return np.concatenate(pieces) if pieces else data[:0], lengths


def _decompress_frames(frames: NDArray[np.uint8], total: int) -> NDArray[np.uint8] | None:
    """Decompress concatenated zstd frames as one stream; None if that fails.

    Setting up zstd for each frame takes ten times as long as decompressing some hundred bytes.
    """
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(frames)), "zstd") as source:
            plain = source.read(total)
            whole = len(plain) == total and not source.read(1)
    except (OSError, pa.ArrowException):
        return None
    return np.frombuffer(plain, np.uint8) if whole else None


def _decompress_blocks(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """Raw lz4 blocks of known length."""
    codec = pa.Codec("lz4_raw")
    source = pa.py_buffer(np.ascontiguousarray(data))
    indices = zip(starts.tolist(), sizes.tolist(), lengths.tolist(), strict=True)
    try:
        pieces = [
            codec.decompress(source.slice(start, size), length) if length else b""
            for start, size, length in indices
        ]
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(f"a lz4_raw buffer cannot be decompressed: {error}") from error
    return np.frombuffer(b"".join(pieces), np.uint8)


def decompress_first_buffers(chunks: ChunkBuffers, scheme: int) -> ChunkBuffers:
    """General in mini-block chunks: the first buffer of every chunk is compressed by itself."""
    require(len(chunks.starts) > 0, "General needs a buffer per chunk")
    plain, lengths = decompress_each(scheme, chunks.data, chunks.starts[0], chunks.sizes[0])
    # Decoders look at words, so every buffer begins aligned.
    padded = round_up(lengths, 8)
    require(int(padded.sum()) <= MAX_BUFFER_BYTES, "compressed chunks hold more than 2 GiB")
    starts = np.cumsum(padded) - padded
    if (padded != lengths).any():
        aligned = np.zeros(int(padded.sum()), np.uint8)
        Segments(plain, np.cumsum(lengths) - lengths, lengths).copy_to(aligned, starts)
        plain = aligned
    return chunks.with_first_buffers(plain, starts, lengths)


def _decompress_values(
    stored: VariableWidthValues, valid: NDArray[np.bool_], scheme: int
) -> VariableWidthValues:
    """Decompress valid values, each of which is a compressed buffer of its own."""
    content = np.frombuffer(stored.data, np.uint8) if stored.data.size else np.zeros(0, np.uint8)
    stored_offsets = stored.offsets.astype(np.int64)
    starts, ends = stored_offsets[:-1][valid], stored_offsets[1:][valid]
    plain, lengths = decompress_each(scheme, content, starts, ends - starts)
    sizes = np.zeros(stored.num_values, np.int64)
    sizes[valid] = lengths
    offsets = np.zeros(stored.num_values + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return VariableWidthValues(stored.num_values, offsets, pa.py_buffer(plain))


def _name(message: Any) -> str:
    return SCHEME_NAMES.get(message.compression.scheme, "?")


def _parts(message: Any) -> tuple[Encoding, ...]:
    return (message.values,)


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    scheme, inner = message.compression.scheme, nested(message.values)
    return lambda chunks: inner(decompress_first_buffers(chunks, scheme))


def _block_decoder(message: Any, nested: Callable[[Encoding], BlockDecoder]) -> BlockDecoder:
    scheme, inner = message.compression.scheme, nested(message.values)
    kind = message.values.WhichOneof("compression")
    bits = message.values.flat.bits_per_value if kind == "flat" else None

    def decode(block: NDArray[np.uint8], num_values: int) -> Any:
        size = None if bits is None else -(-num_values * bits // 8)
        return inner(decompress(scheme, block, size), num_values)

    return decode


def _value_decoder(message: Any, nested: Callable[[Encoding], ValueDecoder]) -> ValueDecoder:
    scheme, inner = message.compression.scheme, nested(message.values)
    return lambda stored, valid: inner(_decompress_values(stored, valid, scheme), valid)


GENERAL = EncodingRecord(
    kind="general",
    writer="compressive/block_compression.py",
    name=_name,
    parts=_parts,
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
    value_decoder=_value_decoder,
)
"""The encoding of buffers that are compressed as a whole, over another one."""


Bytes: TypeAlias = memoryview | NDArray[np.uint8]
SCHEMES: Final = {"lz4": 1, "zstd": 2}


def general(
    scheme: str, level: int | None, values: pb.CompressiveEncoding
) -> pb.CompressiveEncoding:
    """The description of values that are compressed."""
    compression = pb.BufferCompression(scheme=SCHEMES[scheme], level=level)
    return pb.CompressiveEncoding(general=pb.General(compression=compression, values=values))


def block_compressor(scheme: str, level: int | None) -> Callable[[Bytes], bytes]:
    """A function that compresses a buffer; the plain length is prepended."""
    codec = pa.Codec("zstd", level) if scheme == "zstd" else pa.Codec("lz4_raw")
    prefix = struct.Struct("<Q" if scheme == "zstd" else "<I")

    def compress(plain: Bytes) -> bytes:
        return prefix.pack(len(plain)) + codec.compress(plain, asbytes=True)

    return compress


def compress_chunks(values: ValueChunks, scheme: str, level: int | None) -> ValueChunks:
    """The chunks with their first buffers compressed; the same chunks if that saves nothing.

    ``scheme``: ``lz4`` or ``zstd``; ``level``: compression level, None for the default.
    """
    first, *others = values.buffers
    sizes = first.sizes()
    starts = np.cumsum(sizes) - sizes
    plain = np.zeros(int(sizes.sum()), np.uint8)
    first.copy_to(plain, starts)
    compress = block_compressor(scheme, level)
    view = plain.data
    pieces = [
        compress(view[start : start + size])
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    ]
    packed = b"".join(pieces)
    if len(packed) >= len(plain):
        return values
    new_sizes = np.array([len(piece) for piece in pieces], np.int64)
    segments = Segments(
        np.frombuffer(packed, np.uint8), np.cumsum(new_sizes) - new_sizes, new_sizes
    )
    encoding = general(scheme, level, values.encoding)
    buffers = (ChunkBuffer((segments,)), *others)
    return ValueChunks(encoding, values.log2_values, values.num_values, buffers)
