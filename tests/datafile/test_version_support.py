from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_lance.datafile.version_support import version_need
from pyspark_lance.format.schema import LanceSchema

STRUCT = pa.struct([("a", pa.int32())])


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.map_(pa.string(), pa.int32()), "c"),
        (pa.struct([("m", pa.map_(pa.string(), pa.int32()))]), "c.m"),
        (pa.list_(pa.map_(pa.string(), pa.int32())), "c.item"),
        (pa.list_(STRUCT, 3), "c"),
    ],
)
def test_maps_and_fixed_size_lists_of_structs_need_2_2(kind, column):
    schema = LanceSchema.from_arrow(pa.schema({"fine": pa.int32(), "c": kind}))
    need = version_need(schema)
    assert (need.version, need.column) == ("2.2", column)
    assert need.reason


def test_other_types_need_only_2_0():
    schema = pa.schema({"a": pa.list_(STRUCT), "b": pa.list_(pa.float32(), 3), "c": pa.string()})
    assert version_need(LanceSchema.from_arrow(schema)).version == "2.0"
