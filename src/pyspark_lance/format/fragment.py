"""Fragment: a horizontal slice of the table, with its data files and sequences.

Sequences are kept as the bytes that were read, so that an unchanged fragment is written back byte
for byte; ``row_id_sequence`` and ``version_sequence`` decode them.

Source: docs/format/table-format.md, sections 1.1, 3.3, 4.1, 4.2, 7.6; protos/table.proto, messages
DataFragment and DataFile.
"""

from __future__ import annotations

import enum
import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.deletion_vector import DeletionFile
from pyspark_lance.format.feature_flags import FRAGMENT_OVERLAYS
from pyspark_lance.format.typed_values import check_enum
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
    """Reject paths and field lists that are unsafe to read."""
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


MAX_FRAGMENT_ID: Final = 2**32 - 1
"""Row addresses have 32 bits for the fragment."""

MAX_PHYSICAL_ROWS: Final = 2**32


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """A sequence stored in a separate file."""

    path: str  # Relative to the table root.
    offset: int  # First byte.
    size: int  # Number of bytes.


class Spilled(enum.Enum):
    """Type of ``SPILLED``; an enum, so that the marker keeps its identity when pickled."""

    SPILLED = "values are in a hidden column of a data file"


SPILLED: Final = Spilled.SPILLED
"""Marks a sequence whose values are in a hidden column of one of the fragment's data files."""

SequenceSource: TypeAlias = bytes | ExternalFile | Spilled | None
"""Location of a sequence: inline bytes as read, a file, a hidden column, or none."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Rows that share data files."""

    # Unique in the table, never reused, below 2**32. In a transaction 0 means "not yet given".
    id: int
    files: tuple[DataFile, ...]  # Data files, with different columns of the same rows.
    # Rows in the data files, deleted ones included. 0 if very old software did not record it.
    physical_rows: int
    # Where the deleted offsets are stored; None if no row is deleted.
    deletion_file: DeletionFile | None = None
    row_ids: SequenceSource = None  # Stable row ids.
    created_at: SequenceSource = None  # Version that created each row.
    last_updated_at: SequenceSource = None  # Version that last changed each row.

    @classmethod
    def from_proto(cls, message: table_pb2.DataFragment) -> Fragment:
        """The fragment that ``message`` describes."""
        return fragments_from_protos([message])[0]

    def to_proto(self) -> table_pb2.DataFragment:
        """The message for this fragment."""
        message = table_pb2.DataFragment()
        self.write_to(message)
        return message

    def write_to(self, message: table_pb2.DataFragment) -> None:
        """Fill an empty message, which may be part of another one; saves a copy."""
        if self.id:
            message.id = self.id
        add_file = message.files.add
        for file in self.files:
            add_file(
                path=file.path,
                fields=file.fields,
                column_indices=file.column_indices,
                file_major_version=file.major_version,
                file_minor_version=file.minor_version,
                file_size_bytes=file.size_bytes,
                base_id=file.base_id,
            )
        if self.deletion_file is not None:
            message.deletion_file.CopyFrom(self.deletion_file.to_proto())
        message.physical_rows = self.physical_rows
        if self.row_ids is not None:
            if isinstance(self.row_ids, bytes):
                message.inline_row_ids = self.row_ids
            else:
                _write_source(self.row_ids, message.external_row_ids, message.column_row_ids)
        if self.last_updated_at is not None:
            if isinstance(self.last_updated_at, bytes):
                message.inline_last_updated_at_versions = self.last_updated_at
            else:
                _write_source(
                    self.last_updated_at,
                    message.external_last_updated_at_versions,
                    message.column_last_updated_at_versions,
                )
        if self.created_at is not None:
            if isinstance(self.created_at, bytes):
                message.inline_created_at_versions = self.created_at
            else:
                _write_source(
                    self.created_at,
                    message.external_created_at_versions,
                    message.column_created_at_versions,
                )

    @property
    def has_spilled_lineage(self) -> bool:
        """Return whether row ids or versions are in hidden columns of its data files."""
        return SPILLED in (self.row_ids, self.created_at, self.last_updated_at)

    @property
    def num_deleted_rows(self) -> int:
        """Rows that were deleted."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Live rows."""
        return self.physical_rows - self.num_deleted_rows


def fragments_from_protos(messages: Iterable[table_pb2.DataFragment]) -> tuple[Fragment, ...]:
    """Return the fragments that ``messages`` describe; equal field and column lists are shared.

    A table may have 100,000 fragments, hence one loop with few calls.
    """
    # Only live objects are created here; garbage collection would double the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _read_fragments(messages)
    finally:
        if collecting:
            gc.enable()


