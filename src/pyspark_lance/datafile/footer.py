"""Footer: the last 40 bytes of a 2.x file, and which format version a file has. Pure: no I/O.

Layout, little endian: u64 position of the first ColumnMetadata, u64 position of the CMO table, u64
position of the GBO table, u32 global buffers, u32 columns, u16 major, u16 minor, ``LANC``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.feature_flags import FILES_2_3

MAGIC: Final = b"LANC"
FOOTER_BYTES: Final = 40
VERSION_BYTES: Final = 8
TABLE_ENTRY_BYTES: Final = 16

_FOOTER: Final = struct.Struct("<QQQIIHH4s")
_VERSION: Final = struct.Struct("<HH4s")

# The footer of a 2.0 file says 0.3; the manifest says 2.0 of the same file.
_VERSION_OF_NUMBERS: Final = {
    (0, 0): "0.1",
    (0, 1): "0.1",
    (0, 2): "0.1",
    (0, 3): "2.0",
    (2, 0): "2.0",
    (2, 1): "2.1",
    (2, 2): "2.2",
}
_UNSTABLE: Final = (2, 3)
_NUMBERS_OF_VERSION: Final = {"2.0": (0, 3), "2.1": (2, 1), "2.2": (2, 2)}


def file_version_of(tail: bytes | memoryview, where: str = "") -> str:
    """The format version in the last 8 bytes of a file.

    ``tail``: the end of the file, 8 bytes or more. Returns one of ``0.1``, ``2.0``, ``2.1``,
    ``2.2``.
    """
    if len(tail) < VERSION_BYTES:
        raise CorruptFileError(
            f"a data file ends with {VERSION_BYTES} bytes of version, found {len(tail)} bytes",
            where=where,
            hint="the file was cut short",
        )
    major, minor, magic = _VERSION.unpack(bytes(tail[len(tail) - VERSION_BYTES :]))
    if magic != MAGIC:
        raise CorruptFileError(
            f"a data file ends with {MAGIC!r}, found {magic!r}",
            where=where,
            hint="the file was cut short or is not a Lance data file",
        )
    version = _VERSION_OF_NUMBERS.get((major, minor))
    if (major, minor) == _UNSTABLE:
        raise FILES_2_3.refusal("data files of version 2.3 are not read", where)
    if version is None:
        raise UnsupportedFeatureError(
            f"data file version {major}.{minor} is not implemented",
            where=where,
            hint="files of the versions 0.1, 2.0, 2.1 and 2.2 are known",
        )
    return version


def is_legacy(tail: bytes | memoryview) -> bool:
    """Return whether bytes are the end of a 0.1 file; they may be anything."""
    if len(tail) < VERSION_BYTES:
        return False
    major, minor, magic = _VERSION.unpack(bytes(tail[len(tail) - VERSION_BYTES :]))
    return magic == MAGIC and _VERSION_OF_NUMBERS.get((major, minor)) == "0.1"


@dataclass(frozen=True, slots=True)
class Footer:
    """The fixed tail of a 2.x file."""

    column_metadata_position: int  # Where the ColumnMetadata of column 0 starts.
    cmo_table_position: int  # Where the table of column metadata positions starts.
    gbo_table_position: int  # Where the table of global buffer positions starts.
    num_global_buffers: int  # Entries of the GBO table, at least one.
    num_columns: int
    version: str  # ``2.0``, ``2.1`` or ``2.2``.

    @classmethod
    def from_bytes(cls, tail: bytes | memoryview, file_size: int, where: str = "") -> Footer:
        """Parse and check the last 40 bytes.

        ``tail``: the end of the file, 40 bytes or more; ``file_size``: length of the whole file in
        bytes.
        """
        version = file_version_of(tail, where)
        if version not in _NUMBERS_OF_VERSION:
            raise UnsupportedFeatureError(
                f"a file of version {version} has no 2.x footer", where=where
            )
        if len(tail) < FOOTER_BYTES:
            raise CorruptFileError(
                f"a footer of {FOOTER_BYTES} bytes was expected, the file has {len(tail)} bytes",
                where=where,
                hint="the file was cut short",
            )
        columns, cmo, gbo, num_global_buffers, num_columns, _, _, _ = _FOOTER.unpack(
            bytes(tail[len(tail) - FOOTER_BYTES :])
        )
        footer = cls(columns, cmo, gbo, num_global_buffers, num_columns, version)
        footer._check(file_size, where)
        return footer

    def to_bytes(self) -> bytes:
        """The 40 bytes."""
        major, minor = _NUMBERS_OF_VERSION[self.version]
        return _FOOTER.pack(
            self.column_metadata_position,
            self.cmo_table_position,
            self.gbo_table_position,
            self.num_global_buffers,
            self.num_columns,
            major,
            minor,
            MAGIC,
        )

    def _check(self, file_size: int, where: str) -> None:
        """Check that both tables are inside the file, so that its size bounds their reads."""
        end = file_size - FOOTER_BYTES
        for name, position, entries in (
            ("column metadata", self.column_metadata_position, 0),
            ("CMO table", self.cmo_table_position, self.num_columns),
            ("GBO table", self.gbo_table_position, self.num_global_buffers),
        ):
            if position + entries * TABLE_ENTRY_BYTES > end:
                raise CorruptFileError(
                    f"the {name} with {entries} entries at position {position} "
                    f"does not fit in the {end} bytes before the footer",
                    where=f"{where} bytes {end}..{file_size}",
                )
        if self.num_global_buffers < 1:
            raise CorruptFileError(
                "a file needs the global buffer with its schema, the footer counts none",
                where=f"{where} bytes {end}..{file_size}",
            )
