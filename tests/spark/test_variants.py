"""Variants are written to JSON columns, and nowhere else."""

from __future__ import annotations

import json

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)
from pyspark.sql.variant_utils import VariantUtils

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.spark.types.variant_text import variants_as_text
from pyspark_lance.spark.types.write_schema import stored_schema

DOCUMENTS = [
    '{"a":[1,2.5,null,"x\\"y"],"é":{"":true}}', None, '"text"', "7", "null", "-0.25", "[]", "{}",
    "12345678901234567890", "1e100",
]  # fmt: skip
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
HOLDS_VARIANT = StructType([StructField("v", VariantType())])
JSON = LanceSchema.from_arrow(pa.schema([pa.field("j", pa.json_())])).fields[0]


def variants(texts):
    """As Spark hands them over."""
    rows = [None if text is None else VariantUtils.parse_json(text) for text in texts]
    return pa.array(
        [None if row is None else {"value": row[0], "metadata": row[1]} for row in rows], VARIANT
    )


def values(texts):
    return [None if text is None else json.loads(text) for text in texts]


def test_variants_become_json_and_nulls_are_kept():
    column = variants(DOCUMENTS)
    assert values(variants_as_text(column, JSON).to_pylist()) == values(DOCUMENTS)
    assert values(variants_as_text(column.slice(1, 3), JSON).to_pylist()) == values(DOCUMENTS[1:4])
    assert variants_as_text(column[:0], JSON).to_pylist() == []


def test_nested_variants_become_json():
    kind = pa.struct([("l", pa.list_(pa.json_())), ("m", pa.map_(pa.string(), pa.json_()))])
    (field,) = LanceSchema.from_arrow(pa.schema([pa.field("s", kind)])).fields
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), variants(DOCUMENTS[:3]))
    maps = pa.MapArray.from_arrays([0, 1, 1, 2], ["a", "b"], variants(DOCUMENTS[3:5]))
    column = pa.StructArray.from_arrays([lists, maps], ["l", "m"])
    found = variants_as_text(column, field).to_pylist()
    assert [values(row["l"]) for row in found] == [values(DOCUMENTS[:2]), [], ["text"]]
    assert found[2]["m"] == [("b", "null")]


def test_columns_without_variants_are_unchanged():
    text = LanceSchema.from_arrow(pa.schema([pa.field("j", pa.string())])).fields[0]
    column = variants(DOCUMENTS)
    assert variants_as_text(column, text) is column
    assert variants_as_text(pa.array(["{}"]), JSON).to_pylist() == ["{}"]


def test_invalid_variant_error_names_column_and_row():
    broken = pa.array([{"value": b"\xff", "metadata": b""}], VARIANT)
    with pytest.raises(InvalidInputError, match="column 'j': value 1 of a batch is a variant"):
        variants_as_text(pa.concat_arrays([variants(["1"]), broken]), JSON)


def planned(kind, options=None, existing=None, *, overwrite=False):
    schema = StructType([StructField("j", kind)])
    made = None if existing is None else LanceSchema.from_arrow(pa.schema(existing))
    return stored_schema(schema, options or {}, existing=made, overwrite=overwrite)


def test_variant_column_becomes_json_if_requested():
    for found in (
        planned(VariantType(), {"j.json": "true"}),
        planned(VariantType(), existing={"j": pa.json_()}),
        planned(VariantType(), existing={"j": pa.json_()}, overwrite=True),
    ):
        assert found.field("j").metadata[b"ARROW:extension:name"] == b"lance.json"
        assert found.field("j").type == pa.string()
    nested = StructType([StructField("l", ArrayType(VariantType()))])
    planned(nested, existing={"j": pa.struct([("l", pa.list_(pa.json_()))])})
    planned(MapType(StringType(), VariantType()), existing={"j": pa.map_(pa.string(), pa.json_())})


@pytest.mark.parametrize("kind", [ArrayType(VariantType()), HOLDS_VARIANT,
                                  MapType(StringType(), ArrayType(HOLDS_VARIANT))])  # fmt: skip
def test_suggested_json_option_works_for_nested_variants(kind):
    with pytest.raises(UnsupportedFeatureError, match=r"set the option j\.json = true"):
        planned(kind)
    found = LanceSchema.from_arrow(planned(kind, {"j.json": "true"}))
    leaves = [one.logical_type for one in found.fields[0].walk() if not one.children]
    assert "json" in leaves
    assert set(leaves) <= {"json", "string"}


