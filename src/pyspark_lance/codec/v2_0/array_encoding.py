"""ArrayEncoding trees of 2.0 pages: from a description to decoders, from arrays to descriptions.

List offsets are the end positions of lists whose items are another column. A packed struct has
fixed-width children, row after row without padding.

Source: docs/format/file-format.md, sections 4 and 5.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.compressive.packed_struct import record_rows
from pyspark_lance.codec.decode_memory import allocate
from pyspark_lance.codec.encoding_requests import EncodingRequest
from pyspark_lance.codec.row_selection import without_offset
from pyspark_lance.codec.v2_0.dictionary import (
    DictionaryArrayDecoder,
    PlainDictionaryDecoder,
    plain_dictionary,
    with_null_item,
)
from pyspark_lance.codec.v2_0.flat import (
    AllNullDecoder,
    ArrayDecoder,
    BitpackedDecoder,
    BitpackedForNonNegDecoder,
    BufferCollector,
    BufferSlice,
    FlatBuffer,
    FlatDecoder,
    PageBuffers,
    bit_width_of,
    check_array_bytes,
    encode_bitmap,
    encode_flat,
    validity_of,
)
from pyspark_lance.codec.v2_0.variable_width import (
    BinaryDecoder,
    EndPositions,
    Ends,
    FixedSizeBinaryDecoder,
    FsstDecoder,
    encode_binary,
    encode_positions,
    is_variable_type,
    value_offsets,
)
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.plain_values import plain_array
from pyspark_lance.proto import encodings_v2_0_pb2 as pb


class FixedSizeListDecoder:
    """``dimension`` items per row.

    ``dimension``: according to the encoding; checked against the type. ``items``: decodes
    ``num_values * dimension`` items.
    """

    def __init__(
        self, dimension: int, data_type: pa.DataType, num_values: int, items: ArrayDecoder
    ) -> None:
        require(
            dimension == data_type.list_size,
            f"lists of {dimension} items are stored for the type {data_type}",
        )
        self.data_type, self.num_values, self.has_bits = data_type, num_values, items.has_bits
        self._items, self._dimension = items, dimension

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices of the items."""
        return self._items.slices(start * self._dimension, end * self._dimension)

    def decode(self, start: int, end: int) -> pa.Array:
        """Lists over the decoded items."""
        check_array_bytes(self.data_type, end - start)
        items = self._items.decode(start * self._dimension, end * self._dimension)
        return pa.Array.from_buffers(self.data_type, end - start, [None], children=[items])


