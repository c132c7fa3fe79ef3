"""What docs/sql.md says of every statement on every kind of table is so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support_matrix import differences, documented, every_cell, matrix, one_cell_each

pytestmark = pytest.mark.spark

COMMAND = Path(__file__).parents[1] / "support" / "support_matrix.py"


def test_sampled_statements_behave_as_documented(spark, session_kind):
    assert differences(matrix(spark, one_cell_each(session_kind)), session_kind) == []


@pytest.mark.slow
def test_sampled_statements_behave_as_documented_in_connect():
    """With the plugin, which has all statements; plain sessions in the whole matrix."""
    asked = [sys.executable, COMMAND, "plugin", "connect", "--some"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_document_lists_exactly_tested_statements():
    for kind in ("plugin", "plain"):
        cells = {(one.label, place) for one, place in every_cell(kind)}
        assert documented(kind).keys() == cells


@pytest.mark.slow
def test_all_statements_behave_as_documented():
    """Print the cells: python tests/support/support_matrix.py all."""
    assert subprocess.run([sys.executable, COMMAND, "all"], check=False).returncode == 0
