"""Index segments: manifest entries that scans can use.

One entry is one segment of an index and covers the fragments of its bitmap. Whether it refers to
rows by address or by id (its row names) depends on its kind, its version, and whether the table has
stable row ids. Unknown kinds and versions are not used.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.wire import parse_message
from pyspark_lance.proto import table_pb2

BTREE: Final = "btree"
BITMAP: Final = "bitmap"
BLOOMFILTER: Final = "bloomfilter"
LABEL_LIST: Final = "label_list"
NGRAM: Final = "ngram"
INVERTED: Final = "inverted"
ZONEMAP: Final = "zonemap"
VECTOR: Final = "vector"
_KINDS: Final = {
    "lance.table.BTreeIndexDetails": BTREE,
    "lance.table.BitmapIndexDetails": BITMAP,
    "lance.table.LabelListIndexDetails": LABEL_LIST,
    "lance.table.ZoneMapIndexDetails": ZONEMAP,
    "lance.index.pb.BloomFilterIndexDetails": BLOOMFILTER,
    "lance.table.NGramIndexDetails": NGRAM,
    "lance.table.InvertedIndexDetails": INVERTED,
    "lance.index.pb.VectorIndexDetails": VECTOR,
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