class SomeNullsDecoder:
    """Nullable.some_nulls: bit i of ``validity`` is 1 where value i is valid."""

    def __init__(self, validity: FlatDecoder, values: ArrayDecoder) -> None:
        self.data_type, self.num_values = values.data_type, values.num_values
        self.has_bits = True
        self._validity, self._values = validity, values

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Bitmap and values."""
        return self._validity.slices(start, end) + self._values.slices(start, end)

    def decode(self, start: int, end: int) -> pa.Array:
        """The values with the bitmap on top; nothing is copied."""
        values = self._values.decode(start, end)
        return with_validity(values, self._validity.decode_buffer(start, end))


def with_validity(array: pa.Array, bitmap: pa.Buffer) -> pa.Array:
    """``array`` (of offset 0) where the slots of 0 bits become null."""
    count, data_type = len(array), array.type
    if array.null_count:
        valid = pa.Array.from_buffers(pa.bool_(), count, [None, bitmap])
        return without_offset(array).filter(
            pc.if_else(valid, True, None), null_selection_behavior="emit_null"
        )
    if pa.types.is_dictionary(data_type):
        indices = with_validity(array.indices, bitmap)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary, safe=False)
    if pa.types.is_fixed_size_list(data_type):
        return pa.Array.from_buffers(data_type, count, [bitmap], children=[array.values])
    if pa.types.is_struct(data_type):
        children = [array.field(index) for index in range(data_type.num_fields)]
        return pa.Array.from_buffers(data_type, count, [bitmap], children=children)
    return pa.Array.from_buffers(data_type, count, [bitmap, *array.buffers()[1:]])


_INDEX_TYPES = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
_MAX_VALUES = 1 << 48
_NOTHING_ASKED = EncodingRequest()


def parse_array_encoding(data: bytes) -> pb.ArrayEncoding:
    """The tree of a page."""
    try:
        return pb.ArrayEncoding.FromString(data)
    except DecodeError as error:
        raise CorruptFileError("the page encoding is not a readable message") from error


def make_decoder(
    encoding: pb.ArrayEncoding, data_type: pa.DataType, num_values: int, buffers: PageBuffers
) -> ArrayDecoder:
    """A decoder for a page of leaf values.

    ``encoding``: the tree; List and SimpleStruct are not for this function.
    """
    require(num_values < _MAX_VALUES, f"a page cannot hold {num_values} values")
    kind = encoding.WhichOneof("array_encoding")
    if kind == "nullable":
        return _make_nullable(encoding.nullable, data_type, num_values, buffers)
    if kind == "flat":
        return FlatDecoder(encoding.flat, data_type, num_values, buffers)
    if kind == "fixed_size_list":
        return _make_fixed_size_list(encoding.fixed_size_list, data_type, num_values, buffers)
    if kind == "binary":
        return _make_binary(encoding.binary, data_type, num_values, buffers)
    if kind == "fsst":
        inner = encoding.fsst.binary
        require(inner.HasField("binary"), "FSST codes are not stored as Binary")
        codes = _make_binary(inner.binary, data_type, num_values, buffers)
        return FsstDecoder(codes, encoding.fsst.symbol_table)
    if kind == "dictionary":
        return _make_dictionary(encoding.dictionary, data_type, num_values, buffers)
    if kind == "packed_struct":
        return PackedStructDecoder(encoding.packed_struct, data_type, num_values, buffers)
    if kind == "bitpacked":
        return BitpackedDecoder(encoding.bitpacked, data_type, num_values, buffers)
    if kind == "bitpacked_for_non_neg":
        packed = encoding.bitpacked_for_non_neg
        return BitpackedForNonNegDecoder(packed, data_type, num_values, buffers)
    if kind == "fixed_size_binary":
        strings = encoding.fixed_size_binary
        num_bytes = num_values * strings.byte_width
        data = FlatBuffer(_flat_of(strings.bytes, 8), num_bytes, buffers)
        return FixedSizeBinaryDecoder(data, strings.byte_width, data_type, num_values)
    return reject_unsupported(f"the 2.0 encoding {kind} is not implemented for {data_type}")


def make_list_decoder(
    encoding: pb.ArrayEncoding, num_values: int, buffers: PageBuffers
) -> ListOffsetsDecoder:
    """A decoder for a page of list offsets."""
    require(num_values < _MAX_VALUES, f"a page cannot hold {num_values} values")
    kind = encoding.WhichOneof("array_encoding")
    require(kind == "list", f"a List page is expected, found {kind}")
    flat = _flat_of(encoding.list.offsets, 64)
    offsets = FlatDecoder(flat, pa.uint64(), num_values, buffers)
    return ListOffsetsDecoder(encoding.list, offsets)


def encode_array(
    array: pa.Array,
    collector: BufferCollector,
    request: EncodingRequest = _NOTHING_ASKED,
    blank: NDArray[np.bool_] | None = None,
) -> pb.ArrayEncoding:
    """The tree of a leaf array; null slots are written as zeros or empty.

    ``array``: fixed width, string, binary, null, dictionary, a fixed size list of fixed-width
    values, or a packed struct without nulls; may be a slice. ``blank``: true for slots below a null
    list, whose content is dropped too.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type = array.type
    types = pa.types
    if types.is_dictionary(data_type):
        indices, items = with_null_item(array)
        return _encode_dictionary(encode_array(indices, collector), items, collector)
    if types.is_struct(data_type):
        return encode_packed_struct(array, blank, collector)
    validity = validity_of(array)
    if validity is not None:
        blank = ~validity if blank is None else blank | ~validity
    if is_variable_type(data_type):
        return _encode_strings(array, blank, collector, request)
    if types.is_null(data_type) or (validity is not None and not validity.any()):
        return pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Empty()))
    bitmap = None if validity is None else encode_bitmap(validity, collector)
    if types.is_fixed_size_list(data_type):
        values = _encode_fixed_size_list(array, blank, collector, request)
    else:
        values = encode_flat(array, blank, collector, request)
    if bitmap is None:
        no_nulls = pb.Nullable.NoNulls(values=values)
        return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=no_nulls))
    some_nulls = pb.Nullable.SomeNulls(validity=bitmap, values=values)
    return pb.ArrayEncoding(nullable=pb.Nullable(some_nulls=some_nulls))


