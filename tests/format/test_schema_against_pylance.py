"""Schemas of tables that pylance made: every type, as pylance shows it."""

import glob
import struct

import lance
import pyarrow as pa
import pytest
from extension_types import with_extension_types
from lance.arrow import BFloat16Type

from pyspark_lance.errors import LanceError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.proto import table_pb2

pytestmark = pytest.mark.interop

PEOPLE = pa.struct([("a", pa.int32()), pa.field("b", pa.string(), nullable=False)])
TYPES = [
    *(pa.null(), pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32()),
    *(pa.uint32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(16)),
    *(pa.string_view(), pa.binary_view()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin", "+05:30")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.decimal128(10, 2), pa.decimal256(40, 5)),
    *(pa.dictionary(pa.int16(), pa.string()), pa.dictionary(pa.uint8(), pa.binary(), True)),
    *(pa.list_(pa.int32()), pa.list_(pa.field("el", pa.int32(), False, {"m": "n"}))),
    *(pa.large_list(pa.string()), pa.list_(PEOPLE), pa.large_list(pa.list_(PEOPLE))),
    *(pa.list_(pa.float32(), 4), pa.list_(pa.field("x", pa.int32(), False), 2)),
    *(pa.list_(pa.list_(pa.float32(), 2), 3), pa.list_(pa.bool_(), 3), pa.list_(pa.string(), 2)),
    *(pa.list_(pa.timestamp("us", "+05:30"), 2), pa.list_(BFloat16Type(), 4)),
    pa.list_(pa.field("x", PEOPLE, False, {"q": "r"}), 2),
    *(PEOPLE, pa.struct([]), pa.struct([("s", pa.struct([]))])),
    pa.list_(pa.list_(pa.string_view())),
    *(pa.map_(pa.string(), pa.int32()), pa.list_(pa.map_(pa.string(), PEOPLE))),
    *(pa.uuid(), pa.json_(), pa.bool8(), pa.fixed_shape_tensor(pa.float32(), [2, 2])),
    pa.list_(pa.field("item", pa.uuid())),
]  # fmt: skip

# What a file of an older version cannot hold; the schema is the same for all.
REFUSED = [
    *(pa.month_day_nano_interval(), pa.list_view(pa.int32()), pa.decimal32(5, 2)),
    *(pa.decimal64(5, 2), pa.run_end_encoded(pa.int32(), pa.int32())),
    *(pa.list_(pa.list_(pa.int32()), 2), pa.map_(pa.string(), pa.int32(), keys_sorted=True)),
]


def manifest_of(root):
    (path,) = glob.glob(f"{root}/_versions/*.manifest")
    with open(path, "rb") as file:
        data = file.read()
    position = struct.unpack("<q", data[-16:-8])[0]
    return table_pb2.Manifest.FromString(data[position + 4 : -16])


def by_pylance(schema, root):
    data = pa.RecordBatchReader.from_batches(schema, [])
    dataset = lance.write_dataset(data, str(root), data_storage_version="2.2", mode="overwrite")
    return dataset.schema, manifest_of(root)


def named(types):
    return pa.schema([pa.field(f"c{index}", data_type) for index, data_type in enumerate(types)])


def test_types_read_like_pylance(tmp_path):
    shown, message = by_pylance(named(TYPES), tmp_path / "t.lance")
    ours = LanceSchema.from_protos(message.fields, dict(message.schema_metadata))
    read = with_extension_types(ours.to_arrow())
    for ours_field, from_pylance in zip(read, shown, strict=True):
        assert ours_field.name == from_pylance.name
        assert ours_field.type == from_pylance.type, from_pylance
        assert ours_field.nullable == from_pylance.nullable
    assert [m.SerializeToString(deterministic=True) for m in ours.to_protos()] == [
        m.SerializeToString(deterministic=True) for m in message.fields
    ]


def test_types_are_written_like_pylance(tmp_path):
    schema = named(TYPES)
    _, message = by_pylance(schema, tmp_path / "t.lance")
    ours = LanceSchema.from_arrow(schema).to_protos()
    for made, from_pylance in zip(ours, message.fields, strict=True):
        made.ClearField("dictionary")  # pylance sets it with the first value, to the same nothing
        assert made == from_pylance


def test_field_metadata_is_written_like_pylance(tmp_path):
    key = {
        "lance-schema:unenforced-primary-key": "true",
        "lance-schema:unenforced-primary-key:position": "1",
    }
    schema = pa.schema(
        [
            pa.field("pk", pa.string(), nullable=False, metadata=key),
            pa.field(
                "ck", pa.string(), metadata={"lance-schema:unenforced-clustering-key:position": "1"}
            ),
            pa.field("p", PEOPLE, metadata={"lance-encoding:packed": "true"}),
            pa.field("n", pa.int8(), nullable=False, metadata={"k": "v"}),
        ],
        metadata={"schema": "metadata"},
    )
    shown, message = by_pylance(schema, tmp_path / "t.lance")
    ours = LanceSchema.from_arrow(schema)
    assert ours.to_protos() == list(message.fields)
    assert dict(ours.metadata) == dict(message.schema_metadata)
    assert ours.to_arrow().equals(shown, check_metadata=True)
    assert ours.field("p").is_packed


def test_blob_columns_are_recognised(tmp_path):
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("a", pa.int8()), blob])
    _, message = by_pylance(schema, tmp_path / "t.lance")
    ours = LanceSchema.from_protos(message.fields)
    assert ours.field("b").is_blob_v2
    assert ours.field("b").is_blob
    assert not ours.field("a").is_blob


@pytest.mark.parametrize("data_type", REFUSED, ids=str)
def test_types_refused_by_pylance_are_refused(data_type, tmp_path):
    schema = pa.schema([("c", data_type)])
    with pytest.raises(Exception, match=r"\w"):
        by_pylance(schema, tmp_path / "t.lance")
    with pytest.raises(LanceError, match="column 'c'"):
        LanceSchema.from_arrow(schema)
