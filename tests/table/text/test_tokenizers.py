"""Tokens of texts, as pylance makes them."""

from __future__ import annotations

import json
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from random_seeds import cases

from pyspark_lance.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.index.inverted.segments import open_text_segment
from pyspark_lance.table.index.inverted.stop_words import STOP_WORDS
from pyspark_lance.table.index.inverted.token_options import (
    LANGUAGES,
    TEXT_DETAILS_TYPE,
    TokenizerOptions,
)
from pyspark_lance.table.index.inverted.tokenizers import PLAIN, Tokenizer, stemmer
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

BARE = {"stem": False, "remove_stop_words": False, "ascii_folding": False, "lower_case": False}


def tokens(text, **options):
    return Tokenizer(TokenizerOptions.from_mapping(options)).tokenize_text(text)


def words(text, **options):
    return [token for token, _ in tokens(text, **options)]


def from_pylance(path, texts, kind=None, **options):
    """Number of tokens of each text, the parameters and the details that pylance writes."""
    table = pa.table({"s": pa.array(texts, kind or pa.string())})
    lance.write_dataset(table, str(path), mode="overwrite")
    dataset = lance.dataset(str(path))
    dataset.create_scalar_index("s", "INVERTED", name="x", **options)
    folder = next(iter(path.glob("_indices/*")))
    docs = LanceFileReader(str(folder / "part_0_docs.lance")).read_all().to_table()
    counts = np.zeros(len(texts), int)
    counts[docs["_rowid"].to_numpy().astype(int)] = docs["_num_tokens"].to_numpy()
    metadata = LanceFileReader(str(folder / "metadata.lance")).metadata().schema.metadata
    return counts.tolist(), metadata[b"params"].decode()


@pytest.mark.parametrize("more", ["", " Äpfel"])
def test_words_of_one_lower_case_are_one_term(more):
    options = TokenizerOptions(stem=False, remove_stop_words=False)
    found = Tokenizer(options).tokenize(pa.array([f"The the Zebra@{more}", None, "THE[ zebra"]))
    named = [found.terms[code] for code in found.codes.tolist()]
    assert named == ["the", "the", "zebra", *(["apfel"] if more else []), "the", "zebra"]
    assert len(found.terms) == len(set(named))
    assert found.rows.tolist() == [0] * (len(named) - 2) + [2, 2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the cat and a dog of the house", [("cat", 1), ("dog", 4), ("hous", 7)]),
        ("willing notes thus being", [("note", 1), ("thus", 2)]),
        ("naïve thé résumés cafés", [("naiv", 0), ("the", 1), ("resume", 2), ("cafe", 3)]),
        ("x" * 50 + " cat " + "y" * 40 + "z" * 39, [("cat", 1)]),
        ("x" * 39 + " é" + "é" * 18, [("x" * 39, 0), ("e" * 19, 1)]),
        ("ΑΣ İx ẞ", [("ασ", 0), ("i\u0307x", 1), ("ss", 2)]),
        ("a1b2 e-mail@x.org", [("a1b2", 0), ("e", 1), ("mail", 2), ("x", 3), ("org", 4)]),
        ("", []),
    ],
)  # fmt: skip
def test_token_filters_run_in_lance_order(text, found):
    assert tokens(text) == found


def test_alphabetic_marks_belong_to_words():
    vowel_sign, enclosed, combining = "क\u093eख", "aⒶb", "e\u0301x"
    assert words(f"{vowel_sign} {enclosed} {combining}", **BARE) == [vowel_sign, enclosed, "e", "x"]


def test_other_tokenizers_split_text():
    text = "Hello wörld, foo-bar\u00a0x\n"
    assert words(text, base_tokenizer="whitespace") == ["hello", "world,", "foo-bar x"]
    assert words(text, base_tokenizer="raw") == ["hello world, foo-bar x\n"]
    assert words("long " * 10, base_tokenizer="raw") == []
    grams = {"base_tokenizer": "ngram", "min_ngram_length": 2}
    assert sorted(words("a Éca", **grams)) == [" e", " ec", "a ", "a e", "ca", "ec", "eca"]
    assert words("Hello ab", max_ngram_length=4, prefix_only=True, **grams) == ["he", "hel", "hell"]
    assert {position for _, position in tokens("hello", **grams)} == {0}


