"""Spark Declarative Pipelines: the documented command in a process of its own.

The documented pipeline has auto CDC flows from a change feed. The tests add a streaming table and a
materialized view to it, in a Lance catalog and in Spark's own. The package has no code for
pipelines alone: ``test_streams`` and ``test_tables`` have what they use in every run.
"""

from __future__ import annotations

import pyarrow as pa
import pyspark
import pytest
from documents import ROOT, blocks_of
from local_changes import delete_rows
from row_changes import set_to
from script_process import run_command
from spark_releases import needs
from table_access import read_ours, write_table

pytestmark = [pytest.mark.spark, needs("auto CDC of pipelines")]
KEEPS_STATES = not pyspark.__version__.startswith("4.2.")

# One flow at a time and more retries, as Spark allows a Python process ten seconds to connect.
SETTINGS = """
  spark.sql.pipelines.execution.maxConcurrentFlows: "1"
  spark.sql.pipelines.maxFlowRetryAttempts: "9"
  spark.sql.adaptive.enabled: "false"
  spark.sql.shuffle.partitions: "1"
  spark.sql.session.timeZone: UTC
"""

# Of the catalog of the pipeline, and with a prefix of another.
TABLES = """
CREATE STREAMING TABLE {catalog}streamed USING lance AS
    SELECT id, text FROM STREAM lance.`{folder}/added`;
CREATE MATERIALIZED VIEW {catalog}counted USING lance AS
    SELECT text, count(*) AS rows FROM {catalog}streamed GROUP BY text;
"""
# How the names of its tables end as folders.
OTHER_CATALOG = "spark_catalog.default."
FOLDERS = {"copies": ".lance", "spark-warehouse": ""}


@pytest.fixture
def catalogs(request):
    """Those of the streaming tables and views; the documented flows have both in every run."""
    return getattr(request, "param", ["copies"])


@pytest.fixture
def pipeline(tmp_path, catalogs):
    shown = {
        block.language: block.code for block in blocks_of((ROOT / "docs/streams.md").read_text())
    }
    flows = shown["py"]
    if not KEEPS_STATES:
        assert flows.count(', ("spark_catalog.default.states", 2))') == 1
        flows = flows.replace(', ("spark_catalog.default.states", 2))', ",)")
    (tmp_path / "pipeline").mkdir()
    files = {
        "pipeline/follow.py": flows,
        "pipeline/tables.sql": "".join(
            TABLES.format(folder=tmp_path, catalog="" if one == "copies" else OTHER_CATALOG)
            for one in catalogs
        ),
        "spark-pipeline.yaml": shown["yaml"].rstrip() + SETTINGS,
    }
    for file, text in files.items():
        (tmp_path / file).write_text(text.replace("/data", str(tmp_path)))
    _write(tmp_path / "followed", range(5), "a")
    _write(tmp_path / "added", range(2), "a")
    _run(shown["bash"], tmp_path)
    return tmp_path, shown["bash"]


@pytest.mark.slow
def test_documented_pipeline_fills_tables_and_views(pipeline, catalogs):
    folder, _ = pipeline
    _check_added(folder, catalogs, [("a", 2)])
    rows = [(n, "a") for n in range(5)]
    assert _rows(_newest(folder)) == rows
    if KEEPS_STATES:
        assert _rows(_states(folder)) == [(*row, 3, None) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("catalogs", [list(FOLDERS)], indirect=True)
def test_documented_pipeline_keeps_states_over_runs(pipeline, catalogs):
    folder, command = pipeline
    followed = str(folder / "followed")
    set_to(followed, "id = 1", text="b")
    delete_rows(followed, "id = 2")
    _write(followed, [3], "c", overwrite=True, replace_where="id = 3")
    _write(followed, [7], "d")
    _write(folder / "added", range(2, 5), "b")
    _run(command, folder)

    _check_added(folder, catalogs, [("a", 2), ("b", 3)])
    assert _rows(_newest(folder)) == [(0, "a"), (1, "b"), (3, "c"), (4, "a"), (7, "d")]
    if KEEPS_STATES:
        assert _rows(_states(folder)) == [
            (0, "a", 3, None), (1, "a", 3, 5), (1, "b", 5, None), (2, "a", 3, 6),
            (3, "a", 3, 8), (3, "c", 9, None), (4, "a", 3, None), (7, "d", 11, None),
        ]  # fmt: skip


def _check_added(folder, catalogs, counts):
    ids = list(range(sum(rows for _, rows in counts)))
    for catalog in catalogs:
        suffix = FOLDERS[catalog]
        streamed = read_ours(str(folder / catalog / f"streamed{suffix}"))
        assert sorted(streamed["id"].to_pylist()) == ids
        counted = read_ours(str(folder / catalog / f"counted{suffix}"))
        assert _rows(counted.select(["text", "rows"])) == counts


def _newest(folder):
    return read_ours(str(folder / "copies/newest.lance")).select(["id", "text"])


def _states(folder):
    states = read_ours(str(folder / "spark-warehouse/states"))
    assert states.column_names[:4] == ["id", "text", "__START_AT", "__END_AT"]
    return states.select(range(4))


def _run(command, folder):
    # SPARK_TESTING gives the Connect server a free port instead of 15002.
    run_command("env", "SPARK_TESTING=1", "bash", "-e", "-c", command, cwd=folder, seconds=900)


def _write(path, ids, text, **settings):
    rows = pa.table({"id": pa.array(ids, pa.int64()), "text": [text] * len(ids)})
    write_table(str(path), rows, **settings)


def _rows(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())
