"""Metadata tables: history, versions, fragments, indices, tags.

The methods of ``LanceTable``, tables such as ``/path$history``, and the stored procedures return
the same columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.source.scan_rows import to_spark_batch
from pyspark_lance.spark.types.spark_types import arrow_schema_of
from pyspark_lance.table.history.history import HistoryEntry, detail, fragments, history
from pyspark_lance.table.index.index_status import IndexStatus, index_status
from pyspark_lance.table.index.segments import VECTOR
from pyspark_lance.table.nearest.ivf_search import unused_reason
from pyspark_lance.table.refs import branches_of, consumers_of, tags_of
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec, open_existing
from pyspark_lance.table.version.table import Table

Rows = list[tuple[Any, ...]]
_LONG, _TEXT, _TIME, _FLAG = LongType(), StringType(), TimestampType(), BooleanType()


def columns(**types: DataType) -> StructType:
    """Return a schema of nullable columns."""
    return StructType([StructField(name, kind) for name, kind in types.items()])


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """A metadata table.

    ``rows``: reads its rows for a table or branch, at a version; ``of_one_version``: whether they
    describe one version, which may be an old one.
    """

    schema: StructType
    rows: Callable[[Table, VersionSpec], Rows]
    of_one_version: bool = False


HISTORY = columns(
    version=_LONG,
    timestamp=_TIME,
    operation=_TEXT,
    operationMetrics=MapType(_TEXT, _LONG),
    userMetadata=_TEXT,
    applicationId=_TEXT,
    engineInfo=_TEXT,
    numRows=_LONG,
    numFragments=_LONG,
    sizeInBytes=_LONG,
    manifestSizeInBytes=_LONG,
    tags=ArrayType(_TEXT),
)
_OF_COMMITS = ("operation", "operationMetrics", "userMetadata", "applicationId")
VERSIONS = StructType([field for field in HISTORY.fields if field.name not in _OF_COMMITS])
FRAGMENTS = columns(
    fragmentId=_LONG,
    numRows=_LONG,
    physicalRows=_LONG,
    sizeInBytes=_LONG,
    files=ArrayType(_TEXT),
    firstRowId=_LONG,
    lastRowId=_LONG,
    minCreatedAtVersion=_LONG,
    maxCreatedAtVersion=_LONG,
    minLastUpdatedAtVersion=_LONG,
    maxLastUpdatedAtVersion=_LONG,
)
DETAIL = columns(
    format=_TEXT,
    location=_TEXT,
    version=_LONG,
    branch=_TEXT,
    lastModified=_TIME,
    numRows=_LONG,
    numDeletedRows=_LONG,
    numFragments=_LONG,
    numFiles=_LONG,
    sizeInBytes=_LONG,
    manifestSizeInBytes=_LONG,
    numVersions=_LONG,
    oldestVersion=_LONG,
    fileVersion=_TEXT,
    stableRowIds=_FLAG,
    primaryKey=ArrayType(_TEXT),
    clusteringColumns=ArrayType(_TEXT),
    indices=ArrayType(_TEXT),
    properties=MapType(_TEXT, _TEXT),
    basePaths=ArrayType(_TEXT),
    consumers=ArrayType(columns(name=_TEXT, version=_LONG, lag=_LONG)),
    advice=ArrayType(_TEXT),
)
INDICES = columns(
    name=_TEXT,
    kind=_TEXT,
    columns=ArrayType(_TEXT),
    uuid=_TEXT,
    indexVersion=_LONG,
    datasetVersion=_LONG,
    numFragments=_LONG,
    numRows=_LONG,
    numRowsUncovered=_LONG,
    numRowsStale=_LONG,
    sizeInBytes=_LONG,
    used=_FLAG,
    note=_TEXT,
)
TAGS = columns(
    name=_TEXT,
    version=_LONG,
    branch=_TEXT,
    createdAt=_TIME,
    updatedAt=_TIME,
    metadata=MapType(_TEXT, _TEXT),
)
CONSUMERS = columns(name=_TEXT, version=_LONG, lag=_LONG, updatedAt=_TIME)
BRANCHES = columns(name=_TEXT, parentBranch=_TEXT, parentVersion=_LONG, createdAt=_TIME)


def history_rows(table: Table, limit: int | None = None) -> Rows:
    """Return rows of ``HISTORY``, the newest version first; all if ``limit`` is None."""
    return [history_row(entry) for entry in history(table, limit)]


def history_row(entry: HistoryEntry) -> tuple[Any, ...]:
    """Return one row of ``HISTORY``."""
    return (
        entry.version,
        entry.timestamp,
        entry.operation or None,
        dict(entry.metrics),
        entry.user_metadata,
        entry.application_id,
        entry.writer,
        entry.num_rows,
        entry.num_fragments,
        entry.num_bytes,
        entry.manifest_bytes,
        list(entry.tags),
    )


def version_rows(table: Table) -> Rows:
    """Return rows of ``VERSIONS``, the newest first."""
    indices = [HISTORY.names.index(name) for name in VERSIONS.names]
    return [tuple(row[index] for index in indices) for row in history_rows(table)]


def fragment_rows(table: Table, at: VersionSpec = LATEST) -> Rows:
    """Return rows of ``FRAGMENTS``, in the order of the table."""
    return [
        (
            fragment.fragment_id,
            fragment.num_rows,
            fragment.physical_rows,
            fragment.num_bytes,
            list(fragment.files),
            fragment.first_row_id,
            fragment.last_row_id,
            fragment.min_created_at,
            fragment.max_created_at,
            fragment.min_last_updated_at,
            fragment.max_last_updated_at,
        )
        for fragment in fragments(table, at)
    ]


def detail_rows(table: Table, at: VersionSpec = LATEST) -> Rows:
    """Return the single row of ``DETAIL``."""
    about = detail(table, at)
    return [
        (
            "lance",
            about.location,
            about.version,
            about.branch,
            about.last_modified,
            about.num_rows,
            about.num_deleted_rows,
            about.num_fragments,
            about.num_files,
            about.num_bytes,
            about.manifest_bytes,
            about.num_versions,
            about.oldest_version,
            about.file_version,
            about.stable_row_ids,
            list(about.primary_key),
            list(about.clustering_columns),
            list(about.indices),
            dict(about.properties),
            list(about.base_paths),
            [
                {"name": reader.name, "version": reader.version, "lag": reader.lag}
                for reader in about.consumers
            ],
            list(about.advice),
        )
    ]


def index_rows(table: Table, at: VersionSpec = LATEST) -> Rows:
    """Return rows of ``INDICES``, in the order of the manifest."""
    snapshot = Snapshot.open(table, at)

    def note(index: IndexStatus) -> str | None:
        reason = unused_reason(snapshot, index.uuid) if index.kind == VECTOR else ""
        return f"nearest does not use it: {reason}" if reason else index.note

    return [
        (
            index.name,
            index.kind,
            list(index.columns),
            index.uuid,
            index.index_version,
            index.dataset_version,
            index.num_fragments,
            index.num_rows,
            index.num_rows_uncovered,
            index.num_rows_stale,
            index.num_bytes,
            index.is_used,
            note(index),
        )
        for index in index_status(snapshot)
    ]


def tag_rows(table: Table) -> Rows:
    """Return rows of ``TAGS``, by name."""
    return [
        (
            tag.name,
            tag.version,
            tag.branch,
            tag.createdAt,
            tag.updatedAt,
            {key: str(value) for key, value in tag.metadata.items()},
        )
        for tag in tags_of(table)
    ]


def consumer_rows(table: Table) -> Rows:
    """Return rows of ``CONSUMERS``."""
    return [
        (consumer.name, consumer.version, consumer.lag, consumer.updatedAt)
        for consumer in consumers_of(table)
    ]


def branch_rows(table: Table) -> Rows:
    """Return rows of ``BRANCHES``, by name."""
    return [
        (branch.name, branch.parentBranch, branch.parentVersion, branch.createdAt)
        for branch in branches_of(table)
    ]


METADATA_TABLES: Mapping[str, MetadataTable] = {
    "history": MetadataTable(HISTORY, lambda table, _: history_rows(table)),
    "versions": MetadataTable(VERSIONS, lambda table, _: version_rows(table)),
    "fragments": MetadataTable(FRAGMENTS, fragment_rows, of_one_version=True),
    "detail": MetadataTable(DETAIL, detail_rows, of_one_version=True),
    "indices": MetadataTable(INDICES, index_rows, of_one_version=True),
    "tags": MetadataTable(TAGS, lambda table, _: tag_rows(table)),
    "branches": MetadataTable(BRANCHES, lambda table, _: branch_rows(table)),
}
"""Metadata tables by the suffix after the path of a table and ``$``."""

_NAME = re.compile(r"(?P<table>.*[^/])\$(?P<kind>\w*)/*")


def split_metadata_name(name: str) -> tuple[str, str]:
    """Split a name in a catalog into the table's name and the suffix from ``$`` on."""
    own, sign, rows = name.rpartition("$")
    return (own, sign + rows) if own else (name, "")


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """A read of a metadata table such as ``/path$history``."""

    name: str  # The suffix after ``$``.
    table: Table  # The table, or its branch.
    at: VersionSpec  # The version, if the rows describe one.

    @property
    def schema(self) -> StructType:
        """The columns of the rows."""
        return METADATA_TABLES[self.name].schema

    def rows(self) -> Rows:
        """Read the rows."""
        return METADATA_TABLES[self.name].rows(self.table, self.at)

    def not_written(self) -> InvalidInputError:
        """Return the error of a write, as a table with this name would hide the metadata table."""
        return InvalidInputError(
            f"${self.name} is a read-only metadata table",
            where=self.table.root,
            hint="write to the table, or choose a name without $",
        )

    def not_followed(self) -> InvalidInputError:
        """Return the error of a stream."""
        return InvalidInputError(
            f"${self.name} cannot be read as a stream",
            where=self.table.root,
            hint="follow the table, or readChangeFeed",
        )


