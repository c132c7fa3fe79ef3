"""Choice of the encoding of a 2.1 or 2.2 page by its values.

All null or no values: a constant page. Values of 256 bytes and more: full-zip. Everything else:
mini-block, with few distinct values as a dictionary, integers bit-packed or as runs where that
pays, the rest plain.

Source: docs/format/file-format.md, sections 11 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.chunk_buffers import DictionaryBlock, EncodedPage, ValueChunks
from pyspark_lance.codec.compressive.block_compression import compress_chunks
from pyspark_lance.codec.compressive.dictionary import (
    compact,
    compress_block,
    dictionary_block,
    few_items,
    index_values,
    least_bytes,
    saves_enough,
)
from pyspark_lance.codec.compressive.fixed_size_list import list_chunks, list_rows, split_lists
from pyspark_lance.codec.compressive.fixed_width import (
    bit_packed_chunks,
    bit_widths,
    boolean_chunks,
    byte_stream_split_chunks,
    count_runs,
    flat,
    flat_chunks,
    run_length_bytes,
    run_length_chunks,
)
from pyspark_lance.codec.compressive.packed_struct import (
    is_fixed_record,
    pack_rows,
    packed_children,
    record_chunks,
)
from pyspark_lance.codec.compressive.string_compression import (
    FsstColumn,
    StoredStrings,
    compress_values,
    plain_strings,
    smaller_huge_values,
)
from pyspark_lance.codec.compressive.variable_width import MAX_SMALL_CHUNK_BYTES, variable_chunks
from pyspark_lance.codec.encoding_requests import EncodingRequest, encoding_request
from pyspark_lance.codec.leaf_column import LeafColumn, LeafValues
from pyspark_lance.codec.structural.all_null import encode_all_null, encode_constant, only_value
from pyspark_lance.codec.structural.full_zip import encode_fixed_full_zip, encode_variable_full_zip
from pyspark_lance.codec.structural.mini_block import encode_mini_block
from pyspark_lance.codec.values import (
    bits_per_value,
    boolean_bits,
    boolean_values,
    fixed_width_values,
    is_variable_width,
    variable_width_values,
)
from pyspark_lance.errors import UnsupportedFeatureError

WIDE_BYTES: Final = 256
"""Values from this size on go to full-zip pages."""

# A packed chunk is a whole block however few values it has.
_MIN_PACKED_VALUES: Final = 256
_PACKING_GAIN: Final = 0.95
# Unpacking costs a reader more than a memory copy; for floats it seldom saves more than that.
_FLOAT_PACKING_GAIN: Final = 0.8
_RUNS_GAIN: Final = 0.85
_SAMPLE: Final = 4096


@dataclass(frozen=True, slots=True)
class PageEncoder:
    """Encoder of the pages of one column.

    ``large_chunks``: whether the file is 2.2: wider sizes, and dictionaries of 64-bit numbers.
    """

    column: LeafColumn
    request: EncodingRequest
    large_chunks: bool
    fsst: FsstColumn

    @classmethod
    def of(cls, column: LeafColumn, version: str) -> PageEncoder:
        """The encoder of a column in a file of version 2.1 or 2.2."""
        request = encoding_request(column.metadata, column.name, column.type, version)
        return cls(column, request, large_chunks=version == "2.2", fsst=FsstColumn())

    def encode(self, rows: LeafValues) -> Iterator[EncodedPage]:
        """The rows as one page, or as several if chunks would become too large."""
        if rows.num_rows == 0:
            return
        rows = rows.with_all_levels(self.column)
        nulls = rows.null_mask()
        if self._is_constant(rows, nulls):
            yield encode_all_null(self.column, rows)
            return
        value = self._only_value(rows)
        if value is not None:
            yield encode_constant(self.column, rows, value)
            return
        page = self._encode_values(rows, nulls, wide=self.request.full_zip)
        if page is not None:
            yield page
        elif rows.num_rows > 1:
            for half in rows.halves(self.column):
                yield from self.encode(half)
        else:
            yield self._encode_large_row(rows, nulls)

    def _is_constant(self, rows: LeafValues, nulls: NDArray[np.bool_] | None) -> bool:
        """Return whether the page has no values.

        Null items of lists do not count if the type has values at all: releases of Lance before 9
        lose entries of constant pages that have more entries than rows.
        """
        if len(rows.values) == 0:
            return True
        if nulls is None or not nulls.all():
            return False
        data_type = self.column.type
        in_lists = rows.repetition is not None
        return not in_lists or pa.types.is_null(data_type) or pa.types.is_dictionary(data_type)

    def _only_value(self, rows: LeafValues) -> tuple[NDArray[np.uint8], ...] | None:
        """The value of all rows. With levels, which are not packed, a page would be no smaller."""
        has_levels = rows.repetition is not None or rows.definition is not None
        if not self.large_chunks or has_levels or self._requested_encoding or self.request.full_zip:
            return None
        return only_value(rows.values) if len(rows.values) > 1 else None

    def _encode_large_row(self, rows: LeafValues, nulls: NDArray[np.bool_] | None) -> EncodedPage:
        """Encode one row that does not fit into a chunk as full-zip, which has no chunks."""
        page = self._encode_values(rows, nulls, wide=True)
        if page is None:
            raise UnsupportedFeatureError(
                f"column {self.column.name}: a row with {rows.num_entries} lists and values of"
                f" type {self.column.type} does not fit into a chunk",
                hint="store shorter lists, or another type of values",
            )
        return page

    def _encode_values(
        self, rows: LeafValues, nulls: NDArray[np.bool_] | None, *, wide: bool
    ) -> EncodedPage | None:
        """Encode one page; None if the chunks of a mini-block page would become too large."""
        data_type = self.column.type
        if pa.types.is_dictionary(data_type):
            array = compact(rows.values)
            indices = self._number_chunks(index_values(array, nulls))
            return self._mini_block(rows, indices, self._items(array.dictionary))
        if is_variable_width(data_type):
            return self._encode_variable_width(rows, nulls, wide=wide)
        if pa.types.is_fixed_size_list(data_type):
            lists = split_lists(rows.values, nulls)
            # Rows of bits are only whole bytes together, so booleans stay in chunks.
            wide = (wide or self._is_wide(lists.bits_per_row // 8)) and not lists.is_boolean
            if wide and self.request.general is None:
                return encode_fixed_full_zip(self.column, rows, list_rows(lists), lists.encoding)
            chunks = self._compress(list_chunks(lists))
            if wide and not chunks.encoding.HasField("general"):
                return encode_fixed_full_zip(self.column, rows, list_rows(lists), lists.encoding)
            return self._mini_block(rows, chunks)
        if pa.types.is_struct(data_type):
            return self._encode_packed_struct(rows, nulls)
        if pa.types.is_boolean(data_type):
            if wide:
                flags = boolean_values(rows.values, nulls).reshape(-1, 1)
                return encode_fixed_full_zip(self.column, rows, flags, flat(8))
            chunks = boolean_chunks(boolean_bits(rows.values, nulls), len(rows.values))
            return self._mini_block(rows, self._compress(chunks))
        return self._encode_fixed_width(rows, nulls, wide=wide)

    def _encode_variable_width(
        self, rows: LeafValues, nulls: NDArray[np.bool_] | None, *, wide: bool
    ) -> EncodedPage | None:
        offsets, content = variable_width_values(rows.values, nulls)
        if not wide and self.request.compression != "fsst":
            page = self._few_strings(rows, nulls, int(offsets[-1] - offsets[0]) + offsets.nbytes)
            if page is not None:
                return page
        strings = plain_strings(offsets, content)
        if wide or self._is_wide(int(np.diff(offsets).max())):
            stored = self._store_each(strings, nulls)
            return encode_variable_full_zip(
                self.column, rows, stored.offsets, stored.content, stored.encoding
            )
        return self._mini_block(rows, self._string_chunks(self._as_codes(strings)))

    def _string_chunks(self, stored: StoredStrings) -> ValueChunks:
        size = self.request.chunk_bytes
        if size is not None and not self.large_chunks:
            size = min(size, MAX_SMALL_CHUNK_BYTES)
        return self._compress(
            variable_chunks(stored.offsets, stored.content, stored.encoding, size)
        )

    def _few_strings(
        self, rows: LeafValues, nulls: NDArray[np.bool_] | None, plain_bytes: int
    ) -> EncodedPage | None:
        """A page of a dictionary; None if that is not clearly smaller."""
        request = self.request.dictionary
        encoded = few_items(rows.values, plain_bytes, request)
        if encoded is None or not saves_enough(
            least_bytes(encoded), plain_bytes, request.size_ratio
        ):
            return None
        indices = self._number_chunks(index_values(encoded, nulls))
        items = self._items(encoded.dictionary)
        if self.request.general is not None:
            strings = plain_strings(*variable_width_values(rows.values, nulls))
            whole = _chunk_bytes(self._string_chunks(strings))
            if _chunk_bytes(indices) + len(items.content) >= whole:
                return None
        return self._mini_block(rows, indices, items)

    def _items(self, items: pa.Array) -> DictionaryBlock:
        """The items of a dictionary as they are stored."""
        block = dictionary_block(items)
        return compress_block(block, self.request.dictionary, by_default=self.large_chunks)

    def _is_wide(self, num_bytes: int) -> bool:
        """Return whether the largest value of a page requires the layout for large values."""
        if not self.request.mini_blocks:
            return num_bytes >= WIDE_BYTES
        if num_bytes > MAX_SMALL_CHUNK_BYTES // 2 and not self.large_chunks:
            raise UnsupportedFeatureError(
                f"column {self.column.name}: a value of {num_bytes} bytes does not fit into the"
                " mini-blocks of a file of version 2.1",
                hint="remove lance-encoding:structural-encoding from the column's metadata",
            )
        return False

    def _as_codes(self, strings: StoredStrings) -> StoredStrings:
        """The strings as FSST codes, if requested, or if they are text that shrinks."""
        if self.request.compression == "fsst":
            return self.fsst.encode(strings)
        is_text = pa.types.is_unicode(self.column.type)
        return (
            self.fsst.shrink_text(strings) if is_text and not self._requested_encoding else strings
        )

    def _store_each(self, strings: StoredStrings, nulls: NDArray[np.bool_] | None) -> StoredStrings:
        """The bytes of each value as a full-zip page has them."""
        request = self.request
        if request.general is not None:
            # pylance cannot read nulls among values that lz4 compressed one by one.
            scheme = request.general if nulls is None else "zstd"
            return compress_values(strings, nulls, scheme, request.compression_level)
        huge = None if self._requested_encoding else smaller_huge_values(strings, nulls)
        return self._as_codes(strings) if huge is None else huge

    def _encode_packed_struct(
        self, rows: LeafValues, nulls: NDArray[np.bool_] | None
    ) -> EncodedPage | None:
        is_fixed, name = is_fixed_record(self.column.type), self.column.name
        children = packed_children(rows.values, nulls, name, item_nulls=not is_fixed)
        if is_fixed:
            return self._mini_block(rows, record_chunks(children, nulls))
        stored = pack_rows(children, nulls)
        return encode_variable_full_zip(
            self.column, rows, stored.offsets, stored.content, stored.encoding
        )

    def _encode_fixed_width(
        self, rows: LeafValues, nulls: NDArray[np.bool_] | None, *, wide: bool
    ) -> EncodedPage | None:
        data_type = self.column.type
        bits = bits_per_value(data_type)
        values = fixed_width_values(rows.values, nulls)
        if wide or self._is_wide(bits // 8):
            plain = self._compress(flat_chunks(values, bits))
            if not wide and plain.encoding.HasField("general"):
                return self._mini_block(rows, plain)
            matrix = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
            return encode_fixed_full_zip(self.column, rows, matrix, flat(bits))
        if bits in (8, 16, 32, 64):
            plain = self._number_chunks(values, floating=pa.types.is_floating(data_type))
        else:
            plain = self._compress(flat_chunks(values, bits))
        # Older readers know dictionaries of strings and of 128-bit values only.
        has_dictionaries = bits == 128 or (bits == 64 and self.large_chunks)
        if has_dictionaries and self.request.byte_stream_split != "on":
            plain_bytes, request = _chunk_bytes(plain), self.request.dictionary
            # Runs of indices may be smaller than packed indices.
            least = math.inf if plain.encoding.HasField("rle") else plain_bytes
            encoded = few_items(_as_items(values, bits, nulls), least, request)
            if encoded is not None:
                indices = self._number_chunks(index_values(encoded, nulls))
                items = self._items(encoded.dictionary)
                dictionary_bytes = _chunk_bytes(indices) + len(items.content)
                if saves_enough(dictionary_bytes, plain_bytes, request.size_ratio):
                    return self._mini_block(rows, indices, items)
        return self._mini_block(rows, plain)

    def _number_chunks(
        self, values: NDArray[np.unsignedinteger[Any]], *, floating: bool = False
    ) -> ValueChunks:
        """Numbers of 8 to 64 bits, as requested or as small as possible."""
        request = self.request
        if request.plain and request.byte_stream_split != "on":
            return flat_chunks(values, values.itemsize * 8)
        if request.byte_stream_split == "on":
            return self._compress(byte_stream_split_chunks(values))
        if request.general is not None:
            split = request.byte_stream_split == "auto" and values.itemsize in (4, 8)
            split = split and self._shrinks_more_if_split(values)
            flat_values = flat_chunks(values, values.itemsize * 8)
            compressed = self._compress(byte_stream_split_chunks(values) if split else flat_values)
            if compressed.encoding.HasField("general"):
                return compressed
        return smallest_chunks(values, floating=floating, rle_threshold=request.rle_threshold)

    def _shrinks_more_if_split(self, values: NDArray[np.unsignedinteger[Any]]) -> bool:
        """Return whether a sample becomes smaller if it is split into its bytes."""
        first = max(0, (len(values) - _SAMPLE) // 2)
        sample = values[first : first + _SAMPLE]
        whole, split = flat_chunks(sample, sample.itemsize * 8), byte_stream_split_chunks(sample)
        return _chunk_bytes(self._compress(split)) < _chunk_bytes(self._compress(whole))

    @property
    def _requested_encoding(self) -> bool:
        """Return whether the metadata leave nothing to choose."""
        return self.request.compression is not None

    def _compress(self, values: ValueChunks) -> ValueChunks:
        request = self.request
        if request.general is None:
            return values
        return compress_chunks(values, request.general, request.compression_level)

    def _mini_block(
        self, rows: LeafValues, values: ValueChunks, dictionary: DictionaryBlock | None = None
    ) -> EncodedPage | None:
        return encode_mini_block(
            self.column, rows, values, dictionary, large_chunks=self.large_chunks
        )


def smallest_chunks(
    values: NDArray[np.unsignedinteger[Any]], *, floating: bool, rle_threshold: float | None = None
) -> ValueChunks:
    """Plain, bit-packed or runs, whichever is clearly smallest.

    ``floating``: whether they are floats; ``rle_threshold``: runs only if there are fewer than this
    part of the values.
    """
    count, size = len(values), values.itemsize
    smallest = float(values.nbytes)
    packed = None
    if count >= _MIN_PACKED_VALUES:
        widths = bit_widths(values)
        packed_bytes = len(widths) * size + 128 * int(widths.sum())
        if packed_bytes < smallest * (_FLOAT_PACKING_GAIN if floating else _PACKING_GAIN):
            smallest, packed = packed_bytes, widths
    if _may_have_runs(values):
        num_runs = count_runs(values)
        few_runs = rle_threshold is None or num_runs < rle_threshold * count
        if few_runs and run_length_bytes(num_runs, count, size) < smallest * _RUNS_GAIN:
            return run_length_chunks(values)
    if packed is not None:
        return bit_packed_chunks(values, packed)
    return flat_chunks(values, size * 8)


def _may_have_runs(values: NDArray[np.unsignedinteger[Any]]) -> bool:
    """Return whether, judged by four samples, at least every second value repeats its neighbour."""
    step = max(1, len(values) // 4)
    samples = [values[first : first + _SAMPLE] for first in range(0, len(values), step)]
    runs = sum(count_runs(sample) for sample in samples)
    return runs * 2 <= sum(len(sample) for sample in samples)


def _as_items(values: NDArray[Any], bits: int, nulls: NDArray[np.bool_] | None) -> pa.Array:
    """Values of 64 or 128 bits as Arrow values that are equal only if all bits are."""
    data_type = pa.uint64() if bits == 64 else pa.binary(bits // 8)
    validity = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(data_type, len(values), [validity, content])


def _chunk_bytes(values: ValueChunks) -> int:
    return sum(int(buffer.sizes().sum()) for buffer in values.buffers)
