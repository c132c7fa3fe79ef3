"""Tokenizer: texts of an Arrow array to tokens with their rows and positions.

Words are found in the UTF-8 bytes of all texts at once; only distinct words pass the filters.
``TokenFilters`` normalizes a word in Lance's order: lower case, stem, stop words, ASCII form. Each
distinct word passes once; the result is kept. The table of ASCII forms of characters was observed
in pylance 14.0.2.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.plain_values import plain_array, plain_numbers, plain_scalar, single_value
from pyspark_lance.predicate.functions import character_starts, text_bytes, word_bytes, word_runs
from pyspark_lance.table.index.inverted.stop_words import STOP_WORDS
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions

# ASCII forms of letters that NFKD leaves whole.
_LETTERS: Final = "ßẞÆæŒœØøŁłĐÐđðÞþĦħŦŧŊŋıĸſ"
_FORMS: Final = "ss SS AE ae OE oe O o L l D D d d TH th H h T t N n i k s"
ASCII_FORMS: Final = dict(zip(_LETTERS, re.split(" ", _FORMS), strict=True))


# Lance stems by Snowball 3; Snowball 2 has other stems.
_MIN_SNOWBALL: Final = (3, 1)
_MAX_KEPT: Final = 1 << 20
_MAX_KEPT_OF_QUERIES: Final = 1 << 16


class TokenFilters:
    """The filters of a tokenizer; equal words have equal tokens."""

    def __init__(self, options: TokenizerOptions, max_kept: int = _MAX_KEPT) -> None:
        """Load the stemmer and the stop words.

        Raises:
            UnsupportedFeatureError: There is no stemmer.
        """
        self._lower = options.lower_case
        self._stem = stemmer(options.language) if options.stem else None
        self._stop_words = _stop_words(options) if options.remove_stop_words else frozenset()
        self._fold = options.ascii_folding
        self._kept: dict[str, str | None] = {}
        self._max_kept = max_kept

    def apply(self, word: str) -> str | None:
        """Return the token of a word, None if it has none."""
        try:
            return self._kept[word]
        except KeyError:
            if len(self._kept) >= self._max_kept:
                self._kept.clear()
            token = self._kept[word] = self._apply(word)
            return token

    def _apply(self, word: str) -> str | None:
        if self._lower:
            word = lower_case(word)
        if self._stem is not None:
            word = self._stem(word)
        if word in self._stop_words:
            return None
        return ascii_form(word) if self._fold else word


def lower_case(word: str) -> str:
    """Lower case character by character: a final sigma is treated as elsewhere."""
    return word.lower() if word.isascii() else "".join(map(str.lower, word))


def ascii_form(word: str) -> str:
    """The word with each character in its ASCII form, if it has one."""
    return word if word.isascii() else "".join(map(_ascii_character, word))


def _ascii_character(character: str) -> str:
    if character.isascii():
        return character
    if character in ASCII_FORMS:
        return ASCII_FORMS[character]
    parts = unicodedata.normalize("NFKD", character)
    return "".join(part if part.isascii() else ASCII_FORMS.get(part, "") for part in parts) or (
        character
    )


@cache
def stemmer(language: str) -> Callable[[str], str]:
    """Return the Snowball stemmer of a language.

    Raises:
        UnsupportedFeatureError: The package is missing or older than Snowball 3.1.
    """
    hint = "pip install 'pyspark-lance[text]', on executors too"
    name = language.lower()
    try:
        version = importlib.metadata.version("snowballstemmer")
        # By its module: the package itself prefers PyStemmer, of whatever version.
        module = importlib.import_module(f"snowballstemmer.{name}_stemmer")
    except ImportError:
        raise UnsupportedFeatureError(
            f"stems of {language} need the package snowballstemmer", hint=hint
        ) from None
    if tuple(map(int, version.split(".")[:2])) < _MIN_SNOWBALL:
        raise UnsupportedFeatureError(
            f"snowballstemmer {version} has other stems than Lance, which uses Snowball 3.1",
            hint=hint,
        )
    make: Callable[[], Any] = getattr(module, f"{language}Stemmer")
    own = threading.local()

    def stem(word: str) -> str:
        # A stemmer holds the word that it works on, so threads cannot share one.
        if not hasattr(own, "stemmer"):
            own.stemmer = make()
        found: str = own.stemmer.stemWord(word)
        return found

    return stem


def _stop_words(options: TokenizerOptions) -> frozenset[str]:
    if options.custom_stop_words is not None:
        return frozenset(options.custom_stop_words)
    return STOP_WORDS[options.language]


_Numbers = NDArray[np.int64]
_Flags = NDArray[np.bool_]
# Lance splits at ASCII white space only.
_ASCII_WORD: Final = re.compile("[0-9A-Za-z]+")
_SPACES: Final = np.frombuffer(b"\t\n\x0c\r ", np.uint8)
_FIRST_NO_ASCII: Final = 0x80
_ASCII_LOWER: Final = np.frombuffer(bytes(range(256)).lower(), np.uint8)
# The words of fuzzy queries, and of columns without an index.
PLAIN: Final = TokenizerOptions(
    max_token_length=None,
    lower_case=False,
    stem=False,
    remove_stop_words=False,
    ascii_folding=False,
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of some texts, ordered by row and position."""

    rows: _Numbers  # Index of the text of each token, ascending.
    codes: NDArray[np.int32]  # Index of each token in ``terms``.
    positions: _Numbers  # Number of its word in the text, counted before words are removed.
    terms: list[str]  # Distinct, in no order.

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class SeparatedWords:
    """The words of some texts in one text, with a separator after each."""

    data: NDArray[np.uint8]
    bounds: _Numbers  # Where each begins, and the end; shape (n + 1,).
    rows: _Numbers  # Index of the text of each, ascending.


