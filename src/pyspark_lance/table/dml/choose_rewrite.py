"""Rows or columns: which way of giving rows other values is cheaper; pure, no I/O.

Moving rows costs by the rows that change, in all their columns.  Rewriting columns costs by all
physical rows of the touched fragments, in the columns that change.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.scan.stored_sizes import field_widths, row_bytes
from pyspark_lance.table.version.snapshot import Snapshot

# Measured: to find a row that lies anywhere in a file and to decode its columns (CPU of a core).
_SCATTERED_ROW_S = 5e-6
# An object store gives a task some 400 MB/s and takes 200 MB/s; a local disk is faster, but then
# both ways cost little.
_READ_BYTE_S = 2.5e-9
_WRITTEN_BYTE_S = 5e-9
# To make one more file.  Moving rows makes a deletion file and a share of a data file; rewriting
# columns makes one data file, which every later scan of the fragment opens besides.
_FILE_S = 5e-3
# The manifest says of each stretch of rows when it was last updated.  Rows that change here and
# there make many stretches; each is written now and read by every later commit (measured: 3.5 µs
# and 2 µs), and takes ten bytes.  When rows move, those that stay keep their one stretch.
_STRETCH_S = 1e-5
# To count the rows that change is a job of its own; below this cost it is not worth it.
WORTH_COUNTING_S = 2.0


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
    """The mode that an option names."""
    try:
        return RewriteMode(text.strip().lower())
    except ValueError:
        raise InvalidInputError(
            f"the argument rewrite cannot be {text!r}", hint=f"use one of {', '.join(RewriteMode)}"
        ) from None


@dataclass(frozen=True, slots=True)
class RewriteChoice:
    """The way that was taken, and why, for people.

    ``mode``: ``ROWS`` or ``COLUMNS``; ``reason``: what spoke for it: that it was asked for, an
    obstacle, or what each way costs.
    """

    mode: RewriteMode
    reason: str

    def __post_init__(self) -> None:
        """Refuses a plain text in the place of the mode that it equals."""
        check_enum(self.mode, RewriteMode)

    def __str__(self) -> str:
        return f"{self.mode}, because {self.reason}"


_ROWS_COME_OR_GO = RewriteChoice(RewriteMode.ROWS, "it may insert or delete rows, too")


def choose_rewrite(
    snapshot: Snapshot,
    names: Collection[str] | None,
    asked: RewriteMode,
    changed: Mapping[int, int] | Callable[[], Mapping[int, int]],
) -> RewriteChoice:
    """The only place where it is decided whether a change rewrites rows or columns.

    ``names``: top-level columns that get other values; None if rows come or go. ``asked``: anything
    but ``AUTO`` is taken, if it is possible. ``changed``: fragment id -> rows that change, or a job
    that counts them, which runs only if it can pay.
    """
    settled = _settled(snapshot, names, asked)
    if settled is not None or names is None:
        return settled or _ROWS_COME_OR_GO
    everything = snapshot.manifest.fragments.rows_by_id()
    # An index stops answering for a fragment when the column is rewritten; when rows move, it
    # goes on answering for the others.
    if _is_indexed(snapshot, names, everything if callable(changed) else changed):
        return _rows(f"an index answers for {_listed(names)}, and goes on when rows move")
    if callable(changed):
        if rewrite_cost(snapshot, names, everything).rows_s < WORTH_COUNTING_S:
            return _rows("the table is so small that counting the changes would cost more")
        changed = changed()
    cost = rewrite_cost(snapshot, names, changed)
    reason = (
        f"to move {sum(changed.values()):,} of {sum(everything.values()):,} rows takes about "
        f"{cost.rows_s:.2g} s of a core, to rewrite {_listed(names)} for "
        f"{len(changed):,} of {len(everything):,} fragments about {cost.columns_s:.2g} s"
    )
    if cost.columns_s < cost.rows_s:
        return RewriteChoice(RewriteMode.COLUMNS, reason)
    return _rows(reason)


def _settled(
    snapshot: Snapshot, names: Collection[str] | None, asked: RewriteMode
) -> RewriteChoice | None:
    """The choice, where costs have no say in it."""
    if asked is RewriteMode.ROWS:
        return RewriteChoice(asked, "rows were asked for")
    if names is None:
        if asked is RewriteMode.COLUMNS:
            raise adds_or_removes_rows()
        return _ROWS_COME_OR_GO
    if not names:
        return _rows("no column gets another value")
    obstacle = _obstacle(snapshot, names)
    if asked is RewriteMode.COLUMNS:
        if obstacle:
            raise UnsupportedFeatureError(obstacle, where=snapshot.uri, hint="rewrite rows")
        return RewriteChoice(asked, "columns were asked for")
    if obstacle:
        return _rows(obstacle)
    return None


def adds_or_removes_rows() -> InvalidInputError:
    """What a merge is told that asks for columns and does more than update."""
    return InvalidInputError(
        "a merge that inserts or deletes rows does not rewrite columns", hint='use rewrite="auto"'
    )


def _rows(reason: str) -> RewriteChoice:
    return RewriteChoice(RewriteMode.ROWS, reason)


def _listed(names: Collection[str]) -> str:
    return f"column {next(iter(names))!r}" if len(names) == 1 else f"{len(names)} columns"


def rewrite_cost(
    snapshot: Snapshot, names: Collection[str], changed: Mapping[int, int]
) -> RewriteCost:
    """What each way costs, by the sizes that the manifest states.

    The rows that change are taken to be spread over their fragment.

    ``changed``: fragment id -> rows that change.
    """
    rows_s = columns_s = 0.0
    stable = snapshot.uses_stable_row_ids
    widths = field_widths(snapshot.schema.fields)
    chosen = field_widths(field for field in snapshot.schema.fields if field.name in names)
    for fragment in counted_fragments(snapshot):
        count = changed.get(fragment.id, 0)
        if not count:
            continue
        whole = row_bytes(fragment, widths.keys(), widths)
        part = row_bytes(fragment, chosen.keys(), widths)
        # What is deleted as a whole needs no deletion file.
        rows_s += (_FILE_S if count < fragment.num_rows else 0.0) + _FILE_S / 2
        everything_s = fragment.physical_rows * whole * _READ_BYTE_S
        rows_s += min(count * _SCATTERED_ROW_S, everything_s) + count * whole * _WRITTEN_BYTE_S
        stretches = 2 * min(count, max(0, fragment.num_rows - count)) if stable else 0
        columns_s += 2 * _FILE_S + stretches * _STRETCH_S
        columns_s += fragment.physical_rows * part * (_READ_BYTE_S + _WRITTEN_BYTE_S)
    return RewriteCost(rows_s, columns_s)


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
        and (
            index.fragment_bitmap is None
            or any(fragment_id in index.fragment_bitmap for fragment_id in changed)
        )
        for index in snapshot.indices
    )
