"""The lineage columns of fragments, from sequences in manifests, files or hidden columns.

Row ids and versions are usually inline in the manifest. They can also be spilled to hidden columns
of a data file (flag 2048) or, according to the specification, stored in a separate file, which
Lance does not write.

Source: docs/format/table-format.md, sections 4.1 (ExternalFile), 6.3, 7.2, 7.3, 7.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, InvalidInputError, MissingFileError
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ADDRESS, ROW_ID
from pyspark_lance.format.fragment import (
    SPILLED,
    SPILLED_CREATED_AT,
    SPILLED_LAST_UPDATED_AT,
    SPILLED_ROW_ID,
    ExternalFile,
    Fragment,
    SequenceSource,
)
from pyspark_lance.format.row_address import OFFSET_BITS, row_addresses
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.u64_segment import RangeSegment, consecutive
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.store.object_store import ObjectStore

_RESTORE: Final = "restore the file from a copy; or read or restore another version"


def read_sequence(store: ObjectStore, file: ExternalFile) -> bytes:
    """Read the serialized sequence."""
    where = f"{store.uri}/{file.path} bytes {file.offset}..{file.offset + file.size}"
    try:
        # The size comes from a message, so it is checked before that much is requested.
        there = store.size(file.path)
        if file.offset + file.size > there:
            what = f"a sequence ends outside its file of {there} bytes"
            raise CorruptFileError(what, where, _RESTORE)
        return bytes(store.get_range(file.path, file.offset, file.offset + file.size))
    except FileNotFoundError as error:
        what = "the file of a row-id or version sequence is missing"
        raise MissingFileError(what, where, _RESTORE) from error
    except InvalidInputError as error:
        what = "the file of a row-id or version sequence is outside of the table"
        raise CorruptFileError(what, where) from error


# The names of the sequences of a fragment.
SEQUENCE_OF = {ROW_ID: "row_ids", CREATED_AT: "created_at", LAST_UPDATED_AT: "last_updated_at"}

SPILLED_FIELD_OF = {
    ROW_ID: SPILLED_ROW_ID,
    CREATED_AT: SPILLED_CREATED_AT,
    LAST_UPDATED_AT: SPILLED_LAST_UPDATED_AT,
}

# The default version of fragments without version sequences (section 7.3).
DEFAULT_VERSION = 1

# Most windows have a single version; up to this many rows share one array (512 KiB).
_SHARED_ROWS = 1 << 16

# Maximum cached small decoded sequences.
_SHORT_BYTES = 512
_MAX_SHORT = 2048


class FragmentLineage:
    """Lineage columns of one fragment; sequences are decoded lazily.

    ``stable_row_ids``: whether row ids are stored; otherwise they equal the addresses.
    ``confirm_rows``: called before the first value; verifies the row count with a data file.
    ``read_hidden``: reads a hidden column: (field id, sorted offsets or None for all rows) ->
    uint64 values. Called only for fragments with spilled lineage.
    """

    def __init__(
        self,
        fragment: Fragment,
        *,
        stable_row_ids: bool,
        store: Callable[[], ObjectStore],
        confirm_rows: Callable[[], None],
        read_hidden: Callable[[int], NDArray[np.uint64]],
    ) -> None:
        self._fragment = fragment
        self._stable = stable_row_ids
        self._store = store
        self._confirm_rows: Callable[[], None] | None = confirm_rows
        self._read_hidden = read_hidden
        self._sequences: dict[str, RowIdSequence | RowDatasetVersionSequence] = {}
        self._hidden: dict[str, NDArray[np.uint64]] = {}
        self._last_run: tuple[tuple[int, int], NDArray[np.uint64]] | None = None

    def window(self, name: str, start: int, end: int) -> NDArray[np.uint64]:
        """Return values of the lineage column ``name`` for rows [start, end), shape (end - start,).

        The array may be shared and must not be modified.
        """
        self._confirm()
        if name == ROW_ADDRESS or (name == ROW_ID and not self._stable):
            return self._run((self._fragment.id << OFFSET_BITS) + start, end - start)
        sequence = self._sequence(name)
        if sequence is None:
            return _constant(DEFAULT_VERSION, end - start)
        if isinstance(sequence, np.ndarray):
            return sequence[start:end]
        part = sequence.slice(start, end)
        if isinstance(part, RowDatasetVersionSequence) and part.only_version is not None:
            return _constant(part.only_version, end - start)
        if isinstance(part, RowIdSequence) and len(part.segments) == 1:
            (segment,) = part.segments
            if isinstance(segment, RangeSegment):
                return self._run(segment.start, end - start)
        return part.to_array()

    def _run(self, first: int, count: int) -> NDArray[np.uint64]:
        """Return consecutive numbers; a fragment with id 0 shares them for ids and addresses."""
        if self._last_run is None or self._last_run[0] != (first, count):
            self._last_run = (first, count), consecutive(first, count)
        return self._last_run[1]

    def take(self, name: str, offsets: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return values of the lineage column ``name`` at ``offsets``, same shape."""
        self._confirm()
        if name == ROW_ADDRESS or (name == ROW_ID and not self._stable):
            return row_addresses(self._fragment.id, offsets)
        sequence = self._sequence(name)
        if sequence is None:
            return np.full(len(offsets), DEFAULT_VERSION, dtype=np.uint64)
        if isinstance(sequence, np.ndarray):
            return sequence[offsets]
        return sequence.take(offsets)

    def row_ids(self) -> RowIdSequence:
        """Return the stable row ids of all rows, including deleted ones."""
        self._confirm()
        sequence = self._sequence(ROW_ID)
        if isinstance(sequence, np.ndarray):
            return RowIdSequence.from_array(sequence)
        assert isinstance(sequence, RowIdSequence)  # missing row ids have raised before
        return sequence

    def versions(self, name: str) -> RowDatasetVersionSequence | None:
        """Return the values of a version column for all rows; None if the fragment has none."""
        self._confirm()
        sequence = self._sequence(name)
        if isinstance(sequence, np.ndarray):
            return RowDatasetVersionSequence.from_array(sequence)
        assert not isinstance(sequence, RowIdSequence)  # ``name`` is a version column
        return sequence

    def _confirm(self) -> None:
        """Verify the row count, once."""
        if self._confirm_rows is not None:
            self._confirm_rows()
            self._confirm_rows = None

    def _sequence(
        self, name: str
    ) -> RowIdSequence | RowDatasetVersionSequence | NDArray[np.uint64] | None:
        source = source_of(self._fragment, name)
        if source is None:
            if name == ROW_ID:
                raise CorruptFileError(
                    f"fragment {self._fragment.id} has no row ids in a table with stable row ids"
                )
            return None
        if source is SPILLED:
            if name not in self._hidden:
                self._hidden[name] = self._read_hidden(SPILLED_FIELD_OF[name])
            return self._hidden[name]
        if name not in self._sequences:
            assert not isinstance(source, type(SPILLED))
            if isinstance(source, ExternalFile):
                sequence = decode_sequence(name, read_sequence(self._store(), source))
            else:
                decode = _decoded_short if len(source) <= _SHORT_BYTES else decode_sequence
                sequence = decode(name, source)
            if len(sequence) != self._fragment.physical_rows:
                raise CorruptFileError(
                    f"the {name} sequence of fragment {self._fragment.id} has {len(sequence)} "
                    f"values for {self._fragment.physical_rows} rows"
                )
            self._sequences[name] = sequence
        return self._sequences[name]