@dataclass(frozen=True, slots=True)
class _Words:
    """Words before the filters."""

    texts: pa.LargeStringArray
    rows: _Numbers
    positions: _Numbers


class Tokenizer:
    """Tokenizer of texts by the given options.

    ``max_kept``: so many distinct words are remembered with their tokens.
    """

    def __init__(self, options: TokenizerOptions, max_kept: int = _MAX_KEPT) -> None:
        """Load stemmer and stop words.

        Raises:
            UnsupportedFeatureError: The options are not supported.
        """
        options.check_supported()
        self.options = options
        self._filters = TokenFilters(options, max_kept)
        # Whether words of ASCII need no more than their lower case.
        self._only_lowers = options.lower_case and not (options.stem or options.remove_stop_words)

    def tokenize(self, texts: pa.Array) -> Tokens:
        """Tokens of strings or lists of strings; nulls have none.

        Elements of a list are joined by a space; null elements are left out.
        """
        joined = _strings(texts)
        words = self._words(joined)
        if self.options.max_token_length is not None:
            # Measured before lower case, which may change the length.
            words = _short(words, self.options.max_token_length)
        encoded = words.texts.dictionary_encode()
        codes, terms = self._filter_words(encoded.dictionary)
        of_words = codes[plain_numbers(encoded.indices)]
        kept = of_words >= 0
        return Tokens(words.rows[kept], of_words[kept], words.positions[kept], terms)

    def separate_ascii(self, texts: pa.Array, separator: int) -> SeparatedWords | None:
        """Return the tokens of texts of ASCII, which are their words in lower case.

        None if the options or other characters need more than that.
        """
        limit = self.options.max_token_length
        if self.options.base_tokenizer != "simple" or not self._only_lowers:
            return None
        data, offsets = text_bytes(_strings(texts))
        if len(data) and data.max() >= _FIRST_NO_ASCII:
            return None
        # A separator after each text, where the last word of a text may end.
        separated = np.insert(data, offsets[1:], separator)
        characters = np.where(_is_ascii_word(), _ASCII_LOWER, np.uint8(separator))
        lowered = np.frombuffer(separated.tobytes().translate(characters.tobytes()), np.uint8)
        in_word = lowered != separator
        is_kept = in_word.copy()
        is_kept[1:] |= in_word[:-1]
        dropped = np.flatnonzero(~is_kept)
        kept = lowered[is_kept] if len(dropped) else lowered
        bounds = np.append(0, np.flatnonzero(kept == separator) + 1)
        if limit is not None and len(bounds) > 1 and np.diff(bounds).max() > limit:
            return None
        firsts = offsets + np.arange(len(offsets))
        cuts = np.searchsorted(bounds[:-1], firsts - np.searchsorted(dropped, firsts))
        return SeparatedWords(kept, bounds, np.repeat(np.arange(len(cuts) - 1), np.diff(cuts)))

    def tokenize_text(self, text: str) -> list[tuple[str, int]]:
        """The tokens of one text with their positions."""
        if self.options.base_tokenizer == "simple" and text.isascii():
            return self._tokenize_ascii(text)
        found = self.tokenize(single_value(text.encode(), pa.large_string()))
        pairs = zip(found.codes.tolist(), found.positions.tolist(), strict=True)
        return [(found.terms[code], position) for code, position in pairs]

    def _tokenize_ascii(self, text: str) -> list[tuple[str, int]]:
        """The same as ``tokenize`` finds, without arrays, which cost more for a few words."""
        limit = self.options.max_token_length
        found = []
        for position, word in enumerate(_ASCII_WORD.findall(text)):
            is_short = limit is None or len(word) < limit
            token = self._filters.apply(word) if is_short else None
            if token is not None:
                found.append((token, position))
        return found

    def _words(self, texts: pa.LargeStringArray) -> _Words:
        kind = self.options.base_tokenizer
        if kind == "raw":
            rows = np.flatnonzero(~plain_numbers(texts.is_null()))
            return _Words(texts.drop_null(), rows, np.zeros_like(rows))
        data, offsets = text_bytes(texts)
        if kind == "ngram":
            options = self.options
            sizes = range(options.min_ngram_length, options.max_ngram_length + 1)
            return _ngrams(data, offsets, sizes, options.prefix_only)
        in_word = ~np.isin(data, _SPACES) if kind == "whitespace" else word_bytes(data)
        return _runs(data, offsets, in_word)

    def _filter_words(self, words: pa.Array) -> tuple[NDArray[np.int32], list[str]]:
        """Code of the token of each distinct word, -1 for none, and the tokens."""
        if self._only_lowers:
            data, offsets = text_bytes(words)
            if not len(data) or data.max() < _FIRST_NO_ASCII:
                lowered = _slices(_ASCII_LOWER[data], np.diff(offsets)).dictionary_encode()
                return plain_numbers(lowered.indices), lowered.dictionary.to_pylist()
        terms: dict[str, int] = {}
        apply, add = self._filters.apply, terms.setdefault
        tokens = map(apply, words.to_pylist())
        codes = [-1 if token is None else add(token, len(terms)) for token in tokens]
        return np.array(codes, np.int32), list(terms)


