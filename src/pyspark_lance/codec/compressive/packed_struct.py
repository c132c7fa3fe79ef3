"""PackedStruct: all fields of a row side by side.

Source: docs/format/file-format.md, sections 6.3 and 6.4 (9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.compressive.encoding_record import ChunkDecoder, Encoding, EncodingRecord
from pyspark_lance.codec.values import FixedWidthValues, StructValues, Values


def split_records(records: Values, bits_per_field: Sequence[int]) -> StructValues:
    """The columns of row-major records of fixed width."""
    require(isinstance(records, FixedWidthValues), "packed records are not of fixed width")
    assert isinstance(records, FixedWidthValues)
    whole_bytes = all(bits % 8 == 0 and bits > 0 for bits in bits_per_field)
    fills = sum(bits_per_field) == records.bits_per_value
    require(whole_bytes and fills, "the fields of a packed struct do not fill its records")
    width = records.bits_per_value // 8
    count = records.num_values
    grid = records.buffer[: count * width].reshape(count, width)
    fields: list[Values] = []
    position = 0
    for bits in bits_per_field:
        column: NDArray[np.uint8] = grid[:, position : position + bits // 8]
        fields.append(FixedWidthValues(count, bits, np.ascontiguousarray(column).reshape(-1)))
        position += bits // 8
    return StructValues(count, tuple(fields))


def _parts(message: Any) -> tuple[Encoding, ...]:
    return (message.values,)


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    widths = tuple(int(bits) for bits in message.bits_per_value)
    inner = nested(message.values)
    return lambda chunks: split_records(inner(chunks), widths)


PACKED_STRUCT = EncodingRecord(
    kind="packed_struct",
    writer="compressive/encode_packed_struct.py",
    parts=_parts,
    chunk_decoder=_chunk_decoder,
)
"""The encoding of structs of fixed width that are read as a whole."""
