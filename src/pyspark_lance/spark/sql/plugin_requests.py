"""Requests of the JVM plugin: the parameters of each method of the service.

A request has the settings of the session, the user's options, and parameters. The parsers of
options read the settings of the session among the options, as ``LanceTable`` and streams set them.

The classes are not frozen and have no ``repr``: the service creates all of them when it starts,
which takes a fifth of the time without, and a ``repr`` would show storage options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.parse_options import (
    ReadOptions,
    ReadParameters,
    WriteOptions,
    WriteParameters,
)
from pyspark_lance.spark.source.read_plan import PushedDown
from pyspark_lance.table.version.table_identity import PinnedVersion

AnyRequest = TypeVar("AnyRequest", bound="Request")


@dataclass(kw_only=True, repr=False, eq=False)
class Session:
    """The settings of the session that sends a request."""

    application: str = ""  # The id of the Spark application.
    plugin: str = ""  # Version, digest and location of the plugin's jar.
    time_zone: str = "UTC"
    ansi: bool = True
    case_sensitive: bool = False
    # Hadoop's settings for stores.
    hadoop: Mapping[str, str] = field(default_factory=dict)

    def as_options(self) -> dict[str, str]:
        """Return the settings as hidden options."""
        known = {
            keys.APPLICATION: self.application,
            keys.PLUGIN: self.plugin,
            keys.TIME_ZONE: self.time_zone,
            keys.ANSI: str(self.ansi).lower(),
            keys.CASE_SENSITIVE: str(self.case_sensitive).lower(),
            keys.HADOOP: json.dumps(self.hadoop) if self.hadoop else "",
        }
        return {name: text for name, text in known.items() if text}


@dataclass(kw_only=True, repr=False, eq=False)
class Request:
    """Base of all requests: the user's options, with the settings of the session."""

    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(kw_only=True, repr=False, eq=False)
class TableRequest(Request):
    """A request about the table that its options open, or its name in a catalog.

    Spark carries the parameters from the statement to the request with the table.
    """

    catalog: Mapping[str, str] = field(default_factory=dict)  # The settings of the catalog.
    name: tuple[str, ...] = ()  # Namespace and name; empty if the options have a path.
    after: bool = False  # A change feed starts after its first version,
    until: bool = False  # and ends before its last one.
    of_sql: bool = False  # A search is a table function, whose rows the plugin sorts.
    create: bool = False  # The table must not exist yet.
    replace: bool = False  # The table replaces an existing one.
    properties: Mapping[str, str] = field(default_factory=dict)  # Of a new table.
    cluster_by: tuple[str, ...] | None = None  # Clustering columns; None leaves them.
    state: str | None = None  # Of a procedure whose tasks run; the plugin returns it unchanged.

    def read_options(self) -> ReadOptions:
        """Parse the options of a read."""
        return ReadOptions.parse(self.options, self.read_parameters())

    def read_parameters(self) -> ReadParameters:
        """Return the parameters beside the options of a read."""
        return ReadParameters(after=self.after, until=self.until, of_sql=self.of_sql)

    def write_options(self) -> WriteOptions:
        """Parse the options of a write."""
        return WriteOptions.parse(self.options, self.write_parameters())

    def write_parameters(self) -> WriteParameters:
        """Return the parameters beside the options of a write."""
        return WriteParameters(
            create=self.create,
            replace=self.replace,
            properties=self.properties,
            cluster_by=self.cluster_by,
        )


@dataclass(kw_only=True, repr=False, eq=False)
class ScanRequest(TableRequest):
    """A request about rows of the version that the query was analysed on."""

    root: str | None = None
    version: int | None = None
    base: str = ""  # The stamp of that version, which detects a replaced table.
    filter: str | None = None  # A condition as JSON text.
    limit: int | None = None
    top: str | None = None  # The order and the number of its first rows, as JSON text.
    key_columns: tuple[str, ...] = ()  # Each task has one value of these.
    key_tasks: str | None = None  # A digest of the tasks whose keys were reported to Spark.
    whole_fragments: bool = False  # Each fragment is read by one task.

    @property
    def pinned(self) -> PinnedVersion | None:
        """The version; None for the newest."""
        if self.root is None or self.version is None:
            return None
        return PinnedVersion(self.root, self.version, self.base)

    @property
    def pushed(self) -> PushedDown:
        """The pushdown of the scan."""
        return PushedDown(
            filter=self.filter,
            limit=self.limit,
            top=self.top,
            key_columns=self.key_columns,
            key_tasks=self.key_tasks,
            whole_fragments=self.whole_fragments,
        )


# Tables --------------------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class DescribeRequest(TableRequest):
    """Describe the version that the options select."""

    schema: str | None = None  # The user's own, to check.


@dataclass(kw_only=True, repr=False, eq=False)
class CreateRequest(TableRequest):
    """Create an empty table."""

    schema: str


@dataclass(kw_only=True, repr=False, eq=False)
class AlterRequest(TableRequest):
    """Change columns and properties."""

    changes: tuple[Mapping[str, Any], ...]


@dataclass(kw_only=True, repr=False, eq=False)
class DeleteRequest(TableRequest):
    """Delete rows on the driver."""

    filter: str  # A condition as JSON text,
    text: str  # and as the history shows it.


@dataclass(kw_only=True, repr=False, eq=False)
class CreateIndexRequest(TableRequest):
    """Translate a CREATE INDEX to a procedure."""

    index: str
    columns: tuple[list[str], ...]
    of_column: bool  # Whether a column has options of its own.
    index_options: Mapping[str, str]


