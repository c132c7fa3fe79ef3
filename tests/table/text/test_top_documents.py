"""The best documents, found by blocks: the first ones of all, and few blocks are decoded."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from text_tables import assert_same, from_pylance, ours

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.table.index.inverted import posting_lists, segments
from pyspark_lance.table.index.inverted.posting_codec import (
    PostingFormat,
    decode_impacts,
    first_documents,
)
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index_build.column_indices import create_index, refresh_indices
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.text import segment_search
from pyspark_lance.table.text.posting_encoder import PostingEncoder, Terms, length_codes
from pyspark_lance.table.text.queries import Match, Operator, Phrase
from pyspark_lance.table.version.table import Table

ROWS = 20_000
QUERIES = [
    Match("aa", "s"),
    Match("aa bb cc", "s"),
    Match("aa aa rare", "s"),
    Match("rare bb", "s", boost=2.0),
    Match("aa bb", "s", Operator.AND),
    Match("cc rare aa", "s", Operator.AND),
    Phrase("aa bb", "s"),
    Phrase("cc aa", "s", slop=1),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Texts of few lengths, so that many scores are equal."""
    rng = np.random.default_rng(3)
    words = np.array(["aa", "bb", "cc", "dd", "rare"])
    shares = [0.3, 0.25, 0.25, 0.195, 0.005]
    lengths = rng.choice([5, 12, 40], ROWS)
    content = [" ".join(rng.choice(words, length, p=shares)) for length in lengths]
    path = str(tmp_path_factory.mktemp("top") / "t")
    table = pa.table({"id": np.arange(ROWS), "s": content})
    lance.write_dataset(table, path, max_rows_per_file=7_000)
    options = TokenizerOptions(with_position=True)
    create_index(Table(path), IndexRequest(("s",), "inverted", "own", text=options))
    lance.dataset(path).delete("id % 5 = 1")
    return path


@pytest.mark.parametrize("condition", [None, "id % 97 = 3"])
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_best_documents_are_first_of_all(table, monkeypatch, query, condition):
    monkeypatch.setattr(segment_search, "_SMALL_POSTING_COUNT", 0)
    every, _ = ours(table, query, condition=condition)
    ranked = sorted(every.items(), key=lambda row: (-row[1], row[0]))
    for k in (1, 10, 300, ROWS):
        best, _ = ours(table, query, k=k, condition=condition)
        assert list(best.items()) == ranked[:k]


@pytest.fixture(scope="module")
def mixed_table(tmp_path_factory):
    """Words from frequent to rare, two segments, deleted rows, rows that no segment covers."""
    rng = np.random.default_rng(11)
    path = str(tmp_path_factory.mktemp("mixed") / "t")

    def append(count, first):
        places = np.minimum(rng.zipf(1.2, (count, 12)), 80)
        content = [" ".join(f"w{one}" for one in row[: 1 + row[0] % 12]) for row in places]
        table = pa.table({"id": np.arange(first, first + count), "s": content})
        lance.write_dataset(
            table, path, mode="append" if first else "create", max_rows_per_file=3_000
        )

    append(6_000, 0)
    options = TokenizerOptions(with_position=True)
    create_index(Table(path), IndexRequest(("s",), "inverted", "own", text=options))
    append(2_000, 6_000)
    refresh_indices(Table(path), joins_segments=False)
    append(300, 8_000)
    lance.dataset(path).delete("id % 5 = 1")
    return path


