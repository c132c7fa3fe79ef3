"""Base of catalog namespaces, accessed by REST or by an implementation of a package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_lance.errors import StorageError
from pyspark_lance.namespace.namespace import Name
from pyspark_lance.store.credential_issuer import Issuer
from pyspark_lance.store.hadoop_options import hadoop_of, resolve_path
from pyspark_lance.store.registered_catalog import RegisteredCatalog
from pyspark_lance.store.rest_client import RestCatalog
from pyspark_lance.table.version.table import Table

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
        """Do nothing, as ``place`` has declared the name."""

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
