"""TokenFilters: what becomes of a word: lower case, stem, stop words, ASCII form.

The order is Lance's. Each distinct word passes once; the result is kept.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Final

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.table.index.inverted.characters import ASCII_FORMS, STOP_WORDS
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions

# Lance stems by Snowball 3; Snowball 2 has other stems.
_MIN_SNOWBALL: Final = (3, 1)
_MAX_KEPT: Final = 1 << 20


class TokenFilters:
    """The filters of a tokenizer; equal words have equal tokens."""

    def __init__(self, options: TokenizerOptions) -> None:
        """Loads the stemmer and the stop words.

        Raises:
            UnsupportedFeatureError: There is no stemmer, or no list of stop words.
        """
        self._lower = options.lower_case
        self._stem = stemmer(options.language) if options.stem else None
        self._stop_words = _stop_words(options) if options.remove_stop_words else frozenset()
        self._fold = options.ascii_folding
        self._kept: dict[str, str | None] = {}

    def apply(self, word: str) -> str | None:
        """Return the token of a word, None if it has none."""
        try:
            return self._kept[word]
        except KeyError:
            if len(self._kept) >= _MAX_KEPT:
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
    """Lower case character by character: a final sigma stays what it is elsewhere."""
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
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"stems of {language} need the package snowballstemmer", hint=hint
        ) from error
    if tuple(map(int, version.split(".")[:2])) < _MIN_SNOWBALL:
        raise UnsupportedFeatureError(
            f"snowballstemmer {version} has other stems than Lance, which uses Snowball 3.1",
            hint=hint,
        )
    stem: Callable[[str], str] = getattr(module, f"{language}Stemmer")().stemWord
    return stem


def _stop_words(options: TokenizerOptions) -> frozenset[str]:
    if options.custom_stop_words is not None:
        return frozenset(options.custom_stop_words)
    if options.language not in STOP_WORDS:
        raise UnsupportedFeatureError(
            f"the stop words of {options.language} are not known",
            hint="build the index with custom_stop_words, or with remove_stop_words=false",
        )
    return STOP_WORDS[options.language]
