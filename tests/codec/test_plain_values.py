"""Plain scalars and arrays: the same as Arrow makes, and pandas stays out of workers."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.plain_values import (
    plain_array,
    plain_numbers,
    plain_scalar,
    plain_values,
    python_rows,
    single_value,
)
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.version.table import Table

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()]
DECIMALS = [pa.decimal128(5, 2), pa.decimal128(38, 0), pa.decimal128(38, 38)]
VALUES = st.one_of(
    st.tuples(st.none() | st.integers(-(2**65), 2**65), st.sampled_from(INTEGERS)),
    st.tuples(st.none() | st.floats(allow_nan=False) | st.integers(), st.just(pa.float64())),
    st.tuples(st.none() | st.floats(width=32, allow_nan=False), st.just(pa.float32())),
    st.tuples(st.none() | st.booleans(), st.just(pa.bool_())),
    st.tuples(st.none() | st.text(), st.just(pa.string())),
    st.tuples(st.none() | st.binary(), st.just(pa.binary())),
    st.tuples(st.decimals(allow_nan=False, allow_infinity=False), st.sampled_from(DECIMALS)),
)


def made(make, value, data_type):
    """The scalar, or the kind of error."""
    try:
        return make(value, data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        return type(error)


@given(VALUES)
def test_plain_scalar_equals_arrow_scalar(given):
    value, data_type = given
    ours = made(plain_scalar, value, data_type)
    assert ours == made(pa.scalar, value, data_type)
    if isinstance(ours, pa.Scalar):
        assert ours.type == data_type
        ours.validate(full=True)


def test_invalid_unicode_is_refused():
    with pytest.raises(UnicodeEncodeError):
        plain_scalar("\ud800", pa.string())


@pytest.mark.parametrize("digits", [38, 39])
def test_decimals_are_exact(digits):
    value = Decimal("9" * digits)
    assert made(plain_scalar, value, DECIMALS[1]) == made(pa.scalar, value, DECIMALS[1])


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32, np.int64])
def test_plain_array_equals_arrow_array(dtype):
    numbers = np.arange(20, dtype=dtype)[::2]
    assert plain_array(numbers).equals(pa.array(numbers))
    assert plain_array(numbers[:0]).equals(pa.array(numbers[:0]))


@given(st.lists(st.tuples(st.integers(-9, 9), st.booleans(), st.booleans())), st.integers(0, 3))
def test_arrays_with_nulls_and_booleans_round_trip(rows, start):
    numbers = np.array([number for number, _, _ in rows], np.int32)
    missing = np.array([is_missing for _, is_missing, _ in rows], np.bool_)
    flags = np.array([flag for _, _, flag in rows], np.bool_)
    assert plain_array(numbers, missing).equals(pa.array(numbers, mask=missing))
    assert plain_array(flags).equals(pa.array(flags, pa.bool_()))
    for values in (numbers, flags):
        array = pa.array(values).slice(start)
        back = plain_numbers(array)
        assert back.dtype == values.dtype
        assert back.tolist() == array.to_pylist()


@given(
    st.lists(st.integers(-(2**31), 2**33), min_size=1)
    | st.lists(st.floats(allow_nan=False), min_size=1)
    | st.lists(st.text() | st.just("\ud800"), min_size=1)
    | st.lists(st.booleans() | st.integers(0, 1), min_size=1),
    st.sampled_from([pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_()]),
)
def test_plain_values_equal_arrow_array(values, data_type):
    ours = made(plain_values, values, data_type)
    expected = made(pa.array, values, data_type)
    assert ours.equals(expected) if isinstance(expected, pa.Array) else ours == expected


@pytest.mark.parametrize("content", [b"", b"abc", None])
def test_single_value_equals_arrow_array(content):
    array = single_value(content, pa.binary())
    array.validate(full=True)
    assert array.equals(pa.array([content], pa.binary()))


def test_python_rows_show_times_beyond_python_range():
    far = pa.array([2**60, None]).view(pa.timestamp("us", "UTC"))
    batch = pa.record_batch(
        {
            "s": ["a", None],
            "ts": far,
            "ntz": pa.array([-(2**63), 0]).view(pa.timestamp("us")),
            "day": pa.array([2_932_897, 0], pa.int32()).view(pa.date32()),
            "t": pa.array([1007, 0], pa.int64()).view(pa.time64("ns")),
            "st": pa.StructArray.from_arrays([far], ["x"]),
            "l": pa.ListArray.from_arrays([0, 1, 2], far),
            "m": pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), far),
        }
    )
    one, other = python_rows(batch)
    text = "38504-08-17 21:30:06.846976Z"
    assert one == {
        "s": "a", "ts": text, "ntz": "-290308-12-21 19:59:05.224192", "day": "10000-01-01",
        "t": "00:00:00.000001007", "st": {"x": text}, "l": [text], "m": [("k", text)],
    }  # fmt: skip
    assert other["day"] == date(1970, 1, 1)
    assert other["m"] == [("l", None)]
    near = pa.record_batch({"s": ["a"], "day": [date(2026, 1, 2)]})
    assert python_rows(near) == near.to_pylist()


_WORKER = """
import pickle, sys
from pyspark_lance.spark.data_source import LanceDataSource
options = {"path": sys.argv[1], "filter": sys.argv[2]}
wanted = LanceDataSource(options).schema().add("_rowid", "long")
reader = LanceDataSource(options).reader(wanted)
rows = 0
for partition in pickle.loads(pickle.dumps(reader.partitions())):
    rows += sum(batch.num_rows for batch in reader.read(partition))
assert rows == 1, rows
assert "pandas" not in sys.modules
"""


@pytest.mark.parametrize(
    "condition", ["a > 1 AND b < 2.5", "a IN (0, 2)", "c IN ('y', 'yy') OR c LIKE 'yx%'"]
)
def test_worker_plans_and_reads_without_pandas(tmp_path, condition):
    import lance

    path = str(tmp_path / "table")
    table = pa.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": ["x", "y", "z"]})
    lance.write_dataset(table, path, enable_stable_row_ids=True)
    create_zone_maps(Table(path), ["a", "c"])
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, path, condition],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
