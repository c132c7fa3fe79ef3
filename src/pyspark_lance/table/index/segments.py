"""Index segments: manifest entries that scans can use, and their fields.

One entry is one segment of an index and covers the fragments of its bitmap. Whether it refers to
rows by address or by id (its row names) depends on its kind, its version, and whether the table has
stable row ids. Unknown kinds and versions are not used. Addresses from before a compaction are
mapped by the fragment reuse index.

Source: docs/format/table-format.md, sections 10.6 and 10.7.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap, BitMap64

from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import (
    IndexMetadata,
    ReuseDetails,
    ReuseGroup,
    ReuseVersions,
    reuse_index_of,
    versions_from_bytes,
)
from pyspark_lance.format.logical_type import to_plain
from pyspark_lance.format.logical_view import is_json_text
from pyspark_lance.format.row_address import OFFSET_BITS
from pyspark_lance.format.wire import parse_message
from pyspark_lance.metafile.paths import INDICES
from pyspark_lance.predicate.prune import ColumnPath
from pyspark_lance.predicate.types import spark_type_of
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.version.snapshot import Snapshot

BTREE: Final = "btree"
BITMAP: Final = "bitmap"
BLOOMFILTER: Final = "bloomfilter"
LABEL_LIST: Final = "label_list"
NGRAM: Final = "ngram"
INVERTED: Final = "inverted"
MINHASH: Final = "minhash_lsh"
ZONEMAP: Final = "zonemap"
VECTOR: Final = "vector"
RTREE: Final = "rtree"
FM: Final = "fm"
JSON: Final = "json"
KEPT_KINDS: Final = (RTREE, FM, JSON)
"""Kinds of Lance that are neither used nor built, but stay valid."""
_KINDS: Final = {
    "lance.table.BTreeIndexDetails": BTREE,
    "lance.table.BitmapIndexDetails": BITMAP,
    "lance.table.LabelListIndexDetails": LABEL_LIST,
    "lance.table.ZoneMapIndexDetails": ZONEMAP,
    "lance.index.pb.BloomFilterIndexDetails": BLOOMFILTER,
    "lance.table.NGramIndexDetails": NGRAM,
    "lance.table.InvertedIndexDetails": INVERTED,
    "lance.index.pb.VectorIndexDetails": VECTOR,
    "lance.index.pb.MinHashLshIndexDetails": MINHASH,
    "lance.index.pb.RTreeIndexDetails": RTREE,
    "lance.index.pb.FMIndexDetails": FM,
    "lance.index.pb.JsonIndexDetails": JSON,
    "lance.table.FragmentReuseIndexDetails": "fragment_reuse",
}
# Kind -> supported versions, and whether rows are named by stable row ids, if enabled.
_NAMES_ROW_IDS: Final = {
    BTREE: {0: True, 1: False},
    BITMAP: {0: True, 1: False},
    LABEL_LIST: {0: True, 1: True, 2: False},
    BLOOMFILTER: {0: False},
    NGRAM: {0: True, 1: False},
    INVERTED: {0: True, 1: True, 2: True, 3: True},
}


@dataclass(frozen=True, slots=True)
class Segment:
    """A usable entry.

    ``kind``: ``BTREE`` or another name of this module; ``names_row_ids``: whether rows are named by
    stable row ids instead of addresses.
    """

    entry: IndexMetadata
    kind: str
    names_row_ids: bool

    @property
    def title(self) -> str:
        """Name of the index in plans."""
        return title_of(self.entry)


def title_of(entry: IndexMetadata) -> str:
    """Return the name of an index in plans."""
    return f"{entry.name} ({kind_of(entry)})"


def kind_of(entry: IndexMetadata) -> str:
    """Return the kind of an index; '' if unknown."""
    _, slash, name = entry.details_type.rpartition("/")
    return _KINDS.get(name, "") if slash else ""


def segment_of(entry: IndexMetadata, *, stable_row_ids: bool) -> Segment | str:
    """Return the usable segment of an entry, or why it is unusable."""
    kind = kind_of(entry)
    versions = _NAMES_ROW_IDS.get(kind)
    if kind == VECTOR:
        return "it is for nearest; scans use no vector index"
    if kind == MINHASH:
        return "it is for nearDuplicates; scans use no minhash_lsh index"
    if versions is None:
        return f"scans use no {kind} index" if kind else "its kind is not known"
    if entry.index_version not in versions:
        return f"version {entry.index_version} of a {kind} index is not known"
    if len(entry.fields) != 1:
        return "it is not over one column"
    if not entry.fragment_bitmap:
        return "it covers nothing"
    if parse_message(table_pb2.IndexMetadata, entry.raw).covering_fields:
        return "it carries further columns"
    return Segment(entry, kind, stable_row_ids and versions[entry.index_version])


@dataclass(frozen=True, slots=True)
class IndexDetails:
    """The type of an index."""

    type_url: str
    index_version: int
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """The files of an index."""

    uuid: UUID
    # File name -> bytes; empty for an index stored only in the entry.
    sizes: Mapping[str, int] = field(default_factory=dict)


def new_index_entry(
    name: str,
    field_ids: Iterable[int],
    version: int,
    fragments: Iterable[int],
    details: IndexDetails,
    files: IndexFiles,
) -> IndexMetadata:
    """Return a manifest entry with the current time.

    ``field_ids``: indexed fields; empty for system indices.
    """
    message = table_pb2.IndexMetadata(
        uuid=table_pb2.Uuid(uuid=files.uuid.bytes),
        fields=field_ids,
        name=name,
        dataset_version=version,
        fragment_bitmap=BitMap(fragments).serialize(),
        index_details=table_pb2.AnyMessage(type_url=details.type_url, value=details.value),
        index_version=details.index_version,
        created_at=time.time_ns() // 1_000_000,
        files=[
            table_pb2.IndexFile(path=path, size_bytes=size) for path, size in files.sizes.items()
        ],
    )
    return IndexMetadata.from_bytes(message.SerializeToString())


def is_of_type(stored: pa.DataType, field: Field) -> bool:
    """Return whether bounds of a stored type apply to a field."""
    own = field.to_arrow().type
    return bool(stored == own) and not pa.types.is_dictionary(own)


def to_predicate_type(ends: pa.Array, field: Field) -> pa.Array:
    """Convert bounds to the type of predicates."""
    seen = spark_type_of(ends.type)
    if seen != ends.type and getattr(ends.type, "unit", "") == "ns":
        # Truncating both bounds to microseconds keeps all microsecond values in between.
        return ends.cast(seen, safe=False)
    return to_plain(ends, seen, field.name)


def field_at(fields: Sequence[Field], path: ColumnPath) -> tuple[Field | None, bool]:
    """Return the flat field at a path, and whether it is below a nullable struct."""
    field, is_inside_struct = indexed_field_at(fields, path)
    return (None if field is not None and field.children else field), is_inside_struct


def indexed_field_at(fields: Sequence[Field], path: ColumnPath) -> tuple[Field | None, bool]:
    """Find a field like ``field_at``, also for lists."""
    is_inside_struct = False
    for depth, name in enumerate(path):
        field = next((field for field in fields if field.name == name), None)
        if field is None or is_json_text(field) or field.logical_type == "json":
            return None, False
        if depth == len(path) - 1:
            return (None if field.is_struct else field), is_inside_struct
        if not field.is_struct:
            return None, False
        fields, is_inside_struct = field.children, True
    return None, False


def path_of(fields: Sequence[Field], field_id: int) -> tuple[str, ...]:
    """Return the path of a field; ``field <id>`` for an unknown id."""
    return _path_of(fields, field_id) or (f"field {field_id}",)


def _path_of(fields: Sequence[Field], field_id: int) -> tuple[str, ...]:
    for node in fields:
        if node.id == field_id:
            return (node.name,)
        inside = _path_of(node.children, field_id)
        if inside:
            return (node.name, *inside)
    return ()


def reuse_versions(snapshot: Snapshot) -> ReuseVersions:
    """Return the compactions that indices of a version do not reflect yet, oldest first."""
    entry = reuse_index_of(snapshot.indices)
    if entry is None:
        return ()
    details = ReuseDetails.of(entry)
    if details.versions is not None:
        return details.versions
    store = snapshot.files.store_of(entry.base_id)
    path = f"{INDICES}/{entry.uuid}/{details.file}"
    try:
        content = store.get_range(path, details.start, details.start + details.size)
    except FileNotFoundError as error:
        raise MissingFileError(
            "the details of the fragment reuse index are missing", f"{store.uri}/{path}"
        ) from error
    return versions_from_bytes(bytes(content))


def map_addresses(addresses: NDArray[np.uint64], versions: ReuseVersions) -> NDArray[np.uint64]:
    """Map addresses from before or after compactions to current ones, without removed rows.

    ``addresses``: of rows, in any order; ``versions``: the compactions, oldest first.
    """
    for version in versions:
        for group in version.groups:
            addresses = _map_group(addresses, group)
    return addresses


def _map_group(addresses: NDArray[np.uint64], group: ReuseGroup) -> NDArray[np.uint64]:
    old = np.array(sorted(group.old_ids), np.uint64)
    is_old = np.isin(addresses >> np.uint64(OFFSET_BITS), old)
    if not is_old.any():
        return addresses
    before = _addresses_before(group)
    if not len(before):
        return addresses[~is_old]
    requested = addresses[is_old]
    indices = np.searchsorted(before, requested)
    indices = indices[before[np.minimum(indices, len(before) - 1)] == requested]
    lengths = np.array([new.physical_rows for new in group.new_fragments], np.int64)
    ends = np.cumsum(lengths)
    which = np.searchsorted(ends, indices, "right")
    ids = np.array([new.id for new in group.new_fragments], np.uint64)
    offsets = (indices - (ends - lengths)[which]).astype(np.uint64)
    return np.concatenate([addresses[~is_old], ids[which] << np.uint64(OFFSET_BITS) | offsets])


def _addresses_before(group: ReuseGroup) -> NDArray[np.uint64]:
    """Return the old addresses of the rows of a group, ascending."""
    try:
        addresses = BitMap64.deserialize(group.row_addresses)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptFileError(f"the fragment reuse index is corrupt: {error}") from error
    num_rows = sum(new.physical_rows for new in group.new_fragments)
    if len(addresses) != num_rows:
        raise CorruptFileError(f"{len(addresses)} rows moved to {num_rows} addresses")
    return np.frombuffer(addresses.to_array(), np.uint64)
