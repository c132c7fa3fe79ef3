"""Membership by flags is what Arrow's hash table says."""

from __future__ import annotations

import base64
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate import functions
from pyspark_lance.predicate.functions import is_in
from pyspark_lance.predicate.json import predicate_from_json
from pyspark_lance.predicate.tree import In

TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.date32(), pa.timestamp("us", "UTC")]


def limits(data_type):
    if pa.types.is_integer(data_type):
        found = np.iinfo(np.dtype(str(data_type)))
        return int(found.min), int(found.max)
    bits = data_type.bit_width
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def array(numbers, data_type):
    stored = data_type if pa.types.is_integer(data_type) else pa.int32()
    stored = pa.int64() if pa.types.is_timestamp(data_type) else stored
    return pa.array(numbers, stored).view(data_type)


@st.composite
def sets(draw):
    data_type = draw(st.sampled_from(TYPES))
    least, most = limits(data_type)
    at = draw(st.sampled_from([least, 0, most]))
    near = st.integers(max(least, at - 3000), min(most, at + 3000))
    anywhere = near if draw(st.booleans()) else st.integers(least, most)
    wanted = draw(st.lists(near, max_size=40))
    numbers = draw(st.lists(st.none() | anywhere | st.sampled_from([least, most]), max_size=30))
    times = draw(st.integers(1, 40))
    values = array([*numbers, *wanted[:3]] * times, data_type)
    return values[draw(st.integers(0, 3)) :], array(wanted, data_type)


@given(sets())
def test_is_in_equals_arrow(given_sets):
    values, wanted = given_sets
    found = is_in(values, wanted)
    found.validate(full=True)
    assert found.equals(pc.is_in(values, value_set=wanted, skip_nulls=True))


@pytest.mark.parametrize("data_type", [pa.int32(), pa.int64(), pa.date32()])
def test_null_is_in_no_set(data_type):
    values = array([5, None, 6] * 200, data_type)
    assert is_in(values, array([5, 7], data_type)).to_pylist() == [True, False, False] * 200


@pytest.mark.parametrize("data_type", [pa.int32(), pa.int64(), pa.date32()])
def test_dense_keys_use_bitmap_lookup(monkeypatch, data_type):
    monkeypatch.setattr(functions, "pc", None)  # a call of Arrow fails
    numbers = np.arange(5_000, dtype=np.int32)
    values = pa.array(numbers).cast(pa.int64() if data_type == pa.int64() else pa.int32())
    found = is_in(values.view(data_type), values[100:5_000:7].view(data_type))
    assert np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist() == list(
        range(100, 5_000, 7)
    )


def packed_literals(packed: bytes, kind: str) -> str:
    values = base64.b64encode(packed).decode()
    return f'{{"op":"IN","args":[{{"column":["a"]}}],"values":"{values}","type":"{kind}"}}'


@pytest.mark.parametrize("kind", ["tinyint", "int", "bigint", "date", "timestamp"])
def test_packed_numbers_equal_literal_list(kind):
    types = {"tinyint": pa.int8(), "int": pa.int32(), "bigint": pa.int64(), "date": pa.date32()}
    data_type = types.get(kind, pa.timestamp("us", "UTC"))
    schema = pa.schema([("a", data_type)])
    numbers = (3, -1, 2, -1)
    each = ",".join(f'{{"literal":{one},"type":"{kind}"}}' for one in numbers)
    spelled = f'{{"op":"IN","args":[{{"column":["a"]}},{each}]}}'
    found = predicate_from_json(packed_literals(struct.pack("<4q", *numbers), kind), schema)
    assert isinstance(found, In)
    assert found == predicate_from_json(spelled, schema)


@pytest.mark.parametrize(
    ("packed", "kind"),
    [(b"\0" * 12, "int"), (struct.pack("<2q", 1, 2**31), "int"), (b"\0" * 16, "string")],
    ids=["cut off", "too large", "no number"],
)
def test_invalid_packed_numbers_are_refused(packed, kind):
    schema = pa.schema([("a", pa.int32() if kind == "int" else pa.string())])
    with pytest.raises(InvalidInputError, match="pushed-down condition"):
        predicate_from_json(packed_literals(packed, kind), schema)
    with pytest.raises(InvalidInputError, match="pushed-down condition"):
        predicate_from_json(packed_literals(packed, kind).replace("A", "*"), schema)
