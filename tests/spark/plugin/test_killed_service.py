"""The service of a session is killed while statements run; ``tests/kills`` does so more often."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import pytest
from kills.killed_service import run, service_processes
from pyspark.errors import AnalysisException
from pyspark.sql.functions import udf
from script_process import run_command

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="finds processes by /proc"),
]


def test_statements_survive_kills_of_the_service_or_fail_as_a_whole(plugin, tmp_path):
    outcome = run(plugin, str(tmp_path), kills=4, seed=1)
    assert outcome.problems == []
    assert outcome.succeeded >= 1


def test_sessions_of_an_application_share_one_service(plugin, path):
    plugin.range(3).write.format("lance").save(path)
    (before,) = service_processes()
    assert plugin.newSession().read.format("lance").load(path).count() == 3
    assert service_processes() == [before]


def test_errors_of_the_service_begin_with_their_code_however_they_are_asked_for(plugin, path):
    with pytest.raises(AnalysisException) as raised:
        plugin.read.format("lance").load(path)
    assert raised.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert "[LANCE_TABLE_NOT_FOUND] there is no Lance table here\n" in raised.value.getMessage()
    assert str(raised.value).startswith("[LANCE_TABLE_NOT_FOUND] there is no Lance table here\n")


def test_the_error_of_a_commit_is_raised_though_the_abort_fails_too(plugin, path, settings):
    plugin.range(3).write.format("lance").save(path)
    (service,) = service_processes()

    def killing(number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(service, signal.SIGKILL)
        return number

    rows = plugin.range(3, 6).select(udf(killing, "bigint")("id").alias("id"))
    # The service that would commit, and the one that would abort, cannot start.
    settings({"spark.sql.planner.pythonExecution.memory": "1m"})
    with pytest.raises(AnalysisException, match=r"^\[LANCE_STORAGE\].*\n *hint: "):
        rows.write.format("lance").mode("append").save(path)
    # The service that starts now serves the tests after this one, too.
    settings({"spark.sql.planner.pythonExecution.memory": "256g"})
    assert plugin.read.format("lance").load(path).count() == 3


LACKING = """
import sys
from pyspark.sql import SparkSession
from pyspark_lance import plugin_jar

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.pyspark.python", sys.argv[2])
spark = builder.config("spark.jars", plugin_jar()).getOrCreate()
try:
    spark.range(3).write.format("lance").save(sys.argv[1])
except Exception as error:
    print(str(error))
spark.stop()
"""


@pytest.mark.slow
def test_pythons_without_the_package_are_named(path, tmp_path):
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without installed packages
    other.chmod(0o755)
    command = ["env", "PATH=/nowhere", f"PYSPARK_PYTHON={other}", f"PYSPARK_DRIVER_PYTHON={other}"]
    out, _ = run_command(*command, sys.executable, "-c", LACKING, path, other)
    assert out.startswith("[LANCE_STORAGE] no Python of the driver can plan reads and writes")
    assert f"{other}: " in out and "No module named" in out
    assert "hint: pip install pyspark-lance for the Python that" in out
