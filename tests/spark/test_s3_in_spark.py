"""storage.* options reach the driver and the executors, and are never shown."""

from __future__ import annotations

import external_manifests
import pytest
from s3_server import s3_server, s3_table_root  # noqa: F401

from pyspark_lance import LanceTable

pytestmark = [pytest.mark.spark, pytest.mark.s3]


def as_storage_options(options):
    return {f"storage.{name}": value for name, value in options.items()}


def test_s3_table_is_written_and_read(spark, s3_table_root, s3_server):  # noqa: F811
    options = as_storage_options(s3_server.options)
    path = f"{s3_table_root}/spark"
    frame = spark.range(100).repartition(2)
    frame.write.format("lance").mode("append").options(**options).save(path)
    frame.write.format("lance").mode("overwrite").options(**options).save(path)
    read = spark.read.format("lance").options(**options).option("metadataColumns", "_rowid")
    assert sorted(row._rowid for row in read.load(path).collect()) == list(range(100, 200))
    secret = options.get("storage.aws_secret_access_key", "")
    with pytest.raises(Exception) as caught:
        read.option("version", 77).load(path)
    assert "LANCE_VERSION_NOT_FOUND" in str(caught.value)
    assert not secret or secret not in str(caught.value)


def test_dynamodb_table_is_written_changed_and_read(spark, s3_server):  # noqa: F811
    table = external_manifests.new_dynamodb_table(s3_server)
    path = f"s3+ddb://{s3_server.new_bucket()}/spark?ddbTableName={table}"
    options = external_manifests.options(s3_server)
    named = as_storage_options(options)
    frame = spark.range(100).repartition(2)
    for _ in range(2):
        frame.write.format("lance").mode("append").options(**named).save(path)
    assert LanceTable.forPath(spark, path, options).delete("id < 50").num_deleted_rows == 100
    assert spark.read.format("lance").options(**named).load(path).count() == 100
    rows = external_manifests.dynamodb_client(s3_server).scan(TableName=table)["Items"]
    assert sorted(int(row["version"]["N"]) for row in rows) == [1, 2, 3]


def test_s3_table_is_clustered(spark, s3_table_root, s3_server):  # noqa: F811
    named = as_storage_options(s3_server.options)
    path = f"{s3_table_root}/clustered"
    for first in (0, 300):
        frame = spark.range(first, first + 300).selectExpr("id", "id * 37 % 101 AS a")
        frame.repartition(3).write.format("lance").mode("append").options(**named).save(path)
    read = spark.read.format("lance").options(**named)
    read = read.option("metadataColumns", "_rowid,_row_last_updated_at_version")
    table = LanceTable.forPath(spark, path, s3_server.options)
    before = read.load(path).collect()
    table.clusterBy("a")
    assert table.compact().numRows == 600
    after = read.load(path).collect()
    assert sorted(after) == sorted(before) != after
    assert [row.a for row in after] == sorted(row.a for row in before)
    assert table.compact().numRows == 0
