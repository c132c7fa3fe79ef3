"""Spark Declarative Pipelines: an auto CDC flow from our changes into tables of the companion.

Spark runs pipelines in Connect only: the script starts a server in a process of its own, and runs
the pipeline that the document shows there, twice.  It starts some thirty Python processes, each of
which Spark gives ten seconds, so it is not part of the default run: pytest -m slow.
"""

from __future__ import annotations

import pyspark.pipelines
import pytest
from connect_script import start_connect
from documents import ROOT, blocks_of
from script_process import run_script

import pyspark_lance

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1600),
    pytest.mark.skipif(
        not hasattr(pyspark.pipelines, "create_auto_cdc_flow"),
        reason="auto CDC came with Spark 4.3",
    ),
]

SCRIPT = """
import sys
from pathlib import Path
from pyspark.pipelines.cli import (
    SparkConnectGraphElementRegistry, create_dataflow_graph, handle_pipeline_events,
    load_pipeline_spec, register_definitions, start_run,
)
from pyspark_lance import LanceTable
followed, spec_file = sys.argv[1], Path(sys.argv[2])
def run():
    # As `spark-pipelines run`, which ends the session and, with it, the server.
    spec = load_pipeline_spec(spec_file)
    graph = create_dataflow_graph(spark, spec.catalog, spec.database, spec.configuration)
    registry = SparkConnectGraphElementRegistry(spark, graph)
    register_definitions(spec_file, registry, spec, spark, graph)
    every = {"full_refresh": [], "full_refresh_all": False, "refresh": [], "dry": False}
    handle_pipeline_events(start_run(spark, graph, storage=spec.storage, **every))
def show(name, columns):
    rows = spark.table("copies." + name).selectExpr(*columns).collect()
    print("ROWS", name, sorted(map(tuple, rows)))
rows = spark.range(0, 5, 1, 1).selectExpr("id", "'a' AS text")
rows.write.format("lance").mode("append").save(followed)
run()
show("newest", ["id", "text"])
table = LanceTable.forPath(spark, followed)
table.update("id = 1", {"text": "'b'"})
table.delete("id = 2")
again = spark.range(3, 4, 1, 1).selectExpr("id", "'c' AS text")
again.write.format("lance").mode("overwrite").option("replaceWhere", "id = 3").save(followed)
more = spark.range(7, 8, 1, 1).selectExpr("id", "'d' AS text")
more.write.format("lance").mode("append").save(followed)
run()
show("newest", ["id", "text"])
show("states", ["id", "text", "__START_AT div 2", "coalesce(__END_AT div 2, 0)"])
spark.stop()
"""


def test_a_pipeline_keeps_rows_and_all_their_states_over_runs(tmp_path):
    shown = {
        block.language: block.code for block in blocks_of((ROOT / "docs/streams.md").read_text())
    }
    folder = tmp_path / "pipeline"
    folder.mkdir()
    files = {folder / "follow.py": shown["py"], tmp_path / "spark-pipeline.yaml": shown["yaml"]}
    for file, text in files.items():
        file.write_text(text.replace("/data", str(tmp_path)))
    settings = {
        # Each flow starts processes of Python, and Spark waits for one of them ten seconds only.
        "spark.sql.pipelines.execution.maxConcurrentFlows": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.jars": pyspark_lance.companion_jar(),
        "spark.sql.catalog.copies": "org.pysparklance.LanceCatalog",
        "spark.sql.catalog.copies.path": str(tmp_path / "copies"),
    }
    script = start_connect(settings) + SCRIPT
    printed = run_script(
        script, tmp_path / "followed", tmp_path / "spark-pipeline.yaml", seconds=1500
    )
    newest, again, states = [line for line in printed.splitlines() if line.startswith("ROWS")]
    assert newest == "ROWS newest [(0, 'a'), (1, 'a'), (2, 'a'), (3, 'a'), (4, 'a')]"
    assert again == "ROWS newest [(0, 'a'), (1, 'b'), (3, 'c'), (4, 'a'), (7, 'd')]"
    assert states == (
        "ROWS states [(0, 'a', 1, 0), (1, 'a', 1, 2), (1, 'b', 2, 0), (2, 'a', 1, 3), "
        "(3, 'a', 1, 4), (3, 'c', 4, 0), (4, 'a', 1, 0), (7, 'd', 5, 0)]"
    )
