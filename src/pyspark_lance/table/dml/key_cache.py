"""Cache the keys of small fragments, so that merges do not read them again.

Each upsert creates a small fragment, and the next one looks up its keys in all of them. Data files
are immutable, so their keys and hashes are cached, including those of deleted rows, which a restore
may bring back. The address of a row and whether it is live are read from the manifest.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import join_batches
from pyspark_lance.codec.row_selection import filter_rows, take_rows
from pyspark_lance.codec.shred import data_bytes
from pyspark_lance.format.column_names import (
    ROW_ADDRESS,
    SYSTEM_COLUMNS,
    system_array,
    system_field,
)
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Update
from pyspark_lance.format.row_address import group_by_fragment, row_addresses
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.table.dml.key_filter import KeyFilter, hash_keys, recorded_keys
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.scan_split import Slices
from pyspark_lance.table.scan.scan_task import ScanTask, is_lazy
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table import Table

# Maximum rows of a small fragment.
_MAX_ROWS: Final = 1 << 16
# Cached keys of all tables.
_MAX_BYTES: Final = 32 << 20
_BYTES_OF_ONE: Final = 512
_BYTES_OF_ROW: Final = 16
# Recorded keys of a table, and number of tables with them.
_MAX_RECORDED: Final = 1 << 20
_MAX_RECORDED_TABLES: Final = 16

_Hashes = NDArray[np.uint64]


class _KeyCache:
    """Cached key columns of the fragments of one table, concatenated."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}  # By the file names of each fragment.
        self.num_bytes = 0
        self._starts = [0]
        # The first element is the concatenation of earlier ones.
        self._hashes: list[_Hashes] = []
        self._rows: list[pa.RecordBatch] = []

    def put(self, name: Hashable, hashes: _Hashes, rows: pa.RecordBatch) -> None:
        """Cache all rows of a fragment."""
        if name in self.numbers or (self._rows and rows.schema != self._rows[0].schema):
            return
        self.numbers[name] = len(self._starts) - 1
        self._starts.append(self._starts[-1] + len(hashes))
        self._hashes.append(hashes)
        self._rows.append(rows)
        self.num_bytes += _BYTES_OF_ONE + int(hashes.nbytes) + sum(map(data_bytes, rows.columns))

    def rows_with(
        self, keys: KeyFilter, numbers: NDArray[np.int64]
    ) -> tuple[pa.RecordBatch, NDArray[np.int64], NDArray[np.uint32]]:
        """Return rows of some fragments whose key may be in ``keys``, including deleted rows.

        ``numbers``: of these fragments. Also returns the index into ``numbers`` and the offset of
        each row.
        """
        self._hashes = [np.concatenate(self._hashes)] if len(self._hashes) > 1 else self._hashes
        self._rows = [join_batches(self._rows)] if len(self._rows) > 1 else self._rows
        starts = np.array(self._starts)
        rows = keys.may_contain(self._hashes[0]).nonzero()[0]
        owners = starts.searchsorted(rows, side="right") - 1
        index_of = np.full(len(starts), -1)
        index_of[numbers] = np.arange(len(numbers))
        wanted = np.flatnonzero(index_of[owners] >= 0)
        rows, owners = rows[wanted], owners[wanted]
        offsets = (rows - starts[owners]).astype(np.uint32)
        return take_rows(self._rows[0], rows), index_of[owners], offsets


class _Recorded:
    """Hashes of the keys of fragments, as their transactions record them; for one table."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}  # By the file names of each fragment.
        self.num_hashes = 0
        # The first element is the concatenation of earlier ones; owners are such numbers.
        self._hashes: list[_Hashes] = []
        self._owners: list[NDArray[np.int64]] = []

    def put(self, name: Hashable, hashes: _Hashes) -> None:
        """Record a superset of the keys of a fragment."""
        if name not in self.numbers:
            number = self.numbers[name] = len(self.numbers)
            self.num_hashes += len(hashes)
            self._hashes.append(hashes)
            self._owners.append(np.full(len(hashes), number))

    def may_have(self, keys: KeyFilter, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which fragments may have a row with one of the keys, same shape."""
        if len(self._hashes) > 1:
            self._hashes = [np.concatenate(self._hashes)]
            self._owners = [np.concatenate(self._owners)]
        found = np.zeros(len(self.numbers), np.bool_)
        found[self._owners[0][keys.may_contain(self._hashes[0])]] = True
        return found[numbers]


