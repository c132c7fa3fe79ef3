"""Index segments: manifest entries that scans can use, and their fields.

One entry is one segment of an index and covers the fragments of its bitmap. Whether it refers to
rows by address or by id (its row names) depends on its kind, its version, and whether the table has
stable row ids. Unknown kinds and versions are not used.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap

from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.logical_type import to_plain
from pyspark_lance.format.logical_view import is_json_text
from pyspark_lance.format.wire import parse_message
from pyspark_lance.predicate.prune import ColumnPath
from pyspark_lance.predicate.types import spark_type_of
from pyspark_lance.proto import table_pb2

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
