"""Fragments: all fragments of a version, as columns and as lazily decoded values.

A table may have a million fragments.  A plan needs numbers of all of them, which are read into
arrays, and a few decoded messages; a commit copies most of them byte for byte.  So the bytes are
kept, and a message is decoded on access.  No I/O.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.fragment import (
    Fragment,
    SequenceSource,
    fragments_from_protos,
    sequence_sources,
)
from pyspark_lance.format.wire import length_delimited, parse_message
from pyspark_lance.proto import table_pb2

_NUMBER = table_pb2.Manifest.FRAGMENTS_FIELD_NUMBER
# Bytes compared at a time: few at first, since the next difference may be close.
_MIN_COMPARED, _MAX_COMPARED = 1 << 9, 1 << 18
# Messages parsed at a time: parsing a million at once would take more than a gigabyte.
PARSED: Final = 1024

# Pieces of bytes that a version may share with others; more are joined.
MAX_PIECES: Final = 16

_Positions = NDArray[np.int64] | slice


@dataclass(frozen=True)
class EncodedFragments:
    """The fields of a Manifest message with the fragments, in pieces that versions share.

    Positions are those in all pieces, one after another, with a byte between: so adjacent fragments
    with adjacent positions are in one piece.
    """

    pieces: tuple[bytes, ...]
    starts: NDArray[np.int64]  # Of the field of each fragment; shape (n,), like the next one.
    ends: NDArray[np.int64]

    def take(self, indices: _Positions) -> EncodedFragments:
        """Return the fragments at ``indices``."""
        return EncodedFragments(self.pieces, self.starts[indices], self.ends[indices])

    def concat(self, fields: Sequence[bytes]) -> EncodedFragments:
        """Return these and the fragments with the given fields, without a copy of these."""
        if not fields:
            return self
        sizes = np.array([len(field) for field in fields], np.int64)
        ends = self.size + np.cumsum(sizes)
        starts, ends = np.append(self.starts, ends - sizes), np.append(self.ends, ends)
        found = EncodedFragments((*self.pieces, b"".join(fields)), starts, ends)
        return found if len(found.pieces) <= MAX_PIECES else found.joined()

    def joined(self) -> EncodedFragments:
        """Return the same in one piece."""
        sizes = self.ends - self.starts
        ends = np.cumsum(sizes)
        return EncodedFragments((b"".join(self.spans(0, len(sizes))),), ends - sizes, ends)

    @property
    def size(self) -> int:
        """Return the position of a next piece."""
        return sum(map(len, self.pieces)) + len(self.pieces)

    def spans(self, first: int, last: int) -> list[memoryview]:
        """Return the bytes of [first, last); adjacent fragments are in one span."""
        starts, ends = self.starts[first:last], self.ends[first:last]
        begins = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        spans = []
        for here, after in pairwise([0, *begins.tolist(), len(starts)]):
            if after > here:
                piece, start = self._locate(int(starts[here]))
                end = start + int(ends[after - 1] - starts[here])
                spans.append(memoryview(piece)[start:end])
        return spans

    def run(self, index: int) -> tuple[bytes, int, int, int]:
        """Return the fragments from an index on that are adjacent in one piece.

        That is the piece, their start and end in it, and the index after the last one.
        """
        stop = int(self._run_ends[np.searchsorted(self._run_ends, index, side="right")])
        piece, start = self._locate(int(self.starts[index]))
        return piece, start, start + int(self.ends[stop - 1] - self.starts[index]), stop

    def equal_run(self, index: int, data: bytes, position: int, limit: int) -> int:
        """Return how many fragments of a run are equal, byte for byte, to those in ``data``.

        ``index``: of the first one; ``position`` and ``limit``: where ``data`` has fragments.
        """
        piece, start, end, stop = self.run(index)
        length = min(end - start, limit - position)
        is_shared = piece is data and start == position
        equal = length if is_shared else _equal_bytes(piece, start, data, position, length)
        ends = self.ends[index:stop]
        return int(np.searchsorted(ends, self.starts[index] + equal, side="right"))

    def _locate(self, position: int) -> tuple[bytes, int]:
        """Return the piece of a position, and the position in it."""
        index = bisect_right(self._piece_starts, position) - 1
        return self.pieces[index], position - self._piece_starts[index]

    @cached_property
    def _piece_starts(self) -> list[int]:
        return [0, *accumulate(len(piece) + 1 for piece in self.pieces[:-1])]

    @cached_property
    def _run_ends(self) -> NDArray[np.int64]:
        """The indices after the runs of adjacent fragments, ascending."""
        ends = np.flatnonzero(self.starts[1:] != self.ends[:-1]) + 1
        return np.append(ends, len(self.starts))


def _equal_bytes(one: bytes, start: int, other: bytes, position: int, length: int) -> int:
    """Return how many bytes from two positions on are equal, ``length`` at most."""
    done, step = 0, _MIN_COMPARED
    while done < length:
        count = min(step, length - done)
        ours = one[start + done : start + done + count]
        theirs = other[position + done : position + done + count]
        if ours != theirs:
            differs = np.frombuffer(ours, np.uint8) != np.frombuffer(theirs, np.uint8)
            return done + int(np.argmax(differs))
        done, step = done + count, min(2 * step, _MAX_COMPARED)
    return done


@dataclass(frozen=True, slots=True)
class FragmentColumns:
    """Columns of all fragments that plans need; arrays of shape (n,)."""

    ids: NDArray[np.int64]
    physical_rows: NDArray[np.int64]  # As in ``Fragment``.
    num_deleted_rows: NDArray[np.int64]
    has_deletions: NDArray[np.bool_]  # Whether there is a deletion file.
    has_row_ids: NDArray[np.bool_]  # Whether stable row ids are recorded, in any form.
    num_bytes: NDArray[np.int64]  # Of all data files.
    file_version: NDArray[np.int64]  # ``file_version_code`` of the data files.

    @property
    def num_rows(self) -> NDArray[np.int64]:
        """Live rows."""
        return self.physical_rows - self.num_deleted_rows

    def take(self, indices: _Positions) -> FragmentColumns:
        """Return the rows of some fragments."""
        return FragmentColumns(*(column[indices] for column in self.arrays()))

    def put(self, indices: _Positions, rows: FragmentColumns) -> None:
        """Set the rows of some fragments."""
        for column, values in zip(self.arrays(), rows.arrays(), strict=True):
            column[indices] = values

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return the columns in the order of the fields."""
        return tuple(getattr(self, name) for name in self.__slots__)

    @classmethod
    def zeros(cls, count: int) -> FragmentColumns:
        """Create columns that are yet to be set."""
        flags, numbers = np.zeros((2, count), bool), np.zeros((5, count), np.int64)
        return cls(*numbers[:3], *flags, *numbers[3:])

    @classmethod
    def concat(cls, parts: Sequence[FragmentColumns]) -> FragmentColumns:
        """Concatenate columns."""
        if len(parts) == 1:
            return parts[0]
        # In one block: the allocator keeps the memory of several smaller ones.
        bounds = [0, *accumulate(len(part.ids) for part in parts)]
        columns = cls.zeros(bounds[-1])
        for part, (first, last) in zip(parts, pairwise(bounds), strict=True):
            columns.put(slice(first, last), part)
        return columns

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, bool, bool, int, int]]) -> FragmentColumns:
        """Build the columns from one row per fragment."""
        table = np.array(list(rows), np.int64).reshape(-1, 7).T
        ids, physical, deleted, has_deletions, has_row_ids, num_bytes, file_version = table
        flags = has_deletions.astype(bool), has_row_ids.astype(bool)
        return cls(ids, physical, deleted, *flags, num_bytes, file_version)


