"""DataFile: one .lance file of a fragment, and the mapping of fields to its columns.

Source: docs/format/table-format.md, sections 1.1, 3.3, 4.2; protos/table.proto, message DataFile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.proto import table_pb2

TOMBSTONE: Final = -2
"""Field id of a column whose values exist but are dead."""
SPILLED_ROW_ID: Final = -3
SPILLED_CREATED_AT: Final = -4
SPILLED_LAST_UPDATED_AT: Final = -5

# (major, minor) in manifests -> file version. Files of version 2.0 contain 0.3.
_VERSION_NAMES: Final = {(0, 0): "0.1", (0, 1): "0.1", (0, 2): "0.1", (0, 3): "2.0"}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of a fragment."""

    path: str  # Relative to the ``data/`` folder of its base.
    fields: tuple[int, ...]  # Field ids; ``TOMBSTONE`` and the ``SPILLED_*`` ids are negative.
    # Column in the file for each of ``fields``, -1 for none; empty in files of version 0.1.
    column_indices: tuple[int, ...]
    major_version: int  # Major file version, as the manifest states it.
    minor_version: int  # Minor file version.
    size_bytes: int = 0  # Length of the file; 0 if unknown.
    # Base path the file is stored in; None for the table's own root. 0 is a base path.
    base_id: int | None = None

    @classmethod
    def from_proto(cls, message: table_pb2.DataFile) -> DataFile:
        """The file that ``message`` describes."""
        fields, columns = tuple(message.fields), tuple(message.column_indices)
        check_data_file(message.path, fields, columns)
        return cls(
            message.path,
            fields,
            columns,
            message.file_major_version,
            message.file_minor_version,
            message.file_size_bytes,
            message.base_id if message.HasField("base_id") else None,
        )

    def to_proto(self) -> table_pb2.DataFile:
        """The message for this file."""
        return table_pb2.DataFile(
            path=self.path,
            fields=self.fields,
            column_indices=self.column_indices,
            file_major_version=self.major_version,
            file_minor_version=self.minor_version,
            file_size_bytes=self.size_bytes,
            base_id=self.base_id,
        )

    @property
    def file_version(self) -> str:
        """Version of the file format: '0.1', '2.0', '2.1', '2.2', '2.3'."""
        return file_version_name(self.major_version, self.minor_version)


def file_version_name(major: int, minor: int) -> str:
    """Return the version of the file format for the numbers in a manifest."""
    return _VERSION_NAMES.get((major, minor), f"{major}.{minor}")


def check_data_file(path: str, fields: Sequence[int], column_indices: Sequence[int]) -> None:
    """Refuse paths and field lists that are unsafe to read."""
    if len(fields) != len(column_indices) and column_indices:
        raise CorruptFileError(
            f"data file {path!r} lists {len(fields)} fields and {len(column_indices)} columns"
        )
    # The first two tests are cheap and nearly always sufficient.
    if (
        not path
        or path[0] == "/"
        or ((".." in path or "\0" in path) and ("\0" in path or ".." in path.split("/")))
    ):
        raise CorruptFileError(f"data file path {path!r} is not a path inside the data folder")


def new_data_file_name(uuid_bytes: bytes) -> str:
    """Return the name of a new data file, whose prefix spreads keys over object store partitions.

    ``uuid_bytes``: the 16 bytes of a random UUID.
    """
    return f"{int.from_bytes(uuid_bytes[:3]):024b}{uuid_bytes[3:16].hex()}.lance"
