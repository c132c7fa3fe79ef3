"""The table ``__manifest`` of a folder: one row for each table and namespace.

Every change replaces all rows in one version, as in pylance 14, and is retried after any
concurrent commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.commit.retries import Retries
from pyspark_lance.errors import CommitConflictError, MissingFileError, TableAlreadyExistsError
from pyspark_lance.metafile.manifest_file import retry_if_removed
from pyspark_lance.namespace.namespace import DELIMITER
from pyspark_lance.store.object_store import missing
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import run
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, create_table, write_rows

FOLDER = "__manifest"
TABLE, NAMESPACE = "table", "namespace"
_FILE_VERSION = "2.2"
_RETRIES = 30
_KEY = {"lance-schema:unenforced-primary-key:position": "0"}
_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=_KEY),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)
NO_ROWS = pa.Table.from_batches([], _SCHEMA)


class ManifestTable:
    """Rows of tables and namespaces.

    ``table``: the table that stores them; the first row creates it.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def rows(self) -> pa.Table:
        """Return all rows; none if the table does not exist."""
        return self._newest()[1]

    def _newest(self) -> tuple[Snapshot | None, pa.Table]:
        """Read the newest version and its rows.

        Every change replaces all files, so a concurrent cleanup may remove those of the version
        that is being read.
        """

        def look() -> tuple[Snapshot | None, pa.Table]:
            snapshot = open_existing(self._table)
            if snapshot is None:
                return None, NO_ROWS
            try:
                return snapshot, _rows(snapshot)
            except MissingFileError as error:
                newest = open_existing(self._table)
                if newest is not None and newest.version == snapshot.version:
                    raise
                raise missing(self._table.uri, snapshot.file.location.path) from error

        return retry_if_removed(self._table.store(), look)

    def change(self, edit: Callable[[pa.Table], pa.Table]) -> None:
        """Replace the rows by ``edit(rows)``; do nothing if it returns them unchanged.

        ``edit``: called again after a conflict; its exceptions end the change.
        """
        retries = Retries(_RETRIES)
        while True:
            try:
                return self._change_once(edit)
            except CommitConflictError:
                if not retries.plan_again():
                    raise

    def _change_once(self, edit: Callable[[pa.Table], pa.Table]) -> None:
        snapshot, before = self._newest()
        if snapshot is None:
            if edit(NO_ROWS) is NO_ROWS:
                return
            self._create()
            self._change_once(edit)
            return
        after = edit(before)
        if after is before:
            return
        settings = WriteSettings(overwrite=True, source_version=snapshot.version)
        plan = plan_write(self._table, after.schema, settings, existing=snapshot)
        commit_write(plan, write_rows(plan, after.to_batches()))

    def _create(self) -> None:
        """Create the table without rows, unless another client has created it."""
        settings = WriteSettings(enable_stable_row_ids=False, file_version=_FILE_VERSION)
        with contextlib.suppress(TableAlreadyExistsError):
            create_table(self._table, _SCHEMA, settings)


def _rows(snapshot: Snapshot) -> pa.Table:
    schema = snapshot.schema.to_arrow()
    batches = [batch for task in plan_scan(snapshot, ScanRequest()) for batch in run(task)]
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def row_of(rows: pa.Table, object_id: str) -> dict[str, Any] | None:
    """Return the row with this id."""
    matching = rows.filter(pc.equal(rows["object_id"], object_id)).to_pylist()
    return matching[0] if matching else None


def children(rows: pa.Table, parent: str, object_type: str) -> list[str]:
    """Return names of the tables or namespaces directly in a parent, '' for the root."""
    prefix = f"{parent}{DELIMITER}" if parent else ""
    ids = rows.filter(pc.equal(rows["object_type"], object_type))["object_id"]
    below = pc.utf8_slice_codeunits(ids.filter(pc.starts_with(ids, prefix)), start=len(prefix))
    names: list[str] = below.filter(pc.invert(pc.match_substring(below, DELIMITER))).to_pylist()
    return sorted(names)


def below(rows: pa.Table, parent: str) -> pa.Table:
    """Return the rows of all descendants of a namespace."""
    return rows.filter(pc.starts_with(rows["object_id"], f"{parent}{DELIMITER}"))


def with_row(rows: pa.Table, **values: str | None) -> pa.Table:
    """Add a row, or replace the one with the same id."""
    added = {name: [values.get(name)] for name in rows.column_names}
    kept = without(rows, [values["object_id"] or ""])
    return pa.concat_tables([kept, pa.table(added, schema=rows.schema)])


def without(rows: pa.Table, object_ids: Sequence[str]) -> pa.Table:
    """Remove the rows with these ids; return the same table object if there are none."""
    gone = pc.is_in(rows["object_id"], value_set=pa.array(object_ids, pa.string()))
    return rows.filter(pc.invert(gone)) if pc.any(gone).as_py() else rows
