"""Strings made into FSST codes are the same strings again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.codec.compressive import string_compression
from pyspark_lance.codec.compressive.fsst import SymbolTable, decode_fsst
from pyspark_lance.codec.compressive.string_compression import (
    Matcher,
    Symbols,
    byte_lengths,
    encode_strings,
    sample_of,
    train_symbols,
)
from pyspark_lance.codec.values import VariableWidthValues

RNG = np.random.default_rng(3)


def parts(strings: list[bytes], kind: type = np.int32) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in strings])]).astype(kind)
    return offsets, np.frombuffer(b"".join(strings), np.uint8)


def symbols_of(*symbols: bytes) -> Symbols:
    words = np.array([int.from_bytes(symbol, "little") for symbol in symbols], np.uint64)
    return Symbols(words, byte_lengths(words))


def round_trip(offsets: np.ndarray, content: np.ndarray, symbols: Symbols) -> bytes:
    """The codes; fails unless they decode to what was given."""
    codes = encode_strings(offsets, content, Matcher(symbols))
    stored = VariableWidthValues(len(offsets) - 1, codes.offsets, pa.py_buffer(codes.content))
    found = decode_fsst(stored, SymbolTable.from_bytes(symbols.to_bytes()))
    np.testing.assert_array_equal(found.offsets, offsets - offsets[0])
    assert found.data.to_pybytes() == content[offsets[0] : offsets[-1]].tobytes()
    return codes.content.tobytes()


ALPHABETS = (b"ab", b"\x00a\xff", bytes(range(256)))
STRINGS = st.sampled_from(ALPHABETS).flatmap(
    lambda alphabet: st.lists(
        st.lists(st.sampled_from(alphabet), max_size=40).map(bytes), max_size=30
    )
)


@given(STRINGS, st.sampled_from([np.int32, np.int64]))
def test_trained_symbols_round_trip(strings, kind):
    offsets, content = parts(strings, kind)
    if len(content):
        round_trip(offsets, content, train_symbols(*sample_of(offsets, content)))


@given(STRINGS)
def test_arbitrary_symbols_round_trip(strings):
    offsets, content = parts(strings)
    round_trip(offsets, content, symbols_of(b"ab", b"aba", b"abab" * 2, b"\xff", b"b", b"\x00"))
    round_trip(offsets, content, symbols_of())


def greedily(string: bytes, symbols: list[bytes]) -> bytes:
    """The codes of a string by the definition."""
    codes, position = b"", 0
    while position < len(string):
        fitting = [symbol for symbol in symbols if string.startswith(symbol, position)]
        longest = max(fitting, key=len, default=b"")
        codes += bytes([symbols.index(longest)] if longest else [255, string[position]])
        position += max(1, len(longest))
    return codes


@given(
    st.lists(st.lists(st.sampled_from(b"ab\x00"), max_size=60).map(bytes), max_size=40),
    st.integers(1, 50),
)
def test_codes_use_longest_symbols(strings, lanes):
    symbols = [b"a", b"ab", b"bb", b"aabaab", b"bababbab", b"bab" + b"a" * 5, b"\x00"]
    offsets, content = parts(strings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(string_compression, "_LANES", lanes)
        # A cut would end the symbol before it.
        patch.setattr(string_compression, "cut_into_pieces", lambda offsets: (offsets, None))
        codes = round_trip(offsets, content, symbols_of(*symbols))
    assert codes == b"".join(greedily(string, symbols) for string in strings)


@given(st.lists(st.integers(0, 300), max_size=20), st.integers(1, 9))
def test_strings_of_different_lengths_encode_in_shared_lanes(lengths, lanes):
    strings = [bytes(RNG.integers(97, 100, length).astype(np.uint8)) for length in lengths]
    offsets, content = parts(strings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(string_compression, "_LANES", lanes)
        round_trip(offsets, content, symbols_of(b"aa", b"ab", b"abcabc", b"cccccccc"))


def test_longest_symbol_wins():
    offsets, content = parts([b"abcdefghij", b"abc", b"ab", b"a", b"xa"])
    codes = round_trip(offsets, content, symbols_of(b"a", b"ab", b"abcdefgh"))
    assert codes == b"\x02\xffi\xffj" + b"\x01\xffc" + b"\x01" + b"\x00" + b"\xffx\x00"


def test_symbols_stay_within_one_string():
    offsets, content = parts([b"aaa", b"aaaaa", b"", b"aaaaaaaaa"])
    codes = round_trip(offsets, content, symbols_of(b"a", b"aaaaaaaa"))
    assert codes == b"\x00" * 3 + b"\x00" * 5 + b"\x01\x00"


def test_trailing_zero_byte_round_trips():
    offsets, content = parts([b"ab\x00", b"ab", b"\x00\x00", b""])
    round_trip(offsets, content, train_symbols(*sample_of(offsets, content)))
    round_trip(offsets, content, symbols_of(b"ab", b"\x00"))


@pytest.mark.parametrize("length", [127, 128, 129, 1000, 5_000])
def test_long_strings_are_encoded_in_pieces(length, monkeypatch):
    monkeypatch.setattr(string_compression, "_LANES", 10)
    words = [b"alpha ", b"beta ", b"gamma "]
    texts = [b"".join(words[n] for n in RNG.integers(0, 3, length))[:length] for _ in range(3)]
    offsets, content = parts([b"", texts[0], b"x", texts[1], b"", texts[2]])
    codes = round_trip(offsets, content, train_symbols(*sample_of(offsets, content)))
    assert length < 1000 or len(codes) < len(content) / 2.5


def test_strings_of_sliced_buffer_round_trip():
    offsets, content = parts([f"user-{number}".encode() for number in range(3000)])
    symbols = train_symbols(*sample_of(offsets[1000:], content))
    codes = round_trip(offsets[1000:2001], content, symbols)
    assert len(codes) < 4.1 * 1000


def test_sample_offsets_are_string_offsets():
    strings = [bytes([65 + number % 50]) * (number % 7) for number in range(60_000)]
    offsets, sample = sample_of(*parts(strings))
    assert 14_000 < len(sample) < 18_000
    assert offsets[0] == 0
    assert offsets[-1] == len(sample)
    # A string is one letter; where the letter changes one begins.
    changes = np.flatnonzero(sample[1:] != sample[:-1]) + 1
    assert np.isin(changes, offsets).all()


def test_first_bytes_of_symbols_are_symbols():
    texts = [b"xyzxyz" * 10 for _ in range(1000)]
    symbols = train_symbols(*sample_of(*parts(texts)))
    assert {int(word) for word in symbols.words} >= set(b"x")
    # So a cut elsewhere costs no escapes.
    codes = round_trip(*parts([b"xyz" + b"x"] * 10), symbols)
    assert b"\xff" not in codes


def test_symbol_table_holds_255_symbols():
    words = [number.to_bytes(2, "little") for number in range(300, 555)]
    table = symbols_of(*words).to_bytes()
    assert len(table) == 2312
    assert SymbolTable.from_bytes(table).lengths[:255].tolist() == [2] * 255
