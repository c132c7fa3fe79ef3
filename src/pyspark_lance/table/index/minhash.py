"""MinHash signatures of texts, and the bands by which near-duplicates are found.

The words of a text, three at a time, are a set. A signature has the least of 128 hashes of its
members, so the share of equal numbers of two signatures estimates the share of common members. Two
texts are compared if all numbers of one of 16 bands are equal.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.value_hashes import xxh64_of_slices
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.wire import (
    encode_varint,
    length_delimited,
    parse_message,
    read_varint,
    wire_fields,
)
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.tokenizers import SeparatedWords, Tokenizer

SIGNATURES_FILE: Final = "signatures.lance"
BANDS_FILE: Final = "bands.lance"
MINHASH_FILES: Final = (SIGNATURES_FILE, BANDS_FILE)
MINHASH_DETAILS_TYPE: Final = "/lance.index.pb.MinHashLshIndexDetails"
ROW_ID: Final = "_rowid"
SIGNATURE: Final = "signature"
BAND_KEY: Final = "band_key"
DOCUMENT: Final = "doc_id"
# Keys of the metadata of both files.
VERSION_KEY: Final = "minhash_lsh_index_version"
DETAILS_KEY: Final = "minhash_lsh_details"
DOCUMENTS_KEY: Final = "minhash_lsh_num_docs"
PAGE_ROWS_KEY: Final = "minhash_lsh_page_rows"
PAGES_KEY: Final = "minhash_lsh_page_table_buffer"

_SEED: Final = 42
_MASK: Final = (1 << 64) - 1
_SEPARATOR: Final = "\x1f"
# Hashes of members that are compared together.
_MEMBERS_AT_ONCE: Final = 1 << 14
_BAND_SHIFT: Final = np.uint64(56)
_KEPT_BITS: Final = np.uint64((1 << 56) - 1)
_TOKENS: Final = TokenizerOptions(stem=False, remove_stop_words=False)
# Fields of the details of the tokenizer: those of numbers and those of flags.
_LIMIT: Final = 4
_FLAGS: Final = {5: "lower_case", 6: "stem", 7: "remove_stop_words", 8: "ascii_folding"}
_SIZES: Final = {9: "min_ngram_length", 10: "max_ngram_length"}
_TEXT_VERSION: Final = 2

_Numbers = NDArray[np.uint64]
Signatures = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class MinHashOptions:
    """The parameters of an index, by default those of Lance."""

    num_hashes: int = 128
    num_bands: int = 16
    shingle_words: int = 3  # Words of a member of the set of a text.
    tokens: TokenizerOptions = _TOKENS

    def to_details(self) -> bytes:
        """Serialize the details of an index entry."""
        numbers = self.num_hashes, self.num_bands, self.shingle_words
        fields = [
            encode_varint(field << 3) + encode_varint(number)
            for field, number in enumerate(numbers, start=1)
        ]
        return b"".join(fields) + length_delimited(4, self.tokens.to_details(_TEXT_VERSION))

    @property
    def rows_of_band(self) -> int:
        """Numbers of a signature in a band."""
        return self.num_hashes // self.num_bands


def options_of(entry: IndexMetadata) -> MinHashOptions:
    """Return the parameters of a segment.

    Raises:
        UnsupportedFeatureError: The parameters of the index's signatures are not supported.
    """
    message = parse_message(table_pb2.IndexMetadata, entry.raw).index_details.value
    numbers, tokens = {1: 0, 2: 0, 3: 0}, b""
    for field in wire_fields(message):
        value = message[field.value_start : field.end]
        if field.number == 4:
            tokens = value
        elif field.number in numbers:
            numbers[field.number] = read_varint(value, 0)[0]
        else:
            raise UnsupportedFeatureError(f"MinHash indices with a parameter {field.number}")
    hashes, bands, words = numbers.values()
    if entry.index_version or not (hashes and bands and words) or hashes % bands or bands > 256:
        raise UnsupportedFeatureError(
            f"MinHash indices of version {entry.index_version} with {hashes} hashes in {bands} "
            f"bands over {words} words"
        )
    options = MinHashOptions(hashes, bands, words, _tokenizer_of(tokens))
    options.tokens.check_supported()
    return options


def _tokenizer_of(message: bytes) -> TokenizerOptions:
    """Parse the parameters of a tokenizer in the details of an entry."""
    found: dict[str, Any] = dict.fromkeys(_FLAGS.values(), False)
    found["max_token_length"] = None
    for field in wire_fields(message):
        value = message[field.value_start : field.end]
        if field.number == 1:
            found["base_tokenizer"] = value.decode()
        elif field.number == 2:
            found["language"] = json.loads(value)
        elif field.number == _LIMIT:
            found["max_token_length"] = read_varint(value, 0)[0]
        elif field.number in _FLAGS:
            found[_FLAGS[field.number]] = bool(read_varint(value, 0)[0])
        elif field.number in _SIZES:
            found[_SIZES[field.number]] = read_varint(value, 0)[0]
        elif field.number == 11:
            found["prefix_only"] = bool(read_varint(value, 0)[0])
    try:
        return replace(_TOKENS, **found)
    except (InvalidInputError, TypeError, ValueError) as error:
        raise UnsupportedFeatureError(f"MinHash indices with a tokenizer {found}") from error


class Signer:
    """Generator of signatures of texts."""

    def __init__(self, options: MinHashOptions) -> None:
        self.options = options
        self._tokenizer = Tokenizer(options.tokens)
        drawn = _random_numbers(3 * options.num_hashes)
        pairs = drawn[: 2 * options.num_hashes]
        self._factors = pairs[::2] | np.uint64(1)
        self._addends = pairs[1::2]
        self._last = drawn[2 * options.num_hashes :] | np.uint64(1)

    def sign(self, texts: pa.Array) -> tuple[NDArray[np.intp], Signatures]:
        """Return the indices of the texts that have words, and their signatures.

        The signatures have shape (n, num_hashes).
        """
        hashes, rows = self._members(texts)
        firsts = np.flatnonzero(np.diff(rows, prepend=-1))
        signed = rows[firsts]
        signatures = np.empty((len(signed), self.options.num_hashes), np.uint16)
        if not len(signed):
            return signed, signatures
        cuts = np.append(firsts, len(hashes))
        first = 0
        while first < len(signed):
            # Texts of about so many members that those fit into the cache of a core.
            end = int(np.searchsorted(cuts, cuts[first] + _MEMBERS_AT_ONCE, "right")) - 1
            end = min(max(end, first + 1), len(signed))
            some = hashes[cuts[first] : cuts[end]]
            signatures[first:end] = self._least(some, firsts[first:end] - cuts[first])
            first = end
        return signed, signatures

    def _least(self, hashes: _Numbers, firsts: NDArray[np.intp]) -> Signatures:
        """Return the signatures of some texts, of which each begins at one of the hashes."""
        found = np.empty((self.options.num_hashes, len(firsts)), np.uint64)
        mixed = np.empty_like(hashes)
        for own, factor, addend in zip(found, self._factors, self._addends, strict=True):
            np.multiply(hashes, factor, out=mixed)
            np.add(mixed, addend, out=mixed)
            np.minimum.reduceat(mixed, firsts, out=own)
        found *= self._last[:, None]
        signatures: Signatures = (found >> np.uint64(48)).astype(np.uint16).T
        return signatures

    def _members(self, texts: pa.Array) -> tuple[_Numbers, NDArray[np.int64]]:
        """Return the hashes of all runs of words, and the texts that have them, ascending."""
        found = self._tokenizer.separate_ascii(texts, ord(_SEPARATOR)) or self._separate(texts)
        starts, ends = found.bounds[:-1], found.bounds[1:]
        # The first word of each run; a shorter text is one run.
        words = self.options.shingle_words
        is_first = np.diff(found.rows, prepend=-1) > 0  # They ascend.
        firsts, rows = np.flatnonzero(is_first), found.rows[is_first]
        counts = np.diff(firsts, append=len(found.rows))
        runs = np.maximum(counts - words + 1, 1)
        of_text = np.repeat(np.arange(len(rows)), runs)
        first = firsts[of_text] + np.arange(len(of_text)) - (np.cumsum(runs) - runs)[of_text]
        last = first + np.minimum(counts, words)[of_text] - 1
        begins = starts[first]
        return xxh64_of_slices(found.data, begins, ends[last] - 1 - begins, _SEED), rows[of_text]

    def _separate(self, texts: pa.Array) -> SeparatedWords:
        """Return the tokens of texts by their dictionary."""
        tokens = self._tokenizer.tokenize(texts)
        content, ends_of_terms = _separated(tokens.terms)
        buffers = [None, pa.py_buffer(ends_of_terms), pa.py_buffer(content)]
        terms = pa.Array.from_buffers(pa.large_binary(), len(tokens.terms), buffers)
        # Arrow copies words as wholes, without an index for each byte.
        _, offsets, taken = terms.take(plain_array(tokens.codes)).buffers()
        data = np.frombuffer(taken, np.uint8) if taken else np.empty(0, np.uint8)
        return SeparatedWords(data, np.frombuffer(offsets, np.int64, len(tokens) + 1), tokens.rows)


def _separated(terms: list[str]) -> tuple[bytes, NDArray[np.int64]]:
    """Return terms with a separator after each, and where each begins, and the last ends."""
    joined = "".join([term + _SEPARATOR for term in terms])
    if joined.isascii():
        lengths: Iterable[int] = map(len, terms)
    else:
        lengths = (len(term.encode()) for term in terms)
    ends = np.zeros(len(terms) + 1, np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, len(terms)) + 1, out=ends[1:])
    return joined.encode(), ends


def band_keys(signatures: Signatures, options: MinHashOptions) -> _Numbers:
    """Return the keys of the bands of signatures, shape (n, num_bands)."""
    width = 2 * options.rows_of_band
    data = np.ascontiguousarray(signatures, "<u2").view(np.uint8).reshape(-1)
    starts = np.arange(len(signatures) * options.num_bands, dtype=np.int64) * width
    hashes = xxh64_of_slices(data, starts, np.full(len(starts), width), _SEED)
    bands = np.arange(options.num_bands, dtype=np.uint64) << _BAND_SHIFT
    keys: _Numbers = bands | (hashes.reshape(-1, options.num_bands) & _KEPT_BITS)
    return keys


def signatures_in(lists: pa.Array) -> Signatures:
    """Return the signatures in a column of the file of signatures."""
    width = lists.type.list_size
    items = lists.values.slice(lists.offset * width, len(lists) * width)
    signatures: Signatures = plain_numbers(items).reshape(-1, width)
    return signatures


def _random_numbers(count: int) -> _Numbers:
    """Return the first numbers of SplitMix64, as Lance seeds it."""
    state, found = _SEED, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        found.append(mixed ^ mixed >> 31)
    return np.array(found, np.uint64)