@pytest.mark.interop
@pytest.mark.parametrize("share", [0, 32, 1 << 40])
def test_best_documents_of_decoded_words_equal_pylance(mixed_table, monkeypatch, share):
    """Whether decoded words have an array of all documents or not, or some of a query have one."""
    monkeypatch.setattr(posting_lists, "_FREQUENT_SHARE", share)
    monkeypatch.setattr(segment_search, "_SMALL_POSTING_COUNT", 0)
    monkeypatch.setattr(segments, "_kept", segments._new_cache())
    rng = np.random.default_rng(1 + share % 7)
    for number in range(60):
        words = " ".join(f"w{one}" for one in np.minimum(rng.zipf(1.15, rng.integers(1, 5)), 80))
        kind = number % 4
        query = (
            Phrase(" ".join(words.split()[:2]), "s")
            if kind == 0
            else Match(words, "s", Operator.AND if kind == 1 else Operator.OR)
        )
        condition = None if rng.integers(0, 3) else f"id % 7 < {rng.integers(1, 7)}"
        k = int(rng.choice([1, 10, 200]))
        every, _ = ours(mixed_table, query, condition=condition)
        best, rows = ours(mixed_table, query, k=k, condition=condition)
        assert list(best.items()) == sorted(every.items(), key=lambda row: (-row[1], row[0]))[:k]
        assert (rows["id"].to_pylist() if rows else []) == [_number(row) for row in best]
        assert_same(best, from_pylance(mixed_table, query, k=k, condition=condition), k)


def _number(row):
    return (0, 3_000, 6_000, 8_000)[row >> 32] + (row & 0xFFFFFFFF)


def test_blocks_below_score_limit_stay_encoded(table, monkeypatch):
    decoded = []
    decode_blocks = posting_lists.decode_blocks

    def counted(data, offsets, length, kind, blocks):
        decoded.append(len(blocks))
        return decode_blocks(data, offsets, length, kind, blocks)

    monkeypatch.setattr(posting_lists, "decode_blocks", counted)
    best, _ = ours(table, Match("aa", "s"), k=1)
    assert len(best) == 1
    assert sum(decoded) < ROWS // 128 // 2


def test_intersection_reads_no_impacts(table, monkeypatch):
    def refuse(data, offsets):
        raise AssertionError("impacts were read")

    monkeypatch.setattr(segments, "_kept", segments._new_cache())
    monkeypatch.setattr(segments, "decode_impacts", refuse)
    best, _ = ours(table, Match("aa bb", "s", Operator.AND), k=5)
    assert len(best) == 5


def test_impacts_round_trip():
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 400, 9_000).astype(np.uint32)
    documents = np.flatnonzero(rng.random(9_000) < 0.7)
    often = np.minimum(rng.zipf(1.5, len(documents)), lengths[documents]).astype(np.int64)
    terms = Terms(pa.array(["a"]), np.array([len(documents)]), documents, often, None)
    impacts = PostingEncoder(lengths, 128).columns(terms)["_impacts"][0].values
    data = np.frombuffer(b"".join(impacts.to_pylist()), np.uint8)
    offsets = np.cumsum([0, *(len(one) for one in impacts.to_pylist())])
    entries, frequencies, least = decode_impacts(data, offsets)
    codes = length_codes(lengths.astype(np.int64))
    for block in range(-(-len(documents) // 128)):
        own = slice(128 * block, 128 * block + 128)
        known = list(zip(often[own], codes[documents[own]], strict=True))
        of_block = entries == block
        pairs = list(zip(frequencies[of_block], least[of_block], strict=True))
        assert {(f, c) for f, c in known if not any(
            (g >= f and d <= c) and (g, d) != (f, c) for g, d in known
        )} == {(f, int(length_codes(np.array([n]))[0])) for f, n in pairs}  # fmt: skip
        assert all(n <= lengths[documents[own]].max() for _, n in pairs)


@pytest.mark.parametrize("content", [b"\x05", b"\x05\x02\x02", b"\x05\x01\x01", b"\x85",
                                     b"\x05\x00\x00", b"\x05\x01\x01\xff\x7f"])  # fmt: skip
def test_invalid_impacts_are_refused(content):
    with pytest.raises(CorruptFileError):
        decode_impacts(np.frombuffer(content, np.uint8), np.array([0, len(content)]))


def test_repeated_searches_find_same_rows(table, monkeypatch):
    """Also once postings and positions of frequent words are kept decoded."""
    monkeypatch.setattr(segment_search, "_SMALL_POSTING_COUNT", 0)
    monkeypatch.setattr(segments, "_kept", segments._new_cache())
    first = [ours(table, query, k=20)[0] for query in QUERIES]
    for _ in range(5):
        assert [ours(table, query, k=20)[0] for query in QUERIES] == first
    kinds = {type(value) for value in segments._kept._values.values()}
    assert posting_lists.DensePostings in kinds
    assert posting_lists.DecodedPositions in kinds


def test_postings_stay_encoded_until_often_searched(table, monkeypatch):
    monkeypatch.setattr(segments, "_kept", segments._new_cache())
    ours(table, Match("aa", "s"), k=1)
    kinds = [type(value) for value in segments._kept._values.values()]
    assert posting_lists.PostingList in kinds
    assert not any(issubclass(kind, posting_lists.DecodedPostings) for kind in kinds)


def posting_lists_of(rng, size, count):
    """An encoded posting list of some documents."""
    lengths = rng.integers(1, 400, size).astype(np.uint32)
    documents = np.sort(rng.choice(size, count, replace=False))
    often = np.minimum(rng.zipf(1.3, count), lengths[documents]).astype(np.int64)
    terms = Terms(pa.array(["a"]), np.array([count]), documents, often, None)
    values = PostingEncoder(lengths, 128).columns(terms)["_posting"][0].values.to_pylist()
    data = np.frombuffer(b"".join(values), np.uint8)
    offsets = np.cumsum([0, *map(len, values)])
    kind = PostingFormat(128, varint_tail=True)
    firsts = first_documents(data, offsets, count, kind)
    return posting_lists.PostingList(0, count, kind, data, offsets, firsts, None)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000, 1280])
