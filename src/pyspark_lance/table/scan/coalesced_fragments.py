"""Runs of small fragments that are read as if they were one: a read costs per column and file.

Pure: judged by the manifest alone.
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
    """What is small enough to be read together with its neighbours: files are read whole.

    ``rows``: a fragment has fewer; ``file_bytes``: none of its files has more.
    """

    rows: int = 4096
    file_bytes: int = TAIL_BYTES


SMALL: Final = CoalesceLimits()
"""The read of such a file's metadata brings all of it, whatever is wanted of it."""


def coalesced_fragments(
    slices: Sequence[ScanSplit],
    fields: Sequence[Field],
    batch_rows: int,
    small: CoalesceLimits = SMALL,
) -> Iterator[tuple[ScanSplit, ...]]:
    """The slices in order; whole small fragments of one layout come together."""
    can_join = all(map(_is_plain, fields))
    most_rows = max(small.rows, batch_rows)
    held: list[ScanSplit] = []
    held_layout: object = None
    rows = num_bytes = 0
    for scan_split in slices:
        layout = _layout(scan_split, small) if can_join else None
        size = sum(file.size_bytes for file in scan_split.fragment.files)
        rows += scan_split.end - scan_split.start
        num_bytes += size
        is_full = len(held) == _MAX_FRAGMENTS or rows > most_rows or num_bytes > _MAX_BYTES
        if held and (is_full or layout is None or layout != held_layout):
            yield tuple(held)
            held, rows, num_bytes = [], scan_split.end - scan_split.start, size
        held.append(scan_split)
        held_layout = layout
    if held:
        yield tuple(held)


def _layout(scan_split: ScanSplit, small: CoalesceLimits) -> object:
    """Equal for fragments that can be read together; None for one that must be alone."""
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
    """Whether values mean the same wherever they are stored, and need no other description."""
    return not any(
        is_json_text(part) or is_blob_descriptor(part) or part.is_blob or part.is_packed
        for part in field.walk()
    )
