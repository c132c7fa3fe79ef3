"""Keys of small fragments that this process has read, so that merges read few of them again.

Each upsert makes a small fragment, and the next one looks for its keys in all of them.  Data files
never change, so hashes of the keys in them are kept, also of rows that are deleted: a restore may
bring these back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.row_selection import filter_rows
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import group_by_fragment, row_addresses
from pyspark_lance.format.system_columns import ROW_ADDRESS
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.recently_used import RecentlyUsed
from pyspark_lance.table.change.key_filter import KeyFilter, hash_keys
from pyspark_lance.table.rows.scan_slice import Slices
from pyspark_lance.table.scan.scan_task import ScanTask, is_made, run
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector

# Rows of a fragment that is small.
_MOST_ROWS: Final = 1 << 13
_MOST_BYTES: Final = 32 << 20
_BYTES_OF_ONE: Final = 512

_Hashes = NDArray[np.uint64]
_known: RecentlyUsed[_Hashes] = RecentlyUsed(
    _MOST_BYTES, lambda hashes: _BYTES_OF_ONE + int(hashes.nbytes)
)


def rows_with_keys(
    task: ScanTask, names: Sequence[str], keys: KeyFilter
) -> Iterator[pa.RecordBatch]:
    """The rows of a scan whose key may be one of some.

    ``task``: returns the columns of the key and row addresses; ``names``: these columns, in the
    order in which ``keys`` has them.
    """
    slices = Slices.of(task.slices)
    unread = np.zeros(len(slices), np.bool_)
    if task.predicate is None and not any(map(is_made, task.fields)):
        unread = _are_small(slices)
        known = {
            place: hashes
            for place in np.flatnonzero(unread).tolist()
            if (hashes := _known.get(_name_of(task, names, slices.fragments[place]))) is not None
        }
        unread[list(known)] = False
        without = _without_key(known, keys)
        yield from _read_whole(task, names, keys, slices.take(np.flatnonzero(unread)))
        unread[without] = True
    rest = slices.take(np.flatnonzero(~unread))
    for rows in run(replace(task, slices=rest)) if len(rest) else ():
        yield filter_rows(rows, keys.may_contain(_hashes_of(rows, names)))


def _are_small(slices: Slices) -> NDArray[np.bool_]:
    """Which slices are all rows of a small fragment; shape (n,)."""
    rows = slices.fragments.columns.physical_rows
    whole = (slices.starts == 0) & (slices.ends == rows) & (rows > 0) & (rows <= _MOST_ROWS)
    whole[list(slices.offsets)] = False
    return whole


def _name_of(task: ScanTask, names: Sequence[str], fragment: Fragment) -> tuple[object, ...]:
    """What the hashes of a fragment's keys are those of: columns of files."""
    ids = {field.name: field.id for field in task.fields}
    files = tuple((file.base_id, file.path) for file in fragment.files)
    return task.files.table.uri, task.files.base_paths, tuple(ids[name] for name in names), files


def _without_key(known: dict[int, _Hashes], keys: KeyFilter) -> list[int]:
    """The places of fragments that have none of the keys."""
    if not known:
        return []
    starts = np.cumsum([0, *map(len, known.values())])[:-1]
    found = np.logical_or.reduceat(keys.may_contain(np.concatenate(list(known.values()))), starts)
    return [place for place, has_key in zip(known, found.tolist(), strict=True) if not has_key]


def _read_whole(
    task: ScanTask, names: Sequence[str], keys: KeyFilter, slices: Slices
) -> Iterator[pa.RecordBatch]:
    """The rows of small fragments that may have a key; remembers the keys of all of their rows."""
    if not len(slices):
        return
    fragments = {fragment.id: fragment for fragment in slices.fragments}
    parts: dict[int, list[_Hashes]] = {number: [] for number in fragments}
    for rows in run(replace(task, slices=slices), lambda _fragment: None):
        hashes = _hashes_of(rows, names)
        owners = plain_numbers(rows.column(ROW_ADDRESS)) >> np.uint64(32)
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        for part, owner in zip(np.split(hashes, starts[1:]), owners[starts].tolist(), strict=True):
            parts[owner].append(part)
        yield _live(task, fragments, filter_rows(rows, keys.may_contain(hashes)))
    for number, fragment in fragments.items():
        _known.put(_name_of(task, names, fragment), np.concatenate(parts[number]))


def _live(task: ScanTask, fragments: dict[int, Fragment], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are not deleted."""
    addresses = plain_numbers(rows.column(ROW_ADDRESS))
    gone = []
    for number, offsets in group_by_fragment(addresses).items():
        vector = load_deletion_vector(
            task.files, fragments[number], stable_row_ids=task.stable_row_ids
        )
        if vector is not None:
            gone.append(row_addresses(number, offsets[vector.contains_each(offsets)]))
    return filter_rows(rows, ~np.isin(addresses, np.concatenate(gone))) if gone else rows


def _hashes_of(rows: pa.RecordBatch, names: Sequence[str]) -> _Hashes:
    return hash_keys([rows.column(name) for name in names])
