"""``<column>.compression`` and the like reach the files, column by column."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_lance.codec.encoding_tree import describe
from pyspark_lance.codec.structural.page_layout import parse_page_layout
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.spark.types.spark_types import spark_field
from pyspark_lance.spark.types.write_schema import new_table_options, stored_schema
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("text", StringType()),
        StructField("tags", ArrayType(StructType([StructField("t", StringType())]))),
        StructField("vector", ArrayType(DoubleType())),
    ]
)


def stored(existing: LanceSchema | None = None, **options: str) -> pa.Schema:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return stored_schema(SCHEMA, named, existing=existing, overwrite=False)


def test_encoding_options_become_leaf_metadata():
    schema = stored(
        text__compression="FSST",
        tags__compression="zstd",
        tags__compression_level="3",
        vector__fixed_size_list="4",
        vector__structural_encoding="fullzip",
        id__byte_stream_split="on",
    )
    assert schema.field("text").metadata == {b"lance-encoding:compression": b"fsst"}
    leaf = schema.field("tags").type.value_field.type.field("t")
    assert leaf.metadata == {
        b"lance-encoding:compression": b"zstd",
        b"lance-encoding:compression-level": b"3",
    }
    assert schema.field("vector").type == pa.list_(pa.float64(), 4)
    assert schema.field("vector").metadata == {b"lance-encoding:structural-encoding": b"fullzip"}
    assert schema.field("id").metadata == {b"lance-encoding:bss": b"on"}


def test_tuning_and_packing_options_become_metadata():
    schema = stored(id__rle_threshold="0.3", text__dict_values_compression="LZ4")
    assert schema.field("id").metadata == {b"lance-encoding:rle-threshold": b"0.3"}
    assert schema.field("text").metadata == {b"lance-encoding:dict-values-compression": b"lz4"}
    struct = StructType([StructField("s", StructType([StructField("a", LongType())]))])
    packed = stored_schema(struct, {"s.packed": "true"}, existing=None, overwrite=False)
    assert packed.field("s").metadata == {b"lance-encoding:packed": b"true"}
    made = LanceSchema.from_arrow(packed)
    stored_schema(struct, {"s.packed": "true"}, existing=made, overwrite=False)
    with pytest.raises(InvalidInputError, match="packed = false"):
        stored_schema(struct, {"s.packed": "false"}, existing=made, overwrite=False)


def test_every_binary_in_column_becomes_blob():
    pair = StructType([StructField("n", LongType()), StructField("b", BinaryType())])
    schema = StructType(
        [StructField("s", pair), StructField("l", ArrayType(pair)), StructField("p", pair)]
    )
    options = {"s.blob": "true", "l.blob": "true"}
    made = stored_schema(schema, options, existing=None, overwrite=False)
    marked = {"lance-encoding:blob": "true"}
    blob = pa.field("b", pa.large_binary(), metadata=marked)
    expected = pa.struct([pa.field("n", pa.int64()), blob])
    assert made.field("s").type.equals(expected, check_metadata=True)
    assert made.field("l").type.value_type.equals(expected, check_metadata=True)
    assert not made.field("p").type.field("b").metadata
    with pytest.raises(InvalidInputError, match=r"tags\.blob = true.*holds no binary"):
        stored(tags__blob="true")


def test_table_options_recreate_equal_schema(tmp_path):
    vectors = pa.list_(pa.field("item", pa.float16()), 3)
    marked = {"lance-encoding:compression": "zstd", "lance-encoding:compression-level": "9"}
    schema = pa.schema(
        [
            pa.field("id", pa.int64()), pa.field("plain", pa.list_(pa.string())),
            pa.field("v", pa.list_(pa.field("item", pa.float32()), 2)), pa.field("h", vectors),
            pa.field("u", pa.uint8()), pa.field("big", pa.large_string()),
            pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
            pa.field("z", pa.string(), metadata=marked), pa.field("day", pa.date32()),
            pa.field("j", pa.json_()), pa.field("part", pa.struct([pa.field("u", pa.uint8())])),
        ]
    )  # fmt: skip
    found = {}
    for version in ("2.1", "2.0"):
        path = str(tmp_path / version)
        ids = version == "2.1"
        lance.write_dataset(
            schema.empty_table(), path, data_storage_version=version, enable_stable_row_ids=ids
        )
        snapshot = Snapshot.open(Table(path))
        found[version] = new_table_options(snapshot)
        fields = [spark_field(logical_field(f, binary_blobs=True)) for f in snapshot.schema.fields]
        of_columns = {name: found[version][name] for name in found[version] if "." in name}
        made = stored_schema(
            StructType([field for field in fields if field.name != "part"]), of_columns,
            existing=None, overwrite=False, declared=True,
        )  # fmt: skip
        for field in made:
            own = snapshot.schema.to_arrow().field(field.name)
            assert field.type == own.type or field.name == "j", field
            assert field.metadata == own.metadata, field
    assert found["2.1"] == {
        "v.fixed_size_list": "2", "h.fixed_size_list": "3", "h.float16": "true", "u.uint8": "true",
        "big.large_string": "true", "b.blob": "true", "z.compression": "zstd",
        "z.compression_level": "9", "j.json": "true",
    }  # fmt: skip
    others = {"fileFormatVersion": "2.0", "enableStableRowIds": "false"}
    assert found["2.0"] == found["2.1"] | others


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("id__packed", "true", InvalidInputError),
        ("id__dict_divisor", "0.5", InvalidInputError),
        ("text__minichunk_size", "big", InvalidInputError),
        ("text__dict_values_compression", "fsst", UnsupportedFeatureError),
        ("id__compression", "fsst", UnsupportedFeatureError),
        ("text__compression", "brotli", UnsupportedFeatureError),
        ("text__byte_stream_split", "on", UnsupportedFeatureError),
        ("text__structural_encoding", "sparse", UnsupportedFeatureError),
        ("text__compression_level", "high", InvalidInputError),
    ],
)
def test_unwritable_options_are_refused_before_writing(option, value, error):
    with pytest.raises(error, match=option.split("__")[0]):
        stored(**{option: value})


@pytest.mark.parametrize(
    "option",
    [
        "id.float16",
        "text.uint8",
        "vector.uint64",
        "vector.large_string",
        "id.large_binary",
        "tags.float16",
    ],
)
def test_width_options_never_change_column_kind(option):
    with pytest.raises(InvalidInputError, match="does not fit a column of"):
        stored_schema(SCHEMA, {option: "true"}, existing=None, overwrite=False)
    stored_schema(SCHEMA, {option: "false"}, existing=None, overwrite=False)
    fitting = {"id.uint8": "true", "vector.float16": "true", "text.large_string": "true"}
    made = stored_schema(SCHEMA, fitting, existing=None, overwrite=False)
    assert [str(made.field(name).type) for name in ("id", "text")] == ["uint8", "large_string"]
    assert made.field("vector").type.value_type == pa.float16()


def test_encodings_differing_from_table_are_refused():
    made = LanceSchema.from_arrow(stored(text__compression="zstd"))
    stored(made, text__compression="zstd")
    with pytest.raises(LanceError, match="lance-encoding:compression = lz4"):
        stored(made, text__compression="lz4")
    with pytest.raises(LanceError, match="column id"):
        stored(made, id__compression="lz4")


@pytest.mark.spark
@pytest.mark.interop
def test_files_have_requested_encodings_after_append(spark, tmp_path):
    path = str(tmp_path / "t")
    rows = [(n, f"some text {n}", [(f"tag {n}",)] * 30, [0.5 * n] * 3) for n in range(400)]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    options = {"text.compression": "zstd", "tags.compression": "fsst", "vector.compression": "lz4"}
    frame.write.format("lance").mode("append").options(**options).save(path)
    frame.write.format("lance").mode("append").save(path)
    files = list((tmp_path / "t" / "data").glob("*.lance"))
    assert len(files) == 2
    for file in files:
        reader = DataFileReader.open(open_store(str(file.parent)), file.name)
        found = []
        for column in range(1, 4):
            page = reader._file.metadata.column(column).pages[0]
            layout = parse_page_layout(page.encoding_bytes).mini_block_layout
            found.append(describe(layout.value_compression).split("(")[0])
        assert found == ["zstd", "fsst", "lz4"]
    expected = [{"t": "tag 7"}] * 30
    dataset = lance.dataset(path)
    assert dataset.to_table(filter="id = 7")["tags"].to_pylist() == [expected] * 2
    assert dataset.count_rows() == 800


@pytest.mark.parametrize("depth", ["columns", "members"])
def test_names_differing_by_case_error_suggests_setting(depth):
    pair = StructType([StructField("Name", LongType()), StructField("NAME", LongType())])
    schema = pair if depth == "columns" else StructType([StructField("s", pair)])
    with pytest.raises(
        InvalidInputError, match=r"'Name' and 'NAME' differ by case only\n.*caseSensitive"
    ):
        stored_schema(schema, {}, existing=None, overwrite=False)
    same = StructType([StructField("name", LongType()), StructField("name", LongType())])
    with pytest.raises(InvalidInputError, match="two columns named 'name'"):
        stored_schema(same, {}, existing=None, overwrite=False)
