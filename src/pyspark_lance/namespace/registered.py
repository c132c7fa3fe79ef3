"""Tables of a catalog that an implementation of ``lance_namespace`` connects to.

Many implementations raise errors without a type, such as ``RuntimeError("Table does not exist")``.
Whether a name exists is decided by listing its namespace then, never by the text of an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.namespace.directory import drop_table
from pyspark_lance.namespace.namespace import (
    CatalogNamespace,
    Declared,
    ExternalTable,
    Name,
    format_name,
    object_id,
)
from pyspark_lance.store.registered_catalog import RegisteredCatalog
from pyspark_lance.table.version.table import Table

IS_MANAGED: Final = "is_managed_location"
"""Spark's property of tables whose location the catalog chose: their files are dropped, too."""
_COMMENT, _DESCRIPTION = "comment", "description"
_DEFAULT: Final = ("default",)
_LOCATION: Final = "location"
_GLUE: Final = "glue"
_HIVE: Final = ("hive2", "hive3")
# Settings for where tables are placed, without which an implementation takes the working directory
# of its process or a temporary folder.
_ROOTS: Final[Mapping[str, str]] = {
    "hive2": "root",
    "hive3": "root",
    "iceberg": "root",
    "polaris": "polaris.root",
    "unity": "unity.root",
}
# Levels of the outermost namespaces; above are catalogs or warehouses, which the service manages.
_LEVELS: Final[Mapping[str, int]] = {"hive3": 2, "unity": 2, "polaris": 2, "iceberg": 2}
_MAX_SHOWN: Final = 5  # tables in an error


@dataclass(slots=True)
class _Content:
    """What is below a namespace."""

    tables: list[tuple[Name, Table | None]] = field(default_factory=list)  # With their files.
    foreign: list[Name] = field(default_factory=list)  # Tables of other formats.
    namespaces: list[Name] = field(default_factory=list)  # The innermost ones first.


