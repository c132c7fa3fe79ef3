"""Small files that claim to hold gigabytes: refused before they are unpacked."""

from __future__ import annotations

import random
import struct
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from fuzz import corpus
from fuzz.targets import FileParts, read_file
from google.protobuf.descriptor import FieldDescriptor
from pyroaring import BitMap

from pyspark_lance.codec.compressive import block_compression
from pyspark_lance.codec.compressive.block_compression import LZ4, ZSTD, decompress
from pyspark_lance.datafile.file_metadata import ARRAY_ENCODING_URL, PAGE_LAYOUT_URL
from pyspark_lance.errors import CorruptFileError, LanceError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.row_address import numbers_of, pack_tree_map, parse_tree_map
from pyspark_lance.metafile.deletion_file import read_deletion_file
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.proto import encodings_v2_0_pb2, file_pb2
from pyspark_lance.proto import encodings_v2_1_pb2 as pb
from pyspark_lance.store.memory_store import MemoryStore

# Of numpy, Python and Arrow, while a bomb is looked at.
MAX_BYTES = 8 << 20
EVERY_ROW = 1 << 32
# Caches may hold buffers of a pool longer than a test.
POOLS = []


@contextmanager
def little_memory(max_bytes=MAX_BYTES):
    own, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(own)
    assert most + (pool.max_memory() or 0) < max_bytes


def packed(scheme, num_bytes):
    """So many zeros, with the length before them."""
    name, prefix = {ZSTD: ("zstd", "<Q"), LZ4: ("lz4_raw", "<I")}[scheme]
    content = pa.Codec(name).compress(bytes(num_bytes), asbytes=True)
    return np.frombuffer(struct.pack(prefix, num_bytes) + content, np.uint8)


@pytest.mark.parametrize("scheme", [ZSTD, LZ4])
@pytest.mark.parametrize("is_bare", [False, True])
def test_decompressed_buffer_is_bounded_by_page_values(scheme, is_bare):
    if is_bare and scheme == LZ4:
        pytest.skip("only zstd has frames without a length before them")
    bomb = packed(scheme, 64 << 20)[8 if is_bare else 0 :]
    assert len(bomb) < 300_000
    with little_memory(), pytest.raises(CorruptFileError, match=r"hold|longer"):
        decompress(scheme, bomb, 1000 * 8)
    fitting = packed(scheme, 8000)[8 if is_bare else 0 :]
    assert len(decompress(scheme, fitting, 1000 * 8)) == 8000


def test_compressed_flat_block_is_bounded_by_value_count():
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=32))
    message = pb.General(compression=pb.BufferCompression(scheme=ZSTD), values=flat)
    decode = block_compression.GENERAL.block_decoder(
        message, lambda _: lambda block, num_values: block[: 4 * num_values]
    )
    assert len(decode(packed(ZSTD, 400), 100)) == 400
    bomb = packed(ZSTD, 64 << 20)
    with little_memory(), pytest.raises(CorruptFileError, match="hold"):
        decode(bomb, 100)


def every_row():
    rows = BitMap()
    rows.add_range(0, EVERY_ROW)
    rows.run_optimize()
    return rows


def test_index_row_sets_are_counted_before_expansion():
    content = pack_tree_map({0: every_row(), 1: BitMap([3])})
    assert len(content) < 1 << 21
    parsed = parse_tree_map(content)
    with little_memory(), pytest.raises(CorruptFileError, match="more than the 1000"):
        numbers_of(parsed, 1000)
    assert numbers_of({1: parsed[1]}, 1000).tolist() == [EVERY_ROW + 3]


def test_deletion_file_is_bounded_by_fragment_rows():
    store = MemoryStore("memory://bombs")
    for kind, content in (
        (DeletionFileType.BITMAP, every_row().serialize()),
        (DeletionFileType.ARROW_ARRAY, arrow_of_rows(16 << 20)),
    ):
        file = DeletionFile(kind, 1, 1, 16 << 20)
        store.put(deletion_path(0, file), content)
        with little_memory(), pytest.raises(CorruptFileError):
            read_deletion_file(store, 0, file, 1000)


def arrow_of_rows(count):
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(pa.record_batch([np.zeros(count, np.uint32)], schema=schema))
    return sink.getvalue().to_pybytes()


HUGE = {
    FieldDescriptor.CPPTYPE_INT32: (2**31 - 1,),
    FieldDescriptor.CPPTYPE_UINT32: (2**31 - 1, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (2**40, 2**62),
    FieldDescriptor.CPPTYPE_UINT64: (2**40, 2**64 - 1),
}


def with_huge_numbers(message):
    """Give one number after another of a message, and of those in it, the values of ``HUGE``."""
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for part in value if hasattr(value, "extend") else (value,):
                yield from with_huge_numbers(part)
        elif hasattr(value, "extend"):
            for place, own in enumerate(value):
                for number in HUGE.get(field.cpp_type, ()):
                    value[place] = number
                    yield f"{message.DESCRIPTOR.name}.{field.name}[{place}] = {number}"
                value[place] = own
        else:
            for number in HUGE.get(field.cpp_type, ()):
                setattr(message, field.name, number)
                yield f"{message.DESCRIPTOR.name}.{field.name} = {number}"
            setattr(message, field.name, value)


def with_huge_pages(file):
    """The file, its first pages with one number after another as large as can be."""
    kinds = {ARRAY_ENCODING_URL: encodings_v2_0_pb2.ArrayEncoding, PAGE_LAYOUT_URL: pb.PageLayout}
    for place, content in enumerate(file.columns):
        column = file_pb2.ColumnMetadata.FromString(content)
        if not column.pages:
            continue
        direct = column.pages[0].encoding.direct
        holder = file_pb2.AnyMessage.FromString(direct.encoding)
        layout = kinds[holder.type_url].FromString(holder.value)

        def assemble(changed, columns=file.columns, place=place):
            columns = [*columns[:place], changed.SerializeToString(), *columns[place + 1 :]]
            return file.assemble(columns, list(file.buffers))

        for what in with_huge_numbers(column.pages[0]):
            yield what, assemble(column)
        for what in with_huge_numbers(layout):
            holder.value = layout.SerializeToString()
            direct.encoding = holder.SerializeToString()
            yield what, assemble(column)


@pytest.mark.interop
def test_page_descriptions_never_cause_large_allocations(tmp_path):
    refused = 0
    for sample in corpus.data_files(tmp_path, every=9):
        for what, data in with_huge_pages(FileParts.of(sample)):
            try:
                with little_memory(40 << 20):
                    read_file(data, random.Random(0))
            except LanceError:
                refused += 1
            except BaseException as error:
                raise AssertionError((sample.name, what)) from error
    assert refused > 100
