"""Handlers of the requests that the JVM plugin sends about tables."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType, UserDefinedType

from pyspark_lance.errors import (
    LanceError,
    TableAlreadyExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pyspark_lance.format.clustering import ClusterBy
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS, match_names
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.schema import LanceSchema, primary_key
from pyspark_lance.predicate.conditions import Predicate, columns_of
from pyspark_lance.predicate.json import literal_node
from pyspark_lance.predicate.tree import TRUE
from pyspark_lance.predicate.types import (
    INTERVAL,
    NULL,
    TIME,
    is_comparable,
    spark_type_of,
    type_name,
)
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.read_plan import (
    PushedDown,
    condition_of,
    open_analyzed,
    scan_request_of,
    spark_schema_of,
    visible_columns,
)
from pyspark_lance.spark.sql.plugin_requests import (
    AlterRequest,
    AnalysisRequest,
    AnalyzeRequest,
    ColumnRequest,
    ColumnsRequest,
    CountsRequest,
    CreateIndexRequest,
    CreateRequest,
    DeleteRequest,
    DescribeRequest,
    FirstRequest,
    PlanRequest,
    ProcedureRequest,
    Request,
    RewriteRequest,
    ScanRequest,
    StatementRequest,
    TableRequest,
    UnknownProcedureRequest,
    parse_columns,
)
from pyspark_lance.spark.sql.plugin_responses import (
    AnalysisResponse,
    BoundsResponse,
    ColumnEstimate,
    CountsResponse,
    CreateIndexResponse,
    ExistsResponse,
    FindResponse,
    FirstResponse,
    IndicesResponse,
    PlanResponse,
    ProcedureResponse,
    ProceduresResponse,
    PropertiesResponse,
    Response,
    RewriteResponse,
    StatementResponse,
    StatisticsResponse,
    TableDescription,
    TaskKeysResponse,
)
from pyspark_lance.spark.types.declared_columns import declared_schema
from pyspark_lance.spark.types.spark_types import arrow_schema_of, spark_field
from pyspark_lance.table.index.lookups import indexed_columns
from pyspark_lance.table.index.segments import BLOOMFILTER
from pyspark_lance.table.index.zone_map_file import zoned_columns
from pyspark_lance.table.scan.column_widths import memory_widths, stored_widths
from pyspark_lance.table.scan.key_groups import key_columns, split_columns
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.scan.scan_statistics import (
    column_statistics,
    end_of_first_rows,
    lineage_bounds,
    prune_scan,
)
from pyspark_lance.table.version.snapshot import Snapshot, open_existing, properties_of
from pyspark_lance.table.version.table import suggest_paths

if TYPE_CHECKING:
    from pyspark_lance.spark.sql.metadata_tables import MetadataRead

# Spark evaluates conditions on columns of these types.
_NOT_COMPARABLE = (INTERVAL, NULL, TIME)
# Recently described schemas, with the result of ``_types_of``.
_recent_types: deque[tuple[LanceSchema, dict[str, Any]]] = deque(maxlen=8)


def _metadata_read(options: Mapping[str, str]) -> MetadataRead | None:
    if "$" not in options.get("path", ""):
        return None
    from pyspark_lance.spark.sql.metadata_tables import metadata_read

    return metadata_read(options)


def _open(request: TableRequest) -> tuple[ReadOptions, Snapshot]:
    read = request.read_options()
    if isinstance(request, ScanRequest) and request.pinned is not None:
        return read, open_analyzed(read, request.pinned)
    with suggest_paths(read.table):
        return read, Snapshot.open(read.table, read.at)


def describe(request: TableRequest) -> TableDescription:
    """Describe the version that the options select."""
    if request.state is not None:
        from pyspark_lance.spark.sql.procedures import BIN_RESULTS

        return _describe_rows(BIN_RESULTS, "the work of a procedure")
    metadata = _metadata_read(request.options)
    if metadata is not None:
        return _describe_rows(metadata.schema, f"{metadata.table.uri} {metadata.name}")
    own = request.schema if isinstance(request, DescribeRequest) else None
    read = request.read_options()
    if read.may_be_stream:
        from pyspark_lance.spark.options.stream_options import check_stream

        check_stream(request.options, read, lambda: _open(request)[1].version)
    if read.changes is not None:
        return _describe_feed(read, own)
    _, snapshot = _open(request)
    if read.nearest is not None:
        from pyspark_lance.spark.source.nearest_reader import nearest_schema_of

        shown = nearest_schema_of(read, snapshot.pinned)
        return _describe_rows(shown, f"{snapshot.uri} nearest rows", snapshot)
    if read.search is not None:
        from pyspark_lance.spark.source.search_reader import search_schema_of

        shown = search_schema_of(read, read.search, snapshot.pinned)
        return _describe_rows(shown, f"{snapshot.uri} search", snapshot)
    if own is not None:  # the user's own, which a count would never come to read
        scan_request_of(read, parse_columns(own), snapshot)
    rows = snapshot.num_rows()
    lineage = SYSTEM_COLUMNS if snapshot.uses_stable_row_ids else (ROW_ID, ROW_ADDRESS)
    types = _types_of(snapshot.schema) | dict.fromkeys(lineage, "bigint")
    shown = spark_schema_of(read, snapshot.pinned)
    zoned, indexed = zoned_columns(snapshot), indexed_columns(snapshot)
    return TableDescription(
        schema=shown.json(),
        declared=_declared_schema(read, snapshot, shown).json(),
        properties=properties_of(snapshot),
        primary_key=primary_key(snapshot.schema),
        cluster_by=_cluster_by(snapshot, shown),
        **_pinned_version(snapshot),
        title=f"{snapshot.uri} version {snapshot.version}",
        # With the option ``filter``, only a scan counts the rows.
        rows=-1 if rows is None or read.filter or read.of_streams else rows,
        fragments=len(snapshot.manifest.fragments),
        num_indices=len(snapshot.indices),
        lineage=lineage,
        prunable=(ROW_ID, ROW_ADDRESS, *zoned, *indexed, *indexed_columns(snapshot, BLOOMFILTER)),
        ordered=(*zoned, *indexed),
        counted=tuple(indexed),
        keys=key_columns(snapshot.manifest.config, snapshot.schema),
        split=split_columns(snapshot.manifest.config, snapshot.schema),
        widths=_widths(snapshot),
        stored={name: round(size, 3) for name, size in stored_widths(snapshot).items()},
        types=types,
        blobs=_written_blobs(snapshot),
    )


def new_table_options(request: TableRequest) -> PropertiesResponse:
    """Return the options with which a new table gets the columns of this one."""
    from pyspark_lance.spark.types.write_schema import new_table_options as options_of

    return PropertiesResponse(properties=options_of(_open(request)[1]))


def _written_blobs(snapshot: Snapshot) -> dict[str, str]:
    """Return the Spark types that columns with blobs accept in a write; reads show other types."""
    return {
        field.name: spark_field(logical_field(field, binary_blobs=True)).dataType.json()
        for field in snapshot.schema.fields
        if any(part.is_blob for part in field.walk())
    }


def _widths(snapshot: Snapshot) -> dict[str, int]:
    return {name: int(width) + 1 for name, width in memory_widths(snapshot).items()}


def _pinned_version(snapshot: Snapshot) -> dict[str, Any]:
    """Return the identity of the version for later requests of the plugin."""
    return {"root": snapshot.uri, "version": snapshot.version, "base": snapshot.identity.stamp}


def _cluster_by(snapshot: Snapshot, shown: StructType) -> list[str]:
    """Return the clustering columns that the read shows; Spark can describe no other ones."""
    by = ClusterBy.of(snapshot.manifest.config)
    if by is None:
        return []
    names = by.within(snapshot.schema, (field.id for field in snapshot.schema.walk()))
    return [name for name in names if name.split(".")[0] in shown.names]


def _describe_rows(
    schema: StructType, title: str, snapshot: Snapshot | None = None
) -> TableDescription:
    """Describe rows that Python computes: only their schema is known in advance."""
    pinned = {} if snapshot is None else _pinned_version(snapshot)
    return TableDescription(schema=schema.json(), title=title, **pinned)


def _declared_schema(read: ReadOptions, snapshot: Snapshot, shown: StructType) -> StructType:
    """Return the columns of the read with their declared types, such as ``varchar(10)``.

    ``shown``: the columns of the read.
    """
    fields = declared_schema(visible_columns(read, snapshot)).fields
    declared = {field.name: field for field in fields}
    return StructType(
        [
            field
            if isinstance(field.dataType, UserDefinedType)
            else declared.get(field.name, field)
            for field in shown.fields
        ]
    )


def _describe_feed(read: ReadOptions, own: str | None) -> TableDescription:
    """Describe a change feed: it has no hidden columns, and only a read counts its rows.

    ``own``: the user's schema, to check.
    """
    assert read.changes is not None
    from pyspark_lance.spark.source.change_feed_reader import (
        FEED_COLUMNS,
        describe_feed,
        feed_request_of,
        feed_schema_of,
        pin_feed,
    )

    feed = describe_feed(read, lambda: pin_feed(read, None))
    if own is not None:
        feed_request_of(read, feed, parse_columns(own))
    snapshot = open_analyzed(read, feed.pinned)
    types = _types_of(snapshot.schema)
    types |= {field.name: field.dataType.simpleString() for field in FEED_COLUMNS.fields}
    return TableDescription(
        schema=feed_schema_of(read, feed).json(),
        **_pinned_version(snapshot),
        title=f"{feed.table.uri} changes of versions {feed.window.start} to {feed.window.end}",
        widths=_widths(snapshot),
        types=types,
    )


def _types_of(schema: LanceSchema) -> dict[str, Any]:
    """Return the types of all columns that conditions can be pushed down on, by name."""
    # Each statement asks, mostly of tables with the same few schemas.
    for known, types in list(_recent_types):
        if known is schema or known == schema:
            return dict(types)
    found = {field.name: _comparable_types(field) for field in schema.fields}
    types = {name: kind for name, kind in found.items() if kind is not None}
    _recent_types.appendleft((schema, types))
    return dict(types)


def _comparable_types(field: Field) -> str | dict[str, Any] | None:
    """Return the type that a column has in conditions and in Spark; for a struct, by field.

    None if the types differ, so that no condition on the column can be pushed down.
    """
    if any(part.is_blob for part in field.walk()):
        return None  # the options of the read choose their type
    field = logical_field(field)
    seen = spark_type_of(field.to_arrow().type)
    if pa.types.is_struct(seen):
        children = {child.name: _comparable_types(child) for child in field.children}
        return None if None in children.values() else children
    if not is_comparable(seen) or seen in _NOT_COMPARABLE:
        return None
    try:
        shown = arrow_schema_of(StructType([spark_field(field)])).field(0).type
    except LanceError:
        return None  # not visible to Spark
    return type_name(seen) if seen == shown else None


def find(request: TableRequest) -> FindResponse:
    """Describe a table as ``describe`` does; a missing table is no error."""
    try:
        return FindResponse(table=describe(request))
    except VersionNotFoundError:
        raise
    except TableNotFoundError:
        return FindResponse()


def _open_existing(request: TableRequest) -> Snapshot | None:
    return open_existing(request.write_options().table)


def exists(request: TableRequest) -> ExistsResponse:
    """Return whether there is a table."""
    return ExistsResponse(exists=_open_existing(request) is not None)


def absent(request: TableRequest) -> Response:
    """Raise an error if the table exists."""
    existing = _open_existing(request)
    if existing is not None:
        raise TableAlreadyExistsError(
            "there is already a table here",
            where=existing.uri,
            hint='use mode("append"), mode("overwrite") or mode("ignore"), or in SQL register the '
            "table with CREATE TABLE … USING lance LOCATION '…' and INSERT into it",
        )
    return Response()


def plan(request: PlanRequest) -> PlanResponse:
    """Count the remaining fragments and rows, and read those of a small scan or search."""
    read, snapshot = _open(request)
    if read.changes is not None:
        return PlanResponse(rows=-1)
    left, response = None, PlanResponse(rows=-1)
    if not read.is_search:
        left = prune_scan(snapshot, request.pushed.predicate(predicate_schema(snapshot.schema)))
        response = PlanResponse(**left._asdict())
    if request.columns is None:
        return response
    from pyspark_lance.spark.source import inline_small_scan as inline
    from pyspark_lance.spark.source.shared_batches import check_transfer_mode

    check_transfer_mode(request.transfer_mode)
    scan = read, snapshot, parse_columns(request.columns), request.pushed
    response.batches = (
        inline.inline_small_search(*scan, max_bytes=request.small_bytes)
        if left is None
        else inline.inline_small_scan(*scan, left, max_bytes=request.small_bytes)
    )
    return response


def task_keys(request: ColumnsRequest) -> TaskKeysResponse:
    """Return the columns of the partitioning key and its value in each task, if tasks have one."""
    read, snapshot = _open(request)
    pushed = request.pushed
    comparable = tuple(name for name in pushed.key_columns if _has_one_type(snapshot, name))
    if not comparable or read.fragments_per_partition is not None:
        return TaskKeysResponse()
    columns = request.schema()
    from pyspark_lance.spark.source.batch_reader import LanceBatchReader

    pushed = replace(pushed, key_columns=comparable)
    reader = LanceBatchReader(read, snapshot.pinned, columns, pushed)
    planned = reader.tasks_by_key()
    if planned is None:
        return TaskKeysResponse()
    return TaskKeysResponse(
        columns=planned.columns,
        values=list(map(list, zip(*(map(_as_json, own) for own in planned.keys), strict=True))),
        tasks=planned.digest(),
    )


def statistics(request: ColumnsRequest) -> StatisticsResponse:
    """Estimate rows and columns for Spark's cost-based optimizer, after the pushed condition."""
    _, snapshot = _open(request)
    predicate = request.pushed.predicate(predicate_schema(snapshot.schema))
    left = prune_scan(snapshot, predicate).rows
    from pyspark_lance.table.scan.estimates import column_estimate, rows_estimate

    rows = left if predicate is None else rows_estimate(snapshot, predicate, left)
    columns: dict[str, ColumnEstimate] = {}
    for field in request.schema().fields:
        if not _has_one_type(snapshot, field.name):
            continue
        known = column_estimate(snapshot, field.name)
        if known is not None:
            columns[field.name] = ColumnEstimate(
                min=_as_json(known.minimum),
                max=_as_json(known.maximum),
                average_bytes=known.average_bytes,
                most_bytes=known.most_bytes,
                nulls=min(known.num_rows - known.num_values, rows),
                distinct=max(1, min(known.num_distinct, rows)),
            )
    return StatisticsResponse(rows=rows, columns=columns)


