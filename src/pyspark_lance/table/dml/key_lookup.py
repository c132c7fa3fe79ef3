"""Convert the source keys of a merge to a predicate that indices and zone maps can use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.plain_values import plain_dtype, plain_scalar
from pyspark_lance.predicate.columns import resolve_column
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.tree import In, all_of
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot


def keys_condition(
    snapshot: Snapshot, columns: Sequence[str], keys: KeyFilter | None
) -> Predicate | None:
    """Return a predicate that is true for every row with a source key; None if keys are unknown.

    ``columns``: the table columns that the parts of the key must equal; null equals nothing.
    """
    values = None if keys is None else keys.values()
    if values is None:
        return None
    schema = predicate_schema(snapshot.schema)
    targets = (resolve_column((name,), schema) for name in columns)
    return all_of(
        [
            In(target, _as_type(part, target.type))
            for target, part in zip(targets, values, strict=True)
        ]
    )


def _as_type(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast values to ``wanted``, without those that it cannot represent."""
    if values.type == wanted:
        return values
    if pa.types.is_integer(wanted):
        limits, own = (np.iinfo(plain_dtype(kind)) for kind in (wanted, values.type))
        low, high = max(limits.min, own.min), min(limits.max, own.max)
        is_inside = pc.and_(
            pc.greater_equal(values, plain_scalar(low, values.type)),
            pc.less_equal(values, plain_scalar(high, values.type)),
        )
        values = values.filter(is_inside)
    return values.cast(wanted)
