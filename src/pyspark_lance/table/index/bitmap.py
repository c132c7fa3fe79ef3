"""BitmapIndex and LabelIndex: index segments with a set of rows for each value.

A bitmap index is keyed by column values, a label list index by list elements.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_address import numbers_of, parse_tree_map, union_of
from pyspark_lance.predicate.single_column import matching_values, required_element
from pyspark_lance.predicate.tree import Column, Comparison, Literal
from pyspark_lance.table.index.index_file import ColumnQuery, IndexFile, Limits
from pyspark_lance.table.index.segments import to_predicate_type
from pyspark_lance.table.version.table_files import TableFiles

BITMAP_FILE: Final = "bitmap_page_lookup.lance"
LABEL_NULLS_KEY: Final = "lance:label_list_nulls"
"""Of the metadata of a label list index: the buffer that has the rows whose list is null."""
# Maximum sets: merging more takes longer than it saves.
_MAX_SETS: Final = 10_000
_MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _RowSets:
    """The keys of a segment.

    ``file``: with the row set of each; ``keys``: distinct, including null, in the type of
    predicates.
    """

    file: IndexFile
    keys: pa.Array

    @property
    def num_rows(self) -> None:
        """None: the row count is unknown without reading all sets."""
        return None

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return int(self.keys.nbytes) + 4096

    def complete(self, fragments: BitMap, lengths: Mapping[int, int]) -> BitMap:
        """Return the given fragments whose rows are all indexed: all that its entry covers."""
        return fragments

    @classmethod
    def _of_keys(cls, files: TableFiles, entry: IndexMetadata, key: Field) -> Self:
        file = IndexFile.open(files, entry, BITMAP_FILE)
        file.expect_columns([("keys", key.to_arrow().type), ("bitmaps", pa.binary())])
        return cls(file, to_predicate_type(file.read_all("keys").column(0), key))

    def _rows_at(self, indices: NDArray[np.int64], most_rows: int) -> NDArray[np.uint64] | None:
        if len(indices) > _MAX_SETS:
            return None
        sets = read_row_sets(self.file, indices)
        if sets is None:
            return None
        rows = union_of(sets)
        return numbers_of(rows) if sum(map(len, rows.values())) <= most_rows else None


@dataclass(frozen=True, slots=True)
class BitmapIndex(_RowSets):
    """The values of a segment."""

    @classmethod
    def open(cls, files: TableFiles, entry: IndexMetadata, field: Field) -> BitmapIndex:
        """Read the values of the segment."""
        return cls._of_keys(files, entry, field)

    def rows_of(self, query: ColumnQuery, limits: Limits) -> NDArray[np.uint64] | None:
        """Return the row names of matching values; None if there are too many."""
        indices = np.flatnonzero(query.matches(self.keys))
        return self._rows_at(indices, limits.most_rows)


@dataclass(frozen=True, slots=True)
class LabelIndex(_RowSets):
    """The elements of the lists of a segment."""

    @classmethod
    def open(cls, files: TableFiles, entry: IndexMetadata, field: Field) -> LabelIndex:
        """Read the list elements of the segment."""
        if not field.is_list or len(field.children) != 1 or field.children[0].children:
            raise UnsupportedFeatureError(
                "label_list indices are supported on columns of lists only"
            )
        return cls._of_keys(files, entry, field.children[0])

    def rows_of(self, query: ColumnQuery, limits: Limits) -> NDArray[np.uint64] | None:
        """Return the row names of lists with matching elements; None if not applicable."""
        wanted = required_element(query.predicate, query.path)
        if wanted is None or not wanted.is_valid or wanted.type != self.keys.type:
            return None
        equal = Comparison("=", Column(("element",), wanted.type), Literal(wanted))
        indices = np.flatnonzero(matching_values(equal, ("element",), self.keys))
        return self._rows_at(indices, limits.most_rows)


def read_row_sets(
    file: IndexFile, indices: NDArray[np.int64], *, max_bytes: int | None = _MAX_BYTES
) -> list[dict[int, BitMap]] | None:
    """Read the row sets at some positions of a file; None if they exceed ``max_bytes``."""
    try:
        stored = file.take("bitmaps", indices, max_bytes=max_bytes)
    except BatchTooLargeError:
        return None
    return [_parse_rows(data.as_buffer(), file.where) for data in stored]


def _parse_rows(data: pa.Buffer | None, where: str) -> dict[int, BitMap]:
    if data is None:
        raise CorruptFileError("a value of the bitmap index has no rows", where)
    parsed = parse_tree_map(data.to_pybytes(), where)
    known = {high: bitmap for high, bitmap in parsed.items() if bitmap is not None}
    if len(known) < len(parsed):
        # Full fragments are never written, and are undefined for stable row ids.
        raise CorruptFileError("a value of the bitmap index claims all rows", where)
    return known
