"""The bytes of blobs, given their descriptors: in the data file, beside it, or anywhere else.

BlobRecords: locations of blobs in pages, and the objects with large blobs.

BlobObjects: the objects of a table that the large blobs of one data file go to. They are complete
before the data file is, which names them. No other file is written to them, but rows that move keep
to them, so that an object may outlive the data file it was written for.

The bytes of values go into the data file itself, or where a table has objects for blobs, large ones
into these. References to objects elsewhere stay references.

Source: docs/format/file-format.md, sections 5, 6.7 and 9.1.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.decode_memory import require_decode_memory
from pyspark_lance.codec.encoding_requests import BlobLimits
from pyspark_lance.codec.v2_0.variable_width import value_offsets
from pyspark_lance.datafile.open_file import ExternalBlobs, OpenFile
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    MissingFileError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.logical_view import BLOB_FILE, LOCATED_BLOB
from pyspark_lance.metafile.paths import BLOBS
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import Buffer, ByteRange, ObjectStore, OutputFile

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
    return _joined(pieces, descriptors)


def fetch_v2(file: OpenFile, descriptors: pa.StructArray, *, may_overlap: bool = False) -> pa.Array:
    """The blobs that v2 descriptors point to, as large_binary.

    ``may_overlap``: whether a blob may be requested twice.
    """
    return _joined(_V2Blobs(file, descriptors, may_overlap=may_overlap).pieces(), descriptors)


def located(file: OpenFile, descriptors: pa.StructArray) -> pa.StructArray:
    """Descriptors of either kind that name their data file, and whose URIs are absolute."""
    members = {field.name: pc.struct_field(descriptors, field.name) for field in descriptors.type}
    if "kind" in members:
        members["blob_uri"] = _V2Blobs(file, descriptors).absolute_uris()
    # Those of the first kind are in the data file, as some of the second are.
    constants = {"kind": INLINE, "blob_id": 0, "blob_uri": "", BLOB_FILE: file.place}
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
    data = _joined(blobs.pieces(~referred), descriptors)
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
        raise UnsupportedFeatureError(f"blob columns of type {data_type}", where=file.place)
    if "position" not in names and bool(pc.any(ranged).as_py()):
        raise CorruptFileError("a part of an object where the schema has no ranges", file.place)
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
            raise UnsupportedFeatureError(
                f"blobs of kind {self.kinds[unknown][0]}", where=file.place
            )

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
        different, places = np.unique(keys, axis=0, return_inverse=True)
        names = coded.dictionary.to_pylist()
        absolute = [
            f"{self._file.store.uri}/{names[code]}"
            if kind == MANAGED
            else self._resolver().absolute(names[code], base_id)
            for kind, base_id, code in different.tolist()
        ]
        picked = np.zeros(len(self.kinds), np.int64)
        picked[rows] = places.reshape(-1)
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
                        f"{path!r} is not the path of blobs in a table", where=self._file.place
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
        places: dict[tuple[str, int], list[int]] = {}
        uris = self._uris.take(pa.array(rows)).to_pylist()
        for row, uri in zip(rows.tolist(), uris, strict=True):
            places.setdefault((uri, int(self.ids[row])), []).append(row)
        for (uri, base_id), members in places.items():
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
                    where=f"{source.store.uri}/{source.path}, referred to by {self._file.place}",
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
        _check_places(starts[closed], sizes[closed], size, where, may_overlap=shared)
        ranges = _ranges(starts[closed], sizes[closed])
        for row, piece in zip(
            rows[closed].tolist(), source.store.get_ranges(source.path, ranges), strict=True
        ):
            blobs[row] = piece

    def _resolver(self) -> ExternalBlobs:
        if self._file.external is None:
            raise UnsupportedFeatureError(
                "blobs outside of the table, in a file that was opened without one",
                where=self._file.place,
            )
        return self._file.external


def _numbers(descriptors: pa.StructArray, name: str) -> NDArray[np.uint64]:
    """A member as uint64, 0 where the descriptor is null."""
    values = pc.fill_null(pc.struct_field(descriptors, name), 0)
    return np.asarray(values).astype(np.uint64)


def _ranges(starts: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> list[ByteRange]:
    return list(map(ByteRange, starts.tolist(), (starts + sizes).tolist()))


def _check_places(
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
    _check_places(starts, lengths, size, file.place, may_overlap=may_overlap)
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


def _joined(pieces: Sequence[Buffer], descriptors: pa.StructArray) -> pa.Array:
    """Join the pieces to one large_binary array, null where the descriptor is."""
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    validity = descriptors.is_valid().buffers()[1] if descriptors.null_count else None
    return pa.Array.from_buffers(
        pa.large_binary(),
        len(pieces),
        [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))],
    )


class BlobObjects:
    """Objects that hold one large blob each, and some that are filled with others."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        # Those that are being filled, by how many bytes may be in them.
        self._filled: dict[int, tuple[str, OutputFile]] = {}
        self.paths: list[str] = []

    def write(self, data: memoryview, limits: BlobLimits) -> tuple[str, int]:
        """Write a blob.

        Returns the path of its object below the root of the table, and its place in there.
        """
        if len(data) > limits.dedicated:
            path, output = self._new()
            try:
                output.write(data)
            except BaseException:
                output.abort()
                raise
            output.close()
            return path, 0
        filled = self._filled.get(limits.pack)
        if filled is not None and filled[1].tell() + len(data) > limits.pack:
            filled[1].close()
            filled = None
        if filled is None:
            filled = self._filled[limits.pack] = self._new()
        path, output = filled
        position = output.tell()
        output.write(data)
        return path, position

    def finish(self) -> None:
        """Complete the open objects."""
        for _, output in self._filled.values():
            output.close()
        self._filled.clear()

    def abort(self) -> None:
        """Remove all written objects; best effort, since a cleanup finds the rest."""
        with contextlib.suppress(Exception):  # the error that led here matters more
            for _, output in self._filled.values():
                output.abort()
            self._store.delete_many(self.paths)

    def _new(self) -> tuple[str, OutputFile]:
        path = f"{BLOBS}/{uuid.uuid4()}.blob"
        output = self._store.open_output(path)
        self.paths.append(path)
        return path, output