def analysis(request: AnalysisRequest) -> AnalysisResponse:
    """Return the expressions that ANALYZE TABLE evaluates over all rows of a version."""
    read, snapshot = _open(request)
    from pyspark_lance.spark.jobs.analyze_job import plan_analysis

    schema = spark_schema_of(read, snapshot.pinned)
    columns = None if request.columns is None else list(request.columns)
    planned = plan_analysis(schema, columns)
    return AnalysisResponse(expressions=[one.expression for one in planned])


def analyze(request: AnalyzeRequest) -> Response:
    """Store the statistics that the expressions of ``analysis`` returned."""
    _, snapshot = _open(request)
    from pyspark_lance.spark.jobs.analyze_job import store_statistics
    from pyspark_lance.spark.options.write_settings import commit_settings

    write = request.write_options()
    store_statistics(write.table, snapshot, list(request.results), commit_settings(write))
    return Response()


def bounds(request: ColumnRequest) -> BoundsResponse:
    """Return the bounds of a column and the number of its values, where metadata have them."""
    _, snapshot = _open(request)
    name = request.column
    if name not in SYSTEM_COLUMNS:
        return _bounds_of_values(snapshot, name)
    known, bounds = lineage_bounds(snapshot, name)
    if not known:
        return BoundsResponse()
    return BoundsResponse(bounds=bounds or (None, None), count=snapshot.num_rows())


