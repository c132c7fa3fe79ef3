"""Tables of one folder, and the namespaces in its table ``__manifest``.

``__manifest`` has one row for each table and namespace. Every change replaces all rows in one
version, as in pylance 14, and is retried after any concurrent commit.

Tables of the root are in ``<name>.lance``, where all clients find them without ``__manifest``.
Other tables are in folders with a random prefix, which object stores distribute over servers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.commit.retries import Retries
from pyspark_lance.errors import (
    CommitConflictError,
    CorruptFileError,
    InvalidInputError,
    MissingFileError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.metafile.manifest_file import latest_version, retry_if_removed
from pyspark_lance.metafile.paths import VERSIONS
from pyspark_lance.namespace.namespace import (
    DELIMITER,
    Declared,
    Name,
    format_name,
    object_id,
    refuse_location,
)
from pyspark_lance.store.local_store import retry_stale_handles
from pyspark_lance.store.object_store import check_path, missing
from pyspark_lance.store.open_store import split_uri
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, create_table, write_rows

FOLDER = "__manifest"
TABLE, NAMESPACE = "table", "namespace"
_FILE_VERSION = "2.2"
_RETRIES = 30
_KEY = {"lance-schema:unenforced-primary-key:position": "0"}
_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=_KEY),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)
NO_ROWS = pa.Table.from_batches([], _SCHEMA)


class ManifestTable:
    """Rows of tables and namespaces.

    ``table``: the table that stores them; the first row creates it.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def rows(self) -> pa.Table:
        """Return all rows; none if the table does not exist."""
        return self._newest()[1]

    def _newest(self) -> tuple[Snapshot | None, pa.Table]:
        """Read the newest version and its rows.

        Every change replaces all files, so a concurrent cleanup may remove those of the version
        that is being read.
        """

        def look() -> tuple[Snapshot | None, pa.Table]:
            snapshot = open_existing(self._table)
            if snapshot is None:
                return None, NO_ROWS
            try:
                return snapshot, _rows(snapshot)
            except MissingFileError as error:
                newest = open_existing(self._table)
                if newest is not None and newest.version == snapshot.version:
                    raise
                raise missing(self._table.uri, snapshot.file.location.path) from error

        return retry_if_removed(self._table.store(), look)

    def change(self, edit: Callable[[pa.Table], pa.Table]) -> None:
        """Replace the rows by ``edit(rows)``; do nothing if it returns them unchanged.

        ``edit``: called again after a conflict; its exceptions end the change.
        """
        retries = Retries(_RETRIES)
        while True:
            try:
                return self._change_once(edit)
            except CommitConflictError:
                if not retries.plan_again():
                    raise

    def _change_once(self, edit: Callable[[pa.Table], pa.Table]) -> None:
        snapshot, before = self._newest()
        if snapshot is None:
            if edit(NO_ROWS) is NO_ROWS:
                return
            self._create()
            self._change_once(edit)
            return
        after = edit(before)
        if after is before:
            return
        settings = WriteSettings(overwrite=True, source_version=snapshot.version)
        plan = plan_write(self._table, after.schema, settings, existing=snapshot)
        commit_write(plan, write_rows(plan, after.to_batches()))

    def _create(self) -> None:
        """Create the table without rows, unless another client has created it."""
        settings = WriteSettings(enable_stable_row_ids=False, file_version=_FILE_VERSION)
        with contextlib.suppress(TableAlreadyExistsError):
            create_table(self._table, _SCHEMA, settings)


def _rows(snapshot: Snapshot) -> pa.Table:
    schema = snapshot.schema.to_arrow()
    batches = [batch for task in plan_scan(snapshot, ScanRequest()) for batch in task.run()]
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def row_of(rows: pa.Table, object_id: str) -> dict[str, Any] | None:
    """Return the row with this id."""
    matching = rows.filter(pc.equal(rows["object_id"], object_id)).to_pylist()
    return matching[0] if matching else None


def children(rows: pa.Table, parent: str, object_type: str) -> list[str]:
    """Return names of the tables or namespaces directly in a parent, '' for the root."""
    prefix = f"{parent}{DELIMITER}" if parent else ""
    ids = rows.filter(pc.equal(rows["object_type"], object_type))["object_id"]
    below = pc.utf8_slice_codeunits(ids.filter(pc.starts_with(ids, prefix)), start=len(prefix))
    names: list[str] = below.filter(pc.invert(pc.match_substring(below, DELIMITER))).to_pylist()
    return sorted(names)


