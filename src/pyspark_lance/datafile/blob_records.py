"""BlobRecords and BlobObjects: where the bytes of blobs are, and the objects of large blobs.

The bytes of a blob are in the data file or, where a table has objects for blobs and the blob is
large, in one of these. References to objects elsewhere stay references.

The objects of a data file are complete before the data file, which refers to them. No other file
adds to them. Rows that move keep their references, so an object may outlive the data file that it
was written for.

Source: docs/format/file-format.md, sections 5, 6.7 and 9.1.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.encoding_requests import BlobLimits
from pyspark_lance.codec.v2_0.variable_width import value_offsets
from pyspark_lance.datafile.blob_values import EXTERNAL, INLINE, MANAGED
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.metafile.paths import BLOBS
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.object_store import ObjectStore, OutputFile


class BlobObjects:
    """Objects that hold one large blob each, and some that are filled with others."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        # Those that are being filled, by how many bytes may be in them.
        self._filled: dict[int, tuple[str, OutputFile]] = {}
        self.paths: list[str] = []

    def write(self, data: memoryview, limits: BlobLimits) -> tuple[str, int]:
        """Write a blob.

        Returns the path of its object below the root of the table, and its offset there.
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
    """Write the bytes of blobs, each to a separate range.

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
