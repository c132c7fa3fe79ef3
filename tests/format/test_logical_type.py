import pyarrow as pa
import pytest

from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.logical_type import (
    BFLOAT16,
    arrow_type_of,
    informative_encoding,
    logical_type_of,
)

# Every row of the format's table that has no children: Arrow type, logical type, encoding.
LEAVES = [
    (pa.null(), "null", 0),
    (pa.bool_(), "bool", 1),
    (pa.int8(), "int8", 1),
    (pa.int16(), "int16", 1),
    (pa.int32(), "int32", 1),
    (pa.int64(), "int64", 1),
    (pa.uint8(), "uint8", 1),
    (pa.uint16(), "uint16", 1),
    (pa.uint32(), "uint32", 1),
    (pa.uint64(), "uint64", 1),
    (pa.float16(), "halffloat", 1),
    (pa.float32(), "float", 1),
    (pa.float64(), "double", 1),
    (pa.string(), "string", 2),
    (pa.large_string(), "large_string", 2),
    (pa.binary(), "binary", 2),
    (pa.large_binary(), "large_binary", 2),
    (pa.binary(16), "fixed_size_binary:16", 1),
    (pa.date32(), "date32:day", 1),
    (pa.date64(), "date64:ms", 1),
    (pa.time32("s"), "time32:s", 1),
    (pa.time32("ms"), "time32:ms", 1),
    (pa.time64("us"), "time64:us", 1),
    (pa.time64("ns"), "time64:ns", 1),
    (pa.timestamp("s"), "timestamp:s:-", 1),
    (pa.timestamp("ms"), "timestamp:ms:-", 1),
    (pa.timestamp("us", "UTC"), "timestamp:us:UTC", 1),
    (pa.timestamp("ns", "+05:30"), "timestamp:ns:+05:30", 1),
    (pa.duration("s"), "duration:s", 1),
    (pa.duration("ns"), "duration:ns", 1),
    (pa.decimal128(10, 2), "decimal:128:10:2", 1),
    (pa.decimal128(10, -2), "decimal:128:10:-2", 1),
    (pa.decimal256(40, 5), "decimal:256:40:5", 1),
    (pa.dictionary(pa.int16(), pa.string()), "dict:string:int16:false", 3),
    (
        pa.dictionary(pa.uint8(), pa.timestamp("us", "+05:30")),
        "dict:timestamp:us:+05:30:uint8:false",
        3,
    ),
    (pa.list_(pa.float32(), 4), "fixed_size_list:float:4", 1),
    (pa.list_(pa.list_(pa.float32(), 2), 3), "fixed_size_list:fixed_size_list:float:2:3", 1),
    (pa.list_(pa.timestamp("us", "+05:30"), 4), "fixed_size_list:timestamp:us:+05:30:4", 1),
    (pa.list_(pa.string(), 4), "fixed_size_list:string:4", 1),
]
ITEM = pa.field("element", pa.int32(), nullable=False, metadata={"k": "v"})
MEMBERS = [pa.field("a", pa.int8()), pa.field("b", pa.string(), nullable=False)]
ENTRIES = pa.field(
    "entries", pa.struct([pa.field("k", pa.string(), False), pa.field("v", pa.int8())]), False
)
# Arrow type, logical type, children, encoding.
NESTED = [
    (pa.struct(MEMBERS), "struct", MEMBERS, 0),
    (pa.struct([]), "struct", [], 0),
    (pa.list_(ITEM), "list", [ITEM], 1),
    (pa.large_list(ITEM), "large_list", [ITEM], 1),
    (pa.list_(pa.struct(MEMBERS)), "list.struct", [pa.field("item", pa.struct(MEMBERS))], 1),
    (
        pa.large_list(pa.struct(MEMBERS)),
        "large_list.struct",
        [pa.field("item", pa.struct(MEMBERS))],
        1,
    ),
    (
        pa.list_(pa.struct(MEMBERS), 2),
        "fixed_size_list:struct:2",
        [pa.field("item", pa.struct(MEMBERS))],
        1,
    ),
    (pa.map_(pa.field("k", pa.string(), False), pa.field("v", pa.int8())), "map", [ENTRIES], 1),
]


@pytest.mark.parametrize(("arrow", "logical", "encoding"), LEAVES, ids=lambda value: str(value))
def test_types_without_children_round_trip(arrow, logical, encoding):
    assert logical_type_of(arrow) == logical
    assert arrow_type_of(logical) == arrow
    assert informative_encoding(logical) == encoding


@pytest.mark.parametrize(("arrow", "logical", "children", "encoding"), NESTED, ids=str)
def test_nested_types_round_trip(arrow, logical, children, encoding):
    assert logical_type_of(arrow) == logical
    assert arrow_type_of(logical, children).equals(arrow, check_metadata=True)
    assert informative_encoding(logical) == encoding


