import json
import struct

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_lance.codec.jsonb import decode_jsonb, encode_jsonb
from pyspark_lance.errors import CorruptFileError, InvalidInputError, LanceError

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)

# As pylance 14.0.2 stores them.
STORED_BY_PYLANCE = {
    "1": "20000000200000025001",
    "-1": "200000002000000240ff",
    "0": "200000002000000100",
    "-0": "200000002000000100",
    "256": "2000000020000003500100",
    "-300": "200000002000000340fed4",
    "1.5": "2000000020000009603ff8000000000000",
    "1E2": "2000000020000009604059000000000000",
    "12345678901234567890": "200000002000000950ab54a98ceb1f0ad2",
    "123456789012345678901234567890": "20000000200000096045f8ee90ff6c373e",
    "-9223372036854775809": "200000002000000960c3e0000000000000",
    '[1,"a",{"x":[]}]': "800000032000000210000001500000115001614000000110000001500000047880000000",
}


def stored(*hexes):
    return pa.array([bytes.fromhex(one) for one in hexes], pa.large_binary())


@pytest.mark.parametrize("text", STORED_BY_PYLANCE)
def test_jsonb_bytes_equal_pylance(text):
    assert encode_jsonb(pa.array([text])).to_pylist() == [bytes.fromhex(STORED_BY_PYLANCE[text])]


@given(st.lists(st.none() | DOCUMENTS.map(json.dumps), max_size=5), st.integers(0, 3))
@example([json.dumps({"b": 1, "a": [None, True, False, {}, [[]]], "é": "\n\u2028😀"})], 0)
def test_jsonb_round_trips(texts, skipped):
    binary = encode_jsonb(pa.array(texts, pa.string()))
    for form in (binary, binary.cast(pa.binary())):
        found = decode_jsonb(form.slice(skipped)).to_pylist()
        assert len(found) == len(texts[skipped:])
        for text, again in zip(texts[skipped:], found, strict=True):
            assert (text is None) == (again is None)
            if text is not None and again is not None:
                assert json.loads(again) == json.loads(text)


def test_jsonb_keys_are_sorted():
    binary = encode_jsonb(pa.array(['{"b": 1, "é": 2, "a": 3}']))
    assert decode_jsonb(binary).to_pylist() == ['{"a":3,"b":1,"é":2}']


def test_unrepresentable_numbers_decode_as_null():
    numbers = stored(*(f"200000002000000{1}{tag}" for tag in ("10", "20", "30")))
    assert decode_jsonb(numbers).to_pylist() == ["null"] * 3
    infinity = stored("200000002000000960" + struct.pack(">d", float("inf")).hex())
    assert decode_jsonb(infinity).to_pylist() == ["null"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "nul", "NaN", "-Infinity", '{"a":1,"a":2}', "1e999", '"\\ud800"', "[" * 5000,
     "1" * 5000, "01"],
)  # fmt: skip
def test_invalid_json_error_quotes_text(text):
    with pytest.raises(InvalidInputError, match="is not JSON that can be stored") as caught:
        encode_jsonb(pa.array(["{}", text]))
    assert repr(text[:20])[:-1] in caught.value.what


def test_deep_documents_are_refused_on_encode_and_decode():
    with pytest.raises(InvalidInputError, match="nested deeper"):
        encode_jsonb(pa.array(["[" * 250 + "]" * 250]))
    document = b""
    for _ in range(500):
        document = struct.pack(">II", 0x80000001, 5 << 28 | len(document)) + document
    with pytest.raises(CorruptFileError, match="nested deeper"):
        decode_jsonb(pa.array([document]))


def test_unknown_jsonb_type_is_refused_by_name():
    with pytest.raises(LanceError, match="JSON values of type 6"):
        decode_jsonb(stored("2000000060000000"))
    with pytest.raises(LanceError, match="JSON numbers with tag 0x70"):
        decode_jsonb(stored("200000002000000170"))


@given(DOCUMENTS.map(json.dumps), st.data())
def test_damaged_jsonb_decodes_or_raises_lance_error(text, data):
    (whole,) = encode_jsonb(pa.array([text])).to_pylist()
    cut = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255))
    for document in (whole[:cut], whole[:cut] + bytes([byte]) + whole[cut + 1 :]):
        try:
            (found,) = decode_jsonb(pa.array([document], pa.large_binary())).to_pylist()
        except LanceError:
            continue
        assert found is not None
        json.loads(found)


def test_excessive_entry_count_is_corrupt_before_allocation():
    with pytest.raises(CorruptFileError, match="members"):
        decode_jsonb(stored("9fffffff" + "00" * 16))
