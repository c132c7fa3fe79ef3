"""PageSink: lays pages one after the other into a 2.x file and ends it with the metadata.

Only the positions of written pages are kept, so memory does not grow with the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from pyspark_lance.datafile.file_metadata import (
    COLUMN_ENCODING_URL,
    ColumnInfo,
    Footer,
    PageInfo,
    column_metadata_bytes,
    file_descriptor_bytes,
)
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.proto import encodings_v2_0_pb2
from pyspark_lance.store.object_store import ByteRange, OutputFile

ALIGNMENT: Final = 64
"""pylance refuses files whose page buffers or file descriptor start elsewhere."""

_VALUES_ENCODING: Final = encodings_v2_0_pb2.ColumnEncoding(
    values=encodings_v2_0_pb2.Empty()
).SerializeToString()
_PADDING: Final = bytes(ALIGNMENT)


class PageSink:
    """Writer of pages in arrival order; ``finish`` makes the file readable.

    ``output``: the object being written, at position 0. The sink closes or aborts it.
    """

    def __init__(self, output: OutputFile) -> None:
        self._output = output
        self._position = 0
        self._pages: dict[int, list[PageInfo]] = {}
        self._column_encodings: dict[int, tuple[str, bytes]] = {}
        self._global_buffers: list[ByteRange] = []

    @property
    def bytes_written(self) -> int:
        """Length of the file so far."""
        return self._position

    def write_page(
        self,
        column: int,
        buffers: Sequence[object],
        encoding_type_url: str,
        encoding_bytes: bytes,
        *,
        num_rows: int,
        priority: int = 0,
    ) -> None:
        """Append a page to a column.

        ``column``: physical column; pages of one column come in row order. ``buffers``: bytes,
        memoryviews, pyarrow buffers or contiguous arrays; ``encoding_type_url``: which message
        ``encoding_bytes`` is; ``num_rows``: ``Page.length``: rows, or in 2.0 the items of that
        column; ``priority``: first top-level row of the page.
        """
        byte_ranges = tuple(self.write_buffer(buffer) for buffer in buffers)
        page = PageInfo(byte_ranges, num_rows, encoding_type_url, encoding_bytes, priority)
        self._pages.setdefault(column, []).append(page)

    def write_buffer(self, data: object) -> ByteRange:
        """Append bytes that belong to no page, such as the values of a blob column.

        Returns where they are; the start is aligned.
        """
        self._align()
        start = self._position
        self._write(data)
        return ByteRange(start, self._position)

    def write_global_buffer(self, data: object) -> int:
        """Append a global buffer.

        Returns its number, 1 or more; number 0 is the file descriptor.
        """
        self._global_buffers.append(self.write_buffer(data))
        return len(self._global_buffers)

    def set_column_encoding(self, column: int, encoding_type_url: str, encoding: bytes) -> None:
        """Set the encoding in the metadata of a column, instead of plain ``values``."""
        self._column_encodings[column] = (encoding_type_url, encoding)

    def finish(self, schema: LanceSchema, num_rows: int, version: str, num_columns: int) -> int:
        """Write descriptor, column metadata, tables and footer, and close the file.

        ``version``: ``2.0``, ``2.1`` or ``2.2``; ``num_columns``: physical columns, also those
        without any page. Returns the length of the file in bytes.
        """
        descriptor = self.write_buffer(file_descriptor_bytes(schema, num_rows))
        first_column = self._position
        columns = [self._write_column(index) for index in range(num_columns)]
        cmo_table = self._write_table(columns)
        gbo_table = self._write_table([descriptor, *self._global_buffers])
        footer = Footer(
            column_metadata_position=first_column,
            cmo_table_position=cmo_table,
            gbo_table_position=gbo_table,
            num_global_buffers=1 + len(self._global_buffers),
            num_columns=num_columns,
            version=version,
        )
        self._write(footer.to_bytes())
        self._output.close()
        return self._position

    def abort(self) -> None:
        """Discard the file."""
        self._output.abort()

    def _write_column(self, index: int) -> ByteRange:
        url, encoding = self._column_encodings.get(index, (COLUMN_ENCODING_URL, _VALUES_ENCODING))
        pages = tuple(self._pages.get(index, ()))
        start = self._position
        self._write(column_metadata_bytes(ColumnInfo(url, encoding, pages)))
        return ByteRange(start, self._position)

    def _write_table(self, entries: Sequence[ByteRange]) -> int:
        start = self._position
        self._write(b"".join(struct.pack("<QQ", e.start, e.num_bytes) for e in entries))
        return start

    def _align(self) -> None:
        padding = -self._position % ALIGNMENT
        if padding:
            self._write(_PADDING[:padding])

    def _write(self, data: object) -> None:
        self._position += self._output.write(data)