def metadata_read(options: Mapping[str, str], *, writes: bool = False) -> MetadataRead | None:
    """Return the metadata table that the options of a read name; None for any other table.

    A Lance table whose own path ends with such a suffix takes precedence.

    ``writes``: whether this is a write, which accepts paths with unknown suffixes.
    """
    match = _NAME.fullmatch(options.get("path", ""))
    if match is None:
        return None
    read = ReadOptions.parse(options)
    if open_existing(read.table.on_branch(None)) is not None:
        return None
    table = ReadOptions.parse({**options, "path": match["table"]}).table
    if open_existing(table.on_branch(None)) is None:
        return None  # the caller raises the error of a missing table
    known = METADATA_TABLES.get(match["kind"])
    if known is None and writes:
        return None
    if known is None:
        names = ", ".join(f"${name}" for name in METADATA_TABLES)
        raise InvalidInputError(
            f"there is no ${match['kind']} of a table", where=table.root, hint=f"there is {names}"
        )
    if read.changes is not None or (read.at != LATEST and not known.of_one_version):
        raise InvalidInputError(
            f"${match['kind']} covers all versions",
            where=table.root,
            hint="leave out version, timestampAsOf, tag, readChangeFeed; use WHERE",
        )
    return MetadataRead(match["kind"], table, read.at)


