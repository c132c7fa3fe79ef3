"""The quickstart as a command; test_documents runs the other examples."""

from __future__ import annotations

import subprocess
import sys

import pytest
from documents import EXAMPLES, ROOT, WITH_DIGITS, no_answers
from script_process import run_command

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1100)]


def test_quickstart_completes(tmp_path):
    """It starts and stops a session of its own."""
    # As the console entry runs it, which needs no clone.
    command = (sys.executable, "-m", "pyspark_lance", "quickstart", tmp_path / "kept")
    printed = run_command(*command)
    assert ("update_preimage" in printed[0], "What to try next" in printed[0]) == (True, True)
    assert [no_answers(one) for one in printed] == [{}, {}]
    assert "\033" not in printed[0]  # no terminal
    # Its figures would be wrong in a table that it has written already.
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"{tmp_path}/kept/flights exists: name another folder, or none\n"


def test_all_examples_are_listed():
    others = {path.name for path in (ROOT / "examples").glob("*.py")} - {*EXAMPLES, WITH_DIGITS}
    # One that is above, what all of them use, and one that test_migrate_example runs.
    assert others == {"quickstart.py", "flights.py", "printing.py", "migrate.py"}
