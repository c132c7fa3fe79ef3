"""Full-zip pages: large values, each with its levels in front of it.

Source: docs/format/file-format.md, section 6.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.chunk_buffers import EncodedPage, Segments
from pyspark_lance.codec.leaf_column import LeafColumn, LeafValues
from pyspark_lance.plain_values import plain_scalar
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


def encode_fixed_full_zip(
    column: LeafColumn,
    rows: LeafValues,
    values: NDArray[np.uint8],
    encoding: pb.CompressiveEncoding,
) -> EncodedPage:
    """Values of equal width; every visible entry has one, null or not.

    ``values``: bytes, shape (values, width); ``encoding``: of the bytes of a value.
    """
    control, bits = _control_words(rows)
    layout = pb.PageLayout(
        full_zip_layout=pb.FullZipLayout(
            bits_rep=bits[0],
            bits_def=bits[1],
            bits_per_value=values.shape[1] * 8,
            num_items=rows.num_entries,
            num_visible_items=len(values),
            value_compression=encoding,
            layers=column.page_layers(rows),
        )
    )
    size = control.shape[1]
    if size == 0:
        return EncodedPage([np.ascontiguousarray(values)], layout, rows.num_rows)
    if rows.visible is None:
        zipped = np.concatenate((control, values), axis=1)
        starts = np.arange(len(control)) * zipped.shape[1]
    else:
        sizes = np.full(rows.num_entries, size, np.int64)
        sizes[rows.visible] += values.shape[1]
        starts = np.cumsum(sizes) - sizes
        zipped = np.empty(int(sizes.sum()), np.uint8)
        zipped[starts[:, None] + np.arange(size)] = control
        width = values.shape[1]
        source = np.arange(len(values), dtype=np.int64) * width
        flat = np.ascontiguousarray(values).reshape(-1)
        Segments(flat, source, np.full(len(values), width, np.int64)).copy_to(
            zipped, starts[rows.visible] + size
        )
    buffers: list[object] = [zipped]
    if rows.repetition is not None:
        buffers.append(_index(starts[rows.row_starts(column)], zipped.size))
    return EncodedPage(buffers, layout, rows.num_rows)


def encode_variable_full_zip(
    column: LeafColumn,
    rows: LeafValues,
    offsets: NDArray[np.signedinteger[Any]],
    content: NDArray[np.uint8],
    encoding: pb.CompressiveEncoding,
) -> EncodedPage:
    """Strings and binaries; only valid values have a length and bytes.

    ``offsets``: one more than values; nulls are empty. ``content``: the bytes they count into;
    ``encoding``: of the bytes of a value.
    """
    control, bits = _control_words(rows)
    layout = pb.PageLayout(
        full_zip_layout=pb.FullZipLayout(
            bits_rep=bits[0],
            bits_def=bits[1],
            bits_per_offset=offsets.itemsize * 8,
            num_items=rows.num_entries,
            num_visible_items=len(offsets) - 1,
            value_compression=encoding,
            layers=column.page_layers(rows),
        )
    )
    prefixes = _prefixes(rows, control, offsets)
    payloads = _payloads(rows, offsets, content)
    # Arrow's kernel puts prefix and payload side by side for all entries; its offsets say where.
    zipped = pc.binary_join_element_wise(prefixes, payloads, plain_scalar(b"", pa.large_binary()))
    starts = np.frombuffer(zipped.buffers()[1], np.int64)[: rows.num_entries + 1]
    data = np.frombuffer(zipped.buffers()[2], np.uint8)[: int(starts[-1])]
    if rows.repetition is not None:
        starts = np.append(starts[rows.row_starts(column)], starts[-1])
    return EncodedPage([data, _index(starts[:-1], len(data))], layout, rows.num_rows)


def _control_words(rows: LeafValues) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """The control word of each entry, shape (entries, bytes), and the bits of its two parts."""
    bits = [
        0 if levels is None else max(1, int(levels.max()).bit_length())
        for levels in (rows.repetition, rows.definition)
    ]
    words = np.zeros(rows.num_entries, "<u2")
    if rows.repetition is not None:
        words |= rows.repetition.astype("<u2") << np.uint16(bits[1])
    if rows.definition is not None:
        words |= rows.definition
    size = 0 if sum(bits) == 0 else 1 if sum(bits) <= 8 else 2
    return words.view(np.uint8).reshape(-1, 2)[:, :size], (bits[0], bits[1])


def _prefixes(
    rows: LeafValues, control: NDArray[np.uint8], offsets: NDArray[np.signedinteger[Any]]
) -> pa.Array:
    """Control word and, for valid values, length of each entry, as binaries."""
    size, width = control.shape[1], offsets.itemsize
    lengths = np.diff(offsets).view(np.uint8).reshape(-1, width)
    if rows.definition is None:
        prefixes = np.concatenate((control, lengths), axis=1).reshape(-1)
        starts = np.arange(rows.num_entries + 1, dtype=np.int64) * (size + width)
    else:
        valid = rows.definition == 0
        starts = np.zeros(rows.num_entries + 1, np.int64)
        np.cumsum(size + valid * width, out=starts[1:])
        prefixes = np.empty(int(starts[-1]), np.uint8)
        prefixes[starts[:-1, None] + np.arange(size)] = control
        is_value = valid if rows.visible is None else valid[rows.visible]
        prefixes[(starts[:-1][valid] + size)[:, None] + np.arange(width)] = lengths[is_value]
    return _binaries(starts, prefixes)


def _payloads(
    rows: LeafValues, offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8]
) -> pa.Array:
    """The bytes of each entry, as binaries; empty where it has none."""
    if rows.visible is None:
        return _binaries(offsets.astype(np.int64), content)
    starts = np.full(rows.num_entries + 1, int(offsets[0]), np.int64)
    lengths = np.zeros(rows.num_entries, np.int64)
    lengths[rows.visible] = np.diff(offsets)
    starts[1:] += np.cumsum(lengths)
    return _binaries(starts, content)


def _binaries(starts: NDArray[np.int64], content: NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


def _index(starts: NDArray[np.int64], end: int) -> NDArray[np.uint8]:
    """Encode the row starts and the end in the narrowest integer type that fits."""
    kinds = ("u1", "<u2", "<u4", "<u8")
    kind = next(kind for kind in kinds if end <= np.iinfo(kind).max)
    return np.append(starts, end).astype(kind).view(np.uint8)