def below(rows: pa.Table, parent: str) -> pa.Table:
    """Return the rows of all descendants of a namespace."""
    return rows.filter(pc.starts_with(rows["object_id"], f"{parent}{DELIMITER}"))


def with_row(rows: pa.Table, **values: str | None) -> pa.Table:
    """Add a row, or replace the one with the same id."""
    added = {name: [values.get(name)] for name in rows.column_names}
    kept = without(rows, [values["object_id"] or ""])
    return pa.concat_tables([kept, pa.table(added, schema=rows.schema)])


def without(rows: pa.Table, object_ids: Sequence[str]) -> pa.Table:
    """Remove the rows with these ids; return the same table object if there are none."""
    removed = pc.is_in(rows["object_id"], value_set=pa.array(object_ids, pa.string()))
    return rows.filter(pc.invert(removed)) if pc.any(removed).as_py() else rows


@dataclass(frozen=True, slots=True)
class DirectoryNamespace:
    """A Lance directory namespace."""

    root: Table  # The folder, as a table.
    uses_manifest: bool = True  # Whether ``__manifest`` is read and written.
    lists_folders: bool = True  # Whether folders ``<name>.lance`` without a row in it are tables.

    def namespaces(self, parent: Name) -> list[str]:
        """See ``Namespace``."""
        rows = self._rows()
        _check_parent(rows, parent)
        return children(rows, object_id(parent), NAMESPACE)

    def properties(self, namespace: Name) -> Mapping[str, str] | None:
        """See ``Namespace``."""
        return {} if not namespace else _properties(_namespace(self._rows(), namespace))

    def create_namespace(self, namespace: Name, properties: Mapping[str, str]) -> bool:
        """See ``Namespace``."""
        if not namespace:
            return False
        refuse_location(properties)
        key, made = object_id(namespace), True

        def edit(rows: pa.Table) -> pa.Table:
            nonlocal made
            _check_parent(rows, namespace[:-1])
            made = row_of(rows, key) is None
            metadata = json.dumps(dict(properties)) if properties else None
            if not made:
                return rows
            return with_row(rows, object_id=key, object_type=NAMESPACE, metadata=metadata)

        self._manifest().change(edit)
        return made

    def change_properties(self, namespace: Name, changes: Mapping[str, str | None]) -> None:
        """See ``Namespace``."""
        refuse_location(changes)

        def edit(rows: pa.Table) -> pa.Table:
            row = _namespace(rows, namespace)
            if row is None:
                raise _missing(namespace)
            merged = {**(_properties(row) or {}), **changes}
            kept = {name: value for name, value in merged.items() if value is not None}
            return with_row(rows, **{**row, "metadata": json.dumps(kept) if kept else None})

        self._manifest().change(edit)

    def drop_namespace(self, namespace: Name, *, cascade: bool) -> bool:
        """See ``Namespace``."""
        if not namespace:
            raise InvalidInputError("the root of a catalog cannot be dropped", self.root.uri)
        key, exists = object_id(namespace), False
        inside = below(self._rows(), key)
        if cascade:
            listed = inside.filter(pc.equal(inside["object_type"], TABLE))["location"]
            # A location that cannot be dropped is an error before anything is dropped.
            for table in [self._at(location) for location in listed.to_pylist()]:
                drop_table(table)

        def edit(rows: pa.Table) -> pa.Table:
            nonlocal exists
            exists = _namespace(rows, namespace) is not None
            ids = below(rows, key)["object_id"].to_pylist()
            # With ``cascade``, the objects that were listed before the drop are removed.
            if exists and (
                set(ids) - set(inside["object_id"].to_pylist()) or (ids and not cascade)
            ):
                raise NamespaceNotEmptyError(
                    f"there are {len(ids)} tables and namespaces in {format_name(namespace)}",
                    self.root.uri,
                )
            return without(rows, [key, *ids]) if exists else rows

        self._manifest().change(edit)
        return exists

    def tables(self, namespace: Name) -> list[str]:
        """See ``Namespace``."""
        rows = self._rows()
        _check_parent(rows, namespace)
        names = set(children(rows, object_id(namespace), TABLE))
        if not namespace and self.lists_folders:
            names.update(list_tables(self.root))
        return sorted(names)

    def locate(self, name: Name) -> Table | None:
        """See ``Namespace``."""
        row = row_of(self._rows(), object_id(name))
        if row is not None:
            return self._at(row["location"]) if row["object_type"] == TABLE else None
        return self._at(name[0] + SUFFIX) if self._is_listed(name) else None

    def declare(self, name: Name, location: str | None = None) -> Declared:
        """See ``Namespace``; ``register`` adds the name."""
        return Declared(self._place(name, location), is_new=False)

    def _place(self, name: Name, location: str | None = None) -> Table:
        rows = self._rows()
        _check_parent(rows, name[:-1])
        row = row_of(rows, object_id(name))
        if row is not None and row["object_type"] != TABLE:
            raise TableAlreadyExistsError(f"{format_name(name)} is a namespace", self.root.uri)
        if location is not None:
            return self._at(self._relative(location))
        if row is not None:
            return self._at(row["location"])
        if self._is_listed(name):
            return self._at(name[0] + SUFFIX)
        self._manifest()  # without it, the table could not be found again
        return self._at(f"{uuid.uuid4().hex[:8]}_{object_id(name)}")

    def register(self, name: Name, table: Table) -> None:
        """See ``Namespace``."""
        if self.uses_manifest:
            self._manifest().change(lambda rows: self._add_table(rows, name, table))

    def _add_table(self, rows: pa.Table, name: Name, table: Table) -> pa.Table:
        _check_parent(rows, name[:-1])
        key, location = object_id(name), self._relative(table.root)
        row = row_of(rows, key)
        if row is None:
            return with_row(rows, object_id=key, object_type=TABLE, location=location)
        if row["object_type"] != TABLE or row["location"] != location:
            raise TableAlreadyExistsError(
                f"{format_name(name)} was created concurrently by another client", self.root.uri
            )
        return rows

    def drop_table(self, name: Name) -> bool:
        """See ``Namespace``."""
        table = self.locate(name)
        if table is None:
            return False
        # The name is removed last, so that an interrupted drop can be repeated.
        existed = drop_table(table)
        return self._forget(name) or existed

    def _forget(self, name: Name) -> bool:
        known = row_of(self._rows(), object_id(name)) is not None
        if known:
            self._manifest().change(lambda rows: without(rows, [object_id(name)]))
        return known

    def rename_table(self, name: Name, new: Name) -> None:
        """See ``Namespace``."""
        table = self.locate(name)
        if table is None or open_existing(table) is None:
            raise TableNotFoundError(f"there is no table {format_name(name)}", self.root.uri)
        taken = self.locate(new)
        if taken is not None and open_existing(taken) is not None:
            raise TableAlreadyExistsError(f"there is a table {format_name(new)}", self.root.uri)
        target = self._place(new) if self._is_listed(name) or self._is_listed(new) else table
        if (
            target.root != table.root
        ):  # clients that list folders find tables of the root by folder name
            rename_table(table, target.root)
        location = self._relative(target.root)
        if not self.uses_manifest:
            return

        def edit(rows: pa.Table) -> pa.Table:
            _check_parent(rows, new[:-1])
            row = row_of(rows, object_id(name)) or {"object_type": TABLE}
            moved = {**row, "object_id": object_id(new), "location": location}
            return with_row(without(rows, [object_id(name)]), **moved)

        self._manifest().change(edit)

    def _rows(self) -> pa.Table:
        return ManifestTable(self._folder(FOLDER)).rows() if self.uses_manifest else NO_ROWS

    def _manifest(self) -> ManifestTable:
        if not self.uses_manifest:
            raise UnsupportedFeatureError(
                f"namespaces are stored in {FOLDER}, which manifest_enabled = false disables",
                self.root.uri,
                "leave out the setting manifest_enabled of the catalog",
            )
        return ManifestTable(self._folder(FOLDER))

    def _is_listed(self, name: Name) -> bool:
        return self.lists_folders and len(name) == 1

    def _at(self, location: str | None) -> Table:
        try:
            return self._folder(check_path((location or "").rstrip("/")))
        except InvalidInputError as error:
            raise CorruptFileError(
                f"the location {location!r} of a table is not in the folder of the catalog",
                f"{self.root.uri}/{FOLDER}",
                "fix the row of the table, or read the table by its path",
            ) from error

    def _folder(self, name: str) -> Table:
        return replace(self.root, root=f"{_plain(self.root.root)}/{name}")

    def _relative(self, location: str) -> str:
        """Return a location relative to the folder, as in rows of ``__manifest``."""
        root, path = _plain(self.root.root) + "/", _plain(location)
        if not path.startswith(root):
            raise UnsupportedFeatureError(
                f"the tables of this catalog are in its own folder, and {location} is not in it",
                self.root.uri,
                "leave out LOCATION, or create the table in spark_catalog",
            )
        return check_path(path[len(root) :])


