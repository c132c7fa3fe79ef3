"""The methods that the JVM plugin calls, by name: the whole border between the two.

``plugin_requests`` has what each method takes, ``Python.java`` calls them. The function that
handles a method has its name, and its module is imported by the first call: a query that names a
table by its path needs no catalogs.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark_lance.errors import TableNotFoundError, VersionNotFoundError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.service.frames import Message
from pyspark_lance.spark.service.server import Method
from pyspark_lance.spark.source.plugin_state import check_plugin
from pyspark_lance.spark.sql import plugin_requests as of

PLUGIN_CALLS: Final = "pyspark_lance.spark.sql.plugin_calls"
CATALOG_CALLS: Final = "pyspark_lance.spark.sql.catalog_calls"
READS_AND_WRITES: Final = "pyspark_lance.spark.service.reads_and_writes"


class Handler(NamedTuple):
    """A method: what it takes, and the module of the function that handles it."""

    request: type[of.Request]
    module: str


# About a table, which the request may name by its name in a catalog.
_OF_TABLES: Final = {
    "describe": Handler(of.DescribeRequest, PLUGIN_CALLS),
    "find": Handler(of.TableRequest, PLUGIN_CALLS),
    "exists": Handler(of.TableRequest, PLUGIN_CALLS),
    "absent": Handler(of.TableRequest, PLUGIN_CALLS),
    "new_table_options": Handler(of.TableRequest, PLUGIN_CALLS),
    "plan": Handler(of.PlanRequest, PLUGIN_CALLS),
    "task_keys": Handler(of.ColumnsRequest, PLUGIN_CALLS),
    "statistics": Handler(of.ColumnsRequest, PLUGIN_CALLS),
    "bounds": Handler(of.ColumnRequest, PLUGIN_CALLS),
    "counts": Handler(of.CountsRequest, PLUGIN_CALLS),
    "first": Handler(of.FirstRequest, PLUGIN_CALLS),
    "analyze": Handler(of.AnalyzeRequest, PLUGIN_CALLS),
    "procedure": Handler(of.ProcedureRequest, PLUGIN_CALLS),
}
# The same, refused for metadata tables.
_WRITES: Final = {
    "analysis": Handler(of.AnalysisRequest, PLUGIN_CALLS),
    "delete": Handler(of.DeleteRequest, PLUGIN_CALLS),
    "create": Handler(of.CreateRequest, PLUGIN_CALLS),
    "alter": Handler(of.AlterRequest, PLUGIN_CALLS),
    "indices": Handler(of.TableRequest, PLUGIN_CALLS),
    "create_index": Handler(of.CreateIndexRequest, PLUGIN_CALLS),
}
_OTHERS: Final = {
    "plan_read": Handler(of.ReadRequest, READS_AND_WRITES),
    "plan_write": Handler(of.WriteRequest, READS_AND_WRITES),
    "commit": Handler(of.CommitRequest, READS_AND_WRITES),
    "abort": Handler(of.CommitRequest, READS_AND_WRITES),
    "procedures": Handler(of.Request, PLUGIN_CALLS),
    "no_procedure": Handler(of.UnknownProcedureRequest, PLUGIN_CALLS),
    "statement": Handler(of.StatementRequest, PLUGIN_CALLS),
    "place": Handler(of.PlaceRequest, CATALOG_CALLS),
    "register": Handler(of.RegisterRequest, CATALOG_CALLS),
    "drop": Handler(of.TableRequest, CATALOG_CALLS),
    "rename": Handler(of.RenameRequest, CATALOG_CALLS),
    "tables": Handler(of.NamespaceRequest, CATALOG_CALLS),
    "namespaces": Handler(of.NamespaceRequest, CATALOG_CALLS),
    "namespace": Handler(of.NamespaceRequest, CATALOG_CALLS),
    "create_namespace": Handler(of.CreateNamespaceRequest, CATALOG_CALLS),
    "alter_namespace": Handler(of.AlterNamespaceRequest, CATALOG_CALLS),
    "drop_namespace": Handler(of.DropNamespaceRequest, CATALOG_CALLS),
}
METHODS: Final[Mapping[str, Handler]] = {**_OF_TABLES, **_WRITES, **_OTHERS}


@functools.cache
def methods() -> Mapping[str, Method]:
    """Return all methods by name, as functions of messages."""
    return {name: functools.partial(_call, name) for name in METHODS}


def _call(name: str, message: Message) -> Message:
    request = of.decode_request(METHODS[name].request, message)
    check_plugin(request.options.get(keys.PLUGIN, ""))
    if name in _OTHERS or not isinstance(request, of.TableRequest) or not request.name:
        return _handle(name, request)
    from pyspark_lance.spark.sql.catalog_calls import locate, opening_options  # noqa: PLC0415

    try:
        located = locate(request, hint=name != "find")
        return {**_handle(name, located), "options": opening_options(located.options)}
    except VersionNotFoundError:
        raise
    except TableNotFoundError:
        if name != "find":
            raise
        return {"missing": True}


def _handle(name: str, request: of.Request) -> Message:
    if name in _WRITES and "$" in request.options.get("path", ""):
        from pyspark_lance.spark.sql.metadata_tables import refuse_write  # noqa: PLC0415

        refuse_write(request.options)
    response: Message = getattr(importlib.import_module(METHODS[name].module), name)(request)
    return response
