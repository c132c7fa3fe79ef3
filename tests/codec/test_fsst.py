"""FSST codes decode to the text they stand for, with and without escapes, short and long."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.codec.compressive import fsst
from pyspark_lance.codec.compressive.fsst import SymbolTable, decode_fsst
from pyspark_lance.codec.values import VariableWidthValues
from pyspark_lance.errors import CorruptFileError

SYMBOLS = [b"a", b"bc", b"user-", b"12345678", b"\xff", b"e\x00", b"xyz"]


def table_bytes(symbols: list[bytes], *, encoded: bool = True) -> bytes:
    header = len(symbols) | (encoded << 24) | (0x46535354 << 32)
    lengths = bytes(len(symbol) for symbol in symbols)
    content = struct.pack("<Q", header) + b"".join(s.ljust(8, b"\0") for s in symbols) + lengths
    return content.ljust(2312, b"\0")


def expand(codes: bytes, symbols: list[bytes]) -> bytes:
    """Decoding by the definition."""
    text, position = b"", 0
    while position < len(codes):
        if codes[position] == 255:
            text += codes[position + 1 : position + 2]
            position += 2
        else:
            text += symbols[codes[position]]
            position += 1
    return text


def as_values(strings: list[bytes], kind: type = np.int32) -> VariableWidthValues:
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in strings])]).astype(kind)
    return VariableWidthValues(len(strings), offsets, pa.py_buffer(b"".join(strings)))


def decoded(values: VariableWidthValues) -> list[bytes]:
    text = values.data.to_pybytes()
    return [text[a:b] for a, b in zip(values.offsets[:-1], values.offsets[1:], strict=True)]


@st.composite
def code_strings(draw):
    """Strings of codes in which every escape has its literal."""
    code = st.one_of(
        st.integers(0, len(SYMBOLS) - 1).map(lambda code: bytes([code])),
        st.sampled_from([0, 7, 254, 255]).map(lambda byte: bytes([255, byte])),
    )
    return draw(st.lists(st.lists(code, max_size=6).map(b"".join), max_size=12))


@given(
    code_strings(),
    st.booleans(),
    st.sampled_from([np.int32, np.int64]),
    st.sampled_from([8, 16, 40, 1 << 16]),
    st.booleans(),
)
def test_codes_decode_singly_and_in_pairs(strings, in_pairs, kind, step, short):
    symbols = [symbol[:3] for symbol in SYMBOLS] if short else SYMBOLS
    expected = [expand(codes, symbols) for codes in strings]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsst, "_STEP_CODES", step)
        patch.setattr(fsst, "_SMALL_CODE_COUNT", 0 if in_pairs else 1 << 15)
        found = decode_fsst(as_values(strings, kind), SymbolTable.from_bytes(table_bytes(symbols)))
    assert decoded(found) == expected
    assert found.offsets.dtype == kind


@pytest.mark.parametrize("codes", [b"\x02", b"\xffb", b"\xff\xff", b"\x01\xffb", b"\x03\x03\x03"])
@pytest.mark.parametrize("before", [b"", b"\x02", b"\xffa\x00"])
def test_last_code_decodes_alone(codes, before, monkeypatch):
    monkeypatch.setattr(fsst, "_SMALL_CODE_COUNT", 0)
    strings = [before, b"", codes, b""]
    found = decode_fsst(as_values(strings), SymbolTable.from_bytes(table_bytes(SYMBOLS)))
    assert decoded(found) == [expand(string, SYMBOLS) for string in strings]


def test_trailing_escape_decodes_to_nothing(monkeypatch):
    table = SymbolTable.from_bytes(table_bytes(SYMBOLS))
    for few_codes in (0, 1 << 15):
        monkeypatch.setattr(fsst, "_SMALL_CODE_COUNT", few_codes)
        assert decoded(decode_fsst(as_values([b"\x01\x00\xff"]), table)) == [b"bca"]


def test_long_streams_with_escapes_at_any_position_decode():
    rng = np.random.default_rng(0)
    strings = []
    for _ in range(20_000):
        parts = [
            bytes([255, rng.integers(0, 256)])
            if rng.random() < 0.2
            else bytes([rng.integers(0, len(SYMBOLS))])
            for _ in range(rng.integers(0, 6))
        ]
        strings.append(b"".join(parts))
    found = decode_fsst(as_values(strings), SymbolTable.from_bytes(table_bytes(SYMBOLS)))
    assert decoded(found) == [expand(codes, SYMBOLS) for codes in strings]


@given(code_strings(), st.sampled_from([8, 24, 160]), st.integers(1, 40))
def test_parallel_decoding_equals_sequential(strings, step, times):
    strings *= times
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsst, "_STEP_CODES", step)
        patch.setattr(fsst, "_SMALL_CODE_COUNT", 0)
        patch.setattr(fsst, "_MANY_STEPS", 2)
        patch.setattr(pa, "cpu_count", lambda: 2)
        found = decode_fsst(as_values(strings), SymbolTable.from_bytes(table_bytes(SYMBOLS)))
    assert decoded(found) == [expand(codes, SYMBOLS) for codes in strings]


def test_sliced_codes_decode():
    values = as_values([b"\x00\x01", b"\x02\x03", b"\xff\xff\x00"])
    cut = VariableWidthValues(2, values.offsets[1:], values.data)
    found = decode_fsst(cut, SymbolTable.from_bytes(table_bytes(SYMBOLS)))
    assert decoded(found) == [b"user-12345678", b"\xffa"]


def test_unencoded_bytes_are_unchanged():
    values = as_values([b"hello", b""])
    table = SymbolTable.from_bytes(table_bytes(SYMBOLS, encoded=False))
    assert decoded(decode_fsst(values, table)) == [b"hello", b""]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        table_bytes(SYMBOLS)[:-1],
        b"\0" * 2312,
        table_bytes(SYMBOLS)[: 8 + 8 * len(SYMBOLS)].ljust(2312, b"\x09"),
    ],
)
def test_damaged_symbol_table_is_corrupt(damaged):
    with pytest.raises(CorruptFileError):
        SymbolTable.from_bytes(damaged)


def test_pair_tables_of_many_pages_are_dropped():
    codes = as_values([bytes([0, 1] * (fsst._SMALL_CODE_COUNT // 2))])
    pages = [SymbolTable.from_bytes(table_bytes([b"a", b"%d" % page])) for page in range(48)]
    tracemalloc.start()
    try:
        for page in pages:
            decode_fsst(codes, page)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 24 << 20
