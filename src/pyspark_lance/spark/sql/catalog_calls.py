"""Handlers of the requests of the plugin's catalog.

A request for a table has its name and the settings of the catalog, which resolves them to the path
of the table and its storage options.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from pyspark.sql.datasource import CaseInsensitiveDict

from pyspark_lance.errors import NamespaceNotEmptyError, NamespaceNotFoundError, TableNotFoundError
from pyspark_lance.namespace.namespace import (
    CatalogNamespace,
    ExternalTable,
    Name,
    Namespace,
    format_name,
)
from pyspark_lance.namespace.open_namespace import ROOT_NAME, open_namespace, real_namespace
from pyspark_lance.namespace.registered import RegisteredNamespace
from pyspark_lance.spark.options.parse_options import hadoop_settings_of, storage_options_of
from pyspark_lance.spark.sql.metadata_tables import split_metadata_name
from pyspark_lance.spark.sql.plugin_requests import (
    AlterNamespaceRequest,
    CreateNamespaceRequest,
    DeclareRequest,
    DropNamespaceRequest,
    NamespaceRequest,
    RegisterRequest,
    RenameRequest,
    TableRequest,
)
from pyspark_lance.spark.sql.plugin_responses import (
    CreateNamespaceResponse,
    DeclareResponse,
    DropNamespaceResponse,
    DropResponse,
    NamespacePropertiesResponse,
    NamespaceResponse,
    NamespacesResponse,
    Response,
    TablesResponse,
)
from pyspark_lance.store.hadoop_options import resolve_path, with_scheme
from pyspark_lance.table.version.table import Table

AnyTableRequest = TypeVar("AnyTableRequest", bound=TableRequest)
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., NamespaceResponse])


def _namespace(request: TableRequest | NamespaceRequest) -> Namespace:
    return open_namespace(dict(request.catalog), hadoop_settings_of(request.options))


def _name(names: Namespace, name: Name) -> Name:
    """Resolve the root's name in the name of a table."""
    *parent, table = name
    return (*real_namespace(names, tuple(parent)), table)


def _parent(names: Namespace, request: NamespaceRequest) -> Name:
    return real_namespace(names, request.namespace)


def locate(request: AnyTableRequest, *, hint: bool) -> tuple[AnyTableRequest, bool]:
    """Return the request with the path of the table among its options, instead of its name.

    Also return whether the table is external.

    ``hint``: whether the error suggests a similar name, for which it lists the catalog's tables.
    """
    names = _namespace(request)
    *parent, last = _name(names, request.name)
    own, shown_as = split_metadata_name(last)
    table = names.locate((*parent, own))
    if table is None:
        raise TableNotFoundError(
            f"there is no table {format_name((*parent, own)) if own else repr(own)} in the catalog",
            hint=_suggest_name(own, names.tables(tuple(parent))) if hint else "",
        )
    found = _options_of(table, hadoop_settings_of(request.options), shown_as)
    options = CaseInsensitiveDict({**request.options, **found})
    return replace(request, options=options, name=()), isinstance(table, ExternalTable)


def _suggest_name(name: str, tables: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, tables, n=1)
    if matches:
        return f"did you mean {matches[0]}?"
    return f"a table that is named by its path has a slash in its name: `./{name}`"


def _options_of(table: Table, hadoop: Mapping[str, str], suffix: str = "") -> dict[str, str]:
    # Without Hadoop's settings, which every call brings along.
    opening = opening_options(storage_options_of(table))
    return {"path": with_scheme(table.root, hadoop) + suffix, **opening}


_OPENING = re.compile(r"(?i)path$|storage\.")


