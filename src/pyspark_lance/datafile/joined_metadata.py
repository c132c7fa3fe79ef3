"""JoinedMetadata: small files of one layout as if their pages were those of one file.

Pages of one kind are decoded together, which costs little more than to decode one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_lance.datafile.file_metadata import ColumnInfo, FileMetadata, PageInfo
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.byte_range import ByteRange


class JoinedMetadata:
    """What files say of themselves, one behind another.

    ``parts``: the metadata of each; all have equally many columns. ``origins``: where each file
    begins in the bytes of all; ``file_size``: how many bytes that are.
    """

    def __init__(
        self, parts: Sequence[FileMetadata], origins: Sequence[int], file_size: int
    ) -> None:
        self.path = f"{parts[0].path} and {len(parts) - 1} more"
        self.file_size = file_size
        self.num_rows = sum(part.num_rows for part in parts)
        self.num_columns = parts[0].num_columns
        self.version = parts[0].version
        self._parts = parts
        self._origins = origins
        self._columns: dict[int, ColumnInfo] = {}

    @property
    def schema(self) -> LanceSchema:
        """The schema of the first file."""
        return self._parts[0].schema

    def column(self, index: int) -> ColumnInfo:
        """The pages of a column of all files."""
        if index not in self._columns:
            pages = [
                _moved(page, origin)
                for part, origin in zip(self._parts, self._origins, strict=True)
                for page in part.column(index).pages
            ]
            first = self._parts[0].column(index)
            self._columns[index] = ColumnInfo(
                first.encoding_type_url, first.encoding_bytes, tuple(pages)
            )
        return self._columns[index]

    def require_rows(self, index: int, name: str, slots_per_row: int) -> None:
        """Check that a column has as many rows as the file, in each of them."""
        for part in self._parts:
            part.require_rows(index, name, slots_per_row)

    def where_page(self, index: int, name: str, page: int) -> str:
        """How messages name a page of column ``index``: by the file that has it."""
        for part in self._parts:
            count = len(part.column(index).pages)
            if page < count:
                return part.where_page(index, name, page)
            page -= count
        raise IndexError(page)


def _moved(page: PageInfo, by: int) -> PageInfo:
    buffers = tuple([ByteRange(start + by, end + by) for start, end in page.buffers])
    return PageInfo(
        buffers, page.num_rows, page.encoding_type_url, page.encoding_bytes, page.priority
    )
