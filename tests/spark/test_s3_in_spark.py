"""storage.* options reach the driver and the executors, and are never shown."""

from __future__ import annotations

import pytest
from s3_server import s3_server, s3_table_root  # noqa: F401

pytestmark = [pytest.mark.spark, pytest.mark.s3]


def test_a_table_on_s3_is_written_and_read_through_spark(spark, s3_table_root, s3_server):  # noqa: F811
    options = {f"storage.{name}": value for name, value in s3_server.options.items()}
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
