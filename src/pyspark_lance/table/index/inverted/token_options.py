"""TokenizerOptions: the parameters of a full-text index, and how its files write them.

The JSON in ``metadata.lance`` decides; the details of the index entry repeat it for listings.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.wire import encode_varint, length_delimited

TEXT_DETAILS_TYPE: Final = "/lance.table.InvertedIndexDetails"
BASE_TOKENIZERS: Final = ("simple", "whitespace", "raw", "ngram")
# Languages that Lance has stemmers of.
LANGUAGES: Final = (
    "Arabic", "Danish", "Dutch", "English", "Finnish", "French",
    "German", "Greek", "Hungarian", "Italian", "Norwegian", "Portuguese",
    "Romanian", "Russian", "Spanish", "Swedish", "Tamil", "Turkish"
)  # fmt: skip
BLOCK_SIZES: Final = (128, 256)
# Of n-grams no stems are made and no stop words removed, unless the caller asks for it.
NGRAM_DEFAULTS: Final = {"stem": False, "remove_stop_words": False}


@dataclass(frozen=True, slots=True)
class TokenizerOptions:
    """Settings of tokens and postings; named as in the files of Lance."""

    lance_tokenizer: str = "text"
    base_tokenizer: str = "simple"
    language: str = "English"
    with_position: bool = False
    max_token_length: int | None = 40  # Words of so many bytes are dropped.
    lower_case: bool = True
    stem: bool = True
    remove_stop_words: bool = True
    custom_stop_words: tuple[str, ...] | None = None  # In place of those of the language.
    ascii_folding: bool = True
    min_ngram_length: int = 3
    max_ngram_length: int = 3
    prefix_only: bool = False
    block_size: int = 128
    split_identifiers: bool = False
    split_on_numerics: bool = False
    preserve_original: bool = False
    index_operators: bool = False

    def __post_init__(self) -> None:
        """Check all that does not depend on other files."""
        if self.language not in LANGUAGES:
            raise InvalidInputError(
                f"no language {self.language!r}", hint=f"known: {', '.join(LANGUAGES)}"
            )
        if not 1 <= self.min_ngram_length <= self.max_ngram_length:
            raise InvalidInputError(
                f"n-grams of {self.min_ngram_length} to {self.max_ngram_length} characters",
                hint="min_ngram_length is at least 1 and at most max_ngram_length",
            )
        if self.block_size not in BLOCK_SIZES:
            raise InvalidInputError(f"block_size is 128 or 256, not {self.block_size}")

    @classmethod
    def from_params(cls, text: str, where: str = "") -> TokenizerOptions:
        """Parse the JSON of ``params`` in the metadata of a segment; ignore unknown keys."""
        try:
            found = json.loads(text)
            given = {name: _check_value(name, found[name]) for name in _DEFAULTS if name in found}
            return cls(**given)
        except (TypeError, ValueError, AttributeError) as error:
            raise CorruptFileError(f"parameters of a full-text index: {error}", where) from error

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> TokenizerOptions:
        """Options by their names; defaults for those that are absent.

        Raises:
            InvalidInputError: A name or value is unknown.
        """
        defaults: Mapping[str, Any] = {}
        if given.get("base_tokenizer") == "ngram":
            defaults = NGRAM_DEFAULTS
        values = {**defaults, **given}
        for name, value in values.items():
            if name not in _DEFAULTS:
                raise InvalidInputError(
                    f"no option {name!r} of a full-text index",
                    hint=f"known: {', '.join(_DEFAULTS)}",
                )
            values[name] = _check_value(name, value)
        return cls(**values)

    def to_params(self) -> str:
        """The JSON of ``params``, its keys in Lance's order."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"), ensure_ascii=False)

    def to_details(self, format_version: int) -> bytes:
        """The message InvertedIndexDetails of an index entry; custom stop words are not in it."""
        limit = self.max_token_length
        numbers = [(4, limit)] if limit is not None else []
        flags = (5, self.lower_case), (6, self.stem), (7, self.remove_stop_words)
        numbers += [(number, 1) for number, flag in (*flags, (8, self.ascii_folding)) if flag]
        numbers += [(9, self.min_ngram_length), (10, self.max_ngram_length)]
        numbers += [(11, 1)] if self.prefix_only else []
        numbers += [(12, self.block_size), (15, format_version)]
        return (
            length_delimited(1, self.base_tokenizer.encode())
            + length_delimited(2, json.dumps(self.language).encode())
            + (_number(3, 1) if self.with_position else b"")
            + b"".join(_number(number, value) for number, value in numbers)
        )

    def check_supported(self) -> None:
        """Reject tokenizers that this package does not support.

        Raises:
            UnsupportedFeatureError: It names the tokenizer.
        """
        if self.lance_tokenizer != "text":
            raise UnsupportedFeatureError(
                f"the tokenizer {self.lance_tokenizer!r} of a full-text index",
                hint="tokenizers of texts can be used",
            )
        if self.base_tokenizer not in BASE_TOKENIZERS:
            raise UnsupportedFeatureError(
                f"the tokenizer {self.base_tokenizer!r} of a full-text index",
                hint=f"those that can be used: {', '.join(BASE_TOKENIZERS)}",
            )
        if self.stem and self.language == "Tamil":
            raise UnsupportedFeatureError("stems of Tamil", hint="build the index with stem=false")


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3) + encode_varint(value)


def _check_value(name: str, value: Any) -> Any:
    """A value of the type that an option has."""
    default = _DEFAULTS[name]
    if name == "custom_stop_words":
        if value is None:
            return None
        if isinstance(value, str) or not all(isinstance(word, str) for word in value):
            raise InvalidInputError(f"custom_stop_words is a list of words, not {value!r}")
        return tuple(value)
    if value is None and name == "max_token_length":
        return None
    if type(value) is not type(default):
        raise InvalidInputError(f"{name} is {type(default).__name__}, not {value!r}")
    return value


_DEFAULTS: Final[dict[str, Any]] = {
    field.name: field.default for field in dataclasses.fields(TokenizerOptions)
}