def _read_fragments(messages: Iterable[table_pb2.DataFragment]) -> tuple[Fragment, ...]:
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    share = shared.setdefault
    fragments = []
    for message in messages:
        files = []
        for file in message.files:
            fields = tuple(file.fields)
            fields = share(fields, fields)
            columns = tuple(file.column_indices)
            columns = share(columns, columns)
            path = file.path
            check_data_file(path, fields, columns)
            files.append(
                DataFile(
                    path,
                    fields,
                    columns,
                    file.file_major_version,
                    file.file_minor_version,
                    file.file_size_bytes,
                    file.base_id if file.HasField("base_id") else None,
                )
            )
        # Inline bytes are by far the most frequent, and cheaper to check than the oneof.
        fragment = Fragment(
            message.id,
            tuple(files),
            message.physical_rows,
            DeletionFile.from_proto(message.deletion_file)
            if message.HasField("deletion_file")
            else None,
            message.inline_row_ids or _read_source(message, "row_id_sequence"),
            message.inline_created_at_versions
            or _read_source(message, "created_at_version_sequence"),
            message.inline_last_updated_at_versions
            or _read_source(message, "last_updated_at_version_sequence"),
        )
        if (
            fragment.id > MAX_FRAGMENT_ID
            or fragment.physical_rows > MAX_PHYSICAL_ROWS
            or message.overlays
        ):
            _check_fragment(fragment, has_overlays=bool(message.overlays))
        fragments.append(fragment)
    return tuple(fragments)


def _check_fragment(fragment: Fragment, *, has_overlays: bool) -> None:
    """Reject a fragment that cannot be read reliably."""
    if has_overlays:
        raise FRAGMENT_OVERLAYS.refusal(f"fragment {fragment.id} has data overlay files")
    if fragment.id > MAX_FRAGMENT_ID:
        raise CorruptFileError(f"fragment id {fragment.id} has more than 32 bits")
    if fragment.physical_rows > MAX_PHYSICAL_ROWS:
        raise CorruptFileError(
            f"fragment {fragment.id} has {fragment.physical_rows} rows, more than 2**32"
        )


_Read: TypeAlias = Callable[[table_pb2.DataFragment], SequenceSource]


def _external(file: table_pb2.ExternalFile) -> ExternalFile:
    return ExternalFile(file.path, file.offset, file.size)


_READ_SOURCE: Final[dict[str, _Read]] = {
    "inline_row_ids": lambda message: message.inline_row_ids,
    "external_row_ids": lambda message: _external(message.external_row_ids),
    "column_row_ids": lambda message: SPILLED,
    "inline_created_at_versions": lambda message: message.inline_created_at_versions,
    "external_created_at_versions": lambda message: _external(message.external_created_at_versions),
    "column_created_at_versions": lambda message: SPILLED,
    "inline_last_updated_at_versions": lambda message: message.inline_last_updated_at_versions,
    "external_last_updated_at_versions": lambda message: _external(
        message.external_last_updated_at_versions
    ),
    "column_last_updated_at_versions": lambda message: SPILLED,
}


SEQUENCE_FIELDS: Final = {
    "row_ids": ("inline_row_ids", "row_id_sequence"),
    "created_at": ("inline_created_at_versions", "created_at_version_sequence"),
    "last_updated_at": ("inline_last_updated_at_versions", "last_updated_at_version_sequence"),
}
"""Fields of a sequence in messages, by its name in ``Fragment``: inline, and the oneof."""


def sequence_sources(
    messages: Iterable[table_pb2.DataFragment], sequence: str
) -> list[SequenceSource]:
    """Return the location of one sequence of each fragment.

    ``sequence``: its name in ``Fragment``.
    """
    inline, oneof = SEQUENCE_FIELDS[sequence]
    return [getattr(message, inline) or _read_source(message, oneof) for message in messages]


def _read_source(message: table_pb2.DataFragment, oneof: str) -> SequenceSource:
    """The sequence that is set in ``oneof``."""
    name = message.WhichOneof(oneof)
    return None if name is None else _READ_SOURCE[name](message)


def _write_source(
    source: ExternalFile | Spilled, external: table_pb2.ExternalFile, marker: table_pb2.Empty
) -> None:
    """Fill the file reference or set the marker message."""
    if isinstance(source, ExternalFile):
        external.path, external.offset, external.size = source.path, source.offset, source.size
        external.SetInParent()
    else:
        check_enum(source, Spilled)
        marker.SetInParent()
