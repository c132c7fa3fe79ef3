"""Catalogs of the Python interface ``lance_namespace``: AWS Glue, Hive, Unity, Polaris, your own.

An implementation is a class of its own package, found by the short name that it is registered with
or by its path. Its calls take and return the models of the REST protocol.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    NamespaceNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.store.rest_client import ERRORS
from pyspark_lance.store.storage_options import hide_values

_KNOWN_IMPLEMENTATIONS: Final = "lance_namespace_impls"
"""It registers ``glue``, ``hive2``, ``hive3``, ``iceberg``, ``polaris`` and ``unity``."""
_SETTINGS_HINT: Final = (
    "check the settings of the catalog (spark.sql.catalog.<name>.*: address, credentials), your "
    "permissions there and the network"
)
_MAX_ERROR_TEXT: Final = 1000
_MAX_CONNECTIONS: Final = 4  # of a thread
_ERRORS: Final[Mapping[int, type[LanceError]]] = {**ERRORS, 13: InvalidInputError}
# That package raises errors of its own, without codes.
_ERRORS_BY_NAME: Final[Mapping[str, type[LanceError]]] = {
    "NamespaceNotFoundException": NamespaceNotFoundError,
    "NamespaceAlreadyExistsException": TableAlreadyExistsError,
    "TableNotFoundException": TableNotFoundError,
    "TableAlreadyExistsException": TableAlreadyExistsError,
    "InvalidInputException": InvalidInputError,
}
# Clients of Hive's metastore have one connection, which threads cannot share.
_connections = threading.local()


@dataclass(frozen=True, slots=True)
class RegisteredCatalog:
    """An implementation of ``lance_namespace.LanceNamespace`` with its properties."""

    implementation: str  # A registered name, or the path of a class.
    # Properties of the implementation; secret.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def uri(self) -> str:
        """The catalog in messages."""
        return f"lance_namespace implementation {self.implementation}"

    def describe_table(self, name: tuple[str, ...]) -> Any:
        """Return the response with the location of a table, its storage options and properties."""
        return self.call("describe_table", name, vend_credentials=True)

    def call(self, operation: str, name: tuple[str, ...], **values: object) -> Any:
        """Call an operation of the interface, such as ``list_tables``.

        ``values``: fields of the request; those that the installed models do not have, and those
        that are None, are left out.

        Raises:
            LanceError: By the code of the implementation's error; StorageError if it has none.
        """
        with self._typed_errors(operation):
            namespace = self.connect()
            model = getattr(_interface(), f"{operation.title().replace('_', '')}Request")
            known = {
                field: value
                for field, value in values.items()
                if value is not None and field in model.model_fields
            }
            return getattr(namespace, operation)(model(id=list(name), **known))

    def list_all_tables(self, namespace: tuple[str, ...]) -> list[str]:
        """Return the names of tables of every format; none if the implementation is not known.

        The interface lists Lance tables only, so this uses the implementation's own client.
        """
        list_tables = _LISTING.get(self.known_name())
        if list_tables is None:
            return []
        with self._typed_errors("list_tables"):
            return list_tables(self.connect(), namespace)

    def known_name(self) -> str:
        """Return the short name of an implementation of that package; '' for any other."""
        package, _, module = type(self.connect()).__module__.rpartition(".")
        return module if package == _KNOWN_IMPLEMENTATIONS else ""

    def connect(self) -> Any:
        """Return the connection of this thread.

        Raises:
            InvalidInputError: No implementation has this name, or it refuses the properties.
        """
        known: dict[object, Any] = _connections.__dict__.setdefault("by_catalog", {})
        key = (self.implementation, *sorted(self.properties.items()))
        if key not in known:
            while len(known) >= _MAX_CONNECTIONS:
                known.pop(next(iter(known)))
            known[key] = self._new_connection()
        return known[key]

    def _new_connection(self) -> Any:
        interface = _interface()
        if "." not in self.implementation:
            # Its import registers the short names.
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(_KNOWN_IMPLEMENTATIONS)
                # It logs errors that it also raises: Python prints them if no handler is set.
                logging.getLogger(_KNOWN_IMPLEMENTATIONS).addHandler(logging.NullHandler())
            self._check_registered(interface)
        try:
            return interface.connect(self.implementation, dict(self.properties))
        except ValueError as error:
            raise InvalidInputError(
                f"the catalog cannot be opened: {self._text_of(error)}",
                self.uri,
                "check the settings of the implementation, or set impl to dir, rest, a registered "
                "name (pip install lance-namespace-impls has glue, hive2, hive3, iceberg, polaris, "
                "unity) or the path of a class",
            ) from None

    def _check_registered(self, interface: Any) -> None:
        # The interface has no public list.
        names = [*interface.NATIVE_IMPLS, *getattr(interface, "_REGISTERED_IMPLS", ())]
        if len(names) > len(interface.NATIVE_IMPLS) and self.implementation not in names:
            near = difflib.get_close_matches(self.implementation, names, n=1)
            raise InvalidInputError(
                f"no catalog is registered with lance_namespace as {self.implementation!r}",
                self.uri,
                f"did you mean {near[0]}?" if near else f"one of {', '.join(sorted(names))}",
            )

    @contextlib.contextmanager
    def _typed_errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except LanceError:
            raise
        # Implementations raise errors of their clients, such as those of Thrift, too.
        except Exception as error:  # noqa: BLE001
            what = f"the catalog failed in {operation}: {self._text_of(error)}"
            code = getattr(error, "code", None)
            kind = _ERRORS.get(code) if isinstance(code, int) else None
            kind = kind or _ERRORS_BY_NAME.get(type(error).__name__, StorageError)
            hint = _SETTINGS_HINT if issubclass(kind, StorageError) else ""
            raise kind(what, self.uri, hint) from None  # the original may show properties

    def _text_of(self, error: Exception) -> str:
        text = hide_values(f"{type(error).__name__}: {error}", self.properties)
        return " ".join(text.split())[:_MAX_ERROR_TEXT]


def _list_glue(connection: Any, namespace: tuple[str, ...]) -> list[str]:
    pages = connection.glue.get_paginator("get_tables").paginate(DatabaseName=namespace[-1])
    return [table["Name"] for page in pages for table in page["TableList"]]


def _list_hive(connection: Any, namespace: tuple[str, ...]) -> list[str]:
    with connection.client as client:
        return list(client.get_all_tables(namespace[-1]))


def _list_unity(connection: Any, namespace: tuple[str, ...]) -> list[str]:
    catalog, schema = namespace
    given = {"catalog_name": catalog, "schema_name": schema}
    tables = _pages(connection, "/tables", given, "page_token", "next_page_token", "tables")
    return [table["name"] for table in tables]


def _list_polaris(connection: Any, namespace: tuple[str, ...]) -> list[str]:
    catalog, *inner = namespace
    place = f"v1/{catalog}/namespaces/{'.'.join(inner)}"
    paths = (f"/polaris/{place}/generic-tables", f"/{place}/tables")
    return [name for path in paths for name in _list_identifiers(connection, path)]


def _list_iceberg(connection: Any, namespace: tuple[str, ...]) -> list[str]:
    warehouse, *inner = namespace
    prefix = connection._get_prefix_path(warehouse)  # some servers map warehouses to prefixes
    place = f"{prefix}/namespaces/{connection._encode_namespace(inner)}"
    return _list_identifiers(connection, f"{place}/tables")


def _list_identifiers(connection: Any, path: str) -> list[str]:
    identifiers = _pages(connection, path, {}, "pageToken", "next-page-token", "identifiers")
    return [identifier["name"] for identifier in identifiers]


def _pages(
    connection: Any, path: str, given: Mapping[str, str], token: str, next_token: str, items: str
) -> Iterator[Any]:
    following: dict[str, str] = {}
    while True:
        page = connection.rest_client.get(path, params={**given, **following} or None) or {}
        yield from page.get(items) or []
        before, following = following, {token: page[next_token]} if page.get(next_token) else {}
        if not following or following == before:
            return


_LISTING: Final[Mapping[str, Callable[[Any, tuple[str, ...]], list[str]]]] = {
    "glue": _list_glue,
    "hive2": _list_hive,
    "hive3": _list_hive,
    "unity": _list_unity,
    "polaris": _list_polaris,
    "iceberg": _list_iceberg,
}


def _interface() -> Any:
    try:
        return importlib.import_module("lance_namespace")
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            "catalogs by implementations of Lance namespaces need the package lance-namespace",
            hint="pip install 'pyspark-lance[namespaces]', on executors too if the catalog vends "
            "credentials",
        ) from error