def test_rows_and_positions_of_many_texts():
    texts = pa.array(["skipped", "dog cat", None, "", " ! ", "ünd dog", "x"])[1:]
    found = Tokenizer(PLAIN).tokenize(texts)
    terms = [found.terms[code] for code in found.codes]
    assert terms == ["dog", "cat", "ünd", "dog", "x"]
    assert (found.rows.tolist(), found.positions.tolist()) == ([0, 0, 4, 4, 5], [0, 1, 0, 1, 0])
    assert sorted(found.terms) == ["cat", "dog", "x", "ünd"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_tokenizer_accepts_string_types(kind):
    found = Tokenizer(PLAIN).tokenize(pa.array(["a b", None, "b"], pa.string()).cast(kind))
    assert found.rows.tolist() == [0, 0, 2]


LISTS = [["the cat", "dog house", None, "", "mouse"], [], None, ["of"], [None], ["a", "b"]]


@pytest.mark.parametrize("large", [False, True])
def test_list_elements_are_joined_by_space(large):
    kind = pa.large_list(pa.string()) if large else pa.list_(pa.string())
    found = Tokenizer(PLAIN).tokenize(pa.array(LISTS, kind)[0:6])
    assert found.rows.tolist() == [0] * 5 + [3, 5, 5]
    assert found.positions.tolist() == [0, 1, 2, 3, 4, 0, 0, 1]
    raw = Tokenizer(TokenizerOptions(base_tokenizer="raw", **BARE)).tokenize(pa.array(LISTS, kind))
    assert [raw.terms[code] for code in raw.codes] == [
        "the cat dog house  mouse", "", "", "of", "", "a b"
    ]  # fmt: skip


@pytest.mark.interop
@pytest.mark.parametrize(
    "options",
    [
        {},
        {**BARE, "max_token_length": None, "with_position": True},
        {"custom_stop_words": ["fox", "ü"], "max_token_length": 7},
        {"base_tokenizer": "whitespace", "stem": False},
        {"base_tokenizer": "raw"},
        {"base_tokenizer": "ngram"},
        {"base_tokenizer": "ngram", "min_ngram_length": 1, "max_ngram_length": 4, "stem": True},
        {"base_tokenizer": "ngram", "prefix_only": True, "remove_stop_words": True},
        {"language": "German", "remove_stop_words": False},
    ],
)
def test_token_counts_and_parameters_equal_pylance(tmp_path, options):
    rng = np.random.default_rng(len(str(options)))
    alphabet = [chr(c) for c in range(1, 0x3000) if unicodedata.category(chr(c)) != "Cn"]
    alphabet += list("abcdefghijklmnopqrs  ") * 200
    texts = ["".join(rng.choice(alphabet, rng.integers(0, 90))) for _ in range(300)]
    texts += ["the quick foxes of ü", None, "", "running and then"]
    expected, params = from_pylance(tmp_path / "t", texts, **options)
    ours = TokenizerOptions.from_mapping(options)
    found = Tokenizer(ours).tokenize(pa.array(texts))
    assert np.bincount(found.rows, minlength=len(texts)).tolist() == expected
    assert TokenizerOptions.from_params(params) == ours
    assert json.loads(ours.to_params()) == json.loads(params)
    assert list(json.loads(ours.to_params())) == list(json.loads(params))
    (entry,) = Snapshot.open(Table(str(tmp_path / "t"))).indices
    details = table_pb2.IndexMetadata.FromString(entry.raw).index_details
    assert (details.type_url, details.value) == (TEXT_DETAILS_TYPE, ours.to_details(2))


@pytest.mark.interop
@pytest.mark.parametrize("language", cases(LANGUAGES, in_ci=("Greek", "Romanian", "Tamil")))
@pytest.mark.parametrize("stem", [False, True])
def test_stop_words_equal_pylance(tmp_path, language, stem):
    """Of all stop words of all languages, and words that have one letter more or less."""
    known = sorted(set().union(*STOP_WORDS.values()))
    texts = [word for each in known for word in (each, each[1:], each + "e", each.title())]
    stem = stem and language != "Tamil"
    options = {"language": language, "stem": stem, "max_token_length": None}
    options["base_tokenizer"] = "simple" if stem else "whitespace"
    expected, _ = from_pylance(tmp_path / "t", texts, **options)
    found = Tokenizer(TokenizerOptions.from_mapping(options)).tokenize(pa.array(texts))
    assert np.bincount(found.rows, minlength=len(texts)).tolist() == expected
    snapshot = Snapshot.open(Table(str(tmp_path / "t")))
    segment = open_text_segment(snapshot.files, snapshot.indices[0])
    (partition,) = segment.open_partitions(snapshot.files)
    assert set(found.terms) == set(partition.tokens.in_order()[0].to_pylist())


@pytest.mark.interop
@pytest.mark.parametrize("tokenizer", ["simple", "raw", "ngram"])
def test_token_counts_of_lists_equal_pylance(tmp_path, tokenizer):
    options = {"base_tokenizer": tokenizer, "stem": False, "remove_stop_words": False}
    kind = pa.list_(pa.string())
    expected, _ = from_pylance(tmp_path / "t", LISTS, kind, **options)
    found = Tokenizer(TokenizerOptions.from_mapping(options)).tokenize(pa.array(LISTS, kind))
    assert np.bincount(found.rows, minlength=len(LISTS)).tolist() == expected


@pytest.mark.parametrize("name", ["icu", "icu/split", "code", "jieba/default", "lindera/ipadic"])
def test_unsupported_tokenizers_are_refused_by_name(name):
    with pytest.raises(UnsupportedFeatureError, match=f"the tokenizer '{name}'"):
        tokens("a", base_tokenizer=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "Klingon"}, "no language 'Klingon'"),
        ({"stemming": True}, "no option 'stemming'"),
        ({"stem": 1}, "stem is bool, not 1"),
        ({"custom_stop_words": "the"}, "is a list of words"),
        ({"min_ngram_length": 4}, "n-grams of 4 to 3"),
        ({"block_size": 64}, "block_size is 128 or 256"),
        ({"lance_tokenizer": "json"}, "the tokenizer 'json'"),
        ({"language": "Tamil", "remove_stop_words": False}, "stems of Tamil"),
    ],
)
def test_invalid_tokenizer_options_are_refused(options, message):
    with pytest.raises(LanceError, match=message) as caught:
        tokens("a", **options)
    assert isinstance(caught.value, InvalidInputError | UnsupportedFeatureError)