def _plain(uri: str) -> str:
    """Normalize a URI for comparisons."""
    scheme, local = split_uri(uri)
    return local if scheme == "file" else uri.rstrip("/")


def _namespace(rows: pa.Table, namespace: Name) -> dict[str, Any] | None:
    row = row_of(rows, object_id(namespace))
    return row if row is not None and row["object_type"] == NAMESPACE else None


def _properties(row: Mapping[str, Any] | None) -> Mapping[str, str] | None:
    if row is None:
        return None
    kept: dict[str, str] = json.loads(row["metadata"] or "{}")
    return kept


def _check_parent(rows: pa.Table, parent: Name) -> None:
    if parent and _namespace(rows, parent) is None:
        raise _missing(parent)


def _missing(namespace: Name) -> NamespaceNotFoundError:
    return NamespaceNotFoundError(f"there is no namespace {format_name(namespace)}")


SUFFIX = ".lance"


def list_tables(parent: Table) -> list[str]:
    """List the names of the tables below a folder; needs a full listing of an object store."""
    scheme, folder = split_uri(parent.uri)
    if scheme == "file":
        folders = [name for name in _names_in(folder) if _is_table(os.path.join(folder, name))]
    else:
        parts = (info.path.split("/", 2) for info in parent.store().list(""))
        folders = list({part[0] for part in parts if len(part) == 3 and part[1] == VERSIONS})
    return sorted(name.removesuffix(SUFFIX) for name in folders if name.endswith(SUFFIX))


