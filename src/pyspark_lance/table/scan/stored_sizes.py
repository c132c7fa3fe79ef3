"""Estimate the stored bytes of columns by the file sizes in the manifest.

The size of a file is distributed over its columns by the widths of their types.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.table.scan.plan_scan import VARIABLE_WIDTH, column_width
from pyspark_lance.table.version.snapshot import Snapshot

# Number of sampled fragments: planning must be fast with a million.
_MAX_PARTS = 5000
# Minimum bytes: compressed files may be much smaller than the memory of a broadcast.
_MAX_COMPRESSION = 20
_WIDTHS = "stored widths"


def field_widths(fields: Iterable[Field]) -> dict[int, float]:
    """Estimate the bytes of a value of each leaf field, by field id."""
    parts = (part for field in fields for part in field.walk())
    return {part.id: column_width(part) if part.is_leaf else 0.0 for part in parts}


def row_bytes(fragment: Fragment, wanted: Collection[int], widths: Mapping[int, float]) -> float:
    """Return the stored bytes of one row in the ``wanted`` fields."""
    stored = _field_bytes(fragment, widths)
    return sum(stored[field] for field in wanted)


def _field_bytes(fragment: Fragment, widths: Mapping[int, float]) -> dict[int, float]:
    """Estimate the stored bytes of one row in each field.

    The size of a file is distributed by the widths of its fields. The excess is assigned to fields
    of variable width, if any.
    """
    stored = dict(widths)
    for file in fragment.files:
        if not file.size_bytes:
            continue
        # Dropped fields are assumed to have eight bytes.
        field_bytes = [widths.get(field, 8.0) for field in file.fields]
        more = file.size_bytes / max(1, fragment.physical_rows) - sum(field_bytes)
        many = sum(width == VARIABLE_WIDTH for width in field_bytes)
        factor = 1.0 if more > 0 and many else 1 + more / max(1.0, sum(field_bytes))
        each = more / many if more > 0 and many else 0.0
        for field, width in zip(file.fields, field_bytes, strict=True):
            if field in stored:
                stored[field] = width * factor + (each if width == VARIABLE_WIDTH else 0.0)
    return stored


def stored_widths(snapshot: Snapshot) -> dict[str, float]:
    """Return the stored bytes of one value of each top-level column, by name."""
    if _WIDTHS not in snapshot.memo:
        snapshot.memo[_WIDTHS] = _stored_widths(snapshot)
    return snapshot.memo[_WIDTHS]  # type: ignore[return-value]


def _stored_widths(snapshot: Snapshot) -> dict[str, float]:
    widths = field_widths(snapshot.schema.fields)
    fragments = snapshot.manifest.fragments
    step = 1 + len(fragments) * len(widths) // _MAX_PARTS
    some = [fragment for fragment in fragments[::step] if fragment.physical_rows]
    sizes = [_field_bytes(fragment, widths) for fragment in some]
    rows = [fragment.physical_rows for fragment in some]
    found: dict[str, float] = {}
    for field in snapshot.schema.fields:
        own = field_widths([field])
        total = sum(
            count * size[part] for count, size in zip(rows, sizes, strict=True) for part in own
        )
        least = column_width(field) / _MAX_COMPRESSION
        found[field.name] = max(total / sum(rows), least) if some else column_width(field)
    return found
