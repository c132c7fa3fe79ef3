"""FragmentBytes: the fragments of a manifest beside their bytes, for the next one to share them.

Neighbouring versions have nearly all fragments in common, byte for byte.  Whoever reads many of
them compares bytes, and parses what differs.  No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.fragment import Fragment, fragments_from_protos
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
# Bytes compared at a time: few at first, since the next difference may be near.
_LEAST_COMPARED, _MOST_COMPARED = 1 << 9, 1 << 18


@dataclass(frozen=True, slots=True)
class FragmentBytes:
    """The fragments of one manifest."""

    data: bytes  # The serialized Manifest message.
    # Where each fragment begins in it, and where the last one ends; shape (n + 1,).
    offsets: NDArray[np.int64]
    fragments: tuple[Fragment, ...]  # The fragments as they are stored, shape (n,).


@dataclass(frozen=True, slots=True)
class CutManifest:
    """A serialized Manifest message, cut but not parsed."""

    data: bytes  # The message.
    offsets: NDArray[np.int64]  # As in ``FragmentBytes``.
    # Runs of fragments that a neighbour has too: position here, position there, count.
    shared: tuple[tuple[int, int, int], ...]
    known: FragmentBytes | None  # The neighbour; None for none.

    def rest(self) -> bytes:
        """The message without its fragments."""
        return self.data[: self.offsets[0]] + self.data[self.offsets[-1] :]

    def fragments(self) -> tuple[tuple[Fragment, ...], bool]:
        """All fragments, and whether one that was parsed had fields that are not understood."""
        pieces, done = [], 0
        for here, _, count in self.shared:
            pieces.append(self.data[self.offsets[done] : self.offsets[here]])
            done = here + count
        pieces.append(self.data[self.offsets[done] : self.offsets[-1]])
        message = parse_message(table_pb2.Manifest, b"".join(pieces))
        parsed = iter(fragments_from_protos(message.fragments))
        runs: list[Iterable[Fragment]] = []
        done = 0
        for here, there, count in self.shared:
            assert self.known is not None
            runs.append(tuple(islice(parsed, here - done)))
            runs.append(self.known.fragments[there : there + count])
            done = here + count
        return tuple(chain(*runs, parsed)), drop_unknown_fields(message)


def cut_manifest(data: bytes, known: FragmentBytes | None) -> CutManifest | None:
    """Finds the fragments of a serialized Manifest message, and those that ``known`` has too.

    Returns:
        None if the fragments do not stand together; damaged bytes are left to the parser.
    """
    position = _first_fragment(data)
    if position is None:
        return None
    offsets: list[NDArray[np.int64]] = []
    shared: list[tuple[int, int, int]] = []
    count = there = 0
    while position < len(data) and data[position] == _FRAGMENT_TAG:
        run = 0 if known is None else _same_run(data, position, known, there)
        if known is not None and run:
            starts = known.offsets[there : there + run + 1]
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
        if known is not None:
            if there < len(known.fragments) and known.fragments[there].id < fragment_id:
                # The neighbour has some that are not here.
                there = _first_from(known, there, fragment_id)
                continue
            if there < len(known.fragments) and known.fragments[there].id == fragment_id:
                there += 1
        offsets.append(np.array([position]))
        count, position = count + 1, field.end
    offsets.append(np.array([position]))
    return CutManifest(data, np.concatenate(offsets), tuple(shared), known)


def _first_fragment(data: bytes) -> int | None:
    """Where the first fragment begins, or the message ends; None if the bytes are no message."""
    try:
        for field in wire_fields(data):
            if field.number == _FRAGMENTS_NUMBER:
                return field.start
    except CorruptFileError:
        return None
    return len(data)


def _same_run(data: bytes, position: int, known: FragmentBytes, there: int) -> int:
    """How many fragments from one position on are those of the neighbour, byte for byte."""
    start = begin = int(known.offsets[there])
    end = int(known.offsets[-1])
    step = _LEAST_COMPARED
    while start < end:
        stop = min(start + step, end)
        at = position + start - begin
        ours, theirs = data[at : at + stop - start], known.data[start:stop]
        if ours != theirs:
            both = min(len(ours), len(theirs))
            differs = np.frombuffer(ours, np.uint8, both) != np.frombuffer(theirs, np.uint8, both)
            start += int(np.argmax(differs)) if differs.any() else both
            break
        start, step = stop, min(2 * step, _MOST_COMPARED)
    return int(np.searchsorted(known.offsets, start, side="right")) - 1 - there


def _first_from(known: FragmentBytes, there: int, fragment_id: int) -> int:
    """The first of the neighbour's fragments, from one on, that has this id or a higher one."""
    rest = islice(known.fragments, there, None)
    ahead = (n for n, fragment in enumerate(rest, there) if fragment.id >= fragment_id)
    return next(ahead, len(known.fragments))


def _id_of(data: bytes, fragment: WireField) -> int:
    """The id of a fragment, which leads its message where it is not zero."""
    if data[fragment.value_start : fragment.value_start + 1] != _ID_TAG:
        return 0
    return read_varint(data, fragment.value_start + 1)[0]