def refuse_write(options: Mapping[str, str]) -> None:
    """Check that the options of a write name no metadata table."""
    named = metadata_read(options, writes=True)
    if named is not None:
        raise named.not_written()


class RowsPartition(InputPartition):
    """The rows, which the driver has read."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows


class LanceMetadataReader(DataSourceReader):
    """Reader of metadata tables on the driver at planning time."""

    def __init__(self, requested: MetadataRead, schema: StructType) -> None:
        self._asked = requested
        self._schema = schema

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition with all rows."""
        return [RowsPartition(self._asked.rows())]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of the partition."""
        if isinstance(partition, RowsPartition):
            whole = rows_as_batch(partition.rows, self._asked.schema)
            yield to_spark_batch(whole, arrow_schema_of(self._schema))


def rows_as_batch(rows: Rows, schema: StructType) -> pa.RecordBatch:
    """Convert rows to the Arrow types of ``schema``."""
    target = arrow_schema_of(schema)
    arrays = [
        pa.array([_arrow_value(row[index]) for row in rows], field.type)
        for index, field in enumerate(target)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _arrow_value(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def rows_to_dataframe(spark: SparkSession, rows: Rows, schema: StructType) -> DataFrame:
    """Return the rows as a DataFrame that needs no Python worker.

    ``createDataFrame`` from Python rows would run a Python task, which prints a traceback when a
    limit ends it.
    """
    return spark.createDataFrame(pa.Table.from_batches([rows_as_batch(rows, schema)]), schema)
