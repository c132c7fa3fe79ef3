"""Postings, positions and tokens of indices of pylance, beside counts of the texts themselves."""

from __future__ import annotations

from collections import Counter

import lance
import numpy as np
import pyarrow as pa
import pytest
from text_tables import WORDS, texts

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.table.index.inverted import posting_codec, segments
from pyspark_lance.table.index.inverted.posting_codec import (
    PostingFormat,
    check_blocks,
    decode_blocks,
    decode_varints,
)
from pyspark_lance.table.index.inverted.segments import TextPartition, open_text_segment
from pyspark_lance.table.index.inverted.token_sets import ArrowTokens, FstTokens, FuzzyWord
from pyspark_lance.table.index.inverted.tokenizers import PLAIN, Tokenizer
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

OPTIONS = {"stem": False, "remove_stop_words": False, "lower_case": False, "ascii_folding": False}
OPTIONS |= {"max_token_length": None}


def many_texts():
    rng = np.random.default_rng(1)
    found = [text for text in texts(rng, 2000) if text]
    found += [" ".join(["fox"] * 300 + ["dog"] * 5 + ["cat"] * 130)] * 3
    return found + [" ".join(["river"] * count) for count in (127, 128, 1000, 20_000)]


def built(path, content, **options):
    dataset = lance.write_dataset(pa.table({"s": content}), str(path))
    dataset.create_scalar_index("s", "INVERTED", name="x", **OPTIONS, **options)
    snapshot = Snapshot.open(Table(str(path)))
    segment = open_text_segment(snapshot.files, snapshot.indices[0])
    (facts,) = segment.partitions
    return TextPartition(snapshot.files, segment.entry, facts)


def decode_postings(data, offsets, length, kind):
    check_blocks(offsets, length, kind)
    return decode_blocks(data, offsets, length, kind, np.arange(len(offsets) - 1))


@pytest.mark.interop
@pytest.mark.parametrize(
    "options", [{}, {"format_version": 1}, {"format_version": 3}, {"block_size": 256}]
)
def test_postings_and_positions_equal_texts(tmp_path, options):
    content = many_texts()
    partition = built(tmp_path / "t", content, with_position=True, **options)
    found = Tokenizer(PLAIN).tokenize(pa.array(content))
    counts = Counter(zip(found.codes.tolist(), found.rows.tolist(), strict=True))
    numbers = {term: partition.tokens.number_of(term) for term in found.terms}
    assert sorted(numbers.values()) == list(range(len(found.terms)))
    by_number = {number: term for term, number in numbers.items()}
    postings = partition.posting_lists(np.arange(len(numbers)))
    for posting in partition.postings(np.arange(len(numbers))):
        code = found.terms.index(by_number[posting.number])
        own = found.codes == code
        documents = np.unique(found.rows[own])
        stored, often = posting.decode_all()
        assert stored.tolist() == documents.tolist()
        assert often.tolist() == [counts[code, row] for row in documents.tolist()]
        for wanted in (documents, documents[::7], np.array([documents[-1], 10**6])):
            owners, positions = partition.positions(postings[posting.number], wanted)
            here = own & np.isin(found.rows, wanted)
            assert owners.tolist() == found.rows[here].tolist()
            assert positions.tolist() == found.positions[here].tolist()


@pytest.mark.interop
def test_tokens_are_found_exactly_and_fuzzily(tmp_path):
    rng = np.random.default_rng(2)
    alphabet = list("abcdeé日𝒳")
    made = {"".join(rng.choice(alphabet, rng.integers(1, 7))) for _ in range(800)}
    made |= {chr(0x100 + number) for number in range(200)}  # a state of many transitions
    words = sorted({word for word in {*made, *WORDS} if word.isalnum()}, key=str.encode)
    partition = built(tmp_path / "t", words)
    fst = partition.tokens
    assert isinstance(fst, FstTokens)
    stored = {term: fst.number_of(term) for term in words}
    assert sorted(stored.values()) == list(range(len(words)))
    arrow = ArrowTokens(pa.array(words), pa.array(list(stored.values()), pa.uint32()))
    for word in ("w12", "rivre", "aéd", "日", "", "zzz"):
        assert arrow.number_of(word) == fst.number_of(word) == stored.get(word)
        for edits in (0, 1, 2):
            for prefix in (0, 1, 2):
                near = FuzzyWord(word, edits, word[:prefix])
                expected = [
                    one for one in words
                    if one.startswith(word[:prefix]) and _distance(word, one) <= edits
                ]  # fmt: skip
                assert list(fst.similar(near)) == expected
                assert list(arrow.similar(near)) == expected


