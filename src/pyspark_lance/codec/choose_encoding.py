"""Which encoding a page of 2.1 or 2.2 gets, from what its values look like.

All null or no values: a constant page. Values of 256 bytes and more: full-zip. Everything else:
mini-block, with few distinct values as a dictionary, integers bit-packed or as runs where that
pays, the rest plain.

Source: file-format.md sections 11 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.arrow_values import (
    bits_per_value,
    boolean_bits,
    boolean_values,
    fixed_width_values,
    is_variable_width,
    variable_width_values,
)
from pyspark_lance.codec.compressive.encode_block_compression import compressed_chunks
from pyspark_lance.codec.compressive.encode_constant import only_value
from pyspark_lance.codec.compressive.encode_dictionary import (
    compact,
    dictionary_block,
    few_items,
    index_values,
    least_bytes,
    saves_enough,
)
from pyspark_lance.codec.compressive.encode_fixed_size_list import (
    list_chunks,
    list_rows,
    take_apart,
)
from pyspark_lance.codec.compressive.encode_fixed_width import (
    bit_packed_chunks,
    boolean_chunks,
    byte_stream_split_chunks,
    count_runs,
    flat,
    flat_chunks,
    run_length_bytes,
    run_length_chunks,
)
from pyspark_lance.codec.compressive.encode_packed_struct import (
    is_fixed_record,
    packed_children,
    packed_rows,
    record_chunks,
)
from pyspark_lance.codec.compressive.encode_variable_width import variable_chunks
from pyspark_lance.codec.compressive.pack_bits import bit_widths
from pyspark_lance.codec.compressive.string_compression import (
    FsstColumn,
    StoredStrings,
    compressed_values,
    plain_strings,
    smaller_huge_values,
)
from pyspark_lance.codec.encoding_requests import EncodingRequest, encoding_request
from pyspark_lance.codec.leaf_column import LeafColumn, LeafValues
from pyspark_lance.codec.structural.all_null_writer import encode_all_null, encode_constant
from pyspark_lance.codec.structural.encoded_page import EncodedPage
from pyspark_lance.codec.structural.full_zip_writer import (
    encode_fixed_full_zip,
    encode_variable_full_zip,
)
from pyspark_lance.codec.structural.mini_block_writer import encode_mini_block
from pyspark_lance.codec.value_chunks import DictionaryBlock, ValueChunks
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
    """Encodes the pages of one column.

    Attributes:
        column: The column.
        request: What its metadata ask for.
        large_chunks: Whether the file is 2.2: wider sizes, and dictionaries of 64-bit numbers.
        fsst: Keeps the symbols of its strings.
    """

    column: LeafColumn
    request: EncodingRequest
    large_chunks: bool
    fsst: FsstColumn

    @classmethod
    def of(cls, column: LeafColumn, version: str) -> PageEncoder:
        """The encoder of a column in a file of version 2.1 or 2.2.

        Raises:
            UnsupportedFeatureError: The column's metadata ask for an encoding we do not write.
        """
        request = encoding_request(column.metadata, column.name, column.type)
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
        """Whether the page has no values.

        Null items of lists do not count if the type has values at all: releases of Lance before 9
        lose entries of constant pages that have more entries than rows.
        """
        if len(rows.values) == 0:
            return True
        if nulls is None or not nulls.all():
            return False
        kind = self.column.type
        in_lists = rows.repetition is not None
        return not in_lists or pa.types.is_null(kind) or pa.types.is_dictionary(kind)

    def _only_value(self, rows: LeafValues) -> tuple[NDArray[np.uint8], ...] | None:
        """The value of all rows. With levels, which are not packed, a page would be no smaller."""
        has_levels = rows.repetition is not None or rows.definition is not None
        if not self.large_chunks or has_levels or self._as_asked or self.request.full_zip:
            return None
        return only_value(rows.values) if len(rows.values) > 1 else None

    def _encode_large_row(self, rows: LeafValues, nulls: NDArray[np.bool_] | None) -> EncodedPage:
        """One row that does not fit into a chunk: full-zip knows no chunks."""
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
        """One page; None if the chunks of a mini-block page would become too large."""
        kind = self.column.type
        if pa.types.is_dictionary(kind):
            array = compact(rows.values)
            indices = smallest_chunks(index_values(array, nulls), floating=False)
            return self._mini_block(rows, indices, dictionary_block(array.dictionary))
        if is_variable_width(kind):
            return self._encode_variable_width(rows, nulls, wide=wide)
        if pa.types.is_fixed_size_list(kind):
            lists = take_apart(rows.values, nulls)
            # Rows of bits are only whole bytes together, so booleans stay in chunks.
            wide = wide or lists.bits_per_row >= WIDE_BYTES * 8
            if wide and not lists.is_boolean:
                return encode_fixed_full_zip(self.column, rows, list_rows(lists), lists.encoding)
            return self._mini_block(rows, self._compressed(list_chunks(lists)))
        if pa.types.is_struct(kind):
            return self._encode_packed_struct(rows, nulls)
        if pa.types.is_boolean(kind):
            if wide:
                flags = boolean_values(rows.values, nulls).reshape(-1, 1)
                return encode_fixed_full_zip(self.column, rows, flags, flat(8))
            chunks = boolean_chunks(boolean_bits(rows.values, nulls), len(rows.values))
            return self._mini_block(rows, self._compressed(chunks))
        return self._encode_fixed_width(rows, nulls, wide=wide)

    def _encode_variable_width(
        self, rows: LeafValues, nulls: NDArray[np.bool_] | None, *, wide: bool
    ) -> EncodedPage | None:
        offsets, content = variable_width_values(rows.values, nulls)
        plain_bytes = int(offsets[-1] - offsets[0]) + offsets.nbytes
        if not wide and not self._as_asked:
            encoded = few_items(rows.values, plain_bytes)
            if encoded is not None and saves_enough(least_bytes(encoded), plain_bytes):
                indices = smallest_chunks(index_values(encoded, nulls), floating=False)
                return self._mini_block(rows, indices, dictionary_block(encoded.dictionary))
        strings = plain_strings(offsets, content)
        if wide or int(np.diff(offsets).max()) >= WIDE_BYTES:
            stored = self._stored_one_by_one(strings, nulls)
            return encode_variable_full_zip(
                self.column, rows, stored.offsets, stored.content, stored.encoding
            )
        stored = self._as_codes(strings)
        chunks = variable_chunks(stored.offsets, stored.content, stored.encoding)
        return self._mini_block(rows, self._compressed(chunks))

    def _as_codes(self, strings: StoredStrings) -> StoredStrings:
        """The strings as FSST codes, if that was asked for or they are text that shrinks."""
        if self.request.compression == "fsst":
            return self.fsst.encode(strings)
        is_text = pa.types.is_unicode(self.column.type)
        return self.fsst.shrink_text(strings) if is_text and not self._as_asked else strings

    def _stored_one_by_one(
        self, strings: StoredStrings, nulls: NDArray[np.bool_] | None
    ) -> StoredStrings:
        """The bytes of each value as a full-zip page has them."""
        request = self.request
        if request.general is not None:
            # pylance cannot read nulls among values that lz4 compressed one by one.
            scheme = request.general if nulls is None else "zstd"
            return compressed_values(strings, nulls, scheme, request.compression_level)
        huge = None if self._as_asked else smaller_huge_values(strings, nulls)
        return self._as_codes(strings) if huge is None else huge

    def _encode_packed_struct(
        self, rows: LeafValues, nulls: NDArray[np.bool_] | None
    ) -> EncodedPage | None:
        children = packed_children(rows.values, nulls, self.column.name)
        if is_fixed_record(self.column.type):
            return self._mini_block(rows, record_chunks(children, nulls))
        stored = packed_rows(children, nulls)
        return encode_variable_full_zip(
            self.column, rows, stored.offsets, stored.content, stored.encoding
        )

    def _encode_fixed_width(
        self, rows: LeafValues, nulls: NDArray[np.bool_] | None, *, wide: bool
    ) -> EncodedPage | None:
        kind = self.column.type
        bits = bits_per_value(kind)
        values = fixed_width_values(rows.values, nulls)
        if wide or bits >= WIDE_BYTES * 8:
            matrix = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
            return encode_fixed_full_zip(self.column, rows, matrix, flat(bits))
        if self.request.byte_stream_split:
            return self._mini_block(rows, self._compressed(byte_stream_split_chunks(values)))
        if self._as_asked or bits not in (8, 16, 32, 64):
            plain = flat_chunks(values, bits)
        else:
            plain = smallest_chunks(values, floating=pa.types.is_floating(kind))
        # Older readers know dictionaries of strings and of 128-bit values only.
        if (bits == 128 or (bits == 64 and self.large_chunks)) and not self._as_asked:
            plain_bytes = _chunk_bytes(plain)
            # Runs of indices may be smaller than packed indices.
            least = math.inf if plain.encoding.HasField("rle") else plain_bytes
            encoded = few_items(_as_items(values, bits, nulls), least)
            if encoded is not None:
                indices = smallest_chunks(index_values(encoded, nulls), floating=False)
                index_bytes = _chunk_bytes(indices)
                if saves_enough(index_bytes + encoded.dictionary.nbytes, plain_bytes):
                    return self._mini_block(rows, indices, dictionary_block(encoded.dictionary))
        return self._mini_block(rows, self._compressed(plain))

    @property
    def _as_asked(self) -> bool:
        """Whether the metadata leave nothing to choose."""
        return self.request.plain or self.request.compression is not None

    def _compressed(self, values: ValueChunks) -> ValueChunks:
        request = self.request
        if request.general is None:
            return values
        return compressed_chunks(values, request.general, request.compression_level)

    def _mini_block(
        self, rows: LeafValues, values: ValueChunks, dictionary: DictionaryBlock | None = None
    ) -> EncodedPage | None:
        return encode_mini_block(
            self.column, rows, values, dictionary, large_chunks=self.large_chunks
        )


def smallest_chunks(values: NDArray[np.unsignedinteger[Any]], *, floating: bool) -> ValueChunks:
    """Plain, bit-packed or runs, whichever is clearly smallest."""
    count, size = len(values), values.itemsize
    smallest = float(values.nbytes)
    packed = None
    if count >= _MIN_PACKED_VALUES:
        widths = bit_widths(values)
        packed_bytes = len(widths) * size + 128 * int(widths.sum())
        if packed_bytes < smallest * (_FLOAT_PACKING_GAIN if floating else _PACKING_GAIN):
            smallest, packed = packed_bytes, widths
    if _may_have_runs(values):
        runs_bytes = run_length_bytes(count_runs(values), count, size)
        if runs_bytes < smallest * _RUNS_GAIN:
            return run_length_chunks(values)
    if packed is not None:
        return bit_packed_chunks(values, packed)
    return flat_chunks(values, size * 8)


def _may_have_runs(values: NDArray[np.unsignedinteger[Any]]) -> bool:
    """Whether, judged by four samples, at least every second value repeats its neighbour."""
    step = max(1, len(values) // 4)
    samples = [values[first : first + _SAMPLE] for first in range(0, len(values), step)]
    runs = sum(count_runs(sample) for sample in samples)
    return runs * 2 <= sum(len(sample) for sample in samples)


def _as_items(values: NDArray[Any], bits: int, nulls: NDArray[np.bool_] | None) -> pa.Array:
    """Values of 64 or 128 bits as Arrow values that are equal only if all bits are."""
    kind = pa.uint64() if bits == 64 else pa.binary(bits // 8)
    validity = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [validity, content])


def _chunk_bytes(values: ValueChunks) -> int:
    return sum(int(buffer.sizes().sum()) for buffer in values.buffers)
