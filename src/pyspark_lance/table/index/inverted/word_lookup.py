"""WordLookup: a segment of a full-text index, for conditions that look for whole words.

A row with a word has the token of this word in the index, so the rows of this token are
candidates, also where lower case or stemming maps several words to one token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.predicate.single_column import required_words
from pyspark_lance.table.index.index_file import ColumnQuery, Limits
from pyspark_lance.table.index.inverted.segments import TextPartition, open_text_segment
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer
from pyspark_lance.table.version.table_files import TableFiles

# Longer posting lists than that, by the shortest one, are not read: rows are tested anyway.
_MOST_TIMES: Final = 64
_FREE_DOCUMENTS: Final = 4_096


@dataclass(frozen=True, slots=True)
class WordLookup:
    """The partitions of a segment, and how words become tokens."""

    tokenizer: Tokenizer | None  # None if tokens are not of whole words.
    partitions: tuple[TextPartition, ...]

    @classmethod
    def open(cls, files: TableFiles, entry: IndexMetadata, _: Field) -> WordLookup:
        """Read the metadata of the segment."""
        segment = open_text_segment(files, entry)
        tokenizer = Tokenizer(segment.options) if _keeps_words(segment.options) else None
        return cls(tokenizer, segment.open_partitions(files))

    @property
    def num_rows(self) -> None:
        """None: rows without tokens are not in the index."""
        return None

    @property
    def nbytes(self) -> int:
        """About how much memory it takes; tokens and documents are kept elsewhere."""
        return 4096 * (1 + len(self.partitions))

    def complete(self, fragments: BitMap, lengths: Mapping[int, int]) -> BitMap:
        """Return all fragments: rows that are absent have no token."""
        return fragments

    def rows_of(self, query: ColumnQuery, limits: Limits) -> NDArray[np.uint64] | None:
        """Return the names of rows with all tokens; None if no token is known, or for too many."""
        if self.tokenizer is None:
            return None
        words = required_words(query.predicate, query.path)
        tokens = [token for word in words for token, _ in self.tokenizer.tokenize_text(word)]
        if not tokens:
            return None
        found = [np.empty(0, np.uint64)]
        left = limits.most_rows
        for partition in self.partitions:
            rows = _rows_with(partition, list(dict.fromkeys(tokens)), left)
            if rows is None:
                return None
            left -= len(rows)
            found.append(rows)
        return np.concatenate(found)


def _keeps_words(options: TokenizerOptions) -> bool:
    """Return whether the tokens of a word are among those of each text that has the word."""
    kind = options.base_tokenizer
    return kind == "simple" or (kind == "ngram" and not options.prefix_only)


def _rows_with(partition: TextPartition, tokens: list[str], most: int) -> NDArray[np.uint64] | None:
    """Return the names of the rows of a partition with all tokens; None for too many."""
    numbers = partition.token_numbers(tokens)
    if (numbers < 0).any():
        return np.empty(0, np.uint64)
    counts = partition.document_counts(numbers)
    least = int(counts.min())
    if least > most:
        return None
    worthwhile = counts <= max(_FREE_DOCUMENTS, least * _MOST_TIMES)
    postings = partition.postings(numbers[worthwhile])
    postings.sort(key=lambda posting: posting.length)
    documents = postings[0].all_documents()
    for posting in postings[1:]:
        documents = documents[posting.frequencies_in(documents) > 0]
    return partition.row_ids(documents)
