"""Statements that write rows with blobs of other tables, and of the table itself."""

import pytest
from blob_tables import COPIED, blobs_by_id, new_blob_table

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def test_rows_with_blobs_are_copied_between_tables(plugin, tmp_path):
    spark, source = plugin, new_blob_table(str(tmp_path / "source"))
    copy, other = str(tmp_path / "copy"), new_blob_table(str(tmp_path / "other"), "2.1")
    spark.sql(f"CREATE TABLE lance.`{copy}` AS SELECT * FROM lance.`{source}`")
    assert blobs_by_id(copy) == COPIED
    spark.sql(
        f"CREATE OR REPLACE TABLE lance.`{copy}` AS SELECT * FROM lance.`{copy}` WHERE id < 4"
    )
    spark.sql(f"INSERT INTO lance.`{copy}` SELECT * FROM lance.`{other}` WHERE id = 4")
    spark.sql(f"INSERT INTO lance.`{copy}` (b, id) SELECT b, id + 10 FROM lance.`{source}`")
    expected = COPIED | {i + 10: blob for i, blob in COPIED.items()}
    assert blobs_by_id(copy) == expected
    spark.sql(f"INSERT OVERWRITE lance.`{copy}` SELECT * FROM lance.`{copy}` WHERE id <> 1")
    spark.sql(
        f"INSERT INTO lance.`{copy}` REPLACE WHERE id = 0 "
        f"SELECT * FROM lance.`{source}` VERSION AS OF 1 WHERE id = 0"
    )
    spark.read.format("lance").load(source).selectExpr("id + 20 AS id", "b").writeTo(
        f"lance.`{copy}`"
    ).append()
    spark.sql(f"CALL lance.system.cleanup('{copy}', retain_versions => 1)")
    del expected[1]
    assert blobs_by_id(copy) == expected | {i + 20: blob for i, blob in COPIED.items()}
