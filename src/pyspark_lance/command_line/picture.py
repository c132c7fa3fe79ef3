"""A table as a picture: its fragments over its versions, in SVG.

Each column is a version, each box a fragment, as high as it has rows: green for rows that the
version inserted, blue for those it updated, grey for older ones, red for deleted rows that are
still in the files.  Bands lead from a fragment to its rows in the next version.  The picture shows
the effects of compaction, updates, deletes and restores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.table.history.history import HistoryEntry, history
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle, in pixels from the upper left corner."""

    left: float
    top: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class Band:
    """A filled, curved, translucent strip between two vertical edges."""

    left: tuple[float, float, float]  # Its left edge: x, top, bottom.
    right: tuple[float, float, float]  # Its right edge: x, top, bottom.
    colour: str  # Of the strip.


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text, whose base line begins at (``left``, ``bottom``)."""

    left: float  # Where it begins.
    bottom: float  # Its base line.
    text: str  # The text.
    size: int = 10  # Height of the letters in pixels.
    upright: bool = False  # Read from bottom to top.
    bold: bool = False  # In bold letters.


@dataclass(frozen=True, slots=True)
class Group:
    """A group of boxes with a tooltip."""

    title: str
    boxes: tuple[Box, ...]


Shape = Box | Band | Text | Group
BAND_OPACITY = 0.35
TEXT_COLOUR = "#333333"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture: its size in pixels, and its shapes, later ones over earlier ones."""

    width: int
    height: int
    shapes: Sequence[Shape]


