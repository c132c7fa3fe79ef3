"""Fetch the bytes of blobs that are written as located descriptors.

Rows read from a blob column have descriptors with the location of the bytes, which pass through the
query. A task that writes such rows fetches the bytes of several rows at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.datafile.blob_values import (
    DEDICATED,
    EXTERNAL,
    INLINE,
    MANAGED,
    MANAGED_IN_BASE,
    PACKED,
)
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    StorageError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.logical_view import (
    BLOB_DATA,
    BLOB_FILE,
    BLOB_V2_DESCRIPTOR,
    LOCATED_BLOB,
    holds_located,
    is_located_type,
)
from pyspark_lance.metafile.paths import BLOBS, DATA
from pyspark_lance.plain_values import numbers_with_default
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.open_store import open_store
from pyspark_lance.store.other_roots import (
    is_below,
    open_other_root,
    options_for_source,
    root_of_url,
)
from pyspark_lance.store.storage_options import ALLOWED, PREFIX, allowed_roots
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_files import holds_table

if TYPE_CHECKING:
    from pyspark_lance.datafile.reader import DataFileReader


BATCH_BYTES: Final = 32 << 20
"""Maximum bytes of blobs in memory, except for a single larger one."""

_OPEN_FILES: Final = 16
_READ_BYTES: Final = "read the source with the option blobColumns, which returns the bytes"
# Used as base ids: whether the URI of a blob is a plain path, or an escaped URL.
_PLAIN, _URL = 1, 0


class DescribedBlobs:
    """Reader of blobs for rows that are written to a table.

    ``table``: its storage options also apply to source files in the same kind of store and on the
    same host.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._open: OrderedDict[str, _SourceFile] = OrderedDict()

    def with_bytes(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Replace descriptors by bytes; rows with large blobs are split into several batches."""
        names = batch.schema.names
        given = {
            name
            for name, kind in zip(names, batch.schema.types, strict=True)
            if holds_located(kind)
        }
        every = pa.array(np.arange(batch.num_rows))
        columns = [
            # Drop items of null lists and items before the first row.
            column.take(every) if name in given else column
            for name, column in zip(names, batch.columns, strict=True)
        ]
        sizes = np.sum([_row_bytes(column) for column in columns], axis=0)
        for start, end in _spans(sizes, BATCH_BYTES):
            rows = every[start:end]
            parts = [
                self._with_bytes(column.take(rows), name)
                if name in given
                else column.slice(start, end - start)
                for column, name in zip(columns, names, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(parts, names=names)

    def _with_bytes(self, array: pa.Array, path: str) -> pa.Array:
        """Replace descriptors in ``array`` by bytes; ``array`` must have offset 0."""
        types, data_type = pa.types, array.type
        if is_located_type(data_type):
            return self.fetch(array, path)
        if not holds_located(data_type):
            return array
        if types.is_struct(data_type):
            # Fields of null structs become null.
            members = [
                self._with_bytes(member, f"{path}.{part.name}")
                for part, member in zip(data_type, array.flatten(), strict=True)
            ]
            fields = [
                part.with_type(member.type) for part, member in zip(data_type, members, strict=True)
            ]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(members, fields=fields, mask=mask)
        offsets = pa.array(np.concatenate(([0], np.cumsum(_lengths(array)))), pa.int32())
        mask = array.is_null() if array.null_count else None
        if types.is_map(data_type):
            first, last = _item_range(array)
            values = self._with_bytes(array.items[first:last], f"{path}.value")
            kind = pa.map_(data_type.key_type, data_type.item_field.with_type(values.type))
            return pa.MapArray.from_arrays(
                offsets, array.keys[first:last], values, type=kind, mask=mask
            )
        items = self._with_bytes(array.flatten(), f"{path}.item")
        kind = pa.list_(data_type.value_field.with_type(items.type))
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=mask)

    def fetch(self, descriptors: pa.StructArray, path: str) -> pa.Array:
        """Return the bytes of located descriptors, as large_binary.

        ``path``: the column, for messages.
        """
        if descriptors.type.get_field_index(BLOB_DATA) >= 0:
            *members, data = _with_data_last(descriptors)
            is_given = data.is_valid()
            others = pa.StructArray.from_arrays(
                members,
                [name for name in descriptors.type.names if name != BLOB_DATA],
                mask=pc.or_(descriptors.is_null(), is_given),
            )
            return pc.if_else(is_given, data.cast(pa.large_binary()), self.fetch(others, path))
        plain = _plain(descriptors, path)
        files = descriptors.flatten()[descriptors.type.get_field_index(BLOB_FILE)]
        coded = files.dictionary_encode()
        codes = numbers_with_default(-1, coded.indices)
        names = coded.dictionary.to_pylist()
        if not names:
            return pa.nulls(len(descriptors), pa.large_binary())
        if len(names) == 1:
            return self._fetch(names[0], plain, path)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(names) + 1)).tolist()
        pieces = [pa.nulls(bounds[0], pa.large_binary())]
        for number, name in enumerate(names):
            rows = order[bounds[number] : bounds[number + 1]]
            pieces.append(self._fetch(name, plain.take(pa.array(rows)), path))
        indices = np.empty(len(order), np.int64)
        indices[order] = np.arange(len(order))
        return pa.concat_arrays(pieces).take(pa.array(indices))

    def _fetch(self, uri: str, descriptors: pa.StructArray, path: str) -> pa.Array:
        where = f"column {path}, of {uri}"
        try:
            return self._source(uri).fetch(descriptors)
        except MissingFileError as error:
            raise MissingFileError(
                "the bytes of blobs to copy are lost: their file was removed after the rows were "
                "read",
                error.where,
                f"read the rows again, or {_READ_BYTES}",
            ) from error
        except (CorruptFileError, InvalidInputError, UnsupportedFeatureError):
            raise
        except (LanceError, OSError) as error:
            what = error.what if isinstance(error, LanceError) else str(error)
            raise StorageError(
                f"the bytes of blobs to copy cannot be fetched: {what}",
                where,
                "the write needs storage options for the table that the blobs are in, too: set "
                f"them for the write or the session, or {_READ_BYTES}",
            ) from error

    def _source(self, uri: str) -> _SourceFile:
        source = self._open.get(uri)
        if source is None:
            source = self._open[uri] = _SourceFile.open(self._table, uri)
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)
        return source


@dataclass(frozen=True, slots=True)
class _SourceFile:
    """A data file that blobs are copied from."""

    reader: DataFileReader
    links: _Links

    @classmethod
    def open(cls, table: Table, uri: str) -> _SourceFile:
        folder, _, name = uri.rpartition("/")
        if not folder or not name:
            raise InvalidInputError(f"{uri!r} is not the URI of a data file", hint=_READ_BYTES)
        # Imported lazily: most writes have no blob descriptors.
        from pyspark_lance.datafile.reader import DataFileReader  # noqa: PLC0415

        options = options_for_source(table.uri, folder, table.storage)
        store = open_store(folder, options)
        links = _Links(folder, options, tuple(allowed_roots(table.storage)))
        try:
            return cls(DataFileReader.open(store, name, external=links), links)
        except FileNotFoundError as error:
            raise MissingFileError("a data file is missing", uri) from error

    def fetch(self, descriptors: pa.StructArray) -> pa.Array:
        return self.reader.fetch_blobs(descriptors)


@dataclass(frozen=True, slots=True)
class _Links:
    """Resolver of absolute URIs in descriptors."""

    folder: str  # The URI of the folder of the data file.
    options: Mapping[str, str] = field(repr=False)
    allowed: tuple[str, ...]  # Allowed roots outside of that table.

    def locate_external(self, uri: str, base_id: int) -> tuple[ObjectStore, str]:
        if base_id == _URL:
            self._check_external(uri)
        else:
            self._check_managed(uri)
        folder, _, name = uri.rpartition("/")
        if base_id == _URL and "://" in uri:  # pylance escapes URLs
            name = unquote(name)
            folder = folder if uri.lower().startswith("file:") else unquote(folder)
        return open_other_root(self.folder, folder or "/", self.options), name

    def absolute(self, uri: str, base_id: int) -> str:
        del base_id
        return uri

    def _check_external(self, uri: str) -> None:
        """Raise UnsupportedFeatureError for a blob that a reader of its table may not open.

        The base paths of that table are unknown here, so a blob below one of them needs the option.
        """
        if not self._is_known(uri):
            raise self._outside(uri)

    def _check_managed(self, uri: str) -> None:
        """Raise UnsupportedFeatureError for an object that is not one of the blobs of a table.

        A row may come from any file, and name any other one.
        """
        root, mark, _ = uri.rpartition(f"/{BLOBS}/")
        if self._is_known(uri):
            return
        if not mark or not holds_table(open_other_root(self.folder, root, self.options)):
            raise self._outside(uri)

    def _is_known(self, uri: str) -> bool:
        own = self.folder.rstrip("/").removesuffix(f"/{DATA}")
        return any(is_below(root_of_url(uri), root) for root in (own, *self.allowed) if root)

    def _outside(self, uri: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"a blob to copy is in {uri!r}, outside of its table",
            where=self.folder,
            hint=f"if you trust the table, name the folder in {PREFIX}{ALLOWED}, or {_READ_BYTES}",
        )


def _with_data_last(descriptors: pa.StructArray) -> list[pa.Array]:
    members = descriptors.flatten()
    members.append(members.pop(descriptors.type.get_field_index(BLOB_DATA)))
    return members


def _plain(descriptors: pa.StructArray, path: str) -> pa.StructArray:
    """Convert descriptors to the types of the format, with URIs for ``_Links``."""
    given = dict(zip(descriptors.type.names, descriptors.flatten(), strict=True))
    is_there = pc.is_valid(descriptors)
    if any(
        pc.any(pc.and_(is_there, pc.is_null(given[name]))).as_py()
        for name in (part.name for part in LOCATED_BLOB)
    ):
        raise InvalidInputError(
            f"the column {path!r} holds descriptors of blobs that are incomplete, so that their "
            "bytes cannot be found",
            hint=_READ_BYTES,
        )
    try:
        members = {
            part.name: given[part.name].cast(part.to_arrow().type) for part in BLOB_V2_DESCRIPTOR
        }
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"the column {path!r} holds invalid descriptors of blobs: {error}", hint=_READ_BYTES
        ) from error
    kinds = numbers_with_default(0, members["kind"]).astype(np.uint8)
    is_managed = (kinds == MANAGED) | (kinds == MANAGED_IN_BASE)
    is_empty = numbers_with_default(0, members["size"]) == 0
    marks = np.where(is_managed, _PLAIN, _URL).astype(np.uint32)
    beside = (kinds == PACKED) | (kinds == DEDICATED)
    members["blob_id"] = pc.if_else(pa.array(beside), members["blob_id"], pa.array(marks))
    # URIs of objects are absolute, both inside and outside of tables.
    known = np.where(is_managed, np.where(is_empty, INLINE, EXTERNAL), kinds)
    members["kind"] = pa.array(known.astype(np.uint8))
    mask = descriptors.is_null() if descriptors.null_count else None
    return pa.StructArray.from_arrays(list(members.values()), list(members), mask=mask)


def _row_bytes(array: pa.Array) -> NDArray[np.int64]:
    """Return the blob bytes of each row, shape (len(array),)."""
    if is_located_type(array.type):
        members = dict(zip(array.type.names, array.flatten(), strict=True))
        sizes = numbers_with_default(0, members["size"].cast(pa.uint64(), safe=False)).astype(
            np.float64
        )
        # How long the object is, is not known.
        is_open = (numbers_with_default(0, members["kind"]) == EXTERNAL) & (sizes == 0)
        sizes = np.where(is_open, BATCH_BYTES, sizes)
        return np.minimum(sizes, 1 << 50).astype(np.int64)
    if not holds_located(array.type):
        return np.zeros(len(array), np.int64)
    if pa.types.is_struct(array.type):
        return np.sum([_row_bytes(member) for member in array.flatten()], axis=0)
    lengths = _lengths(array)
    if pa.types.is_map(array.type):
        first, last = _item_range(array)
        items = array.items[first:last]
    else:
        items = array.flatten()
    totals = np.concatenate(([0], np.cumsum(_row_bytes(items))))
    ends = np.cumsum(lengths)
    return totals[ends] - totals[ends - lengths]


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    """Return the number of items of each list or map; 0 for nulls."""
    if pa.types.is_map(lists.type):
        offsets = np.asarray(lists.offsets)[: len(lists) + 1].astype(np.int64)
        return np.where(np.asarray(lists.is_valid()), np.diff(offsets), 0)
    return numbers_with_default(0, pc.list_value_length(lists)).astype(np.int64)


def _item_range(maps: pa.MapArray) -> tuple[int, int]:
    """Return the range of items that belong to the maps; null maps have none."""
    return maps.offsets[0].as_py(), maps.offsets[len(maps)].as_py()


def _spans(sizes: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of at most ``most`` bytes, or of a single row."""
    totals = np.concatenate(([0], np.cumsum(sizes)))
    start = 0
    while start < len(sizes):
        end = int(np.searchsorted(totals, totals[start] + most, side="right")) - 1
        end = max(end, start + 1)
        yield start, end
        start = end
