"""Random nested types with nulls and empty lists anywhere, written by pylance."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pylance_files import OneColumn, assert_all_ways_of_reading, write_with_pylance

pytestmark = pytest.mark.interop

LEAVES = {
    "int32": (pa.int32(), st.integers(-5, 5)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text("abé", max_size=4)),
    "vector": (pa.list_(pa.int8(), 2), st.lists(st.integers(0, 3), min_size=2, max_size=2)),
}


@st.composite
def typed_values(draw, depth: int):
    """A type and a strategy for its values, nulls included."""
    kinds = ["leaf", *(["list", "struct", "list"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    nulls = draw(st.booleans())
    if kind == "leaf":
        data_type, values = LEAVES[draw(st.sampled_from(sorted(LEAVES)))]
    elif kind == "list":
        inner, items = draw(typed_values(depth - 1))
        shortest = draw(st.sampled_from([0, 0, 1]))
        data_type = draw(st.sampled_from([pa.list_, pa.large_list]))(inner)
        values = st.lists(items, min_size=shortest, max_size=3)
    else:
        parts = [draw(typed_values(depth - 1)) for _ in range(draw(st.integers(1, 2)))]
        names = "abc"[: len(parts)]
        data_type = pa.struct([(n, part[0]) for n, part in zip(names, parts, strict=True)])
        values = st.fixed_dictionaries({n: part[1] for n, part in zip(names, parts, strict=True)})
    return data_type, st.one_of(st.none(), values) if nulls else values


@st.composite
def nested_arrays(draw):
    data_type, values = draw(typed_values(3))
    rows = draw(st.lists(values, min_size=1, max_size=12))
    # Repeated rows reach over many chunks at little cost.
    times = draw(st.sampled_from([1, 1, 40, 400]))
    return pa.array(rows * times, data_type)


@settings(max_examples=120)
@given(nested_arrays(), st.sampled_from(["2.1", "2.2"]), st.sampled_from([None, "fullzip"]))
def test_nested_values_are_read(expected, version, structural):
    metadata = {"lance-encoding:structural-encoding": structural} if structural else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.lance"
        if not write_with_pylance(path, expected, version, metadata):
            return
        assert_all_ways_of_reading(OneColumn.of_file(path), expected)