@dataclass(frozen=True, slots=True)
class RegisteredNamespace(CatalogNamespace):
    """A namespace of an implementation of ``lance_namespace.LanceNamespace``."""

    catalog: RegisteredCatalog

    def namespaces(self, parent: Name) -> list[str]:
        """See ``Namespace``."""
        try:
            listed = self._pages("list_namespaces", parent, "namespaces")
        except InvalidInputError:
            return []  # of a level that has none, or does not list them, such as Polaris' catalogs
        # Polaris lists whole names.
        return [name.removeprefix(".".join((*parent, ""))) for name in listed]

    def properties(self, namespace: Name) -> Mapping[str, str] | None:
        """See ``Namespace``; catalogs of several levels describe the innermost one only."""
        try:
            reply = self.catalog.call("describe_namespace", namespace)
        except NamespaceNotFoundError:
            return None
        except InvalidInputError:
            return {} if self._exists(namespace) else None
        except StorageError:
            if self._exists(namespace):
                raise
            return None
        found = {name: str(text) for name, text in (reply.properties or {}).items()}
        if _DESCRIPTION in found:
            found.setdefault(_COMMENT, found.pop(_DESCRIPTION))
        return found

    def create_namespace(self, namespace: Name, properties: Mapping[str, str]) -> bool:
        """See ``Namespace``."""
        object_id(namespace)
        given = dict(properties)
        if _COMMENT in given:
            # Glue knows descriptions, Hive comments.
            given[_DESCRIPTION] = given[_COMMENT]
        if _LOCATION not in given and self.catalog.known_name() in _HIVE and self._lacks_root():
            given[_LOCATION] = self._default_location(namespace)
        try:
            self.catalog.call("create_namespace", namespace, properties=given or None)
        except TableAlreadyExistsError:
            return False
        except StorageError:
            if self.properties(namespace) is None:
                raise
            return False
        return True

    def change_properties(self, namespace: Name, changes: Mapping[str, str | None]) -> None:
        """Raise an error, as the interface has no such operation."""
        raise UnsupportedFeatureError(
            "properties of namespaces in this catalog cannot be changed",
            self.catalog.uri,
            "change them with the tools of the catalog",
        )

    def drop_namespace(self, namespace: Name, *, cascade: bool) -> bool:
        """See ``Namespace``; few implementations cascade, so that this drops all content.

        Nothing is dropped if there are tables of other formats.
        """
        if len(namespace) < _LEVELS.get(self.catalog.known_name(), 1):
            raise UnsupportedFeatureError(
                f"{format_name(namespace)} is no namespace that can be dropped",
                self.catalog.uri,
                "drop the namespaces in it, or drop it with the tools of the catalog",
            )
        if self.properties(namespace) is None:
            return False
        if not cascade and (
            self.tables(namespace)
            or self.namespaces(namespace)
            or self.catalog.list_all_tables(namespace)
        ):
            raise NamespaceNotEmptyError(f"{format_name(namespace)} is not empty", self.catalog.uri)
        content = self._content(namespace)
        if content.foreign:
            names = ", ".join(format_name(name) for name in content.foreign[:_MAX_SHOWN])
            raise UnsupportedFeatureError(
                f"{format_name(namespace)} has tables that are not Lance tables: {names}"
                + ", …" * (len(content.foreign) > _MAX_SHOWN),
                self.catalog.uri,
                "nothing was dropped: drop these tables in the catalog of their format, then "
                "repeat the statement",
            )
        for name, files in content.tables:
            self._drop(name, files)
        for inner in (*content.namespaces, namespace):
            self.catalog.call("drop_namespace", inner)
        return True

    def _content(self, namespace: Name) -> _Content:
        """Return everything below a namespace; raise what would fail its drop halfway."""
        content = _Content()
        listed = self.tables(namespace)
        for table in listed:
            reply = self._describe((*namespace, table))
            if reply is not None:
                name = (*namespace, table)
                content.tables.append((name, self._managed_files(name, reply)))
        for table in self.catalog.list_all_tables(namespace):
            if not _is_among(table, listed):
                content.foreign.append((*namespace, table))
        for part in self.namespaces(namespace):
            inner = self._content((*namespace, part))
            content.tables += inner.tables
            content.foreign += inner.foreign
            content.namespaces += [*inner.namespaces, (*namespace, part)]
        return content

    def has_root_tables(self) -> bool:
        """Return whether the catalog has tables without a namespace; Glue, Hive, … have none."""
        return bool(self._tables(()))

    def tables(self, namespace: Name) -> list[str]:
        """See ``Namespace``; with tables that are declared and not written yet."""
        listed = self._tables(namespace)
        is_default = not namespace and not listed and self._has_default()
        return self._tables(_DEFAULT) if is_default else listed

    def _tables(self, namespace: Name) -> list[str]:
        try:
            listed = self._pages("list_tables", namespace, "tables")
        except (InvalidInputError, StorageError) as error:
            if not self._exists(namespace):
                raise _no_namespace(namespace, self.catalog) from error
            if isinstance(error, StorageError):
                raise
            return []  # of a level that has no tables
        if not listed and self.properties(namespace) is None:  # Hive lists nothing without error
            raise _no_namespace(namespace, self.catalog)
        return listed

    def _has_default(self) -> bool:
        try:
            return self.properties(_DEFAULT) is not None
        except LanceError:
            return False  # the request for the name itself reports that the catalog fails

    def _full_name(self, name: Name) -> Name:
        """Add the namespace ``default``, as Spark does, to a name without one."""
        is_bare = len(name) == 1 and self._has_default() and not self.has_root_tables()
        return (*_DEFAULT, *name) if is_bare else name

    def locate(self, name: Name) -> Table | None:
        """See ``Namespace``."""
        name = self._full_name(name)
        reply = self._describe(name)
        if reply is None:
            return None
        table = self._table(name, reply)
        return table if _is_managed(reply) else ExternalTable(table.root, table.storage)

    def declare(self, name: Name, location: str | None = None) -> Declared:
        """See ``Namespace``; this declares the name."""
        object_id(name)
        name = self._full_name(name)
        known = self.locate(name)
        if known is not None:
            return Declared(known, is_new=False)
        properties = None
        if location is None:
            location, properties = self._place(name), {IS_MANAGED: "true"}
        try:
            reply = self.catalog.call(
                "declare_table",
                name,
                location=location,
                properties=properties,
                vend_credentials=True,
            )
        except NamespaceNotFoundError:
            raise
        except LanceError as error:
            # Another client may have declared it since.
            known = self.locate(name)
            if known is not None:
                return Declared(known, is_new=False)
            if self.properties(name[:-1]) is None:
                raise _no_namespace(name[:-1], self.catalog) from error
            raise
        return Declared(self._table(name, reply), is_new=True)

    def _place(self, name: Name) -> str | None:
        """Return a location for a new table where the implementation would not choose the user's.

        Glue's would be in a bucket that is not the user's, those of others in a folder of this
        process.
        """
        *parent, table = name
        is_glue = self.catalog.known_name() == _GLUE
        if not parent or not (is_glue or self._lacks_root()):
            return None
        properties = self.properties(tuple(parent))
        if properties is None:
            return None  # the request reports that
        location = properties.get(_LOCATION)
        if location:
            return None if is_glue else f"{location.rstrip('/')}/{table}"
        setting = _ROOTS.get(self.catalog.known_name())
        raise InvalidInputError(
            f"the namespace {format_name(tuple(parent))} has no location for its tables",
            self.catalog.uri,
            "CREATE TABLE … LOCATION 's3://…', or create the namespace with a LOCATION"
            + (f", or set spark.sql.catalog.<name>.{setting}" if setting else ""),
        )

    def _lacks_root(self) -> bool:
        root = _ROOTS.get(self.catalog.known_name())
        return root is not None and not self.catalog.properties.get(root)

    def _default_location(self, namespace: Name) -> str:
        """Return the location of a new database in the warehouse of Hive, where ``default`` is."""
        default = self.properties((*namespace[:-1], *_DEFAULT)) or {}
        if not default.get(_LOCATION):
            raise InvalidInputError(
                f"the metastore has no location for the database {format_name(namespace)}",
                self.catalog.uri,
                "CREATE NAMESPACE … LOCATION '…', or set spark.sql.catalog.<name>.root",
            )
        return f"{default[_LOCATION].rstrip('/')}/{namespace[-1].lower()}.db"

    def drop_table(self, name: Name) -> bool:
        """See ``Namespace``; files at a location that a user chose are kept."""
        name = self._full_name(name)
        reply = self._describe(name)
        if reply is not None:
            self._drop(name, self._managed_files(name, reply))
        return reply is not None

    def _managed_files(self, name: Name, reply: Any) -> Table | None:
        """Return the table whose files are dropped with its name; None if they are kept."""
        return self._table(name, reply) if _is_managed(reply) else None

    def _drop(self, name: Name, files: Table | None) -> None:
        if files is not None:
            # The name is removed last, so that an interrupted drop can be repeated.
            drop_table(files)
        try:
            self._deregister(name)
        except LanceError:
            if self._describe(name) is not None:
                raise
            # Another client has dropped it since.

    def _deregister(self, name: Name) -> None:
        self.catalog.call("deregister_table", self._full_name(name))

    def rename_table(self, name: Name, new: Name) -> None:
        """See ``Namespace``."""
        object_id(new)
        name, new = self._full_name(name), self._full_name(new)
        if self.locate(name) is None:
            raise TableNotFoundError(f"there is no table {format_name(name)}", self.catalog.uri)
        try:
            self.catalog.call(
                "rename_table", name, new_table_name=new[-1], new_namespace_id=list(new[:-1])
            )
        except UnsupportedFeatureError:
            raise UnsupportedFeatureError(
                "tables of this catalog cannot be renamed",
                self.catalog.uri,
                "CREATE TABLE new AS SELECT * FROM old, then DROP TABLE old",
            ) from None

    def _describe(self, name: Name) -> Any | None:
        """Return the description of a table; None if there is no such name."""
        try:
            return self.catalog.describe_table(name)
        except (TableNotFoundError, NamespaceNotFoundError):
            return None
        except LanceError:
            try:
                tables = self.tables(name[:-1])
            except NamespaceNotFoundError:
                return None
            if not _is_among(name[-1], tables):
                return None
        return self.catalog.describe_table(name)  # another client may have added it since

    def _exists(self, namespace: Name) -> bool:
        """Return whether a namespace is listed, or has listed children."""
        if not namespace:
            return True
        try:
            return _is_among(namespace[-1], self.namespaces(namespace[:-1])) or bool(
                self.namespaces(namespace)
            )
        except (NamespaceNotFoundError, StorageError):
            if self._exists(namespace[:-1]):
                raise
            return False

    def _page(self, operation: str, parent: Name, token: str | None) -> Any:
        return self.catalog.call(operation, parent, page_token=token)


def _is_managed(reply: Any) -> bool:
    return (reply.properties or {}).get(IS_MANAGED) == "true"


def _is_among(name: str, names: list[str]) -> bool:
    # Hive and Glue store names in small letters.
    return name.lower() in {one.lower() for one in names}


def _no_namespace(namespace: Name, catalog: RegisteredCatalog) -> NamespaceNotFoundError:
    return NamespaceNotFoundError(f"there is no namespace {format_name(namespace)}", catalog.uri)