def to_svg(drawing: Drawing) -> str:
    """Return the picture as an SVG document."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawing.width}" '
        f'height="{drawing.height}" font-family="sans-serif" fill="{TEXT_COLOUR}">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(_svg(shape) for shape in drawing.shapes)
        + "\n</svg>\n"
    )


def _svg(shape: Shape) -> str:
    match shape:
        case Box():
            return (
                f'<rect x="{shape.left:.1f}" y="{shape.top:.1f}" width="{shape.width:.1f}" '
                f'height="{shape.height:.1f}" fill="{shape.colour}"/>'
            )
        case Group():
            boxes = "".join(map(_svg, shape.boxes))
            return f"<g><title>{escape(shape.title)}</title>{boxes}</g>"
        case Band():
            return _svg_band(shape)
        case Text():
            weight = ' font-weight="bold"' if shape.bold else ""
            turned = (
                f' transform="rotate(-90 {shape.left:.1f} {shape.bottom:.1f})"'
                if shape.upright
                else ""
            )
            return (
                f'<text x="{shape.left:.1f}" y="{shape.bottom:.1f}" font-size="{shape.size}"'
                f"{weight}{turned}>{escape(shape.text)}</text>"
            )


def _svg_band(band: Band) -> str:
    (x0, top0, bottom0), (x1, top1, bottom1) = band.left, band.right
    middle = (x0 + x1) / 2
    return (
        f'<path d="M{x0:.1f} {top0:.1f}C{middle:.1f} {top0:.1f} {middle:.1f} {top1:.1f} '
        f"{x1:.1f} {top1:.1f}V{bottom1:.1f}C{middle:.1f} {bottom1:.1f} {middle:.1f} "
        f'{bottom0:.1f} {x0:.1f} {bottom0:.1f}Z" fill="{band.colour}" '
        f'fill-opacity="{BAND_OPACITY}"/>'
    )


_MAX_VERSIONS = 60
_WIDE_UP_TO = 16
_HEIGHT, _TOP, _LEFT, _BELOW = 420, 108, 24, 74
_GAP, _MIN_HEIGHT, _MIN_WIDTH = 3.0, 4.0, 3.0
COLOURS = {"inserted": "#3a9e5c", "updated": "#3b78c2", "older": "#b9bec6", "deleted": "#d9534f"}
_KEPT, _MOVED = "#c9ced6", "#3b78c2"
_LEGEND = {
    "inserted": "inserted by this version",
    "updated": "updated by it",
    "older": "older",
    "deleted": "deleted, still in the files",
}


@dataclass(frozen=True, slots=True)
class _Column:
    """The layout of one version."""

    snapshot: Snapshot  # The version.
    left: float  # The left edge of its boxes.
    width: float  # The width of its boxes.
    spans: dict[int, tuple[float, float]]  # Top and height by fragment id.
    # Neighbouring fragments that are too small for separate boxes share one.
    boxes: tuple[tuple[Fragment, ...], ...]

    @property
    def bottom(self) -> float:
        """The bottom of its boxes."""
        return max((top + height for top, height in self.spans.values()), default=float(_TOP))


def _open_versions(table: Table, numbers: Sequence[int]) -> Iterator[Snapshot]:
    """Open the versions that still exist."""
    for number in numbers:
        with contextlib.suppress(VersionNotFoundError):
            yield Snapshot.open(table, VersionSpec(version=number))


def draw_table(table: Table) -> Drawing:
    """Draw the newest remaining versions."""
    newest = Snapshot.open(table)
    older = [one.version for one in list_versions(newest.store) if one.version < newest.version]
    hidden = max(0, len(older) + 1 - _MAX_VERSIONS)
    snapshots = [*_open_versions(table, older[hidden:]), newest]
    numbers = [snapshot.version for snapshot in snapshots]
    entries = {entry.version: entry for entry in history(table, len(numbers))}
    most = max(int(each.manifest.fragments.columns.physical_rows.sum()) for each in snapshots)
    is_wide = len(numbers) <= _WIDE_UP_TO
    width, pitch = (52.0, 92.0) if is_wide else (20.0, 34.0)
    columns = [
        _lay_out(snapshot, _LEFT + index * pitch, width, _HEIGHT / max(1, most))
        for index, snapshot in enumerate(snapshots)
    ]
    bottom = max(column.bottom for column in columns)
    shapes: list[Shape] = [Text(_LEFT, 26, table.uri, 13, bold=True)]
    if hidden:
        shapes.append(Text(_LEFT, 44, f"{hidden} older versions not shown"))
    for before, after in pairwise(columns):
        shapes += _bands(before, after)
    for column in columns:
        shapes += _column(column, entries.get(column.snapshot.version), is_wide=is_wide)
    shapes += _legend(bottom + _BELOW - 16)
    wide = round(2 * _LEFT + (len(columns) - 1) * pitch + width)
    named = 2 * _LEFT + 9 * len(table.uri)
    return Drawing(max(wide, named, 560), round(bottom + _BELOW), shapes)


# Boxes ---------------------------------------------------------------------------------------


def _lay_out(snapshot: Snapshot, left: float, width: float, scale: float) -> _Column:
    boxes: list[list[Fragment]] = []
    filled = _MIN_HEIGHT
    for fragment in snapshot.manifest.fragments:
        height = fragment.physical_rows * scale
        # Fragments that are too small to be visible share a box.
        if filled >= _MIN_HEIGHT or height >= _MIN_HEIGHT:
            boxes.append([])
            filled = 0.0
        boxes[-1].append(fragment)
        filled += height
    spans, top = {}, float(_TOP)
    for box in boxes:
        whole = sum(fragment.physical_rows for fragment in box) * scale
        stretch = max(1.0, _MIN_HEIGHT / whole) if whole else 1.0
        for fragment in box:
            height = fragment.physical_rows * scale * stretch
            spans[fragment.id] = (top, height)
            top += height
        top += _GAP
    return _Column(snapshot, left, width, spans, tuple(map(tuple, boxes)))


def _column(column: _Column, entry: HistoryEntry | None, *, is_wide: bool) -> Iterator[Shape]:
    """Draw the boxes of a version and their labels."""
    version, left = column.snapshot.version, column.left
    operation = entry.operation if entry is not None else ""
    tags = ", ".join(entry.tags) if entry is not None else ""
    rows = _short(column.snapshot.num_rows())
    if is_wide:
        yield Text(left, 72, f"v{version}", 12, bold=True)
        yield Text(left, 88, _cut(operation, 14), 9)
        yield Text(left, 101, _cut(tags, 14), 9)
        yield Text(left, column.bottom + 14, f"{rows} rows", 9)
    else:
        line = f"v{version} {operation}"
        yield Text(left + 13, _TOP - 6, _cut(line, 12), 9, upright=True, bold=bool(tags))
        yield Text(left, column.bottom + 14, rows, 8)
    for box in column.boxes:
        yield Group(_title(box, entry), tuple(_boxes(column, box, version)))


def _title(box: Sequence[Fragment], entry: HistoryEntry | None) -> str:
    first, last = box[0].id, box[-1].id
    name = f"fragment {first}" if len(box) == 1 else f"{len(box)} fragments, {first} to {last}"
    rows = sum(fragment.num_rows for fragment in box)
    deleted = sum(fragment.num_deleted_rows for fragment in box)
    files = sum(len(fragment.files) for fragment in box)
    note = f"\n{entry.user_metadata}" if entry is not None and entry.user_metadata else ""
    return f"{name}: {rows} rows, {deleted} deleted, {files} files{note}"


def _boxes(column: _Column, box: Sequence[Fragment], version: int) -> Iterator[Box]:
    """Draw the rows of a box side by side, by kind of change."""
    top, _ = column.spans[box[0].id]
    height = sum(column.spans[fragment.id][1] for fragment in box)
    counts = _counts(box, version)
    widths = {name: count / max(1, sum(counts.values())) for name, count in counts.items() if count}
    # A single row among a million must be visible.
    widths = {name: max(share * column.width, _MIN_WIDTH) for name, share in widths.items()}
    shrink = column.width / max(1.0, sum(widths.values()))
    left = column.left
    for name, width in widths.items():
        yield Box(left, top, width * shrink, height, COLOURS[name])
        left += width * shrink


def _counts(box: Sequence[Fragment], version: int) -> dict[str, int]:
    """Count physical rows by kind of change; deleted rows count as older ones first."""
    inserted = sum(_rows_at(fragment.created_at, version) for fragment in box)
    updated = max(
        0, sum(_rows_at(fragment.last_updated_at, version) for fragment in box) - inserted
    )
    deleted = sum(fragment.num_deleted_rows for fragment in box)
    older = sum(fragment.physical_rows for fragment in box) - inserted - updated
    counts = {"older": older, "updated": updated, "inserted": inserted}
    left = deleted
    for name in counts:
        taken = min(left, counts[name])
        counts[name] -= taken
        left -= taken
    return {**counts, "deleted": deleted}


def _rows_at(source: object, version: int) -> int:
    """Count the rows of a version sequence that have this version."""
    if not isinstance(source, bytes):
        return 0
    sequence = RowDatasetVersionSequence.from_bytes(source)
    lengths = np.diff(sequence.ends.astype(np.int64), prepend=0)
    return int(lengths[sequence.versions == version].sum())


# Bands ---------------------------------------------------------------------------------------


def _bands(before: _Column, after: _Column) -> Iterator[Band]:
    """Draw bands from the rows of one version to those of the next."""
    old = {fragment.id: fragment for fragment in before.snapshot.manifest.fragments}
    new = after.snapshot.manifest.fragments
    stayed = [fragment for fragment in new if _is_same(old.get(fragment.id), fragment)]
    yield from _bands_of_stayed(before, after, stayed)
    kept = {fragment.id for fragment in stayed}
    arrived = [fragment for fragment in new if fragment.id not in kept]
    changed = [fragment for fragment in old.values() if fragment not in stayed]
    yield from _bands_of_moved(before, after, changed, arrived)


def _is_same(old: Fragment | None, new: Fragment) -> bool:
    """Return whether a fragment has the same rows, apart from deleted rows and new values."""
    return old is not None and (old.physical_rows, old.row_ids) == (new.physical_rows, new.row_ids)


def _bands_of_stayed(before: _Column, after: _Column, stayed: Sequence[Fragment]) -> Iterator[Band]:
    """Draw one band for neighbouring fragments that remain neighbours."""
    runs: list[list[float]] = []
    for fragment in stayed:
        (top, height), (to, grown) = before.spans[fragment.id], after.spans[fragment.id]
        if runs and abs(runs[-1][1] - top) < 0.01 and abs(runs[-1][3] - to) < 0.01:
            runs[-1][1], runs[-1][3] = top + height, to + grown
        else:
            runs.append([top, top + height, to, to + grown])
    for top, bottom, to_top, to_bottom in runs:
        yield _band(before, after, (top, bottom), (to_top, to_bottom), _KEPT)


def _bands_of_moved(
    before: _Column, after: _Column, changed: Sequence[Fragment], arrived: Sequence[Fragment]
) -> Iterator[Band]:
    """Draw a band for each pair of fragments between which rows moved."""
    sources = [fragment for fragment in changed if isinstance(fragment.row_ids, bytes)]
    if not sources or not arrived:
        return
    live_rows = [_live_rows(before.snapshot, source) for source in sources]
    ids = np.concatenate([row_ids for row_ids, _ in live_rows])
    offsets = np.concatenate([offset for _, offset in live_rows])
    owners = np.repeat(np.arange(len(sources)), [len(row_ids) for row_ids, _ in live_rows])
    order = np.argsort(ids)
    for target in arrived:
        if not isinstance(target.row_ids, bytes) or not len(ids):
            continue
        wanted = RowIdSequence.from_bytes(target.row_ids).to_array()
        hits = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
        offsets_in_target = np.flatnonzero(ids[hits] == wanted)
        hits = hits[offsets_in_target]
        is_update = _counts([target], after.snapshot.version)["updated"] > 0
        for owner in np.unique(owners[hits]).tolist():
            mine = owners[hits] == owner
            yield _band(
                before,
                after,
                _stretch(before, sources[owner], offsets[hits[mine]]),
                _stretch(after, target, offsets_in_target[mine]),
                _MOVED if is_update else _KEPT,
            )


def _live_rows(
    snapshot: Snapshot, fragment: Fragment
) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Ids and offsets of the rows that are not deleted."""
    assert isinstance(fragment.row_ids, bytes)
    ids = RowIdSequence.from_bytes(fragment.row_ids).to_array()
    offsets = np.arange(len(ids))
    deleted = snapshot.deletion_vector(fragment)
    if deleted is not None:
        offsets = np.delete(offsets, deleted.to_array().astype(np.int64))
    return ids[offsets], offsets


