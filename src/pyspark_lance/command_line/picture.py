"""A table as a picture: its fragments over its versions, as SVG.

Each column is a version, each box a fragment, as high as it has rows: green for rows that the
version inserted, blue for those it updated, grey for older ones, red for deleted rows that are
still in the files.  What compaction, updates and deletes do to a table shows at a glance.
"""

from __future__ import annotations

from html import escape

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.table.upkeep.history import HistoryEntry, history
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec

_MOST_VERSIONS = 60
_WIDTH, _GAP, _HEIGHT, _TOP, _LEFT = 46, 14, 420, 60, 20
_COLOURS = {"inserted": "#3a9e5c", "updated": "#3b78c2", "older": "#b9bec6", "deleted": "#d9534f"}


def picture_of(table: Table) -> str:
    """The picture of the newest versions that are left.

    Raises:
        TableNotFoundError: There is no table.
    """
    store = Snapshot.open(table).store
    numbers = [location.version for location in list_versions(store)][-_MOST_VERSIONS:]
    entries = {entry.version: entry for entry in history(table, len(numbers))}
    snapshots = [Snapshot.open(table, VersionSpec(version=number)) for number in numbers]
    most = max(
        sum(fragment.physical_rows for fragment in snapshot.manifest.fragments)
        for snapshot in snapshots
    )
    scale = _HEIGHT / max(1, most)
    parts = []
    for place, snapshot in enumerate(snapshots):
        left = _LEFT + place * (_WIDTH + _GAP)
        parts.append(_heading(left, snapshot.version, entries.get(snapshot.version)))
        top = float(_TOP)
        for fragment in snapshot.manifest.fragments:
            height = max(2.0, fragment.physical_rows * scale)
            parts.append(_box(left, top, height, fragment, snapshot.version))
            top += height + 2
    width = 2 * _LEFT + len(snapshots) * (_WIDTH + _GAP)
    height = (
        _TOP + _HEIGHT + 2 * max(len(snapshot.manifest.fragments) for snapshot in snapshots) + 50
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, 420)}" height="{height}" '
        'font-family="sans-serif" font-size="10">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{_LEFT}" y="16" font-size="13">{escape(table.uri)}</text>\n'
        + "\n".join(parts)
        + "\n"
        + _legend(height - 20)
        + "</svg>\n"
    )


def _heading(left: int, version: int, entry: HistoryEntry | None) -> str:
    what = entry.operation if entry is not None else ""
    note = entry.user_metadata if entry is not None and entry.user_metadata else ""
    return (
        f'<text x="{left}" y="40" font-weight="bold">v{version}<title>{escape(note)}</title></text>'
        f'<text x="{left}" y="52" font-size="8">{escape(what[:12])}</text>'
    )


def _box(left: int, top: float, height: float, fragment: Fragment, version: int) -> str:
    """One fragment, its rows by what the version did to them."""
    shares = _shares(fragment, version)
    parts, at = [], left + 0.0
    for name, share in shares.items():
        width = _WIDTH * share
        if width:
            parts.append(
                f'<rect x="{at:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
                f'fill="{_COLOURS[name]}"/>'
            )
        at += width
    title = (
        f"fragment {fragment.id}: {fragment.num_rows} rows, {fragment.num_deleted_rows} deleted, "
        f"{len(fragment.files)} files"
    )
    return f"<g><title>{title}</title>{''.join(parts)}</g>"


def _shares(fragment: Fragment, version: int) -> dict[str, float]:
    """Shares of the physical rows; deleted ones are taken from the older ones first."""
    rows = max(1, fragment.physical_rows)
    inserted = _rows_at(fragment.created_at, version)
    updated = _rows_at(fragment.last_updated_at, version) - inserted
    older = rows - inserted - max(0, updated)
    counts = {"older": older, "updated": max(0, updated), "inserted": inserted}
    deleted = left = fragment.num_deleted_rows
    for name in counts:
        taken = min(left, counts[name])
        counts[name] -= taken
        left -= taken
    counts["deleted"] = deleted
    return {name: count / rows for name, count in counts.items()}


def _rows_at(source: object, version: int) -> int:
    """Rows of a version sequence that have this version."""
    if not isinstance(source, bytes):
        return 0
    sequence = RowDatasetVersionSequence.from_bytes(source)
    starts = [0, *sequence.ends.tolist()[:-1]]
    runs = zip(starts, sequence.ends.tolist(), sequence.versions.tolist(), strict=True)
    return sum(end - start for start, end, run_version in runs if run_version == version)


def _legend(top: float) -> str:
    parts, left = [], _LEFT
    for name, colour in _COLOURS.items():
        parts.append(
            f'<rect x="{left}" y="{top - 9:.0f}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{left + 14}" y="{top:.0f}">{name}</text>'
        )
        left += 80
    return "".join(parts)
