"""Tables of a REST catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_lance.errors import (
    NamespaceNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.namespace.namespace import (
    CatalogNamespace,
    Declared,
    Name,
    format_name,
    object_id,
    refuse_location,
)
from pyspark_lance.store.rest_client import RestCatalog
from pyspark_lance.table.version.table import Table


@dataclass(frozen=True, slots=True)
class RestNamespace(CatalogNamespace):
    """A namespace of a server with the REST protocol of Lance namespaces."""

    catalog: RestCatalog

    def namespaces(self, parent: Name) -> list[str]:
        """See ``Namespace``."""
        return self._pages("list_namespaces", parent, "namespaces")

    def properties(self, namespace: Name) -> Mapping[str, str] | None:
        """See ``Namespace``."""
        try:
            return self._namespace("describe", namespace).properties or {}
        except NamespaceNotFoundError:
            return None

    def create_namespace(self, namespace: Name, properties: Mapping[str, str]) -> bool:
        """See ``Namespace``."""
        object_id(namespace)
        refuse_location(properties)
        try:
            self._namespace("create", namespace, properties=dict(properties))
        except TableAlreadyExistsError:
            return False
        return True

    def change_properties(self, namespace: Name, changes: Mapping[str, str | None]) -> None:
        """Raise an error, as the protocol has no such operation."""
        raise UnsupportedFeatureError(
            "properties of namespaces in a REST catalog cannot be changed", self.catalog.uri
        )

    def drop_namespace(self, namespace: Name, *, cascade: bool) -> bool:
        """See ``Namespace``."""
        behavior = "Cascade" if cascade else "Restrict"
        try:
            self._namespace("drop", namespace, behavior=behavior)
        except NamespaceNotFoundError:
            return False
        return True

    def tables(self, namespace: Name) -> list[str]:
        """See ``Namespace``."""
        listed = self._pages("list_tables", namespace, "tables")
        # Some servers list nothing for a namespace that is missing.
        if not listed and namespace and self.properties(namespace) is None:
            raise NamespaceNotFoundError(
                f"there is no namespace {format_name(namespace)}", self.catalog.uri
            )
        return listed

    def locate(self, name: Name) -> Table | None:
        """See ``Namespace``."""
        try:
            return self._table(name, self.catalog.describe_table(name))
        except (TableNotFoundError, NamespaceNotFoundError):
            return None

    def declare(self, name: Name, location: str | None = None) -> Declared:
        """See ``Namespace``; this declares the name."""
        known = self.locate(name)
        if known is not None:
            return Declared(known, is_new=False)
        object_id(name)
        request = self.catalog.request(
            "DeclareTableRequest", location=location, vend_credentials=True
        )
        try:
            reply = self._ask("TableApi", "declare_table", name, request)
        except (TableAlreadyExistsError, StorageError):
            # Another client may have declared it since; servers report that by several codes.
            known = self.locate(name)
            if known is None:
                raise
            return Declared(known, is_new=False)
        return Declared(self._table(name, reply), is_new=True)

    def drop_table(self, name: Name) -> bool:
        """See ``Namespace``."""
        try:
            self._ask("TableApi", "drop_table", name)
        except TableNotFoundError:
            return False
        return True

    def _deregister(self, name: Name) -> None:
        request = self.catalog.request("DeregisterTableRequest")
        self._ask("TableApi", "deregister_table", name, request)

    def rename_table(self, name: Name, new: Name) -> None:
        """See ``Namespace``."""
        request = self.catalog.request(
            "RenameTableRequest", new_table_name=new[-1], new_namespace_id=list(new[:-1])
        )
        self._ask("TableApi", "rename_table", name, request)

    def _ask(self, group: str, operation: str, name: Name, *arguments: object) -> Any:
        return self.catalog.call(group, operation, self.catalog.id_of(name), *arguments)

    def _namespace(self, verb: str, namespace: Name, **values: object) -> Any:
        request = self.catalog.request(f"{verb.capitalize()}NamespaceRequest", **values)
        return self._ask("NamespaceApi", f"{verb}_namespace", namespace, request)

    def _page(self, operation: str, parent: Name, token: str | None) -> Any:
        return self.catalog.call(
            "NamespaceApi", operation, self.catalog.id_of(parent), page_token=token
        )