def _stretch(
    column: _Column, fragment: Fragment, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[float, float]:
    """Top and bottom of as many rows as there are offsets, about where those lie."""
    top, height = column.spans[fragment.id]
    row = height / max(1, fragment.physical_rows)
    first = min(
        max(0.0, float(offsets.mean()) + 0.5 - len(offsets) / 2),
        float(fragment.physical_rows - len(offsets)),
    )
    return top + first * row, top + (first + len(offsets)) * row


def _band(
    before: _Column,
    after: _Column,
    here: tuple[float, float],
    there: tuple[float, float],
    colour: str,
) -> Band:
    return Band((before.left + before.width, *here), (after.left, *there), colour)


# Words ---------------------------------------------------------------------------------------


def _legend(bottom: float) -> Iterator[Shape]:
    left = float(_LEFT)
    for name, meaning in _LEGEND.items():
        yield Box(left, bottom - 9, 10, 10, COLOURS[name])
        yield Text(left + 14, bottom, meaning, 9)
        left += 24 + 6 * len(meaning)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "."


def _short(number: int) -> str:
    """Format a number, such as 950, 12.3k, 450M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            shown = f"{number / size:.1f}" if number < 100 * size else f"{number / size:.0f}"
            return shown.removesuffix(".0") + unit
    return str(number)
