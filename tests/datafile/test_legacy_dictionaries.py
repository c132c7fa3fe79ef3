"""Items of dictionaries in the bytes of a manifest file."""

import struct
from dataclasses import replace

import pyarrow as pa
import pytest

from pyspark_lance.datafile.v0_1.writer import indices_of, known_dictionaries
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema

CONTENT = b"abbccc" + struct.pack("<4q", 0, 1, 3, 6) + struct.pack("<3h", 5, 6, 7)


def schema(kind: pa.DataType, position: int, count: int) -> LanceSchema:
    column = pa.field("d", pa.dictionary(pa.int8(), kind))
    (field,) = LanceSchema.from_arrow(pa.schema([column])).fields
    return LanceSchema((replace(field, dictionary=(position, count)),))


def test_legacy_dictionary_items_are_found():
    assert known_dictionaries(schema(pa.string(), 6, 3), CONTENT)[0].to_pylist() == [
        "a",
        "bb",
        "ccc",
    ]
    assert known_dictionaries(schema(pa.large_binary(), 14, 2), CONTENT)[0].to_pylist() == [
        b"bb", b"ccc"
    ]  # fmt: skip
    assert known_dictionaries(schema(pa.int16(), 38, 3), CONTENT)[0].to_pylist() == [5, 6, 7]
    assert known_dictionaries(schema(pa.string(), 6, 0), CONTENT) == {}


@pytest.mark.parametrize(
    ("kind", "position", "count"),
    [
        (pa.string(), 6, 1 << 40), (pa.string(), -8, 3), (pa.string(), 30, 2), (pa.string(), 12, 2),
        (pa.int16(), 43, 1), (pa.int64(), 0, 1 << 60), (pa.int64(), 6, -1),
    ],
)  # fmt: skip
def test_legacy_dictionary_outside_manifest_is_corrupt(kind, position, count):
    with pytest.raises(CorruptFileError, match="dictionary of column 'd'"):
        known_dictionaries(schema(kind, position, count), CONTENT)


def test_values_map_to_legacy_dictionary_indices():
    items = pa.array(["a", "bb", ""])
    own = pa.array(["", None, "bb", "unused"])
    array = pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1], pa.int8()), own)
    assert indices_of(array, items, "d").to_pylist() == [1, 2, None, None]
    assert indices_of(array[:0], items, "d").to_pylist() == []
    with pytest.raises(UnsupportedFeatureError, match="column d: 'unused' is not in"):
        indices_of(pa.array(["bb", "unused"]).dictionary_encode(), items, "d")