def test_decoded_postings_equal_encoded(count):
    rng = np.random.default_rng(count)
    encoded = posting_lists_of(rng, 5_000, count)
    decoded = posting_lists.store_decoded(encoded, *encoded.decode_all(), 5_000)
    assert decoded.length == count
    is_dense = isinstance(decoded, posting_lists.DensePostings)
    assert is_dense == (count >= 1000)
    most = 2 * 5_024 + count if is_dense else 6 * count
    assert decoded.nbytes <= most + 8 * len(encoded.firsts)
    documents, frequencies = encoded.decode_all()
    for one, other in zip(decoded.decode_all(), (documents, frequencies), strict=True):
        assert np.array_equal(one, other)
    assert np.flatnonzero(decoded.documents_in(5_000)).tolist() == documents.tolist()
    for _ in range(20):
        blocks = np.flatnonzero(rng.random(len(encoded.firsts)) < 0.5)
        for one, other in zip(encoded.decode(blocks), decoded.decode(blocks), strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        wanted = np.sort(rng.choice(5_000, 50, replace=False))
        of_wanted = encoded.blocks_of(wanted)
        assert np.array_equal(of_wanted, decoded.blocks_of(wanted))
        often = encoded.frequencies_in(wanted, of_wanted)
        assert np.array_equal(often, encoded.frequencies_in(wanted))
        assert np.array_equal(often, decoded.frequencies_in(wanted))


@pytest.mark.parametrize("share", [0, 32])
def test_decoded_positions_are_those_of_wanted_documents(monkeypatch, share):
    monkeypatch.setattr(posting_lists, "_FREQUENT_SHARE", share)
    rng = np.random.default_rng(1)
    encoded = posting_lists_of(rng, 2_000, 300)
    documents, often = encoded.decode_all()
    decoded = posting_lists.store_decoded(encoded, documents, often, 2_000)
    known = np.concatenate([np.sort(rng.choice(70_000, count, replace=False)) for count in often])
    kept = posting_lists.DecodedPositions.of(decoded, known)
    pairs = list(zip(np.repeat(documents, often).tolist(), known.tolist(), strict=True))
    for size in (0, 1, 100, 2_000):
        wanted = np.sort(rng.choice(2_000, size, replace=False))
        found = kept.in_documents(decoded, wanted)
        own = set(wanted.tolist())
        assert list(zip(*(one.tolist() for one in found), strict=True)) == [
            pair for pair in pairs if pair[0] in own
        ]
