"""NgramIndex: a segment of an index of trigrams of letters and digits in strings.

Lance first folds characters to lower-case ASCII, if possible. Lookups use only runs of ASCII
letters and digits of the pattern, which are independent of the folding of other characters. So a
row without one of these trigrams cannot match; rows with all of them are still tested.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap, BitMap64

from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.predicate.single_column import required_texts
from pyspark_lance.table.index.index_file import ColumnQuery, IndexFile, Limits
from pyspark_lance.table.version.table_files import TableFiles

NGRAM_FILE: Final = "ngram_postings.lance"
_RUN: Final = re.compile("[0-9A-Za-z]{3,}")
_DIGITS: Final = {
    character: number for number, character in enumerate("0123456789abcdefghijklmnopqrstuvwxyz", 1)
}
_BASE: Final = 37
# Maximum posting lists: reading more takes longer than it saves.
_MAX_LISTS: Final = 64
_MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class NgramIndex:
    """The tokens of a segment; each is a trigram encoded as a number."""

    file: IndexFile  # With the posting lists.
    tokens: NDArray[np.uint32]  # Ascending.

    @classmethod
    def open(cls, files: TableFiles, entry: IndexMetadata, field: Field) -> NgramIndex:
        """Read the tokens of the segment."""
        if not pa.types.is_string(field.to_arrow().type):
            raise UnsupportedFeatureError("an index of characters over a column of no strings")
        file = IndexFile.open(files, entry, NGRAM_FILE)
        file.expect_columns([("tokens", pa.uint32()), ("posting_list", pa.binary())])
        stored = file.read_all("tokens").column(0)
        tokens = np.asarray(plain_numbers(stored)) if not stored.null_count else np.zeros(2)
        if (tokens[1:] <= tokens[:-1]).any():
            raise CorruptFileError("tokens out of order", file.where)
        return cls(file, tokens.astype(np.uint32))

    @property
    def num_rows(self) -> None:
        """None: rows without tokens are not in the index."""
        return None

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return int(self.tokens.nbytes) + 4096

    def complete(self, fragments: BitMap, lengths: Mapping[int, int]) -> BitMap:
        """Return the given fragments whose rows are all indexed: all that its entry covers."""
        return fragments

    def rows_of(self, query: ColumnQuery, limits: Limits) -> NDArray[np.uint64] | None:
        """Return the names of rows with all tokens; None if not applicable or too many."""
        texts = required_texts(query.predicate, query.path)
        wanted = np.array(sorted({token for text in texts for token in tokens_of(text)}), np.uint32)
        if not len(wanted):
            return None
        if not np.isin(wanted, self.tokens).all():
            return np.empty(0, np.uint64)
        indices = np.searchsorted(self.tokens, wanted)
        try:
            lists = self.file.take("posting_list", indices[:_MAX_LISTS], max_bytes=_MAX_BYTES)
        except BatchTooLargeError:
            return None
        rows = BitMap64.intersection(*(self._parse(one.as_buffer()) for one in lists))
        return np.array(rows, np.uint64) if len(rows) <= limits.most_rows else None

    def rows_at(self, indices: NDArray[np.int64]) -> list[BitMap64]:
        """Read the row ids or addresses of the rows with some tokens, by the indices of these."""
        return [self._parse(one.as_buffer()) for one in self.file.take("posting_list", indices)]

    def _parse(self, stored: pa.Buffer | None) -> BitMap64:
        try:
            if stored is not None:
                return BitMap64.deserialize(stored.to_pybytes())
        except ValueError:
            pass
        raise CorruptFileError("a token without its rows", self.file.where)


def tokens_of(text: str) -> set[int]:
    """Return the tokens of every string that contains ``text``."""
    found = set()
    for run in _RUN.findall(text):
        digits = [_DIGITS[character] for character in run.lower()]
        for first, second, third in zip(digits, digits[1:], digits[2:], strict=False):
            found.add((first * _BASE + second) * _BASE + third)
    return found
