"""Responses to the JVM plugin: the results of each method of the service.

``encode_response`` encodes them. A field that is None is absent in the message; in Java
``Python``, ``PythonRead``, ``PythonWrite`` and ``Description`` read all fields. Columns have the
JSON text of Spark's types, values the form of literals in conditions.

As in ``plugin_requests``, the classes are not frozen and have no ``repr``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(kw_only=True, repr=False, eq=False)
class Response:
    """Result of a method; this class itself for one without a result."""


@dataclass(kw_only=True, repr=False, eq=False)
class NamespaceResponse(Response):
    """A response about a namespace, for whose absence Spark has its own error."""

    no_namespace: bool | None = None
    """True if there is no such namespace."""


# Tables --------------------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class TableDescription(Response):
    """Description of rows to read; if Python computes them, only columns and title are known."""

    schema: str
    """The columns that the options select."""
    title: str
    """The table and its version in EXPLAIN."""
    root: str = ""
    """The table or branch."""
    version: int = 0
    """The version that the options select; scans read it."""
    base: str | None = None
    """The stamp of the version, which detects a replaced table."""
    rows: int = -1
    """Live rows; -1 if only a scan can count them."""
    fragments: int | None = None
    """Fragments of the version."""
    num_indices: int | None = None
    """Indices of the version, of all kinds."""
    declared: str | None = None
    """The columns with their declared types, such as ``varchar(10)``."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The properties that the table stores."""
    primary_key: Sequence[str] = ()
    """The columns of the primary key, in its order."""
    cluster_by: Sequence[str] = ()
    """The clustering columns that the read shows."""
    lineage: Sequence[str] = ()
    """The hidden columns."""
    prunable: Sequence[str] = ()
    """Columns by which a join can prune at run time."""
    ordered: Sequence[str] = ()
    """Columns whose first values indices know."""
    counted: Sequence[str] = ()
    """Columns for each of whose values an index knows the number of rows."""
    keys: Sequence[str] = ()
    """The columns by which rows have been sorted."""
    split: Sequence[str] = ()
    """The columns whose values have separate files."""
    widths: Mapping[str, int] = field(default_factory=dict)
    """Bytes of a value in memory, by column."""
    stored: Mapping[str, float] = field(default_factory=dict)
    """Bytes of a value in data files, by column."""
    types: Mapping[str, Any] = field(default_factory=dict)
    """Types of columns in conditions, by name; a struct has a mapping of its fields. Conditions on
    other columns cannot be pushed down."""
    blobs: Mapping[str, str] = field(default_factory=dict)
    """The Spark types that columns with blobs accept in a write; reads show other types."""


@dataclass(kw_only=True, repr=False, eq=False)
class FindResponse(Response):
    """Description of a table that may be missing."""

    table: TableDescription | None = None
    """The table; None if there is none."""
    options: Mapping[str, str] | None = None
    """The options that open it, if the request has its name in a catalog."""
    is_external: bool = False
    """Whether dropping its name keeps its files."""


@dataclass(kw_only=True, repr=False, eq=False)
class ExistsResponse(Response):
    """Existence of a table."""

    exists: bool
    """True if there is one."""


@dataclass(kw_only=True, repr=False, eq=False)
class PropertiesResponse(Response):
    """Options of a new table."""

    properties: Mapping[str, str]
    """The table properties that give a new table the columns of this one."""


@dataclass(kw_only=True, repr=False, eq=False)
class IndexDescription:
    """An index over columns."""

    name: str
    """Its name."""
    kind: str
    """As in ``listIndices``."""
    columns: Sequence[Sequence[str]]
    """The path of each column."""


@dataclass(kw_only=True, repr=False, eq=False)
class IndicesResponse(Response):
    """The indices of a table."""

    indices: Sequence[IndexDescription]
    """Those over columns."""


@dataclass(kw_only=True, repr=False, eq=False)
class CreateIndexResponse(Response):
    """Execution plan of a CREATE INDEX."""

    procedure: str
    """The procedure that creates the index,"""
    arguments: Mapping[str, str]
    """and its arguments."""


# Scans ---------------------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class PlanResponse(Response):
    """A scan after pruning by metadata."""

    rows: int
    """At most this many are returned; -1 if only the scan can count them."""
    fragments: int | None = None
    """Fragments to read."""
    indices: Sequence[str] = ()
    """Titles of the indices that pruned rows."""
    batches: Sequence[bytes | pa.Buffer] | None = None
    """The rows of a small scan, as Arrow streams; None if it is not small."""


@dataclass(kw_only=True, repr=False, eq=False)
class TaskKeysResponse(Response):
    """The partitioning key of each task; all fields are None if tasks have none."""

    columns: Sequence[str] | None = None
    """The columns of the key."""
    values: Sequence[Sequence[Any]] | None = None
    """Their values in each task."""
    tasks: str | None = None
    """A digest of the tasks, to detect a different plan when they run."""


@dataclass(kw_only=True, repr=False, eq=False)
class ColumnEstimate:
    """Estimates of a column; None if they are unknown."""

    distinct: int
    """Distinct values."""
    nulls: int
    """Nulls."""
    min: Any
    """The first value."""
    max: Any
    """The last value."""
    average_bytes: int | None
    """Bytes of a value, on average,"""
    most_bytes: int | None
    """and at most."""


