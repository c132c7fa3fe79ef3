from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_lance.datafile.version_support import check_legacy_writable, version_need
from pyspark_lance.errors import UnsupportedFeatureError
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


@pytest.mark.parametrize(
    ("kind", "version"), [(pa.map_(pa.string(), pa.int32()), "2.2"), (pa.struct([]), "2.0")]
)
def test_legacy_type_error_names_version_that_holds_it(kind, version):
    schema = LanceSchema.from_arrow(pa.schema([("m", kind)]))
    with pytest.raises(UnsupportedFeatureError, match=f"use file version {version} or newer"):
        check_legacy_writable(schema)
