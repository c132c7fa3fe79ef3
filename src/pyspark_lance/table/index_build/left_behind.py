"""Whether an index that names rows by stable ids still has values of rows that have moved.

An update keeps the id of a row, and moves the row to another fragment.  Lance takes what any
segment says of a row that any of them covers: as soon as another segment covers the new fragment,
the old value counts as well.  So such a segment is made anew before that.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import LanceError
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_address import OFFSET_BITS
from pyspark_lance.format.row_address_tree_map import numbers_of, parse_tree_map, union_of
from pyspark_lance.table.index.bitmap import BITMAP_FILE, sets_at
from pyspark_lance.table.index.index_file import IndexFile
from pyspark_lance.table.index.row_ids import row_id_index
from pyspark_lance.table.index_build.segment_files import LABEL_NULLS_KEY
from pyspark_lance.table.version.snapshot import Snapshot


def names_moved_rows(snapshot: Snapshot, entry: IndexMetadata, fragments: Collection[int]) -> bool:
    """Whether a bitmap or label list index names rows that are live outside of some fragments.

    Also where that cannot be told: its files are damaged, or very large.
    """
    ids = row_id_index(snapshot)
    try:
        named = _named(IndexFile.open(snapshot.files, entry, BITMAP_FILE))
    except (LanceError, FileNotFoundError):
        return True
    if named is None:
        return True
    addresses, is_found = ids.addresses_of(named)
    now = np.unique(addresses[is_found] >> np.uint64(OFFSET_BITS))
    return not set(now.tolist()) <= set(fragments)


def _named(file: IndexFile) -> NDArray[np.uint64] | None:
    sets = sets_at(file, np.arange(file.reader.num_rows))
    if sets is None:
        return None
    number = file.reader.schema.metadata.get(LABEL_NULLS_KEY)
    if number is not None:
        of_null = parse_tree_map(bytes(file.reader.global_buffer(int(number))), file.where)
        sets.append({high: rows for high, rows in of_null.items() if rows is not None})
    return numbers_of(union_of(sets))