# Scans ---------------------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class PlanRequest(ScanRequest):
    """Count the remaining fragments and rows; read the rows of a small scan."""

    columns: str | None = None  # The columns of the rows; None reads none.
    transfer_mode: str = "shared"
    small_bytes: int = 0  # A scan of at most this many bytes is small.


@dataclass(kw_only=True, repr=False, eq=False)
class ColumnsRequest(ScanRequest):
    """A request about the columns of a scan."""

    columns: str

    def schema(self) -> StructType:
        """Return the columns."""
        return parse_columns(self.columns)


@dataclass(kw_only=True, repr=False, eq=False)
class ColumnRequest(ScanRequest):
    """A request about a column."""

    column: str


@dataclass(kw_only=True, repr=False, eq=False)
class CountsRequest(ScanRequest):
    """Count matching rows."""

    column: str | None = None  # By its values.


@dataclass(kw_only=True, repr=False, eq=False)
class FirstRequest(ScanRequest):
    """Find a condition of the first rows in the order of a column."""

    column: str
    rows: int
    descending: bool


@dataclass(kw_only=True, repr=False, eq=False)
class RewriteRequest(ScanRequest):
    """Choose whether an UPDATE rewrites rows or columns."""

    columns: tuple[str, ...]  # The assigned columns.
    # Changed rows by fragment id; None for all rows.
    changed: Mapping[str, int] | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class AnalysisRequest(ScanRequest):
    """Find the expressions of ANALYZE TABLE."""

    columns: tuple[str, ...] | None = None  # None for all.


@dataclass(kw_only=True, repr=False, eq=False)
class AnalyzeRequest(ScanRequest):
    """Store the results of the expressions."""

    results: tuple[str, ...]


# Reads and writes ----------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class ReadRequest(ColumnsRequest):
    """Plan the tasks of a read."""

    batches: str | None = None  # The mode in which batches are transferred; None for rows.


@dataclass(kw_only=True, repr=False, eq=False)
class WriteRequest(ColumnsRequest):
    """Plan the tasks of a write; ``filter`` is the condition of the rows that a change reads."""

    overwrite: bool
    replace_where: str | None = None
    # The columns that rows are sorted by, and whose values get separate files.
    split_by: tuple[str, ...] = ()
    # By root, the oldest version that the query reads, and its stamp.
    sources: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    change: str | None = None  # DELETE, UPDATE or MERGE.
    retries: str = ""  # The attempts of earlier runs of the command.
    by_columns: bool = False  # An UPDATE rewrites columns; each fragment is in one task.

    def write_parameters(self) -> WriteParameters:
        """Return the parameters beside the options of a write."""
        return replace(
            super().write_parameters(),
            replace_where=self.replace_where,
            split_by=self.split_by,
            sources=self.sources,
        )


@dataclass(kw_only=True, repr=False, eq=False)
class CommitRequest(Request):
    """Commit or remove the files of tasks."""

    writer: bytes
    messages: tuple[bytes | None, ...]  # None for a task that failed.


# Procedures and statements -------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class UnknownProcedureRequest(Request):
    """A CALL of an unknown procedure."""

    procedure: str


@dataclass(kw_only=True, repr=False, eq=False)
class ProcedureRequest(TableRequest):
    """Run a procedure, or continue it with the results of its tasks."""

    procedure: str
    arguments: Mapping[str, str]
    results: tuple[str, ...] = ()


@dataclass(kw_only=True, repr=False, eq=False)
class StatementRequest(Request):
    """A statement that Spark cannot parse."""

    statement: str


# Catalogs ------------------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class DeclareRequest(TableRequest):
    """Find the location of a new table."""

    location: str | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class RegisterRequest(TableRequest):
    """Register a table that exists."""

    location: str


@dataclass(kw_only=True, repr=False, eq=False)
class RenameRequest(TableRequest):
    """Rename a table."""

    new_name: tuple[str, ...]


@dataclass(kw_only=True, repr=False, eq=False)
class NamespaceRequest(Request):
    """A request about a namespace of a catalog."""

    catalog: Mapping[str, str]
    namespace: tuple[str, ...]


@dataclass(kw_only=True, repr=False, eq=False)
class CreateNamespaceRequest(NamespaceRequest):
    """Create a namespace."""

    properties: Mapping[str, str]


@dataclass(kw_only=True, repr=False, eq=False)
class AlterNamespaceRequest(NamespaceRequest):
    """Change properties of a namespace."""

    properties: Mapping[str, str | None]  # None removes one.


@dataclass(kw_only=True, repr=False, eq=False)
class DropNamespaceRequest(NamespaceRequest):
    """Drop a namespace."""

    cascade: bool


def parse_columns(text: str) -> StructType:
    """Return the columns that a request has as JSON text."""
    return StructType.fromJson(json.loads(text))


def decode_request(kind: type[AnyRequest], message: Mapping[str, Any]) -> AnyRequest:
    """Return the request in a message of the plugin.

    Raises:
        InvalidInputError: The method takes other parameters.
    """
    session = Session(**message.get("session", {}))
    options: Any = CaseInsensitiveDict({**message.get("options", {}), **session.as_options()})
    parameters = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in message.get("params", {}).items()
    }
    try:
        return kind(options=options, **parameters)
    except TypeError as error:
        raise InvalidInputError(
            f"the JVM plugin calls {message.get('method')!r} with other parameters: {error}",
            hint="use the jar of this very version: pyspark_lance.plugin_jar()",
        ) from error
