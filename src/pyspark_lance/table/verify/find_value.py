"""Find the files of a table that still hold a value: proof that rows are erased.

Deleting rows only marks them, and old versions keep their files, so a value can be in data files of
any version and in files without a version, also in columns that were dropped or rewritten since,
in pages of indices, in blobs, and in the conditions that transactions record. All files below the
folder of the table are searched:

- Lance data files: the column, by its field ids in all versions and by its name, with deleted rows.
- Files of indices on the column: their values, bounds and words.
- Transactions: conditions, and properties of commits.
- Everything else, if the value is a string or binary of at least four bytes: its bytes.

The search reads batch by batch and keeps counts only. It does not see files that are written
meanwhile, nor files outside of the folder, as clones have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.commit.inserted_keys import ROW_KEYS_PROPERTY
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import InvalidInputError, LanceError, StorageError, TableNotFoundError
from pyspark_lance.format.column_names import name_hint
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.metafile.paths import DATA, INDICES, TRANSACTIONS, TREE, VERSIONS, data_path
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.store.object_store import ObjectInfo, ObjectStore
from pyspark_lance.table.scan.column_paths import path_to, values_at
from pyspark_lance.table.version.removable_files import manifests_below, read_all_manifests
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table, main_branch_of
from pyspark_lance.table.version.table_files import TableFiles, roots_outside

_BATCH_BYTES = 16 << 20
_CHUNK_BYTES = 8 << 20
_LANCE_SUFFIXES = (".lance", ".idx")
# Columns of index files with values of the indexed column; others have ids, counts and positions.
_INDEX_COLUMNS = frozenset(("values", "min", "max", "keys", "flat", "_token"))
_WORDS = frozenset(("_token", "_token_fst_bytes"))
_WITHOUT_VALUES = frozenset(
    ("_rowid", "_num_tokens", "_posting", "_position", "_compressed_position", "_max_score")
).union(("_length", "_impacts", "deleted_fragments", "__flat_marker"))
# Shorter texts are in many files by chance.
_MIN_BYTES = 4
_PARTS_ONLY = "it holds hashes or parts of values, which are not compared"
_MISSING = "it is missing, although a version refers to it"
_WORDS_ONLY = "it holds the words of texts; only a value of one word is compared"


@also_snake_case
@dataclass(frozen=True, slots=True)
class FileWithValue:
    """A file that holds a value.

    Attributes:
        path: Below the folder of the table.
        kind: ``data``, ``index``, ``blob``, ``transaction``, ``manifest`` or ``other``.
        numValues: How often it holds the value, with deleted rows; None if it is in its bytes, or
            in the condition of a commit.
        versions: Versions of the main branch that refer to it. None refers to objects of managed
            blobs: rows do.
        branches: Other branches of which a version refers to it.
    """

    path: str
    kind: str
    numValues: int | None  # noqa: N815
    versions: tuple[int, ...]
    branches: tuple[str, ...]


@also_snake_case
@dataclass(frozen=True, slots=True)
class FindValueResult:
    """The files of a table that hold a value, and those that could not be searched.

    Attributes:
        files: Files that hold the value, by path.
        notSearched: Path or URI -> why it was not searched, or not completely.
        numFiles: Files that were searched.
    """

    files: tuple[FileWithValue, ...]
    notSearched: Mapping[str, str]  # noqa: N815
    numFiles: int  # noqa: N815

    @property
    def isFound(self) -> bool:  # noqa: N802
        """Whether any file holds the value."""
        return bool(self.files)


def find_value(table: Table, column: str, values: Sequence[object]) -> FindValueResult:
    """Search all files below the folder of a table for values of a column.

    ``column``: its name in any version; ``a.b`` for a field of a struct. Below lists, maps and
    structs all values are compared. ``values``: Python values, or texts that are cast to the type
    of the column.

    Raises InvalidInputError: no version has such a column, or a value cannot be cast.
    """
    if not values or any(value is None for value in values):
        raise InvalidInputError("no value to look for", hint="NULL says nothing of a row")
    main = main_branch_of(table, Snapshot.open(table).manifest.branch)
    store = main.store()
    listed = list(store.list(""))  # before manifests: see orphan_files
    wanted = _SearchTarget(tuple(values))
    known = _SearchedFile.of(main, store, tuple(column.split(".")), wanted)
    wanted.check(known.types(), column)
    search = _Search(store, TableFiles(main, known.base_paths).opened(), known, wanted)
    counts = {info.path: search.count(info) for info in listed}
    missing = known.missing(store, listed)
    found = {path: count for path, count in counts.items() if count is None or count > 0}
    users = _users(store, set(found)) if found else {}
    files = tuple(
        FileWithValue(path, _kind_of(path), count, *users.get(path, ((), ())))
        for path, count in sorted(found.items())
    )
    return FindValueResult(files, {**known.outside, **missing, **search.not_searched}, len(listed))


def _all_manifests(store: ObjectStore) -> Iterator[ManifestFile]:
    return read_all_manifests(
        store, lambda: [*manifests_below(store, VERSIONS), *manifests_below(store, TREE)]
    )


def _line_of(path: str) -> str:
    """Return the folder of the branch that a manifest is in; empty for the main branch."""
    return path.rpartition(f"{VERSIONS}/")[0]


# What versions say of the column --------------------------------------------------------------


@dataclass(slots=True)
class _SearchedFile:
    """The column in all versions, the files with it, and the indices on it."""

    names: tuple[str, ...]  # The path of the column.
    columns: dict[int, tuple[Field, ...]] = field(default_factory=dict)  # Id -> fields on the path.
    ids_below: set[int] = field(default_factory=set)  # Of the column and everything below.
    described: dict[str, set[DataFile]] = field(default_factory=dict)  # By path below any root.
    indexed: dict[str, set[int]] = field(default_factory=dict)  # Folder of an index -> field ids.
    base_paths: tuple[Any, ...] = ()
    outside: dict[str, str] = field(default_factory=dict)
    referenced: set[str] = field(default_factory=set)  # Data files below the folder.
    index_folders: dict[str, str] = field(default_factory=dict)  # Below the folder, by id.
    mentions: set[str] = field(default_factory=set)  # Manifests whose transactions name a value.

    @classmethod
    def of(
        cls, table: Table, store: ObjectStore, names: tuple[str, ...], wanted: _SearchTarget
    ) -> _SearchedFile:
        """Read all versions. Raises InvalidInputError: none has the column."""
        known = cls(names)
        top: tuple[str, ...] = ()
        is_there = False
        for file in _all_manifests(store):
            is_there = True
            manifest = file.manifest
            top = manifest.schema.names
            path = _path_by_name(manifest.schema.fields, names)
            if path:
                known.columns[path[-1].id] = path
                known.ids_below.update(part.id for part in path[-1].walk())
            known._note_files(file)
            transaction = file.transaction()
            if transaction is not None and wanted.is_in_texts(transaction):
                known.mentions.add(file.location.path)
            known.base_paths = manifest.base_paths or known.base_paths
            for root in roots_outside(table, manifest):
                known.outside[root] = "it is outside of the folder of the table"
        if not is_there:
            raise TableNotFoundError(
                "there is no Lance table here", where=store.uri, hint="check the path"
            )
        if not known.columns:
            name = ".".join(names)
            raise InvalidInputError(
                f"no version has a column {name!r}", table.uri, name_hint(name, top)
            )
        return known

    def _note_files(self, file: ManifestFile) -> None:
        """Remember the data files and indices of a version."""
        line = _line_of(file.location.path)
        for fragment in file.manifest.fragments:
            for one in fragment.files:
                self.described.setdefault(data_path(one.path), set()).add(one)
                if one.base_id is None:
                    self.referenced.add(line + data_path(one.path))
        for index in file.indices:
            self.indexed.setdefault(str(index.uuid), set()).update(index.fields)
            if index.base_id is None:
                self.index_folders[str(index.uuid)] = f"{line}{INDICES}/{index.uuid}"

    def missing(self, store: ObjectStore, listed: Sequence[ObjectInfo]) -> dict[str, str]:
        """Return the files that versions refer to and that do not exist -> that they are missing.

        Files that were written since the listing exist.
        """
        known = {info.path for info in listed}
        folders = {path.rpartition("/")[0] for path in known}
        indices = [
            folder
            for uuid, folder in self.index_folders.items()
            if folder not in folders and self.indexed[uuid] & self.ids_below
        ]
        files = [path for path in self.referenced - known if not store.exists(path)]
        gone = [folder for folder in indices if not any(store.list(folder))]
        return dict.fromkeys(sorted(files + gone), _MISSING)

    def types(self) -> set[pa.DataType]:
        """Return the types of the values in the column and below."""
        return {
            part.to_arrow().type
            for path in self.columns.values()
            for part in path[-1].walk()
            if part.is_leaf or not part.children
        }

    def fields_in(self, path: str, reader: DataFileReader) -> list[_Stored]:
        """Return where a data file has the column, according to versions and to the file itself."""
        name = path.rpartition(f"{DATA}/")[2]
        files = self.described.get(data_path(name), set())
        embedded = reader.embedded_columns()
        if reader.version == "0.1":  # fields are found by their ids
            embedded = {part.id: part.id for part in reader.schema.walk()}
        found: list[_Stored] = []
        seen: set[int] = set()

        def add(fields: tuple[Field, ...], columns: Mapping[int, int]) -> None:
            """Add the column unless it is known from another version."""
            own = {columns.get(part.id, -1) for part in fields[-1].walk()} - {-1}
            if own and seen.isdisjoint(own):
                seen.update(own)
                found.append(_Stored(fields, columns))

        is_same = True
        for file in files:
            columns = dict(zip(file.fields, file.column_indices or file.fields, strict=True))
            is_same &= all(embedded.get(number, at) == at for number, at in columns.items())
            for fields in self.columns.values():
                add(fields, columns)
        by_name = _path_by_name(reader.schema.fields, self.names)
        if by_name:
            add(by_name, embedded)
        if is_same:
            for number in self.columns:
                by_id = path_to(reader.schema.fields, number)
                if by_id:
                    add(by_id, embedded)
        return found


@dataclass(frozen=True, slots=True)
class _Stored:
    """The column in a file."""

    fields: tuple[Field, ...]  # On the path to it.
    columns: Mapping[int, int]  # Field id -> column of the file.

    def pruned(self) -> Field:
        """Return the top-level field with the column alone, as far as it can be read alone."""
        own = self.fields[-1]
        for parent in reversed(self.fields[:-1]):
            own = parent if parent.is_packed else parent.with_only([own])
        return logical_field(own, binary_blobs=True) if _has_blobs(own) else own


def _has_blobs(own: Field) -> bool:
    return any(part.is_blob for part in own.walk())


def _path_by_name(fields: Sequence[Field], names: Sequence[str]) -> tuple[Field, ...]:
    """Return the fields on the path to a column; empty if there is none."""
    for own in fields:
        if own.name == names[0]:
            below = _path_by_name(own.children, names[1:]) if names[1:] and own.is_struct else ()
            return (own, *below) if below or not names[1:] else ()
    return ()


# The values -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _SearchTarget:
    """The values to look for, by the type of a column."""

    values: tuple[object, ...]
    _sets: dict[pa.DataType, pa.Array] = field(default_factory=dict)

    def check(self, types: set[pa.DataType], column: str) -> None:
        """Raise InvalidInputError if the column cannot hold some value."""
        for value in self.values:
            if not any(_cast(value, one) is not None for one in types):
                shown = ", ".join(sorted(map(str, types)))
                raise InvalidInputError(
                    f"{value!r} is no value of the column {column!r}, which is {shown}",
                    hint="give a value of that type, or its text",
                )

    def count(self, values: pa.Array) -> int:
        """Count the values in an array of any type, in everything below it."""
        return sum(map(self._count_plain, _plain_arrays(values)))

    def _count_plain(self, values: pa.Array) -> int:
        known = self._sets.get(values.type)
        if known is None:
            cast = [_cast(value, values.type) for value in self.values]
            present = [one.as_py() for one in cast if one is not None]
            known = self._sets[values.type] = pa.array(present, values.type)
        if not len(known):
            return 0
        return pc.sum(pc.is_in(values, known)).as_py() or 0

    def bytes(self) -> list[bytes]:
        """Return the bytes of values that are strings or binary."""
        return [
            value.encode() if isinstance(value, str) else bytes(value)
            for value in self.values
            if isinstance(value, str | bytes | bytearray | memoryview)
        ]

    def is_in_texts(self, transaction: Transaction) -> bool:
        """Return whether the condition or a property of a commit names a value, as a word."""
        condition = getattr(transaction.operation, "predicate", "")
        properties = transaction.properties.items()
        texts = [text for name, text in properties if name != ROW_KEYS_PROPERTY]  # only hashes
        searched = "\n".join([condition, *texts])
        return any(
            re.search(rf"(?<![\w.]){re.escape(str(value))}(?!\w|\.\d)", searched)
            for value in self.values
            if not isinstance(value, bytes | bytearray | memoryview)
        )


def _cast(value: object, wanted: pa.DataType) -> pa.Scalar | None:
    """Cast the value to a type; None if it cannot be."""
    try:
        own = pa.scalar(value)
        return own if own.type == wanted else own.cast(wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _plain_arrays(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays below lists, maps and structs, without values of null parents."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
    if pa.types.is_struct(kind):
        for below in values.flatten():
            yield from _plain_arrays(below)
    elif pa.types.is_nested(kind):
        entries = values if not pa.types.is_map(kind) else values.cast(_as_list(kind))
        yield from _plain_arrays(entries.flatten())
    elif not pa.types.is_null(kind):
        yield values


def _as_list(kind: pa.MapType) -> pa.ListType:
    return pa.list_(pa.struct([kind.key_field, kind.item_field]))


# The search -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Search:
    """Search of files; ``not_searched``: path -> reason why not, or not completely."""

    store: ObjectStore
    files: TableFiles
    known: _SearchedFile
    wanted: _SearchTarget
    not_searched: dict[str, str] = field(default_factory=dict)

    def count(self, info: ObjectInfo) -> int | None:
        """Return how often a file holds a value; None if its bytes do."""
        try:
            return self._count(info)
        except FileNotFoundError:
            return 0  # removed meanwhile
        except StorageError:
            raise
        except LanceError as error:
            self.not_searched[info.path] = error.what
            return None if self._has_bytes(info) else 0

    def _count(self, info: ObjectInfo) -> int | None:
        kind = _kind_of(info.path)
        if kind == "index":
            uuid = info.path.rpartition(f"{INDICES}/")[2].partition("/")[0]
            fields = self.known.indexed.get(uuid)
            if fields is not None and not fields & self.known.ids_below:
                return 0  # of another column
        if kind in ("data", "index") and info.path.endswith(_LANCE_SUFFIXES):
            reader = DataFileReader.open(
                self.store, info.path, size_bytes=info.size, external=self.files
            )
            return (
                self._count_data(info, reader)
                if kind == "data"
                else self._count_index(info, reader)
            )
        if kind == "transaction":
            transaction = Transaction.from_bytes(self.store.get(info.path), info.path)
            if self.wanted.is_in_texts(transaction):
                return None
        if info.path in self.known.mentions:
            return None
        return None if self._has_bytes(info) else 0

    def _count_data(self, info: ObjectInfo, reader: DataFileReader) -> int:
        return sum(
            self._count_column(reader, one.pruned(), one.columns, [own.name for own in one.fields])
            for one in self.known.fields_in(info.path, reader)
        )

    def _count_column(
        self, reader: DataFileReader, top: Field, columns: Mapping[int, int], names: Sequence[str]
    ) -> int:
        total = 0
        for batch in reader.read_batches([top], columns, batch_bytes=_BATCH_BYTES):
            total += self.wanted.count(values_at(batch, names))
        return total

    def _count_index(self, info: ObjectInfo, reader: DataFileReader) -> int:
        columns = reader.embedded_columns()
        names = {own.name for own in reader.schema.fields}
        known = [own for own in reader.schema.fields if own.name in _INDEX_COLUMNS]
        if names & _WORDS:
            self.not_searched[info.path] = _WORDS_ONLY
        elif not known and not names <= _WITHOUT_VALUES:
            self.not_searched[info.path] = _PARTS_ONLY
        return sum(self._count_column(reader, own, columns, [own.name]) for own in known)

    def _has_bytes(self, info: ObjectInfo) -> bool:
        """Return whether the bytes of a value are in a file, which is read part by part."""
        patterns = [pattern for pattern in self.wanted.bytes() if len(pattern) >= _MIN_BYTES]
        overlap = max(map(len, patterns), default=1) - 1
        if not patterns:
            return False
        for start in range(0, info.size, _CHUNK_BYTES):
            end = min(info.size, start + _CHUNK_BYTES + overlap)
            part = bytes(self.store.get_range(info.path, start, end))
            if any(pattern in part for pattern in patterns):
                return True
        return False


def _kind_of(path: str) -> str:
    """Return the kind of a file by its folder, at the root or in a branch."""
    if path.endswith(".blob"):
        return "blob"
    parts = path.split("/")[:-1]
    kinds = {DATA: "data", INDICES: "index", TRANSACTIONS: "transaction", VERSIONS: "manifest"}
    return next((kinds[part] for part in reversed(parts) if part in kinds), "other")


# Versions -------------------------------------------------------------------------------------


def _users(
    store: ObjectStore, paths: set[str]
) -> dict[str, tuple[tuple[int, ...], tuple[str, ...]]]:
    """Return the versions of the main branch, and the other branches, that refer to files."""
    by_key: dict[str, list[str]] = {}
    for path in paths:
        by_key.setdefault(_key_of(path), []).append(path)
    versions: dict[str, set[int]] = {path: set() for path in paths}
    branches: dict[str, set[str]] = {path: set() for path in paths}
    for file in _all_manifests(store):
        line = _line_of(file.location.path)
        for key in {*_keys_of(file), file.location.path} & by_key.keys():
            for path in by_key[key]:
                if line:
                    branches[path].add(line.removeprefix(f"{TREE}/").rstrip("/"))
                else:
                    versions[path].add(file.manifest.version)
    return {path: (tuple(sorted(versions[path])), tuple(sorted(branches[path]))) for path in paths}


def _key_of(path: str) -> str:
    """Return the name of a file in versions: names are unique, whatever the root."""
    kind = _kind_of(path)
    if kind == "index":
        return f"{INDICES}/" + path.rpartition(f"{INDICES}/")[2].partition("/")[0]
    if kind == "transaction":
        return f"{TRANSACTIONS}/" + path.rpartition("/")[2]
    name = path.rpartition(f"{DATA}/")[2]
    if kind == "blob" and name != path:  # beside its data file
        return data_path(name.rpartition("/")[0] + ".lance")
    return data_path(name) if kind == "data" else path


def _keys_of(file: ManifestFile) -> set[str]:
    return {
        f"{TRANSACTIONS}/{file.manifest.transaction_file}",
        *(f"{INDICES}/{index.uuid}" for index in file.indices),
        *(data_path(one.path) for fragment in file.manifest.fragments for one in fragment.files),
    }