def test_stemming_requires_snowball_3(monkeypatch):
    stemmer.cache_clear()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.2.0")
    with pytest.raises(UnsupportedFeatureError, match=r"snowballstemmer 2\.2\.0 has other stems"):
        tokens("a")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "snowballstemmer.english_stemmer", None)
    with pytest.raises(UnsupportedFeatureError, match=r"(?s)English need.*pyspark-lance\[text\]"):
        tokens("a")
    assert words("running", stem=False) == ["running"]


def test_texts_of_queries_have_tokens_of_columns():
    """One short text is split without arrays."""
    rng = np.random.default_rng(2)
    characters = np.array([*map(chr, range(128)), *"aaaabcdefgh   ", "é"])
    for options in (TokenizerOptions(max_token_length=5), TokenizerOptions(), PLAIN):
        tokenizer = Tokenizer(options)
        for _ in range(200):
            text = "".join(rng.choice(characters, rng.integers(0, 30)))
            found = tokenizer.tokenize(pa.array([text]))
            tokens = [found.terms[code] for code in found.codes]
            expected = list(zip(tokens, found.positions.tolist(), strict=True))
            assert tokenizer.tokenize_text(text) == expected


def test_threads_stem_their_own_words():
    words = [f"{stem}{end}" for stem in ("runn", "walk", "jump") for end in ("ing", "ed", "ers")]
    stem = stemmer("English")
    expected = [stem(word) for word in words]

    def work(_):
        return [[stem(word) for word in words] for _ in range(60)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for found in threads.map(work, range(4)):
                assert found == [expected] * 60
    finally:
        sys.setswitchinterval(interval)
