"""UPDATE and MERGE of tables of other sources: the same plans and errors as without the jar."""

from __future__ import annotations

import json

import pytest
from blob_tables import blobs_by_id, new_blob_table
from pyspark.errors import AnalysisException
from script_process import run_script

pytestmark = [pytest.mark.spark, pytest.mark.interop]

_STATEMENTS = """
import json, re, sys
from pyspark.sql import SparkSession
builder = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
           .config("spark.driver.host", "127.0.0.1").config("spark.sql.warehouse.dir", sys.argv[1]))
if len(sys.argv) > 2:
    builder = builder.config("spark.jars", sys.argv[2])
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.sql("CREATE TABLE files (a INT, b STRING) USING parquet")
spark.sql("CREATE VIEW kept AS SELECT * FROM files")
spark.sql("CREATE TEMP VIEW shown AS SELECT 1 AS a")
state = spark._jsparkSession.sessionState()
MATCHED = "ON t.a = s.a WHEN MATCHED THEN UPDATE SET *"
answers = {}
for text in (
    "UPDATE missing SET a = 1",
    "UPDATE missing SET a = 1 WHERE a = 3",
    "UPDATE nowhere.x.y SET a = 1",
    "UPDATE parquet.`/nowhere` SET a = 1",
    "UPDATE IDENTIFIER('mis' || 'sing') SET a = 1",
    "UPDATE files SET a = 1",
    "UPDATE files SET a = b WHERE a > (SELECT max(a) FROM shown)",
    "UPDATE IDENTIFIER('fi' || 'les') SET a = 1 WHERE a > 1",
    "UPDATE files SET c = 1",
    "UPDATE files AS f SET a = 1 WHERE f.c > 1",
    "UPDATE kept SET a = 1",
    "UPDATE shown SET a = 1",
    f"MERGE INTO missing t USING files s {MATCHED}",
    f"MERGE INTO files t USING missing s {MATCHED}",
    f"MERGE INTO files t USING shown s {MATCHED}",
    f"MERGE INTO kept t USING shown s {MATCHED}",
    "MERGE INTO files t USING shown s ON t.a = s.c WHEN MATCHED THEN DELETE",
    f"WITH s AS (SELECT 1 AS a) MERGE INTO files t USING s {MATCHED}",
):
    try:
        plan = state.analyzer().execute(state.sqlParser().parsePlan(text)).toString()
    except Exception as error:
        plan = str(error)
    try:
        spark.sql(text)
        error = "none"
    except Exception as raised:
        error = str(raised).split("JVM stacktrace")[0]
    answers[text] = [re.sub(r"#\\d+L?", "#", part) for part in (plan, error)]
print(json.dumps(answers))
"""


def test_plans_and_errors_are_those_without_the_jar(jar, tmp_path):
    plain = json.loads(run_script(_STATEMENTS, tmp_path / "w", cwd=tmp_path).splitlines()[-1])
    assert "UpdateTable" in plain["UPDATE files SET a = 1"][0]
    assert all(error != "none" for _, error in plain.values())
    with_jar = run_script(_STATEMENTS, tmp_path / "v", jar, cwd=tmp_path).splitlines()[-1]
    assert json.loads(with_jar) == json.loads(json.dumps(plain).replace("/w/", "/v/"))


@pytest.mark.parametrize("has_blobs", [False, True])
def test_errors_of_statements_on_lance_tables_show_no_placeholder(plugin, path, has_blobs):
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
        f"UPDATE IDENTIFIER('{table}') SET missing = 1",
        f"MERGE INTO {table} t USING missing s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(AnalysisException, match="missing") as refused:
            plugin.sql(text)
        assert "UpdateTable" in str(refused.value) or "MergeIntoTable" in str(refused.value)
        assert "held" not in str(refused.value)


def test_names_of_lance_tables_with_blobs_are_recognised(plugin, path):
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
