"""The examples run, do what they say, and print nothing else."""

from __future__ import annotations

import sys

import pytest
from documents import ROOT, no_answers
from script_process import run_command

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1100)]

EXAMPLES = ("change_feed.py", "follow_a_table.py")


@pytest.fixture(scope="module")
def ended(run_documents):
    return run_documents("plain", list(EXAMPLES))


def test_totals_and_vectors_follow_the_changes_alone(ended):
    seen = ended.result("change_feed.py")
    assert (seen["wrong totals"], seen["stale vectors"]) == (0, 0)
    assert 1 <= seen["carriers looked at again"] < seen["carriers"] / 2
    assert seen["vectors at first"] == 3
    assert (seen["vectors made anew"], seen["vectors made once more"]) == (1, 0)


def test_a_copy_and_a_history_follow_a_table(ended):
    seen = ended.result("follow_a_table.py")
    assert seen["rows in which the copy differs"] == 0
    apart = [value for name, value in seen.items() if name.startswith("rows apart")]
    assert apart == [0, 0, 0, 0, 0]
    assert seen["versions of the copy"] == 4
    assert seen["states in the history"] > seen["rows in the table"]


def test_the_quickstart_comes_to_its_end(tmp_path):
    """It starts and stops a session of its own."""
    printed = run_command(sys.executable, ROOT / "examples" / "quickstart.py", tmp_path)
    assert "columns before and after" in printed[0]
    assert [no_answers(one) for one in printed] == [{}, {}]


def test_no_example_is_left_out():
    others = {path.name for path in (ROOT / "examples").glob("*.py")} - set(EXAMPLES)
    assert others == {"quickstart.py", "flights.py"}  # one that is above, and what all of them read
