"""Values in another type: each is cast by itself, and no error for the rest."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.table.cdf.column_source import cast_values

VALUES = [
    pa.array([2**40, 1, None, -3, 2**31, -(2**63)]),
    pa.array([0, 2**64 - 1, None, 2**63], pa.uint64()),
    pa.array([1.5, float("nan"), 2.0**70, 3.0, None, -(2.0**63), 2.0**63, float("-inf")]),
    pa.array([0.5, 16777216.0, 3e38, None], pa.float32()),
    pa.array(["12", "x", "9" * 30, None, "", " 1", "1.5", "0x1F", "nan", "true", "2024-02-30"]),
    pa.array(["2024-02-29", "2024-02-29 11:00:00", "1e3", "-7", "1"], pa.large_string()),
    pa.array([b"\xff", b"a", b"1", None]),
    pa.array([Decimal("1.25"), Decimal("99999.00"), None, Decimal("7.00")]),
    pa.array([1500, 2000, None, -1], pa.timestamp("ns")),
    pa.array([10**17, 86_400_000_000, None], pa.timestamp("us", "UTC")),
    pa.array([1, 86_399_999], pa.time32("ms")),
    pa.array([True, None, False]),
    pa.array([datetime.date(2024, 1, 1), None]),
]
KINDS = [
    pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
    pa.string(), pa.binary(), pa.bool_(), pa.decimal128(4, 2), pa.date32(), pa.timestamp("us"),
    pa.timestamp("s", "UTC"), pa.time64("us"), pa.list_(pa.int64()), pa.struct([("a", pa.int8())]),
]  # fmt: skip


def one_by_one(values, kind):
    def cast(one):
        try:
            return one.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return pa.nulls(1, kind)

    return pa.concat_arrays([cast(values.slice(index, 1)) for index in range(len(values))])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_cast_values_equals_single_casts(values, kind):
    found, expected = cast_values(values, kind), one_by_one(values, kind)
    assert found.type == kind
    assert str(found) == str(expected)
    repeated = pa.concat_arrays([values] * 3).slice(1)
    again = pa.concat_arrays([expected] * 3).slice(1)
    assert str(cast_values(repeated, kind)) == str(again)


def test_unfitting_values_are_cast_in_bulk():
    texts = pa.array([f"no number {number}" for number in range(65_536)])
    assert cast_values(texts, pa.int64()).null_count == len(texts)
    wide = pa.array(np.arange(2**40, 2**40 + 65_536))
    assert cast_values(wide, pa.int32()).null_count == len(wide)
