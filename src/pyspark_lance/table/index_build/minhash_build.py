"""Writer of a MinHash index segment: signatures of texts, and the sorted keys of their bands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.index.minhash import (
    BAND_KEY,
    BANDS_FILE,
    DETAILS_KEY,
    DOCUMENT,
    DOCUMENTS_KEY,
    PAGE_ROWS_KEY,
    PAGES_KEY,
    ROW_ID,
    SIGNATURE,
    SIGNATURES_FILE,
    VERSION_KEY,
    MinHashOptions,
    Signatures,
    Signer,
    band_keys,
)
from pyspark_lance.table.index_build.merged_segments import IDS, VALUES, RowSorter
from pyspark_lance.table.index_build.segment_files import SegmentOutput, schema_of

_PAGE_ROWS: Final = 4096
_TEXTS_AT_ONCE: Final = 1 << 14


def write_signatures(
    store: ObjectStore,
    uuid: UUID,
    options: MinHashOptions,
    rows: Iterable[tuple[pa.Array, NDArray[np.uint64]]],
    sorter: RowSorter,
) -> dict[str, int]:
    """Write the files of a segment; return their lengths in bytes, by name.

    ``rows``: texts with the names of their rows. ``sorter``: of unsigned numbers; sorts the keys.
    """
    common = {VERSION_KEY: b"0", DETAILS_KEY: options.to_details().hex().encode()}
    schema = schema_of(
        [
            (ROW_ID, pa.uint64(), False),
            (SIGNATURE, pa.list_(pa.uint16(), options.num_hashes), False),
        ]
    )
    count = 0
    with SegmentOutput(store, uuid, SIGNATURES_FILE, schema, common) as output:
        for ids, signatures in _sign_rows(options, rows):
            items = plain_array(signatures.reshape(-1))
            lists = pa.FixedSizeListArray.from_arrays(items, options.num_hashes)
            output.write(pa.RecordBatch.from_arrays([plain_array(ids), lists], schema=schema))
            keys = band_keys(signatures, options)
            documents = np.arange(count, count + len(ids), dtype=np.uint64)
            owners = np.repeat(documents, options.num_bands)
            sorter.add(plain_array(keys.reshape(-1)), owners)
            count += len(ids)
    metadata = {
        **common,
        DOCUMENTS_KEY: str(count).encode(),
        PAGE_ROWS_KEY: str(_PAGE_ROWS).encode(),
        PAGES_KEY: b"1",
    }
    bands = schema_of([(BAND_KEY, pa.uint64(), False), (DOCUMENT, pa.uint32(), False)])
    pages = _PageEnds()
    with SegmentOutput(store, uuid, BANDS_FILE, bands, metadata) as keys_output:
        for batch in sorter.batches():
            keys = plain_numbers(batch.column(VALUES))
            owners = plain_numbers(batch.column(IDS)).astype(np.uint32)
            pages.add(keys)
            columns = [plain_array(keys), plain_array(owners)]
            keys_output.write(pa.RecordBatch.from_arrays(columns, schema=bands))
        keys_output.writer.write_global_buffer(pages.to_bytes())
    return {SIGNATURES_FILE: output.size_bytes, BANDS_FILE: keys_output.size_bytes}


def _sign_rows(
    options: MinHashOptions, rows: Iterable[tuple[pa.Array, NDArray[np.uint64]]]
) -> Iterator[tuple[NDArray[np.uint64], Signatures]]:
    """Yield the names of the rows whose texts have words, and their signatures."""
    signer = Signer(options)
    for texts, ids in rows:
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            indices, signatures = signer.sign(texts.slice(first, _TEXTS_AT_ONCE))
            if len(indices):
                yield ids[first + indices], signatures


class _PageEnds:
    """The last key of each page of sorted keys."""

    def __init__(self) -> None:
        self._num_rows = 0
        self._found: list[NDArray[np.uint64]] = []
        self._last = np.empty(0, np.uint64)

    def add(self, keys: NDArray[np.uint64]) -> None:
        """Add the next keys."""
        first_end = -(self._num_rows + 1) % _PAGE_ROWS
        self._found.append(keys[first_end::_PAGE_ROWS].copy())
        self._num_rows += len(keys)
        self._last = keys[-1:].copy() if len(keys) else self._last

    def to_bytes(self) -> bytes:
        """Serialize the keys; the last page may be shorter."""
        ends = self._found if self._num_rows % _PAGE_ROWS == 0 else [*self._found, self._last]
        return np.concatenate([np.empty(0, np.uint64), *ends]).astype("<u8").tobytes()
