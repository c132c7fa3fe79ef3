"""NewKeys: the primary keys that a merge inserts, as stored in its transaction.

Lance hashes the bytes of a key: numbers as eight bytes, strings and binary unchanged, and a
composite key as all parts, each followed by a zero byte. It stores no keys of other types, so the
filter must be absent for them.

Source: docs/format/table-format.md, section 8.1.

The keys of the rows that a merge writes, recorded in the properties of its transaction.

A concurrent merge on the same columns compares its own keys with them, and reads the new rows only
if one may be equal.  Only small merges record their keys, as hashes.  A record excludes rows, it
never proves one: other writers record nothing, and hashes may be equal for different keys.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.value_hashes import bits_of, hashes_of
from pyspark_lance.commit.inserted_keys import (
    NUM_BLOCKS,
    NUM_BYTES,
    ROW_KEYS_PROPERTY,
    key_filter_message,
)
from pyspark_lance.format.schema import LanceSchema, primary_key
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.dml.key_filter import hash_keys

_NUMBERS = (pa.int32(), pa.int64(), pa.uint32(), pa.uint64())
_BYTES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def stored_key(schema: LanceSchema) -> tuple[str, ...]:
    """Return the primary key columns; none without a key or for types that Lance does not store."""
    names = primary_key(schema)
    types = {field.name: field.to_arrow().type for field in schema.fields}
    return names if all(types.get(name) in (*_NUMBERS, *_BYTES) for name in names) else ()


class NewKeys:
    """Collector of keys, batch by batch; ``names``: their columns, none to collect nothing."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._bits: NDArray[np.bool_] | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add inserted rows, or rows with a changed key."""
        if not self._names:
            return
        hashes = key_hashes([rows.column(name) for name in self._names])
        if self._bits is None:
            self._bits = np.zeros(NUM_BYTES * 8, np.bool_)
        self._bits[bits_of(hashes, NUM_BLOCKS)] = True

    def to_bytes(self) -> bytes:
        """Serialize the filter for the driver; empty for no keys."""
        if self._bits is None:
            return b""
        return zlib.compress(np.packbits(self._bits, bitorder="little").tobytes(), 1)


def key_filter(schema: LanceSchema, packed: Iterable[bytes]) -> bytes | None:
    """Merge the filters of all tasks for ``Update``; None if keys are not stored."""
    names = stored_key(schema)
    if not names:
        return None
    bits = np.zeros(NUM_BYTES, np.uint8)
    for part in packed:
        bits |= np.frombuffer(zlib.decompress(part), np.uint8)
    ids = {field.name: field.id for field in schema.fields}
    return key_filter_message([ids[name] for name in names], bits.tobytes())


def key_hashes(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Hash the keys, except those with a null part; shape (at most num_rows,)."""
    rows = pa.RecordBatch.from_arrays(list(columns), list(map(str, range(len(columns)))))
    parts = [_wide(column) for column in rows.drop_null().columns]
    if len(parts) == 1:
        return hashes_of(parts[0])
    ended = pa.scalar(b"", pa.large_binary())
    zero = pa.scalar(b"\0", pa.large_binary())
    return hashes_of(pc.binary_join_element_wise(*map(_bytes, parts), ended, zero))


def _wide(column: pa.Array) -> pa.Array:
    if column.type not in _NUMBERS:
        return column
    return column.cast(pa.uint64() if pa.types.is_unsigned_integer(column.type) else pa.int64())


def _bytes(column: pa.Array) -> pa.Array:
    if column.type in _BYTES:
        return column.cast(pa.large_binary())
    numbers = np.ascontiguousarray(plain_numbers(column)).view(np.uint8)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(column),
        [None, plain_array(np.arange(0, len(numbers) + 1, 8)).buffers()[1], pa.py_buffer(numbers)],
    )


_VERSION: Final = "1"  # Of the hash function and of the layout.
_HASH: Final = np.dtype("<u8")
MAX_ROWS: Final = 256


class RowKeys:
    """Collector of the hashes of the keys of written rows; ``names``: of the key columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._parts: list[NDArray[np.uint64]] = []
        self._count = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows as they are written."""
        self._count += rows.num_rows
        if self._names and self._count <= MAX_ROWS:
            self._parts.append(hash_keys([rows.column(name) for name in self._names]))

    def to_bytes(self) -> bytes | None:
        """Serialize the hashes for the driver; None if they are not recorded."""
        if not self._names or self._count > MAX_ROWS:
            return None
        return b"".join(part.astype(_HASH).tobytes() for part in self._parts)


def row_keys_property(
    schema: LanceSchema, names: Sequence[str], packed: Iterable[bytes | None]
) -> Mapping[str, str]:
    """Return the property that records the keys of all tasks; none if a task has too many.

    ``packed``: ``RowKeys.to_bytes`` of every task that wrote rows.
    """
    parts = list(packed)
    known = [part for part in parts if part is not None]
    content = b"".join(known)
    too_many = len(content) > MAX_ROWS * _HASH.itemsize
    if not names or not content or too_many or len(known) < len(parts):
        return {}
    text = base64.b64encode(content).decode("ascii")
    return {ROW_KEYS_PROPERTY: f"{_VERSION};{_ids_of(schema, names)};{text}"}


def recorded_keys(
    schema: LanceSchema, names: Sequence[str], properties: Mapping[str, str]
) -> NDArray[np.uint64] | None:
    """Return the hashes that a transaction records for the columns; None if it does not."""
    version, _, rest = properties.get(ROW_KEYS_PROPERTY, "").partition(";")
    ids, _, text = rest.partition(";")
    if version != _VERSION or not names or ids != _ids_of(schema, names):
        return None
    try:
        content = base64.b64decode(text, validate=True)
        return np.frombuffer(content, _HASH).astype(np.uint64) if content else None
    except (binascii.Error, ValueError):
        return None


def _ids_of(schema: LanceSchema, names: Sequence[str]) -> str:
    ids = {field.name: field.id for field in schema.fields}
    return ",".join(str(ids.get(name, "")) for name in names)
