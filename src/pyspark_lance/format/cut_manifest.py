"""Split a serialized manifest into its fragments, and find those shared with an adjacent version.

Adjacent versions share nearly all fragments.  A reader of many versions compares bytes and only
decodes the differences.  No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.data_file import check_data_file
from pyspark_lance.format.deletion_vector import DeletionFile
from pyspark_lance.format.fragment import (
    MAX_FRAGMENT_ID,
    MAX_PHYSICAL_ROWS,
    Fragment,
    fragments_from_protos,
)
from pyspark_lance.format.fragments import PARSED, FragmentColumns, Fragments, same_bytes
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
_ID_TAG = bytes([table_pb2.DataFragment.ID_FIELD_NUMBER << 3 | VARINT])
# Only damaged messages exceed this.
_MOST: Final = 2**62


@dataclass(frozen=True, slots=True)
class CutManifest:
    """A serialized Manifest message, split but not parsed."""

    data: bytes  # The message.
    # Start of each fragment in it, and end of the last one; shape (n + 1,).
    offsets: NDArray[np.int64]
    # Runs of shared fragments: position here, position in the adjacent version, count.
    shared: tuple[tuple[int, int, int], ...]
    known: Fragments | None  # Fragments of the adjacent version; None for none.

    def rest(self) -> bytes:
        """The message without its fragments."""
        return self.data[: self.offsets[0]] + self.data[self.offsets[-1] :]

    def fragments(self) -> tuple[Fragments, bool]:
        """Return all fragments, and whether a new one had unknown fields."""
        items: list[Fragment | None] = []
        columns: list[FragmentColumns] = []
        has_unknown = False

        def look(first: int, last: int) -> None:
            nonlocal has_unknown
            for start in range(first, last, PARSED):
                stop = min(start + PARSED, last)
                data = self.data[self.offsets[start] : self.offsets[stop]]
                found, is_strange = _decode_columns(data)
                has_unknown |= is_strange
                columns.append(found)
            items.extend([None] * (last - first))

        done = 0
        for here, there, count in self.shared:
            assert self.known is not None
            look(done, here)
            items += self.known[there : there + count].items
            columns.append(self.known.columns.take(slice(there, there + count)))
            done = here + count
        look(done, len(self.offsets) - 1)
        stored = self.data, self.offsets[:-1], self.offsets[1:]
        joined = FragmentColumns.joined(columns) if columns else None
        return Fragments(items, stored, joined), has_unknown


def _decode_columns(data: bytes) -> tuple[FragmentColumns, bool]:
    """Return the columns of adjacent fragments, and whether one has unknown fields.

    Refuse a fragment that cannot be read reliably.
    """
    message = parse_message(table_pb2.Manifest, data)
    is_strange = drop_unknown_fields(message)
    rows = []
    for one in message.fragments:
        num_bytes = 0
        for file in one.files:
            check_data_file(file.path, file.fields, file.column_indices)
            num_bytes += file.file_size_bytes
        fragment_id, physical_rows = one.id, one.physical_rows
        has_deletions = one.HasField("deletion_file")
        num_deleted = 0
        if has_deletions:
            num_deleted = DeletionFile.from_proto(one.deletion_file).num_deleted_rows
        if fragment_id > MAX_FRAGMENT_ID or physical_rows > MAX_PHYSICAL_ROWS or one.overlays:
            fragments_from_protos([one])  # raises the specific error
        rows.append(
            (
                fragment_id,
                physical_rows,
                min(num_deleted, _MOST),
                has_deletions,
                one.HasField("inline_row_ids") or one.WhichOneof("row_id_sequence") is not None,
                min(num_bytes, _MOST),
            )
        )
    return FragmentColumns.of(rows), is_strange


def cut_manifest(data: bytes, known: Fragments | None) -> CutManifest | None:
    """Find the fragments of a serialized Manifest message, and those that ``known`` has too.

    Returns None if the fragments are not contiguous; damaged bytes are left to the parser.
    """
    position = _first_fragment(data)
    if position is None:
        return None
    neighbour = None if known is None else known.contiguous_bytes
    if known is None or neighbour is None:
        rest = _field_starts(data, position)
        return None if rest is None else CutManifest(data, np.array(rest), (), None)
    offsets: list[NDArray[np.int64]] = []
    shared: list[tuple[int, int, int]] = []
    count = there = 0
    while position < len(data) and data[position] == _FRAGMENT_TAG and there < len(known):
        run = same_bytes(data, position, neighbour, there)
        if run:
            starts = neighbour[1][there : there + run + 1]
            offsets.append(starts[:-1] + (position - starts[0]))
            shared.append((count, there, run))
            count, there = count + run, there + run
            position += int(starts[-1] - starts[0])
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
    return CutManifest(data, np.concatenate([*offsets, np.array(rest)]), tuple(shared), known)


def _field_starts(data: bytes, position: int) -> list[int] | None:
    """Return starts of the fragments from a position on, and the last end; None if damaged."""
    starts: list[int] = []
    length, add = len(data), starts.append
    while position < length and data[position] == _FRAGMENT_TAG:
        add(position)
        size, at = 0, position + 1
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
        position = at + size
    add(position)
    return starts if position <= length else None


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
