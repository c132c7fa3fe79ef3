"""The four lineage columns that a reader computes: names and types.

They are not stored like other columns: row ids come from a fragment's row-id sequence, row
addresses from the position, the two versions from runs.  No I/O.

Source: docs/format/table-format.md, sections 0, 6.3, 7.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import external_system_column
from pyspark_lance.plain_values import plain_array

ROW_ID: Final = "_rowid"
ROW_ADDRESS: Final = "_rowaddr"
CREATED_AT: Final = "_row_created_at_version"
LAST_UPDATED_AT: Final = "_row_last_updated_at_version"

SYSTEM_COLUMNS: Final = (ROW_ID, ROW_ADDRESS, CREATED_AT, LAST_UPDATED_AT)
VERSION_COLUMNS: Final = (CREATED_AT, LAST_UPDATED_AT)


def system_field(name: str) -> pa.Field:
    """The Arrow field of a lineage column: uint64, never null."""
    return pa.field(name, pa.uint64(), nullable=False)


def parse_metadata_columns(text: str, *, stable_row_ids: bool) -> tuple[str, ...]:
    """Return the lineage columns that ``metadataColumns`` selects, in their fixed order.

    ``text``: ``all``, ``none`` or a comma list of names, case-insensitive.
    ``stable_row_ids``: whether the table has stable row ids; without them ``all`` omits the version
    columns, which would carry no information.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if words == ["all"]:
        return SYSTEM_COLUMNS if stable_row_ids else (ROW_ID, ROW_ADDRESS)
    if words in ([], ["none"]):
        return ()
    unknown = [word for word in words if word not in SYSTEM_COLUMNS]
    if unknown:
        raise InvalidInputError(
            f"metadataColumns names {unknown[0]!r}, which is not a lineage column",
            hint=external_system_column(unknown[0])
            or f"use all, none, or a comma list of {', '.join(SYSTEM_COLUMNS)}",
        )
    return tuple(name for name in SYSTEM_COLUMNS if name in words)


def check_version_columns(names: tuple[str, ...], *, stable_row_ids: bool, uri: str) -> None:
    """Refuse the version columns on a table without row versions."""
    wanted = [name for name in names if name in VERSION_COLUMNS]
    if wanted and not stable_row_ids:
        raise InvalidInputError(
            f"{wanted[0]} needs stable row ids, which the rows of this table do not have",
            where=uri,
            hint="LanceTable.enableStableRowIds() assigns them",
        )


def constant_column(value: int, length: int) -> pa.Array:
    """Return ``length`` copies of the uint64 ``value``."""
    return plain_array(np.full(length, value, dtype=np.uint64))


def system_array(values: NDArray[np.uint64]) -> pa.Array:
    """Zero-copy uint64 Arrow array over ``values``."""
    return plain_array(np.asarray(values, np.uint64))
