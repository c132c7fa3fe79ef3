"""Spark Declarative Pipelines: an auto CDC flow from our changes into tables of the companion.

Spark runs pipelines in Connect only: the script starts a server in a process of its own, and runs
the pipeline that the document shows there, twice.  Each flow has a session of its own, for which
Spark starts each Python role anew; so what is not about flows is done without Spark.
"""

from __future__ import annotations

import pyspark
import pyspark.pipelines
import pytest
from connect_script import start_connect
from documents import ROOT, blocks_of
from script_process import run_script
from table_access import read_ours

import pyspark_lance

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not hasattr(pyspark.pipelines, "create_auto_cdc_flow"),
        reason="auto CDC came with Spark 4.2",
    ),
]
KEEPS_STATES = not pyspark.__version__.startswith("4.2.")

SCRIPT = """
import sys
from pathlib import Path
import pyarrow as pa
from pyspark.pipelines.cli import (
    SparkConnectGraphElementRegistry, create_dataflow_graph, handle_pipeline_events,
    load_pipeline_spec, register_definitions, start_run,
)
sys.path.insert(0, sys.argv[3])
from local_changes import delete_rows
from row_changes import set_to
from table_access import write_table
followed, spec_file = sys.argv[1], Path(sys.argv[2])
def run():
    # As `spark-pipelines run`, which ends the session and, with it, the server.
    spec = load_pipeline_spec(spec_file)
    graph = create_dataflow_graph(spark, spec.catalog, spec.database, spec.configuration)
    registry = SparkConnectGraphElementRegistry(spark, graph)
    register_definitions(spec_file, registry, spec, spark, graph)
    every = {"full_refresh": [], "full_refresh_all": False, "refresh": [], "dry": False}
    handle_pipeline_events(start_run(spark, graph, storage=spec.storage, **every))
def write(ids, text, **settings):
    rows = pa.table({"id": pa.array(ids, pa.int64()), "text": [text] * len(ids)})
    write_table(followed, rows, **settings)
write(range(5), "a")
run()
set_to(followed, "id = 1", text="b")
delete_rows(followed, "id = 2")
write([3], "c", overwrite=True, replace_where="id = 3")
write([7], "d")
run()
spark.stop()
"""


def test_a_pipeline_keeps_rows_and_all_their_states_over_runs(tmp_path):
    shown = {
        block.language: block.code for block in blocks_of((ROOT / "docs/streams.md").read_text())
    }
    folder = tmp_path / "pipeline"
    folder.mkdir()
    flows = shown["py"]
    if not KEEPS_STATES:
        assert flows.count(', ("spark_catalog.default.states", 2))') == 1
        flows = flows.replace(', ("spark_catalog.default.states", 2))', ",)")
    files = {folder / "follow.py": flows, tmp_path / "spark-pipeline.yaml": shown["yaml"]}
    for file, text in files.items():
        file.write_text(text.replace("/data", str(tmp_path)))
    settings = {
        "spark.sql.pipelines.execution.maxConcurrentFlows": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.jars": pyspark_lance.companion_jar(),
        "spark.sql.catalog.copies": "org.pysparklance.LanceCatalog",
        "spark.sql.catalog.copies.path": str(tmp_path / "copies"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    script = start_connect(settings) + SCRIPT
    run_script(
        script,
        tmp_path / "followed",
        tmp_path / "spark-pipeline.yaml",
        ROOT / "tests" / "support",
        cwd=tmp_path,
    )
    newest = read_ours(str(tmp_path / "copies/newest.lance")).select(["id", "text"])
    assert _rows(newest) == [(0, "a"), (1, "b"), (3, "c"), (4, "a"), (7, "d")]
    if not KEEPS_STATES:
        return
    states = read_ours(str(tmp_path / "warehouse/states"))
    assert states.column_names[:4] == ["id", "text", "__START_AT", "__END_AT"]
    assert _rows(states.select(range(4))) == [
        (0, "a", 3, None), (1, "a", 3, 5), (1, "b", 5, None), (2, "a", 3, 6),
        (3, "a", 3, 8), (3, "c", 9, None), (4, "a", 3, None), (7, "d", 11, None),
    ]  # fmt: skip


def _rows(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())