def _names_in(folder: str) -> list[str]:
    try:
        return retry_stale_handles(lambda: os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_table(folder: str) -> bool:
    try:
        status = retry_stale_handles(lambda: os.stat(os.path.join(folder, VERSIONS)))
    except (FileNotFoundError, NotADirectoryError):
        return False  # or removed concurrently
    return stat.S_ISDIR(status.st_mode)


def drop_table(table: Table) -> bool:
    """Remove a table with all its versions; returns whether there was one."""
    store = table.store()
    if latest_version(store) is None:
        return False
    scheme, folder = split_uri(table.uri)
    # Remove manifests first, so that an interrupted drop leaves no table.
    names = [info.path for info in store.list("")]
    store.delete_many([name for name in names if name.startswith(f"{VERSIONS}/")])
    store.delete_many([name for name in names if not name.startswith(f"{VERSIONS}/")])
    if scheme == "file":
        shutil.rmtree(folder, ignore_errors=True)
    return True


def rename_table(table: Table, new_uri: str) -> None:
    """Move a table of a local folder."""
    (scheme, folder), (new_scheme, new_folder) = split_uri(table.uri), split_uri(new_uri)
    if "file" not in (scheme, new_scheme) or scheme != new_scheme:
        raise UnsupportedFeatureError(
            "an object store cannot rename a table in one step",
            where=table.uri,
            hint="copy the table",
        )
    if latest_version(table.store()) is None:
        raise TableNotFoundError("there is no Lance table here", where=table.uri)
    if os.path.exists(new_folder):
        raise TableAlreadyExistsError("the new name is taken", where=new_uri)
    if not os.path.isdir(os.path.dirname(new_folder)):
        raise InvalidInputError("the new name lies in a folder that does not exist", where=new_uri)
    try:
        os.rename(folder, new_folder)
    except OSError as error:
        raise StorageError(
            f"the table cannot be renamed: {error.strerror}", where=table.uri
        ) from error
