"""Manifest: the metadata of one version of a table.

Adjacent versions share nearly all fragments. A reader of many versions compares the bytes of
serialized manifests and only decodes the differences (``cut_manifest``). No I/O:
``metafile/manifest_file.py`` reads and writes the files.

Source: docs/format/table-format.md, section 2.2; protos/table.proto, message Manifest.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.feature_flags import (
    FRAGMENT_TREE,
    MIXED_FILE_VERSIONS,
    STABLE_ROW_IDS,
    V2_FORMAT,
    check_consistent,
    check_readable,
)
from pyspark_lance.format.fragment import Fragment, file_version_name, fragments_from_protos
from pyspark_lance.format.fragment_decoder import decode_columns
from pyspark_lance.format.fragments import MAX_PIECES, EncodedFragments, FragmentColumns, Fragments
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.wire import (
    LENGTH_DELIMITED,
    VARINT,
    WireField,
    drop_unknown_fields,
    parse_message,
    read_varint,
    wire_fields,
)
from pyspark_lance.proto import table_pb2

_FRAGMENTS_NUMBER = table_pb2.Manifest.FRAGMENTS_FIELD_NUMBER
_FRAGMENT_TAG = _FRAGMENTS_NUMBER << 3 | LENGTH_DELIMITED
# Fragments of equal length before more are looked for at once.
_MIN_RUN: Final = 32
# Versions share bytes if one has so many, of which the other has this part.
_MIN_SHARED: Final = 1 << 20
_SHARED_PART: Final = 0.75
_ID_TAG = bytes([table_pb2.DataFragment.ID_FIELD_NUMBER << 3 | VARINT])


@dataclass(frozen=True, slots=True)
class PartialManifest:
    """A serialized Manifest message, split but not parsed."""

    rest: bytes  # The message without its fragments.
    encoded: EncodedFragments  # Its fragments; their bytes are those of ``known``, if it has most.
    # Runs of shared fragments: position here, position in the adjacent version, count.
    shared: tuple[tuple[int, int, int], ...] = ()
    known: Fragments | None = None  # Fragments of the adjacent version; None for none.

    @classmethod
    def of(
        cls,
        data: bytes,
        offsets: NDArray[np.int64],
        shared: tuple[tuple[int, int, int], ...] = (),
        known: Fragments | None = None,
    ) -> PartialManifest:
        """Split the message ``data``; ``offsets``: see ``_field_starts``."""
        rest = data[: offsets[0]] + data[offsets[-1] :]
        theirs = None if known is None else known.stored
        encoded = None if theirs is None else _share(data, offsets, shared, theirs)
        if encoded is None:
            encoded = EncodedFragments((data,), offsets[:-1], offsets[1:])
        return cls(rest, encoded, shared, known)

    def fragments(self) -> tuple[Fragments, bool]:
        """Return all fragments, and whether a new one had unknown fields."""
        items: list[Fragment | None] = []
        columns: list[FragmentColumns] = []
        has_unknown = False

        def look(first: int, last: int) -> None:
            nonlocal has_unknown
            if first < last:
                piece, start, _, _ = self.encoded.run(first)
                offsets = np.append(self.encoded.starts[first:last], self.encoded.ends[last - 1])
                found, has_unknown_fields = decode_columns(piece, offsets + (start - offsets[0]))
                has_unknown |= has_unknown_fields
                columns.append(found)
                items.extend([None] * (last - first))

        done = 0
        for here, there, count in self.shared:
            assert self.known is not None
            look(done, here)
            items += self.known[there : there + count].items
            columns.append(self.known.columns.take(slice(there, there + count)))
            done = here + count
        look(done, len(self.encoded.starts))
        joined = FragmentColumns.concat(columns) if columns else None
        return Fragments(items, self.encoded, joined), has_unknown


def _share(
    data: bytes,
    offsets: NDArray[np.int64],
    shared: tuple[tuple[int, int, int], ...],
    theirs: EncodedFragments,
) -> EncodedFragments | None:
    """Return the fragments by the bytes of an adjacent version; None unless it has most of them."""
    equal = sum(offsets[here + count] - offsets[here] for here, _, count in shared)
    is_worthwhile = equal >= max(_MIN_SHARED, theirs.size * _SHARED_PART)
    if not is_worthwhile or len(theirs.pieces) == MAX_PIECES:
        return None
    starts, ends = np.empty((2, len(offsets) - 1), np.int64)
    own: list[bytes] = []
    done, size = 0, theirs.size
    for here, there, count in (*shared, (len(starts), 0, 0)):
        if here > done:
            moved = offsets[done : here + 1] + (size - offsets[done])
            starts[done:here], ends[done:here] = moved[:-1], moved[1:]
            own.append(data[offsets[done] : offsets[here]])
            size += len(own[-1])
        starts[here : here + count] = theirs.starts[there : there + count]
        ends[here : here + count] = theirs.ends[there : there + count]
        done = here + count
    pieces = (*theirs.pieces, b"".join(own)) if own else theirs.pieces
    return EncodedFragments(pieces, starts, ends)


def cut_manifest(data: bytes, known: Fragments | None) -> PartialManifest | None:
    """Find the fragments of a serialized Manifest message, and those that ``known`` has too.

    Returns None if the fragments are not contiguous; damaged bytes are left to the parser.
    """
    position = _first_fragment(data)
    if position is None:
        return None
    theirs = None if known is None else known.stored
    if known is None or theirs is None or not len(known):
        rest = _field_starts(data, position)
        return None if rest is None else PartialManifest.of(data, rest)
    offsets: list[NDArray[np.int64]] = []
    shared: list[tuple[int, int, int]] = []
    count = there = 0
    while position < len(data) and data[position] == _FRAGMENT_TAG and there < len(known):
        run = theirs.equal_run(there, data, position, len(data))
        if run:
            starts = theirs.starts[there : there + run]
            offsets.append(starts + (position - starts[0]))
            shared.append((count, there, run))
            position += int(theirs.ends[there + run - 1] - starts[0])
            count, there = count + run, there + run
            continue
        try:
            field = next(wire_fields(data, position))
            fragment_id = _id_of(data, field)
        except CorruptFileError:
            return None
        if known.ids[there] < fragment_id:
            # The adjacent version has some that are missing here.
            there += int(np.argmax(np.append(known.ids[there:], fragment_id) >= fragment_id))
            continue
        if known.ids[there] == fragment_id:
            there += 1
        offsets.append(np.array([position]))
        count, position = count + 1, field.end
    rest = _field_starts(data, position)
    if rest is None:
        return None
    return PartialManifest.of(data, np.concatenate([*offsets, rest]), tuple(shared), known)


def _field_starts(data: bytes, position: int) -> NDArray[np.int64] | None:
    """Return starts of the fragments from a position on, and the last end; None if damaged."""
    starts = array("q")
    length, add = len(data), starts.append
    width = equal = 0
    while position < length and data[position] == _FRAGMENT_TAG:
        add(position)
        size, at = 0, position + 1
        # Most fragments have a length of two bytes.
        if at + 1 < length and data[at] >= 0x80 > data[at + 1]:
            at, size = at + 2, data[at] & 0x7F | data[at + 1] << 7
        else:
            for shift in range(0, 35, 7):
                if at >= length:
                    return None
                byte = data[at]
                size |= (byte & 0x7F) << shift
                at += 1
                if byte < 0x80:
                    break
            else:
                return None
        equal = equal + 1 if at + size - position == width else 0
        width = at + size - position
        if equal == _MIN_RUN:
            count = _equal_heads(data, position, at - position, width)
            starts.frombytes(np.arange(position + width, position + count * width, width).tobytes())
            position, equal = position + count * width, 0
        else:
            position += width
    add(position)
    return np.frombuffer(starts, np.int64) if position <= length else None


def _equal_heads(data: bytes, position: int, size: int, width: int) -> int:
    """Return how many fields from a position on have equal tags and lengths, at least one.

    ``size``: bytes of tag and length; ``width``: of the whole field.
    """
    raw = np.frombuffer(data, np.uint8)[position:]
    whole = max(len(raw) // width, 1)
    count, step = 1, _MIN_RUN
    while count < whole:
        stop = min(count + step, whole)
        differs = np.zeros(stop - count, bool)
        for index in range(size):
            differs |= raw[count * width + index : stop * width : width] != raw[index]
        if differs.any():
            return count + int(np.argmax(differs))
        count, step = stop, 2 * step
    return count


def _first_fragment(data: bytes) -> int | None:
    """Return the start of the first fragment, or the end of the message; None if damaged."""
    try:
        for field in wire_fields(data):
            if field.number == _FRAGMENTS_NUMBER:
                return field.start
    except CorruptFileError:
        return None
    return len(data)


def _id_of(data: bytes, fragment: WireField) -> int:
    """Return the id of a fragment, the first field of its message unless it is zero."""
    if data[fragment.value_start : fragment.value_start + 1] != _ID_TAG:
        return 0
    return read_varint(data, fragment.value_start + 1)[0]


DETACHED_BIT: Final = 1 << 63
"""Versions with this bit are never the latest."""

_NS: Final = 1_000_000_000
# Seconds of 0001-01-01 and of 9999-12-31: what protobuf allows in a Timestamp.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


@dataclass(frozen=True, slots=True)
class WriterVersion:
    """The software that wrote a manifest."""

    library: str
    version: str
    prerelease: str | None = None
    build_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class BasePath:
    """Another root of files of the table."""

    id: int  # Referenced by files; 0 is valid, and differs from "no base".
    name: str | None  # Alias, if it has one.
    # Whether it contains ``data/``, ``_deletions/`` and so on, or data files only.
    is_dataset_root: bool
    path: str  # Absolute URI or absolute local path.

    @classmethod
    def from_proto(cls, message: table_pb2.BasePath) -> BasePath:
        """The base path that ``message`` describes."""
        if "\0" in message.path:
            raise CorruptFileError(f"the base path {message.path!r} contains a NUL")
        name = message.name if message.HasField("name") else None
        return cls(message.id, name, message.is_dataset_root, message.path)

    def to_proto(self) -> table_pb2.BasePath:
        """The message for this base path."""
        return table_pb2.BasePath(
            id=self.id, name=self.name, is_dataset_root=self.is_dataset_root, path=self.path
        )


@dataclass(frozen=True, slots=True)
class ManifestSections:
    """Positions of the sections of a manifest file, needed to find the transaction."""

    version: int  # As in ``Manifest``, like the others.
    transaction_file: str  # Name inside ``_transactions/``.
    index_section: int | None  # Position of the index section.
    transaction_section: int | None  # Position of the inline transaction.

    @classmethod
    def from_bytes(cls, data: Any, where: str = "") -> ManifestSections:
        """Decode only these fields; arguments and errors as in ``Manifest.from_bytes``."""
        message = parse_message(table_pb2.Manifest, data, where)
        return cls(
            version=message.version,
            transaction_file=message.transaction_file,
            index_section=_optional(message, "index_section"),
            transaction_section=_transaction_section(message),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a table."""

    version: int  # Number of the version; bit 63 marks a detached one.
    schema: LanceSchema  # Columns, and schema metadata.
    # By ascending id; any sequence of fragments is accepted.
    fragments: Fragments = dataclasses.field(default_factory=lambda: Fragments.of(()))
    timestamp_ns: int = 0  # Commit time, nanoseconds since 1970 UTC; 0 if it was not recorded.
    tag: str = ""  # Unused in practice.
    reader_flags: int = 0  # See ``feature_flags``.
    writer_flags: int = 0  # See ``feature_flags``.
    # Highest fragment id ever used; None if there never was a fragment.
    max_fragment_id: int | None = None
    transaction_file: str = ""  # Name inside ``_transactions/``; '' if there is none.
    writer_version: WriterVersion | None = None  # Software that wrote it; None if not recorded.
    next_row_id: int = 0  # First unused stable row id.
    file_format: str = "lance"  # Always 'lance'.
    # File version of new data files; '' if it was not recorded.
    data_storage_version: str = ""
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)  # Table configuration.
    # Free key/value pairs.
    table_metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    base_paths: tuple[BasePath, ...] = ()  # Other roots of files.
    branch: str | None = None  # Branch the manifest belongs to; None for main.
    # Position of the index section in the file; None if there are no indices.
    index_section: int | None = None
    # Position of the inline transaction; None if there is none.
    transaction_section: int | None = None
    # Highest field id ever used, if ids must not be reused.
    max_allocated_field_id: int | None = None
    version_aux_data: int = 0  # Unused; preserved.
    # Bytes at the start of the file, before all sections: in tables of file version 0.1 the values
    # of dictionaries, which ``Field.dictionary`` refers to.
    dictionary_values: bytes = dataclasses.field(default=b"", repr=False)
    # Whether the message has unknown fields, at any depth, which would be lost by writing it again.
    has_unknown_fields: bool = False

    def __post_init__(self) -> None:
        """Accept fragments in any form."""
        object.__setattr__(self, "fragments", Fragments.of(self.fragments))

    @classmethod
    def from_bytes(cls, data: Any, where: str = "", known: Fragments | None = None) -> Manifest:
        """Decode a serialized Manifest message; of its fragments, only the columns.

        ``data``: bytes-like; ``where``: file and byte range, for errors. ``known``: fragments of an
        adjacent version, which are not checked again; None for none.
        """
        return cls.load(lambda: bytes(data), where, known)

    @classmethod
    def load(
        cls, load: Callable[[], bytes], where: str = "", known: Fragments | None = None
    ) -> Manifest:
        """Decode what ``load`` returns, which is not kept if ``known`` has most of the bytes.

        Other arguments are those of ``from_bytes``.
        """
        cut = cut_manifest(load(), known)
        try:
            found = None if cut is None else _from_cut(cut)
        except LanceError:
            # Parsing the whole message raises the specific error.
            found = None
        try:
            return found or _from_message(parse_message(table_pb2.Manifest, load(), where))
        except (CorruptFileError, UnsupportedFeatureError) as error:
            raise type(error)(error.what, error.where or where, error.hint) from error

    def to_bytes(self) -> bytes:
        """The serialized message."""
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes | memoryview]:
        """The serialized message in pieces, since those of the fragments may be large."""
        fields = table_pb2.Manifest(fields=self.schema.to_protos())
        message = table_pb2.Manifest(
            version=self.version,
            version_aux_data=self.version_aux_data,
            schema_metadata=self.schema.metadata,
            index_section=self.index_section,
            tag=self.tag,
            reader_feature_flags=self.reader_flags,
            writer_feature_flags=self.writer_flags,
            max_fragment_id=self.max_fragment_id,
            transaction_file=self.transaction_file,
            next_row_id=self.next_row_id,
            config=self.config,
            base_paths=[base.to_proto() for base in self.base_paths],
            table_metadata=self.table_metadata,
            branch=self.branch,
            # Older releases of Lance read the transaction file if they do not know this field.
            transaction_section=self.transaction_section,
            max_allocated_field_id=self.max_allocated_field_id,
        )
        if self.timestamp_ns:
            message.timestamp.seconds, message.timestamp.nanos = divmod(self.timestamp_ns, _NS)
        if self.writer_version is not None:
            writer = self.writer_version
            message.writer_version.CopyFrom(
                table_pb2.WriterVersion(
                    library=writer.library,
                    version=writer.version,
                    prerelease=writer.prerelease,
                    build_metadata=writer.build_metadata,
                )
            )
        if self.data_storage_version:
            message.data_format.file_format = self.file_format
            message.data_format.version = self.data_storage_version
        # In the order of field numbers, as the library writes them.
        return [
            fields.SerializeToString(deterministic=True),
            *self.fragments.pieces(),
            message.SerializeToString(deterministic=True),
        ]

    @property
    def has_dictionary_values(self) -> bool:
        """Return whether a field refers to ``dictionary_values``."""
        return any(field.dictionary and field.dictionary[1] for field in self.schema.walk())

    @property
    def file_version(self) -> str:
        """Version of existing and new data files.

        Lance 0.15 and 0.16 recorded 0.1 for newer files too, and older releases recorded nothing,
        so the files decide if all have one version.
        """
        versions = self.file_versions()
        if len(versions) == 1 and not self.reader_flags & MIXED_FILE_VERSIONS:
            return versions.pop()
        return self.data_storage_version or (
            "2.0" if self.reader_flags & V2_FORMAT or self.writer_flags & V2_FORMAT else "0.1"
        )

    def file_versions(self) -> set[str]:
        """Versions of the existing data files."""
        return {file_version_name(*version) for version in self.fragments.file_versions}

    def check_file_versions(self) -> None:
        """Reject data files of several versions unless a flag allows them."""
        versions = self.file_versions()
        if len(versions) > 1 and not self.reader_flags & MIXED_FILE_VERSIONS:
            raise UnsupportedFeatureError(
                f"the table has data files of versions {', '.join(sorted(versions))}, a mistake of "
                "Lance before 0.17",
                f"version {self.version}",
                "it can be read; go back to a version before, or overwrite the table",
            )

    def check_fragment_ids(self) -> None:
        """Reject a manifest with duplicate fragment ids."""
        ids = self.fragments.ids
        for index in np.flatnonzero(ids[1:] == ids[:-1])[:1]:
            raise UnsupportedFeatureError(
                f"two fragments have the id {ids[index]}, a mistake of Lance before 0.17",
                f"version {self.version}",
                "it can be read; go back to a version before, or overwrite the table",
            )

    @property
    def uses_stable_row_ids(self) -> bool:
        """Return whether rows keep their ids when they move."""
        return bool(self.reader_flags & STABLE_ROW_IDS)

    @property
    def is_detached(self) -> bool:
        """Return whether this version is never the latest."""
        return bool(self.version & DETACHED_BIT)

    def fragment(self, fragment_id: int) -> Fragment:
        """The fragment with this id."""
        index = self.fragments.index_of(fragment_id)
        if index is not None:
            return self.fragments[index]
        raise InvalidInputError(f"version {self.version} has no fragment {fragment_id}")