def test_json_option_requires_variants_or_strings():
    for kind in (ArrayType(LongType()), StructType([StructField("a", StringType())])):
        with pytest.raises(InvalidInputError, match=r"j\.json = true, but .* no variants"):
            planned(kind, {"j.json": "true"})


@pytest.mark.parametrize(
    ("kind", "existing", "path"),
    [
        (VariantType(), None, "j"),
        (VariantType(), {"j": pa.string()}, "j"),
        (VariantType(), {"i": pa.json_()}, "j"),
        (ArrayType(VariantType()), None, "j.element"),
        (HOLDS_VARIANT, {"j": pa.struct([("w", pa.json_())])}, "j.v"),
    ],
)
def test_unstorable_variants_are_refused_with_path(kind, existing, path):
    with pytest.raises(UnsupportedFeatureError, match=rf"'{path}' holds variants"):
        planned(kind, existing=existing)


@pytest.mark.spark
@pytest.mark.interop
def test_variants_are_stored_like_spark_prints_them(spark, tmp_path):
    path = str(tmp_path / "t")
    rows = [(number, text) for number, text in enumerate(DOCUMENTS)]
    schema = StructType([StructField("id", LongType()), StructField("t", StringType())])
    frame = spark.createDataFrame(rows, schema).selectExpr("id", "parse_json(t) AS j")
    more = spark.sql(
        "SELECT 100L AS id, to_variant_object(named_struct('d', DATE'2026-11-21', 'n', 1.50, 'b',"
        " X'0102', 't', TIMESTAMP_NTZ'2026-11-21 01:02:03')) AS j"
    )
    frame = frame.unionByName(more)
    expected = {row.id: row.t for row in frame.selectExpr("id", "to_json(j) AS t").collect()}
    writer = frame.write.format("lance").mode("append")
    with pytest.raises(Exception, match="'j' holds variants"):
        writer.save(path)
    writer.option("j.json", "true").save(path)
    frame.write.format("lance").mode("append").save(path)
    assert str(lance.dataset(path).schema.field("j").type) == "extension<arrow.json>"
    found = spark.read.format("lance").load(path).collect()
    assert len(found) == 2 * len(expected)
    for row in found:
        text = expected[row.id]
        assert (row.j is None) == (text is None)
        assert text is None or json.loads(row.j) == json.loads(text), row.id
    again = (
        spark.read.format("lance")
        .load(path)
        .selectExpr("variant_get(parse_json(j), '$.a[1]', 'double') AS x")
    )
    assert sorted(row.x for row in again.where("x IS NOT NULL").collect()) == [2.5, 2.5]
    assert lance.dataset(path).count_rows("json_exists(j, '$.d')") == 2
    nested = spark.sql(
        "SELECT id, array(parse_json('{\"a\":1}'), NULL) AS j, named_struct('v', "
        "IF(id > 0, parse_json('[2]'), NULL), 'n', id) AS s FROM range(2)"
    )
    options = {"j.json": "true", "s.json": "true"}
    nested.write.format("lance").mode("append").options(**options).save(path + "-nested")
    nested.write.format("lance").mode("append").save(path + "-nested")
    again = spark.read.format("lance").load(path + "-nested").orderBy("id").collect()
    assert [(row.j, row.s.v) for row in again[1:3]] == [
        (['{"a":1}', None], None),
        (['{"a":1}', None], "[2]"),
    ]
    assert "extension<arrow.json>" in str(lance.dataset(path + "-nested").schema.field("j").type)


@pytest.mark.spark
def test_changes_store_variants_like_writes(spark, tmp_path):
    """Texts stay texts, and JSON's null is no missing value."""
    path = str(tmp_path / "t")
    rows = spark.sql("SELECT 1 AS id, parse_json('1') AS j, array(parse_json('1')) AS l")
    options = {"j.json": "true", "l.json": "true"}
    rows.write.format("lance").mode("append").options(**options).save(path)
    table = LanceTable.forPath(spark, path)
    table.update("id = 1", {"j": "parse_json('null')", "l": "array(parse_json('\"7\"'), null)"})
    assert [tuple(row) for row in table.toDF().collect()] == [(1, "null", ['"7"', None])]
    source = spark.sql("SELECT 1 AS id, parse_json('\"7\"') AS j, array(parse_json('null')) AS l")
    table.merge(source, "target.id = source.id").whenMatchedUpdateAll().execute()
    assert [tuple(row) for row in table.toDF().collect()] == [(1, '"7"', ["null"])]
