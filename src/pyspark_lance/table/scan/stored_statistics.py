"""Column statistics of ANALYZE, stored in the table configuration.

Later versions inherit the configuration, so the statistics may be outdated. Counts are scaled to
the current number of rows, and bounds are used only while the rows are unchanged. Statistics are
ignored once the number of rows has changed too much, or the column was replaced.
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
# Statistics are ignored if the number of rows has changed by this factor.
_MAX_GROWTH = 4
# Above this fraction of distinct values, new rows are assumed to have new values.
_NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class StoredStatistics:
    """The statistics of a top-level column in one version."""

    version: int
    num_rows: int  # Live rows of that version.
    rows_digest: str  # Of ``rows_digest``: identifies the fragments of that version.
    field_id: int
    type_name: str  # The logical type of the column.
    num_nulls: int
    num_distinct: int  # Approximately; nulls do not count.
    minimum: str | bool | None = None  # As in JSON predicates; None if unknown.
    maximum: str | bool | None = None
    average_bytes: int | None = None  # Of strings and binary values, else None.
    most_bytes: int | None = None

    def text(self) -> str:
        """Serialize for the configuration."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))


def stored_statistics(snapshot: Snapshot, name: str) -> StoredStatistics | None:
    """Return the statistics of a column, scaled to the rows of ``snapshot``; None without any."""
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
    """Hash the ids, rows and sizes of the fragments of a version."""
    columns = snapshot.manifest.fragments.columns
    digest = hashlib.blake2b(digest_size=12)
    for numbers in (columns.ids, columns.physical_rows, columns.num_rows, columns.num_bytes):
        digest.update(numbers.astype("<i8").tobytes())
    return digest.hexdigest()


def statistics_entries(
    snapshot: Snapshot, found: Mapping[str, Mapping[str, Any]], num_rows: int
) -> dict[str, str]:
    """Return the configuration entries of new statistics.

    ``found``: aggregated fields of ``StoredStatistics`` by column; ``num_rows``: as counted by the
    same aggregation.
    """
    fields = by_name(snapshot.schema.fields)
    common = (snapshot.version, num_rows, rows_digest(snapshot))
    return {
        PREFIX + name: StoredStatistics(
            *common, fields[name].id, fields[name].logical_type, **values
        ).text()
        for name, values in found.items()
    }


def outdated(snapshot: Snapshot) -> list[str]:
    """Return the entries of columns that were dropped or replaced."""
    fields = {PREFIX + field.name: field for field in snapshot.schema.fields}
    outdated_keys = []
    for key, text in snapshot.manifest.config.items():
        known = _parsed(text) if key.startswith(PREFIX) else None
        if key.startswith(PREFIX) and not (known and key in fields and _is_of(known, fields[key])):
            outdated_keys.append(key)
    return outdated_keys


def _is_of(known: StoredStatistics, field: Field) -> bool:
    return (known.field_id, known.type_name) == (field.id, field.logical_type)


def _parsed(text: str) -> StoredStatistics | None:
    """Parse an entry; None if another release wrote it in an unknown form."""
    try:
        return StoredStatistics(**json.loads(text))
    except (ValueError, TypeError):
        return None
