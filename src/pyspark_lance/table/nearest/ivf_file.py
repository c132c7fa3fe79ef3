"""IvfSegment: the metadata in the files of a vector index, and its messages.

``index.idx`` has the centroids of the partitions, ``auxiliary.idx`` the rows, partition by
partition: vectors (IVF_FLAT), codes of parts of them (IVF_PQ) or of their numbers (IVF_SQ,
IVF_RQ).  The graph of an IVF_HNSW index is ignored: all rows of a partition are compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.format.wire import encode_varint, length_delimited, read_varint, wire_fields
from pyspark_lance.table.index.index_file import IndexFile
from pyspark_lance.table.nearest.rabit import SIGNS, RabitCode, parse_code
from pyspark_lance.table.nearest.vectors import Metric
from pyspark_lance.table.version.table_files import TableFiles

_Floats = NDArray[np.floating[Any]]
# Data types of tensors: enum value -> numpy type.
_TENSORS: Final = {1: "<f2", 2: "<f4", 3: "<f8"}
_NO_NUMBERS: Final = np.empty(0, np.int64)


def read_partitions(message: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64], _Floats | None]:
    """Parse the starts, lengths and centroids of an IVF message."""
    starts, lengths, centroids = _NO_NUMBERS, _NO_NUMBERS, None
    for field in wire_fields(message):
        value = message[field.value_start : field.end]
        if field.number == 2:
            starts = np.concatenate([starts, _numbers(value)])
        elif field.number == 3:
            lengths = np.concatenate([lengths, _numbers(value)])
        elif field.number == 4:
            centroids = read_tensor(value)
    return starts, lengths, centroids


def partitions_message(lengths: NDArray[np.int64], centroids: _Floats | None = None) -> bytes:
    """Serialize an IVF message of contiguous partitions.

    ``lengths``: rows of each. ``centroids``: shape (partitions, d); None if stored elsewhere.
    """
    starts = np.cumsum(lengths) - lengths
    message = length_delimited(2, _pack(starts)) + length_delimited(3, _pack(lengths))
    return message if centroids is None else message + length_delimited(4, tensor(centroids))


def read_tensor(message: bytes) -> _Floats:
    """Parse the numbers of a tensor, in its shape and type."""
    kind, shape, content = 0, _NO_NUMBERS, b""
    for field in wire_fields(message):
        value = message[field.value_start : field.end]
        if field.number == 1:
            kind = read_varint(value, 0)[0]
        elif field.number == 2:
            shape = np.concatenate([shape, _numbers(value)])
        elif field.number == 3:
            content = value
    return np.frombuffer(content, _TENSORS[kind]).reshape(shape)


def tensor(numbers: _Floats) -> bytes:
    """Serialize a tensor."""
    kinds = {dtype: number for number, dtype in _TENSORS.items()}
    dtype = np.dtype(numbers.dtype).newbyteorder("<")
    return (
        encode_varint(1 << 3)
        + encode_varint(kinds[f"<f{dtype.itemsize}"])
        + length_delimited(2, _pack(np.array(numbers.shape)))
        + length_delimited(3, np.ascontiguousarray(numbers, dtype).tobytes())
    )


def _numbers(packed: bytes) -> NDArray[np.int64]:
    """Parse packed varints."""
    found, position = [], 0
    while position < len(packed):
        number, position = read_varint(packed, position)
        found.append(number)
    return np.array(found, np.int64)


def _pack(numbers: NDArray[np.integer]) -> bytes:
    return b"".join(map(encode_varint, numbers.tolist()))


INDEX_FILE: Final = "index.idx"
ROWS_FILE: Final = "auxiliary.idx"
VECTOR_DETAILS: Final = "lance.index.pb.VectorIndexDetails"
NEWEST_VERSION: Final = 2
_SQ_LEVELS: Final = 255


class IvfKind(StrEnum):
    """The stored form of a row, and its column name."""

    FLAT = "flat"
    PQ = "__pq_code"
    SQ = "__sq_code"
    RQ = SIGNS


INDEX_NAMES: Final = {IvfKind.FLAT: "IVF_FLAT", IvfKind.PQ: "IVF_PQ", IvfKind.SQ: "IVF_SQ"}
"""Index type names of the kinds that can be created."""
_KINDS: Final = {
    **{name: kind for kind, name in INDEX_NAMES.items()},
    "IVF_HNSW_FLAT": IvfKind.FLAT,
    "IVF_HNSW_PQ": IvfKind.PQ,
    "IVF_HNSW_SQ": IvfKind.SQ,
    "IVF_RQ": IvfKind.RQ,
}


@dataclass(frozen=True, slots=True)
class IvfSegment:
    """One segment of a vector index."""

    entry: IndexMetadata
    kind: IvfKind
    metric: Metric
    centroids: _Floats  # Shape (partitions, d).
    starts: NDArray[np.int64]  # First row of each partition in the file of rows.
    lengths: NDArray[np.int64]  # Rows of each partition.
    codebook: NDArray[np.float32] | None = None  # PQ only: shape (parts, codewords, d / parts).
    # SQ only: the minimum and the step between two levels.
    bounds: tuple[float, float] | None = None
    transposed: bool = True  # PQ only: whether codes are stored part by part, not row by row.
    rabit: RabitCode | None = None  # RQ only.

    def __post_init__(self) -> None:
        """Reject plain values."""
        check_enum(self.kind, IvfKind)
        check_enum(self.metric, Metric)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are stored for a row."""
        return (str(self.kind),) if self.rabit is None else self.rabit.columns


