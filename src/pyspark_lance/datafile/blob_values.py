"""The bytes of blobs, given their descriptors: in the data file, beside it, or anywhere else.

Source: docs/format/file-format.md, sections 6.7 and 9.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.decode_memory import require_decode_memory
from pyspark_lance.datafile.open_file import ExternalBlobs, OpenFile
from pyspark_lance.errors import CorruptFileError, MissingFileError, UnsupportedFeatureError
from pyspark_lance.format.logical_view import BLOB_FILE, LOCATED_BLOB
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import Buffer, ByteRange, ObjectStore

INLINE, PACKED, DEDICATED, EXTERNAL, MANAGED, MANAGED_IN_BASE = range(6)
"""Where the bytes of a blob v2 are: its kind."""

_SIDECAR_BITS: Final = 32
_THREADS: Final = 16


def sidecar_path(data_file: str, blob_id: int) -> str:
    """The path of a file of blobs beside the data file: its number in bits, the lowest first."""
    bits = f"{blob_id:0{_SIDECAR_BITS}b}"[::-1]
    return f"{data_file.removesuffix('.lance')}/{bits}.blob"


def fetch_v1(file: OpenFile, descriptors: pa.StructArray) -> pa.Array:
    """The blobs that (position, size) records point to, as large_binary."""
    positions, sizes = (_numbers(descriptors, name) for name in ("position", "size"))
    require_decode_memory(int(sizes.sum(dtype=np.float64)))
    pieces: list[Buffer] = [b""] * len(descriptors)
    _fetch_from(file, positions, sizes, np.flatnonzero(sizes), pieces)
    return _join_pieces(pieces, descriptors)


def fetch_v2(file: OpenFile, descriptors: pa.StructArray, *, may_overlap: bool = False) -> pa.Array:
    """The blobs that v2 descriptors point to, as large_binary.

    ``may_overlap``: whether a blob may be requested twice.
    """
    return _join_pieces(_V2Blobs(file, descriptors, may_overlap=may_overlap).pieces(), descriptors)


def locate_blobs(file: OpenFile, descriptors: pa.StructArray) -> pa.StructArray:
    """Descriptors of either kind that name their data file, and whose URIs are absolute."""
    members = {field.name: pc.struct_field(descriptors, field.name) for field in descriptors.type}
    if "kind" in members:
        members["blob_uri"] = _V2Blobs(file, descriptors).absolute_uris()
    # Those of the first kind are in the data file, as some of the second are.
    constants = {"kind": INLINE, "blob_id": 0, "blob_uri": "", BLOB_FILE: file.uri}
    for part in LOCATED_BLOB:
        if part.name not in members:
            value = pa.scalar(constants[part.name], part.to_arrow().type)
            members[part.name] = pa.repeat(value, len(descriptors))
    mask = descriptors.is_null() if descriptors.null_count else None
    return pa.StructArray.from_arrays(list(members.values()), list(members), mask=mask)


def logical_v2(file: OpenFile, descriptors: pa.StructArray, data_type: pa.DataType) -> pa.Array:
    """Blobs as they are written: bytes, or for external ones the reference.

    ``data_type``: struct of ``data``, ``uri`` and possibly ``position`` and ``size``; with ``kind``
    and ``blob_id``, blobs in objects of the table are references, too.
    """
    blobs = _V2Blobs(file, descriptors)
    names = [field.name for field in data_type]
    if "kind" in names:
        blobs.keep_objects()
    referred = blobs.kinds >= EXTERNAL if "kind" in names else blobs.kinds == EXTERNAL
    mask = pc.or_(descriptors.is_null(), pa.array(referred))
    data = _join_pieces(blobs.pieces(~referred), descriptors)
    parts = {
        "data": pc.if_else(mask, pa.scalar(None, data.type), data),
        "uri": pa.array(
            [uri if there else None for uri, there in zip(blobs.uris(), referred, strict=True)],
            pa.string(),
        ),
        "kind": pa.array(blobs.kinds.astype(np.uint8)),
        # The URIs of external blobs are absolute.
        "blob_id": pa.array(
            np.where(blobs.kinds == MANAGED_IN_BASE, blobs.ids, 0).astype(np.uint32)
        ),
    }
    # 0, 0 is the whole object, and is written as no range.
    ranged = pa.array(referred & ((blobs.positions != 0) | (blobs.sizes != 0)))
    for name, values in (("position", blobs.positions), ("size", blobs.sizes)):
        parts[name] = pc.if_else(ranged, pa.array(values), pa.scalar(None, pa.uint64()))
    if not set(names) <= parts.keys():
        raise UnsupportedFeatureError(f"blob columns of type {data_type}", where=file.uri)
    if "position" not in names and bool(pc.any(ranged).as_py()):
        raise CorruptFileError("a part of an object where the schema has no ranges", file.uri)
    return pa.StructArray.from_arrays(
        [parts[field.name].cast(field.type) for field in data_type],
        fields=list(data_type),
        mask=descriptors.is_null(),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """An object that holds blobs."""

    store: ObjectStore
    path: str


class _V2Blobs:
    def __init__(
        self, file: OpenFile, descriptors: pa.StructArray, *, may_overlap: bool = False
    ) -> None:
        self._file = file
        self._may_overlap = may_overlap
        self._valid = plain_numbers(descriptors.is_valid())
        self.kinds, self.positions, self.sizes, self.ids = (
            _numbers(descriptors, name) for name in ("kind", "position", "size", "blob_id")
        )
        self._uris = descriptors.field("blob_uri")
        # A reference without a size is to all of an object outside of the table.
        self._may_have_bytes = (self.sizes != 0) | (self.kinds == EXTERNAL)
        unknown = self._valid & (self.kinds > MANAGED_IN_BASE)
        if unknown.any():
            raise UnsupportedFeatureError(f"blobs of kind {self.kinds[unknown][0]}", where=file.uri)

    def keep_objects(self) -> None:
        """Describe blobs in files beside the data file, and below its base, as external ones."""
        beside = self._valid & ((self.kinds == PACKED) | (self.kinds == DEDICATED))
        if beside.any():
            names = {
                blob_id: sidecar_path(self._file.path, blob_id)
                for blob_id in np.unique(self.ids[beside]).tolist()
            }
            own = [
                names[blob_id] if is_beside else None
                for blob_id, is_beside in zip(self.ids.tolist(), beside.tolist(), strict=True)
            ]
            self._uris = pc.if_else(pa.array(beside), pa.array(own, pa.string()), self._uris)
            self.kinds[beside] = MANAGED
        if self._file.base_id is not None:
            below = self._valid & (self.kinds == MANAGED)
            self.kinds[below], self.ids[below] = MANAGED_IN_BASE, self._file.base_id

    def pieces(self, wanted: NDArray[np.bool_] | None = None) -> list[Buffer]:
        """The bytes of each requested blob, by default of all; nothing for nulls."""
        wanted = self._valid if wanted is None else self._valid & wanted
        require_decode_memory(int(self.sizes[wanted].sum(dtype=np.float64)))
        blobs: list[Buffer] = [b""] * len(self.kinds)
        inline = np.flatnonzero(wanted & (self.kinds == INLINE) & (self.sizes != 0))
        _fetch_from(
            self._file, self.positions, self.sizes, inline, blobs, may_overlap=self._may_overlap
        )
        jobs: list[Callable[[], None]] = []
        beside = wanted & ((self.kinds == PACKED) | (self.kinds == DEDICATED))
        for blob_id in np.unique(self.ids[beside]).tolist():
            source = _Source(self._file.store, sidecar_path(self._file.path, blob_id))
            rows = np.flatnonzero(beside & (self.ids == blob_id))
            jobs.append(self._job(source, rows, blobs))
        for rows, source in (*self._managed_objects(wanted), *self._external_objects(wanted)):
            jobs.append(self._job(source, rows, blobs))
        is_far = bool((wanted & (self.kinds == EXTERNAL)).any())
        _run(jobs, in_turn=isinstance(self._file.store, LocalStore) and not is_far)
        return blobs

    def uris(self) -> list[str]:
        """The absolute URI of each external blob, and of others that have one below a base."""
        uris = self._uris.fill_null("").to_pylist()
        for row in np.flatnonzero(self._valid & (self.kinds == EXTERNAL)).tolist():
            uris[row] = self._resolver().absolute(uris[row], int(self.ids[row]))
        return uris

    def absolute_uris(self) -> pa.Array:
        """The URIs of all blobs that have one, each of which needs neither table nor file."""
        rows = np.flatnonzero(self._valid & (self.kinds >= EXTERNAL))
        if not len(rows):
            return self._uris
        coded = self._uris.take(pa.array(rows)).fill_null("").dictionary_encode()
        keys = np.stack(
            (self.kinds[rows], self.ids[rows], plain_numbers(coded.indices).astype(np.uint64)), 1
        )
        different, indices = np.unique(keys, axis=0, return_inverse=True)
        names = coded.dictionary.to_pylist()
        absolute = [
            f"{self._file.store.uri}/{names[code]}"
            if kind == MANAGED
            else self._resolver().absolute(names[code], base_id)
            for kind, base_id, code in different.tolist()
        ]
        picked = np.zeros(len(self.kinds), np.int64)
        picked[rows] = indices.reshape(-1)
        is_picked = np.zeros(len(self.kinds), np.bool_)
        is_picked[rows] = True
        return pc.if_else(
            pa.array(is_picked), pa.array(absolute, pa.string()).take(pa.array(picked)), self._uris
        )

    def _external_objects(
        self, wanted: NDArray[np.bool_]
    ) -> Iterable[tuple[NDArray[np.int64], _Source]]:
        for rows, uri, base_id in self._objects(EXTERNAL, wanted):
            yield rows, _Source(*self._resolver().locate_external(uri, base_id))

    def _managed_objects(
        self, wanted: NDArray[np.bool_]
    ) -> Iterable[tuple[NDArray[np.int64], _Source]]:
        """Rows and the object of the table that holds their blobs."""
        for kind in (MANAGED, MANAGED_IN_BASE):
            for rows, path, base_id in self._objects(kind, wanted):
                if "://" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
                    raise CorruptFileError(
                        f"{path!r} is not the path of blobs in a table", where=self._file.uri
                    )
                if kind == MANAGED:  # below the root of the data file
                    yield rows, _Source(self._file.store, path)
                else:
                    yield rows, _Source(*self._resolver().locate_external(path, base_id))

    def _objects(
        self, kind: int, wanted: NDArray[np.bool_]
    ) -> Iterable[tuple[NDArray[np.int64], str, int]]:
        """Rows whose blobs are of ``kind`` by the object that holds them: its URI and base."""
        rows = np.flatnonzero(wanted & (self.kinds == kind) & self._may_have_bytes)
        by_file: dict[tuple[str, int], list[int]] = {}
        uris = self._uris.take(pa.array(rows)).to_pylist()
        for row, uri in zip(rows.tolist(), uris, strict=True):
            by_file.setdefault((uri, int(self.ids[row])), []).append(row)
        for (uri, base_id), members in by_file.items():
            yield np.array(members), uri, base_id

    def _job(
        self, source: _Source, rows: NDArray[np.int64], blobs: list[Buffer]
    ) -> Callable[[], None]:
        def fetch() -> None:
            try:
                self._fetch_object(source, rows, blobs)
            except FileNotFoundError as error:
                raise MissingFileError(
                    "a file that holds blobs is missing",
                    where=f"{source.store.uri}/{source.path}, referred to by {self._file.uri}",
                    hint="put the file back as it was, from a copy; or read a version without it",
                ) from error

        return fetch

    def _fetch_object(self, source: _Source, rows: NDArray[np.int64], blobs: list[Buffer]) -> None:
        """Blobs of one object; those of size 0 are the rest of the object, if it is external."""
        kinds, starts, sizes = self.kinds[rows], self.positions[rows], self.sizes[rows]
        open_ended = (kinds == EXTERNAL) & (sizes == 0)
        if open_ended.any():
            whole = memoryview(source.store.get(source.path))
            for row in rows[open_ended].tolist():
                blobs[row] = whole[int(self.positions[row]) :]
        closed = ~open_ended & (sizes != 0)
        if not closed.any():
            return
        size = source.store.size(source.path)
        where = f"{source.store.uri}/{source.path}"
        # References may share bytes; what was written for this file does not.
        shared = self._may_overlap or bool((kinds >= EXTERNAL).all())
        _check_ranges(starts[closed], sizes[closed], size, where, may_overlap=shared)
        ranges = _ranges(starts[closed], sizes[closed])
        for row, piece in zip(
            rows[closed].tolist(), source.store.get_ranges(source.path, ranges), strict=True
        ):
            blobs[row] = piece

    def _resolver(self) -> ExternalBlobs:
        if self._file.external is None:
            raise UnsupportedFeatureError(
                "blobs outside of the table, in a file that was opened without one",
                where=self._file.uri,
            )
        return self._file.external


def _numbers(descriptors: pa.StructArray, name: str) -> NDArray[np.uint64]:
    """A member as uint64, 0 where the descriptor is null."""
    values = pc.fill_null(pc.struct_field(descriptors, name), 0)
    return np.asarray(values).astype(np.uint64)


def _ranges(starts: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> list[ByteRange]:
    return list(map(ByteRange, starts.tolist(), (starts + sizes).tolist()))


def _check_ranges(
    starts: NDArray[np.uint64],
    sizes: NDArray[np.uint64],
    limit: int,
    where: str,
    *,
    may_overlap: bool = False,
) -> None:
    """Check that all blobs are inside their object, and in sum not larger than it."""
    bound = np.uint64(limit)
    inside = (sizes <= bound) & (starts <= bound - np.minimum(sizes, bound))
    total = float(sizes.sum(dtype=np.float64))
    if not inside.all() or (total > limit and not may_overlap):
        raise CorruptFileError(f"blobs lie outside of the {limit} bytes of their file", where=where)


def _fetch_from(
    file: OpenFile,
    positions: NDArray[np.uint64],
    sizes: NDArray[np.uint64],
    rows: NDArray[np.int64],
    blobs: list[Buffer],
    *,
    may_overlap: bool = False,
) -> None:
    """Blobs in the data file itself, with one request."""
    if not len(rows):
        return
    starts, lengths = positions[rows], sizes[rows]
    size = file.metadata.file_size
    _check_ranges(starts, lengths, size, file.uri, may_overlap=may_overlap)
    for row, piece in zip(rows.tolist(), file.fetch(_ranges(starts, lengths)), strict=True):
        blobs[row] = piece


def _run(jobs: Sequence[Callable[[], None]], *, in_turn: bool) -> None:
    if in_turn or len(jobs) < 2:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(min(_THREADS, len(jobs))) as executor:
        for done in [executor.submit(job) for job in jobs]:
            done.result()


def _join_pieces(pieces: Sequence[Buffer], descriptors: pa.StructArray) -> pa.Array:
    """Join the pieces to one large_binary array, null where the descriptor is."""
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    validity = descriptors.is_valid().buffers()[1] if descriptors.null_count else None
    return pa.Array.from_buffers(
        pa.large_binary(),
        len(pieces),
        [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))],
    )
