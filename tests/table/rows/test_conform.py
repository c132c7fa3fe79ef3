"""Data are brought into the table's types without loss, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_lance.errors import SchemaMismatchError
from pyspark_lance.format.logical_type import plain_type, to_plain
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.cdf.column_source import cast_values
from pyspark_lance.table.rows.conform import arrow_cast, conform_array, conform_batch, storable

MAP = pa.map_(pa.string(), pa.int32())
STRICT_MAP = pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))

CASES = [
    (pa.array([[("k", 1)], [], [("a", 2), ("b", 3)]], STRICT_MAP), MAP),
    (pa.array([[("k", 1)], None, [("a", 2)]], MAP).slice(1), pa.map_(pa.string(), pa.int64())),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64())), pa.list_(pa.float32(), 2)),
    (pa.array([[1], None, [], [2, 3]], pa.list_(pa.int32())).slice(1), pa.large_list(pa.int64())),
    (pa.array(["a", None, "b"]), pa.dictionary(pa.int8(), pa.string())),
    (pa.array([{"b": 1, "a": "x"}, None]), pa.struct([("a", pa.string()), ("b", pa.int16())])),
    (pa.array([{"a": "x"}, None]), pa.struct([("a", pa.string()), ("b", pa.int16())])),
    (pa.array([b"ab", None]), pa.binary(2)),
    (pa.array([1, 255, None], pa.int16()), pa.uint8()),
    (
        pa.array([[[1, 2]], [], None], pa.list_(pa.list_(pa.int8()))),
        pa.list_(pa.list_(pa.int32(), 2)),
    ),
    (pa.nulls(3), pa.list_(pa.string())),
]


@pytest.mark.parametrize(("array", "target"), CASES, ids=lambda x: str(getattr(x, "type", x))[:40])
def test_conformed_values_are_kept(array, target):
    result = conform_array(array, target, "c")
    result.validate(full=True)
    assert result.type == target

    def without_missing(value):
        if isinstance(value, dict):
            return {k: v for k, v in value.items() if v is not None}
        return value

    assert [without_missing(v) for v in result.to_pylist()] == [
        without_missing(v) for v in array.to_pylist()
    ]


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (pa.array(["a"]), pa.int64()),
        (pa.array([300], pa.int16()), pa.uint8()),
        (pa.array([[1, 2, 3]]), pa.list_(pa.int64(), 2)),
        (pa.array([b"abc"]), pa.binary(2)),
        (pa.array([1.5]), pa.int64()),
        (pa.array([{"z": 1}]), pa.struct([("a", pa.int64())])),
    ],
)
def test_unfitting_values_error_names_column(array, target):
    with pytest.raises(SchemaMismatchError, match="'c'"):
        conform_array(array, target, "c")


def test_missing_required_member_is_not_storable():
    target = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    assert not storable(pa.struct([("a", pa.int64())]), target)


@pytest.mark.parametrize(
    "stored",
    [
        pa.array([[("k", 1)], None, [("a", None)]], pa.map_(pa.large_string(), pa.uint8())).slice(
            1
        ),
        pa.array([[[1, 2]], None, [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.uint8(), 2))).slice(1),
        pa.array([{"a": {"b": 1}}, None], pa.struct([("a", pa.struct([("b", pa.uint32())]))])),
        pa.array(["x", None]).dictionary_encode(),
        pa.array([2**64 - 1, None], pa.uint64()),
    ],
)
def test_plain_values_equal_stored_values(stored):
    plain = to_plain(stored, plain_type(stored.type, "c"), "c")
    plain.validate(full=True)
    assert plain.to_pylist() == stored.to_pylist()


@pytest.mark.parametrize(("row", "part"), [([("a", "bbb")], "value"), ([("aaa", "b")], "key")])
def test_text_length_limits_apply_inside_maps(row, part):
    limit = {"spark.type": "varchar(2)"}
    kind = pa.map_(
        pa.field("key", pa.string(), nullable=False, metadata=limit),
        pa.field("value", pa.string(), metadata=limit),
    )
    fields = LanceSchema.from_arrow(pa.schema([pa.field("m", kind)])).fields
    good = [[("a", "b"), ("aa", None)], None, []]

    def conformed(rows):
        column = pa.array(rows, pa.map_(pa.string(), pa.string()))
        return conform_batch(pa.RecordBatch.from_arrays([column], ["m"]), fields)

    assert conformed(good)["m"].to_pylist() == good
    with pytest.raises(SchemaMismatchError, match=rf"'m\.{part}' has 3 characters"):
        conformed([*good, row])


_NANOS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("whole", "first", "target"),
    [
        (pa.array([[300], [1]], pa.list_(pa.int16())), 1, pa.list_(pa.int8())),
        (pa.array([[300], [1]], pa.list_(pa.int16())), 1, pa.list_(pa.int8(), 1)),
        (pa.array([[300], [1]], pa.list_(pa.int16(), 1)), 1, pa.list_(pa.int8(), 1)),
        (pa.array([[("k", 300)], []], pa.map_(pa.string(), pa.int16())), 1,
         pa.map_(pa.string(), pa.int8())),
        (pa.array([{"a": [300]}, {"a": [1]}], pa.struct([("a", pa.list_(pa.int16()))])), 1,
         pa.struct([("a", pa.list_(pa.int8()))])),
        (pa.StructArray.from_arrays([pa.array([300, 1], pa.int16())], ["a"],
                                    mask=pa.array([True, False])), 0,
         pa.struct([("a", pa.int8())])),
        (pa.ListArray.from_arrays(pa.array([0, 1, 2]), pa.array([300, 1], pa.int16()),
                                  mask=pa.array([True, False])), 0, pa.list_(pa.int8(), 1)),
    ],
    ids=lambda x: str(getattr(x, "type", x))[:40],
)  # fmt: skip
def test_invisible_values_are_not_converted(whole, first, target):
    result = conform_array(whole.slice(first), target, "c")
    result.validate(full=True)
    assert result.to_pylist() == whole.slice(first).to_pylist()
    assert arrow_cast(whole.slice(first), target).equals(result)
    assert cast_values(whole.slice(first), target).to_pylist() == result.to_pylist()


@pytest.mark.parametrize(
    ("whole", "first"),
    [
        (pa.array([[1], [1000]], pa.list_(_NANOS)), 1),
        (pa.array([[1], [1000]], pa.list_(_NANOS, 1)), 1),
        (pa.StructArray.from_arrays([pa.array([1, 1000], _NANOS)], ["a"],
                                    mask=pa.array([True, False])), 0),
    ],
)  # fmt: skip
def test_invisible_values_are_not_made_plain(whole, first):
    part = whole.slice(first)
    plain = to_plain(part, plain_type(part.type, "c"), "c")
    plain.validate(full=True)
    assert plain.to_pylist() == part.to_pylist()
