"""Dictionaries of 0.1 tables: their items are in every manifest file, the same for all writers.

Source: docs/format/file-format.md, sections 10.2 and 14.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.codec.v2_0.array_decoder import bit_width_of
from pyspark_lance.codec.v2_0.variable_width import is_large, is_variable_type
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema


def known_dictionaries(schema: LanceSchema, content: bytes) -> dict[int, pa.Array]:
    """The items of every dictionary that has some, by field id.

    ``schema``: columns of a table of file version 0.1.
    """
    return {
        field.id: _items(field, content)
        for field in schema.walk()
        if field.logical_type.startswith("dict:") and field.dictionary and field.dictionary[1]
    }


def indices_of(array: pa.DictionaryArray, items: pa.Array, path: str) -> pa.Array:
    """The places of the values among the items of the table; nulls stay null."""
    values = array.dictionary
    places = pc.index_in(values, value_set=items)
    unknown = pc.and_(pc.is_null(places), pc.is_valid(values))
    used = pc.take(unknown, array.indices.drop_null())
    if bool(pc.any(used).as_py()):
        first = pc.filter(pc.take(values, array.indices.drop_null()), used)[0].as_py()
        raise UnsupportedFeatureError(
            f"column {path}: {first!r} is not in the dictionary of the table, and all files of"
            " version 0.1 share one",
            hint="rewrite the table with file version 2.0 or newer",
        )
    return pc.take(places, array.indices).cast(array.type.index_type)


def _items(field: Field, content: bytes) -> pa.Array:
    assert field.dictionary is not None
    position, count = field.dictionary
    data_type = field.to_arrow().type.value_type
    try:
        if not is_variable_type(data_type):
            size = -(-count * (bit_width_of(data_type) or 0) // 8)
            plain = pa.py_buffer(_slice(content, position, size))
            return pa.Array.from_buffers(data_type, count, [None, plain])
        positions = np.frombuffer(_slice(content, position, 8 * (count + 1)), "<i8")
        first, end = int(positions[0]), int(positions[-1])
        if bool((np.diff(positions) < 0).any()):
            raise IndexError
        offsets = (positions - first).astype(np.int64 if is_large(data_type) else np.int32)
        data = pa.py_buffer(_slice(content, first, end - first))
        return pa.Array.from_buffers(data_type, count, [None, pa.py_buffer(offsets), data])
    except IndexError as error:
        raise CorruptFileError(
            f"the manifest does not hold the dictionary of column {field.name!r}"
        ) from error


def _slice(content: bytes, start: int, size: int) -> bytes:
    if start < 0 or size < 0 or start + size > len(content):
        raise IndexError
    return content[start : start + size]
