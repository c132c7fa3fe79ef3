"""Plain scalars and arrays: the same as Arrow makes, and pandas stays out of workers."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.plain_values import plain_array, plain_scalar, single_value

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
def test_a_scalar_is_what_arrow_makes(given):
    value, data_type = given
    ours = made(plain_scalar, value, data_type)
    assert ours == made(pa.scalar, value, data_type)
    if isinstance(ours, pa.Scalar):
        assert ours.type == data_type
        ours.validate(full=True)


def test_a_text_that_is_not_unicode_is_refused():
    with pytest.raises(UnicodeEncodeError):
        plain_scalar("\ud800", pa.string())


@pytest.mark.parametrize("digits", [38, 39])
def test_decimals_are_exact(digits):
    value = Decimal("9" * digits)
    assert made(plain_scalar, value, DECIMALS[1]) == made(pa.scalar, value, DECIMALS[1])


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32, np.int64])
def test_an_array_of_numbers(dtype):
    numbers = np.arange(20, dtype=dtype)[::2]
    assert plain_array(numbers).equals(pa.array(numbers))
    assert plain_array(numbers[:0]).equals(pa.array(numbers[:0]))


@pytest.mark.parametrize("content", [b"", b"abc", None])
def test_a_single_value(content):
    array = single_value(content, pa.binary())
    array.validate(full=True)
    assert array.equals(pa.array([content], pa.binary()))


_WORKER = """
import pickle, sys
from pyspark_lance.spark.data_source import LanceDataSource
options = {"path": sys.argv[1], "filter": "a > 1 AND b < 2.5"}
wanted = LanceDataSource(options).schema().add("_rowid", "long")
reader = LanceDataSource(options).reader(wanted)
rows = 0
for partition in pickle.loads(pickle.dumps(reader.partitions())):
    rows += sum(batch.num_rows for batch in reader.read(partition))
assert rows == 1, rows
assert "pandas" not in sys.modules
"""


def test_a_worker_plans_and_reads_without_pandas(tmp_path):
    import lance

    path = str(tmp_path / "table")
    table = pa.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": ["x", "y", "z"]})
    lance.write_dataset(table, path, enable_stable_row_ids=True)
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
