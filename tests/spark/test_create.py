"""LanceTable.create: a table without rows, from a schema."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, FloatType, LongType, StructField, StructType

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError, TableAlreadyExistsError

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def test_table_is_created_empty_and_accepts_rows(spark, tmp_path):
    path = str(tmp_path / "t")
    table = LanceTable.create(
        spark,
        path,
        "id bigint not null comment 'the key', name string, at timestamp",
        options={"userMetadata": "new"},
    )
    assert table.toDF().count() == 0
    assert table.toDF().columns == ["id", "name", "at"]
    dataset = lance.dataset(path)
    assert dataset.version == 1
    assert dataset.schema.field("id") == pa.field("id", pa.int64(), nullable=False)
    assert dataset.schema.field("id").metadata == {b"comment": b"the key"}
    assert dataset.has_stable_row_ids
    assert dataset.read_transaction(1).transaction_properties["__lance_commit_message"] == "new"
    frame = spark.sql("SELECT 1L AS id, 'a' AS name, timestamp'2026-01-02 03:04:05' AS at")
    frame.write.format("lance").mode("append").save(path)
    frame.createOrReplaceTempView("made_source")
    merge = table.merge(spark.sql("SELECT 2L AS id, 'b' AS name"), "target.id = source.id")
    assert merge.whenNotMatchedInsertAll().execute().num_inserted_rows == 1
    rows = table.scan(["id", "name", "_rowid"]).collect()
    assert sorted(map(tuple, rows)) == [(1, "a", 0), (2, "b", 1)]


def test_not_null_columns_refuse_null(spark, tmp_path):
    path = str(tmp_path / "t")
    LanceTable.create(spark, path, "id bigint not null, name string")
    with pytest.raises(Exception, match=r"id.*must not be null|null.*id"):
        spark.sql("SELECT CAST(NULL AS bigint) AS id, 'a' AS name").write.format("lance").mode(
            "append"
        ).save(path)
    assert lance.dataset(path).version == 1


def test_write_options_define_created_table(spark, tmp_path):
    path = str(tmp_path / "t")
    schema = StructType([StructField("id", LongType()), StructField("vec", ArrayType(FloatType()))])
    options = {
        "vec.fixed_size_list": "4", "file_format_version": "2.2", "enable_stable_row_ids": "false",
    }  # fmt: skip
    LanceTable.create(spark, path, schema, options=options)
    dataset = lance.dataset(path)
    assert dataset.schema.field("vec").type == pa.list_(pa.float32(), 4)
    assert dataset.data_storage_version == "2.2"
    assert not dataset.has_stable_row_ids


def test_existing_table_is_refused_or_reused(spark, tmp_path):
    path = str(tmp_path / "t")
    LanceTable.create(spark, path, "id bigint")
    with pytest.raises(TableAlreadyExistsError):
        LanceTable.create(spark, path, "id bigint")
    table = LanceTable.create(spark, path, "other string", ifNotExists=True)
    assert table.toDF().columns == ["id"]
    assert lance.dataset(path).version == 1


@pytest.mark.parametrize("schema", ["", "_rowid bigint", "a int, A string"])
def test_invalid_schema_is_refused_without_leftovers(spark, tmp_path, schema):
    with pytest.raises(InvalidInputError):
        LanceTable.create(spark, str(tmp_path / "t"), schema)
    assert not (tmp_path / "t").exists()