# Codes of ``file_version``: of data files of several versions, and the distance of major versions.
SEVERAL_VERSIONS: Final = -1
MAJOR_UNIT: Final = 1 << 31


@lru_cache
def file_version_code(versions: tuple[tuple[int, int], ...]) -> int:
    """Return one number for the version of all data files of a fragment; negative for several.

    ``versions``: major and minor of each file.
    """
    if not versions or versions.count(versions[0]) != len(versions):
        return SEVERAL_VERSIONS
    major, minor = versions[0]
    is_plain = 0 <= minor < MAJOR_UNIT and 0 <= major < MAJOR_UNIT
    return major * MAJOR_UNIT + minor if is_plain else SEVERAL_VERSIONS


class Fragments(Sequence[Fragment]):
    """The fragments of a version, or some of them; immutable."""

    def __init__(
        self,
        items: list[Fragment | None],
        stored: EncodedFragments | None = None,
        columns: FragmentColumns | None = None,
    ) -> None:
        # Decoded fragments; None for the others.
        self._items = items
        # The bytes of all fragments; None without bytes.
        self.stored = stored
        # The sequence that these were taken from, and their positions in it.
        self._origin: tuple[Fragments, range | NDArray[np.int64]] | None = None
        # The sequence that these were last compared with, and the difference.
        self._compared: (
            tuple[weakref.ref[Fragments], tuple[list[Fragment], list[Fragment]]] | None
        ) = None
        if columns is not None:
            self.__dict__["columns"] = columns

    @classmethod
    def of(cls, fragments: Iterable[Fragment]) -> Fragments:
        """Create a sequence from fragments."""
        return fragments if isinstance(fragments, Fragments) else cls(list(fragments))

    @cached_property
    def columns(self) -> FragmentColumns:
        """Numbers of all fragments."""
        return FragmentColumns.of(
            (
                fragment.id,
                fragment.physical_rows,
                fragment.num_deleted_rows,
                fragment.deletion_file is not None,
                fragment.row_ids is not None,
                sum([file.size_bytes for file in fragment.files]),
                file_version_code(
                    tuple([(file.major_version, file.minor_version) for file in fragment.files])
                ),
            )
            for fragment in self
        )

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of all fragments."""
        return self.columns.ids

    @property
    def num_rows(self) -> int:
        """Number of live rows."""
        return int(self.columns.num_rows.sum())

    def rows_by_id(self) -> dict[int, int]:
        """Live rows by id."""
        return dict(zip(self.ids.tolist(), self.columns.num_rows.tolist(), strict=True))

    @cached_property
    def file_versions(self) -> frozenset[tuple[int, int]]:
        """The versions, major and minor, of the data files."""
        codes = np.unique(self.columns.file_version).tolist()
        if SEVERAL_VERSIONS not in codes:
            return frozenset(divmod(code, MAJOR_UNIT) for code in codes)
        if self.stored is None:
            return frozenset(
                (file.major_version, file.minor_version) for one in self for file in one.files
            )
        return frozenset(
            (file.file_major_version, file.file_minor_version)
            for messages in self.messages()
            for message in messages.fragments
            for file in message.files
        )

    @property
    def items(self) -> list[Fragment | None]:
        """Decoded fragments; None for the others."""
        return self._items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Fragment: ...

    @overload
    def __getitem__(self, index: slice) -> Fragments: ...

    def __getitem__(self, index: int | slice) -> Fragment | Fragments:
        if isinstance(index, slice):
            return self.take(index)
        item = self._items[index]
        if item is None:
            index = range(len(self))[index]
            self._decode((index,))
            item = self._items[index]
            assert item is not None
        return item

    def __iter__(self) -> Iterator[Fragment]:
        for first in range(0, len(self), PARSED):
            last = min(first + PARSED, len(self))
            if self.stored is not None:
                self._decode(range(first, last))
            yield from self._items[first:last]  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fragments | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(map(Fragment.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Fragments.of({list(self)!r})"

    def take(self, indices: _Positions) -> Fragments:
        """Return the fragments at ``indices``, in that order."""
        if not isinstance(indices, slice) and np.array_equal(indices, np.arange(len(self))):
            return self
        items = (
            self._items[indices]
            if isinstance(indices, slice)
            else [self._items[index] for index in indices.tolist()]
        )
        stored = self.stored
        if stored is not None:
            stored = stored.take(indices)
        known = self.__dict__.get("columns")
        taken = Fragments(items, stored, None if known is None else known.take(indices))
        if stored is not None:
            taken._origin = (
                self,
                range(len(self))[indices] if isinstance(indices, slice) else indices,
            )
        return taken

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without fragments outside of this selection."""
        return {**self.__dict__, "_origin": None, "_compared": None}

    def index_of(self, fragment_id: int) -> int | None:
        """Return the position of the fragment with this id, if ids ascend."""
        index = int(np.searchsorted(self.ids, fragment_id))
        return index if index < len(self) and self.ids[index] == fragment_id else None

    def encoded(self) -> bytes:
        """Return the fields of a Manifest message, one per fragment."""
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes | memoryview]:
        """Return these fields without a copy; adjacent fragments are in one piece."""
        if self.stored is None:
            message = table_pb2.Manifest()
            add = message.fragments.add
            for fragment in self:
                fragment.write_to(add())
            return [message.SerializeToString(deterministic=True)]
        return [*self.stored.spans(0, len(self))]

    def messages(self) -> Iterator[table_pb2.Manifest]:
        """Yield Manifest messages with some fragments each, without decoding or caching values."""
        for first in range(0, len(self), PARSED):
            some = self[first : first + PARSED]
            yield parse_message(table_pb2.Manifest, some.encoded())

    def sources(self, sequence: str) -> Iterator[list[SequenceSource]]:
        """Yield the location of one sequence of each fragment, in lists of adjacent fragments.

        ``sequence``: its name in ``Fragment``.
        """
        if self.stored is None:
            yield [getattr(fragment, sequence) for fragment in self]
            return
        for messages in self.messages():
            yield sequence_sources(messages.fragments, sequence)

    def _decode(self, indices: Sequence[int]) -> None:
        """Decode those at ascending indices that are not decoded yet."""
        missing = [index for index in indices if self._items[index] is None]
        if not missing:
            return
        assert self.stored is not None
        first, last = missing[0], missing[-1] + 1
        message = parse_message(
            table_pb2.Manifest,
            b"".join(self.stored.spans(first, last))
            if len(missing) == last - first
            else self.take(np.array(missing, np.int64)).encoded(),
        )
        self._cache(missing, fragments_from_protos(message.fragments))

    def _at(self, indices: Sequence[int]) -> list[Fragment]:
        """Return the fragments at ascending indices, which are decoded together."""
        for first in range(0, len(indices), PARSED):
            self._decode(indices[first : first + PARSED])
        return [self[index] for index in indices]

    def _cache(self, indices: Sequence[int], fragments: Sequence[Fragment]) -> None:
        """Cache decoded fragments, also in the sequence they were taken from."""
        for index, fragment in zip(indices, fragments, strict=True):
            self._items[index] = fragment
        if self._origin is not None:
            whole, there = self._origin
            whole._cache([int(there[index]) for index in indices], fragments)

    def changed(self, put: Iterable[Fragment], removed: Iterable[int]) -> Fragments:
        """Return fragments by ascending id, without ``removed`` ids, ``put`` added or replaced."""
        new = Fragments.of(sorted(put, key=lambda fragment: fragment.id))
        left_out = np.concatenate((np.fromiter(removed, np.int64), new.ids))
        if len(self) and len(new) == len(left_out) > 0 and new.ids[0] > self.ids[-1]:
            return self.concat(new)  # an append
        kept = self.take(np.flatnonzero(~np.isin(self.ids, left_out)))
        if not len(kept):
            return new
        together = kept.concat(new)
        return together.take(np.argsort(together.ids, kind="stable"))

    def concat(self, other: Fragments) -> Fragments:
        """Return the concatenation with ``other``."""
        columns = FragmentColumns.concat((self.columns, other.columns))
        items = [*self._items, *other._items]
        if self.stored is None:
            return Fragments(items, None, columns)
        fields = [length_delimited(_NUMBER, one.to_proto().SerializeToString()) for one in other]
        return Fragments(items, self.stored.concat(fields), columns)

    def same_run(self, here: int, other: Fragments, there: int) -> int:
        """Return how many fragments from two positions on are equal to those of another version.

        There may be more, in other pieces; zero only if the first ones differ.
        """
        if self.stored is None or other.stored is None:
            pairs = zip(range(here, len(self)), range(there, len(other)), strict=False)
            same = (number for number, (a, b) in enumerate(pairs) if self[a] != other[b])
            return next(same, min(len(self) - here, len(other) - there))
        piece, start, end, _ = self.stored.run(here)
        return other.stored.equal_run(there, piece, start, end)

    def differing(self, newer: Fragments) -> tuple[list[Fragment], list[Fragment]]:
        """Return the fragments of each version that the other does not have, by ascending id."""
        if self._compared is not None and self._compared[0]() is newer:
            return self._compared[1]
        only_old: list[int] = []
        only_new: list[int] = []
        here = there = 0
        while here < len(self) and there < len(newer):
            same = self.same_run(here, newer, there)
            if same:  # the next ones may be in other pieces
                here, there = here + same, there + same
                continue
            old_id, new_id = self.ids[here], newer.ids[there]
            if old_id <= new_id:
                only_old.append(here)
                here += 1
            if new_id <= old_id:
                only_new.append(there)
                there += 1
        only_old += range(here, len(self))
        only_new += range(there, len(newer))
        found = self._at(only_old), newer._at(only_new)
        self._compared = weakref.ref(newer), found
        return found