def test_lossy_types_map_to_lance_types():
    assert logical_type_of(pa.string_view()) == "string"
    assert logical_type_of(pa.binary_view()) == "binary"
    assert logical_type_of(pa.dictionary(pa.int8(), pa.string(), ordered=True)) == (
        "dict:string:int8:false"
    )
    item = pa.field("x", pa.int32(), nullable=False)
    assert logical_type_of(pa.list_(item, 2)) == "fixed_size_list:int32:2"
    assert arrow_type_of("fixed_size_list:int32:2").value_field == pa.field("item", pa.int32())


def test_bfloat16_is_read_in_fixed_size_lists():
    arrow = arrow_type_of("fixed_size_list:lance.bfloat16:4")
    assert arrow.value_type == pa.binary(2)
    assert arrow.value_field.metadata[b"ARROW:extension:name"] == BFLOAT16.encode()
    assert logical_type_of(arrow) == "fixed_size_list:lance.bfloat16:4"


def test_json_is_stored_as_large_binary():
    assert arrow_type_of("json") == pa.large_binary()
    assert informative_encoding("json") == 2


@pytest.mark.parametrize(
    "arrow",
    [
        pa.month_day_nano_interval(),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.int32()),
        pa.decimal32(5, 2),
        pa.decimal64(5, 2),
        pa.run_end_encoded(pa.int32(), pa.int32()),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.map_(pa.string(), pa.int32(), keys_sorted=True),
        pa.list_(pa.list_(pa.int32()), 2),
        pa.list_(pa.list_(pa.struct([("a", pa.int8())]), 2), 2),
        pa.list_(pa.map_(pa.string(), pa.int8()), 2),
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
        pa.dictionary(pa.int8(), pa.struct([("a", pa.int8())])),
    ],
    ids=str,
)
def test_types_missing_from_format_are_refused(arrow):
    with pytest.raises(UnsupportedFeatureError):
        logical_type_of(arrow)


@pytest.mark.parametrize("logical", ["", "int128", "interval:ym", "decimal:32:5:2", "list.map"])
def test_unknown_logical_types_are_unsupported(logical):
    with pytest.raises(UnsupportedFeatureError):
        arrow_type_of(logical)


@pytest.mark.parametrize(
    "logical",
    [
        "timestamp:us",
        "timestamp:xs:-",
        "decimal:128:10",
        "decimal:128:99:2",
        "decimal:128:a:b",
        "fixed_size_binary:",
        "fixed_size_binary:-1",
        "fixed_size_binary:99999999999999999999",
        "fixed_size_list:float:2147483648",
        "fixed_size_list:float",
        "fixed_size_list:float:٣",
        "fixed_size_list:struct:2",
        "dict:string:float:false",
        "dict:string",
        "list",
        "map",
        "fixed_size_list:" * 100 + "float" + ":2" * 100,
        "fixed_size_list:" * 30000 + "float" + ":2" * 30000,
        "dict:" * 30000 + "string" + ":int8:false" * 30000,
    ],
    ids=lambda text: text[:40],
)
def test_malformed_logical_types_are_corrupt(logical):
    with pytest.raises(CorruptFileError):
        arrow_type_of(logical)


@pytest.mark.parametrize("logical", ["int32", "timestamp:us:-", "fixed_size_list:float:2", "list"])
def test_excess_children_are_corrupt(logical):
    with pytest.raises(CorruptFileError, match="2 children"):
        arrow_type_of(logical, MEMBERS)


def test_map_entries_must_be_struct_of_two():
    for entries in (pa.int8(), pa.struct(MEMBERS[:1])):
        with pytest.raises(CorruptFileError):
            arrow_type_of("map", [pa.field("entries", entries, False)])
    nullable_key = pa.struct([pa.field("k", pa.int8()), pa.field("v", pa.int8())])
    with pytest.raises(CorruptFileError):
        arrow_type_of("map", [pa.field("entries", nullable_key, False)])


def test_truncated_logical_types_raise_only_lance_errors():
    for _, logical, _ in LEAVES:
        for length in range(len(logical)):
            for text in (logical[:length], logical[length + 1 :], logical[length:] + ":"):
                try:
                    arrow_type_of(text)
                except LanceError:
                    continue


@pytest.mark.parametrize("text", ["float:2147483647", "fixed_size_list:double:65536:65536"])
def test_oversized_vector_values_are_corrupt(text):
    with pytest.raises(CorruptFileError, match="a value takes"):
        arrow_type_of(f"fixed_size_list:{text}")


def test_long_and_boolean_vectors_are_read():
    assert arrow_type_of("fixed_size_list:float:65536").list_size == 65536
    assert arrow_type_of("fixed_size_list:bool:2147483647").list_size == 2**31 - 1