def _make_nullable(
    nullable: pb.Nullable, data_type: pa.DataType, num_values: int, buffers: PageBuffers
) -> ArrayDecoder:
    kind = nullable.WhichOneof("nullability")
    if kind == "all_nulls":
        return AllNullDecoder(data_type, num_values)
    if kind == "no_nulls":
        return make_decoder(nullable.no_nulls.values, data_type, num_values, buffers)
    require(kind == "some_nulls", "a Nullable encoding says nothing")
    flat = _flat_of(nullable.some_nulls.validity, 1)
    validity = FlatDecoder(flat, pa.bool_(), num_values, buffers)
    values = make_decoder(nullable.some_nulls.values, data_type, num_values, buffers)
    return SomeNullsDecoder(validity, values)


def _make_fixed_size_list(
    message: pb.FixedSizeList, data_type: pa.DataType, num_values: int, buffers: PageBuffers
) -> ArrayDecoder:
    is_list = bool(pa.types.is_fixed_size_list(data_type))
    require(is_list, f"fixed size lists are stored for the type {data_type}")
    num_items = num_values * message.dimension
    items = make_decoder(message.items, data_type.value_type, num_items, buffers)
    return FixedSizeListDecoder(message.dimension, data_type, num_values, items)


def _make_binary(
    message: pb.Binary, data_type: pa.DataType, num_values: int, buffers: PageBuffers
) -> BinaryDecoder:
    positions = FlatDecoder(_flat_of(message.indices, 64), pa.uint64(), num_values, buffers)
    ends = EndPositions(positions, message.null_adjustment)
    data = FlatBuffer(_flat_of(message.bytes, 8), 0, buffers)
    return BinaryDecoder(ends, data, data_type, num_values)


def _make_dictionary(
    message: pb.Dictionary, data_type: pa.DataType, num_values: int, buffers: PageBuffers
) -> ArrayDecoder:
    num_items = message.num_dictionary_items
    if pa.types.is_dictionary(data_type):
        items = make_decoder(message.items, data_type.value_type, num_items, buffers)
        indices = make_decoder(message.indices, data_type.index_type, num_values, buffers)
        return DictionaryArrayDecoder(indices, items, data_type)
    bits = _flat_of(message.indices, None).bits_per_value
    require(bits in _INDEX_TYPES, f"dictionary indices of {bits} bits")
    items = make_decoder(message.items, data_type, num_items, buffers)
    indices = make_decoder(message.indices, _INDEX_TYPES[bits], num_values, buffers)
    return PlainDictionaryDecoder(indices, items)


def _flat_of(encoding: pb.ArrayEncoding, bits: int | None) -> pb.Flat:
    """The Flat below a NoNulls wrapper, if there is one."""
    while encoding.HasField("nullable") and encoding.nullable.HasField("no_nulls"):
        encoding = encoding.nullable.no_nulls.values
    kind = encoding.WhichOneof("array_encoding")
    if kind != "flat":
        reject_unsupported(f"the 2.0 encoding {kind} is not implemented where Flat is expected")
    found = encoding.flat.bits_per_value
    require(bits in (None, found), f"{bits} bits per value are expected, found {found}")
    return encoding.flat


def _encode_strings(
    array: pa.Array,
    blank: NDArray[np.bool_] | None,
    collector: BufferCollector,
    request: EncodingRequest,
) -> pb.ArrayEncoding:
    """Encode few distinct strings as a dictionary, all other columns plain, as in pylance."""
    dictionary = plain_dictionary(array) if pa.types.is_string(array.type) else None
    if dictionary is None:
        return encode_binary(array, blank, collector, request)
    numbers, items = dictionary
    return _encode_dictionary(encode_array(plain_array(numbers), collector), items, collector)