def _distance(left, right):
    row = list(range(len(right) + 1))
    for place, one in enumerate(left, 1):
        following = [place]
        for column, other in enumerate(right):
            replaced = row[column] + (one != other)
            following.append(min(replaced, row[column + 1] + 1, following[column] + 1))
        row = following
    return row[-1]


def _packed(numbers, width, lanes):
    """Numbers in lanes, as plain Python writes them."""
    lane_bits = [sum(int(n) << (width * i) for i, n in enumerate(numbers[lane::lanes]))
                 for lane in range(lanes)]  # fmt: skip
    words = [bits >> (32 * word) & 0xFFFFFFFF for word in range(width) for bits in lane_bits]
    return b"".join(word.to_bytes(4, "little") for word in words)


@pytest.mark.parametrize("width", [0, 1, 7, 31, 32])
@pytest.mark.parametrize("lanes", [4, 8])
def test_packed_numbers_of_every_width(width, lanes):
    rng = np.random.default_rng(width)
    numbers = rng.integers(0, 1 << width, 32 * lanes)
    data = np.frombuffer(b"xx" + _packed(numbers, width, lanes), np.uint8)
    start = np.array([2])
    found, ends = posting_codec._unpack(data, start, np.array([width]), lanes)
    assert found[0].tolist() == numbers.tolist()
    assert ends.tolist() == [len(data)]


def test_frequencies_beyond_packed_bits_are_decoded():
    frequencies = np.ones(256, np.int64)
    frequencies[[3, 200]] = [1000, 7]
    content = (5).to_bytes(4, "little") + bytes([1]) + _packed([0] + [1] * 255, 1, 8)
    content += bytes([1, 2]) + _packed(frequencies & 1, 1, 8)
    content += bytes([3]) + bytes([0xF4, 0x03]) + bytes([200, 3])  # 1000 >> 1 and 7 >> 1
    data = np.frombuffer(content, np.uint8)
    found = decode_postings(data, np.array([0, len(data)]), 256, PostingFormat(256, True))
    assert found[0].tolist() == list(range(5, 261))
    assert found[1].tolist() == frequencies.tolist()


@pytest.mark.parametrize(
    ("row_ids", "most"),
    [
        ([], 8),
        ([7], 8),
        ([0, 1, 2, 3], 8),
        ([5, 6, 1 << 33, (1 << 33) + 1, 2, 3, 4, (1 << 64) - 1], 16 * 4 + 8),
        (list(range(100, 0, -1)), 100 * 24 + 200),
    ],
)
def test_stored_documents_have_their_row_ids(monkeypatch, row_ids, most):
    """Of a few runs of consecutive row ids, and of many."""
    monkeypatch.setattr(segments, "_MAX_RUNS", 50)
    lengths = np.arange(1, len(row_ids) + 1, dtype=np.uint32)
    documents = segments.Documents(np.array(row_ids, np.uint64), lengths)
    stored = segments.StoredDocuments.of(documents)
    every = np.arange(len(row_ids))
    for numbers in (every, every[1::3], every[:0]):
        assert stored.row_ids_of(numbers).tolist() == [row_ids[number] for number in numbers]
    assert stored.lengths.tolist() == lengths.tolist()
    assert stored.nbytes <= most + 16 + len(row_ids)


def test_malformed_postings_are_refused():
    data = np.frombuffer(b"\x81\x82\x03\x04", np.uint8)
    assert decode_varints(data, 2).tolist() == [1 + (2 << 7) + (3 << 14), 4]
    with pytest.raises(CorruptFileError, match="2 numbers in a posting list instead of 3"):
        decode_varints(data, 3)
    with pytest.raises(CorruptFileError, match="too many bytes"):
        decode_varints(np.frombuffer(b"\xff" * 6 + b"\x01", np.uint8), 1)
    with pytest.raises(CorruptFileError, match="1 blocks of postings for 200 documents"):
        decode_postings(data, np.array([0, 4]), 200, PostingFormat(128, True))
    with pytest.raises(CorruptFileError, match="too short"):
        FstTokens(b"\x03")
    with pytest.raises(UnsupportedFeatureError, match="of version 2"):
        FstTokens(b"\x02".ljust(40, b"\0"))
