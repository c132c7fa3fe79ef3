"""Task of an executor that builds a segment of an index over some fragments."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.field import Field
from pyspark_lance.format.row_address import union_of
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.predicate.types import type_name
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.index.bitmap import BITMAP_FILE
from pyspark_lance.table.index.bloom import BLOOM_FILE
from pyspark_lance.table.index.btree import DATA_FILE, LOOKUP_FILE, has_order
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.minhash import MINHASH_FILES, MinHashOptions
from pyspark_lance.table.index.ngram import NGRAM_FILE, NgramIndex
from pyspark_lance.table.index.segments import (
    BITMAP,
    BLOOMFILTER,
    BTREE,
    INVERTED,
    LABEL_LIST,
    MINHASH,
    NGRAM,
)
from pyspark_lance.table.index_build.merged_segments import (
    RowSorter,
    StoredSegment,
    merge_by_value,
    null_lists_of,
    sorted_rows_of,
)
from pyspark_lance.table.index_build.minhash_build import write_signatures
from pyspark_lance.table.index_build.ngram_build import (
    NgramPostings,
    merge_postings,
    stored_postings,
    write_postings,
)
from pyspark_lance.table.index_build.segment_files import (
    can_have_bloom_filter,
    tree_map_of,
    write_bloom_filters,
    write_btree,
    write_sets,
)
from pyspark_lance.table.index_build.text_build import TEXT_FILES, TextPostings, write_text_segment
from pyspark_lance.table.index_build.zone_maps import ROWS_PER_ZONE
from pyspark_lance.table.scan.column_paths import values_at
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.sort import MAX_ROWS, MAX_SORT_BYTES
from pyspark_lance.table.unit_of_work import remove_files

KINDS: Final = (BTREE, BITMAP, LABEL_LIST, BLOOMFILTER, NGRAM, INVERTED, MINHASH)
"""The kinds of which this makes segments."""


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment to build; picklable."""

    title: ClassVar = "build index segments"

    kind: str  # ``btree`` or another of ``KINDS``.
    path: tuple[str, ...]  # The column, and the fields below it that lead to the value.
    field: Field
    scan: ScanTask  # Reads the column and the names of live rows.
    fragments: tuple[int, ...]  # Ids of the fragments, ascending.
    most_rows: int = MAX_ROWS
    most_bytes: int = MAX_SORT_BYTES  # Bytes of their values.
    rows_per_zone: int = ROWS_PER_ZONE  # Live rows of a zone, for kinds that have zones.
    # Segments whose rows come into this one; they cover fragments that are not scanned.
    joined: tuple[StoredSegment, ...] = ()
    text: TokenizerOptions | None = None  # Of an inverted index.
    minhash: MinHashOptions = MinHashOptions()  # noqa: RUF009
    # Fragments that are gone, which the entry goes on to name: other segments may have their rows.
    removed_fragments: tuple[int, ...] = ()

    def run(self) -> BuiltSegment:
        """Write the files of a segment; commit nothing.

        When anything fails, the files written by this call are removed.
        """
        store = self.scan.files.table.store()
        name = uuid.uuid4()
        rows = _Rows(self)
        try:
            sizes = _write_rows(store, name, self, rows)
        except BaseException:
            remove_files(store, [index_path(name, file) for file in _FILES[self.kind]])
            raise
        return BuiltSegment(name, sizes)


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A segment whose files are there.

    ``file_sizes``: file -> bytes.
    """

    uuid: uuid.UUID
    file_sizes: dict[str, int]

    @property
    def paths(self) -> list[str]:
        """Its files, by their paths below the root."""
        return [index_path(self.uuid, name) for name in self.file_sizes]


def check_can_be_indexed(kind: str, field: Field, name: str) -> None:
    """Reject a column that cannot have an index of a kind."""
    if field.is_blob or field.logical_type == "json":
        kind_of_values = None
    else:
        kind_of_values = _indexed_type(kind, field) if _is_fitting(kind, field) else None
    is_known = _IS_KNOWN.get(kind, has_order)
    if kind_of_values is None or not is_known(kind_of_values):
        article = "an" if kind.startswith("i") else "a"
        raise UnsupportedFeatureError(
            f"the column {name!r} of type {type_name(field.to_arrow().type)} cannot "
            f"have {article} {kind} index",
            hint=_FITTING.get(kind, "columns of {}, and struct fields").format(_PLAIN),
        )


_PLAIN: Final = "numbers, text, bytes, days, times and booleans can"
_FITTING: Final = {
    LABEL_LIST: "columns of lists of {}",
    BLOOMFILTER: "columns of whole numbers, float, double, text, bytes, days and times can",
    NGRAM: "columns of text, and struct fields of it can",
    INVERTED: "columns of text, of lists of it, and struct fields of it can",
    MINHASH: "columns of text, and struct fields of it can",
}
_IS_KNOWN: Final = {
    BLOOMFILTER: can_have_bloom_filter,
    NGRAM: pa.types.is_string,
    INVERTED: lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    MINHASH: lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
}


def _is_fitting(kind: str, field: Field) -> bool:
    if kind != LABEL_LIST and not (kind == INVERTED and field.children):
        return not field.children
    stored = field.to_arrow().type
    is_list = pa.types.is_list(stored) or pa.types.is_large_list(stored)
    return is_list and len(field.children) == 1 and not field.children[0].children


def _indexed_type(kind: str, field: Field) -> pa.DataType:
    own = field.children[0] if field.children else field
    return own.to_arrow().type


class _Rows:
    """The values of a task with the names of their rows, once; notes null lists."""

    def __init__(self, task: SegmentTask) -> None:
        self._task = task
        self.null_lists: dict[int, BitMap] = {}

    def __iter__(self) -> Iterator[tuple[pa.Array, NDArray[np.uint64]]]:
        task = self._task
        name = ROW_ID if ROW_ID in task.scan.system_columns else ROW_ADDRESS
        for batch in task.scan.run():
            ids = plain_numbers(batch.column(name))
            values = values_at(batch, task.path)
            yield self._elements(values, ids) if task.kind == LABEL_LIST else (values, ids)

    def _elements(
        self, lists: pa.Array, ids: NDArray[np.uint64]
    ) -> tuple[pa.Array, NDArray[np.uint64]]:
        if lists.null_count:
            missing = tree_map_of(ids[np.asarray(lists.is_null())])
            self.null_lists = union_of([self.null_lists, missing])
        parents = np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
        return pc.list_flatten(lists), ids[parents]


_FILES: Final = {
    BTREE: (DATA_FILE, LOOKUP_FILE),
    BITMAP: (BITMAP_FILE,),
    LABEL_LIST: (BITMAP_FILE,),
    BLOOMFILTER: (BLOOM_FILE,),
    NGRAM: (NGRAM_FILE,),
    INVERTED: TEXT_FILES,
    MINHASH: MINHASH_FILES,
}


def _write_rows(
    store: ObjectStore, name: uuid.UUID, task: SegmentTask, rows: _Rows
) -> dict[str, int]:
    if task.kind == BLOOMFILTER:
        return write_bloom_filters(store, name, rows, task.rows_per_zone)
    if task.kind == INVERTED:
        return _write_texts(store, name, task, rows)
    if task.kind == NGRAM:
        return _write_ngrams(store, name, task, rows)
    if task.kind == MINHASH:
        with RowSorter(pa.uint64(), task.most_rows, task.most_bytes) as sorter:
            return write_signatures(store, name, task.minhash, rows, sorter)
    data_type = _indexed_type(task.kind, task.field)
    with RowSorter(data_type, task.most_rows, task.most_bytes) as sorter:
        for values, ids in rows:
            sorter.add(values, ids)
        streams = [sorter.batches(), *_rows_of_joined(task)]
        in_order = merge_by_value(streams) if task.joined else streams[0]
        if task.kind == BTREE:
            return write_btree(store, name, data_type, in_order)
        nulls = _null_lists(task, rows) if task.kind == LABEL_LIST else None
        return write_sets(store, name, data_type, in_order, nulls)


def _write_texts(
    store: ObjectStore, name: uuid.UUID, task: SegmentTask, rows: _Rows
) -> dict[str, int]:
    assert task.text is not None
    with TextPostings(task.text) as postings:
        for segment in task.joined:
            postings.add_stored(task.scan.files, segment, task.scan.stable_row_ids)
        for values, ids in rows:
            postings.add(values, ids)
        return write_text_segment(store, name, task.text, postings)


def _write_ngrams(
    store: ObjectStore, name: uuid.UUID, task: SegmentTask, rows: _Rows
) -> dict[str, int]:
    with NgramPostings(task.most_bytes) as postings:
        for values, ids in rows:
            postings.add(values, ids)
        files = task.scan.files
        streams = [postings.batches()]
        for segment in task.joined:
            index = NgramIndex.open(files, segment.entry, task.field)
            stable = task.scan.stable_row_ids
            streams.append(stored_postings(files, segment, index, stable_row_ids=stable))
        return write_postings(store, name, merge_postings(streams))


def _null_lists(task: SegmentTask, rows: _Rows) -> dict[int, BitMap]:
    """Return the rows whose list is null."""
    stable, files = task.scan.stable_row_ids, task.scan.files
    stored = (null_lists_of(files, segment, stable_row_ids=stable) for segment in task.joined)
    return union_of([rows.null_lists, *map(tree_map_of, stored)])


def _rows_of_joined(task: SegmentTask) -> list[Iterator[pa.RecordBatch]]:
    read = partial(
        sorted_rows_of,
        task.scan.files,
        field=task.field,
        num_segments=len(task.joined),
        stable_row_ids=task.scan.stable_row_ids,
    )
    return [read(segment) for segment in task.joined]
