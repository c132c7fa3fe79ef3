"""Names and errors of statements that may concern tables of other sources, too."""

from __future__ import annotations

import pytest
from blob_tables import blobs_by_id, new_blob_table
from pyspark.errors import AnalysisException
from spark_releases import has

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.mark.parametrize("has_blobs", [False, True])
def test_statement_errors_show_no_placeholders(plugin, path, has_blobs):
    if has_blobs:
        new_blob_table(path)
    else:
        plugin.sql(f"CREATE TABLE lance.`{path}` (id bigint)")
    table = f"lance.`{path}`"
    plugin.read.format("lance").load(path).createOrReplaceTempView("changed")
    for text in (
        f"UPDATE {table} SET id = 1 WHERE missing",
        f"UPDATE {table} SET missing = 1",
        "UPDATE changed SET missing = 1",
        *([f"UPDATE IDENTIFIER('{table}') SET missing = 1"] * has("paths in IDENTIFIER")),
        f"MERGE INTO {table} t USING missing s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(AnalysisException, match="missing") as refused:
            plugin.sql(text)
        assert "UpdateTable" in str(refused.value) or "MergeIntoTable" in str(refused.value)
        assert "held" not in str(refused.value)


def test_blob_table_names_are_recognised(plugin, path):
    new_blob_table(path, values=dict.fromkeys(range(5), b"old"))
    plugin.sql(f"CREATE TABLE blobs_by_name USING lance LOCATION '{path}'")
    plugin.read.format("lance").load(path).createOrReplaceTempView("blobs_by_view")
    try:
        for key, name in enumerate(
            (
                "blobs_by_name",
                "spark_catalog.default.blobs_by_name AS t",
                "blobs_by_view",
                f"lance.`{path}`",
                "IDENTIFIER('blobs_by' || '_name')",
            )
        ):
            plugin.sql(f"UPDATE {name} SET b = X'0{key}' WHERE id = {key}")
    finally:
        plugin.sql("DROP TABLE blobs_by_name")
    assert blobs_by_id(path) == {key: bytes([key]) for key in range(5)}
