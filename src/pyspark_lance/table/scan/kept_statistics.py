"""What an analysis found of columns, which the configuration of a table keeps.

Lance carries the configuration from version to version, so what it says may be of an older one.
Counts are scaled to the rows that there are; bounds are told only while the rows are the ones that
were looked at; and nothing is told any more once there are far fewer rows or far more, or of
another column that has the name by now.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark_lance.format.column_names import by_name
from pyspark_lance.format.field import Field
from pyspark_lance.table.version.snapshot import OWN_PREFIX, Snapshot

PREFIX: Final = f"{OWN_PREFIX}statistics."
# With so many times the rows, or so many times fewer, what was found says nothing.
_MAX_GROWTH = 4
# Of values that are nearly all distinct, new rows have others.
_NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class KeptStatistics:
    """What was found of a top-level column in one version."""

    version: int
    num_rows: int  # Live rows of that version.
    rows_digest: str  # Of ``rows_digest``: tells that version from others by their fragments.
    field_id: int
    type_name: str  # The logical type of the column.
    num_nulls: int
    num_distinct: int  # Approximately; nulls do not count.
    minimum: str | bool | None = None  # As conditions in JSON have it; None if not known.
    maximum: str | bool | None = None
    average_bytes: int | None = None  # Of texts and binary values; None of others.
    most_bytes: int | None = None

    def text(self) -> str:
        """As the configuration keeps it."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))


def kept_statistics(snapshot: Snapshot, name: str) -> KeptStatistics | None:
    """What is known of a column, scaled to the rows of ``snapshot``; None for nothing."""
    text = snapshot.manifest.config.get(PREFIX + name)
    field = by_name(snapshot.schema.fields).get(name)
    known = None if text is None else _parsed(text)
    if known is None or field is None or not _is_of(known, field):
        return None
    rows = snapshot.manifest.fragments.num_rows
    if not known.num_rows <= rows * _MAX_GROWTH or not rows <= known.num_rows * _MAX_GROWTH:
        return None
    if known.rows_digest == rows_digest(snapshot):
        return known
    share = rows / max(1, known.num_rows)
    nulls = min(rows, round(known.num_nulls * share))
    distinct = known.num_distinct
    if distinct >= _NEARLY_ALL * (known.num_rows - known.num_nulls):
        distinct = round(distinct * share)
    return replace(
        known,
        num_rows=rows,
        num_nulls=nulls,
        num_distinct=min(distinct, rows - nulls),
        minimum=None,
        maximum=None,
    )


def rows_digest(snapshot: Snapshot) -> str:
    """Differs between versions that have not the same fragments, of the same rows and bytes."""
    columns = snapshot.manifest.fragments.columns
    digest = hashlib.blake2b(digest_size=12)
    for numbers in (columns.ids, columns.physical_rows, columns.num_rows, columns.num_bytes):
        digest.update(numbers.astype("<i8").tobytes())
    return digest.hexdigest()


def found_statistics(
    snapshot: Snapshot, found: Mapping[str, Mapping[str, Any]], num_rows: int
) -> dict[str, str]:
    """The entries of the configuration that keep what was found.

    ``found``: by column, the values of the fields of ``KeptStatistics`` that aggregates tell;
    ``num_rows``: as the aggregates counted them.
    """
    fields = by_name(snapshot.schema.fields)
    common = (snapshot.version, num_rows, rows_digest(snapshot))
    return {
        PREFIX + name: KeptStatistics(
            *common, fields[name].id, fields[name].logical_type, **values
        ).text()
        for name, values in found.items()
    }


def outdated(snapshot: Snapshot) -> list[str]:
    """The entries that say something of columns that are gone or are others by now."""
    fields = {PREFIX + field.name: field for field in snapshot.schema.fields}
    gone = []
    for key, text in snapshot.manifest.config.items():
        known = _parsed(text) if key.startswith(PREFIX) else None
        if key.startswith(PREFIX) and not (known and key in fields and _is_of(known, fields[key])):
            gone.append(key)
    return gone


def _is_of(known: KeptStatistics, field: Field) -> bool:
    return (known.field_id, known.type_name) == (field.id, field.logical_type)


def _parsed(text: str) -> KeptStatistics | None:
    """None for what another release may have written."""
    try:
        return KeptStatistics(**json.loads(text))
    except (ValueError, TypeError):
        return None
