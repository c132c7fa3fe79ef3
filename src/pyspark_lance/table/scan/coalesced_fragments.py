"""Coalesce small adjacent fragments into one read, to amortize the cost per column and file.

Decided by the manifest alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_lance.datafile.file_metadata import TAIL_BYTES
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import is_blob_descriptor, is_json_text
from pyspark_lance.table.rows.scan_split import ScanSplit

_MAX_FRAGMENTS: Final = 128
_MAX_BYTES: Final = _MAX_FRAGMENTS * TAIL_BYTES
_OLD_VERSIONS: Final = ("0.1", "2.0")


@dataclass(frozen=True, slots=True)
class CoalesceLimits:
    """Limits for fragments that are coalesced with adjacent ones; their files are read whole.

    ``rows``: exclusive maximum per fragment; ``file_bytes``: maximum per file.
    """

    rows: int = 4096
    file_bytes: int = TAIL_BYTES


SMALL: Final = CoalesceLimits()
"""Reading the metadata of such a file reads the whole file."""


def coalesced_fragments(
    slices: Sequence[ScanSplit],
    fields: Sequence[Field],
    batch_rows: int,
    small: CoalesceLimits = SMALL,
) -> Iterator[tuple[ScanSplit, ...]]:
    """Yield the splits in order, with complete small fragments of one layout grouped."""
    can_join = all(map(_is_plain, fields))
    most_rows = max(small.rows, batch_rows)
    group: list[ScanSplit] = []
    group_layout: object = None
    rows = num_bytes = 0
    for scan_split in slices:
        layout = _layout(scan_split, small) if can_join else None
        size = sum(file.size_bytes for file in scan_split.fragment.files)
        rows += scan_split.end - scan_split.start
        num_bytes += size
        is_full = len(group) == _MAX_FRAGMENTS or rows > most_rows or num_bytes > _MAX_BYTES
        if group and (is_full or layout is None or layout != group_layout):
            yield tuple(group)
            group, rows, num_bytes = [], scan_split.end - scan_split.start, size
        group.append(scan_split)
        group_layout = layout
    if group:
        yield tuple(group)


def _layout(scan_split: ScanSplit, small: CoalesceLimits) -> object:
    """Return an equal key for fragments that can be coalesced; None for one that cannot."""
    fragment = scan_split.fragment
    is_whole = (
        scan_split.offsets is None
        and scan_split.start == 0
        and scan_split.end == fragment.physical_rows
    )
    if not is_whole or not 0 < scan_split.end < small.rows or not fragment.files:
        return None
    for file in fragment.files:
        if not 0 < file.size_bytes <= small.file_bytes or file.file_version in _OLD_VERSIONS:
            return None
    return [
        (file.fields, file.column_indices, file.major_version, file.minor_version)
        for file in fragment.files
    ]


def _is_plain(field: Field) -> bool:
    """Return whether values can be decoded independently of their fragment."""
    return not any(
        is_json_text(part) or is_blob_descriptor(part) or part.is_blob or part.is_packed
        for part in field.walk()
    )