def open_ivf(files: TableFiles, entry: IndexMetadata, width: int) -> IvfSegment:
    """Read the metadata of a segment."""
    index, rows = IndexFile.open(files, entry, INDEX_FILE), IndexFile.open(files, entry, ROWS_FILE)
    try:
        return _segment(entry, index, rows, width)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise CorruptFileError(
            f"the metadata of a vector index cannot be read: {error!r}", index.where
        ) from error


def _segment(entry: IndexMetadata, index: IndexFile, rows: IndexFile, width: int) -> IvfSegment:
    of_index, of_rows = index.reader.schema.metadata, rows.reader.schema.metadata
    about = json.loads(of_index["lance:index"])
    kind = _KINDS.get(about["type"])
    metric = about["distance_type"]
    if kind is None or metric not in list(Metric):
        what = f"{about['type']} indices for {metric} are not supported"
        raise UnsupportedFeatureError(what, index.where)
    _, _, centroids = read_partitions(_buffer(index, of_index["lance:ivf"]))
    starts, lengths, _ = read_partitions(_buffer(rows, of_rows["lance:ivf"]))
    if of_rows["distance_type"].decode() != metric or centroids is None:
        raise CorruptFileError(
            "the two files of a vector index do not belong together", index.where
        )
    is_inside = (starts >= 0).all() and (starts + lengths <= rows.reader.num_rows).all()
    if centroids.shape != (len(starts), width) or len(lengths) != len(starts) or not is_inside:
        raise CorruptFileError("the partitions of a vector index do not match its rows", rows.where)
    storage = json.loads(json.loads(of_rows["storage_metadata"])[0])
    known = (entry, kind, Metric(metric), centroids, starts, lengths)
    if kind is IvfKind.PQ:
        parts, bits = storage["num_sub_vectors"], storage["nbits"]
        if bits not in (4, 8):
            raise UnsupportedFeatureError(
                f"vector indices with codes of {bits} bits are not supported", rows.where
            )
        book = read_tensor(_buffer(rows, storage["codebook_position"]))
        shaped = book.reshape(parts, 1 << bits, width // parts).astype(np.float32)
        return IvfSegment(*known, codebook=shaped, transposed=bool(storage["transposed"]))
    if kind is IvfKind.RQ:
        names = [field.name for field in rows.reader.schema.fields]
        return IvfSegment(*known, rabit=parse_code(storage, names, width))
    if kind is IvfKind.SQ:
        low, high = storage["bounds"]["start"], storage["bounds"]["end"]
        if storage["num_bits"] != 8:
            raise UnsupportedFeatureError(
                "vector indices of kind ivf_sq are supported with 8 bits only", rows.where
            )
        return IvfSegment(*known, bounds=(float(low), (float(high) - float(low)) / _SQ_LEVELS))
    return IvfSegment(*known)


def _buffer(file: IndexFile, number: bytes | int) -> bytes:
    return bytes(file.reader.global_buffer(int(number)))