def _from_cut(cut: PartialManifest) -> Manifest | None:
    """Return the manifest as ``_from_message`` does; None if the fragments are not contiguous."""
    message = parse_message(table_pb2.Manifest, cut.rest)
    return None if message.fragments else _from_message(message, cut)


def _from_message(message: table_pb2.Manifest, cut: PartialManifest | None = None) -> Manifest:
    """Return the manifest, checked as far as one manifest alone allows.

    ``message``: all of it, or without the fragments; ``cut``: has the fragments if ``message`` does
    not.
    """
    max_allocated = _optional(message, "max_allocated_field_id")
    # Flags first: with an unknown flag, other fields may have another meaning.
    check_consistent(message.reader_feature_flags, message.writer_feature_flags, max_allocated)
    check_readable(message.reader_feature_flags)
    if message.HasField("fragment_tree"):
        raise FRAGMENT_TREE.refusal("the manifest keeps its fragments in a tree, which is new")
    storage = message.data_format
    if message.HasField("data_format") and storage.file_format not in ("", "lance"):
        raise UnsupportedFeatureError(f"the data files are {storage.file_format!r}, not 'lance'")
    schema = LanceSchema.from_protos(message.fields, dict(message.schema_metadata))
    for field in schema.walk():
        if field.id < 0:
            raise CorruptFileError(f"column {field.name!r} has the negative field id {field.id}")
    if cut is None:
        stored = Fragments.of(fragments_from_protos(message.fragments))
        has_unknown = False
    else:
        stored, has_unknown = cut.fragments()
    fragments = _sort_by_id(stored)
    manifest = Manifest(
        version=message.version,
        schema=schema,
        fragments=fragments,
        timestamp_ns=_timestamp_ns(message.timestamp),
        tag=message.tag,
        reader_flags=message.reader_feature_flags,
        writer_flags=message.writer_feature_flags,
        max_fragment_id=_max_fragment_id(message, fragments),
        transaction_file=message.transaction_file,
        writer_version=_writer_version(message),
        next_row_id=message.next_row_id,
        data_storage_version=storage.version,
        config=dict(message.config),
        table_metadata=dict(message.table_metadata),
        base_paths=tuple(BasePath.from_proto(base) for base in message.base_paths),
        branch=_optional(message, "branch"),
        index_section=_optional(message, "index_section"),
        transaction_section=_transaction_section(message),
        max_allocated_field_id=max_allocated,
        version_aux_data=message.version_aux_data,
        # Last: it modifies the message.
        has_unknown_fields=drop_unknown_fields(message) or has_unknown,
    )
    _check_rows(manifest)
    return manifest


