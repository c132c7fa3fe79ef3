"""Queries as words and as JSON, and phrases with slop beside their definition."""

from __future__ import annotations

import itertools
import json

import lance
import numpy as np
import pyarrow as pa
import pytest
from text_tables import from_pylance, ours

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.text.queries import (
    Boolean,
    Boost,
    Match,
    MultiMatch,
    Operator,
    Phrase,
    parse_query,
)


def test_query_text_contains_words_and_phrases():
    assert parse_query("lazy dog") == Match("lazy dog")
    assert parse_query(' "lazy dog" ', ["s"]) == Phrase("lazy dog", "s")
    assert parse_query("a", ["s"], "AND") == Match("a", "s", Operator.AND)
    assert parse_query("a", ["s", "t"]) == MultiMatch((Match("a", "s"), Match("a", "t")))
    assert parse_query(Match("a", "s"), ["t"]) == Match("a", "s")


def test_lance_json_queries_are_parsed():
    match = {"match": {"column": "s", "terms": "a b", "operator": "And", "fuzziness": "auto"}}
    found = parse_query(json.dumps(match))
    assert found == Match("a b", "s", Operator.AND, None)
    phrase = {"phrase": {"terms": "a b", "slop": 2}}
    boost = {"boost": {"positive": match, "negative": phrase, "negative_boost": 0.25}}
    assert parse_query(boost, ["t"]) == Boost(found, Phrase("a b", "t", 2), 0.25)
    several = {"multi_match": {"match_queries": [{"terms": "a", "column": "s", "boost": 2}]}}
    boolean = {"boolean": {"must": [match], "should": [several], "must_not": [phrase]}}
    assert parse_query(boolean, ["t"]) == Boolean(
        (found,), (MultiMatch((Match("a", "s", boost=2),)),), (Phrase("a b", "t", 2),)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a query has one kind"),
        ({"match": {}}, "a query has no words"),
        ({"match": {"terms": "a", "boost": "x"}}, "boost must be a number"),
        ({"match": {"terms": "a", "max_expansions": 0}}, "max_expansions must be"),
        ({"phrase": {"terms": "a", "slop": -1}}, "slop must be"),
        ({"multi_match": {"match_queries": []}}, "of no queries"),
        ({"multi_match": {"match_queries": "a"}}, "match_queries of a query is no list"),
        ({"boost": {"positive": {"match": {"terms": "a"}}}}, "a query has one kind"),
        ({"combined_fields": {}}, "no query of kind 'combined_fields'"),
        ("{nonsense", "no JSON"),
        ("ab \ud800", "not Unicode at position 3"),
    ],
)
def test_invalid_queries_are_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_query(given)


@pytest.mark.interop
def test_phrases_with_slop_find_matching_documents(tmp_path):
    documents = [
        " ".join(one) for size in (3, 4, 5) for one in itertools.product("abx", repeat=size)
    ]
    table = pa.table({"id": np.arange(len(documents)), "s": documents})
    dataset = lance.write_dataset(table[:300], str(tmp_path / "t"))
    options = {"with_position": True, "stem": False, "remove_stop_words": False}
    dataset.create_scalar_index("s", "INVERTED", name="x", **options)
    lance.write_dataset(table[300:], str(tmp_path / "t"), mode="append")
    for words in ("a b", "a b a", "b a a", "a a a", "a b x", "a b b x"):
        for slop in (0, 1, 2):
            query = Phrase(words, "s", slop=slop)
            _, rows = ours(tmp_path / "t", query)
            expected = {
                number for number, text in enumerate(documents)
                if _has_phrase(text.split(), words.split(), slop)
            }  # fmt: skip
            assert set(rows["id"].to_pylist() if rows else []) == expected
            # pylance misses some if there is slop, but finds nothing else.
            their = from_pylance(tmp_path / "t", query)
            assert set(their) <= set(ours(tmp_path / "t", query)[0])
            assert slop or len(their) == len(expected)


def _has_phrase(text, words, slop):
    reached = {place for place, word in enumerate(text) if word == words[0]}
    for word in words[1:]:
        reached = {
            place for place, own in enumerate(text)
            if own == word and any(0 < place - before <= 1 + slop for before in reached)
        }  # fmt: skip
    return bool(reached)