def choose_rewrite(request: RewriteRequest) -> RewriteResponse:
    """Choose whether an UPDATE rewrites rows or columns; rows if the table is small."""
    from pyspark_lance.table.dml import row_change

    _, snapshot = _open(request)
    named = match_names(request.columns, (field.name for field in snapshot.schema.fields))
    names = tuple(dict.fromkeys(named.values()))
    changed: Any = snapshot.manifest.fragments.rows_by_id
    if request.changed is not None:
        changed = {int(fragment): rows for fragment, rows in request.changed.items()}
    choice = row_change.choose_rewrite(snapshot, names, row_change.RewriteMode.AUTO, changed)
    return RewriteResponse(by_columns=choice.mode is row_change.RewriteMode.COLUMNS)


def _bounds_of_values(snapshot: Snapshot, column: str) -> BoundsResponse:
    if not _has_one_type(snapshot, column):
        return BoundsResponse()
    facts = column_statistics(snapshot, column)
    if facts is not None:
        ends = [_as_json(facts.minimum), _as_json(facts.maximum)]
        return BoundsResponse(bounds=ends, count=facts.num_values)
    from pyspark_lance.table.scan.index_only_aggregates import bounds_by_index, num_values_by_index

    bounds = bounds_by_index(snapshot, column)
    return BoundsResponse(
        bounds=None if bounds is None else list(map(_as_json, bounds)),
        count=num_values_by_index(snapshot, column),
    )


