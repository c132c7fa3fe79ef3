"""Rows or columns: which way of giving rows other values is cheaper; pure, no I/O.

Moving rows costs by the rows that change, in all their columns.  Rewriting columns costs by all
physical rows of the touched fragments, in the columns that change.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.data_file import DataFile
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.table.fragment_pruning import counted_fragments
from pyspark_lance.table.scan import column_width
from pyspark_lance.table.snapshot import Snapshot

# Measured: to find a row that lies anywhere in a file and to decode its columns (CPU of a core).
_SCATTERED_ROW_S = 5e-6
# To read a byte and to write it again: an object store gives a task some 400 MB/s and takes
# 200 MB/s; a local disk is faster, but then both ways cost little.
_MOVED_BYTE_S = 7.5e-9
# To open, finish and later read one more file; moving rows makes a deletion file and a share of
# a data file, rewriting columns one data file.
_FILE_S = 5e-3


class RewriteMode(enum.StrEnum):
    """How rows get other values."""

    AUTO = "auto"
    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class RewriteCost:
    """Estimated seconds of one core."""

    rows_s: float
    columns_s: float


def rewrite_mode(text: str) -> RewriteMode:
    """The mode that an option names.

    Raises:
        InvalidInputError: There is no such mode.
    """
    try:
        return RewriteMode(text.strip().lower())
    except ValueError:
        raise InvalidInputError(
            f"rows are not rewritten by {text!r}",
            hint=f"use one of {', '.join(RewriteMode)}",
        ) from None


def choose_rewrite(
    snapshot: Snapshot,
    names: Collection[str],
    changed: Mapping[int, int],
    *,
    asked: RewriteMode = RewriteMode.AUTO,
) -> RewriteMode:
    """``ROWS`` or ``COLUMNS``.

    Args:
        snapshot: The version whose rows change.
        names: Top-level columns that get other values.
        changed: Fragment id -> rows that change.
        asked: Anything but ``AUTO`` is taken, if it is possible.

    Raises:
        UnsupportedFeatureError: Columns were asked for, but cannot be rewritten.
    """
    if asked is RewriteMode.ROWS:
        return asked
    obstacle = _obstacle(snapshot, names)
    if asked is RewriteMode.COLUMNS:
        if obstacle:
            raise UnsupportedFeatureError(obstacle, where=snapshot.uri, hint="rewrite rows")
        return asked
    # An index stops answering for a fragment when the column is rewritten; when rows move, it
    # goes on answering for the others.
    if obstacle or _is_indexed(snapshot, names, changed):
        return RewriteMode.ROWS
    cost = rewrite_cost(snapshot, names, changed)
    return RewriteMode.COLUMNS if cost.columns_s < cost.rows_s else RewriteMode.ROWS


def can_rewrite_columns(snapshot: Snapshot, names: Collection[str]) -> bool:
    """Whether columns may be rewritten, and it is worth to look what that costs."""
    every = {fragment.id: 1 for fragment in snapshot.manifest.fragments}
    return not _obstacle(snapshot, names) and not _is_indexed(snapshot, names, every)


def rewrite_cost(
    snapshot: Snapshot, names: Collection[str], changed: Mapping[int, int]
) -> RewriteCost:
    """What each way costs, by the sizes that the manifest states.

    Args:
        snapshot: The version whose rows change.
        names: Top-level columns that get other values.
        changed: Fragment id -> rows that change.
    """
    rows_s = columns_s = 0.0
    chosen = tuple(field for field in snapshot.schema.fields if field.name in names)
    for fragment in counted_fragments(snapshot):
        count = changed.get(fragment.id, 0)
        if not count:
            continue
        whole = _row_bytes(fragment, snapshot.schema.fields)
        part = _row_bytes(fragment, chosen)
        # What is deleted as a whole needs no deletion file.
        rows_s += (_FILE_S if count < fragment.num_rows else 0.0) + _FILE_S / 2
        rows_s += count * (_SCATTERED_ROW_S + whole * _MOVED_BYTE_S)
        columns_s += _FILE_S + fragment.physical_rows * part * _MOVED_BYTE_S
    return RewriteCost(rows_s, columns_s)


def _row_bytes(fragment: Fragment, fields: tuple[Field, ...]) -> float:
    """Stored bytes of one row in ``fields``."""
    total = 0.0
    leaves = {part.id: column_width(part) for field in fields for part in field.walk()}
    for file in fragment.files:
        total += _file_share(file, leaves) / max(1, fragment.physical_rows)
    return total or sum(column_width(field) for field in fields)


def _file_share(file: DataFile, wanted: Mapping[int, float]) -> float:
    """Bytes of a file that hold the wanted fields, if others in it are of middling width."""
    if not wanted or not file.size_bytes:
        return 0.0
    middling = sum(wanted.values()) / len(wanted)
    widths = {field: wanted.get(field, middling) for field in file.fields}
    present = sum(width for field, width in widths.items() if field in wanted)
    return file.size_bytes * present / (sum(widths.values()) or 1.0)


def _obstacle(snapshot: Snapshot, names: Collection[str]) -> str:
    """Why the columns cannot be rewritten; '' if they can."""
    files = (file for fragment in snapshot.manifest.fragments for file in fragment.files)
    if any(file.file_version == "0.1" for file in files):
        return "the table has files of version 0.1, of which no columns are rewritten"
    for field in snapshot.schema.fields:
        if field.name in names and any(part.is_blob or part.is_packed for part in field.walk()):
            return f"the column {field.name!r} is stored as a whole and cannot be rewritten"
    return ""


def _is_indexed(snapshot: Snapshot, names: Collection[str], changed: Mapping[int, int]) -> bool:
    """Whether an index answers for one of the columns in a touched fragment."""
    ids = {
        part.id for field in snapshot.schema.fields if field.name in names for part in field.walk()
    }
    return any(
        ids & set(index.fields)
        and (index.fragment_bitmap is None or any(one in index.fragment_bitmap for one in changed))
        for index in snapshot.indices
    )
