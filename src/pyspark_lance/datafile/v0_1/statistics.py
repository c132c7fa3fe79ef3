"""Statistics of the pages of a 0.1 file: smallest and largest value of every batch.

They are stored as a small 0.1 file within the file: a struct for each leaf field, named by the
field's id, with one row per batch.

Source: docs/format/file-format.md, section 10.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.datafile.v0_1.metadata import LegacyFile
from pyspark_lance.datafile.v0_1.nodes import Part, make_legacy_node
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema

NULL_COUNT: Final = "null_count"
MIN_VALUE: Final = "min_value"
MAX_VALUE: Final = "max_value"

_ONE_BATCH: Final = 1


@dataclass(frozen=True, slots=True)
class PageStatistics:
    """What is known of one field's values in each batch."""

    # First row of each batch, and the number of rows after the last one.
    row_starts: NDArray[np.int64]
    minimum: pa.Array  # A lower bound of the batch's values; null if there is none.
    # An upper bound; null if there is none. NaN is not counted, so floats have none.
    maximum: pa.Array
    # Nulls of the data as they were written; what reads back instead (null, zero, anything) is not
    # within the bounds.
    null_count: NDArray[np.int64]


def read_statistics(file: LegacyFile, field_ids: Iterable[int]) -> dict[int, PageStatistics]:
    """Field id -> statistics, for those of the fields that have any."""
    message = file.metadata.statistics
    if message is None or not len(message.fields):
        return {}
    pages = file.metadata.read_page_table(
        message.page_table_position, 0, max(message.fields), _ONE_BATCH
    )
    rows = [Part(0, 0, file.metadata.num_batches)] if file.metadata.num_batches else []
    wanted = {str(field_id) for field_id in field_ids}
    statistics = {}
    for field in LanceSchema.from_protos(list(message.schema)).fields:
        members = {child.name: child for child in field.children}
        if field.name not in wanted or not members.keys() >= {NULL_COUNT, MIN_VALUE, MAX_VALUE}:
            continue

        def read(member: Field) -> pa.Array:
            return make_legacy_node(file, pages, member).read(rows)

        statistics[int(field.name)] = PageStatistics(
            file.metadata.batch_starts,
            read(members[MIN_VALUE]),
            read(members[MAX_VALUE]),
            np.asarray(read(members[NULL_COUNT])).astype(np.int64),
        )
    return statistics
