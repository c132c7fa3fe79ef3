"""TableFiles: locate data and deletion files below the table root or a base path.

Shallow clones and branches refer to files of other roots by a base id.

Source: docs/format/table-format.md, section 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.format.manifest import BasePath, Manifest
from pyspark_lance.metafile.paths import INDICES, VERSIONS, data_path
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.other_roots import (
    absolute_root,
    is_absolute,
    is_below,
    open_other_root,
    root_of_url,
)
from pyspark_lance.store.storage_options import ALLOWED, PREFIX, allowed_roots
from pyspark_lance.table.version.table import Table, main_branch_of


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Opener of the stores of base ids; picklable, since it has no clients."""

    table: Table
    base_paths: tuple[BasePath, ...] = ()

    def opened(self, root: ObjectStore | None = None) -> TableFiles:
        """Return a variant that opens each root once, for many files; not picklable.

        ``root``: the store of the table, if it is open.
        """
        stores: dict[int | None, ObjectStore] = {} if root is None else {None: root}
        return _OpenTableFiles(self.table, self.base_paths, stores)

    def base(self, base_id: int) -> BasePath:
        """Return the base path with this id."""
        for base in self.base_paths:
            if base.id == base_id:
                return base
        raise CorruptFileError(
            f"a file refers to base path {base_id}, which the manifest does not list",
            where=self.table.uri,
        )

    def store_of(self, base_id: int | None) -> ObjectStore:
        """Return the store of a base path; None for the table root."""
        if base_id is None:
            return self.table.store()
        return self._open(self.base(base_id).path)

    def _open(self, uri: str) -> ObjectStore:
        return open_other_root(self.table.uri, uri, self.table.storage)

    def locate(self, file: DataFile) -> tuple[ObjectStore, str]:
        """Return the store of a data file, and the file's path in it."""
        if file.base_id is None or self.base(file.base_id).is_dataset_root:
            return self.store_of(file.base_id), data_path(file.path)
        return self.store_of(file.base_id), file.path

    def locate_index(self, base_id: int | None, path: str) -> tuple[ObjectStore, str]:
        """Return the store of an index file, and the file's path in it."""
        if base_id is None or self.base(base_id).is_dataset_root:
            return self.store_of(base_id), path
        return self.store_of(base_id), path.removeprefix(f"{INDICES}/")

    def locate_external(self, uri: str, base_id: int) -> tuple[ObjectStore, str]:
        """Return the store of an external blob, and the blob's path in it."""
        if is_absolute(uri):
            self._check_external(uri)
            folder, _, name = uri.rpartition("/")
            scheme = uri.partition("://")[0]
            if scheme != uri:  # pylance writes them as escaped URLs
                name = unquote(name)
                # Those of local folders are undone where the root is opened.
                folder = folder if scheme.lower() == "file" else unquote(folder)
            return self._open(folder or "/"), name
        base = self.base(base_id)
        if not self._is_trusted(base.path):
            raise self._outside(self.absolute(uri, base_id), base)
        return self._open(base.path), uri

    def _check_external(self, uri: str) -> None:
        """Raise UnsupportedFeatureError if a blob is neither in the table nor in an allowed folder.

        Otherwise a row could refer to any file that the reader can open.
        """
        if "\0" in uri:
            raise CorruptFileError(f"{uri!r} is not the URI of a blob", where=self.table.uri)
        own = (self.table.root, *allowed_roots(self.table.storage))
        known = root_of_url(uri)
        if any(is_below(known, root) for root in own if root.strip()):
            return
        every = (base for base in self.base_paths if is_absolute(base.path))
        bases = [base for base in every if is_below(known, root_of_url(base.path))]
        if not any(self._is_trusted(base.path) for base in bases):
            raise self._outside(uri, *bases[:1])

    def _is_trusted(self, base: str) -> bool:
        """Return whether a base path, which may be set by a hostile manifest, may hold blobs.

        It is the folder of a Lance table, or below this table or a location that the option names.
        """
        own = (self.table.root, *allowed_roots(self.table.storage))
        root = absolute_root(self.table.uri, base, self.table.storage)
        return any(is_below(root, one) for one in own if one.strip()) or holds_table(
            self._open(root)
        )

    def _outside(self, uri: str, base: BasePath | None = None) -> UnsupportedFeatureError:
        """Return the error for a blob at ``uri``; ``base``: the table that it should be in."""
        if base is not None and base.is_dataset_root:
            return UnsupportedFeatureError(
                f"a blob is in {uri!r}, outside of the table, and {base.path!r} is not the folder "
                "of a Lance table any more",
                where=self.table.uri,
                hint="put that table back if it was moved or removed; or, if you trust the folder, "
                f"name it in {PREFIX}{ALLOWED}",
            )
        return UnsupportedFeatureError(
            f"a blob is in {uri!r}, outside of the table and of tables that it shares files with",
            where=self.table.uri,
            hint=f"if you trust the table, name the folder in {PREFIX}{ALLOWED}",
        )

    def absolute(self, uri: str, base_id: int) -> str:
        """Return the URI of an external blob."""
        return uri if is_absolute(uri) else f"{self.base(base_id).path.rstrip('/')}/{uri}"


@dataclass(frozen=True, slots=True)
class _OpenTableFiles(TableFiles):
    stores: dict[int | None, ObjectStore] = field(default_factory=dict, repr=False, compare=False)
    trusted: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    def store_of(self, base_id: int | None) -> ObjectStore:
        store = self.stores.get(base_id)
        if store is None:
            store = self.stores[base_id] = TableFiles.store_of(self, base_id)
        return store

    def _is_trusted(self, base: str) -> bool:
        if base not in self.trusted:
            self.trusted[base] = TableFiles._is_trusted(self, base)
        return self.trusted[base]


def holds_table(store: ObjectStore) -> bool:
    """Return whether the root of a store is the folder of a Lance table."""
    return next(iter(store.list(VERSIONS, first=1)), None) is not None


def roots_outside(table: Table, manifest: Manifest) -> tuple[str, ...]:
    """Return the base paths of a version outside of the table, as far as they can be resolved.

    The files of a branch are inside the folder of the table.
    """
    own = main_branch_of(table, manifest.branch).root
    roots = []
    for base in manifest.base_paths:
        try:
            root = absolute_root(table.uri, base.path, table.storage)
        except UnsupportedFeatureError:
            root = base.path
        if not is_below(root, own):
            roots.append(root)
    return tuple(roots)
