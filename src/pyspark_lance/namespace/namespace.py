"""The interface of namespaces, which list and locate tables, and the base of catalog namespaces.

A name is a tuple of parts, ``("sales", "eu", "orders")``: the namespaces from the outermost one,
then the table.  ``()`` is the root, which always exists.

Source: the Lance namespace specification; docs/format/namespaces.md describes pylance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from pyspark_lance.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from pyspark_lance.store.credential_issuer import Issuer
from pyspark_lance.store.hadoop_options import hadoop_of, resolve_path
from pyspark_lance.store.registered_catalog import RegisteredCatalog
from pyspark_lance.store.rest_client import RestCatalog
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table

Name = tuple[str, ...]
DELIMITER = "$"
"""The separator of the parts of a name in one string."""


class Declared(NamedTuple):
    """The location of a new table."""

    table: Table
    is_new: bool
    """Whether the catalog has the name since this call, which added it without a table."""


class Namespace(Protocol):
    """Tables by name, in nested namespaces.

    Methods report missing objects by their return value, except that a missing parent namespace
    raises NamespaceNotFoundError.
    """

    def namespaces(self, parent: Name) -> list[str]:
        """Return the names of the namespaces directly in a namespace, sorted."""

    def properties(self, namespace: Name) -> Mapping[str, str] | None:
        """Return the properties of a namespace; None if it does not exist."""

    def create_namespace(self, namespace: Name, properties: Mapping[str, str]) -> bool:
        """Create a namespace; return whether it did not exist."""

    def change_properties(self, namespace: Name, changes: Mapping[str, str | None]) -> None:
        """Set properties of a namespace; remove those without a value."""

    def drop_namespace(self, namespace: Name, *, cascade: bool) -> bool:
        """Drop a namespace, with ``cascade`` also its contents."""

    def tables(self, namespace: Name) -> list[str]:
        """Return the names of the tables in a namespace, sorted."""

    def locate(self, name: Name) -> Table | None:
        """Return the table of this name; None if it does not exist.

        A declared name has a location before the table exists.
        """

    def declare(self, name: Name, location: str | None = None) -> Declared:
        """Return the location for a new table, or the current one if the name is declared."""

    def register(self, name: Name, table: Table) -> None:
        """Register a table that was created at the location that ``declare`` returned."""

    def drop_table(self, name: Name) -> bool:
        """Drop a table with all its versions, and its name; return whether it existed."""

    def rename_table(self, name: Name, new: Name) -> None:
        """Rename a table."""


@dataclass(frozen=True, slots=True)
class ExternalTable(Table):
    """A table at a location that its user chose: dropping its name keeps its files."""


def object_id(name: Name) -> str:
    """Return a name as one string."""
    for part in name:
        if not part or part in (".", "..") or any(sign in part for sign in f"{DELIMITER}/\\\0"):
            raise InvalidInputError(
                f"{part!r} cannot be the name of a table or namespace",
                hint=f"leave out {DELIMITER}, slashes and backslashes",
            )
    return DELIMITER.join(name)


def refuse_location(properties: Mapping[str, str | None]) -> None:
    """Raise an error for a LOCATION among the properties of a namespace."""
    if "location" in properties:
        raise UnsupportedFeatureError(
            "namespaces of this catalog have no LOCATION of their own", hint="leave out LOCATION"
        )


def format_name(name: Name) -> str:
    """Return a name for messages."""
    return ".".join(name) or "the root"


# Maximum names in a namespace.
_MAX_NAMES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class CatalogNamespace(ABC):
    """A namespace of a catalog that locates tables and may vend credentials for them."""

    catalog: RestCatalog | RegisteredCatalog
    storage: Mapping[str, str]  # Storage options for what it gives no credentials for; secret.
    # Hadoop's settings for stores, over which all others take precedence; secret.
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)

    def register(self, name: Name, table: Table) -> None:  # noqa: B027
        """Do nothing, as ``declare`` has declared the name."""

    @abstractmethod
    def locate(self, name: Name) -> Table | None:
        """See ``Namespace``."""

    def undeclare(self, name: Name) -> None:
        """Remove a name that ``declare`` added, unless there is a table."""
        table = self.locate(name)
        if table is not None and open_existing(table) is None:
            self._deregister(name)

    @abstractmethod
    def _deregister(self, name: Name) -> None:
        """Remove a name, but not the files of its table."""

    @abstractmethod
    def _page(self, operation: str, parent: Name, token: str | None) -> Any:
        """Request a page of a list; ``token``: of the page, None for the first one."""

    def _pages(self, operation: str, parent: Name, attribute: str) -> list[str]:
        """Return the names in all pages of a list, sorted; ``attribute``: of a page, its names."""
        names: list[str] = []
        token: str | None = None
        while True:
            page = self._page(operation, parent, token)
            names += getattr(page, attribute) or []
            before, token = token, page.page_token
            if not token:
                return sorted(names)
            if token == before or len(names) > _MAX_NAMES:
                raise StorageError(
                    f"the catalog's list does not end after {len(names)} names", self.catalog.uri
                )

    def _table(self, name: Name, reply: Any) -> Table:
        """Return the table at the location that the catalog's reply has."""
        location, storage = Issuer(self.catalog, name).read(reply)
        location = resolve_path(location, {**self.hadoop, **self.storage})
        hadoop = hadoop_of(location, self.hadoop)
        return Table(location, {**hadoop, **self.storage, **storage})