PAGE_ROWS: Final = 1 << 17
"""A page describes no more blobs than this, unless one row has more."""

RECORD_BYTES: Final = 25
"""Of a descriptor of the second kind, without its URI."""

_RECORD: Final = np.dtype(
    [("kind", "u1"), ("position", "<u8"), ("size", "<u8"), ("blob_id", "<u4"), ("uri_bytes", "<u4")]
)


@dataclass(frozen=True, slots=True, eq=False)
class BlobRecords:
    """Positions of the blobs of some slots."""

    positions: NDArray[np.uint64]  # In the data file, or in the object that the URI names.
    sizes: NDArray[np.uint64]  # Bytes; 0 with a URI outside of the table means all that follow.
    is_null: NDArray[np.bool_]  # Slots without a blob; what else is said of them means nothing.
    kinds: NDArray[np.uint8]
    base_ids: NDArray[np.uint32]  # Of the base paths that the URIs are below; 0 for most.
    # Of blobs that are elsewhere, null for others; None if there are none.
    uris: pa.Array | None = None

    def __len__(self) -> int:
        """The number of slots."""
        return len(self.sizes)

    def pairs(self) -> NDArray[np.uint8]:
        """(position, size) of each slot, shape (n, 16)."""
        pairs = np.stack((self.positions, self.sizes), axis=1).astype("<u8")
        return pairs.view(np.uint8).reshape(-1, 16)

    def descriptors(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Descriptors of the second kind: offsets and their buffer; nothing for nulls."""
        kept = np.flatnonzero(~self.is_null)
        uris = self.uris
        uris = pa.repeat("", len(kept)) if uris is None else uris.take(pa.array(kept)).fill_null("")
        headers = np.zeros(len(kept), _RECORD)
        uri_bytes = np.asarray(pc.binary_length(uris))
        headers["kind"], headers["blob_id"] = self.kinds[kept], self.base_ids[kept]
        headers["position"], headers["size"] = self.positions[kept], self.sizes[kept]
        headers["uri_bytes"] = uri_bytes
        plain = pa.Array.from_buffers(
            pa.binary(_RECORD.itemsize), len(kept), [None, pa.py_buffer(headers.view(np.uint8))]
        )
        whole = pc.binary_join_element_wise(
            plain.cast(pa.binary()), uris.cast(pa.binary()), pa.scalar(b"", pa.binary())
        )
        offsets = np.zeros(len(self) + 1, np.int32)
        lengths = np.zeros(len(self), np.int64)
        lengths[kept] = _RECORD.itemsize + uri_bytes
        np.cumsum(lengths, out=offsets[1:])
        return offsets, np.frombuffer(whole.buffers()[2], np.uint8)[: int(offsets[-1])]


def write_blobs(
    sink: PageSink,
    values: pa.Array,
    is_null: NDArray[np.bool_],
    name: str,
    objects: tuple[BlobObjects, BlobLimits] | None = None,
) -> BlobRecords:
    """Write the bytes of blobs, each to a place of its own.

    ``values``: binaries, or structs of ``data`` and ``uri``, possibly a range, and possibly the
    kind and the base path of the reference. ``objects``: where large blobs go.
    """
    if not pa.types.is_struct(values.type):
        return _write_values(sink, values, is_null, None)
    data, uris = pc.struct_field(values, "data"), pc.struct_field(values, "uri")
    has_data = plain_numbers(data.is_valid()) & ~is_null
    has_uri = plain_numbers(uris.is_valid()) & ~is_null
    if (has_data == has_uri)[~is_null].any():
        raise InvalidInputError(
            f"column {name!r}: a blob has either bytes or a URI",
            hint="use null for a blob that is not there",
        )
    records = _write_values(sink, data, is_null, objects)
    if not has_uri.any():
        return records
    records.kinds[has_uri] = EXTERNAL
    for part, numbers in (
        ("position", records.positions), ("size", records.sizes),
        ("kind", records.kinds), ("blob_id", records.base_ids),
    ):  # fmt: skip
        if values.type.get_field_index(part) >= 0:
            given = np.asarray(pc.fill_null(pc.struct_field(values, part), 0))
            numbers[has_uri] = given[has_uri]
    if records.uris is not None:
        uris = pc.if_else(pa.array(has_uri), uris, records.uris)
    return replace(records, uris=uris)


def concat_records(pieces: Sequence[BlobRecords]) -> BlobRecords:
    """Slots one after another."""
    if len(pieces) == 1:
        return pieces[0]
    uris = None
    if any(piece.uris is not None for piece in pieces):
        parts = [pa.nulls(len(p), pa.string()) if p.uris is None else p.uris for p in pieces]
        uris = pa.concat_arrays(parts)
    return BlobRecords(
        np.concatenate([piece.positions for piece in pieces]),
        np.concatenate([piece.sizes for piece in pieces]),
        np.concatenate([piece.is_null for piece in pieces]),
        np.concatenate([piece.kinds for piece in pieces]),
        np.concatenate([piece.base_ids for piece in pieces]),
        uris,
    )


def _write_values(
    sink: PageSink,
    values: pa.Array,
    is_null: NDArray[np.bool_],
    objects: tuple[BlobObjects, BlobLimits] | None,
) -> BlobRecords:
    """Write each value that has bytes."""
    offsets = value_offsets(values).astype(np.int64)
    sizes = np.diff(offsets)
    sizes[is_null | plain_numbers(values.is_null())] = 0
    positions = np.zeros(len(values), np.uint64)
    stored = values.buffers()[2]
    content = memoryview(b"" if stored is None else stored)
    uris: list[str | None] = [None] * len(values)
    kinds = np.full(len(values), INLINE, np.uint8)
    for row in np.flatnonzero(sizes).tolist():
        piece = content[offsets[row] : offsets[row + 1]]
        if objects is None or len(piece) <= objects[1].inline:
            positions[row] = sink.write_buffer(piece).start
        else:
            uris[row], positions[row] = objects[0].write(piece, objects[1])
            kinds[row] = MANAGED
    return BlobRecords(
        positions,
        sizes.astype(np.uint64),
        is_null,
        kinds,
        np.zeros(len(values), np.uint32),
        pa.array(uris, pa.string()) if kinds.any() else None,
    )