def _as_json(value: pa.Scalar) -> Any:
    return literal_node(value)["literal"] if value.is_valid else None


def counts(request: CountsRequest) -> CountsResponse:
    """Count the rows, by value if a column is given; empty if neither metadata nor an index can."""
    _, snapshot = _open(request)
    if request.column is None and request.filter is None:
        return CountsResponse(rows=[[None, snapshot.num_rows()]])
    from pyspark_lance.table.scan.index_only_aggregates import count_where, value_counts

    predicate = request.pushed.predicate(predicate_schema(snapshot.schema))
    if request.column is None and predicate is not None:
        name = next(iter(columns_of(predicate)), "")
        count = count_where(snapshot, name, predicate) if _has_one_type(snapshot, name) else None
        return CountsResponse(rows=None if count is None else [[None, count]])
    column = request.column or ""
    known = value_counts(snapshot, column) if _has_one_type(snapshot, column) else None
    counts = None if known is None else known.where(predicate, column)
    if counts is None:
        return CountsResponse()
    values = map(_as_json, counts.values)
    return CountsResponse(rows=list(zip(values, counts.counts.tolist(), strict=True)))


def _has_one_type(snapshot: Snapshot, name: str) -> bool:
    """Return whether a column has the same type in Spark and in conditions."""
    field = next((field for field in snapshot.schema.fields if field.name == name), None)
    return field is not None and isinstance(_comparable_types(field), str)


