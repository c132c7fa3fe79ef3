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
from pyspark_lance.table.rows.scan_slice import ScanSlice

_MOST_FRAGMENTS: Final = 128
_MOST_BYTES: Final = _MOST_FRAGMENTS * TAIL_BYTES
_OLD_VERSIONS: Final = ("0.1", "2.0")


@dataclass(frozen=True, slots=True)
class Smallness:
    """What is small enough to be read together with its neighbours: files are read whole.

    ``rows``: a fragment has fewer; ``file_bytes``: none of its files has more.
    """

    rows: int = 4096
    file_bytes: int = TAIL_BYTES


SMALL: Final = Smallness()
"""The read of such a file's metadata brings all of it, whatever is wanted of it."""


def coalesced_fragments(
    slices: Sequence[ScanSlice], fields: Sequence[Field], batch_rows: int, small: Smallness = SMALL
) -> Iterator[tuple[ScanSlice, ...]]:
    """The slices in order; whole small fragments of one layout come together."""
    can_join = all(map(_is_plain, fields))
    most_rows = max(small.rows, batch_rows)
    held: list[ScanSlice] = []
    held_layout: object = None
    rows = num_bytes = 0
    for scan_slice in slices:
        layout = _layout(scan_slice, small) if can_join else None
        size = sum(file.size_bytes for file in scan_slice.fragment.files)
        rows += scan_slice.end - scan_slice.start
        num_bytes += size
        is_full = len(held) == _MOST_FRAGMENTS or rows > most_rows or num_bytes > _MOST_BYTES
        if held and (is_full or layout is None or layout != held_layout):
            yield tuple(held)
            held, rows, num_bytes = [], scan_slice.end - scan_slice.start, size
        held.append(scan_slice)
        held_layout = layout
    if held:
        yield tuple(held)


def _layout(scan_slice: ScanSlice, small: Smallness) -> object:
    """Equal for fragments that can be read together; None for one that must be alone."""
    fragment = scan_slice.fragment
    is_whole = (
        scan_slice.offsets is None
        and scan_slice.start == 0
        and scan_slice.end == fragment.physical_rows
    )
    if not is_whole or not 0 < scan_slice.end < small.rows or not fragment.files:
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