class ConcatenatedLineage:
    """The concatenated lineage columns of several fragments.

    ``parts``: one per fragment;
    ``starts``: the first row of each, and the total number of rows.
    """

    def __init__(self, parts: Sequence[FragmentLineage], starts: Sequence[int]) -> None:
        self._parts = parts
        self._starts = np.array(starts, np.int64)

    def window(self, name: str, start: int, end: int) -> NDArray[np.uint64]:
        """Return values of the lineage column ``name`` for rows [start, end)."""
        bounds = self._starts.tolist()
        first, last = self._starts.searchsorted((start, end - 1), side="right").tolist()
        return np.concatenate(
            [
                self._parts[i].window(
                    name, max(start - bounds[i], 0), min(end, bounds[i + 1]) - bounds[i]
                )
                for i in range(first - 1, last)
            ]
        )

    def take(self, name: str, offsets: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return values of the lineage column ``name`` at ascending ``offsets``."""
        cuts = offsets.searchsorted(self._starts).tolist()
        values = [
            self._parts[i].take(name, offsets[first:last] - np.uint32(self._starts[i]))
            for i, (first, last) in enumerate(pairwise(cuts))
            if first < last
        ]
        return np.concatenate(values) if values else np.zeros(0, np.uint64)


def decode_sequence(name: str, data: bytes) -> RowIdSequence | RowDatasetVersionSequence:
    """Decode an inline sequence of the lineage column ``name``."""
    kind = RowIdSequence if name == ROW_ID else RowDatasetVersionSequence
    return kind.from_bytes(data)


# DML on tables of many small fragments reads the same sequences repeatedly.
_decoded_short = lru_cache(_MAX_SHORT)(decode_sequence)


Lineage: TypeAlias = FragmentLineage | ConcatenatedLineage


def _constant(value: int, count: int) -> NDArray[np.uint64]:
    """Return ``count`` times ``value``; read-only, since batches share the memory."""
    if count > _SHARED_ROWS:
        return np.full(count, value, dtype=np.uint64)
    return _shared_constant(value)[:count]


@lru_cache(maxsize=16)
def _shared_constant(value: int) -> NDArray[np.uint64]:
    values = np.full(_SHARED_ROWS, value, dtype=np.uint64)
    values.flags.writeable = False
    return values


def source_of(fragment: Fragment, name: str) -> SequenceSource:
    """Return where a fragment stores the lineage column ``name``."""
    source: SequenceSource = getattr(fragment, SEQUENCE_OF[name])
    return source
