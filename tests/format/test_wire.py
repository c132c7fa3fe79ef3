import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.wire import (
    drop_unknown_fields,
    encode_varint,
    length_delimited,
    parse_message,
    wire_fields,
)
from pyspark_lance.proto import table_pb2

values = st.one_of(
    st.tuples(st.just(0), st.integers(0, 2**64 - 1)), st.tuples(st.just(2), st.binary(max_size=300))
)


def encode(fields):
    out = b""
    for number, (wire_type, value) in fields:
        if wire_type == 0:
            out += encode_varint(number << 3) + encode_varint(value)
        else:
            out += length_delimited(number, value)
    return out


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), values), max_size=8))
def test_wire_fields_cover_message_in_order(fields):
    data = encode(fields)
    found = list(wire_fields(data))
    assert [field.number for field in found] == [number for number, _ in fields]
    assert b"".join(data[field.start : field.end] for field in found) == data
    for field, (_, (wire_type, value)) in zip(found, fields, strict=True):
        if wire_type == 2:
            assert data[field.value_start : field.end] == value


def test_fixed_size_values_are_skipped():
    data = bytes([1 << 3 | 1]) + bytes(8) + bytes([2 << 3 | 5]) + bytes(4)
    assert [(field.number, field.end - field.value_start) for field in wire_fields(data)] == [
        (1, 8),
        (2, 4),
    ]


@pytest.mark.parametrize(
    "data",
    [b"\x80", b"\xff" * 11, b"\x0a\x05abc", b"\x0b", b"\x09\x00", b"\x00\x01", b"\x08"],
    ids=["cut tag", "long tag", "cut bytes", "group", "cut fixed64", "field 0", "no value"],
)
def test_malformed_messages_are_corrupt(data):
    with pytest.raises(CorruptFileError):
        list(wire_fields(data))


def test_unparsable_message_error_names_location():
    with pytest.raises(CorruptFileError, match=r"a/b bytes 3\.\.9"):
        parse_message(table_pb2.Manifest, b"\x0a\x05abc", "a/b bytes 3..9")


def test_invalid_utf8_string_is_corrupt():
    with pytest.raises(CorruptFileError):
        parse_message(table_pb2.DataFile, length_delimited(1, b"\xff\xfe"))


def test_unknown_fields_are_dropped_at_any_depth():
    inner = table_pb2.DataFile(path="x").SerializeToString() + length_delimited(99, b"new")
    fragment = length_delimited(2, inner)
    message = table_pb2.Manifest.FromString(length_delimited(2, fragment))
    assert drop_unknown_fields(message)
    assert not drop_unknown_fields(message)
    assert message.fragments[0].files[0].path == "x"
