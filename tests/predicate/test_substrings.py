"""Looking for a text in all texts at once finds what Arrow finds in each."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.predicate import functions
from pyspark_lance.predicate.builder import like
from pyspark_lance.predicate.evaluate import evaluate
from pyspark_lance.predicate.functions import contains
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.tree import Column

TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


@st.composite
def texts(draw):
    """Few letters, so that what is looked for is there, ends in the next text, or overlaps."""
    letters = draw(st.sampled_from(["a", "ab", "aé", "abc.*"]))
    own = st.none() | st.text(letters, max_size=6)
    found = draw(st.lists(own, min_size=1, max_size=12)) + ["-"] * draw(st.sampled_from([0, 400]))
    data_type = draw(st.sampled_from(TYPES))
    is_text = data_type in (pa.string(), pa.large_string())
    values = [one if one is None or is_text else one.encode() for one in found]
    part = draw(st.text(letters, min_size=1, max_size=4))
    first = draw(st.integers(0, min(2, len(values) - 1)))
    return pa.array(values, data_type)[first:], part if is_text else part.encode()


@given(texts())
def test_contains_equals_arrow_match_substring(given_texts):
    values, part = given_texts
    found = contains(values, part)
    found.validate(full=True)
    assert found.equals(pc.match_substring(values, pattern=part))


@pytest.mark.parametrize(
    ("texts", "part", "found"),
    [(["xa", "bx"], "ab", [False, False]), (["ab", "aba"], "aba", [False, True])],
)
def test_substring_is_found_within_one_text(texts, part, found):
    values = pa.array(texts + ["-"] * 98)
    assert contains(values, part).to_pylist() == found + [False] * 98


@given(texts(), st.lists(st.sampled_from(["a", "b", "ab", "%", "_", "é", "ca"]), max_size=6))
def test_patterns_match_like_spark(given_texts, pieces):
    values = given_texts[0].cast(pa.binary()).cast(pa.string())
    pattern = "".join(pieces)
    condition = like(Column(("s",), pa.string()), pattern)
    spelled = "".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in pattern)
    wanted = [
        None if one is None else re.fullmatch(spelled, one, re.DOTALL) is not None
        for one in values.to_pylist()
    ]
    assert evaluate(condition, pa.record_batch({"s": values})).to_pylist() == wanted


def test_rare_substring_is_searched_in_whole_buffer(monkeypatch):
    values = pa.array([f"https://example.org/shop{i}/" for i in range(5_000)])
    rows = pa.record_batch({"s": values})
    one = parse_predicate("s LIKE '%shop17/%'", rows.schema)
    two = parse_predicate("s NOT LIKE '%example%shop1_/%'", rows.schema)
    wanted = evaluate(two, rows).to_pylist()
    assert wanted.count(False) == 10
    monkeypatch.setattr(functions, "pc", None)  # a call of Arrow fails
    assert evaluate(one, rows).to_pylist() == [i == 17 for i in range(5_000)]
    with pytest.raises(AttributeError):  # found in all of them
        evaluate(two, rows)
