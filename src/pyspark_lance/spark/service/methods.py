"""The methods that the JVM plugin calls, by name: the whole border between the two.

``plugin_requests`` has each method's parameters, ``plugin_responses`` its results;
``Python.java`` calls them. The function that handles a method has its name, and its module is
imported by the first call: a query that names a table by its path needs no catalogs.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark_lance.errors import TableNotFoundError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.service.server import Message, Method
from pyspark_lance.spark.source.plugin_state import check_plugin
from pyspark_lance.spark.sql import plugin_requests as of
from pyspark_lance.spark.sql import plugin_responses as to

PLUGIN_CALLS: Final = "pyspark_lance.spark.sql.plugin_calls"
CATALOG_CALLS: Final = "pyspark_lance.spark.sql.catalog_calls"
READS_AND_WRITES: Final = "pyspark_lance.spark.service.reads_and_writes"


class Handler(NamedTuple):
    """A method: its parameters and result, and the module of its handler function."""

    request: type[of.Request]
    response: type[to.Response]
    module: str


# About a table, which the request may name by its name in a catalog.
_OF_TABLES: Final = {
    "describe": Handler(of.DescribeRequest, to.TableDescription, PLUGIN_CALLS),
    "find": Handler(of.TableRequest, to.FindResponse, PLUGIN_CALLS),
    "exists": Handler(of.TableRequest, to.ExistsResponse, PLUGIN_CALLS),
    "absent": Handler(of.TableRequest, to.Response, PLUGIN_CALLS),
    "new_table_options": Handler(of.TableRequest, to.PropertiesResponse, PLUGIN_CALLS),
    "plan": Handler(of.PlanRequest, to.PlanResponse, PLUGIN_CALLS),
    "task_keys": Handler(of.ColumnsRequest, to.TaskKeysResponse, PLUGIN_CALLS),
    "statistics": Handler(of.ColumnsRequest, to.StatisticsResponse, PLUGIN_CALLS),
    "bounds": Handler(of.ColumnRequest, to.BoundsResponse, PLUGIN_CALLS),
    "counts": Handler(of.CountsRequest, to.CountsResponse, PLUGIN_CALLS),
    "choose_rewrite": Handler(of.RewriteRequest, to.RewriteResponse, PLUGIN_CALLS),
    "first": Handler(of.FirstRequest, to.FirstResponse, PLUGIN_CALLS),
    "analyze": Handler(of.AnalyzeRequest, to.Response, PLUGIN_CALLS),
    "procedure": Handler(of.ProcedureRequest, to.ProcedureResponse, PLUGIN_CALLS),
}
# The same, refused for metadata tables.
_WRITES: Final = {
    "analysis": Handler(of.AnalysisRequest, to.AnalysisResponse, PLUGIN_CALLS),
    "delete": Handler(of.DeleteRequest, to.Response, PLUGIN_CALLS),
    "create": Handler(of.CreateRequest, to.Response, PLUGIN_CALLS),
    "alter": Handler(of.AlterRequest, to.Response, PLUGIN_CALLS),
    "indices": Handler(of.TableRequest, to.IndicesResponse, PLUGIN_CALLS),
    "create_index": Handler(of.CreateIndexRequest, to.CreateIndexResponse, PLUGIN_CALLS),
}
_OTHERS: Final = {
    "plan_read": Handler(of.ReadRequest, to.ReadResponse, READS_AND_WRITES),
    "plan_write": Handler(of.WriteRequest, to.WriteResponse, READS_AND_WRITES),
    "commit": Handler(of.CommitRequest, to.Response, READS_AND_WRITES),
    "abort": Handler(of.CommitRequest, to.Response, READS_AND_WRITES),
    "procedures": Handler(of.Request, to.ProceduresResponse, PLUGIN_CALLS),
    "no_procedure": Handler(of.UnknownProcedureRequest, to.Response, PLUGIN_CALLS),
    "statement": Handler(of.StatementRequest, to.StatementResponse, PLUGIN_CALLS),
    "declare": Handler(of.DeclareRequest, to.DeclareResponse, CATALOG_CALLS),
    "undeclare": Handler(of.TableRequest, to.Response, CATALOG_CALLS),
    "register": Handler(of.RegisterRequest, to.Response, CATALOG_CALLS),
    "drop": Handler(of.TableRequest, to.DropResponse, CATALOG_CALLS),
    "rename": Handler(of.RenameRequest, to.Response, CATALOG_CALLS),
    "tables": Handler(of.NamespaceRequest, to.TablesResponse, CATALOG_CALLS),
    "namespaces": Handler(of.NamespaceRequest, to.NamespacesResponse, CATALOG_CALLS),
    "namespace": Handler(of.NamespaceRequest, to.NamespacePropertiesResponse, CATALOG_CALLS),
    "create_namespace": Handler(
        of.CreateNamespaceRequest, to.CreateNamespaceResponse, CATALOG_CALLS
    ),
    "alter_namespace": Handler(of.AlterNamespaceRequest, to.NamespaceResponse, CATALOG_CALLS),
    "drop_namespace": Handler(of.DropNamespaceRequest, to.DropNamespaceResponse, CATALOG_CALLS),
}
METHODS: Final[Mapping[str, Handler]] = {**_OF_TABLES, **_WRITES, **_OTHERS}


@functools.cache
def methods() -> Mapping[str, Method]:
    """Return all methods by name, as functions of messages."""
    return {name: functools.partial(_call, name) for name in METHODS}


def _call(name: str, message: Message) -> Message:
    request = of.decode_request(METHODS[name].request, message)
    check_plugin(request.options.get(keys.PLUGIN, ""))
    response: Message = to.encode_response(_handle(name, request))
    return response


def _handle(name: str, request: of.Request) -> to.Response:
    if name in _OTHERS or not isinstance(request, of.TableRequest) or not request.name:
        return _handle_opened(name, request)
    from pyspark_lance.spark.sql.catalog_calls import locate, opening_options  # noqa: PLC0415

    try:
        located, is_external = locate(request, hint=name != "find")
    except TableNotFoundError:
        if name != "find":
            raise
        return to.FindResponse()
    response = _handle_opened(name, located)
    if isinstance(response, to.FindResponse):
        response.options = opening_options(located.options)
        response.is_external = is_external
    return response


def _handle_opened(name: str, request: of.Request) -> to.Response:
    if name in _WRITES and "$" in request.options.get("path", ""):
        from pyspark_lance.spark.sql.metadata_tables import refuse_write  # noqa: PLC0415

        refuse_write(request.options)
    handler = getattr(importlib.import_module(METHODS[name].module), name)
    response: to.Response = handler(request)
    return response