_lock = threading.Lock()
# By table and columns, in LRU order.
_known: OrderedDict[Hashable, _KeyCache] = OrderedDict()
# By table and ids of columns, in LRU order.
_recorded: OrderedDict[Hashable, _Recorded] = OrderedDict()


def remember_row_keys(
    table: Table, schema: LanceSchema, names: Sequence[str], transaction: Transaction
) -> NDArray[np.uint64] | None:
    """Cache the keys of the new rows that a transaction records, and return them; None for none.

    Their fragments are read only if one of these keys is looked up.

    ``names``: of the key columns.
    """
    hashes = recorded_keys(schema, names, transaction.properties)
    operation = transaction.operation
    if hashes is None or not isinstance(operation, Update):
        return None
    ids = {field.name: field.id for field in schema.fields}
    columns = table.key(), tuple(ids[name] for name in names)
    with _lock:
        known = _recorded.pop(columns, None)
        if known is None or known.num_hashes > _MAX_RECORDED:
            known = _Recorded()
        for fragment in operation.new_fragments:
            known.put(_name_of(fragment), hashes)
        _recorded[columns] = known
        while len(_recorded) > _MAX_RECORDED_TABLES:
            _recorded.popitem(last=False)
    return hashes


def rows_with_keys(
    task: ScanTask, names: Sequence[str], keys: KeyFilter
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan whose key may be in ``keys``.

    ``task``: reads the key columns and row addresses; ``names``: these columns, in the order of
    ``keys``.
    """
    slices = Slices.of(task.slices)
    unread = np.zeros(len(slices), np.bool_)
    if task.predicate is None and not any(map(is_lazy, task.fields)):
        unread = _are_small(slices)
        indices = np.flatnonzero(unread)
        fragments = list(slices.fragments.take(indices))
        with _lock:
            known = _known.get(_columns_of(task, names))
            numbers = np.array(
                [-1 if known is None else known.numbers.get(_name_of(one), -1) for one in fragments]
            )
            is_known = numbers >= 0
            if known is not None and is_known.any():
                found = known.rows_with(keys, numbers[is_known])
        missing = ~is_known
        missing[missing] = _may_have(
            task, names, keys, [fragments[n] for n in np.flatnonzero(missing)]
        )
        yield from _read_whole(task, names, keys, slices.take(indices[missing]))
        if is_known.any():
            yield from _live_batches(task, [fragments[n] for n in np.flatnonzero(is_known)], *found)
    rest = slices.take(np.flatnonzero(~unread))
    for rows in replace(task, slices=rest).run() if len(rest) else ():
        yield filter_rows(rows, keys.may_contain(_hashes_of(rows, names)))


def _may_have(
    task: ScanTask, names: Sequence[str], keys: KeyFilter, fragments: Sequence[Fragment]
) -> NDArray[np.bool_]:
    """Return which fragments may have one of the keys, by the filters of their transactions."""
    may_have = np.ones(len(fragments), np.bool_)
    ids = {field.name: field.id for field in task.fields}
    with _lock:
        known = _recorded.get((task.files.table.key(), tuple(ids[name] for name in names)))
        if known is not None:
            numbers = np.array([known.numbers.get(_name_of(one), -1) for one in fragments], int)
            is_known = numbers >= 0
            if is_known.any():
                may_have[is_known] = known.may_have(keys, numbers[is_known])
    return may_have


def _are_small(slices: Slices) -> NDArray[np.bool_]:
    """Return which slices cover a small fragment completely; shape (n,)."""
    rows = slices.fragments.columns.physical_rows
    whole = (slices.starts == 0) & (slices.ends == rows) & (rows > 0) & (rows <= _MAX_ROWS)
    whole[list(slices.offsets)] = False
    # More would not be cached.
    return whole & (int(rows[whole].sum()) * _BYTES_OF_ROW < _MAX_BYTES)


def _columns_of(task: ScanTask, names: Sequence[str]) -> Hashable:
    """Return the cache key of the table and its key columns."""
    table = task.files.table
    fields = tuple((field.id, field.name, field.logical_type) for field in task.fields)
    return table.key(), task.files.base_paths, fields, tuple(names)


def _name_of(fragment: Fragment) -> Hashable:
    """Return the cache key of a fragment: its files."""
    if len(fragment.files) == 1:  # fast path: called for every fragment
        file = fragment.files[0]
        return file.path if file.base_id is None else (file.base_id, file.path)
    return tuple([(file.base_id, file.path) for file in fragment.files])


def _live_batches(
    task: ScanTask,
    fragments: Sequence[Fragment],
    rows: pa.RecordBatch,
    indices: NDArray[np.int64],
    offsets: NDArray[np.uint32],
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows among cached rows, in the layout of the scan.

    ``indices``: index into ``fragments`` of each row; ``offsets``: in its fragment; both (n,).
    """
    if not len(offsets):
        return
    order = np.argsort(indices, kind="stable")
    indices, offsets = indices[order], offsets[order]
    starts = np.flatnonzero(np.append(True, indices[1:] != indices[:-1]))
    names = [name for name in SYSTEM_COLUMNS if name in task.system_columns]
    kept: list[NDArray[np.int64]] = []
    system: list[list[NDArray[np.uint64]]] = [[] for _ in names]
    for index, of_one, where in zip(
        indices[starts].tolist(),
        np.split(offsets, starts[1:]),
        np.split(order, starts[1:]),
        strict=True,
    ):
        fragment, is_live = fragments[index], _are_live(task, fragments[index], of_one)
        if not is_live.all():
            of_one, where = of_one[is_live], where[is_live]
        if len(of_one):
            kept.append(where)
            reader = FragmentReader(task.files, fragment, stable_row_ids=task.stable_row_ids)
            for name, values in zip(names, system, strict=True):
                values.append(reader.lineage.take(name, of_one))
    if kept:
        live = take_rows(rows, np.concatenate(kept))
        columns = [*live.columns, *(system_array(np.concatenate(values)) for values in system)]
        schema = pa.schema([*live.schema, *map(system_field, names)])
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _are_live(task: ScanTask, fragment: Fragment, offsets: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return which rows of a fragment are not deleted, same shape."""
    vector = load_deletion_vector(task.files, fragment, stable_row_ids=task.stable_row_ids)
    if vector is None:
        return np.ones(len(offsets), np.bool_)
    return ~vector.contains_each(offsets)


def _read_whole(
    task: ScanTask, names: Sequence[str], keys: KeyFilter, slices: Slices
) -> Iterator[pa.RecordBatch]:
    """Yield rows of small fragments whose key may match, and cache the keys of all rows."""
    if not len(slices):
        return
    fragments = {fragment.id: fragment for fragment in slices.fragments}
    parts: dict[int, list[tuple[_Hashes, pa.RecordBatch]]] = {number: [] for number in fragments}
    for rows in replace(task, slices=slices).run(lambda _fragment: None):
        hashes = _hashes_of(rows, names)
        columns = rows.select([field.name for field in task.fields])
        owners = plain_numbers(rows.column(ROW_ADDRESS)) >> np.uint64(32)
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1])).tolist()
        for start, end in pairwise([*starts, len(owners)]):
            part = hashes[start:end], columns.slice(start, end - start)
            parts[int(owners[start])].append(part)
        yield _live(task, fragments, filter_rows(rows, keys.may_contain(hashes)))
    _remember(
        _columns_of(task, names), {_name_of(fragments[number]): parts[number] for number in parts}
    )


def _remember(
    columns: Hashable, found: dict[Hashable, list[tuple[_Hashes, pa.RecordBatch]]]
) -> None:
    with _lock:
        known = _known.pop(columns, None) or _KeyCache()
        for name, parts in found.items():
            known.put(
                name,
                np.concatenate([hashes for hashes, _ in parts]),
                join_batches([rows for _, rows in parts]),
            )
        _known[columns] = known
        while _known and sum(one.num_bytes for one in _known.values()) > _MAX_BYTES:
            _known.popitem(last=False)


def _live(task: ScanTask, fragments: dict[int, Fragment], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Drop deleted rows."""
    addresses = plain_numbers(rows.column(ROW_ADDRESS))
    removed = [
        row_addresses(number, offsets[~_are_live(task, fragments[number], offsets)])
        for number, offsets in group_by_fragment(addresses).items()
    ]
    return filter_rows(rows, ~np.isin(addresses, np.concatenate(removed))) if removed else rows


def _hashes_of(rows: pa.RecordBatch, names: Sequence[str]) -> _Hashes:
    return hash_keys([rows.column(name) for name in names])
