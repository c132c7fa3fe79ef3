"""Vectors of Spark's ML library, and columns of no type: written and read as what they are."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import StandardScaler
from pyspark.ml.linalg import Vectors, VectorUDT

from pyspark_lance import LanceTable

pytestmark = [pytest.mark.spark, pytest.mark.interop]

ROWS = [
    (1.0, Vectors.dense(1.0, 2.0)),
    (0.0, Vectors.sparse(2, {1: -3.0})),
    (1.0, Vectors.dense(2.0, 2.5)),
    (0.0, Vectors.sparse(2, {})),
]


def load(spark, path):
    return spark.read.format("lance").load(path)


def save(frame, path, mode="append"):
    frame.write.format("lance").mode(mode).save(path)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def test_ml_vectors_round_trip_and_model_fits(spark, path):
    frame = spark.createDataFrame(ROWS, ["label", "features"])
    save(frame, path)
    found = load(spark, path)
    assert found.schema["features"].dataType == VectorUDT()
    assert sorted(map(tuple, found.collect()), key=str) == sorted(ROWS, key=str)
    frame.write.parquet(path + ".parquet")
    learn = LogisticRegression(maxIter=2)
    model, other = learn.fit(found), learn.fit(spark.read.parquet(path + ".parquet"))
    assert model.coefficients.toArray() == pytest.approx(other.coefficients.toArray())
    assert model.transform(found).select("prediction").count() == 4
    scaled = StandardScaler(inputCol="features", outputCol="scaled").fit(found).transform(found)
    save(scaled, path + "-scaled")
    assert load(spark, path + "-scaled").schema["scaled"].dataType == VectorUDT()
    assert pa.types.is_struct(lance.dataset(path).schema.field("features").type)


def test_ml_vectors_keep_type_through_changes(spark, path):
    frame = spark.createDataFrame(ROWS, ["label", "features"])
    save(frame, path)
    table = LanceTable.forPath(spark, path)
    table.update("label = 0", {"label": "5"})
    table.delete("label = 1")
    source = frame.where("label = 1").alias("source")
    table.merge(source, "target.label = source.label").whenNotMatchedInsertAll().execute()
    assert load(spark, path).schema["features"].dataType == VectorUDT()
    expected = [(label or 5.0, vector) for label, vector in ROWS]
    assert sorted(map(tuple, load(spark, path).collect()), key=str) == sorted(expected, key=str)
    save(frame, path, "overwrite")
    assert load(spark, path).schema["features"].dataType == VectorUDT()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("array()", "array<void>"),
        ("named_struct('a', NULL)", "struct<a:void>"),
        ("map('k', NULL)", "map<string,void>"),
        ("map()", "map<string,void>"),
        ("array(map(), NULL)", "array<map<string,void>>"),
        ("named_struct('a', map('k', map()))", "struct<a:map<string,map<string,void>>>"),
    ],
)
def test_columns_of_void_type_are_written_and_read(spark, path, value, kind):
    frame = spark.sql(f"SELECT 1 AS id, {value} AS v")
    save(frame, path)
    assert load(spark, path).schema["v"].dataType.simpleString() == kind
    assert load(spark, path).collect() == frame.collect()
    assert lance.dataset(path).count_rows() == 1


def test_maps_of_void_type_are_appended_and_merged(spark, path):
    frame = spark.sql("SELECT 1 AS id, map() AS v")
    for mode in ("append", "append", "overwrite"):
        save(frame, path, mode)
    source = spark.sql("SELECT 1 AS id, map() AS v UNION ALL SELECT 2, NULL")
    merge = LanceTable.forPath(spark, path).merge(source.alias("s"), "target.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert sorted(map(tuple, load(spark, path).collect())) == [(1, {}), (2, None)]
