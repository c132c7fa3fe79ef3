"""HTML of a ``LanceTable`` and of ``detail()`` for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from pyspark_lance.notebook_html import details_as_html, html_or_text, rows_as_html
from pyspark_lance.spark.sql.metadata_tables import DETAIL, Rows
from pyspark_lance.table.history.history import history
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

# Each takes one or two requests, so that this is fast on a distant store, too.
_SHOWN_VERSIONS: Final = 5
_SHOWN_COLUMNS: Final = 12
_HISTORY: Final = ("version", "committed (UTC)", "operation", "rows", "tags", "note")
# Properties may contain anything.
_NOT_SHOWN: Final = ("format", "properties", "consumers")


def table_html(table: Table, held: Callable[[], VersionSpec], text: str) -> str:
    """Return name, version, rows, columns, and the newest versions; ``text`` after an error.

    ``held``: returns the version.
    """

    def make() -> str:
        snapshot = Snapshot.open(table, held())
        names = [field.name for field in snapshot.schema.fields]
        more = [f"… {len(names) - _SHOWN_COLUMNS} more"] if len(names) > _SHOWN_COLUMNS else []
        details = {
            "branch": snapshot.manifest.branch,
            "version": snapshot.version,
            "rows": snapshot.num_rows(),
            "columns": ", ".join([*names[:_SHOWN_COLUMNS], *more]),
        }
        rows = [
            (
                entry.version,
                entry.timestamp,
                entry.operation,
                entry.num_rows,
                ", ".join(entry.tags),
                entry.user_metadata,
            )
            for entry in history(table, _SHOWN_VERSIONS)
        ]
        return details_as_html(f"Lance table {table.uri}", details) + rows_as_html(_HISTORY, rows)

    return html_or_text(make, text)


def show_detail(frame: DataFrame, rows: Rows) -> DataFrame:
    """Make notebooks show the DataFrame of ``detail()`` as a table of names and values."""
    details = {
        name: value
        for name, value in zip(DETAIL.names, rows[0], strict=True)
        if name not in _NOT_SHOWN and value not in (None, [])
    }

    def _repr_html_() -> str:
        return html_or_text(
            lambda: details_as_html("Detail of a Lance table", details), repr(frame)
        )

    frame._repr_html_ = _repr_html_  # type: ignore[method-assign]
    return frame