@cache
def _is_ascii_word() -> _Flags:
    """Return for each byte whether it is an alphanumeric character of ASCII; shape (256,)."""
    characters = np.arange(256, dtype=np.uint8)
    return (characters < _FIRST_NO_ASCII) & word_bytes(characters & np.uint8(_FIRST_NO_ASCII - 1))


@lru_cache(maxsize=16)
def shared_tokenizer(options: TokenizerOptions) -> Tokenizer:
    """Return the tokenizer of all queries of this process; see ``Tokenizer``."""
    return Tokenizer(options, _MAX_KEPT_OF_QUERIES)


def _strings(texts: pa.Array) -> pa.LargeStringArray:
    """Strings, or lists of them as one string each."""
    kind = texts.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _join_lists(texts)
    if pa.types.is_dictionary(kind):
        texts = texts.dictionary_decode()
    return texts if pa.types.is_large_string(texts.type) else texts.cast(pa.large_string())


def _join_lists(lists: pa.Array) -> pa.LargeStringArray:
    """The elements of each list that are not null, joined by a space; '' for a null list."""
    values = _strings(lists.flatten())
    parents = plain_numbers(pc.list_parent_indices(lists))
    here = ~plain_numbers(values.is_null())
    counts = np.bincount(parents[here], minlength=len(lists))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    kept = pa.LargeListArray.from_arrays(plain_array(offsets), values.drop_null())
    return pc.binary_join(kept, plain_scalar(" ", pa.large_string()))


def _runs(data: NDArray[np.uint8], offsets: _Numbers, in_word: _Flags) -> _Words:
    """Maximal runs of bytes of words, none across texts."""
    starts, lengths = word_runs(offsets, in_word)
    # Words of a text are contiguous: few texts are looked up among many words.
    cuts = np.searchsorted(starts, offsets)
    firsts, rows = cuts[:-1], np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    positions = np.arange(len(starts)) - firsts[rows]
    return _Words(_slices(data[in_word], lengths), rows, positions)


def _ngrams(data: NDArray[np.uint8], offsets: _Numbers, sizes: range, prefix_only: bool) -> _Words:
    """Return all n-grams of the given sizes, all at position 0."""
    indices = np.append(np.flatnonzero(character_starts(data)), len(data))
    ends = np.searchsorted(indices, offsets[1:])
    rows = np.searchsorted(offsets, indices[:-1], "right") - 1
    first = np.arange(len(rows))
    if prefix_only:
        first = first[np.isin(indices[:-1], offsets[:-1])]
    texts, of_rows = [], []
    for size in sizes:
        here = first[first + size <= ends[rows[first]]]
        starts, stops = indices[here], indices[here + size]
        texts.append(_slices(_gather_slices(data, starts, stops - starts), stops - starts))
        of_rows.append(rows[here])
    found = np.concatenate(of_rows)
    order = np.argsort(found, kind="stable")
    return _Words(
        pa.concat_arrays(texts).take(plain_array(order)),
        found[order],
        np.zeros(len(found), np.int64),
    )


def _gather_slices(
    data: NDArray[np.uint8], starts: _Numbers, lengths: _Numbers
) -> NDArray[np.uint8]:
    """The concatenated bytes of some slices."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return data[np.arange(total) + np.repeat(starts - (ends - lengths), lengths)]


def _slices(data: NDArray[np.uint8], lengths: _Numbers) -> pa.LargeStringArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pa.LargeStringArray.from_buffers(
        len(lengths), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))
    )


def _short(words: _Words, limit: int) -> _Words:
    """Words of fewer bytes than a limit."""
    lengths = plain_numbers(pc.binary_length(words.texts))
    if not len(lengths) or lengths.max() < limit:
        return words
    kept = lengths < limit
    return _Words(words.texts.filter(plain_array(kept)), words.rows[kept], words.positions[kept])
