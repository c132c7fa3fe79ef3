"""The keys of the rows that a merge writes, recorded in the properties of its transaction.

A concurrent merge on the same columns compares its own keys with them, and reads the new rows only
if one may be equal.  Only small merges record their keys, as hashes.  A record excludes rows, it
never proves one: other writers record nothing, and hashes may be equal for different keys.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.commit.inserted_keys import ROW_KEYS_PROPERTY
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.dml.key_filter import hash_keys

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

    def packed(self) -> bytes | None:
        """Serialize the hashes for the driver; None if they are not recorded."""
        if not self._names or self._count > MAX_ROWS:
            return None
        return b"".join(part.astype(_HASH).tobytes() for part in self._parts)


def row_keys_property(
    schema: LanceSchema, names: Sequence[str], packed: Iterable[bytes | None]
) -> Mapping[str, str]:
    """Return the property that records the keys of all tasks; none if a task has too many.

    ``packed``: ``RowKeys.packed`` of every task that wrote rows.
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
