"""Plan a scan request of a pinned snapshot from options and a Spark schema.

The JVM plugin pushes down conditions as typed JSON, a limit, a top N and a key of tasks.

The metadata of a column name the table and version that it was read from. Without the JVM plugin a
write has only the schema of its rows; the metadata let it refuse to overwrite a table with rows of
one of its older versions. Only columns that a query passes through unchanged keep them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from pyspark_lance.errors import InvalidInputError, VersionNotFoundError
from pyspark_lance.format.column_names import (
    ROW_ADDRESS,
    SYSTEM_COLUMNS,
    check_version_columns,
    parse_metadata_columns,
    spellings,
)
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.types.declared_columns import with_user_types
from pyspark_lance.spark.types.spark_types import narrow, spark_schema
from pyspark_lance.table.version.snapshot import Snapshot, open_pinned
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_identity import PinnedVersion, TableIdentity

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_lance.predicate.conditions import Predicate
    from pyspark_lance.table.scan.plan_scan import ScanRequest


# A process that only returns a schema does not import scans and conditions.


@dataclass(frozen=True, slots=True)
class PushedDown:
    """The pushdown of one scan, or of all scans of a DML statement."""

    filter: str | None = None  # A condition as JSON text; None for all rows.
    limit: int | None = None  # None for all rows.
    top: str | None = None  # A top N, as JSON text; None for all rows.
    key_columns: tuple[str, ...] = ()  # Each task has one value of these; empty for any.
    key_tasks: str | None = None  # The digest of the tasks whose keys Spark knows, if any.
    whole_fragments: bool = False  # Each fragment is read by one task.

    def predicate(self, schema: pa.Schema) -> Predicate | None:
        """Parse the condition on columns of ``schema``."""
        if self.filter is None:
            return None
        from pyspark_lance.predicate.json import predicate_from_json

        return predicate_from_json(self.filter, schema)


NOTHING_PUSHED = PushedDown()


def open_analyzed(options: ReadOptions, pinned: PinnedVersion) -> Snapshot:
    """Open the snapshot that the query was analysed on."""
    return open_pinned(Table(pinned.uri, options.table.storage), pinned)


def spark_schema_of(options: ReadOptions, pinned: PinnedVersion) -> StructType:
    """Return the schema of the read in Spark if the user gives none."""
    snapshot = open_analyzed(options, pinned)
    names = list(options.columns) if options.columns is not None else None
    lineage = parse_metadata_columns(
        options.metadata_columns, stable_row_ids=snapshot.uses_stable_row_ids
    )
    if names is not None:
        # The option columns may name lineage columns too.
        chosen = {name.lower() for name in names if name.lower() in SYSTEM_COLUMNS}
        lineage = tuple(n for n in SYSTEM_COLUMNS if n in chosen or n in lineage)
        names = [name for name in names if name.lower() not in SYSTEM_COLUMNS]
    check_version_columns(lineage, stable_row_ids=snapshot.uses_stable_row_ids, uri=snapshot.uri)
    shown = visible_columns(options, snapshot)
    schema = shown if names is None else _project(shown, names)
    result = with_user_types(spark_schema(schema, lineage), schema)
    if not result.fields:
        raise InvalidInputError("the read selects no columns", where=options.table.uri)
    return result


def _project(schema: LanceSchema, names: list[str]) -> LanceSchema:
    from pyspark_lance.table.scan.plan_scan import project

    return project(schema, names)


def visible_columns(options: ReadOptions, snapshot: Snapshot) -> LanceSchema:
    """Return the columns as Spark sees them: JSON as text, blobs as descriptors or binary."""
    if not options.blob_columns:
        return logical_schema(snapshot.schema, located=True)
    fields = snapshot.schema.fields
    blobs = spellings(one.name for one in fields if any(part.is_blob for part in one.walk()))
    names = set()
    for name in options.blob_columns:
        name_of_blob = blobs.find_name(name)
        if name_of_blob is None:
            raise InvalidInputError(
                f"the option blobColumns names {name!r}, which is not a blob column",
                hint=f"blob columns: {', '.join(sorted(blobs)) or 'none'}",
            )
        names.add(name_of_blob)
    return logical_schema(snapshot.schema, binary_blobs=names, located=True)


def scan_request_of(
    options: ReadOptions,
    schema: StructType,
    snapshot: Snapshot,
    pushed: PushedDown = NOTHING_PUSHED,
) -> ScanRequest:
    """Return the scan request for the columns of ``schema``, which Spark or the user projected."""
    from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_ROWS, ScanRequest, predicate_schema

    columns, lineage = narrow(visible_columns(options, snapshot), schema)
    if not schema.fields:
        # Spark only counts the rows, but a batch without columns has no number of rows.
        lineage = (ROW_ADDRESS,)
    predicate = condition_of(options, pushed, predicate_schema(snapshot.schema))
    return ScanRequest(
        schema=columns,
        system_columns=tuple(name for name in SYSTEM_COLUMNS if name in lineage),
        predicate=predicate,
        fragments_per_task=options.fragments_per_partition,
        splits_fragments=not pushed.whole_fragments,
        batch_rows=options.batch_rows or DEFAULT_BATCH_ROWS,
        checks_text=options.checks_text,
    )


def condition_of(options: ReadOptions, pushed: PushedDown, schema: pa.Schema) -> Predicate | None:
    """Return the conjunction of the option ``filter`` and the pushed condition, if any."""
    if options.filter is None:
        return pushed.predicate(schema)
    from pyspark_lance.predicate.conditions import all_of
    from pyspark_lance.predicate.parse import parse_predicate

    own = parse_predicate(options.filter, schema, time_zone=options.time_zone, ansi=options.ansi)
    return all_of([term for term in (own, pushed.predicate(schema)) if term is not None])


_ROOT_KEY, _VERSION_KEY, _STAMP_KEY = "lance.root", "lance.version", "lance.stamp"


def with_origin(schema: StructType, pinned: PinnedVersion) -> StructType:
    """Add the origin to the columns of a read of the newest version."""
    origin = {_ROOT_KEY: pinned.uri, _VERSION_KEY: pinned.version, _STAMP_KEY: pinned.stamp}
    return StructType(
        [
            StructField(
                field.name, field.dataType, field.nullable, {**(field.metadata or {}), **origin}
            )
            for field in schema.fields
        ]
    )


def version_read(
    schema: StructType, sources: Mapping[str, tuple[int, str]], target: Snapshot
) -> int | None:
    """Return the oldest version of ``target`` that rows were read from; None if none is known.

    Raises TableReplacedError: the rows were read from a table that was replaced since.

    ``sources``: by root, the oldest version that the query reads, and its stamp.
    """
    found = [PinnedVersion(root, *source) for root, source in sources.items()]
    for column in schema.fields:
        root, version, stamp = map(
            (column.metadata or {}).get, (_ROOT_KEY, _VERSION_KEY, _STAMP_KEY)
        )
        if isinstance(version, int):
            found.append(PinnedVersion(str(root), version, str(stamp or "")))
    own = [one for one in found if one.uri == target.uri]
    for one in own:
        if one.version == target.version:
            TableIdentity(one.version, one.stamp).check(target.manifest, target.uri)
        else:  # the overwrite is refused with this origin
            with contextlib.suppress(VersionNotFoundError):
                open_pinned(target.table, one)
    return min((one.version for one in own), default=None)