def _encode_dictionary(
    indices: pb.ArrayEncoding, items: pa.Array, collector: BufferCollector
) -> pb.ArrayEncoding:
    if is_variable_type(items.type):
        validity = validity_of(items)
        blank = None if validity is None else ~validity
        encoded = encode_binary(items, blank, collector, _NOTHING_ASKED)
    else:
        encoded = encode_array(items, collector)
    return pb.ArrayEncoding(
        dictionary=pb.Dictionary(indices=indices, items=encoded, num_dictionary_items=len(items))
    )


def _encode_fixed_size_list(
    array: pa.Array,
    blank: NDArray[np.bool_] | None,
    collector: BufferCollector,
    request: EncodingRequest,
) -> pb.ArrayEncoding:
    dimension = array.type.list_size
    items = array.values.slice(array.offset * dimension, len(array) * dimension)
    item_blank = None if blank is None else np.repeat(blank, dimension)
    encoded = encode_array(items, collector, request, item_blank)
    return pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=dimension, items=encoded))


_OFFSET_BYTES = 4
_FSST_GROWTH = 3


def estimate_value_bytes(
    encoding: pb.ArrayEncoding, data_type: pa.DataType, num_values: int
) -> float:
    """Decoded bytes per value; 0 if the description does not specify it."""
    fixed = bit_width_of(data_type)
    if fixed:
        return fixed / 8
    kind = encoding.WhichOneof("array_encoding")
    if kind == "binary" and num_values:
        return _OFFSET_BYTES + max(encoding.binary.null_adjustment - 1, 0) / num_values
    if kind == "fsst":
        return _FSST_GROWTH * estimate_value_bytes(encoding.fsst.binary, data_type, num_values)
    if kind == "dictionary":
        dictionary = encoding.dictionary
        return estimate_value_bytes(
            dictionary.items, data_type, max(dictionary.num_dictionary_items, 1)
        )
    if kind == "nullable" and encoding.nullable.WhichOneof("nullability") != "all_nulls":
        nullable = encoding.nullable
        inner = nullable.no_nulls if nullable.HasField("no_nulls") else nullable.some_nulls
        return estimate_value_bytes(inner.values, data_type, num_values)
    return 0


_MAX_ITEMS = 1 << 62


class ListOffsetsDecoder:
    """The lists of one page."""

    def __init__(self, message: pb.List, offsets: FlatDecoder) -> None:
        self.num_values, self.num_items = offsets.num_values, message.num_items
        require(message.num_items < _MAX_ITEMS, f"a page counts {message.num_items} list items")
        self._ends = EndPositions(offsets, message.null_offset_adjustment)

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """The offsets, and the one before."""
        return self._ends.slices(start, end)

    def end_slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices that ``span(start, end)`` reads."""
        return self._ends.end_slices(start, end)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The items of the lists ``start`` to ``end``, counted from the first one of the page."""
        return self._ends.span(start, end, self.num_items)

    def decode(self, start: int, end: int) -> Ends:
        """Offsets of the lists ``start`` to ``end``, counted from the first item of the page."""
        return self._ends.decode(start, end, self.num_items)


def encode_list_offsets(array: pa.Array, collector: BufferCollector) -> pb.ArrayEncoding:
    """List of an array whose null lists have no items; it may be a slice."""
    offsets = value_offsets(array).astype(np.int64)
    num_items = int(offsets[-1] - offsets[0])
    positions: NDArray[np.uint64] = (offsets[1:] - offsets[0]).astype("<u8")
    validity = validity_of(array)
    if validity is not None:
        positions[~validity] += np.uint64(num_items + 1)
    return pb.ArrayEncoding(
        list=pb.List(
            offsets=encode_positions(positions, collector),
            null_offset_adjustment=num_items + 1,
            num_items=num_items,
        )
    )