def first(request: FirstRequest) -> FirstResponse:
    """Return a condition that the first rows of an order match, and few other rows."""
    _, snapshot = _open(request)
    name, rows, descending = request.column, request.rows, request.descending
    if not _has_one_type(snapshot, name):
        return FirstResponse()
    from pyspark_lance.table.scan.index_only_aggregates import first_values

    first = first_values(snapshot, name, rows, descending=descending)
    if first is not None:
        end = first[-1]
    else:
        end = end_of_first_rows(snapshot, name, rows, descending=descending)
    if end is None:
        return FirstResponse()
    column = {"column": [name]}
    within = {"op": ">=" if descending else "<=", "args": [column, literal_node(end)]}
    condition = {"op": "OR", "args": [within, {"op": "IS_NULL", "args": [column]}]}
    return FirstResponse(filter=json.dumps(condition))


def delete(request: DeleteRequest) -> Response:
    """Delete rows on the driver."""
    read = request.read_options()
    read.check_follows_table(
        "rows of an older version, a change feed or a search cannot be deleted"
    )
    pushed = PushedDown(filter=request.filter)

    def condition(snapshot: Snapshot) -> Predicate:
        return condition_of(read, pushed, predicate_schema(snapshot.schema)) or TRUE

    from pyspark_lance.table.dml.run_changes import delete_where

    delete_where(read.table, condition, text=request.text)
    return Response()


def create(request: CreateRequest) -> Response:
    """Create an empty table, or replace an existing one by it."""
    write = request.write_options()
    schema = parse_columns(request.schema)
    from pyspark_lance.spark.source.batch_writer import LanceBatchWriter

    LanceBatchWriter(write, schema, overwrite=request.replace, declared=True).commit([])
    return Response()


def alter(request: AlterRequest) -> Response:
    """Change columns and properties."""
    write = request.write_options()
    from pyspark_lance.spark.options.write_settings import commit_settings
    from pyspark_lance.spark.sql.alter_table import alter_table

    alter_table(write.table, request.changes, commit_settings(write))
    return Response()


def procedures(request: Request) -> ProceduresResponse:
    """Describe all procedures."""
    from pyspark_lance.spark.sql.procedures import list_procedures

    return ProceduresResponse(procedures=list_procedures())


def no_procedure(request: UnknownProcedureRequest) -> Response:
    """Raise the error of an unknown procedure."""
    from pyspark_lance.spark.sql.procedures import refuse_unknown

    refuse_unknown(request)


def procedure(request: ProcedureRequest) -> ProcedureResponse:
    """Run or continue a procedure."""
    from pyspark_lance.spark.sql.procedures import run_procedure

    return run_procedure(request)


def indices(request: TableRequest) -> IndicesResponse:
    """List the indices."""
    from pyspark_lance.spark.sql.foreign_statements import list_indices

    return list_indices(request)


def create_index(request: CreateIndexRequest) -> CreateIndexResponse:
    """Translate a CREATE INDEX to a procedure."""
    from pyspark_lance.spark.sql.foreign_statements import procedure_of_create

    return procedure_of_create(request)


def statement(request: StatementRequest) -> StatementResponse:
    """Translate a statement that Spark cannot parse."""
    from pyspark_lance.spark.sql.foreign_statements import translate_statement

    try:
        return StatementResponse(run=translate_statement(request.statement))
    except LanceError as error:  # Spark's parser must not throw an exception of the analysis
        return StatementResponse(refused=str(error))
