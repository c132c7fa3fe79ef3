"""Write the files of a vector index segment, and read its model.

``index.idx`` has the centroids, ``auxiliary.idx`` the rows, partition by partition.  Codes of
IVF_PQ are stored in column-major order within each partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.plain_values import plain_array
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.nearest.ivf_file import INDEX_FILE, INDEX_NAMES, ROWS_FILE, IvfKind
from pyspark_lance.table.nearest.ivf_messages import (
    partitions_message,
    read_partitions,
    read_tensor,
    tensor,
)
from pyspark_lance.table.nearest.ivf_model import CODEWORDS, IvfModel
from pyspark_lance.table.nearest.metric import Metric
from pyspark_lance.table.version.table_files import TableFiles

ROW_ID: Final = "_rowid"
# The oldest file version that both pylance and this package support for these files.
_FILE_VERSION: Final = "2.1"
# Numbers of global buffers; the first is the schema of the file.
_FIRST, _SECOND = 1, 2
_CODE_BITS: Final = {16: 4, CODEWORDS: 8}


def rows_schema(model: IvfModel, *, metadata: dict[str, str] | None = None) -> LanceSchema:
    """Return the schema of ``auxiliary.idx``."""
    item = pa.from_numpy_dtype(model.code_dtype)
    columns = pa.schema(
        [
            pa.field("row", pa.uint64()),
            pa.field(
                str(model.kind),
                pa.list_(item, model.code_width),
                nullable=model.kind is not IvfKind.FLAT,
            ),
        ]
    )
    encoded = {name: value.encode() for name, value in (metadata or {}).items()}
    schema = LanceSchema.from_arrow(columns)
    # Table schemas reject this column name.
    row_id = replace(schema.fields[0], name=ROW_ID)
    return LanceSchema(fields=(row_id, *schema.fields[1:]), metadata=encoded)


def rows_batch(model: IvfModel, row_ids: NDArray[np.uint64], codes: NDArray[Any]) -> pa.RecordBatch:
    """Return a batch of rows for ``auxiliary.idx``.

    ``row_ids``: shape (n,); ``codes``: shape (n, code_width), in the order of the file.
    """
    lists = pa.FixedSizeListArray.from_arrays(plain_array(codes.reshape(-1)), model.code_width)
    return pa.RecordBatch.from_arrays(
        [plain_array(row_ids), lists], names=[ROW_ID, str(model.kind)]
    )


def write_index_file(store: ObjectStore, uuid: UUID, model: IvfModel) -> int:
    """Write ``index.idx``; return its length in bytes."""
    count = model.num_partitions
    about = {"type": INDEX_NAMES[model.kind], "distance_type": str(model.metric)}
    metadata = {
        "lance:index": json.dumps(about),
        "lance:ivf": str(_FIRST),
        "lance:flat": json.dumps([""] * count),
    }
    marker = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])
    encoded = {name: value.encode() for name, value in metadata.items()}
    schema = replace(LanceSchema.from_arrow(marker), metadata=encoded)
    none = np.zeros(count, np.int64)
    buffers = [partitions_message(none, model.centroids)]
    return _write(store, index_path(uuid, INDEX_FILE), schema, buffers, ())


def write_rows_file(
    store: ObjectStore,
    uuid: UUID,
    model: IvfModel,
    lengths: NDArray[np.int64],
    batches: Iterable[pa.RecordBatch],
) -> int:
    """Write ``auxiliary.idx``; return its length in bytes.

    ``lengths``: rows of each partition.
    """
    buffers = [partitions_message(lengths)]
    if model.codebook is not None:
        buffers.append(tensor(model.codebook.reshape(model.codebook.shape[1], -1)))
    metadata = {
        "distance_type": str(model.metric),
        "lance:ivf": str(_FIRST),
        "storage_metadata": json.dumps([json.dumps(_storage(model))]),
    }
    schema = rows_schema(model, metadata=metadata)
    return _write(store, index_path(uuid, ROWS_FILE), schema, buffers, batches)


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """The location of a segment with the model; it may have no rows."""

    uuid: UUID
    base_id: int | None = None  # Base path of the segment; None for the table itself.


def read_model(files: TableFiles, place: ModelPlace) -> IvfModel:
    """Read the model of a segment exactly."""
    store, path = files.locate_index(place.base_id, index_path(place.uuid, INDEX_FILE))
    index = DataFileReader.open(store, path)
    rows = DataFileReader.open(store, f"{path.removesuffix(INDEX_FILE)}{ROWS_FILE}")
    try:
        return _model(index, rows)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise CorruptFileError(
            f"the metadata of a vector index cannot be read: {error!r}", f"{store.uri}/{path}"
        ) from error


def _model(index: DataFileReader, rows: DataFileReader) -> IvfModel:
    of_index, of_rows = index.schema.metadata, rows.schema.metadata
    about = json.loads(of_index["lance:index"])
    kinds = {name: kind for kind, name in INDEX_NAMES.items()}
    kind = kinds.get(about["type"])
    if kind is None or about["distance_type"] not in list(Metric):
        raise UnsupportedFeatureError(f"rows cannot be added to a vector index {about}")
    _, _, centroids = read_partitions(bytes(index.global_buffer(int(of_index["lance:ivf"]))))
    if centroids is None:
        raise ValueError("no centroids")
    storage = json.loads(json.loads(of_rows["storage_metadata"])[0])
    metric = Metric(of_rows["distance_type"].decode())
    if kind is IvfKind.SQ:
        bounds = float(storage["bounds"]["start"]), float(storage["bounds"]["end"])
        return IvfModel(kind, metric, centroids, bounds=bounds)
    if kind is IvfKind.PQ:
        if storage["nbits"] not in _CODE_BITS.values():
            raise UnsupportedFeatureError(
                "vector indices with codes of other than 8 bits cannot be extended"
            )
        book = read_tensor(bytes(rows.global_buffer(int(storage["codebook_position"]))))
        parts, words = int(storage["num_sub_vectors"]), 1 << int(storage["nbits"])
        return IvfModel(kind, metric, centroids, codebook=book.reshape(parts, words, -1))
    return IvfModel(kind, metric, centroids)


def _storage(model: IvfModel) -> dict[str, object]:
    width = int(model.centroids.shape[1])
    if model.codebook is not None:
        return {
            "codebook_position": _SECOND,
            "nbits": _CODE_BITS[model.codebook.shape[1]],
            "num_sub_vectors": len(model.codebook),
            "dimension": width,
            "codebook_tensor": [],
            "transposed": True,
        }
    if model.bounds is not None:
        start, end = model.bounds
        return {"dim": width, "num_bits": 8, "bounds": {"start": start, "end": end}}
    return {"dim": width}


def _write(
    store: ObjectStore,
    path: str,
    schema: LanceSchema,
    buffers: Iterable[bytes],
    batches: Iterable[pa.RecordBatch],
) -> int:
    writer = DataFileWriter(store, path, schema, version=_FILE_VERSION)
    try:
        for buffer in buffers:
            writer.write_global_buffer(buffer)
        for batch in batches:
            writer.write(batch)
        return writer.finish().size_bytes
    except BaseException:
        writer.abort()
        raise