def _sort_by_id(fragments: Fragments) -> Fragments:
    """Return the fragments by ascending id, which is the order of most manifests.

    Releases of Lance before 0.17 may have given one id to several; such a table is read-only.
    """
    ids = fragments.ids
    if (ids[1:] >= ids[:-1]).all():
        return fragments
    return fragments.take(np.argsort(ids, kind="stable"))


def _max_fragment_id(message: table_pb2.Manifest, fragments: Fragments) -> int | None:
    """Return the highest id; releases of Lance up to 0.22 omit it if it is zero."""
    if message.HasField("max_fragment_id"):
        return int(message.max_fragment_id)
    return int(fragments.ids.max()) if len(fragments) else None


def _check_rows(manifest: Manifest) -> None:
    """Reject fragments with inconsistent row counts."""
    columns = manifest.fragments.columns
    ids, rows, deleted = columns.ids, columns.physical_rows, columns.num_deleted_rows
    # Counts that are zero or of an unknown writer are read from the files.
    if manifest.writer_version is not None:
        for index in np.flatnonzero((rows > 0) & (rows < deleted))[:1]:
            raise CorruptFileError(
                f"fragment {ids[index]} states {deleted[index]} deleted rows of {rows[index]}"
            )
    if manifest.uses_stable_row_ids:
        for index in np.flatnonzero(~columns.has_row_ids)[:1]:
            raise CorruptFileError(
                f"fragment {ids[index]} has no row ids in a table with stable row ids"
            )


def _timestamp_ns(timestamp: table_pb2.Timestamp) -> int:
    seconds, nanos = timestamp.seconds, timestamp.nanos
    if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < _NS):
        raise CorruptFileError(f"commit time of {seconds} seconds and {nanos} nanoseconds")
    return seconds * _NS + nanos


def _writer_version(message: table_pb2.Manifest) -> WriterVersion | None:
    if not message.HasField("writer_version"):
        return None
    writer = message.writer_version
    return WriterVersion(
        writer.library,
        writer.version,
        _optional(writer, "prerelease"),
        _optional(writer, "build_metadata"),
    )


def _transaction_section(message: Any) -> int | None:
    section = _optional(message, "transaction_section")
    if section is None:
        section = _optional(message, "transaction_section_21")
    return None if section is None else int(section)


def _optional(message: Any, name: str) -> Any:
    """The value of a field with presence; None if it is absent."""
    return getattr(message, name) if message.HasField(name) else None
