"""Widths of columns: bytes of their values by type, in files, and in memory.

The bytes in files are estimated: the size of a file in the manifest is distributed over its columns
by the widths of their types, and what is left belongs to columns whose values vary in length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.table.version.snapshot import Snapshot

# Default bytes of a value of variable width.
_VARIABLE_WIDTH: Final = 24.0
# Default items of a list or map.
_ITEMS: Final = 8
# Number of sampled fragments: planning must be fast with a million.
_MAX_PARTS: Final = 5000
# Minimum bytes: compressed files may be much smaller than the memory of a broadcast.
_MAX_COMPRESSION: Final = 20
_WIDTHS: Final = "stored widths"


def column_width(field: Field) -> float:
    """Estimate the bytes of one value by its type."""
    if (width := _fixed_width(field)) is not None:
        return width
    if field.children:
        return _items(field) * sum(column_width(child) for child in field.children)
    return _VARIABLE_WIDTH


def _fixed_width(field: Field) -> float | None:
    """Return the bytes of one value; None if they vary, or depend on the children."""
    arrow_type = field.to_arrow().type
    try:
        return float(arrow_type.bit_width) / 8
    except ValueError:
        is_vector = pa.types.is_fixed_size_list(arrow_type) and not field.children
        return arrow_type.list_size * 4.0 if is_vector else None


def _items(field: Field) -> int:
    return _ITEMS if field.is_list or field.is_map else 1


class LeafWidths(NamedTuple):
    """Bytes of one value, or of the items of one list, of each leaf field by field id."""

    bytes: dict[int, float]
    variable: frozenset[int]  # Fields whose values, or whose lists, vary in length.

    @classmethod
    def of(cls, fields: Iterable[Field]) -> LeafWidths:
        """Estimate the widths of the leaves of ``fields`` by their types."""
        widths: dict[int, float] = {}
        variable: set[int] = set()

        def add(field: Field, items: int) -> None:
            widths[field.id] = 0.0 if field.children else items * column_width(field)
            if not field.children and (items > 1 or _fixed_width(field) is None):
                variable.add(field.id)
            for child in field.children:
                add(child, items * _items(field))

        for field in fields:
            add(field, 1)
        return cls(widths, frozenset(variable))


def row_bytes(fragment: Fragment, wanted: Collection[int], widths: LeafWidths) -> float:
    """Return the stored bytes of one row in the ``wanted`` fields."""
    stored = _field_bytes(fragment, widths)
    return sum(stored[field] for field in wanted)


def _field_bytes(fragment: Fragment, widths: LeafWidths) -> dict[int, float]:
    """Estimate the stored bytes of one row in each field."""
    stored = dict(widths.bytes)
    for file in fragment.files:
        if not file.size_bytes:
            continue
        # Dropped fields are assumed to have eight bytes.
        field_bytes = [widths.bytes.get(field, 8.0) for field in file.fields]
        more = file.size_bytes / max(1, fragment.physical_rows) - sum(field_bytes)
        variable = [field in widths.variable for field in file.fields]
        has_long_values = more > 0 and any(variable)
        factor = 1.0 if has_long_values else 1 + more / max(1.0, sum(field_bytes))
        each = more / sum(variable) if has_long_values else 0.0
        for field, width, varies in zip(file.fields, field_bytes, variable, strict=True):
            if field in stored:
                stored[field] = width * factor + (each if varies else 0.0)
    return stored


def stored_widths(snapshot: Snapshot) -> dict[str, float]:
    """Return the stored bytes of one value of each top-level column, by name."""
    if _WIDTHS not in snapshot.memo:
        snapshot.memo[_WIDTHS] = _stored_widths(snapshot)
    return snapshot.memo[_WIDTHS]  # type: ignore[return-value]


def memory_widths(snapshot: Snapshot) -> dict[str, float]:
    """Return the bytes of one value of each top-level column in memory, by name."""
    stored = stored_widths(snapshot)
    return {
        field.name: max(column_width(field), stored[field.name]) for field in snapshot.schema.fields
    }


def read_share(snapshot: Snapshot, fields: Sequence[Field]) -> float:
    """Return the fraction of the bytes of the files that a scan of ``fields`` reads.

    ``fields``: columns, or structs of the table with fewer members.
    """
    columns = {field.name: field for field in snapshot.schema.fields}
    if len(fields) >= len(columns) and all(columns.get(field.name) == field for field in fields):
        return 1.0
    stored = stored_widths(snapshot)
    whole = sum(stored.values())
    read = sum(
        stored[field.name] * column_width(field) / (column_width(columns[field.name]) or 1.0)
        for field in fields
        if field.name in columns
    )
    return min(1.0, read / whole) if whole else 1.0


def _stored_widths(snapshot: Snapshot) -> dict[str, float]:
    widths = LeafWidths.of(snapshot.schema.fields)
    fragments = snapshot.manifest.fragments
    step = 1 + len(fragments) * len(widths.bytes) // _MAX_PARTS
    some = [fragment for fragment in fragments[::step] if fragment.physical_rows]
    sizes = [_field_bytes(fragment, widths) for fragment in some]
    rows = [fragment.physical_rows for fragment in some]
    found: dict[str, float] = {}
    for field in snapshot.schema.fields:
        own = [part.id for part in field.walk()]
        total = sum(
            count * size[part] for count, size in zip(rows, sizes, strict=True) for part in own
        )
        least = column_width(field) / _MAX_COMPRESSION
        found[field.name] = max(total / sum(rows), least) if some else column_width(field)
    return found