def opening_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return those of the options that open the table."""
    return {name: text for name, text in options.items() if _OPENING.match(name)}


def _or_no_namespace(kind: type[NamespaceResponse]) -> Callable[[AnyHandler], AnyHandler]:
    """Decorate a handler so that it reports a missing namespace, for which Spark has its own error.

    ``kind``: of its response.
    """

    def decorate(handler: AnyHandler) -> AnyHandler:
        @functools.wraps(handler)
        def handle(request: Any) -> NamespaceResponse:
            try:
                return handler(request)
            except NamespaceNotFoundError:
                return kind(no_namespace=True)

        return cast("AnyHandler", handle)

    return decorate


@_or_no_namespace(DeclareResponse)
def declare(request: DeclareRequest) -> DeclareResponse:
    """Return the options that open a new table."""
    names, hadoop, location = (
        _namespace(request),
        hadoop_settings_of(request.options),
        request.location,
    )
    if location is not None:
        location = resolve_path(location, hadoop)
    name = _name(names, request.name)
    table, is_new = names.declare(name, location)
    return DeclareResponse(options=_options_of(table, hadoop), is_new=is_new)


def undeclare(request: TableRequest) -> Response:
    """Remove the name that ``declare`` added for a table that was not created."""
    names = _namespace(request)
    if isinstance(names, CatalogNamespace):
        names.undeclare(_name(names, request.name))
    return Response()


def register(request: RegisterRequest) -> Response:
    """Register a table that exists."""
    names = _namespace(request)
    names.register(_name(names, request.name), Table(request.location))
    return Response()


def drop(request: TableRequest) -> DropResponse:
    """Drop a table."""
    names = _namespace(request)
    try:
        return DropResponse(dropped=names.drop_table(_name(names, request.name)))
    except NamespaceNotFoundError:
        return DropResponse(dropped=False)


def rename(request: RenameRequest) -> Response:
    """Rename a table."""
    names = _namespace(request)
    names.rename_table(_name(names, request.name), _name(names, request.new_name))
    return Response()


@_or_no_namespace(TablesResponse)
def tables(request: NamespaceRequest) -> TablesResponse:
    """List the tables of a namespace."""
    names = _namespace(request)
    parent = _parent(names, request)
    return TablesResponse(tables=names.tables(parent), namespace=parent or (ROOT_NAME,))


@_or_no_namespace(NamespacesResponse)
def namespaces(request: NamespaceRequest) -> NamespacesResponse:
    """List the namespaces in a namespace."""
    names = _namespace(request)
    listed = names.namespaces(_parent(names, request))
    has_root = not isinstance(names, RegisteredNamespace) or names.has_root_tables()
    if request.namespace or not has_root:
        return NamespacesResponse(namespaces=listed)
    # Spark lists tables by namespace, so the root needs a name of its own.
    return NamespacesResponse(namespaces=sorted({*listed, ROOT_NAME}))


@_or_no_namespace(NamespacePropertiesResponse)
def namespace(request: NamespaceRequest) -> NamespacePropertiesResponse:
    """Return the properties of a namespace."""
    names = _namespace(request)
    properties = names.properties(_parent(names, request))
    if properties is None:
        raise NamespaceNotFoundError(f"there is no namespace {list(request.namespace)}")
    return NamespacePropertiesResponse(properties=dict(properties))


def create_namespace(request: CreateNamespaceRequest) -> CreateNamespaceResponse:
    """Create a namespace."""
    names = _namespace(request)
    done = names.create_namespace(_parent(names, request), request.properties)
    return CreateNamespaceResponse(done=done)


@_or_no_namespace(NamespaceResponse)
def alter_namespace(request: AlterNamespaceRequest) -> NamespaceResponse:
    """Change the properties of a namespace."""
    names = _namespace(request)
    names.change_properties(_parent(names, request), request.properties)
    return NamespaceResponse()


@_or_no_namespace(DropNamespaceResponse)
def drop_namespace(request: DropNamespaceRequest) -> DropNamespaceResponse:
    """Drop a namespace."""
    names = _namespace(request)
    parent = _parent(names, request)
    try:
        return DropNamespaceResponse(done=names.drop_namespace(parent, cascade=request.cascade))
    except NamespaceNotEmptyError:
        return DropNamespaceResponse(not_empty=True)
