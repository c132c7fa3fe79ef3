"""Open a namespace from catalog settings, which have the names of other Lance clients."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.namespace.directory import DirectoryNamespace
from pyspark_lance.namespace.namespace import Declared, Name, Namespace, object_id, refuse_location
from pyspark_lance.namespace.registered import RegisteredNamespace
from pyspark_lance.namespace.rest import RestNamespace
from pyspark_lance.store.hadoop_options import hadoop_of, resolve_path
from pyspark_lance.store.registered_catalog import RegisteredCatalog
from pyspark_lance.store.rest_client import RestCatalog
from pyspark_lance.store.storage_options import PREFIX
from pyspark_lance.table.version.table import Table

_HEADER = ("headers.", "header.")
_CHOOSING = ("impl", "namespace")
_FLAGS = {"true": True, "false": False}
ROOT_NAME = "main"
"""The name of the root in Spark, where every table name has a namespace."""
_OWN_NAMES = ((ROOT_NAME,), ("default",))


def open_namespace(
    settings: Mapping[str, str], hadoop: Mapping[str, str] = MappingProxyType({})
) -> Namespace:
    """The namespace that the settings of a catalog describe.

    ``settings``: ``impl`` or ``namespace`` (``dir``, the default, ``rest``, or an implementation of
    ``lance_namespace``, which takes all other settings), ``root`` or ``path``,
    ``manifest_enabled``, ``dir_listing_enabled``, ``uri``, ``delimiter``, ``headers.*``,
    ``storage.*``; in any case. ``hadoop``: Hadoop's settings of the session for stores.
    """
    named = {name.lower(): text for name, text in settings.items()}
    storage = {name: text for name, text in settings.items() if name.lower().startswith(PREFIX)}
    given = named.get("impl") or named.get("namespace")
    impl = (given or ("rest" if "uri" in named else "dir")).lower()
    if impl == "rest" and named.get("uri"):
        headers = {
            name.split(".", 1)[1]: text
            for name, text in settings.items()
            if name.lower().startswith(_HEADER)
        }
        delimiter = named.get("delimiter", "$")
        return RestNamespace(RestCatalog(named["uri"], headers, delimiter), storage, hadoop)
    root = named.get("root") or named.get("path")
    if impl == "dir" and root:
        root = resolve_path(root, {**hadoop, **storage})
        return DirectoryNamespace(
            Table(root, {**hadoop_of(root, hadoop), **storage}),
            _flag(named, "manifest_enabled"),
            _flag(named, "dir_listing_enabled"),
        )
    if given and impl not in ("dir", "rest"):
        properties = {
            name: text for name, text in settings.items() if name.lower() not in _CHOOSING
        }
        catalog = RegisteredCatalog(given, properties)
        catalog.connect()
        return RegisteredNamespace(catalog, storage, hadoop)
    if given or "uri" in named:
        raise InvalidInputError(
            f"the catalog's settings have no location of tables: impl = {impl}",
            hint="impl = dir with path (or root), impl = rest with uri, or glue, hive2, unity, … "
            "with the settings of that catalog",
        )
    return NoNamespace()


class NoNamespace:
    """A catalog without named tables."""

    def namespaces(self, parent: Name) -> list[str]:
        """Return nothing."""
        return []

    def properties(self, namespace: Name) -> Mapping[str, str] | None:
        """Return no properties for the root."""
        return None if namespace else {}

    def create_namespace(self, namespace: Name, properties: Mapping[str, str]) -> bool:
        """Raise an error: the catalog has no folder."""
        refuse_location(properties)
        raise _missing_location()

    def change_properties(self, namespace: Name, changes: Mapping[str, str | None]) -> None:
        """Raise an error: the catalog has no folder."""
        raise _missing_location()

    def drop_namespace(self, namespace: Name, *, cascade: bool) -> bool:
        """Raise an error for the root; there is no other namespace."""
        if not namespace:
            raise InvalidInputError(
                "the root of a catalog cannot be dropped",
                hint="it is empty: tables of this catalog are named by their paths",
            )
        return False

    def tables(self, namespace: Name) -> list[str]:
        """Return nothing."""
        return []

    def locate(self, name: Name) -> Table | None:
        """Return nothing."""
        return None

    def declare(self, name: Name, location: str | None = None) -> Declared:
        """Raise an error: the catalog has no folder."""
        raise _missing_location()

    def register(self, name: Name, table: Table) -> None:
        """Raise an error: the catalog has no folder."""
        raise _missing_location()

    def drop_table(self, name: Name) -> bool:
        """Return that there is no table."""
        return False

    def rename_table(self, name: Name, new: Name) -> None:
        """Raise an error: the catalog has no folder."""
        raise _missing_location()


def _missing_location() -> InvalidInputError:
    return InvalidInputError(
        "the catalog has no folder for named tables",
        hint="set spark.sql.catalog.<name>.path to a folder, or impl = rest and uri; or name a "
        "table by its path: lance.`/data/t`",
    )


def _flag(named: Mapping[str, str], name: str) -> bool:
    text = named.get(name, "true").lower()
    if text not in _FLAGS:
        raise InvalidInputError(f"the catalog's setting {name} is {text!r}", hint="true or false")
    return _FLAGS[text]


def real_namespace(namespace: Namespace, name: Name) -> Name:
    """Resolve ``main`` and ``default`` to the root, unless there is such a namespace."""
    if name in _OWN_NAMES and namespace.properties(name) is None:
        return ()
    object_id(name)
    return name