@dataclass(kw_only=True, repr=False, eq=False)
class StatisticsResponse(Response):
    """Estimates for Spark's cost-based optimizer, after the pushed condition."""

    rows: int
    """Rows of the scan."""
    columns: Mapping[str, ColumnEstimate]
    """Of those columns that have estimates."""


@dataclass(kw_only=True, repr=False, eq=False)
class RewriteResponse(Response):
    """The choice for an UPDATE."""

    by_columns: bool


@dataclass(kw_only=True, repr=False, eq=False)
class BoundsResponse(Response):
    """Metadata bounds of the values of a column."""

    bounds: Sequence[Any] | None = None
    """The first value and the last one, which are null if there is none; None if unknown."""
    count: int | None = None
    """The number of values; None if unknown."""


@dataclass(kw_only=True, repr=False, eq=False)
class CountsResponse(Response):
    """Counts of rows."""

    rows: Sequence[Sequence[Any]] | None = None
    """Each value and its number of rows, or null and the number of all rows; None if unknown."""


@dataclass(kw_only=True, repr=False, eq=False)
class FirstResponse(Response):
    """A condition of the first rows of an order."""

    filter: str | None = None
    """The condition as JSON text; None if none is known."""


@dataclass(kw_only=True, repr=False, eq=False)
class AnalysisResponse(Response):
    """Expressions that ANALYZE TABLE evaluates."""

    expressions: Sequence[str]
    """Expressions of SQL over all rows; ``analyze`` stores their results."""


# Reads and writes ----------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class ReadResponse(Response):
    """The tasks of a read."""

    function: bytes
    """The pickled function that a task calls with its partition."""
    partitions: Sequence[bytes]
    """The pickled partition of each task."""


@dataclass(kw_only=True, repr=False, eq=False)
class WriteResponse(Response):
    """The tasks of a write."""

    function: bytes
    """The pickled function that a task calls with its rows."""
    writer: bytes
    """The pickled writer, which commits the output of the tasks."""


# Procedures and statements -------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class ProcedureDescription:
    """A procedure."""

    description: str
    """For DESCRIBE PROCEDURE, which shows nothing else."""
    parameters: str
    """Its parameters, as columns; those that may be left out are nullable."""
    rewrites: bool
    """Whether it changes the rows that a table shows."""


@dataclass(kw_only=True, repr=False, eq=False)
class ProceduresResponse(Response):
    """All procedures."""

    procedures: Mapping[str, ProcedureDescription]
    """By name."""


@dataclass(kw_only=True, repr=False, eq=False)
class ProcedureResponse(Response):
    """The result of a procedure, or work to do before it continues."""

    state: str | None = None
    """Of a procedure whose tasks are to run; None if it is done."""
    title: str | None = None
    """What these tasks do, for people."""
    schema: str | None = None
    """The columns of its result, if it is done,"""
    rows: str | None = None
    """and its rows, as JSON text."""


@dataclass(kw_only=True, repr=False, eq=False)
class StatementResponse(Response):
    """Handling of a statement that Spark cannot parse; all fields are None if unknown."""

    run: str | None = None
    """The statement to run instead."""
    refused: str | None = None
    """The message of the error to raise: Spark's parser must not raise one of the analysis."""


# Catalogs ------------------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class DeclareResponse(NamespaceResponse):
    """The location of a new table."""

    options: Mapping[str, str] | None = None
    """The options that open it."""
    is_new: bool = False
    """Whether the catalog has the name since this request."""


@dataclass(kw_only=True, repr=False, eq=False)
class DropResponse(Response):
    """Outcome of a drop."""

    dropped: bool
    """Whether there was such a table."""


@dataclass(kw_only=True, repr=False, eq=False)
class TablesResponse(NamespaceResponse):
    """The tables of a namespace."""

    tables: Sequence[str] = ()
    """Their names."""
    namespace: Sequence[str] = ()
    """The name of the namespace; the root's own if the request has none."""


@dataclass(kw_only=True, repr=False, eq=False)
class NamespacesResponse(NamespaceResponse):
    """The namespaces in a namespace."""

    namespaces: Sequence[str] = ()
    """Their last names."""


@dataclass(kw_only=True, repr=False, eq=False)
class NamespacePropertiesResponse(NamespaceResponse):
    """A namespace."""

    properties: Mapping[str, str] | None = None
    """Its properties."""


@dataclass(kw_only=True, repr=False, eq=False)
class CreateNamespaceResponse(Response):
    """Outcome of CREATE NAMESPACE."""

    done: bool
    """False if the namespace exists."""


@dataclass(kw_only=True, repr=False, eq=False)
class DropNamespaceResponse(NamespaceResponse):
    """Outcome of DROP NAMESPACE."""

    done: bool | None = None
    """Whether there was such a namespace."""
    not_empty: bool | None = None
    """True if the namespace has tables or namespaces, which only CASCADE drops."""


def encode_response(value: Any) -> Any:
    """Return a response as the values of a message, without the fields that are None."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: encode_response(own) for name, own in vars(value).items() if own is not None}
    if isinstance(value, Mapping):
        return {name: encode_response(own) for name, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode_response(own) for own in value]
    return value