class PackedStructDecoder:
    """Decoder of packed records to the children of a struct; nothing in it can be null."""

    def __init__(
        self,
        message: pb.PackedStruct,
        data_type: pa.DataType,
        num_values: int,
        buffers: PageBuffers,
    ) -> None:
        require(
            bool(pa.types.is_struct(data_type)) and len(message.inner) == data_type.num_fields,
            f"a packed struct of {len(message.inner)} children is stored for {data_type}",
        )
        self.data_type, self.num_values, self.has_bits = data_type, num_values, False
        self._widths = [
            _child_bytes(inner, child.type)
            for inner, child in zip(message.inner, data_type, strict=True)
        ]
        self._row_bytes = sum(self._widths)
        self._index, self._buffers = message.buffer.buffer_index, buffers
        needed = num_values * self._row_bytes
        found = buffers.size(self._index)
        require(found >= needed, f"{needed} bytes of packed records are expected, found {found}")

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return one slice of records."""
        return [BufferSlice(self._index, start * self._row_bytes, end * self._row_bytes)]

    def decode(self, start: int, end: int) -> pa.Array:
        """Copy each child out of the records."""
        count = end - start
        stored = self._buffers.read(self.slices(start, end)[0])
        records = np.frombuffer(stored, np.uint8).reshape(count, self._row_bytes)
        children, position = [], 0
        for width, child in zip(self._widths, self.data_type, strict=True):
            column = allocate(count * width)
            column.reshape(count, width)[...] = records[:, position : position + width]
            children.append(_fixed_width_array(child.type, count, pa.py_buffer(column)))
            position += width
        return pa.Array.from_buffers(self.data_type, count, [None], children=children)


def _child_bytes(encoding: pb.ArrayEncoding, data_type: pa.DataType) -> int:
    """Bytes of a child in a record; the stored width and that of the type must agree."""
    bits = _stored_bits(encoding)
    if bits % 8:
        reject_unsupported(f"packed structs with children of {bits} bits are not implemented")
    require(
        0 < bits == bit_width_of(data_type),
        f"packed values of {bits} bits are stored for the type {data_type}",
    )
    return bits // 8


def _stored_bits(encoding: pb.ArrayEncoding) -> int:
    kind = encoding.WhichOneof("array_encoding")
    if kind == "nullable" and encoding.nullable.HasField("no_nulls"):
        return _stored_bits(encoding.nullable.no_nulls.values)
    if kind == "fixed_size_list":
        items = encoding.fixed_size_list
        return items.dimension * _stored_bits(items.items)
    if kind == "flat":
        return int(encoding.flat.bits_per_value)
    return reject_unsupported(f"the encoding {kind} inside of a packed struct is not implemented")


def _fixed_width_array(data_type: pa.DataType, count: int, data: pa.Buffer) -> pa.Array:
    if pa.types.is_fixed_size_list(data_type):
        items = _fixed_width_array(data_type.value_type, count * data_type.list_size, data)
        return pa.Array.from_buffers(data_type, count, [None], children=[items])
    return pa.Array.from_buffers(data_type, count, [None, data])


def encode_packed_struct(
    array: pa.Array, blank: NDArray[np.bool_] | None, collector: BufferCollector
) -> pb.ArrayEncoding:
    """PackedStruct of a struct array.

    ``array``: structs of fixed-width fields, nothing in it null; may be a slice. ``blank``: true
    for rows that are written as zeros.
    """
    children = [array.field(index) for index in range(array.type.num_fields)]
    buffer = pb.Buffer(buffer_index=collector.add(record_rows(children, blank)))
    inner = [_child_encoding(child.type) for child in array.type]
    return pb.ArrayEncoding(packed_struct=pb.PackedStruct(inner=inner, buffer=buffer))


def _child_encoding(data_type: pa.DataType) -> pb.ArrayEncoding:
    if pa.types.is_fixed_size_list(data_type):
        items = _child_encoding(data_type.value_type)
        encoding = pb.ArrayEncoding(
            fixed_size_list=pb.FixedSizeList(dimension=data_type.list_size, items=items)
        )
    else:
        flat = pb.Flat(bits_per_value=bit_width_of(data_type), buffer=pb.Buffer())
        encoding = pb.ArrayEncoding(flat=flat)
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=encoding)))
