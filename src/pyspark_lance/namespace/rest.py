"""Tables of a REST catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_lance.errors import (
    NamespaceNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.namespace.namespace import Name, object_id, refuse_location
from pyspark_lance.store.credential_issuer import Issuer
from pyspark_lance.store.hadoop_options import hadoop_of
from pyspark_lance.store.rest_client import RestCatalog
from pyspark_lance.table.version.table import Table

# Maximum names in a namespace.
_MAX_NAMES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class RestNamespace:
    """A namespace of a server with the REST protocol of Lance namespaces."""

    catalog: RestCatalog
    storage: Mapping[str, str]  # Storage options for what it gives no credentials for; secret.
    # Hadoop's settings for stores, over which all others take precedence; secret.
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)

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
        return self._pages("list_tables", namespace, "tables")

    def locate(self, name: Name) -> Table | None:
        """See ``Namespace``."""
        try:
            return self._table(*Issuer(self.catalog, name).ask())
        except (TableNotFoundError, NamespaceNotFoundError):
            return None

    def place(self, name: Name, location: str | None = None) -> Table:
        """See ``Namespace``; this declares the name."""
        known = self.locate(name)
        if known is not None:
            return known
        object_id(name)
        request = self.catalog.request(
            "DeclareTableRequest", location=location, vend_credentials=True
        )
        try:
            reply = self._ask("TableApi", "declare_table", name, request)
        except TableAlreadyExistsError:
            return self._table(*Issuer(self.catalog, name).ask())
        return self._table(*Issuer(self.catalog, name).read(reply))

    def register(self, name: Name, table: Table) -> None:
        """Do nothing, as ``place`` has declared the name."""

    def drop_table(self, name: Name) -> bool:
        """See ``Namespace``."""
        try:
            self._ask("TableApi", "drop_table", name)
        except TableNotFoundError:
            return False
        return True

    def rename_table(self, name: Name, new: Name) -> None:
        """See ``Namespace``."""
        request = self.catalog.request(
            "RenameTableRequest", new_table_name=new[-1], new_namespace_id=list(new[:-1])
        )
        self._ask("TableApi", "rename_table", name, request)

    def _table(self, location: str, storage: Mapping[str, str]) -> Table:
        hadoop = hadoop_of(location, self.hadoop)
        return Table(location, {**hadoop, **self.storage, **storage})

    def _ask(self, group: str, operation: str, name: Name, *arguments: object) -> Any:
        return self.catalog.call(group, operation, self.catalog.id_of(name), *arguments)

    def _namespace(self, verb: str, namespace: Name, **values: object) -> Any:
        request = self.catalog.request(f"{verb.capitalize()}NamespaceRequest", **values)
        return self._ask("NamespaceApi", f"{verb}_namespace", namespace, request)

    def _pages(self, operation: str, parent: Name, attribute: str) -> list[str]:
        def page(token: str | None) -> Any:
            return self.catalog.call(
                "NamespaceApi", operation, self.catalog.id_of(parent), page_token=token
            )

        return listed_names(page, attribute, self.catalog.uri)


def listed_names(page_of: Callable[[str | None], Any], attribute: str, where: str) -> list[str]:
    """Return the names in all pages of a list, sorted.

    ``page_of``: requests the page of a token, the first one by None. ``attribute``: of a page, its
    names. ``where``: the catalog, for errors.
    """
    names: list[str] = []
    token: str | None = None
    while True:
        page = page_of(token)
        names += getattr(page, attribute) or []
        before, token = token, page.page_token
        if not token:
            return sorted(names)
        if token == before or len(names) > _MAX_NAMES:
            raise StorageError(f"the catalog's list does not end after {len(names)} names", where)
