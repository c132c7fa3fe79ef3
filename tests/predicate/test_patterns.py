"""LIKE and RLIKE patterns against straightforward models of them."""

# ruff: noqa: E501 - tables of cases read better with one case per line

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.predicate.functions import (
    like_pieces,
    like_regex,
    re2_quote,
    required_text,
    rlike_regex,
)

TEXTS = st.text(alphabet="ab%_\\.*[(é😀\n\r\u2028 $", max_size=6)


def finds(pattern, text):
    return pc.match_substring_regex(pa.array([text]), pattern)[0].as_py()


@given(pattern=TEXTS, text=TEXTS)
def test_like_regex_equals_reference_matcher(pattern, text):
    def model(pattern, text):
        if not pattern:
            return not text
        if pattern[0] == "%":
            return any(model(pattern[1:], text[n:]) for n in range(len(text) + 1))
        if pattern[0] == "!":
            return bool(text) and text[0] == pattern[1] and model(pattern[2:], text[1:])
        return bool(text) and pattern[0] in ("_", text[0]) and model(pattern[1:], text[1:])

    assert finds(like_regex(like_pieces(pattern, "!")), text) == model(pattern, text)


@pytest.mark.parametrize("pattern", ["a!", "!a", "%!"])
def test_like_escape_must_precede_special_character(pattern):
    with pytest.raises(InvalidInputError, match="escape"):
        like_pieces(pattern, "!")


def test_escaped_escape_is_literal():
    assert like_pieces("!%!!_", "!") == ["%!", ""]


@given(TEXTS)
def test_quoted_text_matches_only_itself(text):
    assert finds(rf"\A{re2_quote(text)}\z", text)
    assert not finds(rf"\A{re2_quote(text)}\z", text + "x")


PIECES = st.sampled_from(
    ["a", "b", "é", ".", "^", "$", "|", "(a|b)", "(?:ab)?", "[ab]", "[^a]", "a*", "b+?", "(.)*",
     "a{2}", r"\d", r"\s", r"\S", r"\.", "[a\\s]", " "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=5).map("".join), st.text(alphabet="ab 1é.\n", max_size=6))
def test_rlike_equals_python_regex(pattern, text):
    # Python's re agrees with Java on these, but for $, which Java also sees before a last line end.
    try:
        expected = re.search(pattern, text, re.ASCII) is not None
    except re.error:
        assume(False)
    try:
        translated = rlike_regex(pattern)
    except UnsupportedFeatureError:
        return
    assert finds(translated, text) == expected


@given(
    st.lists(PIECES | st.sampled_from(["ab", r"\.a", "b?", "a{0,2}", "(a)+"]), max_size=6).map(
        "".join
    ),
    st.text(alphabet="ab 1é.\n", max_size=8),
)
def test_required_text_occurs_in_every_match(pattern, text):
    try:
        translated = rlike_regex(pattern)
    except (UnsupportedFeatureError, InvalidInputError):
        return
    assert required_text(pattern) in text or not finds(translated, text)


def test_required_text_is_longest_literal():
    assert required_text("ab+cde{2}.*(xyzxyz)?f") == "cde"
    assert required_text(r"id=\d+ name\.x") == " name.x"
    assert required_text("abc|def") == required_text("(abc|def)") == ""


@pytest.mark.parametrize(
    "pattern",
    [r"(?=a)", r"(?<n>a)", r"(a)\1", "a++", r"\bword", r"\p{L}", "[a&&b]", "[[a]b]", "(?i)a", r"\Qa\E", "a{,2}"],
)  # fmt: skip
def test_patterns_differing_in_re2_are_refused(pattern):
    with pytest.raises(UnsupportedFeatureError, match="not supported here"):
        rlike_regex(pattern)


@pytest.mark.parametrize("pattern", ["(a", "a)", "*a"])
def test_invalid_patterns_are_refused(pattern):
    with pytest.raises(InvalidInputError, match="invalid"):
        rlike_regex(pattern)
